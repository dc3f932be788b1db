"""Switched feeders and networks: legal configurations, their power flow, and the published best one of case33bw."""

from __future__ import annotations

import dataclasses
import itertools
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.cases import Case
from powerzoo_jax.cases.library import load_case
from powerzoo_jax.cases.topology import branch_positions, islands
from powerzoo_jax.powerflow import (
    Status,
    is_radial,
    legality,
    nominal_injection,
    prepare_loops,
    prepare_switching,
    solve_switched,
)
from tests.references.meshed import base_state as meshed_state
from tests.references.meshed import build_meshed, solve_base_state, solve_states
from tests.references.newton import build_network
from tests.references.newton import solve_states as solve_feeder_states
from tests.tolerances import tolerance

pytestmark = [pytest.mark.reference, pytest.mark.full]

BEST = [6, 8, 13, 31, 36]  # switches 7, 9, 14, 32, 37 of Baran and Wu's feeder
BEST_LOSS_KW = 139.55
MIDDLE = 200  # configurations compared with the reference


def with_open(case: Case, opened: np.ndarray) -> Case:
    on = np.ones(case.n_branch, bool)
    on[opened] = False
    return dataclasses.replace(case, branch=dataclasses.replace(case.branch, in_service=on))


def spanning_trees(case: Case) -> float:
    """Number of spanning trees with all switches closed, by the matrix-tree theorem."""
    f, t = branch_positions(case)
    laplacian = np.zeros((case.n_bus, case.n_bus))
    for a, b in zip(f, t, strict=True):
        laplacian[[a, b], [a, b]] += 1
        laplacian[[a, b], [b, a]] -= 1
    return float(np.linalg.det(laplacian[1:, 1:]))


@cache
def trees() -> np.ndarray:
    """Every radial configuration of case33bw, (T, 5), screened from all choices of five switches."""
    case = load_case("case33bw")
    choices = np.array(list(itertools.combinations(range(case.n_branch), 5)), np.int32)
    radial = jax.jit(jax.vmap(is_radial, in_axes=(None, 0)))(prepare_loops(case), jnp.asarray(choices))
    return choices[np.asarray(radial)]


@cache
def exhaustive() -> Any:
    """Loss [kW], status, lowest voltage and power balance of every radial configuration, in one vmap."""
    case = load_case("case33bw")
    s = nominal_injection(case)
    p, q = jnp.asarray(s.real, jnp.float32), jnp.asarray(s.imag, jnp.float32)

    def one(switching: Any, opened: jax.Array) -> tuple[jax.Array, ...]:
        out = solve_switched(switching, opened, p, q)
        kw = 1e3 * case.base_mva
        return kw * out.p_loss, out.status, jnp.min(out.v_pu), out.p_slack + jnp.sum(p) - p[0] - out.p_loss

    found = jax.jit(jax.vmap(one, in_axes=(None, 0)))(prepare_switching(case), jnp.asarray(trees()))
    return tuple(map(np.asarray, found))


def test_as_many_configurations_are_radial_as_the_matrix_tree_theorem_counts() -> None:
    assert len(trees()) == round(spanning_trees(load_case("case33bw"))) == 50_751


@pytest.mark.long
def test_exhaustive_search_finds_the_published_configuration_of_least_loss() -> None:
    loss_kw, status, *_ = exhaustive()
    solved = np.where(status == Status.CONVERGED, loss_kw, np.inf)
    assert trees()[solved.argmin()].tolist() == BEST
    assert solved.min() == pytest.approx(BEST_LOSS_KW, abs=5e-3)


def test_switched_feeders_equal_an_independent_power_flow() -> None:
    case, s = load_case("case33bw"), nominal_injection(load_case("case33bw"))
    loss_kw, status, v_min, balance = exhaustive()
    usual = np.flatnonzero((status == Status.CONVERGED) & (v_min > 0.85))
    assert np.abs(balance[usual]).max() <= tolerance("balance_relative", "float32")
    for row in np.random.default_rng(5).choice(usual, MIDDLE, replace=False):
        net = build_network(with_open(case, trees()[row]))
        v = solve_feeder_states(net, s[None]).v[0]
        current = net.y * (v[net.f] - v[net.t])
        expected = 1e3 * case.base_mva * np.sum(net.z.real * np.abs(current) ** 2)
        assert loss_kw[row] == pytest.approx(expected, rel=tolerance("loss_relative", "float32"))
        assert abs(v_min[row] - np.abs(v).min()) <= tolerance("v_pu", "float32")


@pytest.mark.long
def test_switched_meshed_networks_equal_their_own_solves_and_islands_are_flagged() -> None:
    case = load_case("case14")
    f, t = branch_positions(case)
    rng = np.random.default_rng(3)
    opened = np.array([rng.choice(case.n_branch, 3, replace=False) for _ in range(60)], np.int32)
    opened[:6, 1:] = -1
    state = meshed_state(case)
    with jax.enable_x64(True):
        given = [jnp.asarray(x) for x in (state.s[0].real, state.s[0].imag, state.v_set[0])]
        switching = prepare_switching(case, dtype="float64")
        found = jax.jit(jax.vmap(lambda w, o: solve_switched(w, o, *given), in_axes=(None, 0)))(
            switching, jnp.asarray(opened)
        )
        found = jax.tree.map(np.asarray, found)
    flagged = 0
    for k, row in enumerate(opened):
        network = with_open(case, row[row >= 0])
        if islands(case.n_bus, f, t, network.branch.in_service).max() > 0:
            assert found.status[k] == Status.ISLANDED
            flagged += 1
            continue
        net = build_meshed(network)
        expected = solve_states(net, state, solve_base_state(case, build_meshed(case)))
        assert (found.status[k] == Status.CONVERGED) == expected.converged[0]
        if expected.converged[0]:
            v = found.v_re[k] + 1j * found.v_im[k]
            assert np.abs(v - expected.v[0]).max() <= tolerance("outage_v_pu", "float64")
    assert 5 < flagged < 40
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(found))


def test_legal_exchanges_are_those_that_keep_a_feeder_radial() -> None:
    case = load_case("case33bw")
    loops, opened = prepare_loops(case), np.array(BEST, np.int32)
    legal = jax.jit(legality)(loops, jnp.asarray(opened))
    f, t = branch_positions(case)
    for k in range(5):
        for j in set(range(case.n_branch)) - set(BEST):
            now = with_open(case, np.r_[np.delete(opened, k), j]).branch.in_service
            assert bool(legal.exchange[k, j]) == (islands(case.n_bus, f, t, now).max() == 0)
    assert bool(legal.connected) and not np.asarray(legal.may_open).any()


def test_switches_that_may_open_are_those_on_a_loop() -> None:
    case = load_case("case118zh")
    loops, opened = prepare_loops(case), np.array([117, 120, 131, -1], np.int32)
    legal = jax.jit(legality)(loops, jnp.asarray(opened))
    f, t = branch_positions(case)
    for j in range(case.n_branch):
        on = with_open(case, np.r_[opened[:3], j]).branch.in_service
        expected = islands(case.n_bus, f, t, on).max() == 0 and j not in opened
        assert bool(legal.may_open[j]) == expected
