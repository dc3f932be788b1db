"""Reference policies of a transmission grid with feeders: units as in the dispatch tasks, batteries that shift load.

What a feeder draws depends on its batteries alone. They are planned first, as takers of a price, and played; the units
then meet the load that results, at the buses where it arises.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from powerzoo_jax.base.tree import take
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.families.feeder.arbitrage.plan import solve_storage
from powerzoo_jax.families.feeder.arbitrage.policies import quantile_signal
from powerzoo_jax.families.feeder.arbitrage.problem import StorageEpisode, play
from powerzoo_jax.families.feeder.plan.policies import GUARD_PU
from powerzoo_jax.families.joint.env import upper_params
from powerzoo_jax.families.transmission.plan.dispatch import (
    DispatchSystem,
    cheapest_output,
    free_floor,
    host_system,
    rated_floor,
    reachable,
)
from powerzoo_jax.families.transmission.plan.episode import episode_load
from powerzoo_jax.families.transmission.plan.policies import best_level, dispatch_actions, equal_scores
from powerzoo_jax.oracle.registry import Baselines, OraclePlan, Policy, follow

KEPT = 0.99  # of the ratings, that the rule keeps: it takes the whole load to keep its shares of the buses
STEP_MW = 1.0  # to both sides, over which the price of load is taken
DEEP_PU = 0.02  # below the band, at which the rule discharges in full
SUPPORT_USD = 100_000.0  # [USD/MWh per pu] below the band, that plans add to the price: the deepest steps come first


class BoundaryDemand(NamedTuple):
    """Load (T,) [MW] of the units, draw of the feeders at each boundary bus beyond the schedule (T, K) [MW], and
    the lowest voltage (T,) [pu] of all feeders.
    """

    load_mw: np.ndarray
    beyond_mw: np.ndarray
    v_min_pu: np.ndarray


class BoundaryPrices(NamedTuple):
    """Price of one more MW at each boundary bus (K, T) [USD/MWh]; cost of the units at the scheduled load (T,) [USD/h].

    reached:                 as scores can dispatch the units
    free, rated, *_usd:      straight supports of what no dispatch undercuts, without and with the ratings
    """

    reached: np.ndarray
    free: np.ndarray
    rated: np.ndarray
    free_usd: np.ndarray
    rated_usd: np.ndarray


def units_alone(sim: Sim) -> Sim:
    """The transmission grid alone, under the scheduled load."""
    return replace(sim, env=sim.env.transmission, params=upper_params(sim.params))


def _batteries(sim: Sim, soc: np.ndarray, price: np.ndarray, may_charge: np.ndarray | None = None) -> StorageEpisode:
    """The batteries of one feeder, paid a price (T,) [USD/MWh]; what is left in store settles as in the task."""
    stored = sim.params.stored_per_mwh
    fleet = {name: np.asarray(value) for name, value in vars(sim.params.feeder.storage).items()}
    wide = {name: value.astype(np.float64) for name, value in fleet.items() if value.dtype.kind == "f"}
    return StorageEpisode(
        price_per_mwh=price,
        mean_price_per_mwh=0.0 if stored is None else float(stored),
        dt_hours=sim.env.dt_hours,
        soc_start=np.clip(soc, wide["soc_min"], wide["soc_max"]),
        soc_min=wide["soc_min"],
        soc_max=wide["soc_max"],
        capacity_mwh=wide["capacity_mwh"],
        power_mw=wide["power_mw"],
        eta_charge=wide["eta_charge"],
        eta_discharge=wide["eta_discharge"],
        degradation_per_mwh=wide["degradation_per_mwh"],
        mask=fleet["mask"],
        weight_settlement=0.0 if stored is None else 1.0,
        may_charge=may_charge,
    )


@jax.jit
def _exchanges(sim: Sim, draws: Draw, below: Array) -> tuple[Array, Array, Array]:
    """Load (B, T) of the units, draw (B, T, K) of the feeders [MW] and lowest voltage (B, T) under battery actions."""
    idle = jnp.zeros(sim.env.transmission.dims.agent, below.dtype)

    def advance(state: Any, own: Array) -> tuple[Any, tuple[Array, ...]]:
        out = sim.step(state, jnp.concatenate([idle, own])[:, None])
        return out.state, (out.info.load_mw, out.info.exchange_mw, out.info.v_min_pu)

    def episode(drawn: Draw, own: Array) -> Any:
        return lax.scan(advance, sim.env.begin(jax.random.key(0), drawn, sim.params)[0], own)[1]

    load, drawn, lowest = jax.vmap(episode)(draws, below)
    return load, drawn, lowest


def boundary_demand(sim: Sim, draws: Draw, below: np.ndarray, loads: Sequence[np.ndarray]) -> list[BoundaryDemand]:
    """Play the feeders under battery actions (B, T, F S); loads (T,) [MW] as scheduled, shunts included."""
    params, dtype = sim.params, sim.params.voll.dtype
    load, drawn, lowest = (np.asarray(x, np.float64) for x in _exchanges(sim, draws, jnp.asarray(below, dtype)))
    each = float(params.feeder_scale) * float(params.feeder.load_ratio) * float(params.feeder.load_mw)
    hung = each * np.bincount(np.asarray(params.feeder_bus), minlength=drawn.shape[2])
    shunt, full = float(params.transmission.shunt_mw), float(params.transmission.full_load_mw)
    planned = [((scheduled - shunt) / full)[:, None] * hung for scheduled in loads]
    return [BoundaryDemand(a + shunt, b - c, v) for a, b, c, v in zip(load, drawn, planned, lowest, strict=True)]


def voltage_room(sim: Sim, draws: Draw, loads: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Margin of the lowest voltage of each episode above the lower limit while batteries are idle, (T,) [pu]."""
    n_battery = sim.env.dims.agent - sim.env.transmission.dims.agent
    idle = boundary_demand(sim, draws, np.zeros((len(loads), sim.spec.horizon, n_battery)), loads)
    return [demand.v_min_pu - float(np.max(sim.params.feeder.grid.v_min)) for demand in idle]


