"""Trivial policies: the search, its state on disk, the stored policies, and how they are played."""

from __future__ import annotations

import json
import math
from functools import cache

import jax
import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.oracle import clock_plan, evaluate_baseline, get_trivial, trivial
from powerzoo_jax.oracle.clock_plan import ClockPlan, load_trivial
from powerzoo_jax.oracle.registry import follow
from powerzoo_jax.tasks import get_spec
from powerzoo_jax.tasks.score import all_starts, episode_keys, evaluate

BUDGET = np.array([1.0, math.inf])


@cache
def sim(task="battery_arbitrage", split="val"):
    return powerzoo_jax.make(task, split=split)


def quadratic(values):
    """Largest where every value is 0.3, and infeasible where the first is above 0.1."""
    money = -np.sum((values - 0.3) ** 2, axis=1)
    return trivial.Played(money, np.stack([np.maximum(values[:, 0] - 0.1, 0) * 100, money], axis=1))


def searched(generations, start=None, path=None):
    search = start or trivial.start_search("constant", 3)
    for _ in range(generations):
        trivial.advance(search, quadratic, BUDGET, seed=1, count=250)
        if path:
            search.save(path, BUDGET)
    return search


def test_the_search_finds_the_best_of_the_feasible_candidates():
    best = searched(40).best[0]
    # 0.9 of the budget is reached at 0.109
    np.testing.assert_allclose(best, [0.109, 0.3, 0.3], atol=0.02)
    assert quadratic(best[None]).cost[0, 0] <= trivial.MARGIN


def test_a_search_goes_on_from_disk_as_if_it_had_not_stopped(tmp_path):
    whole = searched(6)
    searched(3, path=tmp_path / "state.json")
    resumed = searched(3, start=trivial.load_search(tmp_path / "state.json", BUDGET))
    np.testing.assert_array_equal(whole.mean, resumed.mean)
    np.testing.assert_array_equal(whole.best, resumed.best)


def test_a_search_does_not_go_on_beside_other_budgets(tmp_path):
    searched(1, path=tmp_path / "state.json")
    with pytest.raises(ValueError, match=r"state\.json holds .*\[1\.0, inf\].*\[2\.0, inf\] now; delete the file"):
        trivial.load_search(tmp_path / "state.json", 2 * BUDGET)


def test_feasible_candidates_come_first_and_then_those_that_break_less():
    played = trivial.Played(np.array([9.0, 1.0, 2.0, 8.0]), np.array([[5.0, 0], [0.5, 0], [0.2, 9e9], [2.0, 0]]))
    np.testing.assert_array_equal(played.order(BUDGET), [2, 1, 3, 0])
    broken = trivial.Played(np.array([np.nan, -5.0]), np.array([[0.0, 0], [0.0, 0]]))
    np.testing.assert_array_equal(broken.order(BUDGET), [1, 0])


def test_days_on_which_the_rule_breaks_a_budget_allow_what_it_reaches():
    """No plan keeps the voltage budget of these days; the cheap one that reaches what the rule does comes first."""
    names, rule = ("thermal_overload", "voltage_violation", "sla"), {"thermal_overload": 3.0, "voltage_violation": 0.07}
    room = trivial.widened(np.array([15.0, 0.02, np.inf]), rule, names)
    np.testing.assert_allclose(trivial.MARGIN * room, [0.9 * 15, 0.07, np.inf])
    played = trivial.Played(np.array([-9.0, -2.0, -1.0]), np.array([[0, 0.05, 0], [13, 0.069, 0], [0, 0.08, 0]]))
    np.testing.assert_array_equal(played.order(room), [1, 0, 2])


def test_a_clock_plan_repeats_every_day_and_holds_within_a_block():
    plan = ClockPlan(((0,), (1,)), 4)
    actions = np.asarray(plan.actions(np.arange(8.0), 96, 48))
    assert actions.shape == (96, 2, 1)
    np.testing.assert_array_equal(actions[:48], actions[48:])
    np.testing.assert_array_equal(actions[:48, :, 0], np.repeat(np.arange(8.0).reshape(4, 2), 12, axis=0))


