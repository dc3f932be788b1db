"""What must hold for every optimum: derivatives, certificates, indifference to numbering, base and neighbours."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.cases import Case
from powerzoo_jax.cases.library import load_case
from powerzoo_jax.opf import (
    OpfStatus,
    Qp,
    dc_opf,
    dc_programme,
    dual_bound,
    infeasibility,
    prepare_dc_opf,
    solve_qp,
)
from tests.tolerances import tolerance

pytestmark = [pytest.mark.property, pytest.mark.full]

# a state of case30 with a quadratic optimum at binding lines, well away from kinks
SCALE, STRETCH = 0.62, 1.1


def congested_case30() -> tuple[Case, np.ndarray, np.ndarray]:
    case = load_case("case30")
    spread = 1 + 0.1 * np.random.default_rng(3).uniform(-1, 1, case.n_bus)
    return case, case.p_load_mw * STRETCH * spread, case.branch.rate_a_mva * SCALE


class Derived(NamedTuple):
    """A state with programs of it: values and forward and reverse derivatives by load, rating and offer."""

    at: tuple[jax.Array, ...]
    run: Any
    forward: Any
    reverse: Any


@cache
def derived(solver: str = "auto") -> Derived:
    case, load, rate = congested_case30()
    with jax.enable_x64(True):
        factors = prepare_dc_opf(case, dtype="float64")

        def solve(load: jax.Array, rating: jax.Array, offer: jax.Array) -> tuple[jax.Array, ...]:
            offers = dataclasses.replace(factors.offers, price=offer)
            out = dc_opf(factors, load, rate_mva=rating, offers=offers, solver=solver)
            return out.objective, out.lmp, out.unit_power_mw, out.line_price

        return Derived(
            (jnp.asarray(load), jnp.asarray(rate), factors.offers.price),
            jax.jit(solve),
            jax.jit(lambda at, along: jax.jvp(solve, at, along)[1]),
            jax.jit(lambda at, weights: jax.vjp(solve, *at)[1](weights)),
        )


@pytest.mark.tiers("long", full=["rating-auto", "offer-auto"])
@pytest.mark.parametrize("solver", ["auto", "fixed"])
@pytest.mark.parametrize("which", ["load", "rating", "offer"])
def test_derivatives_of_cost_and_prices_equal_finite_differences(which: str, solver: str) -> None:
    known, k = derived(solver), ["load", "rating", "offer"].index(which)
    with jax.enable_x64(True):
        rng = np.random.default_rng(5)
        along = [jnp.zeros_like(x) for x in known.at]
        # idle buses and branches are at a kink: no load can be shed there, and a rating of 0 is none
        along[k] = jnp.asarray(rng.normal(size=known.at[k].shape)) * (known.at[k] > 0).astype(known.at[k].dtype)
        step = {"load": 1e-3, "rating": 1e-3, "offer": 1e-4}[which]
        values = known.run(*known.at)
        assert (np.asarray(values[3]) > 1e-2).sum() >= 1
        forward = known.forward(known.at, tuple(along))[:3]
        ahead, behind = (
            known.run(*(x + sign * step * dx for x, dx in zip(known.at, along, strict=True)))[:3] for sign in (1, -1)
        )
        for exact, high, low in zip(forward, ahead, behind, strict=True):
            expected = np.asarray(high - low) / (2 * step)
            size = np.abs(expected).max()
            assert np.abs(np.asarray(exact) - expected).max() <= tolerance("opf_gradient_relative", "float64") * size
        weights = (*(jnp.ones_like(x) for x in values[:3]), jnp.zeros_like(values[3]))
        reverse = known.reverse(known.at, weights)
        total = sum(float(jnp.sum(x)) for x in forward)
        assert float(jnp.vdot(reverse[k], along[k])) == pytest.approx(total, rel=1e-9)


def test_the_gradient_of_the_cost_is_the_price() -> None:
    known = derived()
    with jax.enable_x64(True):
        values = known.run(*known.at)
        cost_only = (jnp.ones_like(values[0]), *(jnp.zeros_like(x) for x in values[1:]))
        of_load, of_rating, _ = known.reverse(known.at, cost_only)
    np.testing.assert_allclose(of_load, values[1], rtol=1e-8)
    np.testing.assert_allclose(of_rating, -values[3], atol=1e-8)


def test_an_infeasible_rating_is_certified_and_shedding_prices_it() -> None:
    case, load, rate = congested_case30()
    with jax.enable_x64(True):
        factors = prepare_dc_opf(case, rate_mva=rate * 0.8, dtype="float64")
        refused = jax.jit(lambda d: dc_opf(factors, d, shedding=False))(jnp.asarray(load))
        assert refused.status == OpfStatus.INFEASIBLE
        qp = dc_programme(factors, jnp.asarray(load), shedding=False)
        assert infeasibility(qp, np.asarray(refused.multipliers)) > 0
        # the same multipliers prove nothing about the load that can be served
        served = dc_programme(factors, jnp.asarray(0.5 * load), shedding=False)
        assert infeasibility(served, np.asarray(refused.multipliers)) < 0
        priced = jax.jit(dc_opf)(factors, jnp.asarray(load))
    assert priced.status == OpfStatus.OPTIMAL
    assert np.asarray(priced.shed_mw).sum() > 0.1
    assert float(priced.overload_mw) < 1e-6


def test_the_bound_by_hand_of_a_programme_of_two_variables() -> None:
    """min x^2 / 2 + 3 y, x + y = 2, 0 <= x, y <= 2: x = 2, cost 2; at lam = 1 the bound is 2 - 1/2 = 1.5."""
    with jax.enable_x64(True):
        two = Qp(
            a=jnp.ones((1, 2)),
            q=jnp.array([1.0, 0.0]),
            c=jnp.array([0.0, 3.0]),
            lo=jnp.zeros(2),
            hi=jnp.full(2, 2.0),
            row_lo=jnp.array([2.0]),
            row_hi=jnp.array([2.0]),
        )
        found = jax.jit(solve_qp)(two)
    assert dual_bound(two, np.array([1.0])) == pytest.approx(1.5)
    assert dual_bound(two, np.asarray(found.row_price)) == pytest.approx(2.0, rel=1e-9)
    # with 1 <= x + y <= 2 a positive price meets the lower side, 1 - 1/2, and a negative one the upper side, -2
    wide = dataclasses.replace(two, row_lo=jnp.array([1.0]))
    assert [dual_bound(wide, np.array([price])) for price in (1.0, -1.0)] == pytest.approx([0.5, -2.0])
    np.testing.assert_allclose(found.x, [2, 0], atol=1e-8)
    assert infeasibility(dataclasses.replace(two, row_lo=jnp.array([5.0]), row_hi=jnp.array([5.0])), np.ones(1)) == 1.0


@pytest.mark.tiers("long", full=["9-auto"])
@pytest.mark.parametrize(("rows", "solver"), [(9, "auto"), (9, "fixed"), (4, "fixed")])
def test_random_programmes_are_solved_to_their_dual_bound(rows: int, solver: str) -> None:
    """Mixed linear and quadratic, one-sided rows, equalities, fixed variables: primal equals dual, nothing violated."""
    with jax.enable_x64(True):
        qps = [_random_qp(seed, rows) for seed in range(40)]
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *qps)
        found = jax.jit(jax.vmap(lambda p: solve_qp(p, shared_rows=False, solver=solver)))(stacked)
    assert (np.asarray(found.status) == OpfStatus.OPTIMAL).all()
    assert np.asarray(found.primal_residual).max() < 1e-8
    for k, qp in enumerate(qps):
        bound = dual_bound(qp, np.asarray(found.row_price)[k])
        assert bound == pytest.approx(np.asarray(found.objective)[k], rel=1e-7, abs=1e-7)


def _random_qp(seed: int, m: int) -> Qp:
    rng, n = np.random.default_rng(seed), 24
    a = rng.uniform(-1, 1, (m, n))
    lo, width = rng.uniform(-2, 1, n), rng.uniform(0, 2, n) * (rng.uniform(size=n) > 0.1)
    y = a @ (lo + width * rng.uniform(size=n))
    below, above = (np.where(rng.uniform(size=m) < 0.3, np.inf, rng.uniform(0, 0.5, m)) for _ in range(2))
    below[:2] = above[:2] = 0.0
    arrays: dict[str, Any] = {
        "a": a,
        "q": rng.uniform(0, 3, n) * (rng.uniform(size=n) > 0.5),
        "c": rng.normal(size=n) * 10,
        "lo": lo,
        "hi": lo + width,
        "row_lo": y - below,
        "row_hi": y + above,
    }
    return Qp(**{name: jnp.asarray(value) for name, value in arrays.items()})


def test_numbering_and_base_power_do_not_change_dispatch_and_prices() -> None:
    case, load, rate = congested_case30()
    order = np.random.default_rng(2).permutation(case.n_bus)
    rows = {item.name: getattr(case.bus, item.name)[order] for item in dataclasses.fields(case.bus)}
    shuffled = dataclasses.replace(case, bus=type(case.bus)(**rows))
    branch = dataclasses.replace(case.branch, x_pu=case.branch.x_pu * 2.5, r_pu=case.branch.r_pu * 2.5)
    rebased = dataclasses.replace(case, branch=branch, base_mva=case.base_mva * 2.5)
    with jax.enable_x64(True):
        base, other, scaled = (
            jax.jit(dc_opf)(prepare_dc_opf(c, rate_mva=rate, dtype="float64"), jnp.asarray(d))
            for c, d in ((case, load), (shuffled, load[order]), (rebased, load))
        )
    np.testing.assert_allclose(other.lmp, np.asarray(base.lmp)[order], rtol=1e-6)
    np.testing.assert_allclose(scaled.lmp, base.lmp, rtol=1e-6)
    for out in (other, scaled):
        np.testing.assert_allclose(out.unit_power_mw, base.unit_power_mw, atol=1e-5)
        assert float(out.objective) == pytest.approx(float(base.objective), rel=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("solver", ["auto", "fixed"])
def test_a_bad_or_impossible_neighbour_does_not_change_a_lane(solver: str) -> None:
    case, load, rate = congested_case30()
    factors = prepare_dc_opf(case, rate_mva=rate)
    solve = jax.jit(jax.vmap(lambda d: dc_opf(factors, d, shedding=False, solver=solver)))
    fine = jnp.tile(jnp.asarray(0.5 * load, jnp.float32), (4, 1))
    mixed = fine.at[1].set(jnp.nan).at[2].multiply(20)
    out, alone = solve(mixed), solve(fine)
    kinds = [OpfStatus.OPTIMAL, OpfStatus.BAD_INPUT, OpfStatus.INFEASIBLE, OpfStatus.OPTIMAL]
    assert out.status.tolist() == kinds
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(out))
    for lane in (0, 3):
        jax.tree.map(lambda a, b, lane=lane: np.testing.assert_array_equal(a[lane], b[lane]), out, alone)


def test_a_branch_left_out_of_the_programme_is_reported_when_it_is_overloaded() -> None:
    case, load, rate = congested_case30()
    with jax.enable_x64(True):
        factors = prepare_dc_opf(case, rate_mva=rate, rows=[], dtype="float64")
        out = jax.jit(dc_opf)(factors, jnp.asarray(load))
    assert out.status == OpfStatus.ROW_MISSING
    assert float(out.overload_mw) > 0.1
