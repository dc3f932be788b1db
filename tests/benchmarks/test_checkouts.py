"""The benchmark of two checkouts: this one beside itself, and beside one that cannot step a task."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.program, pytest.mark.long]

ROOT = Path(__file__).parents[2]


def rows(base: Path, out: Path) -> list[dict[str, str]]:
    """Rows of a short run, by column."""
    chosen = ["--task", "marl_opf", "--lanes", "8", "--rounds", "3", "--seconds", "0.05", "--out", str(out)]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "benchmarks/checkouts.py", str(base), *chosen]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
    first, head, *lines = out.read_text().splitlines()
    assert first.startswith("# one core")
    return [dict(zip(head.split("\t"), line.split("\t"), strict=True)) for line in lines]


def test_a_checkout_is_as_fast_as_itself(tmp_path):
    (row,) = rows(ROOT, tmp_path / "out.tsv")
    assert (row["task"], row["lanes"]) == ("marl_opf", "8")
    assert float(row["base_ns"]) > 0 and float(row["ns"]) > 0
    assert float(row["low"]) <= float(row["ratio"]) <= float(row["high"])


def test_a_checkout_that_cannot_step_a_task_says_why(tmp_path):
    package = tmp_path / "powerzoo_jax"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('not this package')\n")
    (row,) = rows(tmp_path, tmp_path / "out.tsv")
    assert row["base_ns"] == "base: RuntimeError: not this package" and row["ratio"] == "-"