@pytest.mark.long
def test_candidates_are_played_as_evaluate_plays_them():
    here = sim("marl_der_arbitrage", "train")
    draws = trivial.spread_starts(here, 3)
    shape = trivial.shapes(here)["clock"]
    values = np.random.default_rng(0).uniform(-1, 1, (2, shape.size))
    played = trivial.play_candidates(here, shape, values, draws, episode_keys(42, 3))
    for k in range(2):
        plan = np.asarray(shape.actions(values[k], 48, 48))
        policy = follow(here, np.broadcast_to(plan, (3, *plan.shape)))
        record = evaluate(here, policy.act, draws=draws, carry=policy.carry)
        assert played.money[k] == pytest.approx(record.mean_reward, rel=1e-5)
        costs = list(record.mean_costs_by_constraint.values())
        np.testing.assert_allclose(played.cost[k], costs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("task", sorted(load_trivial()))
def test_a_stored_policy_fits_its_task(task):
    for version in (int(key[1:]) for key in load_trivial()[task]):
        record, spec = get_trivial(task, version=version), get_spec(task, version)
        shape = ClockPlan(tuple(tuple(row) for row in record["group"]), record["blocks"])
        assert shape.size == len(record["values"]) and np.abs(record["values"]).max() <= 1
        assert record["evaluations"] >= 20_000
        assert (record["kind"] == "constant") == (record["blocks"] == 1)
        assert list(record["train_costs"]) == list(spec.cost_names)
        assert record["train"].keys() == {"constant", "clock"}


@pytest.mark.long
def test_the_stored_policy_returns_on_train_days_what_the_file_says():
    here = sim("battery_arbitrage", "train")
    record = get_trivial("battery_arbitrage")
    draws = trivial.spread_starts(here, trivial.FEWER * record["days"])
    played = evaluate_baseline(here, "trivial", draws=draws)
    assert played.mean_reward == pytest.approx(record["train"][record["kind"]], rel=1e-4)


@pytest.mark.full
def test_a_trivial_policy_earns_less_than_the_rule():
    here = sim()
    draws = all_starts(here)
    money = {name: evaluate_baseline(here, name, draws=draws).mean_reward for name in ("trivial", "rule")}
    assert 0 < money["trivial"] < money["rule"]


@pytest.mark.full
def test_units_that_share_a_load_are_told_apart_and_kinds_of_many_devices_are_not():
    """Equal scores of all units give one and the same dispatch, whatever they are."""
    many = trivial.groups(sim("opf_118"))
    assert np.shape(many) == (54, 1) and len(np.unique(many)) == 54
    assert len(np.unique(trivial.groups(sim("marl_ders_benchmark")))) == 6


def test_another_task_and_other_actions_are_refused_by_name(monkeypatch):
    with monkeypatch.context() as context:
        context.setattr(clock_plan, "load_trivial", dict)
        with pytest.raises(KeyError, match="no trivial policy is stored for 'opf_118_7d'"):
            get_trivial("opf_118_7d")
    wider = powerzoo_jax.make("battery_arbitrage", split="val", battery_bus_ids=(6, 12))
    with pytest.raises(ValueError, match=r"\(1, 1\).*\(1, 2\)"):
        evaluate_baseline(wider, "trivial", n_episodes=1)


@pytest.mark.long
def test_the_command_stores_what_it_found(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(trivial, "FILE", tmp_path / "trivial.json")
    monkeypatch.setattr(trivial, "GENERATIONS", {"constant": 1, "clock": 1})
    monkeypatch.setattr(trivial, "REFINED", 1)
    monkeypatch.setattr(trivial, "POPULATION", 80)
    former = {"v0": {"kind": "constant"}}
    (tmp_path / "trivial.json").write_text(json.dumps({"battery_arbitrage": former}))
    assert trivial.main(["battery_arbitrage", "--version", "1", "--write", "--state", str(tmp_path)]) == 0
    versions = json.loads((tmp_path / "trivial.json").read_text())["battery_arbitrage"]
    stored = versions["v1"]
    assert versions["v0"] == former["v0"] and stored["kind"] in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.glob("battery*")) == [
        "battery_arbitrage_v1_clock.json",
        "battery_arbitrage_v1_constant.json",
    ]
    assert jax.tree.leaves(stored["values"])
