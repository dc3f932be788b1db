"""Versions of the tasks: which there are, and what version 1 settles and shows beyond version 0."""

from __future__ import annotations

import dataclasses
import math
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.data import load_dataset
from powerzoo_jax.data.library import price_quantiles
from powerzoo_jax.data.splits import split_rows
from powerzoo_jax.envs import Sim
from powerzoo_jax.families.feeder.tasks.catalog import SPIKE_PER_MWH, variants_of
from powerzoo_jax.families.microgrid.env import OUTDOOR, SUN
from powerzoo_jax.families.microgrid.tasks.build import build_microgrid
from powerzoo_jax.oracle import get_baselines, idle_act
from powerzoo_jax.tasks import get_builder, get_spec, list_presets, list_tasks, list_versions, registry
from powerzoo_jax.tasks.score import evaluate

SMARD = ("de_smard_2018", "price.day_ahead_per_mwh")
ERCOT = ("ercot_dam_2021_2022", "HB_HOUSTON")
DAY = 48
ROUNDED = 2e-6  # a few roundings of float32 at one
OBS = {  # fields of an observation in version 1: those of version 0, and what stands last
    "battery_arbitrage": 202 + 1,
    "dc_scheduling": 204 + 1,
    "dc_scheduling_7d": 204 + 1,
    "marl_der_arbitrage": 19 + 1,
    "marl_der_arbitrage_5bat": 19 + 1,
    "marl_der_arbitrage_7d": 19 + 1,
    "marl_ev_v2g": 31 + 1,
    "marl_ev_v2g_1d": 31 + 1,
    "marl_ev_v2g_10ev": 31 + 1,
}


@cache
def make(task: str, **keywords: Any) -> Sim:
    return powerzoo_jax.make(task, **keywords)


@jax.jit
def opening(sim: Sim, state: Any) -> jax.Array:
    return sim.env.opening(state, sim.params)[0]


@jax.jit
def init(sim: Sim, key: jax.Array) -> Any:
    return sim.init(key)


@jax.jit
def step(sim: Sim, state: Any, action: jax.Array) -> Any:
    return sim.step(state, action)


def at_the_end(sim: Sim, state: Any) -> Any:
    return dataclasses.replace(state, t=jnp.full_like(state.t, sim.spec.horizon - 1))


def term(sim: Sim, out: Any, name: str) -> float:
    return float(out.info.terms[0, sim.spec.term_names.index(name)])


def test_every_task_is_built_in_version_1_and_no_other():
    for task in list_tasks():
        assert list_versions(task) == (1,) and get_spec(task) is get_spec(task, 1) and get_spec(task).version == 1
    for task in list_presets():
        assert list_versions(task) == (1,)


def test_version_0_says_how_to_reproduce_old_numbers():
    with pytest.raises(ValueError, match=r"no longer built in version 0.*git checkout [0-9a-f]{7} && pip"):
        powerzoo_jax.make("marl_opf", version=0)


def test_an_unknown_version_names_those_there_are():
    with pytest.raises(ValueError, match=r"task 'marl_opf' has no version 7\. Valid: 1"):
        powerzoo_jax.make("marl_opf", version=7)


def test_a_task_of_ones_own_is_made_in_the_version_that_it_has(monkeypatch):
    monkeypatch.setattr(registry, "_TASKS", dict(registry._TASKS))
    mine = dataclasses.replace(get_spec("marl_opf"), id="mine", version=4)
    powerzoo_jax.register(mine, get_builder("marl_opf"))
    assert powerzoo_jax.make("mine").spec.version == 4 and list_versions("mine") == (4,)
    with pytest.raises(ValueError, match="'mine' is registered already"):
        powerzoo_jax.register(mine, get_builder("marl_opf"))


@pytest.mark.tiers("full", quick=["battery_arbitrage", "marl_uc"], long=["dc_microgrid"])
@pytest.mark.parametrize("task", list_tasks())
def test_version_1_is_built_as_its_row_says(task):
    sim, row = make(task, split="val"), get_spec(task)
    for name in ("version", "agents", "cost_names", "cost_budget", "term_names", "term_weights", "horizon", "case"):
        assert getattr(sim.spec, name) == getattr(row, name), name
    assert sim.env.dims.obs == OBS.get(task, sim.env.dims.obs)
    assert {"rule", "no_control"} <= set(get_baselines(task).rules)