def charging_share(room_pu: np.ndarray) -> np.ndarray:
    """Share (T,) of the rating at which charging leaves the voltage inside the band."""
    return np.clip(room_pu / GUARD_PU, 0.0, 1.0)


def where_drawn(system: DispatchSystem, of_bus: np.ndarray, beyond_mw: np.ndarray) -> DispatchSystem:
    """The system with loads (K,) [MW] beyond the scheduled one at their buses, of flows (L, K) per MW."""
    return replace(system, fixed_mw=system.fixed_mw + system.of_load * beyond_mw.sum() - of_bus @ beyond_mw)


def boundary_prices(sim: Sim, system: DispatchSystem, loads_mw: np.ndarray) -> BoundaryPrices:
    on, of_bus = np.asarray(sim.params.transmission.rules.available), np.asarray(sim.params.factors.of_bus, np.float64)
    scores = not sim.env.transmission.schedule
    around = loads_mw + STEP_MW * np.array([[-1.0], [1.0]])
    # any price supports the cost from below: rounding costs tightness alone. Losses, left out, must not pay
    low, high = (free_floor(system, on[None], x)[0] for x in around)
    free = np.clip((high - low) / (2 * STEP_MW), 0.0, system.voll)
    free_usd = np.where(on, cheapest_output(system.costs, free[:, None])[1], 0).sum(-1) + free * loads_mw
    reached, rated, rated_usd = (np.zeros((of_bus.shape[1], len(loads_mw))) for _ in range(3))
    for k, flows in enumerate(of_bus.T):
        for t, load in enumerate(loads_mw):
            # the system with the load as scheduled, and every further MW at one bus, of flows (L,) per MW
            served = float(load) - system.shunt_mw
            here = replace(system, of_load=flows, fixed_mw=system.fixed_mw - (system.of_load - flows) * served)
            p = reachable(here, on, around[:, t], scores=scores).p_mw
            reached[k, t] = np.diff(here.cost(on, p, around[:, t]))[0] / (2 * STEP_MW)
            support = rated_floor(here, on, loads_mw[t : t + 1])
            rated[k, t], rated_usd[k, t] = support.slope[0], support.at(loads_mw[t : t + 1])[0]
    # with several boundary buses a support has a price for each: the one without ratings then serves for both
    usable = len(of_bus.T) == 1 and (rated >= 0).all()
    free = np.tile(free, (of_bus.shape[1], 1))
    return BoundaryPrices(reached, free, rated if usable else free, free_usd, rated_usd[0] if usable else free_usd)


