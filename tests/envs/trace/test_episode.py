"""Traces obey the laws of the networks that they show, and add up to what a score counts."""

from __future__ import annotations

import json
import math
import sys
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import powerzoo_jax as pz
from powerzoo_jax.base.tree import take
from powerzoo_jax.data import eligible_start_days, split_days
from powerzoo_jax.data.clock import MINUTES_PER_DAY, iso_dates
from powerzoo_jax.envs import build_trace, load_traces, save_traces, trace_episode
from powerzoo_jax.envs.constraint import UNITS
from powerzoo_jax.envs.family import family_of
from powerzoo_jax.envs.series import FACTOR
from powerzoo_jax.envs.surface import first_day
from powerzoo_jax.envs.trace import episode as traced_episode
from powerzoo_jax.oracle import baseline_policy, evaluate_baseline
from powerzoo_jax.tasks import get_spec, list_tasks
from powerzoo_jax.tasks.score import SEED, all_starts, episode_keys

ROUNDED = 2e-5  # [MW] of sums over a feeder in float32


def play(task, name):
    """The first test episode under a baseline, and the draw it was played on."""
    sim = pz.make(task, split="test")
    draws, keys = take(all_starts(sim), slice(0, 1)), episode_keys(SEED, 1)
    policy = baseline_policy(sim, name, draws, keys)
    trace = trace_episode(sim, policy.act, keys[0], take(draws, 0), take(policy.carry, 0), policy=name)
    return SimpleNamespace(sim=sim, draws=draws, trace=trace)


@pytest.fixture(scope="module")
def feeder():
    return play("battery_arbitrage", "rule")


@pytest.fixture(scope="module")
def market():
    return play("gencos_bidding", "rule")


@pytest.mark.full
def test_the_sums_of_a_trace_are_those_of_the_score(feeder):
    record = evaluate_baseline(feeder.sim, "rule", draws=feeder.draws)
    trace = feeder.trace
    assert trace["reward"].values.mean(axis=1).sum() == pytest.approx(record.mean_reward, rel=1e-5)
    spent = dict(zip(trace["cost"].ids, trace["cost"].values.sum(axis=0), strict=True))
    assert spent == pytest.approx(record.mean_costs_by_constraint, abs=1e-6)
    assert trace["reward_term"].values.sum(axis=1) == pytest.approx(trace["reward"].values[:, 0], abs=1e-5)


@pytest.mark.full
def test_what_enters_a_feeder_is_what_it_loses(feeder):
    trace = feeder.trace
    entered = trace["bus_injection_mw"].values.sum(axis=1) + trace["info"]["p_slack_mw"]
    assert np.abs(entered - trace["info"]["p_loss_mw"]).max() < ROUNDED


@pytest.mark.full
def test_every_branch_of_a_feeder_loses_power_and_all_of_them_what_it_reports(feeder):
    """Kirchhoff's current law: what leaves a branch is the load behind it and what flows on."""
    trace, net = feeder.trace, feeder.trace.networks[""]
    flow, injected = trace["branch_flow_mw"].values, trace["bus_injection_mw"].values
    onward = np.zeros_like(injected)
    np.add.at(onward, (slice(None), net.from_bus), flow)
    lost = flow - onward[:, net.to_bus] + injected[:, net.to_bus]
    assert lost.min() > -ROUNDED
    assert np.abs(lost.sum(axis=1) - trace["info"]["p_loss_mw"]).max() < ROUNDED
    head = np.flatnonzero(net.from_bus == net.root)
    assert np.abs(flow[:, head].sum(axis=1) - trace["info"]["p_slack_mw"]).max() < ROUNDED


@pytest.mark.full
def test_the_load_of_a_feeder_is_that_of_its_series(feeder):
    trace, params = feeder.trace, feeder.sim.params
    rows = int(feeder.draws.load_row[0]) + np.arange(len(trace))
    factor = np.asarray(params.bank.load_rows)[rows, FACTOR] * float(params.load_ratio * params.load_mw)
    taken = trace["device_power_mw"].values.sum(axis=1) - trace["bus_injection_mw"].values.sum(axis=1)
    assert taken == pytest.approx(factor, abs=ROUNDED)


