"""The linear program of a feeder episode: devices exact or relaxed, network as tangent planes added one by one."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from powerzoo_jax.families.feeder.plan.problem import (
    FeederEpisode,
    FlexUnits,
    SetPoints,
    StorageUnits,
    VehicleUnits,
    ViolationPrices,
)
from powerzoo_jax.oracle.linear_program import LinearProgram, ProgramWriter, RowBlock


class Arrivals(NamedTuple):
    """Arrivals of the vehicles, (K,) each: column of the energy bought en route, row of the energy that is left.

    The row is at its lower limit where the battery is as empty as it may be.
    """

    bought: np.ndarray
    left: np.ndarray


CIRCLE = 5  # tangents to the upper half of an inverter circle, to begin with
OUTSIDE = 1e-6  # of the rating: how far from the circle a solution is before it gets a tangent of its own


class FeederProgram(ProgramWriter):
    """Columns, device rows and injections of an episode.

    inject_p, inject_q: (T M, n) sparse: device injection of every step and node [MW, MVAr]
    loss: (T,) columns [MW];  `cost @ x` is minus the money, and less what is broken once `priced`
    broken: columns of what is broken, by the name of its price
    arrivals: of vehicles whose trip used energy; None without any
    """

    def __init__(self, problem: FeederEpisode, *, most_loss: np.ndarray) -> None:
        super().__init__()
        self.problem = problem
        self.broken: dict[str, list[np.ndarray]] = {name: [] for name in ViolationPrices._fields}
        self.constant = 0.0  # of the cost
        self._circles: list[tuple[list[tuple[np.ndarray, float]], np.ndarray, np.ndarray]] = []
        self.column: dict[str, np.ndarray] = {}
        self.arrivals: Arrivals | None = None
        self._injected = {"p": RowBlock(), "q": RowBlock()}
        for block in self._injected.values():
            block.rows(problem.load_p_mw.size, 0.0, 0.0)
        dt = problem.dt_hours
        # a loss that is paid for would be pushed to its ceiling: the caller adds what that is worth to the bound
        self.new("loss", np.zeros(problem.horizon), most_loss, dt * np.maximum(problem.loss_per_mwh, 0))
        if problem.storage is not None:
            self._storage(problem.storage)
        if problem.plants is not None:
            self._plants()
        if problem.flex is not None:
            self._flex(problem.flex)
        if problem.vehicles is not None:
            self._vehicles(problem.vehicles)
        self.inject_p, self.inject_q = (self._injected[kind].matrix(self.width) for kind in ("p", "q"))

    def new(self, name: str, low: Any, high: Any, cost: Any) -> np.ndarray:
        """Add columns; the result has the common shape of bounds and cost and holds their positions."""
        shape = np.broadcast_shapes(np.shape(low), np.shape(high), np.shape(cost))
        self.column[name] = self.columns(shape, cost, low, high)
        return self.column[name]

    def priced(self, prices: ViolationPrices, *more: RowBlock) -> LinearProgram:
        """The program with prices on what is broken, and further blocks of rows under it."""
        linear = self.program(*more)
        cost = linear.cost.copy()
        for name, columns in self.broken.items():
            for at in columns:
                cost[at] += getattr(prices, name)
        return dataclasses.replace(linear, cost=cost)

    def set_points(self, x: np.ndarray) -> SetPoints:
        """Set-points of the devices in a solution; simultaneous charge and discharge are netted."""
        steps = self.problem.horizon

        def take(name: str) -> np.ndarray:
            return x[self.column[name]] if name in self.column else np.zeros((steps, 0))

        def padded(name: str, like: np.ndarray) -> np.ndarray:
            return take(name) if name in self.column else np.zeros_like(like)

        storage = take("discharge") - take("charge")
        return SetPoints(
            storage_mw=storage,
            storage_mvar=padded("storage_q", storage),
            plant_mw=take("plant"),
            plant_mvar=padded("plant_q", take("plant")),
            shed_mw=take("shed"),
            defer_mw=take("defer"),
            vehicle_mw=take("v_discharge") - take("v_charge"),
        )

    def _inject(self, kind: str, node: np.ndarray, columns: np.ndarray, coefficient: Any) -> None:
        """Columns (T, G) inject coefficient * x at node (G,) in their own step."""
        steps, nodes = self.problem.load_p_mw.shape
        self._injected[kind].put(np.arange(steps)[:, None] * nodes + node, columns, coefficient)

    def _cell(self, prefix: str, units: StorageUnits | VehicleUnits, charge: Any, discharge: Any) -> np.ndarray:
        """Charge, discharge and stored energy with sales, wear and settlement; returns the energy columns."""
        problem, dt = self.problem, self.problem.dt_hours
        price, wear = problem.price_per_mwh[:, None], units.wear_per_mwh
        shape = (problem.horizon, units.node.size)
        start, floor, most = (units.capacity_mwh * x for x in (units.soc_start, units.soc_min, units.soc_max))
        into = self.new(f"{prefix}charge", np.zeros(shape), charge, dt * (price + wear))
        out = self.new(f"{prefix}discharge", np.zeros(shape), discharge, dt * (wear - price))
        energy = self.new(f"{prefix}energy", np.broadcast_to(floor, shape), most, 0.0)
        mean = problem.mean_price_per_mwh
        rise = self.new(f"{prefix}rise", 0.0 * start, most - start, -mean * units.eta_discharge)
        fall = self.new(f"{prefix}fall", 0.0 * start, start - floor, mean / units.eta_charge)
        self.rows(start.shape, start, start, (energy[-1], 1.0), (rise, -1.0), (fall, 1.0))
        self._inject("p", units.node, into, -1.0)
        self._inject("p", units.node, out, 1.0)
        return energy

    def _balance(self, prefix: str, units: StorageUnits | VehicleUnits, right: np.ndarray, *extra: Any) -> None:
        """energy_t - energy_(t-1) - dt eta_c charge + dt discharge / eta_d + extra = right; start in right[0]."""
        dt, column = self.problem.dt_hours, self.column
        energy = column[f"{prefix}energy"]
        before = np.vstack([energy[:1], energy[:-1]])
        keep = np.where(np.arange(len(energy)) > 0, -1.0, 0.0)[:, None]
        self.rows(
            right.shape,
            right,
            right,
            (energy, 1.0),
            (before, keep),
            (column[f"{prefix}charge"], -dt * units.eta_charge),
            (column[f"{prefix}discharge"], dt / units.eta_discharge),
            *extra,
        )

    def _circle(self, p: list[tuple[np.ndarray, float]], q: np.ndarray, s_mva: np.ndarray, most: np.ndarray) -> None:
        """Tangents of P^2 + Q^2 <= S^2 at points that P, |P| <= most, can reach; `tighten` adds more."""
        self._circles.append((p, q, np.broadcast_to(s_mva, q.shape)))
        reach = np.max(np.arcsin(np.clip(np.asarray(most) / s_mva, 0, 1)))
        for angle in np.linspace(-reach, reach, CIRCLE):
            for sign in (1.0, -1.0):
                parts = [(columns, np.sin(angle) * side) for columns, side in p]
                self.rows(q.shape, -np.inf, s_mva, *parts, (q, sign * np.cos(angle)))

    def tighten(self, x: np.ndarray) -> bool:
        """Add a tangent wherever a solution leaves the circle of an inverter; whether any did."""
        before = self.count
        for p, q, s_mva in self._circles:
            active, reactive = sum(side * x[columns] for columns, side in p), x[q]
            size = np.hypot(active, reactive)
            out = size > s_mva * (1 + OUTSIDE)
            parts = [(columns[out], side * active[out] / size[out]) for columns, side in p]
            self.rows(int(out.sum()), -np.inf, s_mva[out], *parts, (q[out], reactive[out] / size[out]))
        return self.count > before

    def _storage(self, units: StorageUnits) -> None:
        shape = (self.problem.horizon, units.node.size)
        self._cell("", units, units.power_mw, units.power_mw)
        right = np.zeros(shape)
        right[0] = units.soc_start * units.capacity_mwh
        self._balance("", units, right)
        if units.reactive:
            q = self.new("storage_q", -np.broadcast_to(units.s_mva, shape), units.s_mva, 0.0)
            self._circle(
                [(self.column["discharge"], 1.0), (self.column["charge"], -1.0)], q, units.s_mva, units.power_mw
            )
            self._inject("q", units.node, q, 1.0)

    def _plants(self) -> None:
        units, dt = self.problem.plants, self.problem.dt_hours
        assert units is not None
        p = self.new("plant", np.zeros_like(units.available_mw), units.available_mw, -dt * units.curtail_per_mwh)
        self.constant += dt * float((units.curtail_per_mwh * units.available_mw).sum())
        self._inject("p", units.node, p, 1.0)
        if units.reactive:
            q = self.new("plant_q", -np.broadcast_to(units.s_mva, p.shape), units.s_mva, 0.0)
            self._circle([(p, 1.0)], q, units.s_mva, units.available_mw.max(axis=0))
            self._inject("q", units.node, q, 1.0)

    def _flex(self, units: FlexUnits) -> None:
        dt, load = self.problem.dt_hours, np.maximum(units.load_mw, 0)
        shed = self.new("shed", np.zeros_like(load), np.minimum(units.curtail_cap_mw, load), dt * units.curtail_per_mwh)
        price = units.shift_per_mwh + units.curtail_per_mwh * units.left_over()[:, None]
        defer = self.new("defer", np.zeros_like(load), np.minimum(units.shift_cap_mw, load), dt * price)
        self.rows(load.shape, -np.inf, load, (shed, 1.0), (defer, 1.0))
        back = units.returns()
        for kind, ratio in (("p", np.ones_like(load)), ("q", units.q_ratio)):
            for columns in (shed, defer):
                self._inject(kind, units.node, columns, ratio)
            for lag in range(1, units.horizon + 1):
                earlier = np.vstack([defer[:lag] * 0 + defer[0], defer[:-lag]])
                share = np.r_[np.zeros(lag), np.diagonal(back, -lag)][:, None]
                self._inject(kind, units.node, earlier, -share * ratio)

    def _vehicles(self, units: VehicleUnits) -> None:
        """Relaxed: energy may be bought en route although the battery still has some; `en_route` decides on that."""
        driven, size = units.driven_mwh, units.capacity_mwh
        self._cell("v_", units, units.charge_mw * units.home, units.discharge_mw * units.home)
        bought = self.new("v_unmet", np.zeros_like(driven), driven, units.unmet_per_mwh)
        self.broken["unmet"].append(bought)
        right = -driven.copy()
        right[0] += units.soc_start * size
        self._balance("v_", units, right, (bought, -1.0))
        self._arrivals(units, bought)
        t, v = np.nonzero(units.departs)
        short = self.new("v_short", np.zeros(t.size), units.need[v] * size[v], 0.0)
        self.broken["shortfall"].append(short)
        # after the arrival and before any charging of the step: what was stored, less what was driven
        before, first = self.column["v_energy"][np.maximum(t - 1, 0), v], t == 0
        expected = units.need[v] * size[v] + driven[t, v] - np.where(first, units.soc_start[v] * size[v], 0.0)
        self.rows(t.size, -np.inf, -expected, (before, np.where(first, 0.0, -1.0)), (bought[t, v], -1.0), (short, -1.0))

    def _arrivals(self, units: VehicleUnits, bought: np.ndarray) -> None:
        """Energy left on arrival, before any charging, between the least and the most that is stored."""
        t, v = np.nonzero(units.driven_mwh > 0)
        if not t.size:
            return
        size, first = units.capacity_mwh[v], t == 0
        used = units.driven_mwh[t, v] - np.where(first, units.soc_start[v] * size, 0.0)
        least, most = units.soc_min[v] * size, units.soc_max[v] * size
        before = self.column["v_energy"][np.maximum(t - 1, 0), v], np.where(first, 0.0, 1.0)
        left = self.rows(t.size, least + used, most + used, before, (bought[t, v], 1.0))
        self.arrivals = Arrivals(bought[t, v], left)


def idle_points(problem: FeederEpisode) -> SetPoints:
    """Every device at rest, nothing curtailed."""
    steps = problem.horizon

    def none(units: Any) -> np.ndarray:
        return np.zeros((steps, 0 if units is None else len(units.node)))

    plants = none(problem.plants) if problem.plants is None else problem.plants.available_mw
    return SetPoints(
        storage_mw=none(problem.storage),
        storage_mvar=none(problem.storage),
        plant_mw=plants,
        plant_mvar=np.zeros_like(plants),
        shed_mw=none(problem.flex),
        defer_mw=none(problem.flex),
        vehicle_mw=none(problem.vehicles),
    )
