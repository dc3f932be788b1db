"""Economic dispatch against hand numbers, the interior point and the laws of merit order."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.base.errors import CaseError
from powerzoo_jax.cases import Case
from powerzoo_jax.cases.library import load_case
from powerzoo_jax.opf import (
    Offers,
    OpfStatus,
    case_offers,
    cost_of,
    dc_opf,
    economic_dispatch,
    make_cost_segments,
    prepare_dc_opf,
    ramp_window,
)
from tests.tolerances import tolerance

both_precisions = pytest.mark.parametrize("dtype", ["float32", "float64"])


dispatch = jax.jit(economic_dispatch)
optimal_flow = jax.jit(dc_opf)


def limits(case: Case, dtype: str) -> tuple[jax.Array, jax.Array]:
    return jnp.asarray(case.unit.p_min_mw, dtype), jnp.asarray(case.unit.p_max_mw, dtype)


def with_costs(case: Case, **columns: np.ndarray) -> Case:
    return dataclasses.replace(case, unit=dataclasses.replace(case.unit, **columns))


@pytest.mark.parametrize(
    ("load", "units", "price", "cost", "shed", "spill"),
    [
        (500.0, (5, 10, 20, 10, 455), 10.0, 5770.0, 0.0, 0.0),  # spec 07 section 4: the cheapest unit alone follows
        (1377.0, (40, 170, 520, 47, 600), 40.0, 26590.0, 0.0, 0.0),  # the network-blind merit order
        (1530.0, (40, 170, 520, 200, 600), 1e4, 32710.0, 0.0, 0.0),  # the last MW: more load can only be shed
        (1600.0, (40, 170, 520, 200, 600), 1e4, 32710.0, 70.0, 0.0),
        (65.0, (5, 10, 20, 10, 20), 10.0, 1420.0, 0.0, 0.0),  # at minimum output more load costs the cheapest offer
        (40.0, (5, 10, 20, 10, 20), -500.0, 1420.0, 0.0, 25.0),
    ],
)
def test_case5_is_dispatched_in_merit_order(
    load: float, units: tuple[float, ...], price: float, cost: float, shed: float, spill: float
) -> None:
    with jax.enable_x64(True):
        case = load_case("pz_case5")
        out = dispatch(case_offers(case, "float64"), jnp.asarray(load), *limits(case, "float64"))
    np.testing.assert_allclose(out.unit_power_mw, units, atol=1e-9)
    found = [float(x) for x in (out.price, out.generation_cost, out.shed_mw, out.spill_mw)]
    np.testing.assert_allclose(found, [price, cost, shed, spill], rtol=1e-12, atol=1e-9)
    assert float(out.objective) == pytest.approx(cost + 1e4 * shed + 500 * spill)


@pytest.mark.tiers("long", full=["case9-float64"])
@both_precisions
@pytest.mark.parametrize("name", ["case9", "case118", "case_rts_gmlc"])
def test_dispatch_equals_the_optimal_power_flow_without_limits(name: str, dtype: str) -> None:
    """Quadratic and piecewise linear costs, two methods that share nothing but the offers."""
    case = load_case(name)
    with jax.enable_x64(dtype == "float64"):
        offers = case_offers(case, dtype)
        factors = prepare_dc_opf(case, rate_mva=np.zeros(case.n_branch), dtype=dtype)
        on = jnp.asarray(case.unit.in_service)
        for factor in (0.8, 1.05):
            load = jnp.asarray(factor * case.p_load_mw, dtype)
            total = jnp.sum(load) + float(case.bus.gs_mw.sum())
            out = dispatch(offers, total, *limits(case, dtype), commitment=on)
            other = optimal_flow(factors, load)
            relative = tolerance("opf_cost_relative", dtype)
            assert abs(float(out.objective / other.objective) - 1) <= relative
            assert abs(float(jnp.sum(out.unit_power_mw) / total) - 1) <= tolerance("balance_relative", dtype) * 10
            assert float(out.objective) <= float(other.objective) * (1 + tolerance("balance_relative", dtype))


def test_two_quadratic_units_share_by_equal_marginal_cost() -> None:
    """10 + 0.1 p = 12 + 0.05 p', p + p' = 100: p = 46.6667, price 14.6667."""
    with jax.enable_x64(True):
        offers = Offers(
            base_mw=jnp.zeros(2),
            base_cost=jnp.zeros(2),
            width_mw=jnp.full((2, 1), 200.0),
            price=jnp.array([[10.0], [12.0]]),
            slope=jnp.array([[0.1], [0.05]]),
        )
        out = dispatch(offers, jnp.asarray(100.0), jnp.zeros(2), jnp.full(2, 200.0))
        np.testing.assert_allclose(out.unit_power_mw, [140 / 3, 160 / 3], rtol=1e-12)
        assert float(out.price) == pytest.approx(44 / 3, rel=1e-12)
        # with losses: 1.1 (10 + 0.1 p) = 12 + 0.05 p', p / 1.1 + p' = 100
        lossy = dispatch(
            offers, jnp.asarray(100.0), jnp.zeros(2), jnp.full(2, 200.0), penalty_factor=jnp.array([1.1, 1.0])
        )
        p = np.linalg.solve([[0.11, -0.05], [1 / 1.1, 1.0]], [1.0, 100.0])
        np.testing.assert_allclose(lossy.unit_power_mw, p, rtol=1e-12)
        assert float(lossy.price) == pytest.approx(12 + 0.05 * p[1], rel=1e-12)


def test_equal_offers_share_in_proportion_and_off_units_give_nothing() -> None:
    with jax.enable_x64(True):
        offers = Offers(
            base_mw=jnp.zeros(3),
            base_cost=jnp.full(3, 7.0),
            width_mw=jnp.array([[30.0], [10.0], [50.0]]),
            price=jnp.full((3, 1), 20.0),
            slope=jnp.zeros((3, 1)),
        )
        on = jnp.array([True, True, False])
        out = dispatch(offers, jnp.asarray(20.0), jnp.zeros(3), jnp.array([30.0, 10, 50]), commitment=on)
    np.testing.assert_allclose(out.unit_power_mw, [15, 5, 0], rtol=1e-12)
    assert float(out.generation_cost) == pytest.approx(2 * 7 + 20 * 20)


def test_a_ramp_window_cuts_the_blocks_from_both_sides() -> None:
    case = load_case("pz_case5")
    with jax.enable_x64(True):
        low, high = limits(case, "float64")
        previous = jnp.array([40.0, 170, 300, 10, 480])
        window = ramp_window(previous, 0.1 * high, 0.1 * high, low, high)
        np.testing.assert_allclose(window[0], [36, 153, 248, 10, 420])
        np.testing.assert_allclose(window[1], [40, 170, 352, 30, 540])
        out = dispatch(make_cost_segments(case, 5, "float64"), jnp.asarray(700.0), *window)
        # all lower limits ask for 867 MW: the rest is spilled at a price below every offer
        assert float(out.spill_mw) == pytest.approx(167)
        out = dispatch(make_cost_segments(case, 5, "float64"), jnp.asarray(1000.0), *window)
        np.testing.assert_allclose(out.unit_power_mw, [40, 162, 248, 10, 540], atol=1e-9)


@pytest.mark.full
def test_derivatives_are_those_of_the_price_and_of_finite_differences() -> None:
    case = load_case("case118")
    with jax.enable_x64(True):
        offers, (low, high) = case_offers(case, "float64"), limits(case, "float64")

        def cleared(load: jax.Array, price: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
            out = economic_dispatch(dataclasses.replace(offers, price=price), load, low, high)
            return out.objective, out.price, out.unit_power_mw

        load = jnp.asarray(4100.0)
        solve = jax.jit(cleared)
        assert float(jax.jit(jax.grad(lambda d: solve(d, offers.price)[0]))(load)) == pytest.approx(
            float(solve(load, offers.price)[1]), rel=1e-12
        )
        step = 1e-3
        for k in (1, 2):
            exact = jax.jit(jax.jacfwd(lambda d, k=k: solve(d, offers.price)[k]))(load)
            ahead, behind = solve(load + step, offers.price)[k], solve(load - step, offers.price)[k]
            np.testing.assert_allclose(exact, (ahead - behind) / (2 * step), rtol=1e-6, atol=1e-9)
        change = jnp.asarray(np.random.default_rng(0).normal(size=offers.price.shape))
        exact = jax.jvp(lambda c: solve(load, c)[2], (offers.price,), (change,))[1]
        ahead, behind = (solve(load, offers.price + sign * step * change)[2] for sign in (1, -1))
        np.testing.assert_allclose(exact, (ahead - behind) / (2 * step), rtol=1e-6, atol=1e-6)
        reverse = jax.vjp(lambda c: solve(load, c)[2], offers.price)[1](jnp.ones(case.n_unit))[0]
        assert float(jnp.vdot(reverse, change)) == pytest.approx(float(exact.sum()), abs=1e-9)


@pytest.mark.full
def test_a_lane_that_is_not_finite_is_flagged_and_leaves_the_others_alone() -> None:
    case = load_case("pz_case5")
    offers, (low, high) = case_offers(case), limits(case, "float32")
    load = jnp.array([500.0, jnp.nan, 800.0], jnp.float32)
    solve = jax.vmap(lambda d: economic_dispatch(offers, d, low, high))
    out, clean = solve(load), solve(jnp.nan_to_num(load))
    assert out.status.tolist() == [OpfStatus.OPTIMAL, OpfStatus.BAD_INPUT, OpfStatus.OPTIMAL]
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(out))
    np.testing.assert_array_equal(out.unit_power_mw[::2], clean.unit_power_mw[::2])


def test_segments_ask_the_marginal_cost_of_their_midpoints() -> None:
    case = load_case("case9")
    with jax.enable_x64(True):
        offers = make_cost_segments(case, 4, "float64")
    quadratic, linear = case.unit.cost[:, 0], case.unit.cost[:, 1]
    width = (case.unit.p_max_mw - case.unit.p_min_mw) / 4
    for k in range(4):
        middle = case.unit.p_min_mw + (k + 0.5) * width
        np.testing.assert_allclose(offers.price[:, k], linear + 2 * quadratic * middle, rtol=1e-12)
    at_minimum = np.polynomial.polynomial.polyval(case.unit.p_min_mw, case.unit.cost[:, ::-1].T, tensor=False)
    np.testing.assert_allclose(offers.base_cost, at_minimum, rtol=1e-12)


def test_a_piecewise_linear_cost_is_read_off_its_points() -> None:
    case = load_case("case_rts_gmlc")
    unit = case.unit
    with jax.enable_x64(True):
        offers = case_offers(case, "float64")
        for share in (0.0, 0.37, 1.0):
            p = unit.p_min_mw + share * (unit.p_max_mw - unit.p_min_mw)
            found = np.asarray(cost_of(offers, jnp.asarray(p)))
            for g in range(case.n_unit):
                points = unit.cost[g, : 2 * unit.cost_terms[g]].reshape(-1, 2)
                inside = points[0, 0] <= p[g] <= points[-1, 0]
                if inside:
                    # the points of one unit are rounded to a marginal cost that falls by 1e-4: it is pooled
                    assert found[g] == pytest.approx(np.interp(p[g], points[:, 0], points[:, 1]), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(
    ("coefficients", "words"),
    [((1e-4, 0.1, 5.0, 10.0), "third or higher"), ((0.0, -0.1, 5.0, 10.0), "falling marginal cost")],
)
def test_a_cost_that_is_not_convex_quadratic_is_refused_by_unit(coefficients: tuple[float, ...], words: str) -> None:
    case = load_case("case9")
    cost, terms = np.zeros((3, 4)), case.unit.cost_terms.copy()
    cost[:, :3], cost[1], terms[1] = case.unit.cost, coefficients, 4
    with pytest.raises(CaseError, match=rf"unit 2 \(bus 2\) with .*{words}"):
        case_offers(with_costs(case, cost=cost, cost_terms=terms))


def test_a_concave_piecewise_cost_and_an_infinite_limit_are_refused_by_unit() -> None:
    case = load_case("case9")
    cost = np.zeros((3, 6))
    cost[:, :3] = case.unit.cost
    cost[2] = (0, 0, 100, 3000, 200, 4000)
    model, terms = np.array([2, 2, 1]), np.array([3, 3, 3])
    with pytest.raises(CaseError, match=r"unit 3 \(bus 3\) with a falling marginal cost"):
        case_offers(with_costs(case, cost=cost, cost_model=model, cost_terms=terms))
    with pytest.raises(CaseError, match=r"unit 1 \(bus 1\) without finite limits"):
        case_offers(with_costs(case, p_max_mw=np.array([np.inf, 300, 270])))
