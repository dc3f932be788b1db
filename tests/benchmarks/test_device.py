"""The benchmark of whatever device there is: on a CPU, with sizes that say only that it runs."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.full
def test_every_part_is_timed_on_the_default_device(tmp_path):
    out = tmp_path / "device.tsv"
    chosen = ["--case", "case33bw", "--task", "marl_opf", "--trained", "marl_opf", "--lanes", "8", "--rounds", "2"]
    command = [sys.executable, "benchmarks/device.py", *chosen, "--out", str(out)]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'compat'}"}
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
    first, head, *lines = out.read_text().splitlines()
    rows = [dict(zip(head.split("\t"), line.split("\t"), strict=True)) for line in lines]
    assert first.startswith("# ") and "jax=" in first and "powerzoo-jax=" in first
    own = [row["what"] for row in rows if row["engine"] == "powerzoo_jax"]
    assert own == ["power flow, case33bw", "env steps, marl_opf", "ppo, marl_opf"]
    assert all(float(row["per_s"]) >= float(row["slowest_per_s"]) > 0 for row in rows)
    assert float(rows[0]["unsolved"]) == 0 and all(math.isfinite(float(row["compile_s"])) for row in rows)
