"""Economic dispatch at equal incremental cost: all units off their limits produce at one marginal cost, the lambda.

The rule of operators whose units have costs that rise with their output, where merit order by mean prices fills one
unit after the other. It is blind to the network: lines are relieved afterwards, the worst one first, by the pair of
units that costs least for each MW of relief at the marginal costs of the moment, a few MW at a time.

Each step is dispatched by itself, at its own load: nothing of the steps to come is used. Dispatches stand in a table
over the load; between two of its loads a combination of both serves the load and keeps the ratings.
Source: Wood, Wollenberg and Sheble, Power Generation, Operation and Control, 3rd ed., Wiley 2014, chapter 3.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from powerzoo_jax.base.ranges import unchecked
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.families.transmission.plan.dispatch import MOST, DispatchCurve, host_system, reachable
from powerzoo_jax.families.transmission.plan.policies import (
    DISPATCH,
    GRID,
    KEPT_MW,
    cheapest_level,
    dispatch_actions,
    each_load,
    load_grid,
    over_levels,
    relieve_lines,
)
from powerzoo_jax.families.transmission.units_types import TransmissionParams
from powerzoo_jax.opf.offers import Offers, cost_of
from powerzoo_jax.oracle.registry import Baselines, Policy, follow

MOVED_MW, MOVES = 20.0, 150  # between two units, of a step: whole overloads at once cost four times as much more
BISECTIONS = 40  # of the incremental cost: its range of some 1e2 USD/MWh is then below the rounding of float32


def output_at(offers: Offers, incremental: Array, low: Array, high: Array) -> Array:
    """Output (G,) [MW] within limits (G,) at which units reach a marginal cost () [USD/MWh]."""
    above = incremental - offers.price
    rising = offers.slope > 0
    filled = jnp.where(rising, above / jnp.where(rising, offers.slope, 1), jnp.where(above > 0, offers.width_mw, 0))
    return jnp.clip(offers.base_mw + jnp.sum(jnp.clip(filled, 0, offers.width_mw), axis=1), low, high)


def equal_incremental(params: TransmissionParams, load_mw: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """Least-cost output (G,) [MW] within limits (G,), blind to the network, and what it costs () [USD/h].

    A load beyond all limits leaves units at the nearest ones, and what is missing or too much is priced.
    """
    offers = params.offers
    steepest = offers.price + offers.slope * offers.width_mw
    # one dollar beyond either end: there units are at their limits, also where prices are flat
    ends = jnp.min(offers.price) - 1, jnp.max(steepest) + 1

    def halve(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        down, up = ends
        middle = 0.5 * (down + up)
        short = jnp.sum(output_at(offers, middle, low, high)) < load_mw
        return jnp.where(short, middle, down), jnp.where(short, up, middle)

    down, up = lax.fori_loop(0, BISECTIONS, halve, ends)
    below, beyond = output_at(offers, down, low, high), output_at(offers, up, low, high)
    # units at one flat price share what lies between
    room = jnp.sum(beyond) - jnp.sum(below)
    share = jnp.clip((load_mw - jnp.sum(below)) / jnp.where(room > 0, room, 1), 0, 1)
    p = below + share * (beyond - below)
    missing = load_mw - jnp.sum(p)
    unmet = params.voll * jnp.maximum(missing, 0) + params.surplus_price * jnp.maximum(-missing, 0)
    return p, jnp.sum(unchecked(cost_of)(offers, p)) + unmet


def economic(params: TransmissionParams, load_mw: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """Equal incremental cost, then output moved between two units until no line is overloaded; overloads priced."""
    blind = equal_incremental(params, load_mw, low, high)
    return relieve_lines(params, load_mw, low, high, blind, most_mw=MOVED_MW, shifts=MOVES)


STEPS = {"economic": over_levels(equal_incremental), "rule": over_levels(economic)}


def economic_curve(sim: Sim, loads_mw: np.ndarray, *, secure: bool = True) -> DispatchCurve:
    """Dispatches of the rule at rising loads (K,) [MW], shunts included.

    secure:  lines are relieved; where pairs of units mend no overload, the optimal dispatch of the load under the
             ratings stands in. False ignores the lines
    """
    system = host_system(sim)
    low, high = (np.tile(x, (len(loads_mw), 1)) for x in (system.low_mw, system.high_mw))
    level, p, _ = cheapest_level(sim, STEPS["rule" if secure else "economic"], loads_mw, low, high)
    if not sim.env.schedule:
        # of all levels that give a dispatch the lowest one: combinations of two are then reached as well
        level = (p - low).max(axis=1) / MOST
    over = system.overload(p, loads_mw) > KEPT_MW
    if secure and over.any():
        on = np.asarray(sim.params.rules.available)
        safest = reachable(system, on, loads_mw[over], scores=not sim.env.schedule)
        p[over], level[over] = safest.p_mw, safest.level_mw
    return DispatchCurve(np.asarray(loads_mw, np.float64), p, level)


def _play(sim: Sim, draws: Draw, **how: Any) -> Policy:
    loads, system = each_load(sim, draws), host_system(sim)
    curve = economic_curve(sim, load_grid(loads, GRID), **how)
    plans = []
    for load in loads:
        p, level = curve.at(load)
        plans.append(dispatch_actions(sim, system, level, p))
    return follow(sim, np.stack(plans))


def _economic(sim: Sim, draws: Draw, keys: Array) -> Policy:
    """Security-aware economic dispatch."""
    del keys
    return _play(sim, draws)


def _blind(sim: Sim, draws: Draw, keys: Array) -> Policy:
    """Economic dispatch that ignores the lines."""
    del keys
    return _play(sim, draws, secure=False)


ECONOMIC = Baselines(
    rules={
        "no_control": DISPATCH.rules["no_control"],
        "merit": DISPATCH.rules["merit"],
        "secure_merit": DISPATCH.rules["rule"],
        "economic": _blind,
        "rule": _economic,
    },
    oracle=DISPATCH.oracle,
    splits=DISPATCH.splits,
    violating="merit",
)
