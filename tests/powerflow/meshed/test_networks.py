"""Branch parameters as data: outages, impedances and taps per lane equal the networks prepared alone."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.cases import Case
from powerzoo_jax.powerflow import MeshedResult, Status, solve_meshed, with_branches
from tests.references.meshed import build_meshed, solve_base_state, solve_states
from tests.references.meshed_cases import factors_of, meshed_case, voltages
from tests.tolerances import tolerance

pytestmark = [pytest.mark.property, pytest.mark.full]

BRIDGE = 13  # branch 7-8 of case14: bus 8 hangs on it alone
FIELDS = ("in_service", "r_pu", "x_pu", "b_pu", "tap", "shift_rad")


def variants(case: Case) -> list[Case]:
    """Every single outage of the case, and as many networks of other impedances, charging, taps and shifts."""
    rng, b, m = np.random.default_rng(6), case.branch, case.n_branch
    outages = [dataclasses.replace(b, in_service=np.arange(m) != k) for k in range(m)]
    others = [
        dataclasses.replace(
            b,
            r_pu=b.r_pu * rng.uniform(0.8, 1.2, m),
            x_pu=b.x_pu * rng.uniform(0.8, 1.2, m),
            b_pu=b.b_pu * rng.uniform(0.8, 1.2, m),
            tap=b.tap * rng.uniform(0.97, 1.03, m),
            shift_deg=rng.uniform(-2.0, 2.0, m),
        )
        for _ in range(m)
    ]
    return [dataclasses.replace(case, branch=branch) for branch in outages + others]


def columns(cases: list[Case]) -> dict[str, np.ndarray]:
    """(K, L) of every field of `BranchData`."""
    table = {name: np.stack([getattr(c.branch, name) for c in cases]) for name in FIELDS[:-1]}
    return table | {"shift_rad": np.deg2rad(np.stack([c.branch.shift_deg for c in cases]))}


@pytest.fixture(scope="module")
def together() -> tuple[list[Case], MeshedResult]:
    """The variants of case14, each in its own lane of one call, at the base state."""
    known = meshed_case("14", 0)
    cases = variants(known.case)
    with jax.enable_x64(True):
        s, v_set = known.states.s[0], known.states.v_set[0]
        given = [jnp.asarray(x) for x in (s.real, s.imag, v_set)]
        factors = factors_of("14", "float64")

        def solve(branch: dict[str, Any]) -> MeshedResult:
            return solve_meshed(with_branches(factors, **branch), *given)

        table = {key: jnp.asarray(value, jnp.float64) for key, value in columns(cases).items()}
        return cases, jax.tree.map(np.asarray, jax.jit(jax.vmap(solve))(table))


@pytest.mark.long
def test_each_network_of_a_mapped_call_equals_its_own_solve(together: tuple[list[Case], MeshedResult]) -> None:
    cases, result = together
    states, v = meshed_case("14", 0).states, voltages(result)
    for k, case in enumerate(cases):
        if k == BRIDGE:
            continue
        net = build_meshed(case)
        expected = solve_states(net, states, solve_base_state(case, net))
        assert expected.converged[0] and result.status[k] == Status.CONVERGED
        assert np.abs(np.abs(v[k]) - np.abs(expected.v[0])).max() <= tolerance("v_pu", "float64")
        assert np.abs(np.angle(v[k] * np.conj(expected.v[0]))).max() <= tolerance("angle_rad", "float64")


@pytest.mark.long
def test_a_branch_out_of_service_carries_nothing(together: tuple[list[Case], MeshedResult]) -> None:
    _, result = together
    lanes = np.flatnonzero(np.arange(20) != BRIDGE)
    for flow in (result.p_from, result.q_from, result.p_to, result.q_to, result.i_re, result.i_im):
        assert (flow[lanes, lanes] == 0).all()


def test_an_outage_that_islands_a_bus_is_flagged(together: tuple[list[Case], MeshedResult]) -> None:
    _, result = together
    assert result.status[BRIDGE] != Status.CONVERGED
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(result))
