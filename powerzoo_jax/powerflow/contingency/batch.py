"""The batched core of outages: tiles of lanes, a change of the network for each, and their report."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from powerzoo_jax.base.solver_mode import AUTO, by_mode
from powerzoo_jax.powerflow.contingency.factors import OutageFactors, OwnNetworks
from powerzoo_jax.powerflow.contingency.result import OutageResult, outage_reading
from powerzoo_jax.powerflow.contingency.woodbury import (
    Change,
    OutageProgress,
    PvToPq,
    change_of,
    correction,
    finish,
    mismatch,
    run_chord,
    scenarios,
    settle,
    settle_fixed,
)
from powerzoo_jax.powerflow.meshed import equations as eqs
from powerzoo_jax.powerflow.meshed.chord import Shared, inside, outside
from powerzoo_jax.powerflow.native.library import in_kernel
from powerzoo_jax.powerflow.native.solve import solve_native
from powerzoo_jax.powerflow.result import Status

TILE = 128  # lanes that iterate together on a CPU core
WIDE = 65_536  # and on accelerators
KERNEL_TILE = 1_024  # and that the compiled kernel is given at once
SHARING = 32  # scenarios from which on the factors of an outage of its own are worth reading
START_STEPS = 3  # chord steps to the state before the outage, which is only a place to start from


class Kind(NamedTuple):
    """Arrays that a call hands in and results that it asks for; static.

    held, units, chosen:  set-points, outputs of the units, rows are among the inputs
    states, keep:         voltages and flows are asked for, the deviations themselves are
    """

    held: bool
    units: bool
    chosen: bool
    states: bool
    keep: bool = False


class OutageInputs(NamedTuple):
    """Arrays of a call: injections and set-points (..., N), outputs (..., G), rows (..., K); None where not given."""

    p: Array
    q: Array
    v_set: Array | None
    output: tuple[Array, Array] | None
    only: Array | None

    @property
    def given(self) -> tuple[Array, ...]:
        return (self.p, self.q) if self.v_set is None else (self.p, self.q, self.v_set)


def inputs_of(kind: Kind, arrays: tuple[Array, ...]) -> OutageInputs:
    """Name the arrays that a call of this kind hands in."""
    p, q, *rest = arrays
    only = rest.pop() if kind.chosen else None
    v_set = rest.pop(0) if kind.held else None
    return OutageInputs(p, q, v_set, (rest[0], rest[1]) if kind.units else None, only)


class OutageScenarios(NamedTuple):
    """Scenarios: injections counted from the base state, where the chord and Newton start (N, 2, B), and the output of
    all units (2, G, B), None where none is lost.
    """

    target: Array
    start: Array
    begin: Array
    output: Array | None


class Iteration(NamedTuple):
    """Iteration of the lanes; static. `steps` is the number of chord steps at most or, fixed, in every lane."""

    tol: float
    steps: int
    mode: str
    fixed: bool

    @property
    def width(self) -> int:
        """Lanes that iterate together."""
        return WIDE if self.fixed else TILE

    def settle(self, shared: Shared, change: Change, lanes: OutageScenarios) -> OutageProgress:
        """Lanes after outages that correct the inverse of the intact network."""
        given = shared, change, lanes.target, lanes.start, lanes.begin, self.tol, self.steps
        return settle_fixed(*given, rest=self.mode == AUTO) if self.fixed else settle(*given)


def solve_outages(
    outages: OutageFactors, inputs: OutageInputs, kind: Kind, tol: float, max_steps: int, mode: str
) -> Any:
    """The batched core: (B, N) scenarios -> OutageResult, OutageStates or (), deviations (B, O, N, 2) or ()."""
    forms = Iteration(tol, max_steps, mode, False), Iteration(tol, outages.steps, mode, True)
    adaptive, fixed = (functools.partial(_solve, kind, form) for form in forms)
    # many scenarios of an outage share what factors of its own cost to read: a little faster than a factorisation each
    shares = outages.own is not None and inputs.p.shape[0] >= SHARING and inputs.only is None
    if mode == AUTO and outages.meshed.native is not None and not shares:
        adaptive = functools.partial(in_kernel, functools.partial(_solve_in_kernel, kind), adaptive)
    return by_mode(mode, adaptive, fixed, outages, inputs)


def _solve_in_kernel(kind: Kind, outages: OutageFactors, inputs: OutageInputs) -> Any:
    """Newton's method of the compiled kernel, factorised anew after every outage."""
    meshed, layout = outages.meshed, outages.meshed.layout
    native, batch = meshed.native, inputs.p.shape[0]
    assert native is not None
    every = jnp.arange(outages.n_outage, dtype=jnp.int32)
    only = jnp.broadcast_to(every, (batch, outages.n_outage)) if inputs.only is None else inputs.only
    # set-points stand where the chord has a place to start from
    v_set = inputs.p[:, :0] if inputs.v_set is None else inputs.v_set
    lanes = OutageScenarios(
        inside(layout, inputs.p, inputs.q), v_set.T[:, None], v_set.T[:0, None], outputs(outages, inputs)
    )

    def solve(rows: Array, mine: OutageScenarios) -> Any:
        given: tuple[Array, ...] = outside(layout, without_units(outages, rows, mine.target, mine.output))
        at, holds = jnp.arange(rows.shape[0]), jnp.broadcast_to(meshed.held, (rows.shape[0], meshed.n_bus))
        islanding = outages.islanding[rows]
        lost = jnp.where(islanding | (outages.branch[rows] < 0), meshed.branch.r_pu.shape[0], outages.branch[rows])
        on = jnp.broadcast_to(meshed.branch.in_service, (rows.shape[0], meshed.branch.r_pu.shape[0]))
        on = on.at[at, lost].set(0, mode="drop")
        if outages.n_unit_outage:
            unit, takes = _unit_rows(outages, rows)
            freed = outages.frees[unit] & takes
            holds = holds.at[at, layout.inward[outages.bus[unit]]].min(~freed)
        given = given if inputs.v_set is None else (*given, mine.start[:, 0].T)
        found = solve_native(native, given, in_service=on, holds=holds)
        e = inside(layout, found.e_re, found.e_im)
        rest = inside(layout, found.polished.d_re, found.polished.d_im)
        summary, states = outage_reading(outages, rows, e, rest)
        status = jnp.where(islanding, jnp.int32(Status.ISLANDED), found.status)
        result = OutageResult(status=status, residual=found.residual, iterations=found.iterations, **summary)
        return result, states if kind.states else (), jnp.moveaxis(e + rest, 2, 0) if kind.keep else ()

    return _solve_some(solve, lanes, only, KERNEL_TILE)


