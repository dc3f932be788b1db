"""Scores of the drop-in: gains over the rule, with shipped anchors and with registered ones."""

from __future__ import annotations

import pytest
from powerzoo import RandomPolicy, benchmarks, make_task_env

from powerzoo_jax.oracle import get_reference, registry

TASK, OTHER, MARKET = "battery_arbitrage", "marl_uc", "gencos_bidding"


def test_the_score_is_the_gain_over_the_rule(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    record = get_reference(TASK, "test")
    assert benchmarks.get_baseline(TASK) == record and TASK in benchmarks.list_baselines()
    ends = [benchmarks.normalized_score(TASK, record[name]) for name in ("rule", "best")]
    assert ends == [0.0, 1.0] and benchmarks.normalized_score(TASK, record["trivial"]) < 0
    assert 0.9 < benchmarks.normalized_score(TASK, record["causal"]) < 1


def test_a_gain_takes_a_rule_among_registered_anchors(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(registry, "load_table", lambda: {})  # nothing is shipped
    with pytest.raises(KeyError, match="holds nothing for 'marl_uc' v1"):
        benchmarks.normalized_score(OTHER, 1.0)
    benchmarks.register_baseline(OTHER, random=0.0, oracle=10.0, save=False)
    with pytest.raises(ValueError, match=r"register_baseline\('marl_uc', random, oracle, rule=\.\.\.\)"):
        benchmarks.normalized_score(OTHER, 6.0)
    benchmarks.register_baseline(OTHER, random=0.0, oracle=10.0, rule=5.0, save=False)
    assert benchmarks.normalized_score(OTHER, 6.0) == pytest.approx(0.2) and OTHER in benchmarks.list_baselines()


def test_where_the_rule_breaks_a_budget_no_gain_is_measured(monkeypatch):
    infeasible = {"rule": 1.0, "best": 2.0, "feasible": {"rule": False, "best": True}}
    monkeypatch.setattr(registry, "load_table", lambda: {TASK: {"v1": {"test": infeasible}}})
    with pytest.raises(ValueError, match="the rule of 'battery_arbitrage' breaks a budget on the split 'test'"):
        benchmarks.normalized_score(TASK, 1.5)


def test_the_score_of_a_market_is_its_nearness_to_an_equilibrium():
    record = get_reference(MARKET, "test")
    conv = record["nash_conv"]
    assert benchmarks.normalized_score(MARKET, conv["rule"]) == 0.0 and benchmarks.normalized_score(MARKET, 0.0) == 1.0
    assert benchmarks.normalized_score(MARKET, conv["best"]) == pytest.approx(1 - conv["best"] / conv["rule"])
    with pytest.raises(ValueError, match=r"-5\.0 is no NashConv of 'gencos_bidding'"):
        benchmarks.normalized_score(MARKET, -5.0)


@pytest.mark.full
@pytest.mark.full
def test_a_record_of_rivals_tells_their_joint_gain_and_no_score():
    env = make_task_env(MARKET, split="test")
    record = benchmarks.evaluate(RandomPolicy(None, 0).bind(env), env, n_episodes=1, seed_start=42)
    known = get_reference(MARKET, "test")
    expected = (record["mean_reward"] - known["rule"]) / (known["best"] - known["rule"])
    assert record["normalized_score"] is None and record["joint_gain"] == pytest.approx(expected)