def battery_fleets(
    sim: Sim, soc: np.ndarray, price: np.ndarray, may_charge: np.ndarray | None = None
) -> list[StorageEpisode]:
    """The batteries of each feeder, paid the prices (K, T) [USD/MWh] of its bus."""
    hung = np.asarray(sim.params.feeder_bus)
    fleets = zip(soc.reshape(len(hung), -1), hung, strict=True)
    return [_batteries(sim, own, price[k], may_charge) for own, k in fleets]


def battery_plans(
    sim: Sim, soc: np.ndarray, price: np.ndarray, may_charge: np.ndarray | None = None
) -> tuple[np.ndarray, float, float]:
    """Best plan (T, F S) [MW] at prices (K, T), its wear less what settles, and the most that all can earn, [USD]."""
    problems, scale = battery_fleets(sim, soc, price, may_charge), float(sim.params.feeder_scale)
    solved = [solve_storage(problem) for problem in problems]
    spent = 0.0
    for problem, found in zip(problems, solved, strict=True):
        settled = problem.settled_mwh(play(problem, found.plan_mw).soc[-1]).sum()
        spent += problem.dt_hours * float(problem.degradation_per_mwh @ np.abs(found.plan_mw).sum(0))
        spent -= problem.weight_settlement * problem.mean_price_per_mwh * float(settled)
    return np.hstack([x.plan_mw for x in solved]), scale * spent, scale * sum(x.bound for x in solved)


