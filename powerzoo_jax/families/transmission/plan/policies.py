"""Reference policies of the dispatch tasks: merit order, merit order that heeds the lines, and the optimal dispatch.

Each names an output for every unit; where the task takes scores, those are sought that share the load most nearly so.

Scores that follow a dispatch as nearly as the sharing of the load allows, step after step under ramps.
"""

from __future__ import annotations

from functools import partial
from math import inf
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from powerzoo_jax.base.numerics import matmul
from powerzoo_jax.base.ranges import unchecked
from powerzoo_jax.base.tree import take
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.families.transmission.commitment.problem import CommitmentDay, host_rules
from powerzoo_jax.families.transmission.plan.dispatch import (
    LEAST,
    MOST,
    DispatchCurve,
    DispatchSystem,
    free_floor,
    host_system,
    rated_floor,
    reachable,
)
from powerzoo_jax.families.transmission.plan.episode import episode_load, schedule_actions
from powerzoo_jax.families.transmission.units_types import TransmissionParams
from powerzoo_jax.opf.allocate import SHARPNESS, allocate_by_merit
from powerzoo_jax.opf.offers import cost_of
from powerzoo_jax.oracle.registry import Baselines, OraclePlan, Policy, follow, repeat_action

SHIFTS = 40  # of the rule in a step: one line and one pair of units each
LEVELS = 24  # that the rules try, see `_windows`
GRID = 129  # loads at which the oracle plans, see `dispatch.DispatchCurve`
OVERLOAD_USD = 1_000.0  # [USD/MWh] of excess, where the rule chooses among levels
LEAST_LEVEL_MW = 1e-6
FULL_MW = 1e-3  # from its limit: a unit so near takes the highest score, or rounding would hold it back
KEPT_MW = 1e-3  # overload that counts as none


def _windows(sim: Sim, low: np.ndarray, high: np.ndarray, loads_mw: np.ndarray) -> tuple[np.ndarray, ...]:
    """Reachable dispatches of scores within limits (T, G): levels (Q, T) [MW] and, for each, limits (Q, T, G) [MW].

    Scores share a load as p - low = min(room, level * weight) with weights in [LEAST, MOST]. At a given level that is
    a box, and every dispatch in it that meets the load belongs to some scores. A schedule reaches everything.
    """
    if sim.env.schedule:
        return np.ones((1, len(loads_mw))), low[None], high[None]
    need = np.maximum(loads_mw - low.sum(1), 1.0) / np.maximum((high > low).sum(1), 1)
    level = np.geomspace(need / MOST, 4 * need / LEAST, LEVELS)
    room = (high - low)[None]
    return level, low + np.minimum(room, LEAST * level[..., None]), low + np.minimum(room, MOST * level[..., None])


