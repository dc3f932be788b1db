"""Low-rank correction of a factored meshed network for changed branches, and the terms that its equations gain.

Textbook symbols as in `meshed.equations`. A branch k in service adds to the injections of its two ends

    s_f = S_f |w_f|^2 + A_ft w_f conj(e_t - e_f),    s_t = S_t |w_t|^2 + A_tf w_t conj(e_f - e_t)

and to the Jacobian U_k V_k', with V_k' = (theta_f - theta_t, ln|V_f|, ln|V_t|). Changing the status of some branches by
D = diag(d_k) gives the inverse (Woodbury 1950; Alsac, Stott, Tinney 1983, doi:10.1109/TPAS.1983.318031)

    (J + U D V')^-1 = J^-1 - C (I + D V' C)^-1 D V' J^-1,    C = J^-1 U

The lanes of a batch are groups times members: all members of a group share their changes.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from powerzoo_jax.base import double_single as ds
from powerzoo_jax.base import struct
from powerzoo_jax.base.numerics import FLOAT
from powerzoo_jax.cases import Case
from powerzoo_jax.cases.topology import branch_positions
from powerzoo_jax.powerflow.batching import in_groups
from powerzoo_jax.powerflow.chord import Progress, iterate
from powerzoo_jax.powerflow.meshed import chord
from powerzoo_jax.powerflow.meshed import equations as eqs
from powerzoo_jax.powerflow.meshed.base_case import BaseState
from powerzoo_jax.powerflow.meshed.chord import ChordIteration, Shared, System
from powerzoo_jax.powerflow.meshed.exact import gained
from powerzoo_jax.powerflow.meshed.factors import MeshedCore, MeshedNetwork
from powerzoo_jax.powerflow.meshed.fixed import (
    FARTHEST,
    MOVE,
    bicgstab,
    choose,
    chord_steps,
    constant_inverse,
    newton_lanes,
    newton_status,
    rotation,
)
from powerzoo_jax.powerflow.meshed.layout import MeshedLayout
from powerzoo_jax.powerflow.meshed.newton import LONGEST, newton
from powerzoo_jax.powerflow.meshed.solve import GROUP, NEWTON_GROUP
from powerzoo_jax.powerflow.newton import NEWTON_LEFT, damping
from powerzoo_jax.powerflow.result import Status
from powerzoo_jax.powerflow.wide import Wide

Parts = tuple[Any, Any]  # real and imaginary: arrays, or pairs of floats
Inverse = Callable[[Array], Array]  # (N, 2, B) -> (N, 2, B)
RANK = 3  # of one branch: the angle across it and the magnitudes of its ends
REST = 32  # a batch goes on together while more than one lane in 32 is unfinished


@struct.dataclass(kw_only=True)
class BranchTerms:
    """Contribution of every branch to the equations when it is in service, at the base voltage, case order.

    s_from, s_to:  (L, 2)  [pu]  S_f, S_t: power entering at both ends
    a_from, a_to:  (L, 2)  [pu]  A_ft, A_tf
    """

    s_from: Array
    s_to: Array
    a_from: Array
    a_to: Array


class PvToPq(NamedTuple):
    """PV buses that have become PQ buses by the loss of a unit, at most one in each of G groups of lanes.

    bus:   (G,)       int32  internal position
    lost:  (G,)       bool   False: none in this group
    read:  (N, 2, G)         what the magnitude asks for per injection left
    """

    bus: Array
    lost: Array
    read: Array


class Change(NamedTuple):
    """Changes of status, K branches in each of G groups of lanes; where a bus is freed K is 1 and the status 0.

    f, t:                  (K, G)     int32  internal bus positions
    from_cell, to_cell:    (K, G)     int32  as in `MeshedLayout`
    terms:                 BranchTerms of (K, G, 2), times the change of status d
    weight:                (R, N, 2, G)      -C (I + D V' C)^-1 D, or the answer to the magnitude that is freed
    freed:                 PvToPq, None where no outage of a unit is among the lanes
    """

    f: Array
    t: Array
    from_cell: Array
    to_cell: Array
    terms: BranchTerms
    weight: Any
    freed: PvToPq | None = None


class OutageProgress(NamedTuple):
    """Progress of the lanes of a batch: e and the injections left (N, 2, B), the rest (B,)."""

    e: Array
    left: Array
    residual: Array
    steps: Array
    stopped: Array
    status: Array


def scenarios(shared: Shared, given: tuple[Array, ...]) -> tuple[Array, Array]:
    """Injections (B, N) counted from the base state, and the base state at the set-points: (N, 2, B) each."""
    aim, start = chord.mismatch_targets(shared, given)
    return aim.target, jnp.zeros_like(aim.target) if start is None else start


def branch_terms(case: Case, v: np.ndarray) -> dict[str, np.ndarray]:
    """Fields of `BranchTerms`, (L,) complex, at base voltages v (N,) complex; every branch as if in service."""
    f, t = branch_positions(case)
    b = case.branch
    y = 1 / (b.r_pu + 1j * b.x_pu)
    a = b.tap * np.exp(1j * np.deg2rad(b.shift_deg))
    own = y + 0.5j * b.b_pu
    a_from, a_to = -v[f] * np.conj(y / np.conj(a) * v[t]), -v[t] * np.conj(y / a * v[f])
    s_from, s_to = np.abs(v[f]) ** 2 * np.conj(own) / b.tap**2 + a_from, np.abs(v[t]) ** 2 * np.conj(own) + a_to
    return dict(s_from=s_from, s_to=s_to, a_from=a_from, a_to=a_to)


def branch_columns(case: Case, base: BaseState, terms: dict[str, np.ndarray], branches: np.ndarray) -> np.ndarray:
    """C of some branches, (K, 3, N, 2) float64 in case order: J^-1 times their part of the Jacobian (host)."""
    f, t = (x[branches] for x in branch_positions(case))
    s_from, s_to, a_from, a_to = (terms[name][branches] for name in ("s_from", "s_to", "a_from", "a_to"))
    pushed = np.zeros((len(branches), RANK, case.n_bus), complex)
    rows = np.arange(len(branches))
    # dS_f / dln|V_f| = 2 A_ff + A_ft with A_ff = S_f - A_ft
    pushed[rows, :, f] += np.stack([1j * a_from, 2 * s_from - a_from, a_from], 1)
    pushed[rows, :, t] += np.stack([-1j * a_to, a_to, 2 * s_to - a_to], 1)
    return base.solve(pair(pushed).reshape(-1, case.n_bus, 2)).reshape(*pushed.shape, 2)


def pair(z: np.ndarray) -> np.ndarray:
    """Complex (...) as (..., 2)."""
    return np.stack([z.real, z.imag], -1)


def across(near: Any, far: Any) -> list[Any]:
    """V' of branches: the angle across and both magnitudes, from (2, ...) at both ends."""
    return [near[0] - far[0], near[1], far[1]]


def change_of(layout: MeshedLayout, terms: BranchTerms, branch: Array, status: Array, weight: Array) -> Change:
    """The change of branches (K, G) by `status` (K, G)."""
    taken = jax.tree.map(lambda x: x[branch] * status[..., None].astype(x.dtype), terms)
    f, t, from_cell, to_cell = (x[branch] for x in (layout.f, layout.t, layout.from_cell, layout.to_cell))
    return Change(f, t, from_cell, to_cell, taken, weight)


def branch_power(near: Parts, far: Parts, gap: Parts, terms: BranchTerms) -> tuple[Parts, Parts]:
    """s_f and s_t of branches; real and imaginary parts (..., B) apart: XLA does not vectorise over a pair in between.

    near, far:  1 + e at the from and at the to end      gap:  e_to - e_from      terms:  (..., 2)
    """
    s_f = _entering(near, gap, terms.s_from, terms.a_from)
    s_t = _entering(far, (-gap[0], -gap[1]), terms.s_to, terms.a_to)
    return s_f, s_t


def _entering(w: Parts, gap: Parts, s: Array, a: Array) -> Parts:
    square = w[0] * w[0] + w[1] * w[1]
    re, im = a[..., 0, None], a[..., 1, None]
    x, y = re * gap[0] + im * gap[1], im * gap[0] - re * gap[1]
    return s[..., 0, None] * square + (w[0] * x - w[1] * y), s[..., 1, None] * square + (w[0] * y + w[1] * x)


def _ends(x: Array, change: Change) -> tuple[Array, Array]:
    """Rows of x (N, c, B) at both ends of the changed branches, (K, G, c, B / G) each."""
    groups = change.f.shape[1]
    grouped = x.reshape(*x.shape[:2], groups, -1)
    at = jnp.arange(groups)[None]
    return grouped[change.f, :, at], grouped[change.t, :, at]


def mismatch(shared: Shared, change: Change | None, target: Array, e: Array) -> Array:
    """Mismatch of the injections of the changed network, (N, 2, B) [pu]; target counts from the old base state."""
    left = eqs.mismatch(shared.layout, shared.core.main, target, e)
    if change is None:
        return left
    (a, b), (c, d) = ((x[:, :, 0], x[:, :, 1]) for x in _ends(e, change))
    flows = branch_power((1 + a, b), (1 + c, d), (c - a, d - b), change.terms)
    s_f, s_t = (jnp.stack(s, 2) for s in flows)
    groups = change.f.shape[1]
    at = jnp.arange(groups)[None]
    grouped = left.reshape(*left.shape[:2], groups, -1)
    return grouped.at[change.f, :, at].add(-s_f).at[change.t, :, at].add(-s_t).reshape(left.shape)


def correction(shared: Shared, change: Change | None, left: Array, inverse: Inverse | None = None) -> Array:
    """Chord step (N, 2, B) [rad, -] with the corrected inverse; `inverse` stands for the blocked one."""
    plain = eqs.correction(shared.layout, shared.core.blocks, left) if inverse is None else inverse(left)
    if change is None:
        return plain
    groups = change.f.shape[1]
    near, far = (jnp.moveaxis(x, 2, 0) for x in _ends(plain, change))
    moved = jnp.stack(across(near, far), 1).reshape(-1, groups, left.shape[2] // groups)
    if change.freed is not None:
        grouped = left.reshape(*left.shape[:2], groups, -1)
        asked = jnp.sum(change.freed.read[..., None].astype(left.dtype) * grouped, (0, 1))
        moved = moved.at[0].set(jnp.where(change.freed.lost[:, None], asked, moved[0]))
    # the barrier keeps XLA from gathering the ends anew for every row of the result
    moved = lax.optimization_barrier(moved)
    step = plain.reshape(*plain.shape[:2], groups, -1)
    for r in range(moved.shape[0]):
        step = step + change.weight[r, ..., None].astype(step.dtype) * moved[r][None, None]
    return lax.optimization_barrier(step.reshape(plain.shape))


def run_chord(
    shared: Shared, change: Change | None, target: Array, start: Array, tol: float, max_steps: int, rest: int = 0
) -> OutageProgress:
    """Lanes after the corrected chord, run until 1 / rest of them are left, none for rest = 0; change None is none."""
    system = System(functools.partial(mismatch, shared, change, target), functools.partial(correction, shared, change))
    batch, none = target.shape[2], chord.nothing_mixed(target)
    # the first step is larger than any other: a pace can be learnt from the second step on
    lanes = Progress.begin(jnp.full(batch, jnp.inf, target.dtype), jnp.ones(batch, target.dtype), 0)
    begin = ChordIteration(start, system.unserved(start), none, none, lanes)
    step = functools.partial(chord.advance, system, tol=tol, patient=True)
    end: ChordIteration = iterate(step, begin, taken=0, max_steps=max_steps, rest=rest)
    lanes = end.lanes
    status = jnp.where(lanes.settled, jnp.int32(Status.CONVERGED), jnp.int32(Status.OUT_OF_STEPS))
    return OutageProgress(end.e, end.left, _residual(shared, change, end.left), lanes.steps, lanes.stopped, status)


def _residual(shared: Shared, change: Change | None, left: Array) -> Array:
    """Largest mismatch at the equations that lanes have to meet, (B,)."""
    size = eqs.largest(left * shared.layout.free[:, :, None].astype(left.dtype))
    if change is None or change.freed is None:
        return size
    bus, lost, _ = change.freed
    own = jnp.abs(left.reshape(*left.shape[:2], lost.shape[0], -1)[bus, 1, jnp.arange(lost.shape[0])])
    return jnp.maximum(size, jnp.where(lost[:, None], own, 0).reshape(-1))


def settle(
    shared: Shared, change: Change, target: Array, start: Array, begin: Array, tol: float, max_steps: int
) -> OutageProgress:
    """Solution of a batch of lanes in the changed network: chord together, the slow in groups, then Newton in float64.

    target:  (N, 2, B) injections counted from the base state
    start:   (N, 2, B) deviation where the chord starts      begin:  likewise Newton
    """
    batch, groups = target.shape[2], change.f.shape[1]
    # lanes of one change take much the same number of steps: none is worth a group of its own
    found = run_chord(shared, change, target, start, tol, max_steps, REST if groups > 1 else 0)
    if groups == 1:
        return finish(shared, change, target, begin, found)

    def go_on(constants: Any, given: tuple[Array, ...], lanes: OutageProgress) -> OutageProgress:
        shared, change = constants
        target, group = given
        out = run_chord(shared, _chosen(change, group), target, lanes.e, tol, max_steps)
        return out._replace(steps=lanes.steps + out.steps)

    inputs = (target, _group(change, batch))
    found = in_groups(~found.stopped, GROUP, go_on, (shared, change), inputs, found, last=True)
    return finish(shared, change, target, begin, found)


def finish(shared: Shared, change: Change, target: Array, begin: Array, found: OutageProgress) -> OutageProgress:
    """Lanes with those that the chord has left solved by Newton's method in float64; arguments as of `settle`."""

    def newton_lanes(constants: Any, given: tuple[Array, ...], lanes: OutageProgress) -> OutageProgress:
        shared, change = constants
        target, begin, group = given
        return _newton(shared, _chosen(change, group), target, begin, lanes)

    inputs = (target, begin, _group(change, target.shape[2]))
    failed = found.status != Status.CONVERGED
    solved: OutageProgress = in_groups(failed, NEWTON_GROUP, newton_lanes, (shared, change), inputs, found, last=True)
    return solved


def settle_fixed(
    shared: Shared,
    change: Change | None,
    target: Array,
    start: Array,
    begin: Array,
    tol: float,
    count: int,
    *,
    rest: bool,
) -> OutageProgress:
    """`settle` in a fixed number of chord steps; with `rest`, lanes that are left are solved after one question."""
    inverse = constant_inverse(shared)
    # a product with the whole inverse reads every row: what is ignored must be a number
    rows = _rows(shared, change, target)
    fine = jnp.isfinite(target)
    sound, target = jnp.all(fine | ~rows, (0, 1)), jnp.where(fine, target, 0)
    system = System(
        lambda e: mismatch(shared, change, target, e),
        lambda left: correction(shared, change, jnp.where(rows, left, 0), inverse),
    )
    e, reached = chord_steps(system, target, start, count, tol, mix=False)
    near = (eqs.largest(e) < FARTHEST) & sound
    e = choose(near, e, 0)
    left = system.unserved(e)
    lost = jnp.where(sound, jnp.int32(Status.OUT_OF_STEPS), jnp.int32(Status.BAD_INPUT))
    found = OutageProgress(
        e=e,
        left=left,
        residual=_residual(shared, change, left),
        steps=jnp.full(sound.shape, count, jnp.int32),
        stopped=jnp.ones_like(sound),
        status=jnp.where(near & reached, jnp.int32(Status.CONVERGED), lost),
    )
    if not rest:
        return found
    todo = (found.status == Status.OUT_OF_STEPS) & jnp.all(jnp.isfinite(begin), (0, 1))
    solve = functools.partial(_newton_krylov, shared, change, target, system, rows)
    solved: OutageProgress = lax.cond(jnp.any(todo), solve, lambda *given: given[-1], begin, todo, found)
    return solved


def _rows(shared: Shared, change: Change | None, like: Array) -> Array:
    """Equations that lanes have to meet, (N, 2, B) bool."""
    rows = jnp.broadcast_to(shared.layout.free[:, :, None], like.shape)
    if change is None or change.freed is None:
        return rows
    bus, lost, _ = change.freed
    grouped = rows.reshape(*like.shape[:2], lost.shape[0], -1)
    return grouped.at[bus, 1, jnp.arange(lost.shape[0])].max(lost[:, None]).reshape(like.shape)


class _ExactState(NamedTuple):
    """Deviation of lanes from the base voltage, e + d (N, 2, B) [pu]: rounded, and what is left of it."""

    e: Array
    d: Array


def _newton_krylov(
    shared: Shared,
    change: Change | None,
    target: Array,
    system: System,
    rows: Array,
    begin: Array,
    todo: Array,
    found: OutageProgress,
) -> OutageProgress:
    """Lanes with those `todo` solved by an inexact Newton method with a residual in pairs of floats; products only."""
    stop = MOVE[found.e.dtype.name]

    def exact(at: _ExactState) -> Array:
        return jnp.where(rows, _exact_mismatch(shared, change, target, at), 0)

    def step(at: _ExactState) -> tuple[_ExactState, Array]:
        def product(x: Array) -> Array:
            turned = eqs.turn(at.e, jnp.where(rows, x, 0))
            return jnp.where(rows, -jax.jvp(system.unserved, (at.e,), (turned,))[1], 0)

        def inverse(left: Array) -> Array:
            return jnp.where(rows, system.correction(left), 0)

        zeta = bicgstab(product, inverse, exact(at))
        longest = eqs.largest(zeta)
        short = damping(longest, LONGEST)[None, None]
        return _ExactState(*ds.two_sum(at.e, at.d + rotation(at.e + at.d, zeta * short))), longest

    end = newton_lanes(step, _ExactState(begin, jnp.zeros_like(begin)), todo, found.steps, stop)
    residual = eqs.largest(exact(end.lanes))
    solved = (end.size >= 0) & (end.size <= stop) & (residual < NEWTON_LEFT)
    e = end.lanes.e + end.lanes.d
    new = OutageProgress(
        e=e,
        left=system.unserved(e),
        # the state goes out rounded: a smaller mismatch would be a claim that it cannot keep
        residual=jnp.maximum(residual, float(jnp.finfo(e.dtype).eps)),
        steps=end.steps,
        stopped=found.stopped,
        status=newton_status(end.size, solved, jnp.ones_like(solved)),
    )
    return OutageProgress(*(choose(todo, a, b) for a, b in zip(new, found, strict=True)))


def _exact_mismatch(shared: Shared, change: Change | None, target: Array, at: _ExactState) -> Array:
    """`mismatch` at e + d in pairs of floats; in float64 one float has digits enough."""
    e, d = at
    if e.dtype == jnp.float64:
        return mismatch(shared, change, target, e + d)
    left = ds.subtract(ds.pair(target), gained(shared, e, d))
    if change is None:
        return ds.value(left)
    groups = change.f.shape[1]
    every = jnp.arange(groups)
    left = ds.Pair(*(x.reshape(*x.shape[:2], groups, -1) for x in left))
    (near, far), (near_d, far_d) = _ends(e, change), _ends(d, change)

    def parts(x: Array, rest: Array) -> tuple[Wide, Wide]:
        return Wide(ds.two_sum(x[:, :, 0], rest[:, :, 0])), Wide(ds.two_sum(x[:, :, 1], rest[:, :, 1]))

    (a, b), (c, f) = parts(near, near_d), parts(far, far_d)
    flows = branch_power((1 + a, b), (1 + c, f), (c - a, f - b), change.terms)
    for end, flow in zip((change.f, change.t), flows, strict=True):
        for k in range(end.shape[0]):  # one after the other: a scattered sum would round
            part = ds.Pair(*(jnp.stack([re[k], im[k]]) for re, im in zip(*(x.pair for x in flow), strict=True)))
            placed = (jnp.zeros_like(left.high).at[end[k], :, every].set(jnp.moveaxis(x, 0, 1)) for x in part)
            left = ds.subtract(left, ds.Pair(*placed))
    return ds.value(left).reshape(e.shape)


def _group(change: Change, batch: int) -> Array:
    """Group of every lane, (B,) int32."""
    return jnp.arange(batch, dtype=jnp.int32) // (batch // change.f.shape[1])


def _chosen(change: Change, group: Array) -> Change:
    """The changes of single lanes, a group each."""
    small = jax.tree.map(lambda x: jnp.take(x, group, axis=1), change._replace(weight=(), freed=None))
    last = jax.tree.map(lambda x: jnp.take(x, group, axis=-1), (change.weight, change.freed))
    chosen: Change = small._replace(weight=last[0], freed=last[1])
    return chosen


def _newton(shared: Shared, change: Change, target: Array, begin: Array, lanes: OutageProgress) -> OutageProgress:
    """Full Newton of a few lanes, a network each, in float64 also inside a float32 program."""
    dtype = target.dtype
    with jax.enable_x64(True):
        one = functools.partial(_newton_lane, *shared)
        wide = [x.astype(jnp.float64) for x in (target, begin)]
        plain = change._replace(weight=(), freed=None)
        lanes_of = jax.vmap(one, in_axes=(1, -1, 2, 2), out_axes=(2, 0, 0, 0))
        e, residual, steps, status = lanes_of(plain, change.freed, *wide)
        e, residual = e.astype(dtype), residual.astype(dtype)
    left = mismatch(shared, change, target, e)
    return OutageProgress(e, left, residual, lanes.steps + steps, jnp.ones_like(lanes.stopped), status)


def _newton_lane(
    layout: MeshedLayout, core: MeshedCore, change: Change, freed: PvToPq | None, target: Array, begin: Array
) -> Any:
    """One lane (N, 2): e, residual, steps, status; its injections count from the base state of the changed network."""
    terms = jax.tree.map(lambda x: x.astype(jnp.float64), change.terms)
    net = _changed_network(layout, core.wide, change, terms)
    moved = target.at[change.f].add(-terms.s_from).at[change.t].add(-terms.s_to)
    gone = None if freed is None else (freed.bus, freed.lost)
    e, *rest = newton(layout, net, eqs.Aim(moved[:, :, None]), begin[:, :, None], gone)
    return e[:, :, 0], *(x[0] for x in rest)


def _changed_network(layout: MeshedLayout, net: MeshedNetwork, change: Change, terms: BranchTerms) -> MeshedNetwork:
    """The network with the changed branches in its numbers; what only products with the transpose read is left out."""
    cells = [jnp.concatenate([getattr(x, name).reshape(-1) for x in net.tables]) for name in ("out_re", "out_im")]
    cells = [x.at[change.from_cell].add(terms.a_from[:, c], mode="drop") for c, x in enumerate(cells)]
    cells = [x.at[change.to_cell].add(terms.a_to[:, c], mode="drop") for c, x in enumerate(cells)]
    tables, begin = [], 0
    for table in net.tables:
        size, shape = table.out_re.size, table.out_re.shape
        re, im = (x[begin : begin + size].reshape(shape) for x in cells)
        tables.append(dataclasses.replace(table, out_re=re, out_im=im))
        begin += size
    changed: MeshedNetwork = dataclasses.replace(
        net,
        s_base=net.s_base.at[change.f].add(terms.s_from).at[change.t].add(terms.s_to),
        own=net.own.at[change.f].add(terms.s_from - terms.a_from).at[change.t].add(terms.s_to - terms.a_to),
        tables=tuple(tables),
    )
    return changed


def as_device(columns: np.ndarray) -> Array:
    """Columns (..., N, 2) in the precision of the inverse that they correct."""
    return jnp.asarray(columns, FLOAT)
