"""Evolutionary search for job starts in a data centre: plans are varied and crossed, and the best of a round are kept.

Queues of a data centre as tables by step, and a model of them that plays many plans of an episode at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from powerzoo_jax.base.numerics import FLOAT, matmul  # sums of GPUs are whole numbers, exact in it
from powerzoo_jax.devices.jobs import CLOCK_MIN
from powerzoo_jax.oracle.datacenter.problem import SiteProblem
from powerzoo_jax.oracle.datacenter.program import leaving_step, start_cost, undone_usd

# what a step may start: all that fits, of training less the GPUs that queued fine-tuning jobs ask for or half of them;
# the first job only; up to the last job that would be late in the next step; or none
MODES = ALL, LEAVE, LEAVE_HALF, FIRST, URGENT, NONE = tuple(range(6))
LEFT = (0.0, 1.0, 0.5, 0.0, 0.0, 0.0)
COST_GRAIN = 4096  # costs are whole parts of it, so that sums are exact and the same on every machine


class Queue(NamedTuple):
    """Jobs of one class that may be queued in each step, by deadline; padded with jobs of no GPUs.

    at:      (T, W) int32  position among the jobs of the class, J where there is none
    gpus:    (T, W)
    urgent:  (T, W)     1 where the job is in time if it starts now and late if it starts in the next step, else 0
    cost:    (T, W)     of a start, less what the job costs undone, in units of the reward
    hold:    (T, B, W)  GPUs that a start holds in this step and those after
    """

    at: np.ndarray
    gpus: np.ndarray
    urgent: np.ndarray
    cost: np.ndarray
    hold: np.ndarray


class Work(NamedTuple):
    """Workload of an episode: GPUs beside the inference that is asked for (T,), and both queues."""

    beside: np.ndarray
    train: Queue
    finetune: Queue


class PlantCuts(NamedTuple):
    """Lower bounds on what a plant costs beside the power P of jobs: max_k (base_k + slope_k' P), convex in P.

    base:    (K,)    [reward]
    slope:   (K, T)  [reward/MW]
    mw:      (3,)    power of a GPU that trains, of one that fine-tunes, and of one that serves inference
    """

    base: np.ndarray
    slope: np.ndarray
    mw: np.ndarray


class SearchSizes(NamedTuple):
    """Array sizes that hold every episode of a call: jobs of a class J, jobs queued at once W, steps of a run B."""

    jobs: int
    queued: int
    run: int


def common_sizes(problems: Sequence[SiteProblem]) -> SearchSizes:
    """Least sizes that hold both classes of all episodes."""
    found = [(1, 1, 1)]
    for problem in problems:
        jobs, steps = problem.jobs, np.arange(problem.horizon)
        waiting = (jobs.arrival[:, None] <= steps) & (steps <= leaving_step(problem)[:, None])
        for kind in (0, 1):
            ours = jobs.kind == kind
            queued = waiting[ours].sum(axis=0).max(initial=1)
            found.append((int(ours.sum()), int(queued), int(jobs.steps[ours].max(initial=1))))
    return SearchSizes(*np.max(found, axis=0).tolist())


def read_work(problem: SiteProblem, usd_per_mwh: np.ndarray, sizes: SearchSizes) -> Work:
    """Tables of an episode.

    usd_per_mwh:  (T,)  at the weight of the reward; a megawatt of servers also pays for auxiliaries and for the heat
                  that it adds, as if that were removed at once
    """
    v = problem.values
    drawn = 1 + v["aux_share"] + v["air_share"] / problem.chiller_cop
    per_mw = problem.weight * problem.dt_hours * usd_per_mwh * drawn
    queues = [_queue(problem, kind, per_mw, sizes) for kind in (0, 1)]
    return Work((v["n_gpus"] - problem.serving).astype(FLOAT), *queues)


def _queue(problem: SiteProblem, kind: int, per_mw: np.ndarray, sizes: SearchSizes) -> Queue:
    jobs, n, minutes = problem.jobs, problem.horizon, 60 * problem.dt_hours
    ids = np.flatnonzero(jobs.kind == kind)
    ids = ids[np.argsort(jobs.due_min[ids], kind="stable")]
    t, count = np.arange(n), len(ids)
    paid = start_cost(problem, np.repeat(ids, n), np.tile(t, count)).reshape(count, n)
    paid -= problem.weight * undone_usd(problem)[ids, None]
    until = np.minimum(t + jobs.steps[ids, None], n).astype(int)
    upto = np.append(0, np.cumsum(per_mw))
    paid += jobs.gpus[ids, None] * problem.job_mw_per_gpu[kind] * (upto[until] - upto[t])
    slack = jobs.due_min[ids, None] - minutes * t - jobs.duration_min[ids, None]
    queued = (jobs.arrival[ids, None] <= t) & (t <= leaving_step(problem)[ids, None])
    at = np.full((n, sizes.queued), count)
    for k in t:
        here = np.flatnonzero(queued[:, k])
        at[k, : len(here)] = here

    def placed(table: Any) -> np.ndarray:
        padded = np.concatenate([np.broadcast_to(table, (count, n)), np.zeros((1, n))])
        return padded[at, t[:, None]].astype(FLOAT)

    gpus, steps = placed(jobs.gpus[ids, None]), placed(jobs.steps[ids, None])
    return Queue(
        at=np.where(at < count, at, sizes.jobs).astype(np.int32),
        gpus=gpus,
        urgent=placed((slack >= -CLOCK_MIN) & (slack < minutes)),
        cost=placed(np.round(paid * COST_GRAIN) / COST_GRAIN),
        hold=gpus[:, None] * (np.arange(sizes.run, dtype=FLOAT)[:, None] < steps[:, None]),
    )


@jax.jit
def play_plans(work: Work, modes: Array, nothing: Array) -> tuple[Array, Array, Array]:
    """Play K plans of an episode: cost beside that of starting nothing (K,), GPUs that start and that run (T, 2, K).

    modes:    (T, 2, K) int  of training and fine-tuning
    nothing:  (J + 1, K)  zeros
    Inference gives way to jobs that run, as in the environment; the temperature of the room has no part in it, nor has
    the number of places in a queue.
    """

    def advance(carry: Any, row: Any) -> tuple[Any, tuple[Array, Array]]:
        (gone, held, cost), (now, mode) = carry, row
        free = jnp.maximum(now.beside - held[0, 0] - held[1, 0], 0)
        asked = matmul(now.finetune.gpus, 1 - gone[1][now.finetune.at])
        room = jnp.maximum(free - jnp.asarray(LEFT, FLOAT)[mode[0]] * asked, 0)
        train, taken = _starts(now.train, gone[0], mode[0], room)
        fine, more = _starts(now.finetune, gone[1], mode[1], free - taken)
        gone = gone[0].at[now.train.at].add(train), gone[1].at[now.finetune.at].add(fine)
        held = held + jnp.stack([matmul(now.train.hold, train), matmul(now.finetune.hold, fine)])
        running = held[:, 0]
        held = jnp.concatenate([held[:, 1:], jnp.zeros_like(held[:, :1])], axis=1)
        cost = cost + matmul(now.train.cost, train) + matmul(now.finetune.cost, fine)
        return (gone, held, cost), (jnp.stack([taken, more]), running)

    held = jnp.zeros((2, work.train.hold.shape[1], nothing.shape[1]), FLOAT)
    (_, _, cost), (gpus, running) = lax.scan(advance, ((nothing, nothing), held, nothing[0]), (work, modes))
    return cost, gpus, running


@jax.jit
def plant_costs(work: Work, plant: PlantCuts, running: Array) -> Array:
    """Cost of a plant beside K plans whose GPUs run (T, 2, K), (K,) [reward]; inference gives way and saves power."""
    aside = jnp.maximum(running[:, 0] + running[:, 1] - work.beside[:, None], 0)
    power = plant.mw[0] * running[:, 0] + plant.mw[1] * running[:, 1] - plant.mw[2] * aside
    return jnp.max(plant.base[:, None] + matmul(plant.slope, power), axis=0)


def _starts(queue: Queue, gone: Array, mode: Array, room: Array) -> tuple[Array, Array]:
    """Jobs (W, K) that start, 0 or 1, the longest prefix of the queue that mode and room (K,) allow; GPUs (K,)."""
    waiting = 1 - gone[queue.at]
    gpus = queue.gpus[:, None] * waiting
    upto = matmul(jnp.tril(jnp.ones((len(gpus), len(gpus)), FLOAT)), gpus)
    first = jnp.min(jnp.where(gpus > 0, upto, jnp.inf), axis=0)
    late = jnp.max(upto * queue.urgent[:, None] * waiting, axis=0)
    most = jnp.where(mode == FIRST, first, jnp.where(mode == URGENT, late, jnp.where(mode == NONE, 0, jnp.inf)))
    start = jnp.asarray((gpus > 0) & (upto <= jnp.minimum(room, most)[None]), FLOAT)
    return start, matmul(queue.gpus, start)


def play_plan(work: Work, sizes: SearchSizes, modes: np.ndarray) -> np.ndarray:
    """GPUs (T, 2) that jobs take in each step of one plan (T, 2)."""
    return np.asarray(play_plans(work, jnp.asarray(modes[..., None]), jnp.zeros((sizes.jobs + 1, 1), FLOAT))[1])[..., 0]


LANES = 768  # plans of a round
KEPT = 24  # plans that the next round varies
CROSSED = 0.4  # share of plans whose end is that of a second one
SWITCHES = 2  # runs of steps that a variation changes at most
SWITCHED = 0.75  # share of them that it does change
ROUNDS = 150  # at most, for a day; longer episodes have more
PATIENCE = 40  # rounds without a better plan after which the search stops, likewise
LOOK_AHEAD = (2, 4, 8)  # steps in which a lower price makes a job wait, in the plans that look at prices
SAVING_PER_MWH = 5.0  # [$/MWh] by which a price must be lower
DROP_AT = (0.5, 1.0, 2.0)  # of the prices at which a job is not worth its energy
SEED = 7
SETTLED = 0.8  # of the rounds, after which plans count as alike by the last of the limits


class Variety(NamedTuple):
    """Spread of the plans of a search: how far they are varied, and how different those are that stay.

    alike:    plans whose costs differ by less count as one, in units of the reward: in the first round, and at last;
              a coarse limit keeps ways apart that small changes of one plan would crowd out
    longest:  steps of a run that a variation changes
    short:    the length of a run is even on a scale of logarithms, so that most runs are short; else even
    """

    alike: tuple[float, float] = (0.002, 0.002)
    longest: int = 12
    short: bool = False

    def alike_in(self, number: int, rounds: int) -> float:
        """Limit of a round, which falls by the same factor from round to round."""
        first, last = self.alike
        return first * (last / first) ** min(number / (SETTLED * rounds), 1.0)


CLOSE_BY = Variety()


class Found(NamedTuple):
    """Plans that a search keeps, cheapest first: modes (K, T, 2), GPUs that jobs take (K, T, 2), and costs (K,)."""

    plans: np.ndarray
    gpus: np.ndarray
    cost: np.ndarray


def search(
    work: Work,
    sizes: SearchSizes,
    first: np.ndarray,
    days: int,
    rounds: int = ROUNDS,
    lanes: int = LANES,
    *,
    variety: Variety = CLOSE_BY,
    plant: PlantCuts | None = None,
    seed: int = SEED,
) -> Found:
    """Cheapest plans found.

    first:  (K, T, 2) plans to start from;  days: length of the episode, by which rounds are counted
    rounds: at most, for a day;  lanes: plans of a round
    plant:  what power costs beside other plans, where the tables of the work have no price of it
    """
    rng = np.random.default_rng(seed)
    nothing = jnp.zeros((sizes.jobs + 1, lanes), FLOAT)
    plans = first[np.resize(np.arange(len(first)), lanes)]
    kept = Found(plans[:0], np.zeros(plans[:0].shape, FLOAT), np.zeros(0, FLOAT))
    least, idle = np.inf, 0
    for number in range(rounds * days):
        cost, taken, running = play_plans(work, jnp.asarray(plans.transpose(1, 2, 0)), nothing)
        if plant is not None:
            cost = cost + plant_costs(work, plant, running)
        pool = np.concatenate([kept.cost, np.asarray(cost)])
        top = _distinct(pool, variety.alike_in(number, rounds * days))[:KEPT]
        gpus = np.concatenate([kept.gpus, np.asarray(taken).transpose(2, 0, 1)])
        kept = Found(np.concatenate([kept.plans, plans])[top], gpus[top], pool[top])
        idle = 0 if kept.cost[0] < least else idle + 1
        least = kept.cost[0]
        if idle >= PATIENCE * days:
            break
        plans = _varied(rng, kept.plans, lanes, variety)
    return kept


def _distinct(cost: np.ndarray, alike: float) -> np.ndarray:
    """Positions of the cheapest plan of every cost that is not alike, cheapest first."""
    order = np.argsort(cost, kind="stable")
    _, first = np.unique(np.floor(cost[order] / alike), return_index=True)
    found: np.ndarray = order[first]
    return found


def simple_plans(usd_per_mwh: np.ndarray, worth_per_mwh: tuple[float, float]) -> np.ndarray:
    """Plans (K, T, 2) to start from: one mode throughout, waiting for a lower price, dropping where it is too dear."""
    horizon = len(usd_per_mwh)
    rows = [np.tile([train, fine], (horizon, 1)) for train in MODES for fine in (ALL, FIRST, URGENT)]
    for ahead in LOOK_AHEAD:
        padded = np.append(usd_per_mwh, np.repeat(usd_per_mwh[-1], ahead))
        lowest = np.min([padded[k : k + horizon] for k in range(1, ahead + 1)], axis=0)
        wait = (usd_per_mwh > lowest + SAVING_PER_MWH)[:, None]
        rows += [np.where(wait, URGENT, [train, ALL]) for train in (ALL, LEAVE, LEAVE_HALF)]
    for part in DROP_AT:
        dear = usd_per_mwh[:, None] > part * np.array(worth_per_mwh)
        rows += [np.where(dear, NONE, [train, ALL]) for train in (ALL, LEAVE)]
    return np.array(rows, np.int8)


def _varied(rng: np.random.Generator, kept: np.ndarray, lanes: int, variety: Variety) -> np.ndarray:
    """As many variations (K, T, 2) of the plans kept: the end of another, and runs of steps of a class in one mode."""
    horizon = kept.shape[1]
    t = np.arange(horizon)
    plans, ends = kept[rng.integers(0, len(kept), (2, lanes))]
    since = np.where(rng.random(lanes) < CROSSED, rng.integers(0, horizon, lanes), horizon)
    plans = np.where((t >= since[:, None])[..., None], ends, plans)
    for _ in range(SWITCHES):
        first = rng.integers(0, horizon, lanes)
        if variety.short:
            length = np.ceil(variety.longest ** rng.random(lanes)).astype(int)
        else:
            length = rng.integers(1, variety.longest + 1, lanes)
        length = np.where(rng.random(lanes) < SWITCHED, length, 0)
        run = (t >= first[:, None]) & (t < (first + length)[:, None])
        of = rng.integers(0, 2, lanes)[:, None, None] == np.arange(2)
        mode = rng.integers(0, len(MODES), lanes)[:, None, None]
        plans = np.where(run[..., None] & of, mode, plans)
    return plans.astype(np.int8)
