"""Steps of the meshed chord, from injections to a deviation, with the progress of every lane."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from powerzoo_jax.powerflow.meshed import equations as eqs
from powerzoo_jax.powerflow.meshed.factors import MeshedCore, MeshedLayout
from powerzoo_jax.powerflow.result import Status

FLOOR = {"float32": 4e-7, "float64": 1e-15}  # steps that short are rounding: nothing is gained by going on
STALL = 0.95  # a lane whose step shrinks slower than this is left to Newton
PACE = (0.05, 0.9)  # contraction assumed at least and at most when the last steps tell the error
PACE_MIXED = (0.5, 0.9)  # mixing makes single steps shrink by luck, which says little about the next
SHARE = (-1.0, 0.5)  # of the last step mixed in; beyond, rounding speaks: a rate of 0.5 asks for -1


class Shared(NamedTuple):
    """The part of the factors that the iteration reads."""

    layout: MeshedLayout
    core: MeshedCore


class ChordIteration(NamedTuple):
    """Progress of a batch: e, what is left, last chord step and last move (N, 2, B); the rest (B,)."""

    e: Array
    left: Array
    step: Array
    move: Array
    size: Array
    pace: Array
    stopped: Array
    settled: Array
    steps: Array


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
    kept = step if mix else jnp.zeros((0,) * 3, target.dtype)
    return aim, ChordIteration(
        e=e,
        left=eqs.unserved(layout, core.main, aim, e),
        step=kept,
        move=kept,
        size=eqs.largest(step),
        pace=jnp.zeros(batch, target.dtype),
        stopped=jnp.zeros(batch, bool),
        settled=jnp.zeros(batch, bool),
        steps=jnp.ones(batch, jnp.int32),
    )


def advance(shared: Shared, aim: eqs.Aim, c: ChordIteration, *, tol: float, mix: bool) -> ChordIteration:
    """One chord step of every lane that has not stopped."""
    layout, core = shared
    step = eqs.correction(layout, core.blocks, c.left)
    move = _mixed(step, c) if mix else step
    size = eqs.largest(step)
    pace = size / jnp.maximum(c.size, jnp.finfo(size.dtype).tiny)
    slow = jnp.clip(jnp.maximum(pace, c.pace), *(PACE_MIXED if mix else PACE))
    reached = (size * slow / (1 - slow) <= tol) | (size <= FLOOR[size.dtype.name])
    # a lane that stops keeps its value, whatever its neighbours go on to do
    e = lax.optimization_barrier(jnp.where(c.stopped[None, None], c.e, eqs.rotate(c.e, move)))
    return ChordIteration(
        e=e,
        left=eqs.unserved(layout, core.main, aim, e),
        step=step if mix else c.step,
        move=move if mix else c.move,
        size=jnp.where(c.stopped, c.size, size),
        pace=pace,
        stopped=c.stopped | reached | ~(pace < (1 / STALL if mix else STALL)),
        settled=jnp.where(c.stopped, c.settled, reached),
        steps=c.steps + (~c.stopped).astype(jnp.int32),
    )


def stand(shared: Shared, aim: eqs.Aim, lanes: ChordLanes | None, c: ChordIteration) -> ChordLanes:
    """Progress of the lanes after the chord; `lanes` is that before it."""
    rows = eqs.rows(shared.layout, shared=aim.share is not None)
    return ChordLanes(
        *outside(shared.layout, c.e),
        residual=eqs.largest(c.left * rows[:, :, None].astype(c.left.dtype)),
        steps=c.steps if lanes is None else lanes.steps + c.steps,
        stopped=c.stopped,
        status=jnp.where(c.settled, jnp.int32(Status.CONVERGED), jnp.int32(Status.OUT_OF_STEPS)),
    )


def _mixed(step: Array, c: ChordIteration) -> Array:
    """Combine this step and the last one so that the linearised remainder is shortest."""
    change = step - c.step
    share = jnp.sum(change * step, (0, 1)) / jnp.maximum(jnp.sum(change * change, (0, 1)), jnp.finfo(step.dtype).tiny)
    return step - jnp.clip(share, *SHARE)[None, None] * (c.move + change)
