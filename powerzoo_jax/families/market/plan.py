"""Reference policies of the bidding task: all bid the truth, the middle or the most, or the best joint bids.

The oracle is the set of markups, one for each block of each unit, that earns most together on the day, as far as a
climb from the best markup bid alike by all finds it: the gain measures collusion. What it costs consumers tells
`competition_index`. So the order of the policies is another than elsewhere: the rule, who bids the truth,
competes and earns least, below random markups; the oracle earns most and is bounded.

The budgets bind nobody. Load goes unserved only where no unit can deliver: offers end far below the price of unserved
load. With ramps of half of a unit's range in a step, whatever was bid before leaves at least 80 MW more than the
steepest rise of load asks for, under the ratings (`tests/families/market/test_plan.py` proves it).
"""

from __future__ import annotations

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.series import AHEAD_HI, AHEAD_LO, Draw
from powerzoo_jax.oracle.registry import Baselines, OraclePlan, Policy, follow, repeat_action
from powerzoo_jax.tasks.score import evaluate

MARKUPS = 11  # bids of the grid, from -1 (the truth) to 1
TRUTH, MIDDLE, MOST = -1.0, 0.0, 1.0


def _alike(sim: Sim, draws: Draw, keys: Array, *, bid: float) -> Policy:
    """All units bid every block at the same place between the truth and the highest markup."""
    del keys
    return repeat_action(sim, draws, np.full((sim.env.dims.agent, sim.env.dims.act), bid))


def _bids(sim: Sim, bid: np.ndarray) -> Policy:
    """Policy that repeats the bids (B, A, U) of each episode in every step of the day."""
    return follow(sim, np.broadcast_to(bid[:, None], (len(bid), sim.spec.horizon, *bid.shape[1:])))


def _oracle(sim: Sim, draws: Draw, keys: Array) -> OraclePlan:
    """The best bids found on each day: a markup that all bid alike, then block after block of unit after unit."""
    del keys
    dims, count, grid = sim.env.dims, draws.load_row.shape[0], np.linspace(TRUTH, MOST, MARKUPS)
    days = jax.tree.map(lambda x: jnp.repeat(x, MARKUPS, axis=0), draws)

    def earned(bids: np.ndarray) -> np.ndarray:
        """Joint earnings (B, M) [USD] of bids (B, M, A, U), all played side by side."""
        policy = _bids(sim, bids.reshape(-1, dims.agent, dims.act))
        played = evaluate(sim, policy.act, draws=days, carry=policy.carry)
        return np.array(played.episode_rewards).reshape(count, MARKUPS)

    every = np.broadcast_to(grid[:, None, None], (count, MARKUPS, dims.agent, dims.act))
    alike = earned(every)
    best, most = np.take_along_axis(every, alike.argmax(1)[:, None, None, None], 1)[:, 0].copy(), alike.max(1)
    for unit, block in itertools.product(range(dims.agent), range(dims.act)):
        tried = np.repeat(best[:, None], MARKUPS, axis=1)
        tried[:, :, unit, block] = grid
        found = earned(tried)
        better = found.max(1) > most
        best[better, unit, block] = grid[found.argmax(1)[better]]
        most = np.maximum(most, found.max(1))
    bound = payment_bound(sim, draws)
    return OraclePlan(_bids(sim, best), most, bound, bound)


def payment_bound(sim: Sim, draws: Draw) -> np.ndarray:
    """Upper bound of the joint earnings of all units, (B,) [USD].

    A price at a load is at most the cap, or the load would be shed; payments of loads are the revenues and a
    congestion rent that is not negative; and no energy costs less than the cheapest block, or nothing.
    """
    params, rows = sim.params, np.asarray(sim.params.bank.load_rows, np.float64)
    ahead = rows[:, AHEAD_HI] + rows[:, AHEAD_LO]
    first = np.asarray(draws.load_row)
    energy = (ahead[first + sim.spec.horizon] - ahead[first]) * sim.env.dt_hours
    used = np.asarray(params.offers.width_mw) > 0
    cheapest = float(np.asarray(params.offers.price, np.float64)[used].min())
    return (float(params.price_cap) - min(cheapest, 0.0)) * energy


def competition_index(consumer_usd: float, truthful_usd: float, oracle_usd: float) -> float | None:
    """(consumer cost - truthful) / (oracle - truthful): 0 where all bid the truth, 1 at the best joint markup."""
    span = oracle_usd - truthful_usd
    return (consumer_usd - truthful_usd) / span if span else None


BIDDING = Baselines(
    rules={
        "no_control": partial(_alike, bid=MIDDLE),
        "max_markup": partial(_alike, bid=MOST),
        "rule": partial(_alike, bid=TRUTH),
    },
    oracle=_oracle,
    splits=("train", "val", "test", "demand_shift", "renewable_shock"),
    violating="max_markup",
    idle="ramps of half a range in a step and offers below the price cap: no bids leave load unserved",
)
