"""Plans of tasks that settle at the end: they price it, so they return in the environment what they expect."""

from __future__ import annotations

import jax
import pytest

import powerzoo_jax
from powerzoo_jax.oracle import evaluate_baseline, get_baselines
from powerzoo_jax.tasks.score import all_starts, episode_keys, evaluate

FLOAT32 = 2e-4  # relative: 288 rewards added up, and plans that the environment rounds


@pytest.mark.long
@pytest.mark.parametrize("task", ["dc_scheduling", "dc_microgrid", "joint_trans_dist"])
def test_a_plan_returns_what_it_expects_and_no_more_than_its_bound(task):
    sim = powerzoo_jax.make(task, split="val")
    draws = jax.tree.map(lambda x: x[:1], all_starts(sim))
    plan = get_baselines(task).oracle(sim, draws, episode_keys(42, 1))
    played = evaluate(sim, plan.policy.act, draws=draws, carry=plan.policy.carry)
    settled = {"zone_heat", "settlement"} & set(sim.spec.term_names)
    assert settled and all(played.metrics[name] for name in settled)
    assert played.mean_reward == pytest.approx(float(plan.objective[0]), rel=FLOAT32)
    assert float(plan.bound[0]) >= played.mean_reward * (1 + FLOAT32)
    rule = evaluate_baseline(sim, "rule", draws=draws)
    assert rule.mean_reward < played.mean_reward
