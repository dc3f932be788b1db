"""The DC power flow against PYPOWER's recorded results and an independent sparse solve."""

from __future__ import annotations

import dataclasses
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.base.npz import read_npz
from powerzoo_jax.cases import Case
from powerzoo_jax.cases.library import load_case
from powerzoo_jax.powerflow.dc.network import scheduled_injection
from powerzoo_jax.powerflow.dc.outages import outage_flows, prepare_dc_outages
from powerzoo_jax.powerflow.dc.solve import DcConvention, DcResult, prepare_dc, solve_dc
from powerzoo_jax.powerflow.result import Status
from tests.recorders.record_dc import CASES, DATA
from tests.references.dc import plausible_injections, solve_reference, without_branch
from tests.tolerances import tolerance

pytestmark = pytest.mark.reference

every_case = pytest.mark.parametrize("name", CASES)
both_precisions = pytest.mark.parametrize("dtype", ["float32", "float64"])


def solve_on_device(case: Case, p: np.ndarray, dtype: str, convention: DcConvention) -> DcResult:
    with jax.enable_x64(dtype == "float64"):
        factors = prepare_dc(case, convention=convention, dtype=dtype)
        return jax.tree.map(np.asarray, jax.jit(solve_dc)(factors, jnp.asarray(p, dtype)))


def states(case: Case) -> np.ndarray:
    """(4, N) [pu]: the nominal state, then three off the base."""
    return np.vstack([scheduled_injection(case)[None], plausible_injections(case, 3, seed=11)])


@cache
def solved(name: str, dtype: str, convention: DcConvention) -> DcResult:
    case = load_case(name)
    return solve_on_device(case, states(case), dtype, convention)


@cache
def recorded() -> dict[str, np.ndarray]:
    return read_npz(DATA / "expected.npz")


def distance(found: np.ndarray, expected: np.ndarray) -> float:
    """Largest error relative to the largest value of the array, 1 at least."""
    return float(np.abs(found.astype(float) - expected).max() / max(1.0, np.abs(expected).max()))


@pytest.mark.tiers(full=["case2383wp-float64"], long=["case2383wp-float32"])
@both_precisions
@every_case
def test_the_nominal_state_is_that_of_pypower(name: str, dtype: str) -> None:
    result = solved(name, dtype, DcConvention.MATPOWER)
    assert (result.status == Status.CONVERGED).all()
    assert result.p_from.dtype == np.dtype(dtype)
    assert distance(result.angle_rad[0], recorded()[f"{name}.angle_rad"]) <= tolerance("dc_relative", dtype)
    assert distance(result.p_from[0], recorded()[f"{name}.p_from_pu"]) <= tolerance("dc_relative", dtype)


@pytest.mark.tiers(full=["case2383wp-0-float32", "case2383wp-0-float64"], long=["case2383wp-1-float64"])
@pytest.mark.parametrize(
    ("convention", "dtype"),
    [(DcConvention.MATPOWER, "float32"), (DcConvention.MATPOWER, "float64"), (DcConvention.PGLIB, "float64")],
)
@every_case
def test_states_off_the_base_match_an_independent_solve(name: str, convention: DcConvention, dtype: str) -> None:
    case, limit = load_case(name), tolerance("dc_relative", dtype)
    result = solved(name, dtype, convention)
    for k, row in enumerate(states(case)):
        theta, flow, slack = solve_reference(case, row, pglib=convention == DcConvention.PGLIB)
        assert distance(result.angle_rad[k], theta) <= limit
        assert distance(result.p_from[k], flow) <= limit
        assert distance(result.p_added[k].sum(), np.array(slack)) <= limit
        assert result.p_added[k, case.slack_bus[0]] == result.p_added[k].sum()
        assert result.residual[k] <= limit * np.abs(row).max()


def test_the_two_conventions_differ_where_taps_shifts_and_resistance_do() -> None:
    case = load_case("case300")
    p = scheduled_injection(case)
    flows = [solve_on_device(case, p, "float64", kind).p_from for kind in DcConvention]
    assert np.abs(flows[0] - flows[1]).max() > 0.1


def test_a_phase_shifter_drives_a_loop_flow_of_its_angle_over_the_loop_reactance() -> None:
    """Without injections the flow around a loop is -phi over the sum of x tap: here lines 1-2, 2-3, 1-3 of 0.1 pu."""
    case = load_case("case9")
    keep = np.arange(3)
    branch = {f.name: getattr(case.branch, f.name)[keep] for f in dataclasses.fields(case.branch)}
    ends = {"from_id": np.array([1, 2, 1]), "to_id": np.array([2, 3, 3])}
    values = {"x_pu": np.full(3, 0.1), "tap": np.array([1.0, 1.0, 2.0]), "shift_deg": np.array([9.0, 0.0, 0.0])}
    bus = {f.name: getattr(case.bus, f.name)[keep] for f in dataclasses.fields(case.bus)}
    unit = {f.name: getattr(case.unit, f.name)[:1] for f in dataclasses.fields(case.unit)}
    triangle = dataclasses.replace(
        case,
        bus=type(case.bus)(**bus),
        branch=type(case.branch)(**{**branch, **ends, **values}),
        unit=type(case.unit)(**unit),
        load=type(case.load)(np.array([3]), np.zeros(1), np.zeros(1)),
    )
    around = -np.deg2rad(9.0) / (0.1 + 0.1 + 0.2)
    flow = solve_on_device(triangle, np.zeros(3), "float64", DcConvention.MATPOWER).p_from
    np.testing.assert_allclose(flow, [around, around, -around], rtol=1e-12)


@pytest.mark.tiers(full=["case300"])
@pytest.mark.parametrize("name", ["case9", "case14", "case30", "case57", "case118", "case300"])
def test_outage_factors_equal_a_new_solve_without_the_branch(name: str) -> None:
    case = load_case(name)
    p = plausible_injections(case, 1, seed=5)[0]
    with jax.enable_x64(True):
        outages = prepare_dc_outages(case, dtype="float64")
        base = solve_dc(prepare_dc(case, dtype="float64"), jnp.asarray(p)).p_from
        after = np.asarray(outage_flows(outages, base))
    lost = np.flatnonzero(~np.asarray(outages.islanding))
    assert np.isfinite(after).all()
    for k in lost if lost.size <= 80 else np.random.default_rng(1).choice(lost, 80, replace=False):
        expected = solve_reference(without_branch(case, k), p)[1]
        assert distance(after[k], expected) <= tolerance("dc_relative", np.float64)
