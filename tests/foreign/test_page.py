"""The table of the page is that of the record, and every script of the list is there."""

from __future__ import annotations

from pathlib import Path

from tests.foreign.__main__ import SLOW_AT_ONCE, in_turn, run_script
from tests.foreign.record import PAGE, beats, lines_changed, read_results, read_scripts, with_table

HERE = Path(__file__).parent


def test_the_page_shows_the_record():
    text = PAGE.read_text(encoding="utf-8")
    assert with_table(text) == text
    assert {row["script"] for row in read_results()} <= set(read_scripts())


def test_every_script_is_in_the_list_and_names_the_lines_that_are_ours():
    scripts = read_scripts()
    files = {script.get("file", name) for name, script in scripts.items()}
    assert files == {path.stem for path in HERE.glob("*.py") if "\n    run(" in path.read_text(encoding="utf-8")}
    for name, script in scripts.items():
        if "checkout" not in script:
            assert 1 < lines_changed(name, script, []) < 5, name
            text = (HERE / f"{script.get('file', name)}.py").read_text(encoding="utf-8")
            body = text.split('"""', 2)[2]
            unmarked = [line for line in body.splitlines() if "powerzoo" in line.lower() and "# ours" not in line]
            assert not unmarked, unmarked


def test_what_is_claimed_is_in_the_record_for_three_seeds():
    for name, script in read_scripts().items():
        rows = [row for row in read_results() if row["script"] == name]
        if script["claim"]:
            assert len({row["seed"] for row in rows}) == 3 and beats(rows), name


def test_a_return_must_be_two_errors_above_both():
    def rows(*returns):
        return [{"after": value, "random": -3.0, "idle": 0.0} for value in returns]

    assert beats(rows(0.5, 0.6, 0.7)) and beats(rows(0.1))
    assert not beats(rows(-0.1, 0.6, 0.7)) and not beats(rows(-1.0, -1.1, -1.2)) and not beats(rows(0.0))


def test_slow_scripts_take_turns():
    slow = ["a", "b", "c", "d", "e"]
    turns = [in_turn(slow, day) for day in range(len(slow))]
    assert all(len(set(turn)) == SLOW_AT_ONCE for turn in turns) and set().union(*turns) == set(slow)
    assert in_turn(["a"], 3) == ["a"] and in_turn([], 3) == []


def test_a_script_that_takes_too_long_or_has_no_environment_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("VENV_E9", str(tmp_path))
    (row,) = run_script("busy", {"env": "e9"}, [0], 1, [])
    assert "is missing" in row["error"]
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\nwhile :; do :; done\n")
    python.chmod(0o700)
    (row,) = run_script("busy", {"env": "e9"}, [0], 1, [])
    assert row == {"script": "busy", "error": "not done after 1 s of processor time"}
