"""The table of the page is that of the record, and every script of the list is there."""

from __future__ import annotations

from pathlib import Path

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
