"""A battery in a market: it moves the price against itself, is paid what it delivers, and keeps its energy."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.envs import Sim
from powerzoo_jax.families.market.tasks.storage import make_storage_market
from powerzoo_jax.tasks.contract import check_sim

pytestmark = pytest.mark.property

STEPS, ETA = 48, np.sqrt(0.9025)
FREE = 0.15  # USD/MWh: prices of one clearing are known to 1e-4 of the largest of 1,000


@jax.jit
def _init(sim, key):  # type: ignore[no-untyped-def]
    return sim.init(key)


@jax.jit
def _step(sim, state, action):  # type: ignore[no-untyped-def]
    return sim.step(state, action)


@pytest.fixture(scope="module")
def market() -> Sim:
    return make_storage_market("bid", action_smooth_cost=2.0, degradation_cost_per_mwh=3.0)


def play(sim: Sim, actions: np.ndarray, seed: int) -> tuple[Any, list[Any]]:
    first, _ = _init(sim, jax.random.key(seed))
    state, outs = first, []
    for action in actions:
        out = _step(sim, state, jnp.full((1, 1), action, jnp.float32))
        state = out.state
        outs.append(jax.device_get((out.reward, out.cost, out.obs, out.info)))
    return first, outs


def column(outs: list[Any], name: str) -> np.ndarray:
    return np.array([getattr(out[3], name) for out in outs], float)


@pytest.mark.long
def test_the_contract_is_kept(market):
    assert market.env.fields.names == ("soc", "lmp_norm", "time_sin", "time_cos", "demand_norm", "mean_offer_norm")
    others = tuple(
        make_storage_market("bid", action_smooth_cost=2.0, degradation_cost_per_mwh=3.0, split=split)
        for split in ("val", "test")
    )
    check_sim(market, others=others)


@pytest.fixture(scope="module")
def episodes(market) -> list[tuple[Any, list[Any]]]:
    random = np.random.default_rng(0).uniform(-1, 1, STEPS)
    plays = (random, np.ones(STEPS), -np.ones(STEPS), np.where(np.arange(STEPS) % 2, 1, -1.0), np.full(STEPS, np.nan))
    return [play(market, actions, seed) for seed, actions in enumerate(plays)]


@pytest.mark.full
def test_the_battery_is_paid_its_energy_at_the_price_of_its_bus(episodes):
    for first, outs in episodes:
        price, power, soc = (column(outs, name) for name in ("lmp_bus", "realized_p_mw", "soc"))
        assert np.array_equal(price, column(outs, "lmp")[:, 1].astype(np.float32))
        change = np.abs(np.diff(np.concatenate([[0.0], power])))
        money = 0.5 * price * power - 0.5 * 3.0 * np.abs(power) - 2.0 * change
        left = (soc[-1] - float(first.soc_start[0])) * 200
        money[-1] += price.mean() * left * (ETA if left > 0 else 1 / ETA)
        np.testing.assert_allclose([out[0][0] for out in outs], money, rtol=1e-4, atol=0.05)
        assert bool(outs[-1][3].truncated) and column(outs, "opf_success").all()


@pytest.mark.full
def test_energy_and_limits_are_kept_whatever_is_asked(episodes):
    for first, outs in episodes:
        power, soc = column(outs, "realized_p_mw"), column(outs, "soc")
        before = np.concatenate([[float(first.soc_start[0])], soc[:-1]])
        drawn = np.where(power > 0, power / ETA, power * ETA) * 0.5 / 200
        np.testing.assert_allclose(soc, before - drawn, atol=1e-5)
        assert (np.abs(power) <= 50 + 1e-4).all() and soc.min() >= 0.1 - 1e-6 and soc.max() <= 0.9 + 1e-6
        missing = np.array([out[1][2] for out in outs])
        np.testing.assert_allclose(missing, np.abs(column(outs, "requested_p_mw") - power), atol=1e-4)


@pytest.mark.full
def test_generation_equals_load_less_the_battery(episodes):
    for _, outs in episodes:
        served = column(outs, "load_mw") - column(outs, "realized_p_mw")
        balance = (
            column(outs, "unit_power_mw").sum(1) + column(outs, "unserved_mw") - column(outs, "surplus_mw") - served
        )
        assert np.abs(balance).max() < 100 * 1e-4  # the demand on the clearing in float32


@pytest.mark.full
def test_discharging_never_raises_the_own_price_and_charging_never_lowers_it(market):
    prices = []
    for seed in range(12):
        state, _ = _init(market, jax.random.key(seed))
        one = [_step(market, state, jnp.full((1, 1), a, jnp.float32)).info.lmp_bus for a in (1.0, 0.0, -1.0)]
        prices.append([float(x) for x in one])
    discharge, idle, charge = np.array(prices).T
    assert (discharge <= idle + FREE).all() and (idle <= charge + FREE).all()
    assert (charge - discharge).max() > 0.5


@pytest.mark.full
def test_offers_are_above_the_costs_and_drawn_once_an_episode(market):
    first, _ = _init(market, jax.random.key(0))
    other, _ = _init(market, jax.random.key(1))
    markup = np.asarray(first.markup)
    assert (markup >= 0).all() and markup.max() > 0.02 and not np.array_equal(markup, np.asarray(other.markup))
    assert markup.mean() == pytest.approx(0.05 * np.sqrt(2 / np.pi), rel=0.4)
    after = _step(market, first, jnp.zeros((1, 1))).state
    assert np.array_equal(np.asarray(after.markup), markup)


@pytest.mark.full
def test_a_market_on_true_costs_has_the_published_price_at_an_idle_battery():
    """Spec 07 section 4, 1000 MW in shares .3, .3, .4: 26.3845 USD/MWh at bus 2."""
    with jax.enable_x64(True):
        sim = make_storage_market("cost", dtype="float64")
        params = sim.params
        rows = params.bank.load_rows.at[:, 0].set(1000 / float(params.full_load_mw))
        bank = dataclasses.replace(params.bank, load_rows=rows)
        params = dataclasses.replace(params, bank=bank, load_share=jnp.asarray([0, 0.3, 0.3, 0.4, 0.0]))
        state, obs = _init(dataclasses.replace(sim, params=params), jax.random.key(0))
    assert float(state.price) == pytest.approx(26.3845, abs=1e-4)
    assert obs.shape == (1, 5) and float(obs[0, 1]) == pytest.approx(0.263845, abs=1e-6)


@pytest.mark.parametrize(
    ("kind", "keywords", "error", "words"),
    [
        ("bids", {}, ValueError, "bid"),
        ("cost", {"markup_std": 0.1}, TypeError, "Choose kind 'bid'"),
        ("cost", {"battery_bus_id": None}, ValueError, "battery_bus_id = None. Valid: 1, 2, 3, 4, 5"),
        ("bid", {"battery_bus_id": 9}, ValueError, "Valid: 1"),
        ("bid", {"capacity": 3}, TypeError, "battery_capacity_mwh"),
        ("bid", {"voll": 0.0}, ValueError, "must be positive"),
    ],
)
def test_mistakes_are_refused_with_the_remedy(kind, keywords, error, words):
    with pytest.raises(error, match=words):
        make_storage_market(kind, **keywords)
