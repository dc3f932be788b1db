"""Reference policies of the dispatch tasks: merit order, merit order that heeds the lines, and the optimal dispatch.

Each names an output for every unit; where the task takes scores, those are sought that share the load most nearly so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import exp
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from powerzoo_jax.base.tree import take
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.draw import Draw
from powerzoo_jax.envs.transmission_state import TransmissionParams
from powerzoo_jax.opf.allocate import LEAST_SCORE, SHARPNESS, allocate_by_merit
from powerzoo_jax.opf.offers import cost_of
from powerzoo_jax.oracle.playbook import Foresight, Playbook, Policy, follow
from powerzoo_jax.oracle.transmission import episode_load, schedule_actions, solve_dispatch

SHIFTS = 40  # of the rule in a step: one line and one pair of units each
RULE_LEVELS, LEVELS = 24, 60  # that the rules and the oracle try, see `_windows`
OVERLOAD_USD = 1_000.0  # [USD/MWh] of excess, where the rule chooses among levels
LEAST, MOST = exp(SHARPNESS * LEAST_SCORE), exp(SHARPNESS)  # weights that scores can give


def _limits(sim: Sim) -> tuple[np.ndarray, np.ndarray]:
    rules = sim.params.rules
    on = np.asarray(rules.available)
    low, high = (np.where(on, np.asarray(x, np.float64), 0.0) for x in (rules.p_min_mw, rules.p_max_mw))
    return low, high


def _windows(sim: Sim, loads_mw: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What scores can reach: levels (Q, T) [MW] and, for each, limits (Q, T, G) [MW].

    Scores share a load as p - low = min(room, level * weight) with weights in [LEAST, MOST]. At a given level that is
    a box, and every dispatch in it that meets the load belongs to some scores. A schedule reaches everything.
    """
    low, high = _limits(sim)
    if sim.env.schedule:
        every = np.broadcast_to(low, (1, len(loads_mw), len(low)))
        return np.ones((1, len(loads_mw))), every, np.broadcast_to(high, every.shape)
    need = np.maximum(loads_mw - low.sum(), 1.0) / len(low)
    level = np.geomspace(need / MOST, 4 * need / LEAST, count)
    room = (high - low)[None, None, :]
    return level, low + np.minimum(room, LEAST * level[..., None]), low + np.minimum(room, MOST * level[..., None])


def _actions(sim: Sim, level: np.ndarray, p_mw: np.ndarray) -> np.ndarray:
    """Kernel actions (T, A, 1) that give a dispatch (T, G) [MW] within the windows of the levels (T,)."""
    if sim.env.schedule:
        return schedule_actions(sim, p_mw)
    low, high = _limits(sim)
    # a unit that is full takes the highest weight: rounding of the level must not hold it back
    weight = np.where(p_mw >= high, MOST, np.clip((p_mw - low) / level[:, None], LEAST, MOST))
    return 2 * (np.log(weight) / SHARPNESS)[..., None] - 1


