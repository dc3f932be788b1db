"""Bounds of a transmission grid with feeders at a price of overload, for the search under mean budgets.

Batteries couple the steps of a day, units do not: a price of load at the boundary parts the two. With F_t(b) a lower
bound of what units cost in step t where the feeders draw b beyond the schedule, q <= b of it into batteries and the
rest in losses, and any prices pi_t >= 0,

    cost of a day  >=  sum_t dt min_(q <= b) (F_t(b) - pi_t q)  -  most that batteries earn which sell at pi
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jax import Array

from powerzoo_jax.base.tree import take
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.families.feeder.arbitrage.problem import branches, storage_program
from powerzoo_jax.families.joint.plan.policies import battery_fleets, battery_plans, units_alone, where_drawn
from powerzoo_jax.families.transmission.plan.dispatch import DispatchSystem, host_system, level_boxes, line_of, support
from powerzoo_jax.families.transmission.plan.episode import episode_load
from powerzoo_jax.families.transmission.plan.policies import load_grid
from powerzoo_jax.families.transmission.plan.priced import OVERLOAD
from powerzoo_jax.oracle.foresight import OraclePlans
from powerzoo_jax.oracle.lagrangian import PricedPlan
from powerzoo_jax.oracle.linear_program import ProgramWriter, solve

OVERLOAD_USD = 30.0, 100.0, 300.0  # [USD/MWh] of overload, that bounds are tried at
FREE_LOADS, REACHED_LOADS = 65, 17  # scheduled loads at which bounds touch, without and with the levels of scores
DRAWS = 25  # from full discharge to full charge, between which costs count as straight where prices are sought
HALVINGS = 50  # of the draws among which the least bound is: below the rounding of float64


class BoundaryFloor(NamedTuple):
    """Lower bounds of the units' cost [USD/h], straight over the scheduled load and the draw b beyond it at one bus.

    base + slope (load + b) + moved b

    base:   (K,)  [USD/h]
    slope:  (K,)  [USD/MWh]
    moved:  (K,)  [USD/MWh]  of ratings, since b is drawn at this bus and not at all buses, as the schedule is
    least_mw, most_mw: () [MW]  of all units
    """

    base: np.ndarray
    slope: np.ndarray
    moved: np.ndarray
    least_mw: float
    most_mw: float

    def at(self, load_mw: np.ndarray, beyond_mw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The highest of them at loads and draws (T,), (T,) [USD/h], and its rise over the draw (T,) [USD/MWh]."""
        load, beyond = load_mw[:, None], beyond_mw[:, None]
        lines = self.base + self.slope * (load + beyond) + self.moved * beyond
        highest = lines.argmax(1)
        return lines[np.arange(len(lines)), highest], (self.slope + self.moved)[highest]

    def least(self, load_mw: np.ndarray, price: np.ndarray, rating_mw: float) -> np.ndarray:
        """Least bound less price (T,) >= 0 times what batteries draw, (T,) [USD/h]; inf where units cannot serve it.

        rating_mw:  of the batteries; what is drawn beyond them are losses, which no price is paid for
        """
        down, up = np.maximum(self.least_mw - load_mw, -rating_mw), self.most_mw - load_mw
        able = down <= up
        for _ in range(HALVINGS):
            middle = 0.5 * (down + up)
            falls = self.at(load_mw, middle)[1] < np.where(middle < rating_mw, price, 0.0)
            down, up = np.where(falls, middle, down), np.where(falls, up, middle)
        ends = [self.at(load_mw, b)[0] - price * np.minimum(b, rating_mw) for b in (down, up)]
        return np.where(able, np.minimum(*ends), np.inf)


def boundary_floors(
    systems: Sequence[DispatchSystem],
    sim: Sim,
    loads_mw: np.ndarray,
    rating_mw: float,
    overload_usd: float,
) -> tuple[BoundaryFloor, ...]:
    """Bounds of each system, touched at scheduled loads (K,) [MW] while batteries are idle, charge and discharge.

    systems:       that share the network, with limits of their own
    overload_usd:  [USD/MWh] paid for what each branch carries beyond its rating
    """
    on, of_bus = np.asarray(sim.params.transmission.rules.available), np.asarray(sim.params.factors.of_bus, np.float64)
    floors = []
    for system in systems:
        least, most, lines = system.low_mw.sum(), system.high_mw.sum(), []
        watched = np.zeros(len(system.rate_mw), bool)
        for load in loads_mw:
            for beyond in np.unique(np.clip(rating_mw * np.array([-1.0, 0.0, 1.0]), least - load, most - load)):
                found = support(
                    where_drawn(system, of_bus, np.array([beyond])), on, load + beyond, watched, overload_usd
                )
                mu = found.upper - found.lower
                lines.append((*line_of(system, on, found), float(mu @ (system.of_load - of_bus[:, 0]))))
                watched = found.watched
        base, slope, moved = np.array(lines).T
        floors.append(BoundaryFloor(base, slope, moved, float(least), float(most)))
    return tuple(floors)


