"""Batch jobs of a data centre: arrivals, a queue in deadline order, and a calendar of running jobs.

The queue is packed to the right: free slots (no GPUs, deadline FREE) come first, then jobs by deadline. Starting a
prefix and dropping expired jobs then moves nothing, and an arrival shifts what is due earlier by one slot to the left.
Jobs are never pre-empted, so a running one is known by when it ends: only sums per end step are kept.

Sums are of whole numbers, hence exact in any order: a core takes products and scattered additions, accelerators take
sums of what a comparison chooses, which join the kernels around them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from powerzoo_jax.base import struct
from powerzoo_jax.base.numerics import FLOAT, matmul
from powerzoo_jax.base.random import uniform
from powerzoo_jax.base.solver_mode import AUTO, by_device, by_mode
from powerzoo_jax.base.tree import pad_axis

FREE = -1.0  # deadline of a free slot: before every job's
CLOCK_MIN = 0.01  # the clock's grain: ten times what float32 resolves of a week, so that 90 min are three half hours
GRAIN = 64  # drawn durations are whole 1/64 min, about a second: sums of GPU minutes are exact in float32
TAIL = 1e-7  # probability of more arrivals in a step than there is room for; float32 draws resolve no smaller one


@struct.dataclass(kw_only=True)
class JobParams:
    """One class of jobs.

    rate_per_h:                        (G,)  [1/h]  Poisson arrivals
    gpus_low, gpus_high:               (G,)  whole numbers, uniform, both ends included
    duration_low_min, duration_high_min: (G,)  [min]  uniform
    deadline_factor:                   (G,)  [-]    deadline = arrival + factor * duration
    eta:                               (G,)  [-]    share of the span from idle to active power
    """

    rate_per_h: Array
    gpus_low: Array
    gpus_high: Array
    duration_low_min: Array
    duration_high_min: Array
    deadline_factor: Array
    eta: Array


class Jobs(NamedTuple):
    """Jobs arriving at the start of a step, (G, M) each; no GPUs where there is none.

    gpus:          whole numbers
    duration_min:  [min]
    deadline_min:  [min]  on the episode's clock
    """

    gpus: Array
    duration_min: Array
    deadline_min: Array


@struct.dataclass(kw_only=True)
class Pool:
    """Queued and running jobs of one class. Entry b of a calendar is the end of the step after b more.

    gpus, duration_min, deadline_min:  (G, Q)  the queue
    held_gpus:     (G, B)  GPUs of the jobs that finish in that step
    tail_gpu_min:  (G, B)  their work in that last step [GPU min]
    late_jobs:     (G, B)  running jobs that pass their deadline in that step
    """

    gpus: Array
    duration_min: Array
    deadline_min: Array
    held_gpus: Array
    tail_gpu_min: Array
    late_jobs: Array


def most_arrivals(rate_per_h: float, dt_hours: float) -> int:
    """Smallest M (static) that a step's Poisson arrivals exceed with probability below TAIL."""
    mean = rate_per_h * dt_hours
    term = total = math.exp(-mean)
    count = 0
    while 1 - total > TAIL:
        count += 1
        term *= mean / count
        total += term
    return max(count, 1)


def empty(n_unit: int, queue: int, bins: int, dtype: np.dtype) -> Pool:
    """A pool without jobs; `queue` and `bins` are static sizes."""
    slots, calendar = jnp.zeros((n_unit, queue), dtype), jnp.zeros((n_unit, bins), dtype)
    return Pool(
        gpus=slots,
        duration_min=slots,
        deadline_min=jnp.full_like(slots, FREE),
        held_gpus=calendar,
        tail_gpu_min=calendar,
        late_jobs=calendar,
    )


