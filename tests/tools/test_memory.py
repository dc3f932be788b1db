"""Memory that grows is told from caches that fill, and the command says so."""

from __future__ import annotations

import sys

import pytest

from tools import memory
from tools.memory import FLAT_MB, Sample, growth


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
    before = memory.resident_mb()
    block = bytearray(b"x") * 50_000_000
    assert memory.resident_mb() > before + 40
    del block


def test_a_training_that_ends_by_itself_is_no_measurement(monkeypatch):
    monkeypatch.setattr(sys, "executable", "false")
    with pytest.raises(RuntimeError, match="training of dso ended with status 1"):
        next(memory.training("dso", 1.0))
