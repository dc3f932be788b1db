"""Laws of the bidding environment under random and adversarial offers, and the published truthful clearings."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.envs import Sim
from powerzoo_jax.opf import OpfStatus
from tests.tolerances import tolerance

pytestmark = pytest.mark.property

STEPS, LANES = 48, 2_100  # 100,800 steps
LOW, HIGH = np.array([5.0, 10, 20, 10, 20]), np.array([40.0, 170, 520, 200, 600])
PRICE, BUS = np.array([14.0, 15, 30, 40, 10]), np.array([0, 0, 2, 3, 4])
RATE = np.array([400.0, 0, 0, 0, 0, 240])
init = jax.jit(lambda sim, key: sim.init(key))
step = jax.jit(lambda sim, state, action: sim.step(state, action))


class Played(NamedTuple):
    """Leading axes (B, T)."""

    p: np.ndarray
    profit: np.ndarray
    lmp: np.ndarray
    load: np.ndarray
    unserved: np.ndarray
    surplus: np.ndarray
    consumer: np.ndarray
    status: np.ndarray
    cost: np.ndarray
    finite: np.ndarray
    first: np.ndarray


@jax.jit
def play(sim: Sim, lanes: jax.Array) -> tuple[jax.Array, ...]:
    def episode(lane: jax.Array) -> tuple[jax.Array, ...]:
        key = jax.random.key(lane)
        first, _ = sim.init(key)
        free = jax.random.uniform(jax.random.fold_in(key, 1), (STEPS, 5, 3), minval=-1, maxval=1)
        held = jnp.repeat(jnp.sign(free[::8]), 8, axis=0)
        kinds = jnp.stack([free, jnp.full_like(free, -1), jnp.full_like(free, 1), jnp.full_like(free, jnp.nan), held])
        wanted = kinds[jnp.where(lane % 2 == 0, 0, (lane // 2) % 5)]

        def advance(state, action):  # type: ignore[no-untyped-def]
            out = sim.step(state, action)
            i = out.info
            told = (i.unit_power_mw, i.profit_usd, i.lmp, i.load_mw, i.unserved_mw, i.surplus_mw, i.consumer_cost_usd)
            return out.state, (*told, i.opf_status, out.cost, jnp.isfinite(out.obs).all())

        return (*jax.lax.scan(advance, first, wanted)[1], first.p_mw)

    return jax.vmap(episode)(lanes)


@pytest.fixture(scope="module")
def played() -> Played:
    sim = powerzoo_jax.make("gencos_bidding", split="demand_shift")
    return Played(*(np.asarray(x) for x in play(sim, jnp.arange(LANES))))


def good(e: Played) -> np.ndarray:
    """Steps before any failure of an episode."""
    return np.cumsum(e.status != OpfStatus.OPTIMAL, axis=1) == 0


@pytest.mark.long
def test_nearly_every_clearing_is_optimal_and_everything_is_finite(played):
    assert good(played).mean() > 0.999
    assert played.finite.all() and np.isfinite(played.profit).all() and np.isfinite(played.cost).all()


@pytest.mark.full
def test_generation_equals_load_less_shed_plus_spill_inside_limits_and_ramps(played):
    fine, p = good(played), played.p.astype(float)
    balance = p.sum(-1) + played.unserved - played.surplus - played.load
    assert np.abs(balance[fine]).max() < 100 * 1e-4  # 1e-4 pu: the demand on the clearing in float32
    assert (p[fine] >= LOW - 1e-3).all() and (p[fine] <= HIGH + 1e-3).all()
    before = np.concatenate([played.first[:, None].astype(float), p[:, :-1]], axis=1)
    assert (np.abs(p - before)[fine] <= 0.5 * HIGH + 1e-2).all()
    assert (played.cost[..., 0][fine] == 0).all()
    np.testing.assert_allclose(played.cost[..., 1][fine], 0.5 * played.unserved[fine], rtol=1e-5, atol=1e-5)


@pytest.mark.full
def test_profits_equal_price_times_output_less_true_cost(played):
    fine = good(played)
    revenue = played.lmp[..., BUS].astype(float) * played.p
    expected = 0.5 * (revenue - PRICE * played.p)
    scale = np.maximum(0.5 * np.abs(revenue), 1.0)
    assert (np.abs(played.profit - expected)[fine] / scale[fine]).max() < tolerance("money_relative", "float32")


@pytest.mark.full
def test_markups_move_money_from_consumers_to_generators(played):
    """Lanes 3, 5, ... hold the truth, then the highest offers: the same days on average, other prices."""
    kind = (np.arange(LANES) // 2) % 5 * (np.arange(LANES) % 2)
    odd = np.arange(LANES) % 2 == 1
    truth, most = odd & (kind == 1), odd & (kind == 2)
    assert played.consumer[most].sum(1).mean() > 1.5 * played.consumer[truth].sum(1).mean()
    assert played.profit[most].sum((1, 2)).mean() > played.profit[truth].sum((1, 2)).mean()
    assert played.lmp[good(played)].max() <= 1000 * 2.5  # the cap, and what congestion adds to it


@pytest.mark.full
def test_no_offers_make_money_that_nobody_pays(played):
    """Truth, withholding by the highest offers, flickering: revenues never exceed what loads pay, the rest is rent."""
    fine = good(played)
    revenue = played.profit.astype(float).sum(-1) + 0.5 * played.p.astype(float) @ PRICE
    paid = played.consumer.astype(float)
    rent = paid - revenue
    assert (rent[fine] >= -1e-4 * np.maximum(np.abs(paid), 1)[fine]).all()


@pytest.mark.full
def test_withholding_serves_the_same_load(played):
    """The highest offers of all raise prices; they do not leave load in the dark that the truth would serve."""
    kind = (np.arange(LANES) // 2) % 5 * (np.arange(LANES) % 2)
    dark = {k: np.where(good(played), played.unserved, 0)[(np.arange(LANES) % 2 == 1) & (kind == k)] for k in (1, 2)}
    assert dark[1].max() < 1e-2 and dark[2].max() < 1e-2


def at_load(load_mw: float) -> Sim:
    """The task in float64 with one constant load."""
    sim = powerzoo_jax.make("gencos_bidding", dtype="float64")
    rows = sim.params.bank.load_rows.at[:, 0].set(load_mw)
    return dataclasses.replace(
        sim, params=dataclasses.replace(sim.params, bank=dataclasses.replace(sim.params.bank, load_rows=rows))
    )


@pytest.mark.full
def test_truthful_offers_earn_what_is_published():
    """Spec 07 section 4: 603.495 MW, 6804.95 USD/h, 10 USD/MWh everywhere, must-run units lose money."""
    with jax.enable_x64(True):
        sim = at_load(603.495)
        state, obs = init(sim, jax.random.key(0))
        out = step(sim, state, jnp.full((5, 3), -1.0))
    info = out.info
    np.testing.assert_allclose(info.unit_power_mw, [5, 10, 20, 10, 558.495], atol=1e-5)
    np.testing.assert_allclose(info.lmp, 10, atol=1e-4)
    np.testing.assert_allclose(out.reward, [-10, -25, -200, -150, 0], atol=0.05)
    assert 2 * float(np.asarray(info.gen_cost_usd).sum()) == pytest.approx(6804.95, rel=1e-6)
    np.testing.assert_allclose(np.asarray(obs)[:, 8:], 0.1, atol=1e-6)  # prices before the first step


@pytest.mark.full
def test_money_and_balance_agree_in_double_precision():
    """Random offers of a day, recomputed from dispatch and prices to 1e-6."""
    with jax.enable_x64(True):
        sim = powerzoo_jax.make("gencos_bidding", split="demand_shift", dtype="float64")
        state, _ = init(sim, jax.random.key(7))
        for t in range(STEPS):
            out = step(sim, state, jax.random.uniform(jax.random.key(t), (5, 3), minval=-1, maxval=1))
            state, info = out.state, jax.device_get(out.info)
            revenue = info.lmp[BUS] * info.unit_power_mw
            expected = 0.5 * (revenue - PRICE * info.unit_power_mw)
            np.testing.assert_allclose(out.reward, expected, rtol=0, atol=1e-6 * max(0.5 * np.abs(revenue).max(), 1))
            supplied = info.unit_power_mw.sum() + info.unserved_mw - info.surplus_mw
            assert supplied == pytest.approx(info.load_mw, rel=1e-6)
    assert bool(info.truncated)


@pytest.mark.full
def test_scarcity_is_priced_at_the_cap_as_published():
    """Spec 07 section 4: 1600 MW at 1000 USD/MWh sheds 127.47 MW at bus 4."""
    with jax.enable_x64(True):
        sim = at_load(1600.0)
        state, _ = init(sim, jax.random.key(0))
        out = step(sim, state, jnp.full((5, 3), -1.0))
    np.testing.assert_allclose(out.info.unit_power_mw, [40, 170, 520, 200, 542.5297], atol=1e-3)
    np.testing.assert_allclose(out.info.lmp, [240.6932, 551.7212, 671.2622, 1000, 10], atol=1e-2)
    assert float(out.info.unserved_mw) == pytest.approx(127.4703, abs=1e-3)
    assert float(out.cost[1]) == pytest.approx(127.4703 / 2, abs=1e-3)


def test_shifted_splits_scale_demand_and_wind():
    """load = 1300 d - 300 w: a tenth more demand and three tenths of the wind tell d and w, and both the load."""
    sims = [powerzoo_jax.make("gencos_bidding", split=s) for s in ("test", "demand_shift", "renewable_shock")]
    base, more, calm = (np.asarray(sim.params.bank.load_rows, float)[:, 0] for sim in sims)
    d, w = (more - base) / 130, (calm - base) / 210
    np.testing.assert_allclose(base, 1300 * d - 300 * w, atol=0.05)
    assert 0.95 < d.max() <= 1.0001 and w.min() + 1e-4 >= 0 and 0.9 < w.max() <= 1.0001
    for other in sims[1:]:
        assert np.array_equal(other.params.starts.load_row, sims[0].params.starts.load_row)


@pytest.mark.full
def test_a_failed_clearing_ends_the_episode_and_leaves_its_load_unserved():
    """A load that is not a number, from the second step on."""
    with jax.enable_x64(True):
        sim = at_load(800.0)
        state, _ = init(sim, jax.random.key(0))
        bank = sim.params.bank
        broken = dataclasses.replace(
            sim, params=dataclasses.replace(sim.params, load_share=sim.params.load_share * jnp.nan)
        )
        action = jnp.full((5, 3), -1.0)
        out = step(broken, state, action)
        later = step(broken, out.state, action)
    rows = np.asarray(bank.load_rows)
    first = int(state.load_row)
    ahead = rows[:, 3] + rows[:, 4]
    assert bool(out.info.terminated) and out.reward.tolist() == [0] * 5
    assert float(out.cost[1]) == pytest.approx(0.5 * (ahead[first + 48] - ahead[first]))
    assert np.isfinite(out.obs).all()
    assert bool(later.info.terminated) and later.cost.tolist() == [0, 0]
