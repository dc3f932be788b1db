"""Search which jobs of a data centre start when: plans are varied and crossed, and the best of a round are kept."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from powerzoo_jax.base.numerics import FLOAT
from powerzoo_jax.oracle.datacenter.sitequeues import (
    ALL,
    FIRST,
    LEAVE,
    LEAVE_HALF,
    MODES,
    NONE,
    URGENT,
    Sizes,
    Work,
    play_plans,
)

LANES = 768  # plans of a round
KEPT = 24  # plans that the next round varies
ALIKE = 0.002  # plans whose costs differ by less count as one, in units of the reward
CROSSED = 0.4  # share of plans whose end is that of a second one
SWITCHES = 2  # runs of steps that a variation changes at most
SWITCHED = 0.75  # share of them that it does change
LONGEST = 12  # steps of such a run
ROUNDS = 150  # at most, for a day; longer episodes have more
PATIENCE = 40  # rounds without a better plan after which the search stops, likewise
LOOK_AHEAD = (2, 4, 8)  # steps in which a lower price makes a job wait, in the plans that look at prices
SAVING_PER_MWH = 5.0  # [$/MWh] by which a price must be lower
DROP_AT = (0.5, 1.0, 2.0)  # of the prices at which a job is not worth its energy
SEED = 7


def search(work: Work, sizes: Sizes, first: np.ndarray, days: int) -> np.ndarray:
    """GPUs (T, 2) that training and fine-tuning jobs take in each step of the best plan found.

    first:  (K, T, 2) plans to start from;  days: length of the episode, by which rounds are counted
    """
    rng = np.random.default_rng(SEED)
    nothing = jnp.zeros((sizes.jobs + 1, LANES), FLOAT)
    plans = first[np.resize(np.arange(len(first)), LANES)]
    kept, gpus, cost = plans[:0], np.zeros(plans[:0].shape, FLOAT), np.zeros(0, FLOAT)
    least, idle = np.inf, 0
    for _ in range(ROUNDS * days):
        found, taken = play_plans(work, jnp.asarray(plans.transpose(1, 2, 0)), nothing)
        pool = np.concatenate([cost, np.asarray(found)])
        top = _distinct(pool)[:KEPT]
        kept = np.concatenate([kept, plans])[top]
        gpus = np.concatenate([gpus, np.asarray(taken).transpose(2, 0, 1)])[top]
        cost = pool[top]
        idle = 0 if cost[0] < least else idle + 1
        least = cost[0]
        if idle >= PATIENCE * days:
            break
        plans = _varied(rng, kept)
    best: np.ndarray = gpus[0]
    return best


def _distinct(cost: np.ndarray) -> np.ndarray:
    """Positions of the cheapest plan of every cost that is not alike, cheapest first."""
    order = np.argsort(cost, kind="stable")
    _, first = np.unique(np.floor(cost[order] / ALIKE), return_index=True)
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


def _varied(rng: np.random.Generator, kept: np.ndarray) -> np.ndarray:
    """LANES variations (K, T, 2) of the plans kept: the end of another, and runs of steps of a class in one mode."""
    horizon = kept.shape[1]
    t = np.arange(horizon)
    plans, ends = kept[rng.integers(0, len(kept), (2, LANES))]
    since = np.where(rng.random(LANES) < CROSSED, rng.integers(0, horizon, LANES), horizon)
    plans = np.where((t >= since[:, None])[..., None], ends, plans)
    for _ in range(SWITCHES):
        first, length = rng.integers(0, horizon, LANES), rng.integers(1, LONGEST + 1, LANES)
        length = np.where(rng.random(LANES) < SWITCHED, length, 0)
        run = (t >= first[:, None]) & (t < (first + length)[:, None])
        of = rng.integers(0, 2, LANES)[:, None, None] == np.arange(2)
        mode = rng.integers(0, len(MODES), LANES)[:, None, None]
        plans = np.where(run[..., None] & of, mode, plans)
    return plans.astype(np.int8)