def _normed(sim: Sim, plan_mw: np.ndarray) -> np.ndarray:
    rating = np.asarray(sim.params.feeder.storage.power_mw, np.float64)
    return plan_mw / np.tile(rating, plan_mw.shape[-1] // len(rating))


def _joined(units: np.ndarray, below: np.ndarray) -> np.ndarray:
    return np.concatenate([units, below[..., None]], axis=1)


def _by_rule(sim: Sim, draws: Draw, name: str, below: np.ndarray, kept: float) -> Policy:
    """Units by a rule of dispatch, by its name in `RULES`, for the load that battery actions (B, T, F S) leave."""
    upper = units_alone(sim)
    upper = replace(upper, params=replace(upper.params, rate_mw=kept * upper.params.rate_mw))
    system, plans = host_system(upper), []
    loads = [episode_load(upper, take(draws, i)) for i in range(len(below))]
    for own, demand in zip(below, boundary_demand(sim, draws, below, loads), strict=True):
        low, high = (np.tile(x, (len(demand.load_mw), 1)) for x in (system.low_mw, system.high_mw))
        level, p, _ = best_level(upper, name, demand.load_mw, low, high)
        plans.append(_joined(dispatch_actions(upper, system, level, p), own))
    return follow(sim, np.stack(plans))


def _merit_order(sim: Sim, draws: Draw, keys: Array) -> Policy:
    """Cheapest units first, blind to the network; batteries idle."""
    del keys
    n_battery = sim.env.dims.agent - sim.env.transmission.dims.agent
    return _by_rule(sim, draws, "merit", np.zeros((draws.load_row.shape[0], sim.spec.horizon, n_battery)), 1.0)


def _secure_merit_order(sim: Sim, draws: Draw, keys: Array) -> Policy:
    """Merit order that heeds the lines; batteries charge in the quarter of a day with the least load, as the voltage
    allows, and discharge in the quarter with the most, but keep what they have for steps below the voltage band. Where
    stored energy settles they sell no more than they bought.
    """
    del keys
    upper, n_feeder, below = units_alone(sim), sim.env.n_feeder, []
    loads = [episode_load(upper, take(draws, i)) for i in range(draws.load_row.shape[0])]
    rooms = voltage_room(sim, draws, loads)
    for soc, load, room in zip(np.asarray(draws.soc, np.float64), loads, rooms, strict=True):
        signal = quantile_signal(load, sim.env.dt_hours)
        signal = np.where(signal < 0, signal * charging_share(room), signal)
        low = np.flatnonzero(room < 0)
        if low.size:
            signal[: low[-1]] = np.minimum(signal[: low[-1]], 0.0)
            signal[low] = np.minimum(-room[low] / DEEP_PU, 1.0)
        problems = [_batteries(sim, own, load) for own in soc.reshape(n_feeder, -1)]
        if sim.params.stored_per_mwh is not None and not low.size:
            problems = [replace(p, soc_min=p.soc_start) for p in problems]
        below.append(_normed(sim, np.hstack([play(p, signal[:, None] * p.power_mw).p_mw for p in problems])))
    return _by_rule(sim, draws, "rule", np.stack(below), KEPT)


def _oracle(sim: Sim, draws: Draw, keys: Array) -> OraclePlan:
    """Batteries that take the price of the units' dispatch at the scheduled load, and the dispatch that they lead to.

    Bounds: the cost of the units is supported by a straight line at the load without losses, along which the batteries
    are best on their own.
    """
    del keys
    upper = units_alone(sim)
    system, dt = host_system(upper), sim.env.dt_hours
    soc = np.asarray(draws.soc, np.float64)
    loads = [episode_load(upper, take(draws, i)) for i in range(len(soc))]
    prices = [boundary_prices(sim, system, load) for load in loads]
    plans = []
    for own, price, room in zip(soc, prices, voltage_room(sim, draws, loads), strict=True):
        wanted = price.reached + SUPPORT_USD * np.maximum(-room, 0)
        plans.append(battery_plans(sim, own, wanted, charging_share(room)))
    below = np.stack([_normed(sim, plan) for plan, _, _ in plans])
    actions, costs = _optimal_units(sim, draws, below, loads)
    money = []
    for i, (price, (_, spent, _)) in enumerate(zip(prices, plans, strict=True)):
        supports = ((price.free, price.free_usd), (price.rated, price.rated_usd))
        free, rated = (dt * usd.sum() - battery_plans(sim, soc[i], at)[2] for at, usd in supports)
        money.append([costs[i] + spent, free, max(rated, free)])
    objective, bound, kept_bound = -sim.spec.term_weights[0] * np.array(money).T
    return OraclePlan(follow(sim, actions), objective, bound, kept_bound)


def _optimal_units(
    sim: Sim, draws: Draw, below: np.ndarray, loads: Sequence[np.ndarray]
) -> tuple[np.ndarray, list[float]]:
    """Actions (B, T, A, 1) of the cheapest dispatch that scores reach under battery actions (B, T, F S), and its cost.

    loads:  (T,) [MW] as scheduled;  cost: [USD] of each episode
    """
    upper, of_bus = units_alone(sim), np.asarray(sim.params.factors.of_bus, np.float64)
    system, on = host_system(upper), np.asarray(upper.params.rules.available)
    scores = not sim.env.transmission.schedule
    actions, costs = [], []
    for own, demand in zip(below, boundary_demand(sim, draws, below, loads), strict=True):
        there = [where_drawn(system, of_bus, beyond) for beyond in demand.beyond_mw]
        steps = [reachable(s, on, demand.load_mw[t : t + 1], scores=scores) for t, s in enumerate(there)]
        p, level = np.stack([x.p_mw[0] for x in steps]), np.array([x.level_mw[0] for x in steps])
        actions.append(_joined(dispatch_actions(upper, system, level, p), own))
        costs.append(sim.env.dt_hours * float(system.cost(on, p, demand.load_mw).sum()))
    return np.stack(actions), costs


def _idle_batteries(sim: Sim, draws: Draw, keys: Array) -> Policy:
    """The units of the oracle with idle batteries: what it earns less is what the batteries are worth."""
    del keys
    upper = units_alone(sim)
    loads = [episode_load(upper, take(draws, i)) for i in range(draws.load_row.shape[0])]
    n_battery = sim.env.dims.agent - sim.env.transmission.dims.agent
    return follow(sim, _optimal_units(sim, draws, np.zeros((len(loads), sim.spec.horizon, n_battery)), loads)[0])


JOINT = Baselines(
    rules={
        "no_control": equal_scores,
        "merit": _merit_order,
        "rule": _secure_merit_order,
        "idle_batteries": _idle_batteries,
    },
    oracle=_oracle,
    violating="merit",
)
