"""A price is the derivative of the cost: against one-sided differences of HiGHS, and by hand where load is shed."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from powerzoo_jax.cases import Case
from powerzoo_jax.cases.case import assemble
from powerzoo_jax.cases.library import load_case
from powerzoo_jax.opf import (
    DcOpfFactors,
    DcOpfResult,
    OpfStatus,
    capped_offers,
    case_offers,
    clear_market,
    dc_opf,
    economic_dispatch,
    make_cost_segments,
    prepare_dc_opf,
)
from tests.references.opf_dc import clear_with_highs

pytestmark = pytest.mark.full

VOLL, SURPLUS = 300.0, 50.0
STEP = 1e-4  # [MW]
MARKETS = 80
NEAR = {"float32": 5e-2, "float64": 1e-2}  # [USD/MWh]


def ring(load: np.ndarray, low: np.ndarray, high: np.ndarray, cost: np.ndarray, rate: np.ndarray) -> Case:
    """Three buses in a ring, a unit at each."""
    bus = [[k, 3 if k == 1 else 1, load[k - 1], 0, 0, 0, 1, 1, 0, 100, 1, 1.1, 0.9] for k in (1, 2, 3)]
    gen = [[k, 0, 0, 10, -10, 1, 100, 1, high[k - 1], low[k - 1]] for k in (1, 2, 3)]
    ends = ((1, 2, 0.1), (2, 3, 0.1), (1, 3, 0.2))
    branch = [[f, t, 0, x, 0, r, r, r, 0, 0, 1, -360, 360] for (f, t, x), r in zip(ends, rate, strict=True)]
    tables = {"bus": bus, "gen": gen, "branch": branch, "gencost": [[2, 0, 0, 2, c, 0] for c in cost]}
    return assemble("ring", 100.0, "", {name: np.array(rows, float) for name, rows in tables.items()})


def market(rng: np.random.Generator) -> Case:
    """Values from a few round numbers: idle and negative loads, fixed and free units, equal costs, tiny ratings."""
    high = rng.choice([0, 0, 20, 50, 100, 130], 3).astype(float)
    low = np.where(rng.random(3) < 0.3, high, np.where(rng.random(3) < 0.3, np.minimum(high, 30), 0))
    load = rng.choice([0, 0, 0, 10, 30, 50, 100, -30], 3).astype(float)
    return ring(load, low, high, rng.choice([20.0, 20, 10, 40, -30, 0], 3), rng.choice([0, 0.001, 10, 50, 1000], 3))


class Known(NamedTuple):
    """Markets and their cost by HiGHS [USD/h], and its change for one more MW and one less [USD/MWh], by bus.

    idle: the change for one more MW at all buses without load together
    """

    cases: list[Case]
    load: np.ndarray
    cost: np.ndarray
    more: np.ndarray
    less: np.ndarray
    idle: np.ndarray


def cost_by_highs(case: Case, load: np.ndarray) -> float:
    return clear_with_highs(case, load, case.unit.cost[:, 0], voll=VOLL, surplus=SURPLUS).cost


@pytest.fixture(scope="module")
def known() -> Known:
    rng = np.random.default_rng(1)
    cases = [market(rng) for _ in range(MARKETS)]
    load = np.stack([case.p_load_mw for case in cases])

    def cost(moves: np.ndarray) -> np.ndarray:
        return np.array([cost_by_highs(*pair) for pair in zip(cases, load + moves, strict=True)])

    here, moves = cost(np.zeros(3)), STEP * np.eye(3)
    more, less = (np.stack([sign * (cost(sign * m) - here) for m in moves], axis=1) / STEP for sign in (1, -1))
    return Known(cases, load, here, more, less, (cost(STEP * (load == 0)) - here) / STEP)


@pytest.mark.tiers(long=["float32-adaptive", "float64-fixed"])
@pytest.mark.property
@pytest.mark.parametrize("solver", ["adaptive", "fixed"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_prices_of_random_markets_are_the_one_sided_differences_of_highs(known: Known, dtype: str, solver: str) -> None:
    with jax.enable_x64(dtype == "float64"):
        made = [prepare_dc_opf(c, rows=range(3), spill_bus_ids=(1, 2, 3), dtype=dtype) for c in known.cases]
        load = jnp.asarray(known.load, dtype)

        def solve(factors: DcOpfFactors, load: Array) -> tuple[Array, DcOpfResult]:
            def cost(load: Array) -> tuple[Array, DcOpfResult]:
                out = dc_opf(factors, load, voll=VOLL, surplus_price=SURPLUS, solver=solver)
                return out.objective, out

            return jax.grad(cost, has_aux=True)(load)

        stacked = jax.tree.map(lambda *leaf: jnp.stack(leaf), *made)
        slope, out = jax.tree.map(np.asarray, jax.jit(jax.vmap(solve))(stacked, load))
    assert (out.status == OpfStatus.OPTIMAL).all()
    np.testing.assert_allclose(out.objective, known.cost, rtol=1e-5, atol=1e-2)
    more, less, near, lmp = known.more, known.less, NEAR[dtype], out.lmp
    loaded = known.load != 0
    assert (lmp >= np.minimum(more, less) - near)[loaded].all()
    assert (lmp <= np.maximum(more, less) + near)[loaded].all()
    # of buses without load prices are those of more load: at all of them together, and at none dearer than there alone
    np.testing.assert_allclose(np.sum(lmp * ~loaded, axis=1), known.idle, atol=3 * near)
    assert (lmp <= more + near)[~loaded].all()
    smooth = loaded & (np.abs(more - less) < 1e-3)
    assert smooth.sum() > MARKETS / 2
    np.testing.assert_allclose(slope[smooth], lmp[smooth], atol=near)
    np.testing.assert_allclose(out.lmp_energy[:, None] + out.lmp_congestion + out.lmp_scarcity, lmp, atol=near / 10)


@pytest.mark.tiers(long=["fixed"])
@pytest.mark.parametrize("solver", ["adaptive", "fixed"])
def test_a_line_of_one_kilowatt_beside_a_unit_that_must_run_has_its_price_in_float32(solver: str) -> None:
    """By hand: 30 MW of negative load and 30 MW that must run at -30 are spilled at bus 3, 60 * 500 - 30 * 30."""
    load = np.array([0.0, 0, -30])
    case = ring(load, np.array([0, 0, 30]), np.array([0, 100, 130]), np.array([20, 20, -30]), np.array([1000, 0, 1e-3]))
    factors = prepare_dc_opf(case, rows=range(3), spill_bus_ids=(1, 2, 3))
    out = jax.jit(lambda d: dc_opf(factors, d, solver=solver))(jnp.asarray(load, jnp.float32))
    assert int(out.status) == OpfStatus.OPTIMAL
    np.testing.assert_allclose(out.objective, 29_100, rtol=1e-6)
    np.testing.assert_allclose(out.lmp, -500, rtol=1e-6)


def test_bids_clear_alike_in_both_float_types() -> None:
    case = load_case("pz_case5")
    rng = np.random.default_rng(7)
    shares = np.array([0, 0.3, 0.3, 0.4, 0]) * rng.uniform(0.9, 1.1, (128, 5))
    load = np.float32(rng.uniform(300, 1300, (128, 1)) * shares)
    markup = np.float32(rng.uniform(0, 2, (128, 5, 3)))

    def clear(dtype: str) -> DcOpfResult:
        with jax.enable_x64(dtype == "float64"):
            factors, segments = prepare_dc_opf(case, dtype=dtype), make_cost_segments(case, 3, dtype=dtype)
            solve = jax.vmap(lambda m, d: clear_market(factors, capped_offers(segments, m), d).dispatch)
            out = jax.jit(solve)(jnp.asarray(markup, dtype), jnp.asarray(load, dtype))
            return jax.tree.map(np.asarray, out)

    narrow, wide = clear("float32"), clear("float64")
    assert (wide.lmp.max(axis=1) - wide.lmp.min(axis=1) > 1).mean() > 0.1
    np.testing.assert_allclose(narrow.lmp, wide.lmp, atol=1e-3)
    np.testing.assert_allclose(narrow.unit_power_mw, wide.unit_power_mw, atol=1e-3)


def test_load_that_is_shed_whole_costs_the_value_of_lost_load() -> None:
    """No unit runs: every MW more is shed at VOLL, and the gradient of the cost says so too."""
    case = load_case("pz_case5")
    with jax.enable_x64(True):
        factors = prepare_dc_opf(case, dtype="float64")
        off = jnp.zeros(case.n_unit)
        solve = jax.jit(jax.value_and_grad(lambda d: dc_opf(factors, d, commitment=off).objective))
        cost, gradient = solve(jnp.asarray(case.p_load_mw))
        out = jax.jit(lambda d: clear_market(factors, factors.offers, d, commitment=off, voll=300.0))(
            jnp.asarray(case.p_load_mw)
        )
    assert float(cost) == pytest.approx(1e4 * case.p_load_mw.sum(), rel=1e-9)
    np.testing.assert_allclose(gradient, 1e4, rtol=1e-9)
    np.testing.assert_allclose(out.dispatch.lmp, 300, rtol=1e-9)
    assert (np.asarray(out.dispatch.lmp_scarcity) <= 0).all()


def test_offers_above_the_value_of_lost_load_are_not_taken() -> None:
    """Units ask 10, 14, 15, 30 and 40: at a value of 12 all load beyond the cheapest is shed, at a price of 12."""
    case = load_case("pz_case5")
    low, high = (jnp.asarray(x, jnp.float32) for x in (case.unit.p_min_mw, case.unit.p_max_mw))
    out = economic_dispatch(case_offers(case), jnp.float32(900), low, high, voll=12.0)
    # the others run at their minimum of 5, 10, 20 and 10 MW
    np.testing.assert_allclose([out.shed_mw, out.price], [255, 12], rtol=1e-6)
    np.testing.assert_allclose(out.unit_power_mw, [5, 10, 20, 10, 600], atol=1e-3)
