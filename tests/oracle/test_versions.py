"""Plans for version 1 of the tasks: they price what settles, so they return in the environment what they expect."""

from __future__ import annotations

import jax
import pytest

import powerzoo_jax
from powerzoo_jax.oracle import evaluate_baseline, get_baselines
from powerzoo_jax.tasks import list_tasks
from powerzoo_jax.tasks.score import all_starts, episode_keys, evaluate

FLOAT32 = 2e-4  # relative: 288 rewards added up, and plans that the environment rounds


@pytest.mark.parametrize("task", ["dc_scheduling", "dc_microgrid", "joint_trans_dist"])
def test_a_plan_returns_what_it_expects_and_no_more_than_its_bound(task):
    sim = powerzoo_jax.make(task, version=1, split="val")
    draws = jax.tree.map(lambda x: x[:1], all_starts(sim))
    plan = get_baselines(task, 1).foresee(sim, draws, episode_keys(42, 1))
    played = evaluate(sim, plan.policy.act, draws=draws, carry=plan.policy.carry)
    settled = {"zone_heat", "settlement"} & set(sim.spec.term_names)
    assert settled and all(played.metrics[name] for name in settled)
    assert played.mean_reward == pytest.approx(float(plan.objective[0]), rel=FLOAT32)
    assert float(plan.bound[0]) >= played.mean_reward * (1 + FLOAT32)
    rule = evaluate_baseline(sim, "rule", draws=draws)
    assert rule.mean_reward < played.mean_reward


def test_rules_of_version_1_are_found_by_version_alone():
    for task in list_tasks():
        assert get_baselines(task) is get_baselines(task, 0)
    assert get_baselines("dc_microgrid", 1).headline == "dg_derating"
    assert get_baselines("marl_ev_v2g", 1).headline == "spike_weeks"
    assert get_baselines("comparison_tso_centralized", 1).safe == "rule"
    with pytest.raises(ValueError, match="has no version 5"):
        get_baselines("dso", 5)