def draw(
    keys: tuple[Array, ...],
    kinds: tuple[JobParams, ...],
    most: tuple[int, ...],
    dt_hours: float,
    minute: Array,
    slack_factor: Array,
) -> tuple[Jobs, ...]:
    """Draw the arrivals of a step of every class, at most `most` (static) of each unit.

    keys:          ()    one a class
    minute:        ()    start of the step on the episode's clock
    slack_factor:  (G,)  f turns the deadline factor k into 1 + f (k - 1)
    """
    # in float32 whatever the dtype: counts, whole GPUs and whole grains are rounded, and what float64 holds more of a
    # duration would now and then round it to the next grain, so that references met other jobs than learners
    drawn = tuple(jax.tree.map(lambda x: x.astype(FLOAT), kind) for kind in kinds)
    n_unit = slack_factor.shape[0]
    u = tuple(uniform(key, (n_unit, 1 + 2 * m), FLOAT) for key, m in zip(keys, most, strict=True))
    rates = tuple(kind.rate_per_h[:, None] for kind in drawn)
    real = _arrived(tuple(x[:, :1] for x in u), rates, most, dt_hours)
    found = []
    for kind, params, x, m, there in zip(kinds, drawn, u, most, real, strict=True):
        sizes = _sizes(params, x[:, 1 : 1 + m], x[:, 1 + m :])
        gpus, duration = (jnp.where(there, x, 0).astype(kind.rate_per_h.dtype) for x in sizes)
        found.append(due(kind, gpus, duration, minute, slack_factor))
    return tuple(found)


def _arrived(
    u: tuple[Array, ...], rates: tuple[Array, ...], most: tuple[int, ...], dt_hours: float
) -> tuple[Array, ...]:
    """Flags (G, M) of the first, second, ... Poisson arrival of every class: true for those that are there.

    u, rates:  (G, 1)  uniform draws, and arrivals [1/h]
    """

    def counted(u: tuple[Array, ...], rates: tuple[Array, ...]) -> tuple[Array, ...]:
        found = []
        for x, rate, m in zip(u, rates, most, strict=True):
            count = sum(((x >= upto).astype(x.dtype) for upto in _no_more(rate * dt_hours, m)), start=jnp.zeros_like(x))
            found.append(jnp.arange(m, dtype=x.dtype)[None, :] < count)
        return tuple(found)

    def compared(u: tuple[Array, ...], rates: tuple[Array, ...]) -> tuple[Array, ...]:
        # one table for all classes and lanes; behind the barrier it stays one kernel
        columns = _no_more(jnp.concatenate(rates) * dt_hours, max(most))
        table = jnp.split(lax.optimization_barrier(jnp.concatenate(columns, axis=1)), len(most))
        return tuple(x >= upto[:, :m] for x, upto, m in zip(u, table, most, strict=True))

    found: tuple[Array, ...] = by_device(counted, compared, u, rates)
    return found


def _no_more(mean: Array, most: int) -> list[Array]:
    """Probabilities of no more than 0, 1, ... Poisson arrivals, `most` of them, of the shape of their mean."""
    term = jnp.exp(-mean)
    found = [term]
    for k in range(1, most):
        term = term * mean / k
        found.append(found[-1] + term)
    return found


def _sizes(params: JobParams, u_gpus: Array, u_duration: Array) -> tuple[Array, Array]:
    """GPUs and durations [min] of arrivals from uniform draws, (G, M) each."""

    def between(low: Array, high: Array, at: Array) -> Array:
        return low[:, None] + at * (high - low)[:, None]

    gpus = jnp.floor(between(params.gpus_low, params.gpus_high + 1, u_gpus))
    duration = between(params.duration_low_min, params.duration_high_min, u_duration)
    return jnp.minimum(gpus, params.gpus_high[:, None]), jnp.round(duration * GRAIN) / GRAIN


def due(params: JobParams, gpus: Array, duration_min: Array, minute: Array, slack_factor: Array) -> Jobs:
    """Jobs (G, M) that arrive at `minute` (), with their deadlines: arrival + (1 + f (k - 1)) * duration."""
    factor = 1 + slack_factor * (params.deadline_factor - 1)
    deadline = minute.astype(gpus.dtype) + factor[:, None] * duration_min
    return Jobs(gpus, duration_min, jnp.where(gpus > 0, deadline, FREE))


