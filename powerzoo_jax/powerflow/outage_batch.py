"""The batched core of outages: tiles of lanes, a change of the network for each, and what they report."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from powerzoo_jax.powerflow import meshed_equations as eqs
from powerzoo_jax.powerflow.correction import Change, Freed, Progress, change_of, correction, scenarios, settle
from powerzoo_jax.powerflow.meshed_chord import Shared
from powerzoo_jax.powerflow.outage_factors import OutageFactors
from powerzoo_jax.powerflow.outage_result import OutageResult, outage_reading
from powerzoo_jax.powerflow.result import Status

TILE = 128  # lanes that iterate together on a CPU core; other devices take WIDE
WIDE = 65_536
START_STEPS = 3  # chord steps to the state before the outage, which is only a place to start from


class Kind(NamedTuple):
    """What a call hands in and asks for; static.

    held, units, chosen:  set-points, outputs of the units, rows are among the inputs
    states, keep:         voltages and flows are asked for, the deviations themselves are
    """

    held: bool
    units: bool
    chosen: bool
    states: bool
    keep: bool = False


class Inputs(NamedTuple):
    """Arrays of a call: injections and set-points (..., N), outputs (..., G), rows (..., K); None where not given."""

    p: Array
    q: Array
    v_set: Array | None
    output: tuple[Array, Array] | None
    only: Array | None

    @property
    def given(self) -> tuple[Array, ...]:
        return (self.p, self.q) if self.v_set is None else (self.p, self.q, self.v_set)


def inputs_of(kind: Kind, arrays: tuple[Array, ...]) -> Inputs:
    """Name the arrays that a call of this kind hands in."""
    p, q, *rest = arrays
    only = rest.pop() if kind.chosen else None
    v_set = rest.pop(0) if kind.held else None
    return Inputs(p, q, v_set, (rest[0], rest[1]) if kind.units else None, only)


class Lanes(NamedTuple):
    """Scenarios: injections counted from the base state, where the chord and Newton start (N, 2, B), and the output of
    all units (2, G, B), None where none is lost.
    """

    target: Array
    start: Array
    begin: Array
    output: Array | None


def solve_outages(outages: OutageFactors, inputs: Inputs, kind: Kind, tol: float, max_steps: int) -> Any:
    """The batched core: (B, N) scenarios -> OutageResult, OutageStates or (), deviations (B, O, N, 2) or ()."""
    shared = Shared(outages.meshed.layout, outages.meshed.core)
    target, begin = scenarios(shared, inputs.given)
    lanes = Lanes(target, _intact(shared, target, begin), begin, outputs(outages, inputs))

    def solve(rows: Array, lanes: Lanes) -> Any:
        change = outage_change(outages, rows)
        target = without_units(outages, rows, lanes.target, lanes.output)
        found = settle(shared, change, target, _shifted(outages, rows, lanes.start), lanes.begin, tol, max_steps)
        return _account(outages, shared, rows, change, found, kind)

    width = TILE if jax.default_backend() == "cpu" else WIDE
    if inputs.only is None:
        return _solve_all(solve, lanes, outages.n_outage, width)
    return _solve_some(solve, lanes, inputs.only, width)


def outputs(outages: OutageFactors, inputs: Inputs) -> Array | None:
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
    """Where the chord starts: the state before the outage, turned as the outage turns the base state."""
    a = start.reshape(*start.shape[:2], rows.shape[0], -1)
    b = jnp.moveaxis(outages.start[rows], 0, -1)[..., None]
    re = a[:, 0] + b[:, 0] + (a[:, 0] * b[:, 0] - a[:, 1] * b[:, 1])
    im = a[:, 1] + b[:, 1] + (a[:, 0] * b[:, 1] + a[:, 1] * b[:, 0])
    return jnp.stack([re, im], 1).reshape(start.shape)


def _solve_all(solve: Any, lanes: Lanes, count: int, width: int) -> Any:
    """All outages of all scenarios in tiles of `width` lanes; the scenarios of an outage side by side."""
    batch = lanes.target.shape[2]
    members = min(batch, width)
    groups = min(count, max(width // members, 1))
    pieces = jax.tree.map(lambda x: _cut(jnp.moveaxis(x, 2, 0), members), lanes)
    rows = _cut(jnp.arange(count, dtype=jnp.int32), groups)
    tiles = rows.shape[0], pieces.target.shape[0]

    def tile(at: tuple[Array, Array]) -> Any:
        mine = jax.tree.map(lambda x: jnp.tile(jnp.moveaxis(x[at[1]], 0, 2), (1, 1, groups)), pieces)
        return solve(rows[at[0]], mine)

    out = lax.map(tile, tuple(x.reshape(-1) for x in jnp.indices(tiles, jnp.int32)))

    def joined(x: Array) -> Array:
        x = jnp.moveaxis(x.reshape(*tiles, groups, members, *x.shape[2:]), (1, 3), (0, 1))
        return x.reshape(tiles[1] * members, tiles[0] * groups, *x.shape[4:])[:batch, :count]

    return jax.tree.map(joined, out)


def _solve_some(solve: Any, lanes: Lanes, only: Array, width: int) -> Any:
    """Chosen outages (B, K) of each scenario, in tiles."""
    batch, count = only.shape
    members = min(batch, max(width // count, 1))
    pieces = jax.tree.map(lambda x: _cut(jnp.moveaxis(x, 2, 0), members), lanes)

    def tile(at: tuple[Array, Lanes]) -> Any:
        mine = jax.tree.map(lambda x: jnp.repeat(jnp.moveaxis(x, 0, 2), count, axis=2), at[1])
        return solve(at[0].reshape(-1), mine)

    out = lax.map(tile, (_cut(only, members), pieces))
    return jax.tree.map(lambda x: x.reshape(-1, count, *x.shape[2:])[:batch], out)


def _cut(x: Array, size: int) -> Array:
    """(n, ...) in pieces (m, size, ...); the last one is filled up with the first rows of x."""
    count = -(-x.shape[0] // size)
    return jnp.take(x, jnp.arange(count * size) % x.shape[0], axis=0).reshape(count, size, *x.shape[1:])


def outage_change(outages: OutageFactors, rows: Array) -> Change:
    """The changes that outages (G,) make; one that islands changes nothing."""
    takes_branch = (outages.branch[rows] >= 0) & ~outages.islanding[rows]
    branch, status = jnp.maximum(outages.branch[rows], 0)[None], jnp.where(takes_branch, -1, 0)[None]
    weight = jnp.moveaxis(outages.weight[rows], 0, -1)
    change = change_of(outages.meshed.layout, outages.terms, branch, status, weight)
    if outages.n_unit_outage == 0:
        return change
    at, takes_unit = _unit_rows(outages, rows)
    freed = Freed(outages.bus[at], outages.frees[at] & takes_unit, jnp.moveaxis(outages.read[at], 0, -1))
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
    outages: OutageFactors, shared: Shared, rows: Array, change: Change, found: Progress, kind: Kind
) -> tuple[Any, ...]:
    """What a tile of lanes reports, read off e plus one more step that is not rounded into it."""
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
