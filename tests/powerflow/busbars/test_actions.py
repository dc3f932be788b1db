"""Ranking of single actions: every state after one against SciPy's Newton on the doubled network, and the order."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.cases import Case, load_case
from powerzoo_jax.powerflow import (
    Configurations,
    RankedActions,
    Status,
    TopologyNetwork,
    apply_action,
    configurations,
    element_injection,
    nominal_injection,
    prepare_topology,
    rank_actions,
)
from tests.references.busbars import Substations, base_topology, build_split, build_substations, solve_split


class Grid(NamedTuple):
    case: Case
    sub: Substations
    found: Configurations
    network: TopologyNetwork
    rate: np.ndarray


@cache
def grid(name: str, dtype: str = "float64", **limits: Any) -> Grid:
    case = load_case(name)
    with jax.enable_x64(dtype == "float64"):
        network, found = prepare_topology(case, dtype=dtype), configurations(case, **limits)
    sub = build_substations(case)
    flows = solve_split(sub, base_topology(sub)).flows
    size = np.maximum(np.abs(flows.s_from), np.abs(flows.s_to))
    return Grid(case, sub, found, network, np.maximum(0.8 * size, 0.05))


def ranked(given: Grid, topology: np.ndarray | None = None, **how: Any) -> RankedActions:
    """Ranking at the injections of the case."""
    dtype = given.network.v_set.dtype
    with jax.enable_x64(dtype == "float64"):
        s = given.sub.s
        arrays = {name: jnp.asarray(x) for name, x in how.items()}
        if "rate_pu" in arrays:
            arrays["rate_pu"] = arrays["rate_pu"].astype(dtype)
        before = None if topology is None else jnp.asarray(topology)
        p, q = jnp.asarray(s.real, dtype), jnp.asarray(s.imag, dtype)
        return jax.tree.map(np.asarray, jax.jit(rank_actions)(given.network, given.found, p, q, before, **arrays))


def assignment(given: Grid, before: np.ndarray, action: int) -> np.ndarray:
    """What `apply_action` does, in words of the tables."""
    m, after = given.case.n_branch, before.copy()
    if 1 <= action <= m:
        ends = [action - 1, m + action - 1]
        after[ends] = 0 if before[ends].all() else 1
    elif action > m:
        row = action - 1 - m
        here = (np.asarray(given.found.bus) == given.found.substation[row]) & (before > 0)
        after[here] = np.asarray(given.found.topology)[row][here]
    return after


class Expected(NamedTuple):
    status: int
    loading: float
    overload: float
    loss: float


def expected(given: Grid, topology: np.ndarray, rate: np.ndarray) -> Expected:
    """Reference of one state: its status is CONVERGED, ISLANDED or any other."""
    if not build_split(given.sub, topology).connected:
        return Expected(Status.ISLANDED, 0, 0, 0)
    state = solve_split(given.sub, topology)
    if not state.converged:
        return Expected(Status.OUT_OF_STEPS, 0, 0, 0)
    size = np.maximum(np.abs(state.flows.s_from), np.abs(state.flows.s_to))
    b, v, m = given.case.branch, state.v, given.case.n_branch
    node = given.sub.bus[: 2 * m] + given.case.n_bus * (topology[: 2 * m] == 2)
    a = b.tap * np.exp(1j * np.deg2rad(b.shift_deg))
    series = (v[node[:m]] / a - v[node[m:]]) / (b.r_pu + 1j * b.x_pu) * (topology[:m] > 0)
    loss = float(np.sum(b.r_pu * np.abs(series) ** 2))
    return Expected(0, float(np.max(size / rate)), float(np.maximum(size - rate, 0).sum()), loss)


def compare(given: Grid, result: RankedActions, before: np.ndarray, actions: Any, tol: float) -> list[Expected]:
    every = [expected(given, assignment(given, before, k), given.rate) for k in actions]
    for k, one in enumerate(every):
        status = int(result.status[k])
        assert (status == 0, status == 4) == (one.status == 0, one.status == 4), k
        np.testing.assert_allclose(result.loading[k], one.loading, rtol=tol, err_msg=str(k))
        np.testing.assert_allclose(result.overload[k], one.overload, rtol=tol, atol=tol, err_msg=str(k))
        np.testing.assert_allclose(result.p_loss[k], one.loss, rtol=tol, err_msg=str(k))
    return every


@pytest.mark.full
@pytest.mark.parametrize(("dtype", "tol"), [("float64", 1e-7), ("float32", 2e-5)])
def test_all_actions_of_case14_are_as_newton_on_the_doubled_network(dtype, tol):
    given = grid("case14", dtype)
    result = ranked(given, rate_pu=given.rate)
    actions = range(given.found.n_action)
    every = compare(given, result, base_topology(given.sub), actions, tol)
    found = [one.status for one in every]
    # the line to bus 8 is a bridge; a few splits have no solution
    assert found.count(Status.ISLANDED) == 1 and found.count(Status.OUT_OF_STEPS) > 0 and found.count(0) > 70
    if dtype == "float64":
        wanted = sorted(actions, key=lambda k: (every[k].status != 0, *np.round(every[k][1:], 9), k))
        assert result.order.tolist() == wanted


@pytest.mark.full
def test_actions_of_case118_from_a_split_and_open_state_are_as_newton_on_the_doubled_network():
    given = grid("case118")
    m = given.case.n_branch
    before = base_topology(given.sub)
    before = assignment(given, before, 106)
    before = assignment(given, before, 1 + m + 1200)
    rows = np.random.default_rng(3).choice(np.arange(1, given.found.n_action), 40, replace=False)
    rows = np.r_[0, 106, 1 + m + np.flatnonzero(given.found.substation == given.found.substation[1200])[0], rows]
    result = ranked(given, before, rate_pu=given.rate, only=rows.astype(np.int32))
    every = compare(given, result, before, rows, 1e-7)
    assert sum(one.status == 0 for one in every) >= 40


def test_an_action_moves_only_what_is_in_service():
    given = grid("case14")
    before = base_topology(given.sub)
    before[[3, 23]] = 0  # branch 4 is open
    before[44] = 0  # a unit is off
    apply = jax.jit(apply_action)
    for action in range(given.found.n_action):
        after = np.asarray(apply(given.found, jnp.asarray(before), jnp.asarray(action, jnp.int32)))
        np.testing.assert_array_equal(after, assignment(given, before, action))
        assert after[44] == 0


def test_without_ratings_the_flows_before_take_their_place():
    given = grid("case14")
    result = ranked(given)
    assert result.loading[0] == pytest.approx(1, abs=1e-12) and result.overload[0] == pytest.approx(0, abs=1e-12)
    flows = solve_split(given.sub, base_topology(given.sub)).flows
    size = np.maximum(np.abs(flows.s_from), np.abs(flows.s_to))
    rate = np.maximum(size, 0.1 * size.max())
    same = ranked(given, rate_pu=rate)
    np.testing.assert_allclose(result.loading[1:], same.loading[1:], rtol=1e-7)


@pytest.mark.parametrize("name", ["case24_ieee_rts", "case118"])
def test_injections_of_the_elements_sum_to_those_of_the_buses(name):
    """Several units a bus; beside them a plant and a storage, which inject nothing by themselves."""
    case = load_case(name)
    network = prepare_topology(case, plants=(3,), storages=(2, 9))
    s = element_injection(case, network)
    total = np.zeros(case.n_bus, complex)
    np.add.at(total, np.asarray(network.bus), s)
    total[case.slack_bus] = 0  # it balances
    np.testing.assert_allclose(total, nominal_injection(case), atol=1e-12)


def test_branches_without_a_rating_do_not_count():
    given = grid("case14")
    rate = np.zeros(20)
    rate[4] = 1.0
    result = ranked(given, rate_pu=rate)
    assert set(result.worst_branch.tolist()) == {-1, 0, 4}  # no solution, no flow in the rated branch, all others
    opened = 1 + 4
    assert result.loading[opened] == 0 and result.order[0] == opened


def test_ties_go_to_the_lowest_position_and_what_has_no_solution_comes_last():
    given = grid("case14")
    twice = np.array([3, 14, 3, 0, 3], np.int32)  # branch 14 of the table is the only way to bus 8
    result = ranked(given, rate_pu=given.rate, only=twice)
    places = [int(np.flatnonzero(result.order == k)[0]) for k in range(5)]
    assert places[1] == 4 and places[0] < places[2] < places[4]
    assert result.status[1] == Status.ISLANDED and result.worst_branch[1] == -1


def test_states_of_a_batch_are_ranked_as_alone():
    given = grid("case14", "float32")
    factor = jnp.asarray([0.8, 1.0, 1.1], jnp.float32)[:, None]
    p, q = (factor * jnp.asarray(x, jnp.float32)[None] for x in (given.sub.s.real, given.sub.s.imag))
    rate = jnp.asarray(given.rate, jnp.float32)
    rank = jax.jit(jax.vmap(rank_actions, (None, None, 0, 0, None, None)))
    both = rank(given.network, given.found, p, q, given.network.base, rate)
    alone = jax.jit(rank_actions)(given.network, given.found, p[2], q[2], given.network.base, rate)
    np.testing.assert_array_equal(both.status[2], alone.status)
    np.testing.assert_allclose(both.loading[2], alone.loading, rtol=2e-5)
    np.testing.assert_array_equal(both.order.shape, (3, given.found.n_action))
