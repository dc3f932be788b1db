"""Chord iteration of a batch: when a lane is near enough, when it is left to Newton, and the loop of all families.

A chord step takes a constant inverse for that of the Jacobian. Its changes d_k then shrink like a geometric series, and
with the rate c of the last ones (a posteriori bound of the contraction theorem)

    |x_k - x| <= |d_k| c / (1 - c)

Families differ in what a step is and in the norm: currents of rows (`zform`: feeders, three phases) or relative
deviations of voltages (`meshed.chord`: meshed networks, outages, switches). Both run `iterate` over a `Progress`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array, lax

STALL = 0.95  # a lane whose change shrinks slower than this per step is left to Newton: 45 more steps a digit


class Progress(NamedTuple):
    """Progress of the lanes of a batch, (B,) each.

    size:     of the last change
    pace:     ratio of the last change to the one before; None where a family estimates from `size` alone
    stopped:  bool  takes no further step
    settled:  bool  within the tolerance
    steps:    int32 taken
    """

    size: Array
    pace: Array | None
    stopped: Array
    settled: Array
    steps: Array

    @classmethod
    def begin(cls, size: Array, pace: Array, steps: int) -> Progress:
        """Progress of a batch of which no lane has stopped."""
        none = jnp.zeros(size.shape, bool)
        return cls(size, pace, none, none, jnp.full(size.shape, steps, jnp.int32))

    def after(self, size: Array, pace: Array | None, reached: Array, lost: Array) -> Progress:
        """Progress one step later; a lane that has stopped is frozen, however long its neighbours take.

        size, pace:     of the step
        reached, lost:  lanes (B,) within the tolerance, and lanes too slow for a chord
        """
        return Progress(
            size=jnp.where(self.stopped, self.size, size),
            pace=pace,
            stopped=self.stopped | reached | lost,
            settled=jnp.where(self.stopped, self.settled, reached),
            steps=self.steps + (~self.stopped).astype(jnp.int32),
        )


def ratio(size: Array, before: Array) -> Array:
    """Rate of convergence that two successive changes show, (B,)."""
    return size / jnp.maximum(before, jnp.finfo(before.dtype).tiny)


def error_ahead(size: Array, pace: Array, bounds: tuple[float, float]) -> Array:
    """Bound (B,) on the error after a change of this size, at a pace taken to lie within `bounds`.

    A single pace may be luck: below the lower bound it is not believed, above the upper one the bound says nothing.
    """
    slow = jnp.clip(pace, *bounds)
    return size * slow / (1 - slow)


def iterate(
    advance: Callable[[Any], Any], begin: Any, *, taken: int, max_steps: int, rest: int = 0, always: bool = False
) -> Any:
    """Last iterate of a batch that is advanced step by step until its lanes have stopped.

    advance:    one step of all lanes, which leaves those that have stopped as they are
    begin:      state with the `Progress` in a field `lanes`
    taken:      steps taken before, counted in `max_steps`
    rest:       0 goes on to the last lane; n stops when at most one lane in n is left, to be gathered with others:
                a step of the whole batch costs the same however few of its lanes still move
    always:     take every step without asking, for accelerators that would rather not wait for an answer
    """

    def unfinished(carry: tuple[Array, Any]) -> Array:
        k, state = carry
        if always:
            return k < max_steps
        going = ~state.lanes.stopped
        left = jnp.any(going) if rest == 0 else jnp.sum(going) * rest > going.shape[0]
        return (k < max_steps) & left

    def step(carry: tuple[Array, Any]) -> tuple[Array, Any]:
        return carry[0] + 1, advance(carry[1])

    return lax.while_loop(unfinished, step, (jnp.int32(taken), begin))[1]
