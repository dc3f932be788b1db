"""Power flow of one assignment of elements to busbars: Newton's method, factorised anew for every assignment.

On CPUs the compiled kernel solves, elsewhere and without it the same iteration in JAX (`busbars.newton`). Whether every
busbar in use is reached from the reference is decided before.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.custom_derivatives import SymbolicZero

from powerzoo_jax.base import struct
from powerzoo_jax.base.errors import SolverError, unknown
from powerzoo_jax.base.ranges import FINITE, NOT_NEGATIVE, WHOLE, axes, checks_ranges
from powerzoo_jax.base.solver_mode import AUTO, NATIVE, by_mode, check_mode
from powerzoo_jax.powerflow.batching import batched_shell, in_tiles
from powerzoo_jax.powerflow.busbars.network import (
    BUSBAR,
    Flows,
    TopologyNetwork,
    complex_product,
    flows,
    injections,
    near_one,
    place,
    reference,
)
from powerzoo_jax.powerflow.busbars.newton import solve_lanes, solve_linear_lanes
from powerzoo_jax.powerflow.native.busbars import solve_busbars, solve_linear
from powerzoo_jax.powerflow.native.library import in_kernel
from powerzoo_jax.powerflow.result import PowerFlowResult, Status

TOL = 1e-8  # [pu] largest mismatch of a solved lane
STEPS = 10  # of Newton's method, at most
BASE, DC = "base", "dc"


@struct.dataclass(kw_only=True)
class TopologyResult(PowerFlowResult):
    """`PowerFlowResult` of one assignment: voltages by node (2S,), 0 where nothing stands, losses with charging.

    in_use:          (2S,)  bool
    p_node, q_node:  (2S,)  [pu]  injections, solved for at the reference and at nodes that hold their magnitude
    p_to, q_to:      (L,)   [pu]  power entering the branch at its to end
    """

    in_use: Array
    p_node: Array
    q_node: Array
    p_to: Array
    q_to: Array

    @property
    def v_pu(self) -> Array:
        """(2S,) voltage magnitudes; a root has no derivative at the 0 of a node that is not in use."""
        square = self.v_re * self.v_re + self.v_im * self.v_im
        return jnp.where(self.in_use, jnp.sqrt(jnp.where(self.in_use, square, 1)), 0)

    @property
    def angle_rad(self) -> Array:
        """(2S,) voltage angles, 0 at nodes that are not in use."""
        return jnp.arctan2(self.v_im, jnp.where(self.in_use, self.v_re, 1))


class NodeState(NamedTuple):
    """State of one assignment: deviation e and injection s (2S, 2), nodes in use (2S,), flows, and how it was found."""

    e: Array
    s: Array
    in_use: Array
    flows: Flows
    residual: Array
    iterations: Array
    status: Array


@checks_ranges("solve_topology")
def solve_topology(
    network: TopologyNetwork,
    p_pu: Annotated[Array, FINITE, axes("N", told=True)],
    q_pu: Annotated[Array, FINITE, axes("N", told=True)],
    topology: Annotated[Array, BUSBAR, axes("E", kind=WHOLE)],
    v_set_pu: Annotated[Array, NOT_NEGATIVE, axes("S", told=True)] | None = None,
    *,
    start: str = BASE,
    solver: str = AUTO,
) -> TopologyResult:
    """Solve the power flow of one assignment of the elements to busbars; vmap it for many.

    S_i = V_i sum_j conj(Y_ij V_j), with Y of the branches and shunts where they stand; |V_i| held where a unit stands

    network:    from `prepare_topology`; share it (in_axes=None)
    p_pu, q_pu: (2S,) [pu] net injections by node, busbars 1 of all buses first (`node_injection`); both ignored at the
                reference, q also at nodes that hold their magnitude, both where no element stands
    topology:   (E,) int8 busbar of every element: 1 or 2, 0 for out. A branch with one end out is out of service
    v_set_pu:   (S,) [pu] magnitude that units of a bus hold; None takes the case's
    start:      "base" begins at the base state of the case, "dc" at the angles of the DC power flow of the assignment,
                1 pu where no magnitude is held
    solver:     "native" is the compiled kernel, on CPUs; "adaptive" and "fixed" the JAX form; "auto" the one there is

    The reference is the node of the first unit in service of the reference bus; a bus without any keeps it on busbar 1.
    At most 10 steps of Newton's method, to a largest mismatch of 1e-8 pu, which float32 programs find in twice their
    digits. Status ISLANDED where a node in use is not reached from the reference, BAD_INPUT for a busbar that there is
    not; the numbers are finite all the same. Differentiable forward and reverse in injections and set-points.
    Raises SettingsError for arrays of another length or type, ValueError for a start or solver that there is not,
    SolverError for one that the network was not prepared for.
    """
    if start not in (BASE, DC):
        raise ValueError(unknown("start", start, (BASE, DC)))
    mode = check_mode(solver, NATIVE)
    if mode == NATIVE and network.native is None:
        raise SolverError(
            'solver="native" is not what this network was prepared for. Leave solver="auto", or give prepare_topology '
            'solver="native".'
        )
    if network.lanes is None:
        if mode not in (AUTO, NATIVE):
            raise SolverError(
                f'The network was prepared for the compiled kernel alone. Leave solver="auto", not "{mode}".'
            )
        mode = NATIVE
    topology = topology.astype(jnp.int8)
    given = (topology, p_pu, q_pu) if v_set_pu is None else (topology, p_pu, q_pu, v_set_pu)
    return _expand(network, topology, _state_of(mode, start == DC)(network, *given))


@functools.lru_cache(maxsize=16)
def _state_of(mode: str, dc: bool) -> Callable[..., NodeState]:
    """The differentiable solver of one scenario: (network, topology, p, q[, v_set]) -> NodeState."""

    def kernel(network: TopologyNetwork, *given: Array) -> NodeState:
        assert network.native is not None
        n_branch = network.counts.branches
        e_re, e_im, p, q, in_use, residual, steps, status, *ends = solve_busbars(
            network.native, given, n_branch=n_branch, tol=TOL, steps=STEPS, dc=dc
        )
        pairs = (jnp.stack(x, -1) for x in zip(ends[::2], ends[1::2], strict=True))
        e, s = jnp.stack([e_re, e_im], -1), jnp.stack([p, q], -1)
        return NodeState(e, s, in_use, Flows(*pairs), residual, steps, status)

    def in_lanes(adaptive: bool, network: TopologyNetwork, *given: Array) -> NodeState:
        def tile(given: tuple[Array, ...]) -> NodeState:
            topology, *numbers = given
            placed = jax.vmap(functools.partial(place, network), out_axes=-1)(topology)
            assert network.lanes is not None
            found = solve_lanes(
                network.lanes, placed, *(x.T for x in numbers), tol=TOL, steps=STEPS, dc=dc, adaptive=adaptive
            )
            e, s, *ends, residual, steps, status = jax.tree.map(lambda x: jnp.moveaxis(x, -1, 0), found)
            return NodeState(e, s, placed.in_use.T, Flows(*ends), residual, steps, status)

        state: NodeState = in_tiles(tile, given, cpu=adaptive)
        return state

    def core(network: TopologyNetwork, *given: Array) -> NodeState:
        if mode == NATIVE:
            return in_kernel(kernel, None, network, *given)  # type: ignore[no-any-return]
        adaptive, fixed = (functools.partial(in_lanes, x) for x in (True, False))
        native = mode == AUTO and network.native is not None
        first = functools.partial(in_kernel, kernel, adaptive) if native else adaptive
        state: NodeState = by_mode(mode, first, fixed, network, *given)
        return state

    shell = batched_shell(core)

    @jax.custom_jvp
    def solve(network: TopologyNetwork, *given: Array) -> NodeState:
        found: NodeState = shell(network, *given)
        return found

    @functools.partial(solve.defjvp, symbolic_zeros=True)
    def _(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[NodeState, NodeState]:
        out = solve(*primals)
        return out, _tangent(primals, tangents, out, mode)

    return solve


@functools.cache
def _linear_of(mode: str, transposed: bool) -> Callable[..., Array]:
    def kernel(network: TopologyNetwork, topology: Array, e: Array, right: Array) -> Array:
        assert network.native is not None
        return solve_linear(network.native, topology, e, right, transposed=transposed)

    def in_lanes(network: TopologyNetwork, topology: Array, *given: Array) -> Array:
        assert network.lanes is not None
        placed = jax.vmap(functools.partial(place, network), out_axes=-1)(topology)
        e, right = (jnp.moveaxis(x, 0, -1) for x in given)
        return jnp.moveaxis(solve_linear_lanes(network.lanes, placed, e, right, transposed=transposed), -1, 0)

    def core(network: TopologyNetwork, *given: Array) -> Array:
        if mode == NATIVE:
            return in_kernel(kernel, None, network, *given)  # type: ignore[no-any-return]
        native = mode == AUTO and network.native is not None
        first = functools.partial(in_kernel, kernel, in_lanes) if native else in_lanes
        found: Array = by_mode(mode, first, in_lanes, network, *given)
        return found

    found: Callable[..., Array] = batched_shell(core)
    return found


def _tangent(primals: tuple[Any, ...], tangents: tuple[Any, ...], out: NodeState, mode: str) -> NodeState:
    """Tangents of the solution by the implicit function theorem: J turn = d(injections) - J d(held magnitudes)."""
    network, topology, p, q, *v_set = primals
    placed = place(network, topology)
    solved = (out.status == Status.CONVERGED).astype(out.e.dtype)
    angle = placed.in_use & ~(jnp.arange(2 * network.n_bus, dtype=jnp.int32) == placed.slack)
    free = jnp.where(jnp.stack([angle, placed.in_use & ~placed.holds], 1), solved, 0)

    def along(turn: Array) -> Array:
        return _turned(out.e, turn)

    def product(turn: Array) -> Array:
        return jax.jvp(functools.partial(injections, network, placed), (out.e,), (along(turn),))[1]

    def matrix(turn: Array) -> Array:
        return free * product(free * turn) + (1 - free) * turn

    right = jnp.stack(
        [jnp.zeros_like(x) if isinstance(t, SymbolicZero) else t for x, t in zip((p, q), tangents[2:4], strict=True)], 1
    )
    held = jnp.zeros_like(out.e)
    if v_set and not isinstance(tangents[4], SymbolicZero):
        grow = jnp.where(v_set[0] > 0, tangents[4] / jnp.where(v_set[0] > 0, v_set[0], 1), 0)
        held = held.at[:, 1].set(solved * jnp.where(placed.holds, jnp.concatenate([grow, grow]), 0))
        right = right - product(held)
    solve, back = (
        lambda _, b, transposed=transposed: _linear_of(mode, transposed)(network, topology, lax.stop_gradient(out.e), b)
        for transposed in (False, True)
    )
    turn = held + lax.custom_linear_solve(matrix, free * right, solve, transpose_solve=back)
    d_e, d_flows = along(turn), jax.jvp(functools.partial(flows, network, placed), (out.e,), (along(turn),))[1]
    whole: Any = [np.zeros(x.shape, jax.dtypes.float0) for x in (out.iterations, out.status)]
    no: Any = np.zeros(out.in_use.shape, jax.dtypes.float0)
    return NodeState(d_e, product(turn), no, d_flows, jnp.zeros_like(out.residual), *whole)


def _turned(e: Array, turn: Array) -> Array:
    """Change of e by angles and ln|V| in `turn`: d e = (1 + e)(d ln|V| + j d theta)."""
    return complex_product(near_one(e), turn[..., ::-1])


def _iron_losses(network: TopologyNetwork, topology: Array, state: NodeState) -> Array:
    """Losses () [pu] in the shunt conductance of the branches in service."""
    if network.half_conductance is None:
        return jnp.zeros((), state.e.dtype)
    placed, lines = place(network, topology), network.counts.branches
    v_from, v_to = (
        complex_product(network.v_base[bus], near_one(state.e[node]))
        for bus, node in ((network.bus[:lines], placed.f), (network.bus[lines : 2 * lines], placed.t))
    )
    square = jnp.sum(jnp.square(complex_product(network.ratio, v_from)) + jnp.square(v_to), 1)
    return jnp.sum(jnp.where(placed.on, network.half_conductance * square, 0))


def _expand(network: TopologyNetwork, topology: Array, state: NodeState) -> TopologyResult:
    # real and imaginary parts apart: XLA would write pairs to memory, a twentieth of the time of a flow
    (a, b), (x, y) = jnp.concatenate([network.v_base, network.v_base]).T, (1 + state.e[:, 0], state.e[:, 1])
    (p_from, q_from), (p_to, q_to), (i_re, i_im) = (x.T for x in state.flows)
    p_slack, q_slack = state.s[reference(network, topology)[0]]
    return TopologyResult(
        v_re=jnp.where(state.in_use, a * x - b * y, 0),
        v_im=jnp.where(state.in_use, a * y + b * x, 0),
        in_use=state.in_use,
        p_node=state.s[:, 0],
        q_node=state.s[:, 1],
        i_re=i_re,
        i_im=i_im,
        p_from=p_from,
        q_from=q_from,
        p_to=p_to,
        q_to=q_to,
        p_loss=jnp.sum(network.r * (i_re**2 + i_im**2)) + _iron_losses(network, topology, state),
        q_loss=jnp.sum(q_from + q_to),
        p_slack=p_slack,
        q_slack=q_slack,
        residual=state.residual,
        iterations=state.iterations,
        status=state.status,
    )