def _solve(kind: Kind, form: Iteration, outages: OutageFactors, inputs: OutageInputs) -> Any:
    shared = Shared(outages.meshed.layout, outages.meshed.core)
    target, begin = scenarios(shared, inputs.given)
    lanes = OutageScenarios(target, _intact(shared, target, begin), begin, outputs(outages, inputs))

    def solve(rows: Array, change: Change, lanes: OutageScenarios) -> Any:
        target = without_units(outages, rows, lanes.target, lanes.output)
        mine = lanes._replace(target=target, start=_shifted(outages, rows, lanes.start))
        return _account(outages, shared, rows, change, form.settle(shared, change, mine), kind)

    def solve_own(rows: Array, read: tuple[Change, OwnNetworks], lanes: OutageScenarios) -> Any:
        change, own = read
        found = _own_chord(shared, own, lanes, form.tol, form.steps)
        found = found._replace(e=_shifted(outages, rows, found.e))
        found = finish(shared, change, lanes.target, lanes.begin, found)
        # e was rounded anew; a program that does not read flows does not pay for this
        found = found._replace(left=mismatch(shared, change, lanes.target, found.e))
        return _account(outages, shared, rows, change, found, kind)

    def read(rows: Array) -> Change:
        return outage_change(outages, rows)

    def read_own(rows: Array) -> tuple[Change, OwnNetworks]:
        return read(rows), jax.tree.map(lambda x: x[rows[0]], outages.own)

    if inputs.only is not None:
        return _solve_some(lambda rows, lanes: solve(rows, read(rows), lanes), lanes, inputs.only, form.width)
    rows, batch = jnp.arange(outages.n_outage, dtype=jnp.int32), target.shape[2]
    # networks of their own take fewer steps, one outage after the other: accelerators take many outages at once
    if outages.own is None or batch < SHARING or form.fixed:
        return _solve_all(solve, read, lanes, rows, form.width)
    first = outages.n_outage - outages.n_unit_outage
    found = _solve_all(solve_own, read_own, lanes, rows[:first], min(form.width, batch))
    if outages.n_unit_outage == 0:
        return found
    of_units = _solve_all(solve, read, lanes, rows[first:], form.width)
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b], 1), found, of_units)


