"""Steps of the chord in deviation form, from injections to a deviation, for `powerflow.chord.iterate`.

Meshed networks and networks after outages or with open switches take the same steps; they hand in their `System`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from powerzoo_jax.powerflow.chord import STALL, Progress, error_ahead, ratio
from powerzoo_jax.powerflow.meshed import equations as eqs
from powerzoo_jax.powerflow.meshed.factors import MeshedCore
from powerzoo_jax.powerflow.meshed.layout import MeshedLayout
from powerzoo_jax.powerflow.result import Status

FLOOR = {"float32": 4e-7, "float64": 1e-15}  # steps that short are rounding: nothing is gained by going on
PACE = (0.05, 0.9)  # contraction assumed at least and at most when the last steps tell the error
PACE_MIXED = (0.5, 0.9)  # mixing makes single steps shrink by luck, which says little about the next
SHARE = (-1.0, 0.5)  # of the last step mixed in; beyond, rounding speaks: a rate of 0.5 asks for -1


class Shared(NamedTuple):
    """The part of the factors that the iteration reads."""

    layout: MeshedLayout
    core: MeshedCore


class System(NamedTuple):
    """Equations of a batch: mismatch [pu] of the injections at e, and the chord step [rad, -] for it; (N, 2, B)."""

    unserved: Callable[[Array], Array]
    correction: Callable[[Array], Array]


def system(shared: Shared, aim: eqs.Aim) -> System:
    """Equations of a meshed network."""
    layout, core = shared
    return System(
        functools.partial(eqs.unserved, layout, core.main, aim), functools.partial(eqs.correction, layout, core.blocks)
    )


class ChordIteration(NamedTuple):
    """Iterate of a batch: e, what is left, last chord step and last move (N, 2, B), both empty where nothing is mixed;
    and the progress of its lanes, whose size is the largest turn of the last step.
    """

    e: Array
    left: Array
    step: Array
    move: Array
    lanes: Progress


class ChordLanes(NamedTuple):
    """Progress of a batch lane by lane, case order: e (B, N) re and im; the rest (B,)."""

    e_re: Array
    e_im: Array
    residual: Array
    steps: Array
    stopped: Array
    status: Array


def mismatch_targets(shared: Shared, given: tuple[Array, ...]) -> tuple[eqs.Aim, Array | None]:
    """Injections to meet, counted from the base state, and the deviation to start from where set-points are given."""
    layout, core = shared
    base = core.main.s_base[:, :, None], core.rest.s_base[:, :, None]
    target = lax.optimization_barrier((inside(layout, *given[:2]) - base[0]) - base[1])
    if len(given) == 2:
        return eqs.Aim(target), None
    v_set, *share = (jnp.take(x.T, layout.inward, axis=0, mode="clip") for x in given[2:])
    holds = ~layout.free[:, 1:]
    high, low = core.main.v_mag[:, None], core.rest.v_mag[:, None]
    grow = jnp.where(holds, ((v_set - high) - low) / high, 0)
    return eqs.Aim(target, *share), jnp.stack([grow, jnp.zeros_like(grow)], 1)


def inside(layout: MeshedLayout, re: Array, im: Array) -> Array:
    """Conversion to internal order: two (B, N) in case order -> (N, 2, B) internal."""
    return jnp.stack([jnp.take(x.T, layout.inward, axis=0, mode="clip") for x in (re, im)], 1)


def outside(layout: MeshedLayout, x: Array) -> tuple[Array, Array]:
    """Conversion to case order: (N, 2, B) internal -> two (B, N) in case order."""
    return tuple(jnp.take(x[:, c], layout.outward, axis=0, mode="clip").T for c in (0, 1))  # type: ignore[return-value]


def first(
    shared: Shared, given: tuple[Array, ...], lanes: ChordLanes | None, *, mix: bool
) -> tuple[eqs.Aim, ChordIteration]:
    """Injections to meet, and the state after one step from the base state, or from where `lanes` stand."""
    layout, core = shared
    aim, start = mismatch_targets(shared, given)
    if lanes is not None:
        start = inside(layout, lanes.e_re, lanes.e_im)
    target = aim.target
    batch = target.shape[2]
    e = jnp.zeros_like(target) if start is None else start
    left = target if start is None else eqs.unserved(layout, core.main, aim, e)
    step = eqs.correction(layout, core.blocks, left)
    e = lax.optimization_barrier(eqs.rotate(e, step))
    kept = step if mix else nothing_mixed(target)
    left = eqs.unserved(layout, core.main, aim, e)
    progress = Progress.begin(eqs.largest(step), jnp.zeros(batch, target.dtype), 1)
    return aim, ChordIteration(e, left, kept, kept, progress)


def nothing_mixed(like: Array) -> Array:
    """Empty place of a step that no later one is mixed with: the loop then carries nothing for it."""
    return jnp.zeros((0,) * 3, like.dtype)


def advance(
    system: System, c: ChordIteration, *, tol: float, mix: bool = False, patient: bool = False
) -> ChordIteration:
    """One chord step of every lane that has not stopped.

    mix:      combine it with the last step (Anderson); single steps may then grow
    patient:  give a lane up only where two steps in a row fail to shrink: far from normal operation, as after an
              outage, one long step may follow a short one
    """
    step = system.correction(c.left)
    move = mixed(step, c.step, c.move) if mix else step
    size = eqs.largest(step)
    pace = ratio(size, c.lanes.size)
    ahead = error_ahead(size, jnp.maximum(pace, c.lanes.pace), PACE_MIXED if mix else PACE)
    reached = (ahead <= tol) | (size <= FLOOR[size.dtype.name])
    # a lane that stops keeps its value, whatever its neighbours go on to do
    e = lax.optimization_barrier(jnp.where(c.lanes.stopped[None, None], c.e, eqs.rotate(c.e, move)))
    left = system.unserved(e)
    shrinks = (jnp.minimum(pace, c.lanes.pace) if patient else pace) < (1 / STALL if mix else STALL)
    return ChordIteration(
        e=e,
        left=left,
        step=step if mix else c.step,
        move=move if mix else c.move,
        lanes=c.lanes.after(size, pace, reached, ~shrinks),
    )


def stand(shared: Shared, aim: eqs.Aim, lanes: ChordLanes | None, c: ChordIteration) -> ChordLanes:
    """Voltages, residuals, steps and status of lanes after chord steps; `lanes` are those before, None at the start."""
    rows = eqs.rows(shared.layout, shared=aim.share is not None)
    return ChordLanes(
        *outside(shared.layout, c.e),
        residual=eqs.largest(c.left * rows[:, :, None].astype(c.left.dtype)),
        steps=c.lanes.steps if lanes is None else lanes.steps + c.lanes.steps,
        stopped=c.lanes.stopped,
        status=jnp.where(c.lanes.settled, jnp.int32(Status.CONVERGED), jnp.int32(Status.OUT_OF_STEPS)),
    )


def mixed(step: Array, last: Array, move: Array) -> Array:
    """Combine a step with the last one, and the move made of that, so that the linearised remainder is shortest."""
    change = step - last
    share = jnp.sum(change * step, (0, 1)) / jnp.maximum(jnp.sum(change * change, (0, 1)), jnp.finfo(step.dtype).tiny)
    return step - jnp.clip(share, *SHARE)[None, None] * (move + change)