def test_weeks_of_spikes_are_a_split_of_their_own():
    assert variants_of(get_spec("marl_ev_v2g")).splits == ("train", "val", "test", "spike_weeks", "price_stress")
    with pytest.raises(ValueError, match=r"Unknown split 'spike_week'\. Did you mean 'spike_weeks'"):
        make("marl_ev_v2g", split="spike_week")


def prices(sim: Sim, state: Any) -> np.ndarray:
    """Prices of the episode in float64, from the data set itself."""
    first, rows = int(state.price_row), np.asarray(sim.params.bank.price_rows, np.float64)
    return rows[first : first + sim.spec.horizon, 0]


@pytest.mark.long
def test_the_last_field_of_a_battery_is_the_price_at_which_it_settles():
    sim = make("battery_arbitrage", split="test")
    assert sim.env.fields.names[-1] == "settlement_price"
    low, high = price_quantiles(*SMARD)
    state, first = init(sim, jax.random.key(4))
    price = prices(sim, state)
    for t in (0, 20, DAY - 1):
        shown = float(opening(sim, dataclasses.replace(state, t=jnp.int32(t)))[0, -1])
        assert shown == pytest.approx((price.mean() - low) / (high - low), abs=ROUNDED)
    assert float(first[0, -1]) == shown
    # full charge until the end: what settles is that very price
    out = step(sim, at_the_end(sim, state), jnp.full((1, 1), -1.0))
    stored = (float(out.state.storage.soc[0]) - 0.5) * 0.5 * math.sqrt(0.95)
    assert stored > 0.05 and term(sim, out, "settlement") == pytest.approx(price.mean() * stored, rel=1e-5)


