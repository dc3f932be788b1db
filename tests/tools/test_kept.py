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
