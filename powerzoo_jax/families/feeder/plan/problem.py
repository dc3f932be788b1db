"""An episode on a radial feeder with mixed devices as plain host arrays, and its devices played forward in float64.

Play a plan on a feeder with the exact power flow, and price the limits it breaks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from powerzoo_jax.families.feeder.arbitrage.problem import StoredEnergy
from powerzoo_jax.families.feeder.plan.network import FeederFlow, RadialNetwork, solve_steps


@dataclass(frozen=True, eq=False, kw_only=True)
class StorageUnits(StoredEnergy):
    """Batteries, (B,) each, as in `devices.storage`; node is a position of the RadialNetwork.

    reactive: the units take reactive commands inside the circle of s_mva
    """

    node: np.ndarray
    power_mw: np.ndarray
    s_mva: np.ndarray
    wear_per_mwh: np.ndarray
    reactive: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class PlantUnits:
    """PV or wind plants: node, s_mva (P,); available_mw, curtail_per_mwh [$/MWh] (T, P); reactive as for storage."""

    node: np.ndarray
    s_mva: np.ndarray
    available_mw: np.ndarray
    curtail_per_mwh: np.ndarray
    reactive: bool = True


@dataclass(frozen=True, eq=False, kw_only=True)
class FlexUnits:
    """Flexible loads: caps and prices (F,); load_mw and q_ratio [MVAr/MW] (T, F); deferral returns over `horizon`."""

    node: np.ndarray
    curtail_cap_mw: np.ndarray
    shift_cap_mw: np.ndarray
    curtail_per_mwh: np.ndarray
    shift_per_mwh: np.ndarray
    load_mw: np.ndarray
    q_ratio: np.ndarray
    horizon: int

    def returns(self) -> np.ndarray:
        """(T, T): share of what is deferred in a step (column) that comes back in another (row)."""
        steps = len(self.load_mw)
        lag = np.subtract.outer(np.arange(steps), np.arange(steps))
        return ((lag >= 1) & (lag <= self.horizon)) / self.horizon

    def left_over(self) -> np.ndarray:
        """(T,): share of what is deferred in a step that has not come back at the end."""
        return 1.0 - self.returns().sum(axis=0)


@dataclass(frozen=True, eq=False, kw_only=True)
class VehicleUnits(StoredEnergy):
    """Vehicles with the trips of the episode known, (V,) or (T, V) each, as in `devices.vehicle`.

    home:        (T, V) bool  plugged in during the step
    driven_mwh:  (T, V)  [MWh]  energy of the trip that arrives in the step, before any charging in it
    departs:     (T, V) bool  leaves in the step, after that arrival
    need:        (V,)  state of charge expected on departure;  unmet_per_mwh: (V,) [$/MWh]
    """

    node: np.ndarray
    charge_mw: np.ndarray
    discharge_mw: np.ndarray
    wear_per_mwh: np.ndarray
    need: np.ndarray
    unmet_per_mwh: np.ndarray
    home: np.ndarray
    driven_mwh: np.ndarray
    departs: np.ndarray


@dataclass(frozen=True, eq=False, kw_only=True)
class FeederEpisode:
    """One episode of T steps. Money is price * (P of batteries and vehicles) dt + settlement - every cost.

    load_p_mw, load_q_mvar: (T, M)  scheduled consumption of the nodes
    price_per_mwh, loss_per_mwh: (T,)  [$/MWh]  of device energy and of network losses
    mean_price_per_mwh:  [$/MWh]  what a change of stored energy is settled at
    v_min, v_max:        [pu]  band of every bus
    rate_mva:            (M,)  [MVA]  rating of the branch to each node, 0 = unlimited; None = all unlimited
    scale:               reward per $ of this money
    """

    network: RadialNetwork
    load_p_mw: np.ndarray
    load_q_mvar: np.ndarray
    price_per_mwh: np.ndarray
    loss_per_mwh: np.ndarray
    mean_price_per_mwh: float
    v_min: float
    v_max: float
    dt_hours: float
    scale: float = 1.0
    rate_mva: np.ndarray | None = None
    storage: StorageUnits | None = None
    plants: PlantUnits | None = None
    flex: FlexUnits | None = None
    vehicles: VehicleUnits | None = None

    @property
    def horizon(self) -> int:
        return len(self.price_per_mwh)


@dataclass(frozen=True, eq=False, kw_only=True)
class SetPoints:
    """Set-points that a plan asks of every device, (T, units) each; an absent kind has no columns.

    storage_mw, storage_mvar, plant_mw, plant_mvar, shed_mw, defer_mw, vehicle_mw; injections are positive
    """

    storage_mw: np.ndarray
    storage_mvar: np.ndarray
    plant_mw: np.ndarray
    plant_mvar: np.ndarray
    shed_mw: np.ndarray
    defer_mw: np.ndarray
    vehicle_mw: np.ndarray


class PlayedDevices(NamedTuple):
    """Devices after a plan: what was delivered, node injections (T, M) [MW, MVAr], money [$] and missed energy [MWh].

    money_usd:      device money of the episode, network losses not among it
    shortfall_mwh:  below the level that drivers expect on departure;  unmet_mwh: driven and not in the battery
    """

    points: SetPoints
    p_mw: np.ndarray
    q_mvar: np.ndarray
    money_usd: float
    shortfall_mwh: float
    unmet_mwh: float


@dataclass(eq=False)
class _Sum:
    """Running totals while one kind after the other is played."""

    p: np.ndarray
    q: np.ndarray
    money: float = 0.0
    missed: dict[str, float] = field(default_factory=lambda: {"shortfall": 0.0, "unmet": 0.0})

    def inject(self, node: np.ndarray, p: np.ndarray, q: np.ndarray) -> None:
        for k, at in enumerate(node):
            self.p[:, at] += p[:, k]
            self.q[:, at] += q[:, k]


def play_devices(problem: FeederEpisode, asked: SetPoints) -> PlayedDevices:
    """Deliver what limits allow, by the equations of `devices`, written again in NumPy float64."""
    total = _Sum(np.zeros_like(problem.load_p_mw), np.zeros_like(problem.load_q_mvar))
    done = {name: getattr(asked, name).copy() for name in asked.__dataclass_fields__}
    if problem.storage is not None:
        _play_storage(problem, problem.storage, done, total)
    if problem.plants is not None:
        _play_plants(problem, problem.plants, done, total)
    if problem.flex is not None:
        _play_flex(problem, problem.flex, done, total)
    if problem.vehicles is not None:
        _play_vehicles(problem, problem.vehicles, done, total)
    return PlayedDevices(
        SetPoints(**done), total.p, total.q, total.money, total.missed["shortfall"], total.missed["unmet"]
    )


def _circle(s_mva: np.ndarray, p_mw: np.ndarray, q_mvar: np.ndarray) -> np.ndarray:
    room = np.sqrt(np.maximum((s_mva - p_mw) * (s_mva + p_mw), 0))
    return np.clip(q_mvar, -room, room)


def _trade(problem: FeederEpisode, units: StorageUnits | VehicleUnits, p: np.ndarray, soc_end: np.ndarray) -> float:
    """Sales less wear, and the settlement of the change in store."""
    dt = problem.dt_hours
    sales = dt * (problem.price_per_mwh @ p).sum() - dt * (units.wear_per_mwh * np.abs(p)).sum()
    return float(sales + problem.mean_price_per_mwh * units.settled_mwh(soc_end).sum())


def _play_storage(problem: FeederEpisode, units: StorageUnits, done: dict[str, np.ndarray], total: _Sum) -> None:
    soc, p = units.soc_start, done["storage_mw"]
    for t in range(problem.horizon):
        p[t], soc = units.deliver(soc, np.clip(p[t], -units.power_mw, units.power_mw), problem.dt_hours)
    q = done["storage_mvar"] = _circle(units.s_mva, p, done["storage_mvar"]) * units.reactive
    total.money += _trade(problem, units, p, soc)
    total.inject(units.node, p, q)


def _play_plants(problem: FeederEpisode, units: PlantUnits, done: dict[str, np.ndarray], total: _Sum) -> None:
    p = done["plant_mw"] = np.clip(done["plant_mw"], 0, units.available_mw)
    q = done["plant_mvar"] = _circle(units.s_mva, p, done["plant_mvar"]) * units.reactive
    total.money -= problem.dt_hours * float((units.curtail_per_mwh * (units.available_mw - p)).sum())
    total.inject(units.node, p, q)


def _play_flex(problem: FeederEpisode, units: FlexUnits, done: dict[str, np.ndarray], total: _Sum) -> None:
    load = np.maximum(units.load_mw, 0)
    shed = done["shed_mw"] = np.minimum(np.clip(done["shed_mw"], 0, units.curtail_cap_mw), load)
    defer = done["defer_mw"] = np.minimum(np.clip(done["defer_mw"], 0, units.shift_cap_mw), load - shed)
    p = shed + defer - units.returns() @ defer
    left = units.curtail_per_mwh * (units.left_over() @ defer)
    prices = units.curtail_per_mwh * shed.sum(axis=0) + units.shift_per_mwh * defer.sum(axis=0) + left
    total.money -= problem.dt_hours * float(prices.sum())
    total.inject(units.node, p, p * units.q_ratio)


def _play_vehicles(problem: FeederEpisode, units: VehicleUnits, done: dict[str, np.ndarray], total: _Sum) -> None:
    soc, p = units.soc_start, done["vehicle_mw"]
    for t in range(problem.horizon):
        left = soc - units.driven_mwh[t] / units.capacity_mwh
        unmet = np.where(units.driven_mwh[t] > 0, np.maximum(units.soc_min - left, 0) * units.capacity_mwh, 0.0)
        soc = np.where(units.driven_mwh[t] > 0, np.maximum(left, units.soc_min), soc)
        short = np.maximum(units.need - soc, 0) * units.capacity_mwh * units.departs[t]
        total.missed["unmet"] += float(unmet.sum())
        total.missed["shortfall"] += float(short.sum())
        total.money -= float((units.unmet_per_mwh * unmet).sum())
        allowed = np.clip(p[t], -units.charge_mw, units.discharge_mw) * units.home[t]
        p[t], soc = units.deliver(soc, allowed, problem.dt_hours)
    total.money += _trade(problem, units, p, soc)
    total.inject(units.node, p, np.zeros_like(p))


def largest_injection(problem: FeederEpisode) -> np.ndarray:
    """Largest injection or draw of a node under any device action, (T, M) [MVA]."""
    size = np.hypot(problem.load_p_mw, problem.load_q_mvar)
    shape = (problem.horizon, 1)
    parts: list[tuple[np.ndarray, np.ndarray]] = []
    if problem.storage is not None:
        parts.append((problem.storage.node, np.ones(shape) * problem.storage.s_mva))
    if problem.plants is not None:
        parts.append((problem.plants.node, np.ones(shape) * problem.plants.s_mva))
    if problem.flex is not None:
        units = problem.flex
        back = units.returns() @ np.minimum(units.shift_cap_mw, np.maximum(units.load_mw, 0))
        parts.append((units.node, np.maximum(back, units.load_mw) * np.hypot(1, units.q_ratio)))
    if problem.vehicles is not None:
        power = np.maximum(problem.vehicles.charge_mw, problem.vehicles.discharge_mw)
        parts.append((problem.vehicles.node, power * problem.vehicles.home))
    for node, most in parts:
        for k, at in enumerate(node):
            size[:, at] += most[:, k]
    return size


def device_nodes(problem: FeederEpisode) -> np.ndarray:
    """Nodes with any device, sorted."""
    kinds = (problem.storage, problem.plants, problem.flex, problem.vehicles)
    return np.unique(np.concatenate([np.zeros(0, int), *(units.node for units in kinds if units is not None)]))


PRICES = 20.0  # a broken limit costs this many times the dearest energy that breaking it could move


class ViolationPrices(NamedTuple):
    """Prices of what an episode's cost channels add up: voltages outside the band, overloads, and missed energy.

    band:       [$/pu]   and step
    rating:     [$/MVA]  and step
    shortfall:  [$/MWh]  below the level that drivers expect on departure
    unmet:      [$/MWh]  driven and not in the battery, beside what the task itself pays for it
    """

    band: float
    rating: float
    shortfall: float
    unmet: float

    def of(self, violation_pu: float, overload_mva: float, shortfall_mwh: float, unmet_mwh: float) -> float:
        """Price of such sums [$]."""
        missed = self.shortfall * shortfall_mwh + self.unmet * unmet_mwh
        return self.band * violation_pu + self.rating * overload_mva + missed


FREE = ViolationPrices(0.0, 0.0, 0.0, 0.0)


class PlanOutcome(NamedTuple):
    """A plan played with the exact power flow; money in $.

    p_pu, q_pu:    (T, M)  consumption of the nodes
    money_usd:     what the task pays
    broken_usd:    broken limits at `limit_prices`
    violation_pu, overload_mva, shortfall_mwh, unmet_mwh: sums over the episode, as the cost channels have them
    """

    points: SetPoints
    solved: FeederFlow
    p_pu: np.ndarray
    q_pu: np.ndarray
    money_usd: float
    broken_usd: float
    violation_pu: float
    overload_mva: float
    shortfall_mwh: float
    unmet_mwh: float

    @property
    def missed_mwh(self) -> float:
        """Energy that drivers missed."""
        return self.shortfall_mwh + self.unmet_mwh

    def worth(self, prices: ViolationPrices) -> float:
        """Money less what the plan breaks at prices [$]."""
        return self.money_usd - prices.of(self.violation_pu, self.overload_mva, self.shortfall_mwh, self.unmet_mwh)


def limit_prices(problem: FeederEpisode) -> ViolationPrices:
    """Prices at which breaking a limit never pays."""
    dearest = max(100.0, float(np.abs(problem.price_per_mwh).max()), float(np.abs(problem.loss_per_mwh).max()))
    # the weakest lever on a voltage that breaks the band moves it by some 0.01 pu per MW
    need = PRICES * dearest
    return ViolationPrices(100 * need * problem.dt_hours, need * problem.dt_hours, need, need)


def run(problem: FeederEpisode, points: SetPoints) -> PlanOutcome:
    """Play a plan with the exact power flow."""
    played = play_devices(problem, points)
    base = problem.network.base_mva
    p, q = (problem.load_p_mw - played.p_mw) / base, (problem.load_q_mvar - played.q_mvar) / base
    solved = solve_steps(problem.network, p, q)
    size = np.abs(solved.v)
    violation = float(np.maximum(problem.v_min - size, 0).sum() + np.maximum(size - problem.v_max, 0).sum())
    overload = float(np.maximum(excess_mva(problem, solved), 0).sum())
    lost = base * problem.dt_hours * float((problem.loss_per_mwh * solved.loss_pu).sum())
    missed = played.shortfall_mwh, played.unmet_mwh
    return PlanOutcome(
        points=played.points,
        solved=solved,
        p_pu=p,
        q_pu=q,
        money_usd=played.money_usd - lost,
        broken_usd=limit_prices(problem).of(violation, overload, *missed),
        violation_pu=violation,
        overload_mva=overload,
        shortfall_mwh=missed[0],
        unmet_mwh=missed[1],
    )


def excess_mva(problem: FeederEpisode, solved: FeederFlow) -> np.ndarray:
    """Apparent power above the rating, (T, M) [MVA]; negative below it, -inf without a rating."""
    if problem.rate_mva is None:
        return np.full(solved.v.shape, -np.inf)
    power = problem.network.base_mva * np.abs(solved.v_up * np.conj(solved.current))
    return np.where(problem.rate_mva > 0, power - problem.rate_mva, -np.inf)
