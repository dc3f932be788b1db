"""Every outage of a network in AC equals the network without that branch, solved alone by another method."""

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
from powerzoo_jax.powerflow import OutageFactors, OutageResult, OutageStates, Status, n_minus_1, prepare_outages
from tests.reference.meshed_reference import (
    MeshedFlows,
    MeshedStates,
    base_state,
    branch_flows,
    build_meshed,
    solve_base_state,
    solve_states,
)
from tests.tolerances import tolerance

STATES = 50
SPAN = (0.8, 1.2)
BRIDGES_118 = 9  # branches of case118 on which a bus hangs alone


class Known(NamedTuple):
    """States of a case and what the reference finds after each outage, (O, B, ...); `solved` (O, B)."""

    case: Case
    states: MeshedStates
    v: np.ndarray
    flows: MeshedFlows
    solved: np.ndarray


def without(case: Case, branch: int) -> Case:
    on = case.branch.in_service & (np.arange(case.n_branch) != branch)
    return dataclasses.replace(case, branch=dataclasses.replace(case.branch, in_service=on))


def draw(case: Case, count: int) -> MeshedStates:
    """Loads and set-points off the base state, in numbers that float32 holds."""
    rng = np.random.default_rng(20_240_615)
    nominal = base_state(case)
    load = (case.p_load_mw + 1j * case.q_load_mvar) / case.base_mva
    factor = rng.uniform(*SPAN, (count, case.n_bus))
    v_set = nominal.v_set + rng.uniform(-0.01, 0.01, factor.shape)
    s = nominal.s - (factor - 1) * load
    return MeshedStates(s.astype(np.complex64).astype(complex), v_set.astype(np.float32).astype(float))


@cache
def known(name: str) -> Known:
    case = load_case(name)
    states, start = draw(case, STATES), solve_base_state(case, build_meshed(case))
    voltages, flows, solved = [], [], []
    for k in range(case.n_branch):
        net = build_meshed(without(case, k))
        found = solve_states(net, states, start)
        voltages.append(found.v)
        solved.append(found.converged)
        flows.append(branch_flows(net, found.v))
    together = MeshedFlows(*(np.stack(x) for x in zip(*flows, strict=True)))
    return Known(case, states, np.stack(voltages), together, np.stack(solved))


def solve(outages: OutageFactors, *given: jax.Array) -> tuple[OutageResult, OutageStates]:
    found: tuple[OutageResult, OutageStates] = n_minus_1(outages, *given, states=True)
    return found


@cache
def own(name: str, dtype: str) -> tuple[Any, Any]:
    """OutageResult and OutageStates of (B, O, ...) host arrays; every branch is rated at 1 pu."""
    expected = known(name)
    with jax.enable_x64(dtype == "float64"):
        outages = prepare_outages(expected.case, rate_pu=np.ones(expected.case.n_branch), dtype=dtype)
        s, v_set = expected.states
        given = (jnp.asarray(x, dtype) for x in (s.real, s.imag, v_set))
        found = jax.jit(jax.vmap(solve, in_axes=(None, 0, 0, 0)))(outages, *given)
        return jax.tree.map(np.asarray, found)  # type: ignore[no-any-return]


def errors(name: str, dtype: str) -> tuple[float, float]:
    """Largest error of a voltage and of a flow over all outages and states that split nothing, [pu]."""
    expected = known(name)
    result, after = own(name, dtype)
    on = (result.status == Status.CONVERGED).T
    assert (on == (result.status != Status.ISLANDED).T).all()
    assert expected.solved[on].all()
    v = (after.v_re + 1j * after.v_im).swapaxes(0, 1)
    s_from, s_to = ((p + 1j * q).swapaxes(0, 1) for p, q in ((after.p_from, after.q_from), (after.p_to, after.q_to)))
    flow = max(np.abs(s_from - expected.flows.s_from)[on].max(), np.abs(s_to - expected.flows.s_to)[on].max())
    return float(np.abs(v - expected.v)[on].max()), float(flow)


@pytest.mark.parametrize(("name", "dtype"), [("case118", "float32"), ("case14", "float64")])
def test_every_voltage_and_flow_after_every_outage_equals_brute_force(name: str, dtype: str) -> None:
    v, flow = errors(name, dtype)
    assert v <= tolerance("outage_v_pu", dtype)
    assert flow <= tolerance("outage_flow_pu", dtype)


def test_every_outage_of_case118_is_solved_or_cuts_a_bus_off() -> None:
    result, after = own("case118", "float32")
    flagged = result.status == Status.ISLANDED
    assert (flagged.sum(1) == BRIDGES_118).all()
    assert not known("case118").solved.T[flagged].any()
    assert (result.status[~flagged] == Status.CONVERGED).all()
    assert all(np.isfinite(x).all() for x in (*jax.tree.leaves(result), *after))


def test_the_summary_of_an_outage_follows_from_its_voltages_and_flows() -> None:
    expected = known("case118")
    result, _ = own("case118", "float32")
    on = (result.status == Status.CONVERGED).T
    flows = np.maximum(np.abs(expected.flows.s_from), np.abs(expected.flows.s_to))
    magnitude = np.abs(expected.v)
    bus = expected.case.bus
    outside = np.maximum(bus.v_min_pu - magnitude, 0) + np.maximum(magnitude - bus.v_max_pu, 0)
    for mine, exact in (
        (result.loading, flows.max(-1)),
        (result.overload, np.maximum(flows - 1, 0).sum(-1)),
        (result.violation, outside.sum(-1)),
        (result.v_min, magnitude.min(-1)),
        (result.v_max, magnitude.max(-1)),
    ):
        assert np.abs(mine.T - exact)[on].max() <= 118 * tolerance("outage_v_pu", "float32")
    at_worst = np.take_along_axis(flows, result.worst_branch.T[..., None], -1)[..., 0]
    assert np.abs(at_worst - flows.max(-1))[on].max() <= tolerance("outage_flow_pu", "float32")
