"""Files kept under build/ are made once, and again when what they depend on changes."""

from __future__ import annotations

import pytest

from tools import kept


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Ask for a file that depends on a text; returns (its content, how often it was made so far)."""
    monkeypatch.setattr(kept, "BUILD", tmp_path)
    count = []

    def ask(text: str) -> tuple[str, int]:
        def make() -> str:
            count.append(text)
            return f"made of {text}"

        return kept.kept("things", "thing", "txt", kept.digest_with(text), make), len(count)

    return ask


def test_a_file_is_made_once(made):
    assert made("a") == made("a") == ("made of a", 1)


def test_a_file_is_made_again_when_its_text_or_a_source_changes(made, tmp_path, monkeypatch):
    assert made("a")[1] == 1 and made("b") == ("made of b", 2)
    monkeypatch.setattr(kept, "_sources", lambda: "others")
    assert made("b") == ("made of b", 3)
    assert len(list((tmp_path / "things").glob("*.txt"))) == 1  # the older ones are gone


def test_every_file_of_the_package_counts(tmp_path, monkeypatch):
    """By its name and its content, and nothing that Python compiles counts."""
    monkeypatch.setattr(kept, "ROOT", tmp_path)
    folder = tmp_path / "powerzoo_jax"
    (folder / "__pycache__").mkdir(parents=True)

    def state() -> str:
        kept._sources.cache_clear()
        return kept.digest_with("")

    seen = [state()]
    for name, content in (("a.npz", "1"), ("a.npz", "2"), ("b.npz", "2")):
        (folder / name).write_text(content)
        seen.append(state())
    assert len(set(seen)) == 4
    (folder / "__pycache__" / "a.pyc").write_text("3")
    assert state() == seen[-1]
    kept._sources.cache_clear()


def test_what_fails_is_told_and_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "BUILD", tmp_path)

    def fail() -> str:
        raise ValueError("no such thing")

    with pytest.raises(ValueError, match="no such thing"):
        kept.kept("things", "thing", "txt", "0", fail)
    assert list((tmp_path / "things").glob("*.txt")) == []