def running_sum(x: Array) -> Array:
    """Sum up to and including each entry of the last axis; exact for whole numbers."""
    size = x.shape[-1]
    upto = jnp.arange(size)[:, None] <= jnp.arange(size)[None, :]

    def product(x: Array) -> Array:
        return matmul(x, upto.astype(x.dtype))

    def chosen(x: Array) -> Array:
        table = upto.reshape((1,) * (x.ndim - 1) + upto.shape)
        return jnp.sum(jnp.where(table, x[..., :, None], 0), axis=-2)

    found: Array = by_mode(AUTO, product, chosen, x)
    return found


def row_sum(x: Array) -> Array:
    """Sum over the last axis, as a product: XLA adds up a row one number after the other; exact for whole numbers."""
    return matmul(x, jnp.ones(x.shape[-1], x.dtype))


def enqueue(pools: tuple[Pool, ...], new: tuple[Jobs, ...]) -> tuple[tuple[Pool, Array], ...]:
    """Insert arrivals of every class in deadline order, behind equal deadlines, into queues of one length.

    Returns the pool of each class and how many arrivals (G,) a full queue refuses.
    """
    queues = tuple(Jobs(pool.gpus, pool.duration_min, pool.deadline_min) for pool in pools)
    found = for_classes(_insert, queues, new)
    return tuple((replace(pool, **queue._asdict()), no) for pool, (queue, no) in zip(pools, found, strict=True))


def _insert(queue: Jobs, new: Jobs) -> tuple[Jobs, Array]:
    """Queue (G, Q) with arrivals (G, M), and how many (G,) a full queue refuses.

    Where each slot's content comes from follows from comparisons alone; one gather then moves everything at once.
    """
    size, most, dtype = queue.gpus.shape[1], new.gpus.shape[1], queue.gpus.dtype
    real = new.gpus > 0
    fits = _fitting(queue.gpus, real)
    due = jnp.where(fits, new.deadline_min, FREE)
    order = jnp.arange(most)

    def apart(queued: Array, due: Array) -> Array:
        after_queued = jnp.sum(queued[:, None, :] > due[:, :, None], axis=2, dtype=jnp.int32)
        ties = (due[:, None, :] == due[:, :, None]) & (order[None, None, :] > order[None, :, None])
        return after_queued + jnp.sum((due[:, None, :] > due[:, :, None]) | ties, axis=2, dtype=jnp.int32)

    def together(queued: Array, due: Array) -> Array:
        every, turn = jnp.concatenate([queued, due], axis=1), jnp.arange(-size, most)
        ties = (every[:, None, :] == due[:, :, None]) & (turn[None, None, :] > order[None, :, None])
        return jnp.sum((every[:, None, :] > due[:, :, None]) | ties, axis=2, dtype=jnp.int32)

    # on accelerators each of two sums would be a kernel
    behind = by_device(apart, together, queue.deadline_min, due)
    place = jnp.where(fits, size - 1 - behind, -1)
    slot = jnp.arange(size, dtype=jnp.int32)[None, :]
    source = jnp.broadcast_to(slot, queue.gpus.shape)
    for k in range(most):  # what is due before an arrival moves one slot to the left
        source = source + (place[:, k, None] > slot).astype(jnp.int32)
    for k in range(most):
        source = jnp.where(place[:, k, None] == slot, size + k, source)

    def moved(column: Array, arriving: Array) -> Array:
        both = jnp.concatenate([column, arriving], axis=1)
        return jnp.take_along_axis(both, source, axis=1, mode="promise_in_bounds")

    inserted = Jobs(*(moved(column, arriving) for column, arriving in zip(queue, new, strict=True)))
    return inserted, jnp.sum(real & ~fits, axis=1, dtype=jnp.int32).astype(dtype)


def _fitting(gpus: Array, real: Array) -> Array:
    """Arrivals (G, M), `real` bool where there is one, that find a place in the queue of `gpus` (G, Q); bool."""
    queued = jnp.sum(gpus > 0, axis=1, dtype=jnp.int32)
    place = queued[:, None] + running_sum(real.astype(gpus.dtype)).astype(jnp.int32)
    return real & (place <= gpus.shape[1])


