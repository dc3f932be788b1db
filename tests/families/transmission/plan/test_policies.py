"""Reference policies of the dispatch tasks stand in order, keep what they promise and lie below their bounds."""

from __future__ import annotations

import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.oracle import evaluate_baseline, get_baselines
from powerzoo_jax.tasks.score import episode_keys, evaluate, seeded_starts

pytestmark = pytest.mark.reference

EPISODES = 4


@pytest.fixture(scope="module", params=["test", "load_stress"])
def judged(request):
    """Records of every policy of marl_opf on a few test days, and the oracle's foresight."""
    sim = powerzoo_jax.make("marl_opf", split=request.param)
    draws, keys, baselines = seeded_starts(sim, EPISODES), episode_keys(42, EPISODES), get_baselines("marl_opf")
    records = {name: evaluate_baseline(sim, name, draws=draws) for name in ("random", *baselines.rules)}
    foresight = baselines.oracle(sim, draws, keys)
    records["oracle"] = evaluate(sim, foresight.policy.act, draws=draws, carry=foresight.policy.carry)
    return sim, records, foresight


@pytest.mark.tiers("full", long=["test"])
def test_random_is_worse_than_the_rule_and_the_rule_than_the_oracle(judged):
    _, records, foresight = judged
    mean = {name: record.mean_reward for name, record in records.items()}
    assert mean["no_control"] < mean["rule"] and mean["random"] < mean["rule"] < mean["oracle"]
    assert mean["oracle"] == pytest.approx(foresight.objective.mean(), rel=1e-4)


@pytest.mark.tiers(full=["test"])
def test_what_keeps_the_ratings_stays_below_the_bound_that_says_so(judged):
    _, records, foresight = judged
    for name, record in records.items():
        returns = np.array(record.episode_rewards)
        assert (returns <= foresight.bound * (1 - 1e-6)).all()
        if name in ("rule", "oracle"):
            assert (returns <= foresight.kept_bound * (1 - 1e-6)).all()
    assert (foresight.kept_bound <= foresight.bound + 1e-6).all()


@pytest.mark.tiers("full", long=["test"])
def test_merit_order_breaks_the_budget_that_rule_and_oracle_keep(judged):
    sim, records, _ = judged
    overload = {name: r.mean_costs_by_constraint["thermal_overload"] for name, r in records.items()}
    budget = sim.spec.cost_budget[0]
    assert overload["merit"] > budget
    assert overload["rule"] < 0.8 * budget and overload["oracle"] < 0.8 * budget
    assert all(records[name].mean_costs_by_constraint["unserved_energy"] == 0 for name in ("rule", "oracle"))
