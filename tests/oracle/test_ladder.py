"""The ladder of reference policies: its order on a task whose oracle is exact, and its file."""

from __future__ import annotations

import dataclasses
import math

import pytest

import powerzoo_jax
from powerzoo_jax.oracle import evaluate_baseline, get_causal, list_causal
from powerzoo_jax.oracle.ladder import COLUMNS, climb, over_budget, replace_rows

ENDS = 1e-6  # of the gain of the rule


def test_the_ladder_of_a_battery_rises_from_random_to_the_oracle():
    rungs = {rung.policy: rung for rung in climb("battery_arbitrage", "val", recorded=False)}
    assert list(rungs) == ["random", "rule", "trivial", "causal", "oracle", "best"]
    money = [rungs[name].mean_return for name in ("random", "trivial", "rule", "causal", "oracle")]
    assert money == sorted(money)
    assert rungs["rule"].share == 0 and rungs["oracle"].share == 1 and rungs["causal"].share > 0.9
    assert rungs["causal"].feasible and not rungs["random"].feasible and rungs["random"].over_budget == "resource"
    # the best of these very episodes, with its bound and gap
    best, rule = rungs["best"], rungs["rule"].mean_return
    assert best.gain == 1 and abs(rungs["rule"].gain) < ENDS and rungs["random"].gain is None
    assert rungs["causal"].gain == pytest.approx(rungs["causal"].share, abs=1e-3)
    assert best.gap == pytest.approx((best.bound - best.mean_return) / (best.mean_return - rule), abs=ENDS)
    assert [x == "-" for x in rungs["random"].line().split("\t")].count(True) == 3
    assert {len(rung.line().split("\t")) for rung in rungs.values()} == {len(COLUMNS)}


def test_a_budget_is_kept_up_to_rounding_and_unlimited_channels_do_not_count():
    record = evaluate_baseline(powerzoo_jax.make("battery_arbitrage", split="val"), "no_control", n_episodes=1)
    costs = {"voltage_violation": 1.0005, "thermal_overload": 9.0, "unserved_energy": 0.1, "resource": 0.5}
    limits = {"voltage_violation": 1.0, "thermal_overload": None, "unserved_energy": 0.0, "resource": 0.5}
    record = dataclasses.replace(record, mean_costs_by_constraint=costs, cost_thresholds=limits)
    assert over_budget(record) == "unserved_energy"
    failed = dataclasses.replace(record, mean_costs_by_constraint=costs | {"resource": math.nan})
    assert over_budget(failed) == "unserved_energy, resource"


def test_rows_of_a_task_and_split_replace_the_former_ones(tmp_path):
    path = tmp_path / "ladder.tsv"
    replace_rows(path, "b", "val", ["b\tval\trule\t1"])
    replace_rows(path, "a", "val", ["a\tval\trule\t1"])
    replace_rows(path, "b", "val", ["b\tval\trule\t2", "b\tval\toracle\t2"])
    assert path.read_text().splitlines()[1:] == ["a\tval\trule\t1", "b\tval\trule\t2", "b\tval\toracle\t2"]


def test_every_causal_planner_is_found_and_a_task_without_one_is_named():
    assert {"battery_arbitrage", "dso", "marl_ev_v2g_10ev", "marl_der_arbitrage_7d"} <= set(list_causal())
    assert all(callable(get_causal(task)) for task in list_causal())
    with pytest.raises(ValueError, match="no causal planner is known for 'gencos_bidding' v0"):
        get_causal("gencos_bidding")
    with pytest.raises(ValueError, match="no causal planner is known for 'marl_uc' v1"):
        get_causal("marl_uc", 1)
