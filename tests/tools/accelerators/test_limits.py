"""What breaks a limit, and what a run keeps of an earlier one."""

from __future__ import annotations

import json
import subprocess

import pytest

from tools.accelerators import __main__ as run
from tools.accelerators import compile_one, limits

ROW = {
    **dict.fromkeys(run.COLUMNS, "-"),
    **{"program": "task/a", "platform": "h200", "outcome": "ok", "kernels": "50", "questions": "2", "library": "0"},
    **{"wide": "0", "unpinned": "0", "temp_mb": "40.0"},
}


@pytest.fixture
def known():
    table: limits.Limits = {}
    limits.tighten(table, [ROW])
    return table


def test_a_row_keeps_the_limits_that_were_taken_from_it(known):
    assert limits.broken(ROW, known) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [("kernels", "51"), ("questions", "3"), ("library", "1"), ("wide", "1"), ("unpinned", "1"), ("temp_mb", "44.1")],
)
def test_one_more_of_anything_breaks_a_limit(known, name, value):
    assert limits.broken({**ROW, name: value}, known) == [f"{name} {value} > {known['task/a', 'h200'][name]}"]


def test_a_program_that_no_longer_compiles_breaks_its_limit(known):
    assert limits.broken({**ROW, "outcome": "UNIMPLEMENTED: LU"}, known) == ["does not compile: UNIMPLEMENTED: LU"]


def test_a_program_that_never_compiled_may_fail_and_may_begin_to_compile():
    table: limits.Limits = {}
    failing = {**ROW, "outcome": "UNIMPLEMENTED: LU"}
    limits.tighten(table, [failing])
    assert limits.broken(failing, table) == [] and limits.broken(ROW, table) == []
    limits.tighten(table, [ROW])
    assert limits.broken(failing, table)


def test_limits_only_fall(known):
    limits.tighten(known, [{**ROW, "kernels": "70", "questions": "1"}])
    assert (known["task/a", "h200"]["kernels"], known["task/a", "h200"]["questions"]) == ("50", "1")


def test_a_program_without_limits_is_told():
    assert limits.broken(ROW, {})


def test_every_program_of_a_task_has_limits_and_a_quick_platform():
    import powerzoo_jax as pz

    table = limits.read()
    for task in pz.list_tasks():
        rows = [table[f"task/{task}", platform] for platform in run.PLATFORMS]
        assert sum(row["quick"] == "yes" for row in rows) == 1, task


def printed(monkeypatch, *objects):
    """Let the compiling process print these objects; returns the commands it was started with."""
    commands: list[list[str]] = []

    def answer(command, **options):
        commands.append(command)
        return subprocess.CompletedProcess(command, 0, "\n".join(map(json.dumps, objects)), "")

    monkeypatch.setattr(run.subprocess, "run", answer)
    return commands


def test_figures_of_a_program_that_is_lowered_as_before_are_kept(monkeypatch):
    before = {**ROW, "source": "old", "lowered": "abc"}
    commands = printed(monkeypatch, {"lanes": 8, "lowered": "abc", "known": True})
    assert run.compile_program("task/a", "h200", [8], 1, "new", before) == {**before, "source": "new"}
    assert commands[0][-4:] == ["task/a", "h200", "abc", "8"]


def test_figures_of_a_program_that_has_changed_are_taken_anew(monkeypatch):
    before = {**ROW, "source": "old", "lowered": "abc"}
    counts = {"kernels": 7, "loops": 1, "branches": 1, "temp_bytes": 2e6}
    printed(monkeypatch, {"lanes": 8, "lowered": "def", "known": False, **counts})
    row = run.compile_program("task/a", "h200", [8], 1, "new", before)
    assert (row["lowered"], row["source"], row["kernels"], row["temp_mb"]) == ("def", "new", "7", "2.0")


def test_a_fingerprint_tells_programs_and_what_reads_them_apart(monkeypatch, tmp_path):
    told = compile_one.fingerprint("h200", "program")
    assert told == compile_one.fingerprint("h200", "program")
    assert len({told, compile_one.fingerprint("v5e", "program"), compile_one.fingerprint("h200p", "rogram")}) == 3
    changed = tmp_path / "hlo.py"
    changed.write_text(compile_one.READERS[0].read_text() + "\n")
    monkeypatch.setattr(compile_one, "READERS", (changed, *compile_one.READERS[1:]))
    assert compile_one.fingerprint("h200", "program") != told