def shared_scores(level: np.ndarray, p_mw: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Scores (T, G) in [-1, 1] that give a dispatch (T, G) [MW] reached at levels (T,) between limits (T, G)."""
    weight = np.clip((p_mw - low) / np.maximum(level, LEAST_LEVEL_MW)[:, None], LEAST, MOST)
    # a unit that is full takes the highest weight: rounding of the level must not hold it back
    weight = np.where(p_mw >= high - 1e-9, MOST, weight)
    return 2 * np.log(weight) / SHARPNESS - 1


def dispatch_actions(sim: Sim, system: DispatchSystem, level: np.ndarray, p_mw: np.ndarray) -> np.ndarray:
    """Kernel actions (T, A, 1) that give a dispatch (T, G) [MW] of units that always run."""
    if sim.env.schedule:
        return schedule_actions(sim, p_mw)
    return shared_scores(level, p_mw, system.low_mw, system.high_mw)[..., None]


def _merit(params: TransmissionParams, load_mw: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """Cheapest units first, blind to the network: output (G,) [MW] and what it costs () [USD/h]."""
    offers = params.offers
    price = offers.price[:, 0] + 0.5 * offers.slope[:, 0] * offers.width_mw[:, 0]
    share = unchecked(allocate_by_merit)(price, low, high, load_mw)
    missing = params.voll * share.unserved_mw + params.surplus_price * share.surplus_mw
    return share.p_mw, jnp.sum(unchecked(cost_of)(offers, share.p_mw)) + missing


def relieved(params: TransmissionParams, load_mw: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """Merit order, then output moved between two units until no line is overloaded; as `_merit`, overloads priced."""
    return relieve_lines(params, load_mw, low, high, _merit(params, load_mw, low, high))


def relieve_lines(
    params: TransmissionParams,
    load_mw: Array,
    low: Array,
    high: Array,
    blind: tuple[Array, Array],
    *,
    most_mw: float = inf,
    shifts: int = SHIFTS,
) -> tuple[Array, Array]:
    """Output moved between two units, from a dispatch blind to the network and its cost, until no line is overloaded.

    most_mw:  of a move
    shifts:   moves at most

    The worst line is relieved by the pair of units that costs least for each MW of relief. Excess left is priced.
    """
    offers, factors = params.offers, params.factors
    rated = params.rate_mw > 0
    first, cost = blind

    def excess_of(p: Array) -> tuple[Array, Array]:
        flow = matmul(factors.of_unit, p) - factors.of_load * (load_mw - params.shunt_mw) + factors.fixed
        return flow, jnp.where(rated, jnp.abs(flow) - params.rate_mw, -1)

    def relieve(loop: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        count, p, _ = loop
        flow, excess = excess_of(p)
        line = jnp.argmax(excess)
        push = factors.of_unit[line] * jnp.sign(flow[line])
        relief = push[:, None] - push[None, :]  # less flow for a MW moved from unit i to unit j
        marginal = offers.price[:, 0] + offers.slope[:, 0] * (p - offers.base_mw)
        room = jnp.minimum(jnp.minimum((p - low)[:, None], (high - p)[None, :]), most_mw)
        usable = (relief > 1e-3) & (room > 1e-3)
        dearer = marginal[None, :] - marginal[:, None]
        best = jnp.argmin(jnp.where(usable, dearer / jnp.where(usable, relief, 1), jnp.inf))
        i, j = best // p.shape[0], best % p.shape[0]
        amount = jnp.minimum(room[i, j], excess[line] / jnp.where(usable[i, j], relief[i, j], 1))
        amount = jnp.where(usable[i, j] & (excess[line] > 0), amount, 0)
        return count + 1, p.at[i].add(-amount).at[j].add(amount), amount

    def moving(loop: tuple[Array, Array, Array]) -> Array:
        count, _, amount = loop
        return (count < shifts) & (amount > 0)

    start = jnp.zeros((), jnp.int32), first, jnp.ones((), first.dtype)
    _, p, _ = lax.while_loop(moving, relieve, start)
    moved = jnp.sum(unchecked(cost_of)(offers, p)) - jnp.sum(unchecked(cost_of)(offers, first))
    return p, cost + moved + OVERLOAD_USD * jnp.sum(jnp.maximum(excess_of(p)[1], 0))


def over_levels(rule: Any) -> Any:
    """A rule of one step, such as `relieved`, for levels and steps.

    (params, (T,), (Q, T, G), (Q, T, G)) -> (Q, T, G), (Q, T)
    """
    return jax.jit(jax.vmap(jax.vmap(rule, in_axes=(None, 0, 0, 0)), in_axes=(None, None, 0, 0)))


RULES = {"merit": over_levels(_merit), "rule": over_levels(relieved)}


def best_level(
    sim: Sim, name: str, loads_mw: np.ndarray, low: np.ndarray, high: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Play a rule of `RULES` within limits (T, G): level (T,), dispatch (T, G) [MW] and its cost (T,) [USD/h]."""
    return cheapest_level(sim, RULES[name], loads_mw, low, high)


def cheapest_level(
    sim: Sim, rule: Any, loads_mw: np.ndarray, low: np.ndarray, high: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Play a rule as `over_levels` makes it; as `best_level`."""
    level, *box = _windows(sim, low, high, loads_mw)
    dtype = sim.params.voll.dtype
    p, cost = rule(sim.params, *(jnp.asarray(x, dtype) for x in (loads_mw, *box)))
    best, steps = np.asarray(cost).argmin(axis=0), np.arange(len(loads_mw))
    return level[best, steps], np.asarray(p, np.float64)[best, steps], np.asarray(cost, np.float64)[best, steps]


def within_limits(
    params: TransmissionParams, load_mw: Array, low: Array, high: Array, *, schedule: bool
) -> tuple[Array, Array]:
    """Security-aware merit order of one step in the graph, within limits (G,) [MW]: scores in [-1, 1], outputs (G,).

    As `best_level`; for a schedule the scores are places between the limits.
    """
    room = high - low
    if schedule:
        p, _ = relieved(params, load_mw, low, high)
        return jnp.clip(2 * (p - low) / jnp.where(room > 0, room, 1) - 1, -1, 1), p
    each = jnp.maximum(load_mw - jnp.sum(low), 1) / jnp.maximum(jnp.sum(room > 0, dtype=load_mw.dtype), 1)
    level = each * jnp.asarray(np.geomspace(1 / MOST, 4 / LEAST, LEVELS), load_mw.dtype)
    least, most = (low[None] + jnp.minimum(room[None], weight * level[:, None]) for weight in (LEAST, MOST))
    outputs, cost = jax.vmap(partial(relieved, params, load_mw))(least, most)
    p = outputs[jnp.argmin(cost)]
    # of all levels that give this dispatch the lowest one: neighbouring loads then have neighbouring scores
    at = jnp.maximum(jnp.max(p - low) / MOST, LEAST_LEVEL_MW)
    weight = jnp.where(p >= high - FULL_MW, MOST, jnp.clip((p - low) / at, LEAST, MOST))
    return jnp.clip(2 * jnp.log(weight) / SHARPNESS - 1, -1, 1), p


def each_load(sim: Sim, draws: Draw) -> list[np.ndarray]:
    """Load (T,) [MW] of every drawn episode, shunts included."""
    return [episode_load(sim, take(draws, i)) for i in range(draws.load_row.shape[0])]


def load_grid(loads: list[np.ndarray], count: int) -> np.ndarray:
    """Loads (count,) [MW] from the lowest to the highest of all episodes."""
    return np.linspace(min(x.min() for x in loads), max(x.max() for x in loads), count)


def equal_scores(sim: Sim, draws: Draw, keys: Array) -> Policy:
    """All scores alike; batteries below, where there are any, idle."""
    del keys
    return repeat_action(sim, draws, np.zeros((sim.env.dims.agent, 1)))


def _by_rule(sim: Sim, name: str, draws: Draw, safest: DispatchCurve | None = None) -> Policy:
    """Play a rule of `RULES`; in steps in which it overloads a line, the dispatch of `safest`."""
    system = host_system(sim)
    plans = []
    for loads in each_load(sim, draws):
        low, high = (np.tile(x, (len(loads), 1)) for x in (system.low_mw, system.high_mw))
        level, p, _ = best_level(sim, name, loads, low, high)
        if safest is not None:
            over = system.overload(p, loads) > KEPT_MW
            p[over], level[over] = safest.at(loads[over])
        plans.append(dispatch_actions(sim, system, level, p))
    return follow(sim, np.stack(plans))


def _merit_order(sim: Sim, draws: Draw, keys: Array) -> Policy:
    del keys
    return _by_rule(sim, "merit", draws)


def _mended_merit_order(sim: Sim, draws: Draw, keys: Array) -> Policy:
    """Security-aware merit order, and the optimal dispatch of the step where pairs of units mend no overload."""
    del keys
    grid, on = load_grid(each_load(sim, draws), GRID), np.asarray(sim.params.rules.available)
    return _by_rule(sim, "rule", draws, reachable(host_system(sim), on, grid, scores=not sim.env.schedule))


def _oracle(sim: Sim, draws: Draw, keys: Array) -> OraclePlan:
    """Optimal dispatch of every step that scores can reach; bounds of all dispatches, without and with the ratings."""
    del keys
    system, loads = host_system(sim), each_load(sim, draws)
    on, grid = np.asarray(sim.params.rules.available), load_grid(loads, GRID)
    curve = reachable(system, on, grid, scores=not sim.env.schedule)
    floor = rated_floor(system, on, grid)
    actions, money = [], []
    for load in loads:
        p, level = curve.at(load)
        actions.append(dispatch_actions(sim, system, level, p))
        free = free_floor(system, on[None], load)[0]
        # the lines of the second are straight between the loads of the grid, and may fall below the first
        costs = (system.cost(on, p, load), free, np.maximum(floor.at(load), free))
        money.append([cost.sum() for cost in costs])
    objective, bound, kept = -sim.spec.term_weights[0] * sim.env.dt_hours * np.array(money).T
    return OraclePlan(follow(sim, np.stack(actions)), objective, bound, kept)


DISPATCH = Baselines(
    rules={"no_control": equal_scores, "merit": _merit_order, "rule": _mended_merit_order},
    oracle=_oracle,
    splits=("train", "val", "test", "load_stress", "line_tightening"),
    violating="merit",
)

TRACKING_LEVELS = 32  # that a step tries
BISECTIONS = 40


def track(
    system: DispatchSystem, problem: CommitmentDay, on: np.ndarray, wanted_mw: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Follow outputs wanted (T, G) [MW] of the units `on` (T, G): scores (T, G) in [-1, 1] and their outputs (T, G).

    Each step takes, of all dispatches that scores reach within its ramps, the nearest one (least squares).
    """
    rules = host_rules(problem.rules)
    was, before = np.asarray(problem.state.on), np.asarray(problem.state.p_mw, np.float64)
    scores, outputs = np.zeros(wanted_mw.shape), np.zeros(wanted_mw.shape)
    for t, running in enumerate(on):
        low, high = output_limits(rules, was, before, running)
        level, p = nearest(wanted_mw[t], low, high, float(problem.load_mw[t]))
        scores[t] = shared_scores(np.array([level]), p[None], low, high)[0]
        outputs[t], was, before = p, running, p
    return scores, outputs


def output_limits(
    rules: dict[str, np.ndarray], was: np.ndarray, before: np.ndarray, on: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Limits (G,) [MW] of a step, see `opf.commit.output_window`."""
    least, most, stays = rules["p_min_mw"], rules["p_max_mw"], was & on
    low = np.where(stays, np.clip(before - rules["ramp_mw"], least, most), least)
    climbed = np.clip(before + rules["ramp_mw"], least, most)
    high = np.where(stays, climbed, np.minimum(rules["start_mw"], most))
    return np.where(on, low, 0.0), np.where(on, high, 0.0)


def nearest(wanted: np.ndarray, low: np.ndarray, high: np.ndarray, load: float) -> tuple[float, np.ndarray]:
    """Level [MW] and dispatch (G,) [MW] nearest to the one wanted."""
    room = high - low
    need = load - low.sum()
    if need <= 0 or need >= room.sum():
        return 1.0, low if need <= 0 else high
    each = need / np.sum(room > 0)
    level = np.geomspace(each / MOST, max(4 * each, room.max()) / LEAST, TRACKING_LEVELS)
    least, most = (low + np.minimum(room, weight * level[:, None]) for weight in (LEAST, MOST))
    able = (least.sum(1) <= load) & (most.sum(1) >= load)
    level, least, most = level[able], least[able], most[able]
    down, up = np.full((2, len(level)), float(np.abs(wanted).max() + high.max()))
    down = -down
    for _ in range(BISECTIONS):
        shift = 0.5 * (down + up)
        below = np.clip(wanted + shift[:, None], least, most).sum(1) < load
        down, up = np.where(below, shift, down), np.where(below, up, shift)
    p = np.clip(wanted + (0.5 * (down + up))[:, None], least, most)
    best = int(np.square(p - wanted).sum(1).argmin())
    return float(level[best]), p[best]