@pytest.mark.full
def test_extreme_voltages_are_those_of_the_buses(feeder):
    volts, info = feeder.trace["bus_voltage_pu"].values, feeder.trace["info"]
    assert volts.min(axis=1) == pytest.approx(info["v_min_pu"], abs=1e-6)
    assert volts.max(axis=1) == pytest.approx(info["v_max_pu"], abs=1e-6)


@pytest.mark.long
def test_every_bus_of_a_market_is_balanced_and_every_unit_paid_its_price(market):
    trace, params, net = market.trace, market.sim.params, market.trace.networks[""]
    power, injected = trace["unit_power_mw"].values, trace["bus_injection_mw"].values
    made = np.zeros_like(injected)
    np.add.at(made, (slice(None), net.device_bus), power)
    load = trace["info"]["load_mw"][:, None] * np.asarray(params.load_share)[None]
    assert np.abs(made - load - injected).max() < 0.05  # the tolerance of the clearing, of flows of 1000 MW
    paid = trace["bus_price_per_mwh"].values[:, net.device_bus] * power * trace.dt_hours
    revenue = np.stack([trace["reward_term"][f"{agent}.revenue"] for agent in trace.agents], axis=1)
    assert revenue == pytest.approx(paid, rel=1e-4, abs=1e-2)


@pytest.mark.full
def test_a_file_keeps_names_units_and_networks(feeder, tmp_path):
    path = save_traces(tmp_path / "new" / "traces.npz", {"rule": feeder.trace, "again": feeder.trace})
    assert list(load_traces(path)) == ["rule", "again"]
    again = load_traces(path)["rule"]
    assert again.tables.keys() == feeder.trace.tables.keys()
    for name, table in feeder.trace.tables.items():
        assert (again[name].ids, again[name].units) == (table.ids, table.units)
        np.testing.assert_array_equal(again[name].values, table.values)
    assert again.networks[""].bus_ids == feeder.trace.networks[""].bus_ids
    assert (again.budgets, again.policy, len(again)) == (feeder.trace.budgets, "rule", 48)
    assert (again.day, again.soc_min, again.soc_max) == (feeder.trace.day, (pytest.approx(0.1),), (pytest.approx(0.9),))
    assert again.day == split_days("simbench_2016", "test")[0].astype(str)


def test_a_file_from_before_dates_and_bounds_is_read(tmp_path):
    path = save_traces(tmp_path / "t.npz", {"rule": made_up("dc_microgrid")[1]})
    arrays = dict(np.load(path))
    about = json.loads(str(arrays["rule/about"]))
    for name in ("day", "soc_min", "soc_max"):
        del about[name]
    np.savez(path, **arrays | {"rule/about": np.array(json.dumps(about))})
    old = load_traces(path)["rule"]
    assert (old.day, old.soc_min, old.soc_max) == ("", (), ())


@pytest.mark.parametrize("wrong", [{"day": "soon"}, {"soc_min": [0.1, 0.2]}, {"soc_max": [float("inf")]}])
def test_a_file_with_wrong_dates_or_bounds_is_refused(wrong, tmp_path):
    path = save_traces(tmp_path / "t.npz", {"rule": made_up("dc_microgrid")[1]})
    arrays = dict(np.load(path))
    about = json.loads(str(arrays["rule/about"])) | wrong
    np.savez(path, **arrays | {"rule/about": np.array(json.dumps(about))})
    with pytest.raises(pz.base.errors.DataError, match="does not hold whole traces"):
        load_traces(path)


def test_a_file_without_traces_names_the_command(tmp_path):
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    with pytest.raises(pz.base.errors.DataError, match="powerzoo-jax evaluate TASK --trace"):
        load_traces(tmp_path / "other.npz")