def waiting(pool: Pool) -> Array:
    """Jobs in the queue, (G,)."""
    return row_sum((pool.gpus > 0).astype(pool.gpus.dtype))


def queued_gpus(pools: tuple[Pool, ...]) -> tuple[Array, ...]:
    """GPUs that the queue of every class asks for up to and including each slot, (G, Q)."""
    return for_classes(running_sum, tuple(pool.gpus for pool in pools))


def choose(pool: Pool, upto: Array, budget: Array) -> Array:
    """The longest prefix of the queue, by deadline, whose GPUs `upto` (G, Q) fit the budget (G,); (G, Q) bool."""
    return (pool.gpus > 0) & (upto <= budget[:, None])


def overdue(pool: Pool, started: Array, room: Array, minute: Array, dt_minutes: float) -> Array:
    """Jobs that would miss their deadline if they waited one more step, as many by deadline as fit `room` (G,)."""
    slack = pool.deadline_min - minute.astype(room.dtype) - pool.duration_min
    urgent = (pool.gpus > 0) & ~started & (slack < dt_minutes)
    return urgent & (running_sum(jnp.where(urgent, pool.gpus, 0)) <= room[:, None])


def advance(
    pool: Pool, started: Array, minute: Array, dt_minutes: float, *, repack: bool = False
) -> tuple[Pool, Array]:
    """Move the jobs `started` (G, Q) from the queue to the calendars, and go on to the end of the step.

    repack:  started jobs are no prefix of the queue: pack it again

    Returns the pool and the jobs (G,) whose deadline passes in the step, dropped if queued. The calendars go on first
    and a job enters one step earlier than it ends: moving on what a sum has found would take kernels of their own.
    """
    now = minute.astype(pool.gpus.dtype)
    steps = _steps(pool.duration_min, dt_minutes)
    tail = pool.gpus * (pool.duration_min - (steps - 1) * dt_minutes)
    left = pool.deadline_min - now
    late = started & (pool.duration_min > left + CLOCK_MIN)
    ends = jnp.where(started, steps, 0)
    passes = jnp.where(late, _steps(left, dt_minutes), 0)
    left_over = vacate(pool, started)
    expired = _expired(left_over, minute, dt_minutes)
    queue = vacate(left_over, expired)

    def following(calendar: Array) -> Array:
        return jnp.concatenate([calendar[:, 1:], jnp.zeros_like(calendar[:, :1])], axis=1)

    new = replace(
        _packed(queue) if repack else queue,
        held_gpus=_entered(following(pool.held_gpus), ends - 1, pool.gpus),
        tail_gpu_min=_entered(following(pool.tail_gpu_min), ends - 1, tail),
        late_jobs=_entered(following(pool.late_jobs), passes - 1, jnp.ones_like(tail)),
    )
    return new, pool.late_jobs[:, 0] + row_sum(((passes == 1) | expired).astype(tail.dtype))


def _steps(minutes: Array, dt_minutes: float) -> Array:
    """Number of steps that a time takes, at least one; an excess below the clock's grain takes none."""
    return jnp.maximum(jnp.ceil((minutes - CLOCK_MIN) / dt_minutes), 1)


def _entered(calendar: Array, step: Array, amount: Array) -> Array:
    """Add amounts (G, Q) to the steps (G, Q) of a calendar (G, B), counted from 1; 0 and less are none.

    The sums are whole numbers of GPUs, jobs or GRAIN, so they are exact and do not depend on the order of adding.
    """
    bins = jnp.arange(calendar.shape[1], dtype=jnp.int32)[None, None]

    def scattered(calendar: Array, at: Array, amount: Array) -> Array:
        def add(row: Array, b: Array, x: Array) -> Array:
            return row.at[b].add(x, mode="drop", wrap_negative_indices=False)

        return jax.vmap(add)(calendar, at, amount)

    def chosen(calendar: Array, at: Array, amount: Array) -> Array:
        begun = jnp.where(at[:, :, None] == bins, amount[:, :, None], 0)
        # what was there goes with the first slot: added behind the sum, it would take a kernel of its own
        first = jnp.arange(at.shape[1])[None, :, None] == 0
        return jnp.sum(begun + jnp.where(first, calendar[:, None, :], 0), axis=1)

    # of the two that a single kernel can hold, a core is done sooner with this one
    def product(calendar: Array, at: Array, amount: Array) -> Array:
        begun = (at[:, :, None] == bins).astype(amount.dtype)
        return calendar + matmul(amount[:, None, :], begun)[:, 0]

    fixed = functools.partial(by_device, product, chosen)
    found: Array = by_mode(AUTO, scattered, fixed, calendar, step.astype(jnp.int32) - 1, amount)
    return found