@pytest.mark.full
def test_over_a_week_the_settlement_price_is_the_mean_of_the_days_published_so_far():
    sim = make("marl_der_arbitrage_7d", split="test")
    low, high = price_quantiles(*SMARD)
    state, _ = init(sim, jax.random.key(1))
    price = (prices(sim, state) - low) / (high - low)
    for t in (0, DAY - 1, DAY, 3 * DAY + 5, 7 * DAY - 1):
        shown = opening(sim, dataclasses.replace(state, t=jnp.int32(t)))[:, -1]
        known = price[: (t // DAY + 1) * DAY]
        np.testing.assert_allclose(np.asarray(shown), known.mean(), atol=ROUNDED)


@pytest.mark.full
def test_lanes_on_other_prices_show_their_own_settlement_price():
    splits = ("test", "price_stress")
    sims = [make("marl_der_arbitrage", split=split) for split in splits]
    together = powerzoo_jax.stack(sims)
    keys = jax.random.split(jax.random.key(3), len(sims))
    _, obs = jax.jit(jax.vmap(lambda s, k: s.init(k), in_axes=(powerzoo_jax.lanes(together), 0)))(together, keys)
    alone = [float(init(sim, key)[1][0, -1]) for sim, key in zip(sims, keys, strict=True)]
    assert abs(alone[0] - alone[1]) > 0.1
    np.testing.assert_allclose(np.asarray(obs[:, 0, -1]), alone, atol=ROUNDED)


@pytest.mark.full
def test_the_price_of_a_vehicle_does_not_saturate():
    sim = make("marl_ev_v2g_1d", split="spike_weeks")
    assert sim.env.fields.names[-1] == "price_asinh"
    data = load_dataset(ERCOT[0])
    median = np.median(data.column(ERCOT[1])[split_rows(data, "train")].astype(np.float64))
    shown, highest = [], 0.0
    for seed in range(3):
        state, _ = init(sim, jax.random.key(seed))
        price = prices(sim, state)
        peak = int(price.argmax())
        obs = opening(sim, dataclasses.replace(state, t=jnp.int32(peak)))
        assert float(obs[0, -1]) == pytest.approx(np.arcsinh(price[peak] / median), rel=1e-5)
        assert float(obs[0, sim.env.fields.names.index("price_signal")]) == 3
        shown.append(float(obs[0, -1]))
        highest = max(highest, price[peak])
    assert highest > SPIKE_PER_MWH and max(shown) < 10


@pytest.mark.parametrize("task", ["marl_ev_v2g", "marl_ev_v2g_1d"])
def test_weeks_with_spikes_are_apart(task):
    for split, spikes in (("val", False), ("test", False), ("spike_weeks", True)):
        sim = make(task, split=split)
        starts, table = sim.params.starts, np.asarray(sim.params.bank.price_rows[:, 0])
        count = int(starts.n_start)
        assert count > 50
        for rows, pairs in zip(
            np.asarray(starts.price_row)[:count], np.asarray(starts.pair_count)[:count], strict=True
        ):
            highest = [table[row : row + sim.spec.horizon].max() for row in rows[:pairs]]
            assert pairs > 0 and all((x > SPIKE_PER_MWH) == spikes for x in highest)


@pytest.mark.parametrize("keyword", [{"settlement_price": 1.5}, {"price_asinh": "yes"}])
def test_a_switch_is_true_or_false(keyword):
    with pytest.raises(ValueError, match=next(iter(keyword)) + " = .* must be true or false"):
        make("marl_ev_v2g", **keyword)


def chiller_cop(outdoor_c: float) -> float:
    return 5 * min(max(1 - 0.04 * max(outdoor_c - 20, 0), 0.4), 1.2)


@pytest.mark.full
def test_a_data_centre_pays_for_the_heat_in_its_room_at_the_mean_price():
    sim = make("dc_scheduling", split="test")
    state, _ = init(sim, jax.random.key(2))
    outdoor = float(sim.params.bank.load_rows[int(state.load_row) + DAY - 1, sim.env.columns.at("outdoor_c")])
    for start_c in (25.0, 19.0):
        room = dataclasses.replace(state.datacenter, t_zone_c=jnp.full(1, start_c))
        last = dataclasses.replace(at_the_end(sim, state), datacenter=room)
        out = step(sim, last, jnp.zeros((1, 3)))
        heat_mwh = 0.5 * (float(out.state.datacenter.t_zone_c[0]) - 22) / chiller_cop(outdoor)
        assert term(sim, out, "zone_heat") == pytest.approx(-prices(sim, state).mean() * heat_mwh, rel=1e-4)
    before = step(sim, dataclasses.replace(last, t=last.t - 1), jnp.zeros((1, 3)))
    assert term(sim, before, "zone_heat") == 0


@pytest.mark.full
def test_a_microgrid_settles_heat_and_carbon_as_diesel_would_have_made_them():
    """300 $ and 800 kg a MWh; 2 MWh of battery at sqrt(0.9025) each way; 500 kWh of heat a degree."""
    sim = make("dc_microgrid", split="test")
    state, _ = init(sim, jax.random.key(5))
    hot = dataclasses.replace(state.site, t_zone_c=jnp.full(1, 26.0))
    low = dataclasses.replace(state.storage, soc=jnp.full(1, 0.2))
    last = dataclasses.replace(at_the_end(sim, state), site=hot, storage=low)
    out = step(sim, last, jnp.asarray([[-1.0, -1.0, 1.0, 0.0, -1.0]]))
    row = np.asarray(sim.params.bank.weather_rows[int(state.weather_row) + 287], np.float64)
    heat = 0.5 * (float(out.state.site.t_zone_c[0]) - 22) / chiller_cop(row[OUTDOOR])
    lacking = (0.5 - float(out.state.storage.soc[0])) * 2 / 0.95
    assert heat > 0.2 and lacking > 0.5
    assert term(sim, out, "zone_heat") == pytest.approx(-300 * heat, rel=1e-4)
    assert term(sim, out, "settlement") == pytest.approx(-300 * lacking, rel=1e-4)
    assert term(sim, out, "stored_carbon") == pytest.approx(-800 * (lacking + heat), rel=1e-4)
    emitted = -float(out.info.carbon_kg) - 800 * (lacking + heat)
    assert float(out.info.reward_vector[2]) == pytest.approx(emitted, rel=1e-4)
    assert row[SUN] >= 0 and float(out.reward[0]) == pytest.approx(
        float(np.asarray(sim.spec.term_weights) @ np.asarray(out.info.terms[0])), rel=1e-5
    )
    early = step(sim, dataclasses.replace(last, t=last.t - 1), jnp.zeros((1, 5)))
    assert term(sim, early, "zone_heat") == term(sim, early, "stored_carbon") == 0


def test_a_microgrid_refuses_names_that_it_does_not_know():
    spec = dataclasses.replace(get_spec("dc_microgrid", 1), term_names=("beauty",), term_weights=(1.0,))
    with pytest.raises(ValueError, match="Unknown reward term 'beauty'"):
        build_microgrid(spec, split="val")


def test_units_of_a_technology_have_its_times_ramps_and_costs_and_more_reserve_is_asked_for():
    sim = make("marl_uc", split="val")
    rules = sim.params.rules
    assert np.asarray(rules.min_up).tolist() == [2, 2, 16, 2, 16]
    np.testing.assert_allclose(np.asarray(rules.p_min_mw), [8, 34, 208, 40, 240], rtol=1e-6)
    np.testing.assert_allclose(np.asarray(rules.ramp_mw), [20, 85, 78, 100, 90], rtol=1e-6)
    np.testing.assert_allclose(np.asarray(rules.startup_usd), [800, 3400, 31200, 4000, 36000], rtol=1e-6)
    state, _ = init(sim, jax.random.key(0))
    out = step(sim, state, jnp.asarray([[0.0, -1.0]] * 4 + [[0.0, 1.0]]))
    running = float(np.asarray(rules.p_max_mw)[np.asarray(out.info.committed)].sum())
    short = max(1.1 * float(out.info.load_mw) - running, 0)
    assert short > 0 and float(out.cost[sim.spec.cost_names.index("reserve_shortfall")]) == pytest.approx(
        short, rel=1e-4
    )


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"unit_technologies": ("peak",)}, "unit_technologies names 1 of 5 units"),
        ({"unit_technologies": ("peak", "peak", "bas", "peak", "base")}, "Unknown technology 'bas'"),
        ({"reserve_share": -0.1}, "reserve_share = -0.1 must not be negative"),
        ({"commitment": False}, "unit_technologies and reserve_share need commitment"),
    ],
)
def test_units_that_cannot_be_are_refused(keywords, words):
    with pytest.raises(ValueError, match=words):
        make("marl_uc", **keywords)


