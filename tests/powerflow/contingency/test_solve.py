"""Every outage of a network in AC equals the network without that branch or unit, solved alone by other methods."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.base.npz import read_npz
from powerzoo_jax.cases import Case
from powerzoo_jax.cases.library import load_case
from powerzoo_jax.powerflow import (
    Status,
    n_minus_1,
    prepare_dc,
    prepare_dc_outages,
    prepare_outages,
    scheduled_injection,
    solve_dc,
    unit_outage_flows,
)
from tests.recorders.record_outages import DATA, NAME, STATES, draw, outage_list, package, places
from tests.references.dc import solve_reference
from tests.references.meshed import (
    MeshedFlows,
    MeshedStates,
    branch_flows,
    build_meshed,
    solve_base_state,
    solve_states,
)
from tests.tolerances import tolerance

pytestmark = pytest.mark.reference

FEW = 3  # states in which every voltage and flow is compared
BRIDGES_118, SLACK_118 = 9, 1  # branches of case118 on which a bus hangs alone; outages that take the slack's last unit
SHARED = "case24_ieee_rts"  # several units stand at one bus, the slack included


class Known(NamedTuple):
    """What the reference finds after each outage, (O, B, ...); `solved` (O, B)."""

    v: np.ndarray
    flows: MeshedFlows
    solved: np.ndarray


def brute_force(case: Case, states: MeshedStates, lost: np.ndarray) -> Known:
    """Solve every network of `outage_list`; `lost` (O, B, N) is taken off the injections."""
    start = solve_base_state(case, build_meshed(case))
    voltages, flows, solved = [], [], []
    for outage, gone in zip(outage_list(case), lost, strict=True):
        net = build_meshed(outage.case)
        found = solve_states(net, MeshedStates(states.s - gone, states.v_set), start)
        voltages.append(found.v)
        solved.append(found.converged)
        flows.append(branch_flows(net, found.v))
    together = MeshedFlows(*(np.stack(x) for x in zip(*flows, strict=True)))
    return Known(np.stack(voltages), together, np.stack(solved))


@cache
def own() -> tuple[Any, Any]:
    case = load_case(NAME)
    return package(case, draw(case, STATES), "float32")


@cache
def known() -> Known:
    """The first few of the states of `own`."""
    case = load_case(NAME)
    states = MeshedStates(*(x[:FEW] for x in draw(case, STATES)))
    lost = np.stack([outage.lost for outage in outage_list(case)])
    return brute_force(case, states, np.repeat(lost[:, None], FEW, 1))


def errors(result: Any, after: Any, expected: Known) -> tuple[float, float]:
    """Largest error of a voltage and of a flow over all outages and states that have a power flow, [pu]."""
    on = (result.status == Status.CONVERGED).T
    assert (on == (result.status != Status.ISLANDED).T).all()
    assert expected.solved[on].all()
    v = (after.v_re + 1j * after.v_im).swapaxes(0, 1)
    s_from, s_to = ((p + 1j * q).swapaxes(0, 1) for p, q in ((after.p_from, after.q_from), (after.p_to, after.q_to)))
    flow = max(np.abs(s_from - expected.flows.s_from)[on].max(), np.abs(s_to - expected.flows.s_to)[on].max())
    return float(np.abs(v - expected.v)[on].max()), float(flow)


def first(tree: Any) -> Any:
    return jax.tree.map(lambda x: x[:FEW], tree)


@pytest.mark.long
def test_every_voltage_and_flow_after_every_outage_equals_brute_force() -> None:
    v, flow = errors(*first(own()), known())
    assert v <= tolerance("outage_v_pu", "float32")
    assert flow <= tolerance("outage_flow_pu", "float32")


@pytest.mark.full
def test_outages_of_case118_on_50_states_are_those_of_pandapower() -> None:
    recorded, (result, after) = read_npz(DATA / "expected.npz"), own()
    bus, branch = places(load_case(NAME), *recorded["v"].shape)
    v = np.take_along_axis((after.v_re + 1j * after.v_im).swapaxes(0, 1), bus[..., None], 2)[..., 0]
    flow = np.take_along_axis((after.p_from + 1j * after.q_from).swapaxes(0, 1), branch[..., None], 2)[..., 0]
    on = (result.status == Status.CONVERGED).T
    assert on.shape[1] == STATES
    assert (on == np.isfinite(recorded["v"])).all()
    assert np.abs(v - recorded["v"])[on].max() <= tolerance("outage_v_pu", "float32")
    assert np.abs(flow - recorded["s_from"])[on].max() <= tolerance("outage_flow_pu", "float32")


@pytest.mark.long
def test_every_outage_of_case118_is_solved_or_cuts_a_bus_off() -> None:
    result, after = own()
    flagged = result.status == Status.ISLANDED
    assert (flagged.sum(1) == BRIDGES_118 + SLACK_118).all()
    branches = flagged[:FEW, : load_case(NAME).n_branch]
    assert not known().solved.T[:, : load_case(NAME).n_branch][branches].any()
    assert (result.status[~flagged] == Status.CONVERGED).all()
    assert all(np.isfinite(x).all() for x in (*jax.tree.leaves(result), *after))


@pytest.mark.full
def test_the_summary_of_an_outage_follows_from_its_voltages_and_flows() -> None:
    expected, result = known(), first(own()[0])
    on = (result.status == Status.CONVERGED).T
    flows = np.maximum(np.abs(expected.flows.s_from), np.abs(expected.flows.s_to))
    magnitude = np.abs(expected.v)
    bus = load_case(NAME).bus
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


@pytest.mark.long
def test_other_units_make_up_for_a_lost_one_as_they_are_told() -> None:
    case, rng = load_case(SHARED), np.random.default_rng(2)
    unit, bus = case.unit, case.positions(case.unit.bus_id)
    weight = rng.uniform(size=len(unit.bus_id))
    states = MeshedStates(*(x[:FEW] for x in draw(case, FEW)))
    output = (unit.p_mw * rng.uniform(0.8, 1.2, (FEW, 1)) + 1j * unit.q_mvar) / case.base_mva
    at_bus = np.eye(case.n_bus)[bus]
    lost = np.zeros((case.n_branch + len(bus), FEW, case.n_bus), complex)
    for k in range(len(bus)):
        others = weight * (np.arange(len(bus)) != k)
        lost[case.n_branch + k] = output[:, k, None] * at_bus[k] - np.outer(
            output[:, k].real, others @ at_bus / others.sum()
        )
    with jax.enable_x64(True):
        outages = prepare_outages(case, participation=weight, dtype="float64")

        def solve(p: jax.Array, q: jax.Array, v_set: jax.Array, p_unit: jax.Array, q_unit: jax.Array) -> Any:
            return n_minus_1(outages, p, q, v_set, p_unit_pu=p_unit, q_unit_pu=q_unit, states=True)

        given = (states.s.real, states.s.imag, states.v_set, output.real, output.imag)
        result, after = jax.tree.map(np.asarray, jax.jit(jax.vmap(solve))(*map(jnp.asarray, given)))
    frees = np.asarray(outages.frees)
    assert frees.any() and not frees.all()
    v, flow = errors(result, after, brute_force(case, states, lost))
    assert v <= tolerance("outage_v_pu", "float64")
    assert flow <= tolerance("outage_flow_pu", "float64")


@pytest.mark.parametrize("name", ["case118", SHARED])
@pytest.mark.parametrize("shared", [False, True], ids=["slack", "participation"])
def test_flows_of_dc_unit_outages_equal_a_new_solve_without_the_unit(name: str, shared: bool) -> None:
    case = load_case(name)
    bus, p = case.positions(case.unit.bus_id), scheduled_injection(case)
    weight = np.random.default_rng(4).uniform(size=len(bus)) if shared else np.zeros(len(bus))
    with jax.enable_x64(True):
        outages = prepare_dc_outages(case, participation=weight if shared else None, dtype="float64")
        base = solve_dc(prepare_dc(case, dtype="float64"), jnp.asarray(p)).p_from
        after = np.asarray(unit_outage_flows(outages, base))
    alone = np.asarray(outages.unit_alone)
    assert alone.sum() == (0 if shared or name == SHARED else 1)
    for k in np.flatnonzero(~alone):
        others = weight * (np.arange(len(bus)) != k)
        now = p.copy()
        now[bus[k]] -= case.unit.p_mw[k] / case.base_mva
        np.add.at(now, bus, others / max(others.sum(), 1e-300) * case.unit.p_mw[k] / case.base_mva)
        expected = solve_reference(case, now)[1]
        assert np.abs(after[k] - expected).max() <= tolerance("dc_relative", "float64") * max(1, np.abs(expected).max())
