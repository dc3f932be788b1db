"""Nash equilibrium of a market: what each agent gains by its best response, and their sum, the NashConv.

    NashConv(policy) = sum_i  max(0, max_b mean_d R_i(b, policy_-i) - mean_d R_i(policy))

over episodes d and constant bids b of agent i, all others keeping their policy (Lanctot et al. 2017). The search for b
is the same for every policy: the best bid alike for all blocks on a grid, then block after block. A wider choice of
responses could only find more, so what is printed is a lower bound of the exploitability.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.tree_util import Partial

from powerzoo_jax.base import struct
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.episode import first_carry, run_episodes
from powerzoo_jax.envs.family import family_of
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.oracle.registry import Policy
from powerzoo_jax.tasks.score import episode_keys

GRID = np.linspace(-1.0, 1.0, 11)  # from the truth to the highest markup
PASSES = 2  # over the blocks, after the bid alike


class Exploitability(NamedTuple):
    """Best unilateral responses to a joint policy.

    own, best:  (A,)    [unit of the reward]  mean return of each agent, and with its best response found
    bids:       (A, U)  [-]                   that response: a constant action
    """

    own: np.ndarray
    best: np.ndarray
    bids: np.ndarray

    @property
    def nash_conv(self) -> float:
        """Sum of the gains of all agents [unit of the reward]; never negative: everyone may stay."""
        return float(np.maximum(self.best - self.own, 0.0).sum())


@struct.dataclass
class _Deviated:
    """Carry of a policy of which some agents leave: their actions (A, U), not a number where an agent stays."""

    bids: Array
    carry: Any


def exploitability(sim: Sim, policy: Policy, draws: Draw, *, seed: int) -> Exploitability:
    """Best responses of all agents of a market to a joint policy, one after another.

    policy:  of all agents; its carry, if it has one, with leading axis B as the draws
    seed:    first of the episodes' keys, as in `evaluate`
    Raises ValueError for a task whose agents earn the same.

    Example:
        from powerzoo_jax.families.market import equilibrium
        from powerzoo_jax.oracle import get_baselines
        from powerzoo_jax.tasks.score import episode_keys, seeded_starts
        market = powerzoo_jax.make("gencos_bidding", split="val")
        days = seeded_starts(market, 2)
        truth = get_baselines("gencos_bidding").rules["rule"](market, days, episode_keys(42, 2))
        found = equilibrium.exploitability(market, truth, days, seed=42).nash_conv
    """
    if not family_of(sim).rivals:
        raise ValueError(f"{sim.spec.id}: its agents earn the same. Best responses are of a market: gencos_bidding.")
    dims, count, tried = sim.env.dims, draws.load_row.shape[0], len(GRID)
    inner = policy.act if isinstance(policy.act, Partial) else Partial(policy.act)
    act = Partial(_leave, inner)
    many = jax.tree.map(lambda x: jnp.repeat(x, tried, axis=0), draws)
    keys = jnp.repeat(episode_keys(seed, count), tried, axis=0)
    first = first_carry(inner, policy.carry, count)
    carried = jax.tree.map(lambda x: jnp.repeat(x, tried, axis=0), first)
    weights = np.asarray(sim.spec.term_weights, np.float64)

    def earned(bids: np.ndarray) -> np.ndarray:
        """Mean return (M, A) of all agents under M deviations (M, A, U)."""
        lanes = jnp.asarray(np.tile(bids, (count, 1, 1)), sim.spaces()[1].low.dtype)  # type: ignore[union-attr]
        totals = run_episodes(sim, act, keys, many, _Deviated(lanes, carried))
        own = np.asarray(totals.terms, np.float64) @ weights
        return own.reshape(count, tried, dims.agent).mean(axis=0)

    stay = np.full((tried, dims.agent, dims.act), np.nan)
    own = earned(stay)[0]
    found = [_climb(lambda bids, i=agent: earned(_only(stay, i, bids))[:, i], dims.act) for agent in range(dims.agent)]
    best, bids = zip(*found, strict=True)
    return Exploitability(own, np.array(best), np.stack(bids))


def _leave(inner: Partial, deviation: _Deviated, obs: Array, key: Array) -> tuple[_Deviated, Array]:
    carry, action = inner(deviation.carry, obs, key)
    return deviation.replace(carry=carry), jnp.where(jnp.isnan(deviation.bids), action, deviation.bids)  # type: ignore[attr-defined]


def _only(stay: np.ndarray, agent: int, bids: np.ndarray) -> np.ndarray:
    """Deviations (M, A, U) in which one agent bids (M, U)."""
    left = stay.copy()
    left[:, agent] = bids
    return left


def _climb(value: Any, blocks: int) -> tuple[float, np.ndarray]:
    """Highest value (M, U) -> (M,) on the grid, and where: a bid alike, then block after block."""
    alike = np.repeat(GRID[:, None], blocks, axis=1)
    found = value(alike)
    best, most = alike[found.argmax()].copy(), float(found.max())
    for block in (*range(blocks),) * PASSES:
        tried = np.repeat(best[None], len(GRID), axis=0)
        tried[:, block] = GRID
        found = value(tried)
        if found.max() > most:
            best, most = tried[found.argmax()].copy(), float(found.max())
    return most, best


def equilibrium_score(nash_conv: float, truthful: float) -> float:
    """1 - NashConv(policy) / NashConv(truthful): 1 where nobody gains by leaving, 0 as far from it as true bids."""
    return 1.0 - nash_conv / truthful