def _own_chord(shared: Shared, own: OwnNetworks, lanes: OutageScenarios, tol: float, max_steps: int) -> OutageProgress:
    """The chord of one outage of a branch in its own network, whose base voltage e counts from."""
    core = dataclasses.replace(shared.core, main=own.networks, blocks=own.blocks)
    target = lanes.target + own.offset[:, :, None]
    return run_chord(shared._replace(core=core), None, target, lanes.start, tol, max_steps)


def outputs(outages: OutageFactors, inputs: OutageInputs) -> Array | None:
    """Output of all units, (2, G, B) [pu]; None where no outage takes one."""
    if outages.n_unit_outage == 0:
        return None
    given = (outages.p_unit, outages.q_unit) if inputs.output is None else inputs.output
    count = inputs.p.shape[0]
    return jnp.stack([jnp.broadcast_to(x, (count, x.shape[-1])).T for x in given])


def _intact(shared: Shared, target: Array, e: Array) -> Array:
    """The state before the outage, to a few digits."""
    for _ in range(START_STEPS):
        left = eqs.mismatch(shared.layout, shared.core.main, target, e)
        e = eqs.rotate(e, eqs.correction(shared.layout, shared.core.blocks, left))
    return jnp.where(jnp.isfinite(e), e, 0)


def _shifted(outages: OutageFactors, rows: Array, start: Array) -> Array:
    """Starting point of the chord: the state before the outage, turned as the outage turns the base state."""
    a = start.reshape(*start.shape[:2], rows.shape[0], -1)
    b = jnp.moveaxis(outages.start[rows], 0, -1)[..., None]
    re = a[:, 0] + b[:, 0] + (a[:, 0] * b[:, 0] - a[:, 1] * b[:, 1])
    im = a[:, 1] + b[:, 1] + (a[:, 0] * b[:, 1] + a[:, 1] * b[:, 0])
    return jnp.stack([re, im], 1).reshape(start.shape)