class JointPlans:
    """Priced planner of drawn joint episodes, see `lagrangian.PricedPlanner`; plans are those of the oracle.

    Bounds are of any dispatch within the limits of the units, reachable or not, and `reached_bound` is of what scores
    reach. Load beyond all units is left out: it costs more than any other plan. Where feeders hang from several
    buses, bounds are those of the oracle.

    first_prices:  that the search begins with after none: plans keep the budgets anyway, bounds need a price for that
    """

    def __init__(self, sim: Sim, draws: Draw, keys: Array) -> None:
        self.sim, self.draws, self.keys = sim, draws, keys
        upper = units_alone(sim)
        self.system, self.on = host_system(upper), np.asarray(upper.params.rules.available)
        self.loads = [episode_load(upper, take(draws, i)) for i in range(draws.load_row.shape[0])]
        self.at_one_bus = sim.params.factors.of_bus.shape[1] == 1
        fleet, feeders = sim.params.feeder.storage, len(sim.params.feeder_bus)
        each = float(np.sum(np.where(fleet.mask, fleet.power_mw, 0.0), dtype=np.float64))
        self.rating_mw = float(sim.params.feeder_scale) * feeders * each
        self.money = sim.spec.term_weights[0]
        self.overload = sim.spec.cost_names.index(OVERLOAD)
        of_overload = np.arange(len(sim.spec.cost_names)) == self.overload
        self.first_prices = tuple(self.money * sim.env.dt_hours * usd * of_overload for usd in OVERLOAD_USD)
        self.most_price = self.first_prices[-1]
        self.known: dict[tuple[float, bool], tuple[BoundaryFloor, ...]] = {}

    @cached_property
    def oracle(self) -> OraclePlans:
        return OraclePlans(self.sim, self.draws, self.keys)

    def plan(self, episode: int, price: np.ndarray) -> PricedPlan:
        """Plan of an episode at prices (C,) [reward per unit of the channel]."""
        return self.oracle.plan(episode, price)._replace(bound=self.bound(episode, price))

    def bound(self, episode: int, price: np.ndarray) -> float:
        """Bound of an episode at prices (C,), as that of a plan."""
        return self._bound(episode, price, scores=False)

    def reached_bound(self, episode: int, price: np.ndarray) -> float:
        """Bound of an episode at prices (C,), as that of `plan`, of what the actions of the task can reach."""
        bound = self.bound(episode, price)
        return bound if self.sim.env.transmission.schedule else min(bound, self._bound(episode, price, scores=True))

    def _bound(self, episode: int, price: np.ndarray, *, scores: bool) -> float:
        if not self.at_one_bus:
            return float(self.oracle.bounds[episode])
        floors = self._floors(float(price[self.overload]) / (self.money * self.sim.env.dt_hours), scores)
        load, soc = self.loads[episode], np.asarray(self.draws.soc[episode], np.float64)
        worth = self._worth(floors, load, soc)
        units = np.min([floor.least(load, worth, self.rating_mw) for floor in floors], axis=0)
        _, _, earned = battery_plans(self.sim, soc, worth[None])
        return -self.money * (self.sim.env.dt_hours * float(units.sum()) - earned)

    def _worth(self, floors: tuple[BoundaryFloor, ...], load_mw: np.ndarray, soc: np.ndarray) -> np.ndarray:
        """Prices of load (T,) [USD/MWh] at which batteries and units agree best: multipliers of a linear program.

        Any prices give a bound. The program mixes draws whose costs are known, so that these count as convex.
        """
        dt, scale, draws = (
            self.sim.env.dt_hours,
            float(self.sim.params.feeder_scale),
            self.rating_mw * np.linspace(-1, 1, DRAWS),
        )
        cost = np.stack([self._cost(floors, load_mw, b) for b in draws], axis=1)
        able, writer = np.isfinite(cost), ProgramWriter()
        share = writer.columns(cost.shape, dt * np.where(able, cost, 0.0), 0.0, able)
        whole, balance = writer.rows(len(load_mw), 1.0, 1.0), writer.rows(len(load_mw), 0.0, 0.0)
        writer.put(whole[:, None], share, 1.0)
        writer.put(balance[:, None], share, draws)
        for fleet in battery_fleets(self.sim, soc, np.zeros((1, len(load_mw)))):
            for unit in np.flatnonzero(fleet.mask):
                program, (charge, discharge) = storage_program(fleet, int(unit), branches(fleet)[0])
                own = writer.part(program, scale)
                writer.put(balance, own[charge], -scale)
                writer.put(balance, own[discharge], scale)
        found = solve(writer.program(), hint="A battery can always stay idle, so look for loads that no units serve.")
        return np.maximum(found.dual[balance] / dt, 0.0)

    def _cost(self, floors: tuple[BoundaryFloor, ...], load_mw: np.ndarray, beyond_mw: float) -> np.ndarray:
        """The lowest bound among the floors that can serve loads (T,) and a draw, (T,) [USD/h]."""
        beyond, total = np.full(len(load_mw), beyond_mw), load_mw + beyond_mw
        each = [
            np.where((f.least_mw <= total) & (total <= f.most_mw), f.at(load_mw, beyond)[0], np.inf) for f in floors
        ]
        lowest: np.ndarray = np.min(each, axis=0)
        return lowest

    def _floors(self, overload_usd: float, scores: bool) -> tuple[BoundaryFloor, ...]:
        at = overload_usd, scores
        if at not in self.known:
            grid = load_grid(self.loads, REACHED_LOADS if scores else FREE_LOADS)
            # losses have no limit but what the units can serve
            reach = grid[0] - self.rating_mw, float(self.system.high_mw.sum())
            systems = level_boxes(self.system, self.on, *reach) if scores else (self.system,)
            self.known[at] = boundary_floors(tuple(systems), self.sim, grid, self.rating_mw, overload_usd)
        return self.known[at]
