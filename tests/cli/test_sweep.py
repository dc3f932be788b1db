"""A sweep: every point is the run of its settings, and what shapes the program is refused."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from powerzoo_jax.cli import main
from powerzoo_jax.cli.runs import Run, open_run, parse_grid
from powerzoo_jax.rl.training.config import PPOConfig
from tests.rl.toy_battery import STEPS, toy_sim

CFG = PPOConfig(lanes=4, total_steps=4 * STEPS * 2, epochs=1, minibatches=1, widths=(8,))
GRID = (("lr", (1e-3, 1e-2)), ("gamma", (0.5, 1.0)))


def updated(run: Run):
    """Weights after the first update, one row a policy."""
    sim = toy_sim()
    init, update = run.programs(sim)

    def first(keys, varied, sim):
        return update(init(keys, varied, sim), varied, sim)[0].params

    return jax.jit(first)(run.keys, run.varied(sim), sim)


@pytest.mark.full
def test_a_point_of_a_sweep_is_the_run_of_its_settings(tmp_path):
    sweep = Run(tmp_path, CFG, seeds=2, grid=GRID)
    assert sweep.labels == ["lr=0.001 gamma=0.5", "lr=0.001 gamma=1", "lr=0.01 gamma=0.5", "lr=0.01 gamma=1"]
    alone = Run(tmp_path, dataclasses.replace(CFG, lr=1e-2, gamma=0.5), seeds=2)
    every, one = updated(sweep), updated(alone)
    for a, b in zip(jax.tree.leaves(every), jax.tree.leaves(one), strict=True):
        np.testing.assert_allclose(a[4:6], b, atol=2e-5)  # a step of Adam is 1e-2; roundings differ by fusion
        assert a.shape[0] == 8


def test_a_sweep_reads_back_with_its_grid(tmp_path):
    run = Run(tmp_path / "run", CFG, seeds=2, grid=GRID)
    run.write()
    assert open_run(run.folder) == run


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("lrr=1,2", "'lr'"),
        ("lanes=2,4", "single numbers"),
        ("bootstrap=true", "single numbers"),
        ("lr", "KEY"),
    ],
)
def test_what_cannot_vary_in_one_program_is_refused(text, hint, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["sweep", "battery_arbitrage", "--over", text]) == 2
    assert hint in capsys.readouterr().err


def test_values_are_read_once_each():
    assert parse_grid(CFG, ["lr=1e-3,1e-2,1e-3", "gamma=1"]) == (("lr", (1e-3, 1e-2)), ("gamma", (1.0,)))