def _solve_all(solve: Any, read: Any, lanes: OutageScenarios, rows: Array, width: int) -> Any:
    """Outages (O,) of all scenarios in tiles of `width` lanes; the scenarios of an outage side by side.

    What a tile reads of the factors passes through the loop: XLA would compute it inside of every product that uses it.
    """
    batch, count = lanes.target.shape[2], rows.shape[0]
    members = min(batch, width)
    groups = min(count, max(width // members, 1))
    pieces, rows = _cut_lanes(lanes, members), _cut(rows, groups)
    n_row, n_piece = rows.shape[0], pieces.target.shape[0]

    def tile(k: Array, facts: Any) -> Any:
        mine = jax.tree.map(lambda x: jnp.tile(x[k % n_piece if n_piece > 1 else 0], (1, 1, groups)), pieces)
        found = solve(rows[k // n_piece], facts, mine)
        return jax.tree.map(lambda x: jnp.moveaxis(x.reshape(groups, members, *x.shape[1:]), 1, 0), found)

    def write(k: Array, carry: tuple[Any, Any]) -> tuple[Any, Any]:
        every, facts = carry
        # in place: stacked tiles would be copied once more to bring scenarios first
        at = (k % n_piece) * members, (k // n_piece) * groups
        every = jax.tree.map(
            lambda x, new: lax.dynamic_update_slice(x, new, (*at, *(jnp.int32(0),) * (x.ndim - 2))),
            every,
            tile(k, facts),
        )
        return every, read(rows[jnp.minimum((k + 1) // n_piece, n_row - 1)])

    facts = read(rows[0])
    first = jax.eval_shape(tile, jnp.int32(0), facts)
    every = jax.tree.map(lambda x: jnp.zeros((n_piece * members, n_row * groups, *x.shape[2:]), x.dtype), first)
    every, _ = lax.fori_loop(jnp.int32(0), jnp.int32(n_row * n_piece), write, (every, facts))
    return jax.tree.map(lambda x: x[:batch, :count], every)


def _solve_some(solve: Any, lanes: OutageScenarios, only: Array, width: int) -> Any:
    """Chosen outages (B, K) of each scenario, in tiles."""
    batch, count = only.shape
    members = min(batch, max(width // count, 1))

    def tile(at: tuple[Array, OutageScenarios]) -> Any:
        return solve(at[0].reshape(-1), jax.tree.map(lambda x: jnp.repeat(x, count, axis=2), at[1]))

    out = lax.map(tile, (_cut(only, members), _cut_lanes(lanes, members)))
    return jax.tree.map(lambda x: x.reshape(-1, count, *x.shape[2:])[:batch], out)


def _cut(x: Array, size: int) -> Array:
    """(n, ...) in pieces (m, size, ...); the last one is filled up with the first rows of x."""
    count = -(-x.shape[0] // size)
    return jnp.take(x, jnp.arange(count * size) % x.shape[0], axis=0).reshape(count, size, *x.shape[1:])


def _cut_lanes(lanes: OutageScenarios, size: int) -> OutageScenarios:
    """(..., B) in pieces (m, ..., size)."""
    cut: OutageScenarios = jax.tree.map(lambda x: jnp.moveaxis(_cut(jnp.moveaxis(x, 2, 0), size), 1, 3), lanes)
    return cut


def outage_change(outages: OutageFactors, rows: Array) -> Change:
    """Changes of the network by outages (G,); one that islands changes nothing."""
    takes_branch = (outages.branch[rows] >= 0) & ~outages.islanding[rows]
    branch, status = jnp.maximum(outages.branch[rows], 0)[None], jnp.where(takes_branch, -1, 0)[None]
    weight = jnp.moveaxis(outages.weight[rows], 0, -1)
    change = change_of(outages.meshed.layout, outages.terms, branch, status, weight)
    if outages.n_unit_outage == 0:
        return change
    at, takes_unit = _unit_rows(outages, rows)
    freed = PvToPq(outages.bus[at], outages.frees[at] & takes_unit, jnp.moveaxis(outages.read[at], 0, -1))
    return change._replace(freed=freed)


def _unit_rows(outages: OutageFactors, rows: Array) -> tuple[Array, Array]:
    """Rows (G,) among the outages of units, 0 for those of branches, and which of them take a unit out."""
    at = rows - (outages.n_outage - outages.n_unit_outage)
    return jnp.maximum(at, 0), (at >= 0) & ~outages.islanding[rows]


def without_units(outages: OutageFactors, rows: Array, target: Array, output: Array | None) -> Array:
    """Injections (N, 2, B) after the outages of G groups: without the lost output, with what the others add."""
    if output is None:
        return target
    at, takes_unit = _unit_rows(outages, rows)
    groups = jnp.arange(rows.shape[0])
    grouped = target.reshape(*target.shape[:2], rows.shape[0], -1)
    lost = output.reshape(*output.shape[:2], rows.shape[0], -1)[:, jnp.maximum(outages.unit[rows], 0), groups]
    lost = jnp.where(takes_unit[None, :, None], lost, 0)
    grouped = grouped.at[outages.bus[at], :, groups].add(-lost.swapaxes(0, 1))
    return grouped.at[:, 0].add(outages.response[at].T[:, :, None] * lost[0][None]).reshape(target.shape)


def _account(
    outages: OutageFactors, shared: Shared, rows: Array, change: Change, found: OutageProgress, kind: Kind
) -> tuple[Any, ...]:
    """Report of a tile of lanes, read off e plus one more step that is not rounded into it."""
    members = found.status.shape[0] // rows.shape[0]
    solved = (found.status == Status.CONVERGED)[None, None]
    zeta = jnp.where(solved, correction(shared, change, found.left), 0)
    # the barrier keeps XLA from computing all of it once more for every result that reads it
    rest = lax.optimization_barrier(eqs.turn(found.e, zeta))
    islanding = jnp.repeat(outages.islanding[rows], members)
    summary, states = outage_reading(outages, jnp.repeat(rows, members), found.e, rest)
    result = OutageResult(
        status=jnp.where(islanding, jnp.int32(Status.ISLANDED), found.status),
        residual=found.residual,
        iterations=found.steps,
        **summary,
    )
    return result, states if kind.states else (), jnp.moveaxis(found.e + rest, 2, 0) if kind.keep else ()
