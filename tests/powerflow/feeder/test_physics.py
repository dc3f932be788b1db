"""What must hold for every solved feeder: Kirchhoff's laws, balance, indifference to numbering, loops as loops."""

from __future__ import annotations

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.cases import Case
from powerzoo_jax.cases.library import load_case
from powerzoo_jax.powerflow import (
    PowerFlowResult,
    Status,
    check_feeder,
    nominal_injection,
    prepare_feeder,
    solve_feeder,
    solve_feeder_active,
)
from tests.references.newton import branch_flows, build_network, solve_states
from tests.tolerances import tolerance

pytestmark = pytest.mark.property

both_precisions = pytest.mark.parametrize("dtype", ["float32", "float64"])


def injection(case: Case, seed: int = 0) -> np.ndarray:
    """(N,) complex [pu], every load scaled on its own over a fifth to twice the nominal."""
    return nominal_injection(case) * np.random.default_rng(seed).uniform(0.2, 2.0, case.n_bus)


def solve_one(case: Case, s: np.ndarray, dtype: str) -> PowerFlowResult:
    with jax.enable_x64(dtype == "float64"):
        factors = prepare_feeder(case, dtype=dtype)
        out = jax.jit(solve_feeder)(factors, s.real.astype(dtype), s.imag.astype(dtype))
        return jax.tree.map(np.asarray, out)


def close_ties(case: Case) -> Case:
    """Every switch closed: case33bw then has five loops."""
    return dataclasses.replace(case, branch=dataclasses.replace(case.branch, in_service=np.ones(case.n_branch, bool)))


def renumber(case: Case, order: np.ndarray) -> Case:
    """The same network with the rows of its bus table in another order."""
    rows = {item.name: getattr(case.bus, item.name)[order] for item in dataclasses.fields(case.bus)}
    return dataclasses.replace(case, bus=type(case.bus)(**rows))


@pytest.mark.tiers("long", quick=["33bw-float32"], full=["118zh-float64"])
@both_precisions
@pytest.mark.parametrize("name", ["33bw", "118zh", "141"])
def test_kirchhoffs_laws_and_the_balance_hold(name: str, dtype: str) -> None:
    case = load_case(name)
    s = injection(case)
    found = check_feeder(case, s.real, s.imag, solve_one(case, s, dtype))
    assert found.kcl_pu <= tolerance("kcl_pu", dtype)
    assert found.kvl_pu <= tolerance("kvl_pu", dtype)
    assert found.balance_pu <= tolerance("kcl_pu", dtype)


def test_the_audit_sees_a_wrong_current() -> None:
    case = load_case("33bw")
    s = injection(case)
    result = solve_one(case, s, "float64")
    wrong = dataclasses.replace(result, i_re=result.i_re * np.where(np.arange(case.n_branch) == 3, 1.01, 1.0))
    found = check_feeder(case, s.real, s.imag, wrong)
    assert found.kcl_pu > tolerance("kcl_pu", "float32")
    assert found.kvl_pu > tolerance("kvl_pu", "float32")


@pytest.mark.tiers("full", long=["33bw-float64", "141-float64"])
@both_precisions
@pytest.mark.parametrize("name", ["33bw", "141"])
def test_renumbering_the_buses_does_not_change_the_voltages(name: str, dtype: str) -> None:
    case = load_case(name)
    s = injection(case)
    order = np.random.default_rng(5).permutation(case.n_bus)
    plain, moved = solve_one(case, s, dtype), solve_one(renumber(case, order), s[order], dtype)
    tol = tolerance("renumbered_v_pu", dtype)
    assert np.abs(moved.v_re - plain.v_re[order]).max() <= tol
    assert np.abs(moved.v_im - plain.v_im[order]).max() <= tol


@both_precisions
def test_a_feeder_with_closed_ties_is_solved_as_the_loops_it_has(dtype: str) -> None:
    case = close_ties(load_case("33bw"))
    s = injection(case, seed=2)
    net = build_network(case)
    v = solve_states(net, s[None]).v
    result = solve_one(case, s, dtype)
    assert result.status == Status.CONVERGED
    assert np.abs(result.v_re + 1j * result.v_im - v[0]).max() <= tolerance("v_pu", dtype)
    flows = branch_flows(net, v).s_from[0]
    error = np.abs(result.p_from + 1j * result.q_from - flows) / np.maximum(np.abs(flows), 0.01)
    assert error.max() <= tolerance("flow_relative", dtype)


@pytest.mark.tiers("full", quick=["33bw with loops-1.0"], long=["141-0.1"])
@pytest.mark.parametrize("load", [0.1, 1.0])
@pytest.mark.parametrize("case", [close_ties(load_case("33bw")), load_case("141")], ids=["33bw with loops", "141"])
def test_losses_and_exchange_without_branch_flows_match_an_independent_power_flow(case: Case, load: float) -> None:
    s, net = load * injection(case), build_network(case)
    factors = prepare_feeder(case)
    p, q = (x[np.asarray(factors.active)].astype("float32") for x in (s.real, s.imag))
    out = solve_without_flows(factors, p, q)
    solution = solve_states(net, s[None])
    loss = complex(branch_flows(net, solution.v).loss[0])
    assert np.abs(np.array([out.p_loss / loss.real, out.q_loss / loss.imag]) - 1).max() <= tolerance(
        "loss_relative", "float32"
    )
    exchange = loss - s.sum()
    assert abs(complex(out.p_slack, out.q_slack) - exchange) <= tolerance("flow_relative", "float32") * abs(exchange)


solve_without_flows = jax.jit(partial(solve_feeder_active, flows=False))


def test_a_slack_voltage_of_its_own_shifts_the_profile() -> None:
    case = load_case("33bw")
    s = injection(case)
    with jax.enable_x64(True):
        factors = prepare_feeder(case, v_slack=1.03, dtype="float64")
        result = jax.jit(solve_feeder)(factors, jnp.asarray(s.real), jnp.asarray(s.imag))
        v = np.asarray(result.v_re) + 1j * np.asarray(result.v_im)
    expected = solve_states(build_network(case, v0=1.03), s[None]).v[0]
    assert np.abs(v - expected).max() <= tolerance("v_pu", "float64")
