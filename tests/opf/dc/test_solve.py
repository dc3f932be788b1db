"""DC-OPF against published optima, hand-checked dispatches and HiGHS."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.base.npz import read_npz
from powerzoo_jax.cases import Case
from powerzoo_jax.cases.library import load_case
from powerzoo_jax.opf import (
    DcOpfResult,
    OpfStatus,
    binding_rows,
    dc_opf,
    dc_programme,
    infeasibility,
    prepare_dc_opf,
)
from powerzoo_jax.powerflow import DcConvention
from tests.recorders import record_opf_dc as recorded
from tests.recorders.record_pglib import PUBLISHED as PGLIB
from tests.recorders.record_pglib import flow_limits, kept_case
from tests.tolerances import tolerance

pytestmark = pytest.mark.reference

HIGHS = Path(__file__).resolve().parents[2] / "recorded" / "opf_dc" / "expected.npz"

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


# as `binding_rows` compiles it, so that the program of its last round is found again
screened = jax.jit(jax.vmap(dc_opf, in_axes=(None, 0)))


def solve_one(
    case: Case, load: np.ndarray, dtype: str, voll: float = 1e4, form: str = "auto", **prepared: Any
) -> DcOpfResult:
    with jax.enable_x64(dtype == "float64"):
        factors = prepare_dc_opf(case, dtype=dtype, **prepared)
        out = solver(solver=form)(factors, jnp.asarray(load, dtype), jnp.asarray(voll, dtype), factors.rate_mva)
        return jax.tree.map(np.asarray, out)


def check_published(name: str, form: str) -> None:
    case = load_case(name)
    result = solve_one(case, case.p_load_mw, "float64", form=form)
    assert result.status == OpfStatus.OPTIMAL
    assert abs(result.objective / PUBLISHED[name] - 1) <= tolerance("opf_cost_relative", "float64")
    assert result.overload_mw <= tolerance("opf_violation_pu", "float64") * case.base_mva
    assert abs(result.injection_mw.sum() - case.bus.gs_mw.sum()) <= case.n_bus * 1e-6


@pytest.mark.tiers("long", quick=["case5"], full=["case14", "case118"])
@pytest.mark.parametrize("name", PUBLISHED)
def test_the_cost_is_the_published_one(name: str) -> None:
    check_published(name, "auto")


@pytest.mark.tiers("long", full=["case5", "case14"])
@pytest.mark.parametrize("name", PUBLISHED)
def test_the_cost_in_fixed_steps_is_the_published_one(name: str) -> None:
    check_published(name, "fixed")


def solve_rated(
    case: Case, load: np.ndarray, rate: np.ndarray, dtype: str, form: str = "auto", **prepared: Any
) -> DcOpfResult:
    """Loads (B, N) under ratings (B, L)."""
    with jax.enable_x64(dtype == "float64"):
        factors = prepare_dc_opf(case, dtype=dtype, **prepared)
        out = recorded.program(form)(factors, jnp.asarray(load, dtype), jnp.asarray(rate, dtype))
        return jax.tree.map(np.asarray, out)


@cache
def rated(name: str, dtype: str, form: str = "auto") -> DcOpfResult:
    """All rows of RATED of one case in one batch; in float32 with the branches that are near their limit."""
    case = load_case(name)
    load = np.stack([case.p_load_mw * row[1] for row in RATED if row[0] == name])
    rate = np.stack([case.branch.rate_a_mva * row[2] for row in RATED if row[0] == name])
    near = None
    if dtype == "float32":
        near = np.flatnonzero((np.abs(rated(name, "float64").line_flow_mw) > 0.8 * rate).any(0))
    return solve_rated(case, load, rate, dtype, form, rows=near)


RATED_CASES = (
    ("pz_case14", "float64"),
    ("pz_case118", "float64"),
    ("pz_case300", "float64"),
    ("pz_case118", "float32"),
)


@pytest.mark.long
@pytest.mark.parametrize(("name", "dtype"), RATED_CASES)
def test_the_cost_with_pglib_ratings_is_the_published_one(name: str, dtype: str) -> None:
    check_rated(name, dtype, "auto")


@pytest.mark.long
@pytest.mark.parametrize(("name", "dtype"), RATED_CASES)
def test_the_cost_with_pglib_ratings_in_fixed_steps_is_the_published_one(name: str, dtype: str) -> None:
    check_rated(name, dtype, "fixed")


def check_rated(name: str, dtype: str, form: str) -> None:
    result = rated(name, dtype, form)
    expected = np.array([row[3] for row in RATED if row[0] == name])
    assert (result.status == OpfStatus.OPTIMAL).all()
    assert np.abs(result.objective / expected - 1).max() <= tolerance("opf_cost_relative", dtype)
    assert result.overload_mw.max() <= 100 * tolerance("opf_violation_pu", dtype)


@pytest.mark.long
def test_case300_with_tighter_ratings_is_infeasible_without_shedding() -> None:
    case = load_case("pz_case300")
    with jax.enable_x64(True):
        factors = prepare_dc_opf(case, dtype="float64", rate_mva=0.85 * case.branch.rate_a_mva)
        load = jnp.asarray(case.p_load_mw)
        result = jax.jit(lambda factors, load: dc_opf(factors, load, shedding=False))(factors, load)
        assert result.status == OpfStatus.INFEASIBLE
        assert infeasibility(dc_programme(factors, load, shedding=False), np.asarray(result.multipliers)) > 0


@pytest.mark.long
@pytest.mark.parametrize("name", LARGE)
def test_the_cost_of_a_large_grid_is_the_published_one_with_the_rows_that_screening_finds(name: str) -> None:
    case = load_case(name)
    rows = binding_rows(case, case.p_load_mw[None])
    with jax.enable_x64(True):
        result = screened(prepare_dc_opf(case, rows=rows, dtype="float64"), case.p_load_mw[None])
    assert rows.size < 0.05 * case.n_branch
    assert (result.status == OpfStatus.OPTIMAL).all()
    assert abs(float(result.objective[0]) / LARGE[name] - 1) <= tolerance("opf_cost_relative", "float64")


def test_the_other_convention_reproduces_pglibs_five_bus_case() -> None:
    case = load_case("case5")
    result = solve_one(case, case.p_load_mw, "float64", convention=DcConvention.PGLIB)
    assert float(f"{float(result.objective):.4e}") == 1.7480e4


@pytest.mark.tiers("long", full=["14_ieee-1"])
@pytest.mark.parametrize(("name", "lanes"), [("14_ieee", 1), ("118_ieee", 6), ("300_ieee", 1)])
def test_cases_in_pglibs_form_cost_what_pglib_publishes(name: str, lanes: int) -> None:
    check_pglib(name, lanes, "auto")


@pytest.mark.long
@pytest.mark.parametrize(("name", "lanes"), [("14_ieee", 1), ("118_ieee", 6), ("300_ieee", 1)])
def test_cases_in_pglibs_form_cost_in_fixed_steps_what_pglib_publishes(name: str, lanes: int) -> None:
    check_pglib(name, lanes, "fixed")


def check_pglib(name: str, lanes: int, form: str) -> None:
    """As many lanes as its twin above has: the program is the same."""
    case = kept_case(name)
    load, rate = (np.tile(x, (lanes, 1)) for x in (case.p_load_mw, flow_limits(case)))
    result = solve_rated(case, load, rate, "float64", form, rate_mva=rate[0], convention=DcConvention.PGLIB)
    assert (result.status == OpfStatus.OPTIMAL).all()
    assert result.shed_mw.max() < 1e-6
    assert {float(f"{cost:.4e}") for cost in result.objective} == {PGLIB[name].dc}


@pytest.mark.long
def test_pglibs_small_angles_are_infeasible_in_dc_with_a_proof() -> None:
    case = kept_case("118_ieee__sad")
    with jax.enable_x64(True):
        rate = flow_limits(case)
        factors = prepare_dc_opf(case, convention=DcConvention.PGLIB, rate_mva=rate, dtype="float64")
        load = jnp.asarray(case.p_load_mw)
        result = jax.jit(lambda factors, load: dc_opf(factors, load, shedding=False))(factors, load)
        assert PGLIB["118_ieee__sad"].dc is None
        assert result.status == OpfStatus.INFEASIBLE
        assert infeasibility(dc_programme(factors, load, shedding=False), np.asarray(result.multipliers)) > 0


@pytest.mark.tiers(
    full=[
        "load2-10000.0-6804.95-units2-prices2-0.0-float32-auto",
        "load2-10000.0-6804.95-units2-prices2-0.0-float32-fixed",
        "load3-1000.0-159605.5808-units3-prices3-127.4703-float32-fixed",
    ],
    long=[
        "load0-10000.0-17480.4696-units0-prices0-0.0-float32-auto",
        "load0-10000.0-17480.4696-units0-prices0-0.0-float32-fixed",
        "load1-10000.0-27894.0849-units1-prices1-0.0-float32-auto",
        "load1-10000.0-27894.0849-units1-prices1-0.0-float32-fixed",
    ],
)
@pytest.mark.parametrize(("dtype", "form"), [("float32", "auto"), ("float64", "auto"), ("float32", "fixed")])
@pytest.mark.parametrize(("load", "voll", "cost", "units", "prices", "shed"), CASE5_ROWS)
def test_dispatch_and_prices_of_case5(
    load: tuple[float, ...], voll: float, cost: float, units: tuple, prices: tuple, shed: float, dtype: str, form: str
) -> None:
    result = solve_one(load_case("pz_case5"), np.r_[0.0, load, 0.0], dtype, voll, form)
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


@pytest.mark.tiers("long", full=["pz_case5-float32-fixed"])
@pytest.mark.parametrize(("dtype", "solver"), [("float32", "auto"), ("float64", "auto"), ("float32", "fixed")])
@pytest.mark.parametrize("name", recorded.DRAWS)
def test_a_thousand_states_with_binding_lines_cost_what_highs_says(name: str, dtype: str, solver: str) -> None:
    """Random loads, for pz_case5 beyond the capacity too and with ratings of each lane: recorded bounds, prices."""
    known = {key: value for key, value in read_npz(HIGHS).items() if key.startswith(f"{name}.")}
    rows, bound, lmp, unique = (known[f"{name}.{key}"] for key in ("rows", "bound", "lmp", "unique"))
    out = recorded.solve_states(name, rows, dtype, solver)
    solved = out.status == OpfStatus.OPTIMAL
    # next to the load that can just be served float32 may run out of digits: it must say so
    assert solved.all() if dtype == "float64" else solved.mean() >= 0.998
    assert (out.line_price.max(1) > 1e-3).mean() > 0.3
    violation = np.maximum(out.overload_mw / recorded.dc_states(name).case.base_mva, out.primal_residual)
    assert violation[solved].max() <= tolerance("opf_violation_pu", dtype)
    assert np.abs(out.objective / bound - 1)[solved].max() <= tolerance("opf_cost_relative", dtype)
    if dtype == "float64":
        first = unique[: len(lmp)]
        assert first.mean() > 0.8
        off = np.abs(out.lmp[: len(lmp)] - lmp).max(1) / np.abs(lmp).max(1)
        assert off[first].max() <= 1e-4
        for k in (3, 500, 997):  # what is recorded is what HiGHS says now
            again = recorded.ask_highs(name, k, out.unit_power_mw[k], out.shed_mw[k], out.spill_mw[k])[0]
            assert abs(again / bound[k] - 1) <= 1e-8


@pytest.mark.full
def test_load_beyond_the_capacity_is_shed_at_voll_where_prices_are_voll() -> None:
    """States of pz_case5 with more load than capacity: a bus that is served in part pays VOLL, none pays more."""
    rows = read_npz(HIGHS)["pz_case5.rows"]
    case, load, _ = recorded.dc_states("pz_case5")
    out = recorded.solve_states("pz_case5", rows, "float64")
    beyond = load.sum(1) > case.unit.p_max_mw.sum() + 1
    assert beyond.sum() > 50
    assert (out.shed_mw.sum(1)[beyond] >= (load.sum(1) - case.unit.p_max_mw.sum())[beyond] - 1e-6).all()
    partly = (out.shed_mw > 1e-3) & (out.shed_mw < load - 1e-3)
    assert partly.any(1)[beyond].all()
    np.testing.assert_allclose(out.lmp[partly], recorded.VOLL, rtol=1e-6)
