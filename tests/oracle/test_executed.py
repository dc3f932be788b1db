"""Executed = planned: what the environment pays for a plan is what the plan's program said.

Wear, losses, efficiencies, costs of units and prices of jobs stand in the devices and in the programs of the planners:
changed in one place alone, the two returns part.
"""

from __future__ import annotations

import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.base.tree import take
from powerzoo_jax.oracle import get_baselines
from powerzoo_jax.tasks.score import all_starts, episode_keys, evaluate

DAY = np.array([3])  # a start of the test split on which every plan below has something to do
CLOSE = 3e-6  # relative: money of 48 steps in float32 beside a plan in float64


@pytest.mark.parametrize(
    ("task", "keywords"),
    [
        ("battery_arbitrage", {}),  # wear and efficiencies of batteries
        ("marl_ev_v2g_1d", {}),  # losses and wear of vehicles
        ("marl_opf", {}),  # costs of units
        ("dc_scheduling", {"max_steps": 48}),  # prices of jobs
    ],
)
def test_a_plan_earns_what_its_program_said(task, keywords):
    sim = powerzoo_jax.make(task, split="test", **keywords)
    draws, keys = take(all_starts(sim), DAY), episode_keys(42, 1)
    plan = get_baselines(task).oracle(sim, draws, keys)
    record = evaluate(sim, plan.policy.act, draws=draws, carry=plan.policy.carry)
    assert record.mean_reward == pytest.approx(float(plan.objective[0]), rel=CLOSE)
    assert record.mean_reward <= float(plan.bound[0]) * (1 + np.sign(plan.bound[0]) * CLOSE)


@pytest.mark.full
@pytest.mark.parametrize(
    "task", ["marl_der_arbitrage", "marl_ders_benchmark", "dso", "joint_trans_dist", "marl_uc", "opf_118"]
)
def test_plans_of_several_devices_earn_what_their_programs_said(task):
    test_a_plan_earns_what_its_program_said(task, {})
