"""Calls of the compiled kernel: power flow of a batch, and linear systems with the Jacobian at its solution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base.errors import SolverError
from powerzoo_jax.base.numerics import FLOAT
from powerzoo_jax.powerflow.meshed import chord
from powerzoo_jax.powerflow.meshed.branches import Ends, Polished, SolvedState
from powerzoo_jax.powerflow.native.factors import NativeFactors
from powerzoo_jax.powerflow.native.library import find_library

# [pu] largest mismatch of a solved lane: voltages then are within 1e-9 pu of the solution, in float32 within a rounding
TOL = {"float32": 2e-8, "float64": 2e-9}
CHORD_STEPS, NEWTON_STEPS = 20, 10  # at most, before Newton's method; of it, in floats, and twice as many in doubles


def solve_native(
    native: NativeFactors,
    given: tuple[Array, ...],
    *,
    tol: float | None = None,
    max_steps: int = CHORD_STEPS,
    in_service: Array | None = None,
    holds: Array | None = None,
) -> SolvedState:
    """Solved state of a batch: injections, and set-points where given, (B, N) each in case order.

    tol:        [pu] largest mismatch, found in float64 whatever the dtype of the program; None takes that of the dtype
    max_steps:  chord steps with the constant factors before a lane goes to Newton's method, 20 at most
    in_service: (B, L) 0 where a branch is out of service, None as in the network. With it or with
    holds:      (B, N) whether a bus holds its magnitude, None as in the network, all lanes take Newton's method

    Branches are read by a call of their own, which a program that does not use them leaves out.
    """
    batch, dtype = given[0].shape[0], given[0].dtype
    inputs = _inputs(native, given, in_service, holds)
    steps = dict(chord_steps=np.int64(min(max_steps, CHORD_STEPS)), newton_steps=np.int64(NEWTON_STEPS))
    solve = call_kernel(native.version, "solve", dtype, _state(given[0]))
    found = solve(*inputs, batch=np.int64(batch), tol=TOL[dtype.name] if tol is None else tol, **steps)
    return _with_branches(native, inputs, found)


class BoundedState(NamedTuple):
    """Solved state of a batch within reactive limits of m buses, (B, ..).

    q, holds:         (B, N)  [pu], bool  injections with what buses at a limit give, and who holds its magnitude
    at_limit:         (B, m)  int32  -1, 0 or 1
    rounds, settled:  (B,)    int32  power flows solved, and whether every limit is met
    """

    state: SolvedState
    q: Array
    holds: Array
    at_limit: Array
    rounds: Array
    settled: Array


def solve_bounded(
    native: NativeFactors, given: tuple[Array, ...], bus: Array, bounds: tuple[Array, Array], held: Array, rounds: Array
) -> BoundedState:
    """Solved state of a batch whose units keep within reactive limits: injections and set-points (B, N), case order.

    bus:     (m,) positions of the buses with limits       bounds:  their lower and upper limits, (m,) each [pu]
    held:    (N,) bool, buses that hold their magnitude where no limit is met
    rounds:  () int32, power flows of a lane at most
    """
    p, q, v_set = given
    batch, m = p.shape[0], bus.shape[0]
    whole = jax.ShapeDtypeStruct((batch,), jnp.int32)
    results = (*_state(p), jax.ShapeDtypeStruct((batch, m), jnp.int32), whole, whole)
    call = call_kernel(native.version, "bounded", p.dtype, results)
    inputs = (*_inputs(native, given), bus, *bounds, rounds[None])
    *found, at_limit, count, settled = call(
        *inputs, batch=np.int64(batch), tol=TOL["float64"], newton_steps=np.int64(NEWTON_STEPS)
    )
    limit = jnp.where(at_limit > 0, bounds[1], jnp.where(at_limit < 0, bounds[0], 0))
    q = q.at[:, bus].add(limit)
    holds = jnp.broadcast_to(held, p.shape).at[:, bus].min(at_limit == 0)
    state = _with_branches(native, _inputs(native, (p, q, v_set), None, holds), tuple(found))
    return BoundedState(state, q, holds, at_limit, count, settled)


def _inputs(
    native: NativeFactors, given: tuple[Array, ...], in_service: Array | None = None, holds: Array | None = None
) -> tuple[Array, ...]:
    """Operands of a call; arrays of size 0 stand for what is as in the network."""
    none, as_it_is = jnp.zeros(0, given[0].dtype), jnp.zeros(0, jnp.int32)
    p, q, *v_set = given
    on = none if in_service is None else in_service.astype(p.dtype)
    return (*native.operands, p, q, *(v_set or (none,)), on, as_it_is if holds is None else holds.astype(jnp.int32))


def _state(like: Array) -> tuple[Any, ...]:
    """Shapes of e, of what floats round off it, of residual, steps and status, for injections (B, N)."""
    states, lanes = (jax.ShapeDtypeStruct(shape, like.dtype) for shape in (like.shape, like.shape[:1]))
    whole = jax.ShapeDtypeStruct(like.shape[:1], jnp.int32)
    return *(states,) * (4 if like.dtype == FLOAT else 2), lanes, whole, whole


def _with_branches(native: NativeFactors, inputs: tuple[Array, ...], found: tuple[Array, ...]) -> SolvedState:
    """The state with what follows from it."""
    *state, residual, count, status = found
    (batch, _), dtype = state[0].shape, state[0].dtype
    same = jax.ShapeDtypeStruct(state[0].shape, dtype)
    flows = jax.ShapeDtypeStruct((batch, native.tables[-1].shape[0]), dtype)
    # doubles are corrected once more for the branches, floats have their remainder already
    rest = call_kernel(native.version, "rest", dtype, (*(same,) * (6 - len(state)), *(flows,) * 6))
    read = rest(*inputs, *state, status, batch=np.int64(batch), flows=False)
    (d_re, d_im), (p_left, q_left, *ends) = (state[2:], read) if len(state) == 4 else (read[:2], read[2:])
    last = Polished(d_re, d_im, p_left, q_left, jnp.zeros(batch, dtype), Ends(*ends))
    return SolvedState(state[0], state[1], last, residual, count, status)


class Readings(NamedTuple):
    """Flows and injections that are read off a solved state: fields of a `MeshedResult`."""

    p_added: Array
    q_bus: Array
    i_re: Array
    i_im: Array
    p_from: Array
    q_from: Array
    p_to: Array
    q_to: Array
    p_loss: Array
    q_loss: Array
    p_shunt: Array
    q_shunt: Array


def read_flows(factors: Any, given: tuple[Array, ...], found: SolvedState, *, holds: Array | None = None) -> Readings:
    """Flows of a solved batch, given and holds as `solve_native` has them; factors as `prepare_meshed` makes them."""
    native, dtype = factors.native, given[0].dtype
    (batch, n), flow = given[0].shape, factors.flow
    state: tuple[Array, ...] = (found.e_re, found.e_im)
    if dtype == FLOAT:
        state = (*state, found.polished.d_re, found.polished.d_im)
    buses, branches, lanes = (jax.ShapeDtypeStruct(x, dtype) for x in ((batch, n), (batch, flow.r.shape[0]), (batch,)))
    call = call_kernel(native.version, "rest", dtype, (*(buses,) * 2, *(branches,) * 6, *(lanes,) * 4))
    inputs = (*_inputs(native, given, None, holds), *state, found.status)
    numbers = (flow.half_charging, flow.r, factors.shunt, factors.held.astype(jnp.int32), factors.slack[None])
    return Readings(*call(*inputs, *numbers, batch=np.int64(batch), flows=True))


def linear_solver(native: NativeFactors) -> Callable[..., Array]:
    """`meshed.derivative.solve_linear` by the kernel: J(e) x = right, factorised in every lane in float64."""

    def solve(
        shared: Any,
        e: Array,
        s: Array,
        right: Array,
        share: Array | None = None,
        *,
        tol: float,
        transpose: bool = False,
        own: bool = False,
    ) -> Array:
        del s, share, tol, own
        given = (*chord.outside(shared.layout, e), *chord.outside(shared.layout, right))
        call = call_kernel(native.version, "linear", e.dtype, (jax.ShapeDtypeStruct(given[0].shape, e.dtype),) * 2)
        # injections do not enter the Jacobian at e
        inputs = (*_inputs(native, given[:2]), *given)
        return chord.inside(shared.layout, *call(*inputs, batch=np.int64(e.shape[2]), transposed=transpose))

    return solve


def call_kernel(version: str, name: str, dtype: Any, results: tuple[Any, ...]) -> Callable[..., Any]:
    """A handler of the library that made the factors; SolverError where another one is installed, or none."""
    library = find_library()
    if library is None or library.version != version:
        raise SolverError(
            f"The factors were made by version {version} of the compiled kernel, "
            f"{'which is not in use' if library is None else f'in use is {library.version}'}. Prepare them again."
        )
    width = "32" if dtype == FLOAT else "64"
    found: Callable[..., Any] = jax.ffi.ffi_call(library.target(name + width), results)
    return found
