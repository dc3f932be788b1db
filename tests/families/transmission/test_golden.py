"""Published dispatches of spec 07 section 4 played through the transmission environment."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.cases import load_case
from powerzoo_jax.envs import Sim
from powerzoo_jax.opf import allocate_by_merit, dc_opf, prepare_dc_opf
from powerzoo_jax.powerflow.dc.network import build_dc_network

pytestmark = pytest.mark.property

LOW, HIGH = np.array([5.0, 10, 20, 10, 20]), np.array([40.0, 170, 520, 200, 600])
PRICE = np.array([14.0, 15, 30, 40, 10])
step = jax.jit(lambda sim, state, action: sim.step(state, action))


def at_load(load_mw: float, shape: tuple[float, ...] | None = None, **keywords: object) -> Sim:
    """marl_opf with one constant load, shared among the buses by `shape` or as the task does."""
    sim = powerzoo_jax.make("marl_opf", dtype="float64", **keywords)
    params = dataclasses.replace(
        sim.params,
        full_load_mw=jnp.asarray(load_mw),
        bank=dataclasses.replace(sim.params.bank, load_rows=jnp.ones_like(sim.params.bank.load_rows)),
    )
    if shape is not None:
        share = np.asarray(shape) / np.sum(shape)
        flow = jnp.asarray(build_dc_network(load_case("pz_case5")).ptdf @ share)
        params = dataclasses.replace(params, factors=dataclasses.replace(params.factors, of_load=flow))
    return dataclasses.replace(sim, params=params)


def follow(sim: Sim, p_mw: np.ndarray) -> tuple[np.ndarray, float, np.ndarray, float]:
    """Dispatch, cost [USD/h], flows and overload of a schedule (or of scores, where p_mw is None)."""
    state, _ = jax.jit(sim.init)(jax.random.key(0))
    place = 2 * (np.asarray(p_mw) - LOW) / (HIGH - LOW) - 1
    info = step(sim, state, jnp.asarray(place)[:, None]).info
    return (
        np.asarray(info.unit_power_mw),
        2 * float(info.gen_cost_usd),
        np.asarray(info.line_flow_mw),
        float(info.overload_mw),
    )


@pytest.mark.tiers("full", long=["1377.0-None-p1-27894.0849"])
@pytest.mark.parametrize(
    ("load", "shape", "p", "cost"),
    [
        (1000.0, (0, 300, 300, 400, 0), (40, 170, 308.5235, 10, 471.4765), 17480.4696),
        (1377.0, None, (40, 170, 520, 90.4695, 556.5305), 27894.0849),
    ],
)
def test_the_optimal_flow_costs_what_is_published_and_overloads_nothing(load, shape, p, cost):
    with jax.enable_x64(True):
        case = load_case("pz_case5")
        buses = np.asarray(shape or (0, 500, 600, 400, 0))
        best = dc_opf(prepare_dc_opf(case, dtype="float64"), jnp.asarray(load * buses / buses.sum()))
        found, money, flow, overload = follow(at_load(load, shape, action_mode="direct"), best.unit_power_mw)
    np.testing.assert_allclose(found, p, atol=5e-5)
    assert money == pytest.approx(cost, rel=1e-6)
    assert overload < 1e-4
    if shape:
        published = [255.7347, 185.7418, -231.4765, -44.2653, -35.7418, -240.0]
        np.testing.assert_allclose(flow, published, atol=5e-5)


@pytest.mark.parametrize(("load", "cost", "overload"), [(1377.0, 26_590, 20.9), (500.0, 5_770, 0.0)])
def test_merit_order_is_cheaper_and_overloads_as_published(load, cost, overload):
    with jax.enable_x64(True):
        low, high, price = (jnp.asarray(x) for x in (LOW, HIGH, PRICE))
        p = allocate_by_merit(price, low, high, jnp.asarray(load)).p_mw
        _, money, _, excess = follow(at_load(load, action_mode="direct"), p)
    assert money == pytest.approx(cost, rel=1e-9)
    assert excess == pytest.approx(overload, abs=0.05)


def test_equal_scores_overload_nothing_at_the_published_cost():
    with jax.enable_x64(True):
        sim = at_load(1377.0)
        state, _ = jax.jit(sim.init)(jax.random.key(0))
        info = step(sim, state, jnp.zeros((5, 1))).info
    assert 2 * float(info.gen_cost_usd) == pytest.approx(30_450, rel=5e-4)  # printed to three digits
    assert float(info.overload_mw) == 0.0


@pytest.mark.full
def test_no_unit_running_is_never_cheap_and_load_beyond_the_capacity_is_priced():
    with jax.enable_x64(True):
        sim = powerzoo_jax.make("marl_uc", dtype="float64")
        state, _ = jax.jit(sim.init)(jax.random.key(3))
        off = jax.jit(lambda s, x: s.step(x, jnp.full((5, 2), -1.0)))(sim, state)
        info = off.info
        assert not info.committed.any() and float(info.unserved_mw) == pytest.approx(float(info.load_mw))
        # 48 half hours of VOLL against at most 200 MW at 40 USD/MWh: no saving can pay for it
        assert float(off.reward[0]) == pytest.approx(-1e-3 * 5000 * float(info.load_mw))
        beyond = at_load(1600.0)
        state, _ = beyond.init(jax.random.key(0))
        info = step(beyond, state, jnp.ones((5, 1))).info
    assert info.unit_power_mw.tolist() == HIGH.tolist()
    assert float(info.unserved_mw) == pytest.approx(70.0)