def _merit(params: TransmissionParams, load_mw: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """Cheapest units first, blind to the network: output (G,) [MW] and what it costs () [USD/h]."""
    offers = params.offers
    price = offers.price[:, 0] + 0.5 * offers.slope[:, 0] * offers.width_mw[:, 0]
    share = allocate_by_merit(price, low, high, load_mw)
    missing = params.voll * share.unserved_mw + params.surplus_price * share.surplus_mw
    return share.p_mw, jnp.sum(cost_of(offers, share.p_mw)) + missing


def _relieved(params: TransmissionParams, load_mw: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """Merit order, then output moved between two units until no line is overloaded; as `_merit`, overloads priced.

    The worst line is relieved by the pair of units that costs least for each MW of relief.
    """
    offers, factors = params.offers, params.factors
    rated = params.rate_mw > 0
    first, cost = _merit(params, load_mw, low, high)

    def excess_of(p: Array) -> tuple[Array, Array]:
        flow = factors.of_unit @ p - factors.of_load * (load_mw - params.shunt_mw) + factors.fixed
        return flow, jnp.where(rated, jnp.abs(flow) - params.rate_mw, -1)

    def relieve(_: int, p: Array) -> Array:
        flow, excess = excess_of(p)
        line = jnp.argmax(excess)
        push = factors.of_unit[line] * jnp.sign(flow[line])
        relief = push[:, None] - push[None, :]  # less flow for a MW moved from unit i to unit j
        marginal = offers.price[:, 0] + offers.slope[:, 0] * (p - offers.base_mw)
        room = jnp.minimum((p - low)[:, None], (high - p)[None, :])
        usable = (relief > 1e-3) & (room > 1e-3)
        dearer = marginal[None, :] - marginal[:, None]
        best = jnp.argmin(jnp.where(usable, dearer / jnp.where(usable, relief, 1), jnp.inf))
        i, j = best // p.shape[0], best % p.shape[0]
        amount = jnp.minimum(room[i, j], excess[line] / jnp.where(usable[i, j], relief[i, j], 1))
        amount = jnp.where(usable[i, j] & (excess[line] > 0), amount, 0)
        return p.at[i].add(-amount).at[j].add(amount)

    p = lax.fori_loop(0, SHIFTS, relieve, first)
    moved = jnp.sum(cost_of(offers, p)) - jnp.sum(cost_of(offers, first))
    return p, cost + moved + OVERLOAD_USD * jnp.sum(jnp.maximum(excess_of(p)[1], 0))


def _over_levels(rule: Any) -> Any:
    """A rule of one step for levels and steps: (params, (T,), (Q, T, G), (Q, T, G)) -> (Q, T, G), (Q, T)."""
    return jax.jit(jax.vmap(jax.vmap(rule, in_axes=(None, 0, 0, 0)), in_axes=(None, None, 0, 0)))


RULES = {"merit": _over_levels(_merit), "rule": _over_levels(_relieved)}


def _choose(sim: Sim, name: str) -> Callable[[Draw], np.ndarray]:
    def plan(drawn: Draw) -> np.ndarray:
        loads = episode_load(sim, drawn)
        level, low, high = _windows(sim, loads, RULE_LEVELS)
        dtype = sim.params.voll.dtype
        p, cost = RULES[name](sim.params, *(jnp.asarray(x, dtype) for x in (loads, low, high)))
        best, steps = np.asarray(cost).argmin(axis=0), np.arange(len(loads))
        return _actions(sim, level[best, steps], np.asarray(p, np.float64)[best, steps])

    return plan


def _each(draws: Draw) -> list[Draw]:
    return [take(draws, i) for i in range(draws.load_row.shape[0])]


def _equal(sim: Sim, draws: Draw, keys: Array) -> Policy:
    del keys
    return follow(sim, np.zeros((draws.load_row.shape[0], sim.spec.horizon, sim.env.dims.agent, 1)))


def _merit_order(sim: Sim, draws: Draw, keys: Array) -> Policy:
    del keys
    return follow(sim, np.stack([_choose(sim, "merit")(drawn) for drawn in _each(draws)]))


def _secure_merit_order(sim: Sim, draws: Draw, keys: Array) -> Policy:
    del keys
    return follow(sim, np.stack([_choose(sim, "rule")(drawn) for drawn in _each(draws)]))


def _foresee(sim: Sim, draws: Draw, keys: Array) -> Foresight:
    """Optimal dispatch of every step at the best level; bounds of all dispatches, without and with the ratings."""
    del keys
    unlimited = replace(sim, params=replace(sim.params, rate_mw=jnp.zeros_like(sim.params.rate_mw)))
    actions, objective, bound, kept = [], [], [], []
    for drawn in _each(draws):
        level, low, high = _windows(sim, episode_load(sim, drawn), LEVELS)
        plans = [solve_dispatch(sim, drawn, window) for window in zip(low, high, strict=True)]
        cost = np.stack([plan.cost_usd for plan in plans])
        best, steps = cost.argmin(axis=0), np.arange(cost.shape[1])
        p = np.stack([plan.p_mw for plan in plans])[best, steps]
        actions.append(_actions(sim, level[best, steps], p))
        objective.append(cost.min(axis=0).sum())
        kept.append(solve_dispatch(sim, drawn).bound_usd.sum())
        bound.append(solve_dispatch(unlimited, drawn).bound_usd.sum())
    scale = -sim.spec.term_weights[0]
    policy = follow(sim, np.stack(actions))
    return Foresight(policy, scale * np.array(objective), scale * np.array(bound), scale * np.array(kept))


DISPATCH = Playbook(
    rules={"no_control": _equal, "merit": _merit_order, "rule": _secure_merit_order},
    foresee=_foresee,
    splits=("train", "val", "test", "load_stress", "line_tightening"),
    violating="merit",
)