def vacate(pool: Pool, gone: Array) -> Pool:
    """Free the slots `gone` (G, Q)."""
    return replace(
        pool,
        gpus=jnp.where(gone, 0, pool.gpus),
        duration_min=jnp.where(gone, 0, pool.duration_min),
        deadline_min=jnp.where(gone, FREE, pool.deadline_min),
    )


def _packed(pool: Pool) -> Pool:
    """Queue packed to the right again, after jobs have left from its middle."""
    order = jnp.argsort(pool.deadline_min, axis=1, stable=True)
    gpus, duration, deadline = (
        jnp.take_along_axis(x, order, axis=1) for x in (pool.gpus, pool.duration_min, pool.deadline_min)
    )
    return replace(pool, gpus=gpus, duration_min=duration, deadline_min=deadline)


def _expired(pool: Pool, minute: Array, dt_minutes: float) -> Array:
    """Queued jobs (G, Q) whose deadline passes in the step, bool."""
    until = minute.astype(pool.gpus.dtype) + dt_minutes
    return (pool.gpus > 0) & (pool.deadline_min <= until)


def expiring_gpu_h(pool: Pool, minute: Array, dt_minutes: float) -> Array:
    """Work of the queued jobs that `advance` drops at the end of a step that starts none, (G,) [GPU h]."""
    return row_sum(jnp.where(_expired(pool, minute, dt_minutes), pool.gpus * pool.duration_min, 0)) / 60


def refused_gpu_h(pool: Pool, new: Jobs) -> Array:
    """Work of the arrivals (G, M) that `enqueue` finds no place for, (G,) [GPU h]."""
    real = new.gpus > 0
    return row_sum(jnp.where(real & ~_fitting(pool.gpus, real), new.gpus * new.duration_min, 0)) / 60


def for_classes(act: Callable[..., Any], *given: tuple[Any, ...]) -> tuple[Any, ...]:
    """`act(*x)` of every class, with x its member of each of `given`, trees of (G, n). On accelerators in one, with
    the classes as further units, to launch fewer kernels; arrays of different lengths are then filled up with zeros.
    """

    def apart(*given: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(act(*x) for x in zip(*given, strict=True))

    def joined(*leaves: Array) -> Array:
        longest = max(x.shape[1] for x in leaves)
        return jnp.concatenate([pad_axis(x, longest, 1) for x in leaves])

    def together(*given: tuple[Any, ...]) -> tuple[Any, ...]:
        found = act(*(jax.tree.map(joined, *parts) for parts in given))
        n_unit = jax.tree.leaves(given[0][0])[0].shape[0]
        starts = range(0, len(given[0]) * n_unit, n_unit)
        return tuple(jax.tree.map(lambda x, at=at: x[at : at + n_unit], found) for at in starts)

    found: tuple[Any, ...] = by_mode(AUTO, apart, together, *given)
    return found


def backlog_gpu_h(pool: Pool, dt_minutes: float) -> Array:
    """Work that has arrived and is not done, queued and running, (G,) [GPU h]."""
    whole = jnp.arange(pool.held_gpus.shape[1], dtype=pool.gpus.dtype) * dt_minutes
    running = row_sum(pool.held_gpus * whole[None, :] + pool.tail_gpu_min)
    return (row_sum(pool.gpus * pool.duration_min) + running) / 60