@pytest.mark.long
def test_what_the_feeders_store_settles_at_a_known_price():
    """100 feeders with three batteries of 1 MWh, a price of 20 USD/MWh, sqrt(0.95) each way."""
    sim = make("joint_trans_dist", split="val")
    state, _ = init(sim, jax.random.key(0))
    soc = jnp.asarray([[0.3, 0.5, 0.8]])
    cells = dataclasses.replace(state.feeder.storage, soc=soc)
    last = dataclasses.replace(
        at_the_end(sim, state), feeder=dataclasses.replace(at_the_end(sim, state.feeder), storage=cells)
    )
    last = dataclasses.replace(last, transmission=at_the_end(sim, last.transmission))
    out = step(sim, last, jnp.zeros((8, 1)))
    eta = math.sqrt(0.95)
    assert term(sim, out, "settlement") == pytest.approx(100 * 20 * (-0.2 / eta + 0.3 * eta), rel=1e-4)
    unsettled = powerzoo_jax.make("joint_trans_dist", split="val", stored_usd_per_mwh=None)
    assert unsettled.spec.term_names == get_spec("joint_trans_dist").term_names[:-1]
    with pytest.raises(ValueError, match=r"stored_usd_per_mwh = -1\.0 must not be negative"):
        powerzoo_jax.make("joint_trans_dist", stored_usd_per_mwh=-1.0)


@pytest.mark.full
def test_the_cost_of_a_dispatch_is_told_against_the_optimal_one():
    sim = make("marl_opf", split="val")
    record = evaluate(sim, idle_act(sim), n_episodes=2, ends=(-500.0, -250.0))
    optimal_usd = 250.0 / 1e-3
    expected = 100 * (record.metrics["total_cost_usd"] - optimal_usd) / optimal_usd
    assert expected > 10 and record.metrics["percent_above_oracle_cost"] == pytest.approx(expected, rel=1e-4)
