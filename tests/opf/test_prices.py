"""A price is the derivative of the cost: against one-sided differences of HiGHS, and by hand where load is shed."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.cases import Case
from powerzoo_jax.cases.case import assemble
from powerzoo_jax.cases.library import load_case
from powerzoo_jax.opf import (
    OpfStatus,
    case_offers,
    clear_market,
    dc_opf,
    economic_dispatch,
    prepare_dc_opf,
)
from tests.references.opf_dc import clear_with_highs

VOLL, SURPLUS = 300.0, 50.0
STEP = 1e-4  # [MW]
MARKETS = 60


def ring(load: np.ndarray, low: np.ndarray, high: np.ndarray, cost: np.ndarray, rate: np.ndarray) -> Case:
    """Three buses in a ring, a unit at each."""
    bus = [[k, 3 if k == 1 else 1, load[k - 1], 0, 0, 0, 1, 1, 0, 100, 1, 1.1, 0.9] for k in (1, 2, 3)]
    gen = [[k, 0, 0, 10, -10, 1, 100, 1, high[k - 1], low[k - 1]] for k in (1, 2, 3)]
    ends = ((1, 2, 0.1), (2, 3, 0.1), (1, 3, 0.2))
    branch = [[f, t, 0, x, 0, r, r, r, 0, 0, 1, -360, 360] for (f, t, x), r in zip(ends, rate, strict=True)]
    tables = {"bus": bus, "gen": gen, "branch": branch, "gencost": [[2, 0, 0, 2, c, 0] for c in cost]}
    return assemble("ring", 100.0, "", {name: np.array(rows, float) for name, rows in tables.items()})


def market(rng: np.random.Generator) -> Case:
    """Values from a few round numbers: idle and negative loads, fixed and free units, equal costs, no ratings."""
    high = rng.choice([0, 20, 50, 100, 130], 3).astype(float)
    low = np.where(rng.random(3) < 0.3, high, np.where(rng.random(3) < 0.3, np.minimum(high, 30), 0))
    load = rng.choice([0, 10, 30, 50, 100, -30], 3).astype(float)
    return ring(load, low, high, rng.choice([20.0, 20, 10, 40, -30], 3), rng.choice([0.0, 10, 50, 1000], 3))


def differences(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Change of HiGHS's cost for one more MW and for one less at every bus, [USD/MWh]."""

    def cost(load: np.ndarray) -> float:
        return clear_with_highs(case, load, case.unit.cost[:, 0], voll=VOLL, surplus=SURPLUS).cost

    here, moves = cost(case.p_load_mw), STEP * np.eye(3)
    more, less = (np.array([cost(case.p_load_mw + sign * move) for move in moves]) for sign in (1, -1))
    return (more - here) / STEP, (here - less) / STEP


@pytest.mark.property
def test_prices_of_random_markets_lie_between_the_one_sided_differences_of_highs() -> None:
    rng = np.random.default_rng(1)
    cases = [market(rng) for _ in range(MARKETS)]
    with jax.enable_x64(True):
        made = [prepare_dc_opf(c, rows=range(3), spill_bus_ids=(1, 2, 3), dtype="float64") for c in cases]
        load = jnp.asarray(np.stack([c.p_load_mw for c in cases]))
        solve = jax.jit(jax.vmap(lambda f, d: dc_opf(f, d, voll=VOLL, surplus_price=SURPLUS)))
        out = solve(jax.tree.map(lambda *leaf: jnp.stack(leaf), *made), load)
    assert (out.status == OpfStatus.OPTIMAL).all()
    more, less = (np.stack(x) for x in zip(*map(differences, cases), strict=True))
    loaded, lmp = np.asarray(load) != 0, np.asarray(out.lmp)
    assert (lmp >= np.minimum(more, less) - 1e-2)[loaded].all()
    assert (lmp <= np.maximum(more, less) + 1e-2)[loaded].all()
    # without load the price is that of more load where it can be had: never above the value of lost load
    assert lmp[np.asarray(load) >= 0].max() <= VOLL + 1e-6
    np.testing.assert_allclose(out.lmp_energy[:, None] + out.lmp_congestion + out.lmp_scarcity, lmp, rtol=1e-12)


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
