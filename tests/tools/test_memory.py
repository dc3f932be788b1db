"""Memory that grows is told from caches that fill, and the command says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tools import memory
from tools.memory import FLAT_MB, Sample, growth

# a process whose other threads give no memory back meanwhile
OF_ITS_OWN: dict[str, Any] = {"cwd": Path(__file__).parents[2], "capture_output": True, "text": True, "check": True}


@pytest.mark.parametrize(("step", "flat"), [(0.0, True), (2.0, False)])
def test_memory_that_grows_is_told_from_caches_that_fill(step, flat):
    samples = [100.0] * 5 + [500.0 + step * k for k in range(95)]
    assert (growth(samples) < FLAT_MB) == flat


@pytest.mark.parametrize("step", [0.0, 2.0])
def test_the_command_fails_where_either_grows_and_writes_what_it_saw(step, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(memory, "cycles", lambda *_: (Sample(k, k, 300.0) for k in range(100)))
    monkeypatch.setattr(memory, "training", lambda *_: (Sample(k, k, 300.0 + step * k) for k in range(100)))
    out = tmp_path / "memory.tsv"
    assert memory.main(["dso", "--out", str(out)]) == int(step > 0)
    head, columns, *rows = out.read_text().splitlines()
    assert head in capsys.readouterr().out and head.startswith("# dso: 99 cycles in 99 s, +0.0 MB")
    assert columns == "what\trepeats\tseconds\tMB" and rows[-1] == f"updates\t99\t99.0\t{300.0 + step * 99:.1f}"


def test_resident_memory_counts_what_is_allocated():
    program = """
from tools.memory import resident_mb

before = resident_mb()
block = bytearray(b"x") * 50_000_000
print(resident_mb() - before)
"""
    assert 40 < float(subprocess.run([sys.executable, "-c", program], **OF_ITS_OWN).stdout) < 60


def test_a_training_that_ends_by_itself_is_no_measurement(monkeypatch):
    monkeypatch.setattr(sys, "executable", "false")
    with pytest.raises(RuntimeError, match="training of dso ended with status 1"):
        next(memory.training("dso", 1.0))
