"""AC-OPF against published optima, PYPOWER's recorded ones, and the optimality conditions recomputed in NumPy."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.base.npz import read_npz
from powerzoo_jax.cases import Case, assert_valid
from powerzoo_jax.cases.library import load_case
from powerzoo_jax.opf import AcOpfResult, OpfStatus, ac_opf, prepare_ac_opf
from tests.package.products import rounded
from tests.recorders.record_opf_ac import DRAWS, ac_states
from tests.recorders.record_pglib import PUBLISHED as PGLIB
from tests.recorders.record_pglib import kept_case
from tests.references.opf_ac import audit
from tests.tolerances import tolerance

pytestmark = [pytest.mark.reference, pytest.mark.full]

RECORDED = Path(__file__).resolve().parents[2] / "recorded" / "opf_ac" / "expected.npz"

# case, load, ratings (0 = none, as in MATPOWER's file), cost [USD/h] recomputed with independent solvers
PUBLISHED = (
    ("case5", 1.0, 1.0, 17551.8908),
    ("case9", 1.0, 1.0, 5296.6862),
    ("case24_ieee_rts", 1.0, 1.0, 63352.2011),
    ("pz_case14", 1.0, 0.0, 8081.5247),
    ("pz_case14", 1.0, 1.0, 8081.5247),
    ("pz_case118", 1.0, 0.0, 129660.6940),
    ("pz_case118", 1.0, 1.0, 129660.6940),
    ("pz_case118", 1.2, 1.0, 163717.3023),
    ("pz_case118", 1.4, 1.0, 198505.4213),
    ("pz_case118", 1.53, 1.0, 221528.8775),
    ("pz_case118", 1.8, 1.0, 270659.8552),
    ("pz_case300", 1.0, 0.0, 719725.0986),
    ("pz_case300", 1.0, 1.0, 722375.2324),
    ("case1354pegase", 1.0, 1.0, 74069.3546),
    ("case2383wp", 1.0, 1.0, 1868170.44),
)
NAMES = tuple(dict.fromkeys([row[0] for row in PUBLISHED] + list(DRAWS)))


class Solved(NamedTuple):
    """All states of a case in one batch: published ones, then recorded ones."""

    case: Case
    p_load: np.ndarray
    q_load: np.ndarray
    rate: np.ndarray
    cost: np.ndarray
    result: AcOpfResult

    def lane(self, k: int) -> AcOpfResult:
        return jax.tree.map(lambda x: x[k], self.result)


@cache
def program() -> Any:
    one: Any = lambda f, p, q, rate: ac_opf(f, p, q, rate_mva=rate, shedding=False)  # noqa: E731
    return jax.jit(jax.vmap(one, in_axes=(None, 0, 0, 0)))


def solve(case: Case, *states: np.ndarray) -> AcOpfResult:
    """Loads (B, N) [MW], [Mvar] under ratings (B, L); cases of equal shapes share a program."""
    with jax.enable_x64(True):
        out = program()(prepare_ac_opf(case, dtype="float64"), *map(jnp.asarray, states))
        return jax.tree.map(np.asarray, out)


@cache
def solved(name: str) -> Solved:
    case = load_case(name)
    rows = [row[1:] for row in PUBLISHED if row[0] == name]
    p, q = ([load * row[0] for row in rows] for load in (case.p_load_mw, case.q_load_mvar))
    rate = [case.branch.rate_a_mva * row[1] for row in rows]
    cost = np.array([row[2] for row in rows])
    if name in DRAWS:
        p_drawn, q_drawn, rating = ac_states(case)
        p, q, rate = [*p, *p_drawn], [*q, *q_drawn], [*rate, *[rating] * len(p_drawn)]
        cost = np.r_[cost, read_npz(RECORDED)[f"{name}.cost"]]
    states = [np.stack(x) for x in (p, q, rate)]
    return Solved(case, *states, cost, solve(case, *states))


@pytest.mark.tiers("long", full=["case9"])
@pytest.mark.parametrize("name", NAMES)
def test_the_cost_is_that_of_independent_solvers(name: str) -> None:
    found = solved(name)
    known = np.isfinite(found.cost)
    assert (found.result.status[known] == OpfStatus.OPTIMAL).all()
    relative = np.abs(found.result.objective / found.cost - 1)[known]
    assert relative.max() <= tolerance("opf_ac_cost_relative", "float64")


@pytest.mark.tiers("long", full=["case9"])
@pytest.mark.parametrize("name", NAMES)
def test_the_optimality_conditions_hold_in_numpy(name: str) -> None:
    found = solved(name)
    for k in np.flatnonzero(np.isfinite(found.cost))[:8]:
        got = audit(found.case, found.p_load[k], found.q_load[k], found.rate[k], found.lane(k))
        assert got.balance <= tolerance("opf_violation_pu", "float64")
        assert got.limits <= tolerance("opf_violation_pu", "float64")
        assert got.stationarity <= tolerance("opf_ac_stationarity", "float64")
        assert got.signs <= tolerance("opf_ac_stationarity", "float64")


@pytest.mark.long
@pytest.mark.parametrize("name", DRAWS)
def test_prices_are_those_of_pypower(name: str) -> None:
    found, recorded = solved(name), read_npz(RECORDED)
    mine = slice(len(found.cost) - len(recorded[f"{name}.cost"]), None)
    known = np.isfinite(recorded[f"{name}.cost"])
    assert (recorded[f"{name}.binding"][known] > 0).sum() >= 5
    for field in ("lmp", "lmp_reactive"):
        expected = recorded[f"{name}.{field}"][known]
        np.testing.assert_allclose(getattr(found.result, field)[mine][known], expected, rtol=0, atol=1e-3)


def test_a_state_that_no_solver_solves_is_never_called_optimal() -> None:
    found = solved("case30")
    lost = np.isnan(found.cost)
    assert lost.sum() == 4
    assert (found.result.status[lost] != OpfStatus.OPTIMAL).all()
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(found.result))


@pytest.mark.long
def test_the_five_bus_optimum_is_pglibs() -> None:
    assert float(f"{float(solved('case5').result.objective[0]):.4e}") == 1.7552e4


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "twin"),
    [("14_ieee", "pz_case14"), ("118_ieee", "pz_case118"), ("118_ieee__sad", "pz_case118"), ("300_ieee", "pz_case300")],
)
def test_cases_in_pglibs_form_cost_what_pglib_publishes(name: str, twin: str) -> None:
    """As many lanes as its twin has: the program is the same. Of the tight one, limits of angles bind."""
    case, lanes = kept_case(name), len(solved(twin).cost)
    states = [np.tile(x, (lanes, 1)) for x in (case.p_load_mw, case.q_load_mvar, case.branch.rate_a_mva)]
    result = solve(case, *states)
    assert result.optimal.all()
    assert {float(f"{cost:.4e}") for cost in result.objective} == {PGLIB[name].ac}
    assert (np.abs(result.angle_price).max() > 1e-2) == name.endswith("sad")


@pytest.mark.long
@pytest.mark.parametrize("name", ["60_c__api", "89_pegase"])
def test_a_lane_that_is_stuck_starts_again_and_costs_what_pglib_publishes(name: str) -> None:
    """Slacks of the first jam after a few steps; limits of the second bind on impedances of 2e-4 pu."""
    case = kept_case(name)
    states = [x[None] for x in (case.p_load_mw, case.q_load_mvar, case.branch.rate_a_mva)]
    result = solve(case, *states)
    assert result.optimal.all()
    assert float(f"{result.objective[0]:.4e}") == PGLIB[name].ac
    got = audit(case, *(x[0] for x in states), jax.tree.map(lambda x: x[0], result))
    assert max(got.balance, got.limits) <= tolerance("opf_violation_pu", "float64")
    assert max(got.stationarity, got.signs) <= tolerance("opf_ac_stationarity", "float64")


def test_limits_of_a_unit_out_of_service_change_nothing() -> None:
    found = solved("case9")
    last = np.arange(found.case.n_unit) == found.case.n_unit - 1
    off = replace(found.case.unit, in_service=found.case.unit.in_service & ~last)
    turned = replace(
        off,
        p_min_mw=np.where(last, off.p_max_mw + 5.4, off.p_min_mw),
        q_min_mvar=np.where(last, off.q_max_mvar + 1.0, off.q_min_mvar),
    )
    cases = [replace(found.case, unit=unit) for unit in (off, turned)]
    assert_valid(cases[1])
    plain, other = (solve(case, found.p_load, found.q_load, found.rate) for case in cases)
    assert plain.optimal[0] and other.optimal[0]
    np.testing.assert_allclose(other.objective[0], plain.objective[0], rtol=1e-9)
    np.testing.assert_allclose(other.unit_power_mw[0], plain.unit_power_mw[0], atol=1e-4)
    assert other.unit_power_mw[0, -1] == 0 and other.unit_reactive_mvar[0, -1] == 0


@pytest.mark.long
def test_great_britain_is_optimal_in_a_wider_band_and_never_called_so_in_its_own() -> None:
    """The taps of case2224gb do not allow 0.94 to 1.06 pu; from 0.85 to 1.15 pu the conditions hold in NumPy."""
    case = load_case("case2224gb")
    states = [x[None] for x in (case.p_load_mw, case.q_load_mvar, 0 * case.branch.rate_a_mva)]
    assert not solve(case, *states).optimal.any()
    one = np.ones(case.n_bus)
    wide = replace(case, bus=replace(case.bus, v_min_pu=0.85 * one, v_max_pu=1.15 * one))
    result = solve(wide, *states)
    assert result.optimal.all()
    got = audit(wide, *(x[0] for x in states), jax.tree.map(lambda x: x[0], result))
    assert max(got.balance, got.limits) <= tolerance("opf_violation_pu", "float64")
    assert max(got.stationarity, got.signs) <= tolerance("opf_ac_stationarity", "float64")
    assert 1.03 < result.objective[0] / 1_851_891.45 < 1.05  # its DC optimum, which has neither losses nor voltages


@pytest.mark.long
@pytest.mark.parametrize("name", ["case9", "pz_case14"])
def test_a_float32_program_costs_the_published_optimum_with_the_float64_that_a_tpu_emulates(name: str) -> None:
    """XLA for TPUs keeps two float32 in place of a float64: 48 bits, and the range of float32."""
    case, cost = load_case(name), next(row[3] for row in PUBLISHED if row[0] == name)
    factors, lanes = prepare_ac_opf(case), (1, 1)
    load = (jnp.asarray(np.tile(x, lanes), jnp.float32) for x in (case.p_load_mw, case.q_load_mvar))
    solve = jax.vmap(partial(ac_opf, shedding=False), in_axes=(None, 0, 0))
    out = jax.jit(rounded(solve, "pairs"))(factors, *load)
    assert (np.asarray(out.status) == OpfStatus.OPTIMAL).all()
    assert abs(float(out.objective[0]) / cost - 1) <= tolerance("opf_ac_cost_relative", "float32")
    assert float(out.primal_residual[0]) <= 1e-6
