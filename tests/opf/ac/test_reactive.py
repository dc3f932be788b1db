"""Reactive output in the AC-OPF: costs, power factors and capability curves against SLSQP and by differences."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.base.errors import CaseError
from powerzoo_jax.cases import Case, from_matpower, to_matpower
from powerzoo_jax.cases.library import load_case
from powerzoo_jax.cases.readers.matpower import read_matpower
from powerzoo_jax.opf import AcOpfResult, ac_opf, prepare_ac_opf
from powerzoo_jax.study import run_power_flow
from tests.references.opf_reactive import LARGE, LOAD, NARROW, NETWORKS, network, optimum, table
from tests.tolerances import tolerance

pytestmark = pytest.mark.reference

LANES = 16
STEP = 1e-2  # [MW], [Mvar]
CASE9Q = [[0.2, 0, 0], [0.05, 0, 0], [0.3, 0, 0]]  # costs of reactive power of MATPOWER's case9Q


@cache
def _program() -> Any:
    def one(factors: Any, p: Any, q: Any) -> AcOpfResult:
        return ac_opf(factors, p, q, shedding=False)

    return jax.jit(jax.vmap(one, in_axes=(None, 0, 0)))


def solve(case: Case, p: np.ndarray, q: np.ndarray, dtype: str = "float64") -> AcOpfResult:
    """Solve lanes p, q (B, N)."""
    with jax.enable_x64(dtype == "float64"):
        arrays = (jnp.asarray(x, dtype) for x in (p, q))
        return jax.tree.map(np.asarray, _program()(prepare_ac_opf(case, dtype=dtype), *arrays))


@pytest.mark.tiers("long", full=["power factor and cost", "all of them"])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_optimum_is_that_of_slsqp(name: str) -> None:
    case = read_matpower(NETWORKS[name])
    cost, p, q = optimum(case, table(NETWORKS[name], "gen"), table(NETWORKS[name], "gencost"))
    found = solve(case, case.p_load_mw[None], case.q_load_mvar[None])
    assert found.optimal.all()
    assert found.objective[0] == pytest.approx(cost, rel=1e-7)
    assert found.generation_cost[0] == pytest.approx(cost, rel=1e-7)
    np.testing.assert_allclose(found.unit_power_mw[0], p, atol=2e-2)
    np.testing.assert_allclose(found.unit_reactive_mvar[0], q, atol=2e-2)


@pytest.mark.full
def test_case9_with_reactive_costs_costs_what_slsqp_finds() -> None:
    case = load_case("case9")
    costs = dict(q_cost_model=np.full(3, 2), q_cost_terms=np.full(3, 3), q_cost=np.array(CASE9Q))
    study = run_power_flow(dataclasses.replace(case, unit=dataclasses.replace(case.unit, **costs)), opf=True)
    assert study.cost_usd_per_h == pytest.approx(5301.1048, abs=1e-4)


@pytest.mark.full
def test_prices_and_derivatives_are_differences_where_a_curve_a_power_factor_and_costs_bind() -> None:
    case = read_matpower(NETWORKS["all of them"])
    p, q = (np.tile(x, (LANES, 1)) for x in (case.p_load_mw, case.q_load_mvar))
    for k in range(3):
        p[2 * k, k], p[2 * k + 1, k] = p[2 * k, k] + STEP, p[2 * k + 1, k] - STEP
        q[6 + 2 * k, k], q[7 + 2 * k, k] = q[6 + 2 * k, k] + STEP, q[7 + 2 * k, k] - STEP
    found = solve(case, p, q)
    assert found.optimal.all()
    curve, load = case.unit.capability[0], found.unit_power_mw[12, 2]
    upper = curve[3] + (found.unit_power_mw[12, 0] - curve[0]) / (curve[1] - curve[0]) * (curve[5] - curve[3])
    assert found.unit_reactive_mvar[12, 0] == pytest.approx(upper, abs=1e-4)  # on the curve
    assert -29 < load < -1 and found.unit_reactive_mvar[12, 2] == pytest.approx(0.5 * load, rel=1e-9)
    slope = (found.objective[0:12:2] - found.objective[1:12:2]) / (2 * STEP)
    prices = np.r_[found.lmp[12], found.lmp_reactive[12]]
    np.testing.assert_allclose(prices, slope, atol=1e-4)

    def outputs(p: Any) -> Any:
        out = ac_opf(factors, p, jnp.asarray(case.q_load_mvar), shedding=False)
        return out.unit_reactive_mvar, out.objective

    with jax.enable_x64(True):
        factors = prepare_ac_opf(case, dtype="float64")
        by = jnp.asarray([0.0, 1.0, 0.0])
        _, (moved, dearer) = jax.jit(lambda p: jax.jvp(outputs, (p,), (by,)))(jnp.asarray(case.p_load_mw))
    assert float(dearer) == pytest.approx(prices[1], rel=1e-5)
    numeric = (found.unit_reactive_mvar[2] - found.unit_reactive_mvar[3]) / (2 * STEP)
    np.testing.assert_allclose(moved, numeric, atol=2e-3)


@pytest.mark.long
def test_a_float32_program_has_the_same_optimum() -> None:
    case = read_matpower(NETWORKS["all of them"])
    states = case.p_load_mw[None], case.q_load_mvar[None]
    wide, narrow = solve(case, *states), solve(case, *states, dtype="float32")
    assert narrow.optimal.all() and narrow.objective.dtype == np.float32
    np.testing.assert_allclose(narrow.objective, wide.objective, rtol=tolerance("opf_ac_cost_relative", "float32"))
    np.testing.assert_allclose(narrow.unit_reactive_mvar, wide.unit_reactive_mvar, atol=2e-2)


def test_a_network_without_such_rules_has_none_in_its_factors() -> None:
    assert prepare_ac_opf(load_case("case9")).reactive is None


@pytest.mark.parametrize("name", NETWORKS)
def test_the_rules_survive_a_matpower_file(name: str, tmp_path: Any) -> None:
    case = read_matpower(NETWORKS[name])
    to_matpower(case, tmp_path / "mine.m")
    back = from_matpower(tmp_path / "mine.m")
    for column in dataclasses.fields(case.unit):
        np.testing.assert_array_equal(getattr(back.unit, column.name), getattr(case.unit, column.name))


def test_a_power_factor_that_a_file_cannot_hold_is_refused_and_one_that_it_adds_is_noted(tmp_path: Any) -> None:
    case = read_matpower(NETWORKS["power factor"])
    other = dataclasses.replace(case, unit=dataclasses.replace(case.unit, q_per_p=np.array([0.3, 0.5])))
    with pytest.raises(CaseError, match=r"power factor of unit 1 \(bus 1\) cannot be written"):
        to_matpower(other, tmp_path / "mine.m")
    free = dataclasses.replace(case, unit=dataclasses.replace(case.unit, q_per_p=np.zeros(2)))
    to_matpower(free, tmp_path / "mine.m")
    assert "unit 2 (bus 3) had a free reactive output" in from_matpower(tmp_path / "mine.m").notes[0]


ODD = {
    "free": ([3, -30, -15, 5, -15, 1.0, 100, 1, 0, -30], "2 (bus 3) has no constant power factor"),
    "other Qg": ([3, -30, -10, 0, -15, 1.0, 100, 1, 0, -30], "a power flow keeps Qg"),
}


@pytest.mark.parametrize("name", ODD)
def test_what_a_dispatchable_load_means_is_noted_where_its_columns_disagree(name: str) -> None:
    row, words = ODD[name]
    case = read_matpower(network([LARGE, row], [[2, 0, 0, 2, 20, 0], [2, 0, 0, 2, 60, 0]]))
    assert [words in note for note in case.notes] == [True]
    assert (case.unit.q_per_p[1] == 0) == (name == "free")
    assert words in run_power_flow(case).summary()


WRONG = {
    "empty curve": (dict(capability=[0, 100, 10, 10, 5, 5]), "curve of unit 1 (bus 1), 2 (bus 3) leaves nothing"),
    "turned curve": (dict(capability=[100, 0, -30, 30, -10, 10]), "curve of unit 1 (bus 1), 2 (bus 3) leaves nothing"),
    "concave cost": (dict(q_cost_model=2, q_cost_terms=3, q_cost=[-1, 0, 0]), "reactive power: unit 1 (bus 1), 2"),
    "points": (dict(q_cost_model=1, q_cost_terms=2, q_cost=[-60, 0, 60, 9]), "piecewise linear cost of reactive"),
}


@pytest.mark.parametrize("name", WRONG)
def test_rules_that_cannot_be_kept_are_refused_by_unit(name: str) -> None:
    columns, words = WRONG[name]
    case = read_matpower(NETWORKS["power factor"])
    unit = dataclasses.replace(
        case.unit, **{key: np.tile(value, (2,) + (1,) * np.ndim(value)) for key, value in columns.items()}
    )
    with pytest.raises(CaseError) as caught:
        prepare_ac_opf(dataclasses.replace(case, unit=unit))
    assert words in str(caught.value)


def test_a_power_flow_marks_an_output_beyond_its_capability_curve() -> None:
    gen = [[*LARGE, *NARROW], [*LOAD]]
    study = run_power_flow(read_matpower(network(gen, [[2, 0, 0, 2, 20, 0], [2, 0, 0, 2, 60, 0]])))
    assert study.unit["q_mvar"][0] > 30 - 0.2 * study.unit["p_mw"][0] and study.unit["q_mvar"][0] < 80
    assert study.unit.violation[0] == "beyond its capability curve"
