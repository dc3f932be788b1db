"""Idle devices on the test days of SimBench violate the band as much as the tasks were specified to."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.families.feeder.plan.episode import build_feeder_problems
from powerzoo_jax.families.feeder.plan.problem import run
from powerzoo_jax.families.feeder.plan.program import idle_points
from powerzoo_jax.tasks.score import SEED, all_starts, episode_keys

pytestmark = pytest.mark.reference

# setting, mean of the violation summed over buses and steps of a day [pu], share of days, losses [MWh/day]
SPECIFIED = {
    "dso": ({}, 0.401, 0.73, 1.257),
    "marl_ders_benchmark": ({"max_load_ratio": 1.1}, 0.060, 0.14, 3.14),
    "marl_der_arbitrage": ({"max_load_ratio": 0.9}, 0.010, 0.11, None),
}


@pytest.mark.parametrize("task", SPECIFIED)
def test_idle_devices_leave_the_violations_and_losses_specified(task: str) -> None:
    settings, violation_pu, share, loss_mwh = SPECIFIED[task]
    with jax.enable_x64(True):
        sim = powerzoo_jax.make(task, split="test", dtype="float64", **settings)
        draws = all_starts(sim)
        problems = build_feeder_problems(sim, draws, episode_keys(SEED, draws.load_row.shape[0]))
    played = [run(problem, idle_points(problem)) for problem in problems]
    violation = np.array([out.violation_pu for out in played])
    assert violation.mean() == pytest.approx(violation_pu, rel=0.1)
    assert (violation > 0).mean() == pytest.approx(share, abs=0.05)
    if loss_mwh is not None:
        loss = [
            problem.network.base_mva * problem.dt_hours * out.solved.loss_pu.sum()
            for problem, out in zip(problems, played, strict=True)
        ]
        assert np.mean(loss) == pytest.approx(loss_mwh, rel=0.1)