@pytest.mark.full
def test_data_frames_hold_a_table_or_all_of_them(feeder, monkeypatch):
    trace = feeder.trace
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=dict))
    wide = trace.to_frame("bus_voltage_pu")
    assert list(wide)[:2] == ["time_h", "1"] and len(wide) == 34
    np.testing.assert_array_equal(wide["18"], trace["bus_voltage_pu"]["18"])
    every = trace.to_frame()
    assert {len(column) for column in every.values()} == {sum(t.values.size for t in trace.tables.values())}
    row = (every["table"] == "cost") & (every["step"] == 5) & (every["id"] == "resource")
    assert every["unit"][row].tolist() == ["MW"] and every["time_h"][row].tolist() == [2.5]
    assert every["value"][row] == trace["cost"]["resource"][5]


@pytest.mark.full
def test_without_pandas_the_extra_is_named(feeder, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"powerzoo-jax\[frames\]"):
        feeder.trace.to_frame()


@pytest.mark.full
def test_an_unknown_table_or_column_names_the_nearest(feeder):
    with pytest.raises(KeyError, match="bus_voltage_pu"):
        feeder.trace["bus_voltages_pu"]
    with pytest.raises(KeyError, match="resource"):
        feeder.trace["cost"]["resources"]


def made_up(task):
    """A trace of a task with made-up numbers: its program is traced and never compiled."""
    sim = pz.make(task, split="test")
    act = jax.tree_util.Partial(lambda carry, obs, key: (carry, jnp.zeros_like(sim.spaces()[1].low)))
    shapes = jax.eval_shape(traced_episode.run_traced, sim, act, (), jax.random.key(0), take(all_starts(sim), 0))
    numbers = np.random.default_rng(0)
    filled = jax.tree.map(lambda x: jnp.asarray(numbers.uniform(-1, 1, x.shape), x.dtype), shapes)
    return sim, build_trace(sim, filled, policy="made up")


@pytest.mark.tiers(
    "full",
    quick=["dc_microgrid", "marl_uc"],
    long=[
        "dc_microgrid_safe",
        "joint_trans_dist_7d",
        "marl_der_arbitrage_5bat",
        "marl_ders_benchmark",
        "marl_ev_v2g_10ev",
    ],
)
@pytest.mark.parametrize("task", list_tasks())
def test_every_number_of_every_task_has_a_name_and_a_unit(task):
    """No task has a table whose columns are not named, and none lacks what all have."""
    sim, trace = made_up(task)
    assert {"action", "reward", "reward_term", "cost", "info"} <= trace.tables.keys()
    for name, table in trace.tables.items():
        count = table.values.shape[1]
        assert (len(table.ids), len(table.units), len(set(table.ids))) == (count, count, count), name
        assert len(table.values) == get_spec(task).horizon
    assert trace["cost"].units == tuple(UNITS[name] for name in sim.spec.cost_names)
    assert bool(trace.networks) == (sim.spec.family != "microgrid")
    for name, net in trace.networks.items():
        prefix = f"{name}." if name else ""
        assert trace[f"{prefix}branch_flow_mw"].values.shape[1] == len(net.from_bus)
        assert len(net.device_ids) == len(net.device_bus) and max(net.device_bus) < len(net.bus_ids)
        assert {"branch_loading_percent", "bus_injection_mw"} <= {t.removeprefix(prefix) for t in trace.tables}
    bounds = list(zip(trace.soc_min, trace.soc_max, strict=True))
    assert len(bounds) == (len(trace["soc"].ids) if "soc" in trace.tables else 0)
    assert all(0 <= low < high <= 1 for low, high in bounds)
    starts, minutes = sim.params.starts, 60 * sim.spec.dt_hours
    n_day = math.ceil(sim.spec.horizon * minutes / MINUTES_PER_DAY)
    days = eligible_start_days(split_days(family_of(sim).surface(sim).series[0], "test", n_day), n_day)
    rows = np.asarray(starts.load_row)[: int(starts.n_start)].tolist()
    found = tuple(first_day(sim, row) for row in rows)
    assert set(found) <= set(iso_dates(days)) and list(found) == sorted(set(found))
    assert len(found) == len(days) or "_ev_" in task  # days on which no vehicle comes are left out
