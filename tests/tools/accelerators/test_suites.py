"""Rows of the reference suites in the fixed form, read from what pytest reports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from powerzoo_jax.base.solver_mode import ADAPTIVE, AUTO, FIXED, by_mode
from tools.accelerators import suites

REPORT = """<?xml version="1.0"?>
<testsuites><testsuite name="pytest" errors="1" failures="2" skipped="3" tests="10" time="4.6"/></testsuites>
"""


def test_what_neither_failed_nor_was_skipped_has_passed(tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(REPORT)
    assert suites.counted("tests/opf/dc", tmp_path / "report.xml") == ("tests/opf/dc", "4", "3", "3", "5")


def test_every_suite_is_there_and_its_row_stays_until_it_is_run_again(tmp_path: Path) -> None:
    assert all((suites.ROOT / suite).exists() for suite in suites.SUITES)
    row = ("tests/opf/dc", "4", "3", "3", "5")
    (tmp_path / "rows.tsv").write_text("\t".join(suites.COLUMNS) + "\n" + "\t".join(row) + "\n")
    assert suites.read_rows(tmp_path / "rows.tsv") == {"tests/opf/dc": row}


def test_auto_is_what_the_run_says(pytestconfig: pytest.Config) -> None:
    found = jax.jit(lambda: by_mode(AUTO, lambda: jnp.int32(1), lambda: jnp.int32(2)))()
    assert int(found) == {AUTO: 1, ADAPTIVE: 1, FIXED: 2}[pytestconfig.getoption("auto_is")]


@pytest.mark.full
def test_a_run_can_take_auto_as_fixed() -> None:
    one = f"{__file__}::{test_auto_is_what_the_run_says.__name__}"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", one, "--auto-is", "fixed"]
    done = subprocess.run(command, cwd=suites.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout
