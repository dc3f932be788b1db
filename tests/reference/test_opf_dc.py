"""DC-OPF against published optima, hand-checked dispatches and HiGHS."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.cases import Case
from powerzoo_jax.cases.library import load_case
from powerzoo_jax.opf import (
    DcOpfResult,
    OpfStatus,
    binding_rows,
    dc_opf,
    dc_programme,
    dual_bound,
    infeasibility,
    prepare_dc_opf,
)
from powerzoo_jax.powerflow import DcConvention
from tests.reference.opf_reference import Cleared, clear_with_highs
from tests.tolerances import tolerance

both_precisions = pytest.mark.parametrize("dtype", ["float32", "float64"])

# [USD/h], each file's own limits, taps and shifts; recomputed with independent solvers (MATPOWER 8.1 data)
PUBLISHED = {
    "case5": 17479.8968,
    "case9": 5216.0266,
    "case14": 7642.5918,
    "case24_ieee_rts": 61001.2388,
    "case118": 125947.8814,
    "case300": 706292.3242,
}
LARGE = {"case1354pegase": 73059.6700, "case2383wp": 1796340.05, "case2224gb": 1851891.45}

# case with PGLib ratings, load, ratings times, cost
RATED = (
    ("pz_case14", 1.0, 1.0, 7642.5918),
    ("pz_case118", 1.0, 1.0, 125952.1265),
    ("pz_case118", 1.0, 0.85, 126054.8558),
    ("pz_case118", 1.2, 1.0, 159975.4196),
    ("pz_case118", 1.4, 1.0, 194401.0530),
    ("pz_case118", 1.53, 1.0, 216973.7680),
    ("pz_case118", 1.8, 1.0, 264350.6614),
    ("pz_case300", 1.0, 1.0, 707390.1282),
)

# load at buses 2, 3, 4 [MW], VOLL, cost, units, prices, total shed
CASE5_ROWS = (
    ((300, 300, 400), 1e4, 17480.4696, (40, 170, 308.5235, 10, 471.4765), (16.9774, 26.3845, 30, 39.9427, 10), 0.0),
    ((459, 550.8, 367.2), 1e4, 27894.0849, (40, 170, 520, 90.4695, 556.5305), (16.9907, 26.4158, 30.0382, 40, 10), 0.0),
    ((181.0485, 181.0485, 241.398), 1e4, 6804.95, (5, 10, 20, 10, 558.495), (10,) * 5, 0.0),
    (
        (480, 480, 640),
        1e3,
        159605.5808,
        (40, 170, 520, 200, 542.5297),
        (240.6932, 551.7212, 671.2622, 1e3, 10),
        127.4703,
    ),
    (
        *((1600 / 3, 640, 1280 / 3), 1e4, 826094.7826),
        *((40, 170, 520, 200, 590.6522), (1747.3913, 1e4, 1e4, 1e4, 10), 64.3908 + 14.9571),
    ),
)


@cache
def solver(**options: Any) -> Any:
    return jax.jit(lambda factors, load, voll, rate: dc_opf(factors, load, voll=voll, rate_mva=rate, **options))


@cache
def batched(**options: Any) -> Any:
    one = lambda factors, load, rate: dc_opf(factors, load, rate_mva=rate, **options)  # noqa: E731
    return jax.jit(jax.vmap(one, in_axes=(None, 0, 0)))


def solve_one(case: Case, load: np.ndarray, dtype: str, voll: float = 1e4, **prepared: Any) -> DcOpfResult:
    with jax.enable_x64(dtype == "float64"):
        factors = prepare_dc_opf(case, dtype=dtype, **prepared)
        out = solver()(factors, jnp.asarray(load, dtype), jnp.asarray(voll, dtype), factors.rate_mva)
        return jax.tree.map(np.asarray, out)


@both_precisions
@pytest.mark.parametrize("name", PUBLISHED)
def test_the_cost_is_the_published_one(name: str, dtype: str) -> None:
    case = load_case(name)
    result = solve_one(case, case.p_load_mw, dtype)
    assert result.status == OpfStatus.OPTIMAL
    assert abs(result.objective / PUBLISHED[name] - 1) <= tolerance("opf_cost_relative", dtype)
    assert result.overload_mw <= tolerance("opf_violation_pu", dtype) * case.base_mva
    assert abs(result.injection_mw.sum() - case.bus.gs_mw.sum()) <= case.n_bus * tolerance("opf_violation_pu", dtype)


@cache
def rated(name: str, dtype: str) -> DcOpfResult:
    """All rows of RATED of one case in one batch."""
    case = load_case(name)
    load = np.stack([case.p_load_mw * row[1] for row in RATED if row[0] == name])
    rate = np.stack([case.branch.rate_a_mva * row[2] for row in RATED if row[0] == name])
    rows = np.unique(np.concatenate([binding_rows(case, d[None], rate_mva=r) for d, r in zip(load, rate, strict=True)]))
    with jax.enable_x64(dtype == "float64"):
        factors = prepare_dc_opf(case, rows=rows, dtype=dtype)
        out = batched()(factors, jnp.asarray(load, dtype), jnp.asarray(rate, dtype))
        return jax.tree.map(np.asarray, out)


@both_precisions
@pytest.mark.parametrize("name", ["pz_case14", "pz_case118", "pz_case300"])
def test_the_cost_with_pglib_ratings_is_the_published_one(name: str, dtype: str) -> None:
    result = rated(name, dtype)
    expected = np.array([row[3] for row in RATED if row[0] == name])
    assert (result.status == OpfStatus.OPTIMAL).all()
    assert np.abs(result.objective / expected - 1).max() <= tolerance("opf_cost_relative", dtype)
    assert result.overload_mw.max() <= 100 * tolerance("opf_violation_pu", dtype)


def test_case300_with_tighter_ratings_is_infeasible_without_shedding() -> None:
    case = load_case("pz_case300")
    with jax.enable_x64(True):
        factors = prepare_dc_opf(case, dtype="float64", rate_mva=0.85 * case.branch.rate_a_mva)
        load = jnp.asarray(case.p_load_mw)
        result = jax.jit(lambda factors, load: dc_opf(factors, load, shedding=False))(factors, load)
        assert result.status == OpfStatus.INFEASIBLE
        assert infeasibility(dc_programme(factors, load, shedding=False), np.asarray(result.multipliers)) > 0


@pytest.mark.parametrize("name", LARGE)
def test_the_cost_of_a_large_grid_is_the_published_one_with_the_rows_that_screening_finds(name: str) -> None:
    case = load_case(name)
    rows = binding_rows(case, case.p_load_mw[None])
    result = solve_one(case, case.p_load_mw, "float64", rows=rows)
    assert rows.size < 0.05 * case.n_branch
    assert result.status == OpfStatus.OPTIMAL
    assert abs(result.objective / LARGE[name] - 1) <= tolerance("opf_cost_relative", "float64")


def test_the_other_convention_reproduces_pglibs_five_bus_case() -> None:
    case = load_case("case5")
    result = solve_one(case, case.p_load_mw, "float64", convention=DcConvention.PGLIB)
    assert float(f"{float(result.objective):.4e}") == 1.7480e4


@both_precisions
@pytest.mark.parametrize(("load", "voll", "cost", "units", "prices", "shed"), CASE5_ROWS)
def test_dispatch_and_prices_of_case5(
    load: tuple[float, ...], voll: float, cost: float, units: tuple, prices: tuple, shed: float, dtype: str
) -> None:
    result = solve_one(load_case("pz_case5"), np.r_[0.0, load, 0.0], dtype, voll)
    relative, mw = tolerance("opf_cost_relative", dtype), 100 * tolerance("opf_dispatch_pu", dtype)
    assert result.status == OpfStatus.OPTIMAL
    assert abs(result.objective / cost - 1) <= relative
    np.testing.assert_allclose(result.unit_power_mw, units, atol=mw)
    printed = 5e-5
    np.testing.assert_allclose(
        result.lmp, prices, rtol=0, atol=printed + tolerance("opf_price_relative", dtype) * max(prices)
    )
    assert abs(result.shed_mw.sum() - shed) <= mw


def test_flows_of_the_first_row_of_case5() -> None:
    result = solve_one(load_case("pz_case5"), np.array([0.0, 300, 300, 400, 0]), "float64")
    expected = [255.7347, 185.7418, -231.4765, -44.2653, -35.7418, -240]
    np.testing.assert_allclose(result.line_flow_mw, expected, atol=5e-5)
    np.testing.assert_allclose(result.lmp_energy + result.lmp_congestion, result.lmp, rtol=1e-15)


@both_precisions
def test_a_thousand_markets_of_case5_equal_highs(dtype: str) -> None:
    """Loads from half to beyond the capacity and ratings from 0.6 to 1.2 of nominal, each lane its own."""
    case, count = load_case("pz_case5"), 1000
    rng = np.random.default_rng(8)
    load = case.p_load_mw * rng.uniform(0.5, 1.7, (count, 1)) * rng.uniform(0.8, 1.2, (count, 5))
    rate = case.branch.rate_a_mva * rng.uniform(0.6, 1.2, (count, 1))
    with jax.enable_x64(dtype == "float64"):
        factors = prepare_dc_opf(case, dtype=dtype)
        result = batched()(factors, jnp.asarray(load, dtype), jnp.asarray(rate, dtype))
        result = jax.tree.map(np.asarray, result)
    solved = result.status == OpfStatus.OPTIMAL
    # next to the load that can just be served float32 may run out of digits: it must say so
    assert solved.all() if dtype == "float64" else solved.mean() >= 0.998
    assert (result.line_price.max(1) > 1e-3).mean() > 0.5
    assert (result.overload_mw <= tolerance("opf_violation_pu", dtype) * case.base_mva)[solved].all()
    unique = 0
    for k in np.flatnonzero(solved):
        expected = clear_with_highs(case, load[k], case.unit.cost[:, 0], rate=rate[k])
        assert abs(result.objective[k] / expected.cost - 1) <= tolerance("opf_cost_relative", dtype)
        if dtype == "float64" and has_unique_prices(case, load[k], rate[k], expected):
            unique += 1
            np.testing.assert_allclose(result.lmp[k], expected.lmp, rtol=1e-4, atol=1e-4)
    assert dtype == "float32" or unique > 0.9 * count


def has_unique_prices(case: Case, load: np.ndarray, rate: np.ndarray, found: Cleared) -> bool:
    """As many variables strictly between their bounds as there are equations that hold: a vertex of its own."""
    low, high = np.r_[case.unit.p_min_mw, 0 * load], np.r_[case.unit.p_max_mw, load]
    x = np.r_[found.p, found.shed]
    between = np.sum((x > low + 1e-6) & (x < high - 1e-6))
    return bool(between == 1 + np.sum((rate > 0) & (np.abs(found.flow) > rate - 1e-6)))


@pytest.mark.parametrize(("name", "scale"), [("pz_case14", 0.5), ("case30", 0.6), ("pz_case118", 0.7)])
def test_a_thousand_dispatches_with_binding_lines_are_optimal_by_weak_duality(name: str, scale: float) -> None:
    """Quadratic costs: the bound is recomputed in NumPy from the prices alone, and no point can cost less than it."""
    case, count = load_case(name), 1000
    rng = np.random.default_rng(12)
    load = case.p_load_mw * rng.uniform(0.7, 1.3, (count, 1)) * rng.uniform(0.8, 1.2, (count, case.n_bus))
    rows = binding_rows(case, load[:300], rate_mva=case.branch.rate_a_mva * scale * 0.95)
    result = {}
    for dtype in ("float64", "float32"):
        with jax.enable_x64(dtype == "float64"):
            factors = prepare_dc_opf(case, rows=rows, rate_mva=case.branch.rate_a_mva * scale, dtype=dtype)
            rate = jnp.broadcast_to(factors.rate_mva, (count, case.n_branch))
            out = jax.tree.map(np.asarray, batched()(factors, jnp.asarray(load, dtype), rate))
            result[dtype] = out
            assert (out.status == OpfStatus.OPTIMAL).all()
            assert (out.overload_mw <= tolerance("opf_violation_pu", dtype) * case.base_mva).all()
            assert (out.primal_residual <= tolerance("opf_violation_pu", dtype)).all()
            if dtype == "float64":
                fixed_cost = float(factors.offers.base_cost.sum())
                programme_of = jax.jit(dc_programme)
                programmes = [programme_of(factors, jnp.asarray(load[k])) for k in range(0, count, 20)]
    exact = result["float64"]
    assert (exact.line_price.max(1) > 1e-3).mean() > 0.3
    for k, programme in zip(range(0, count, 20), programmes, strict=True):
        bound = dual_bound(programme, exact.multipliers[k] * case.base_mva) + fixed_cost
        assert abs(bound / exact.objective[k] - 1) <= tolerance("opf_cost_relative", "float64")
    relative = np.abs(result["float32"].objective / exact.objective - 1)
    assert relative.max() <= tolerance("opf_cost_relative", "float32")
