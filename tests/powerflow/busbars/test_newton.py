"""The JAX form of the flow of split substations: random assignments against SciPy on the doubled network."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.base.solver_mode import ADAPTIVE, FIXED
from powerzoo_jax.cases import load_case
from powerzoo_jax.powerflow.busbars.network import prepare_topology
from powerzoo_jax.powerflow.busbars.solve import TopologyResult, solve_topology
from powerzoo_jax.powerflow.result import Status
from tests.references.busbars import (
    Draw,
    SplitSolution,
    Substations,
    build_substations,
    draw_topologies,
    node_sums,
    solve_split,
)

COUNT = 200


class Drawn(NamedTuple):
    sub: Substations
    draw: Draw
    reference: list[SplitSolution]


@cache
def drawn(name: str, least: int = 2) -> Drawn:
    """Up to three splits and three open lines, loads times 0.8 to 1.2."""
    sub = build_substations(load_case(name))
    draw = draw_topologies(sub, COUNT, splits=3, opened=3, least=least)
    return Drawn(sub, draw, [solve_split(sub, *one) for one in zip(*draw, strict=True)])


def solved(given: Drawn, topology: np.ndarray, dtype: str, mode: str, start: str = "base") -> TopologyResult:
    """The drawn states by the package, NumPy."""
    with jax.enable_x64(dtype == "float64"):
        network = prepare_topology(given.sub.case, dtype=dtype, solver=mode)
        s = np.stack([node_sums(given.sub, *one) for one in zip(topology, given.draw.s, strict=True)])
        one: Any = lambda p, q, t: solve_topology(network, p, q, t, start=start, solver=mode)  # noqa: E731
        inputs = jnp.asarray(s.real, dtype), jnp.asarray(s.imag, dtype), jnp.asarray(topology)
        return jax.tree.map(lambda x: np.asarray(x, np.float64), jax.jit(jax.vmap(one))(*inputs))


def assert_solved(given: Drawn, found: TopologyResult, dtype: str) -> None:
    """The same lanes have solutions, and the flows agree: 1e-5 pu + 1e-5 in float32, 1e-7 pu in float64."""
    expected = [x.converged for x in given.reference]
    apart = np.flatnonzero((found.status == Status.CONVERGED) != expected)
    assert apart.size <= COUNT // 200, apart
    atol, rtol = (1e-7, 1e-7) if dtype == "float64" else (1e-5, 1e-5)
    for k in np.flatnonzero((found.status == Status.CONVERGED) & expected):
        flows = given.reference[k].flows
        for re, im, s in (
            (found.p_from, found.q_from, flows.s_from),
            (found.p_to, found.q_to, flows.s_to),
        ):
            np.testing.assert_allclose(re[k] + 1j * im[k], s, atol=atol, rtol=rtol)
        loss, slack = found.p_loss[k], found.p_slack[k] + 1j * found.q_slack[k]
        np.testing.assert_allclose(loss, flows.loss.real, atol=atol, rtol=rtol)
        np.testing.assert_allclose(slack, flows.slack, atol=atol, rtol=rtol)
        off = found.v_re[k] + 1j * found.v_im[k] - given.reference[k].v
        assert np.abs(off).max() < (1e-7 if dtype == "float64" else 2e-6)
    assert np.isfinite(np.concatenate([x.ravel() for x in jax.tree.leaves(found)])).all()


@pytest.mark.full
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["14", "118"])
def test_random_assignments_agree_with_newton_on_the_doubled_network(name: str, dtype: str) -> None:
    given = drawn(name)
    assert_solved(given, solved(given, given.draw.topology, dtype, ADAPTIVE), dtype)


@pytest.mark.full
@pytest.mark.parametrize("name", ["14", "118"])
def test_any_assignment_is_solved_from_the_angles_of_the_dc_flow_in_a_fixed_number_of_steps(name: str) -> None:
    given = drawn(name, least=1)  # one line end alone, or with a load
    assert_solved(given, solved(given, given.draw.topology, "float32", FIXED, "dc"), "float32")
