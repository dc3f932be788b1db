"""Observation fields of feeder tasks, each declared once: name, unit, bounds, and value on the scene of a step.

A flattened observation shows the grid, every device and the clock to one agent; the other modes show each agent its
own unit and a few shared fields. What a unit shows of itself stands in the registration of its kind (`devices`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array

from powerzoo_jax.base.errors import unknown
from powerzoo_jax.base.ranges import unchecked
from powerzoo_jax.base.spaces import Field
from powerzoo_jax.devices import at_devices, bus_injection, vehicle
from powerzoo_jax.devices.fleet import Layout, joined, power
from powerzoo_jax.devices.protocol import COS, SIN, SeenUnits
from powerzoo_jax.devices.registry import KINDS
from powerzoo_jax.envs.observe import FieldBlock, FieldTable, Scene, block, name_values, table, unit_block
from powerzoo_jax.envs.series import PRICE, SIGNAL, LoadColumns

TARGET_SOC = 0.5  # where a battery that no task asks more of would rest
PHASES = "abc"
FLATTENED = "flattened"
AGENT_MODES = ("global", "local", "local_plus_forecast", "local_plus_voltage", "ders_local")
UNIT_STATE = 5  # numbers that agents of a mixed fleet see of a unit


@dataclass(frozen=True, eq=False)
class FleetScene(Scene):
    """Scene of a network with devices.

    layout, columns:  of the fleet and of the bank row
    price:       price row that the next action meets
    electrical:  voltages (N,) [pu], then active and reactive power into the branches, (L,) [pu] each, where some table
                 shows them
    """

    layout: Layout
    columns: LoadColumns
    price: Array
    electrical: tuple[Array, ...]

    @functools.cached_property
    def units(self) -> dict[str, SeenUnits]:
        """The units of every kind of the fleet."""
        kinds = [block.kind for block in self.layout.table.blocks]
        return {kind: SeenUnits(getattr(self.params, kind), getattr(self.state, kind), self) for kind in kinds}

    @property
    def minute(self) -> Array:
        """Start of the coming step on the episode's clock, () int32."""
        return self.state.t * round(self.dt_hours * 60)

    def by_unit(self, column: Callable[[str, SeenUnits], Array]) -> Array:
        """A column of every unit by its kind, in the order of the units: (A, ...)."""
        return joined(self.layout, {kind: column(kind, units) for kind, units in self.units.items()})


def _power(scene: FleetScene) -> tuple[Array, Array | None]:
    """Power (G,) [MW] and (G,) [MVAr] of the last step."""
    return power(scene.layout, scene.state, scene.params)


def _level(scene: FleetScene) -> Array:
    """Load of the coming step over nominal load: () for all buses, or (N,)."""
    return scene.columns.level(scene.row, scene.params.shape_bus) * scene.params.load_ratio


def _net_load(scene: FleetScene, part: int) -> Array:
    """Net active (part 0) or reactive (1) load of every bus at the coming step, (N,) [pu]."""
    grid, delivered = scene.params.grid, scene.once(_power)[part]
    load: Array = scene.once(_level) * (grid.p_load, grid.q_load)[part]
    return (
        load
        if delivered is None
        else load - unchecked(bus_injection)(scene.params.place_bus, delivered) / grid.base_mva
    )


def _total_load(scene: FleetScene) -> Array:
    """Feeder load over the peak, (1,)."""
    p, factors = scene.params, scene.columns.factors(scene.row)
    nominal = factors * p.load_mw if p.shape_mw is None else jnp.sum(factors * p.shape_mw)
    return (nominal * p.load_ratio / p.peak_mw)[None]


def _deviation(scene: FleetScene) -> Array:
    """v - 1 of the real buses, (N,) [pu]."""
    return jnp.where(scene.params.grid.bus_mask, scene.electrical[0] - 1, 0)


def _mean_deviation(scene: FleetScene) -> Array:
    real = scene.params.grid.bus_mask.astype(scene.electrical[0].dtype)
    return (jnp.sum(_deviation(scene)) / jnp.sum(real) * 10)[None]


def _rating(scene: FleetScene) -> Array:
    """Power rating of every unit, (A,) [MW]."""
    return scene.by_unit(lambda kind, units: KINDS[kind].rating_mw(units.params))


def _capacity(kind: str, units: SeenUnits) -> Array:
    rating = KINDS[kind].rating_mw(units.params)
    return units.params.capacity_mwh if KINDS[kind].stores else jnp.zeros_like(rating)


def _soc(kind: str, units: SeenUnits) -> Array:
    rating = KINDS[kind].rating_mw(units.params)
    return units.state.soc if KINDS[kind].stores else jnp.full_like(rating, TARGET_SOC)


def _unit_state(kind: str, units: SeenUnits) -> Array:
    shown = KINDS[kind].unit_state
    if shown is None:
        raise ValueError(f"units of kind {kind} have no fields in the observation mode 'ders_local'. Use 'local'.")
    return shown(units)


def _progress(scene: FleetScene) -> Array:
    dtype = scene.row.dtype
    return (scene.state.t.astype(dtype) / scene.params.horizon.astype(dtype))[None]


def _load_forecast(scene: FleetScene) -> Array:
    p = scene.params
    return scene.row[scene.columns.run("load_forecast")] * (p.load_ratio * p.load_mw / p.peak_mw)


def _home_forecast(scene: FleetScene) -> Array:
    horizon = scene.price[SIGNAL + 1 : -1].shape[0]
    return jnp.stack([vehicle.home(scene.units["vehicle"], k) for k in range(1, horizon + 1)], -1)


def _settlement_price(scene: FleetScene) -> Array:
    """Mean of the prices published so far, those of the episode's days up to the present one, (1,).

    On the last day it is the mean over the episode, at which stored energy settles.
    """
    state, params = scene.state, scene.params
    per_day = round(24 / scene.dt_hours)
    now = jnp.minimum(state.t, params.horizon - 1)
    known = jnp.minimum((now // per_day + 1) * per_day, params.horizon)
    here, end = (params.bank.price_sums[state.price_row + k] for k in (0, known))
    return (((end[0] - here[0]) + (end[1] - here[1])) / known.astype(end.dtype))[None]


def _price_asinh(scene: FleetScene) -> Array:
    return jnp.arcsinh(scene.price[PRICE : PRICE + 1] / scene.params.median_per_mwh)


def _column(name: str) -> Callable[[FleetScene], Array]:
    return lambda scene: scene.row[scene.columns.at(name)][None]


def _of_vehicle(quantity: Callable[[SeenUnits], Array]) -> Callable[[FleetScene], Array]:
    """A column of the vehicles, one agent a vehicle: (A, 1)."""
    return lambda scene: quantity(scene.units["vehicle"])[:, None]


# Blocks of tasks with an agent for each unit; values are (1,) for all agents, or (A, 1).
TIME_OF_DAY = block("time_of_day", "day", 0, 1, _column("time_of_day"))
HOUR = block("hour_norm", "day", 0, 1, _column("hour_norm"))
PRICE_SIGNAL = block("price_signal", "1", -1, 3, lambda scene: scene.price[SIGNAL : SIGNAL + 1])
IS_PEAK = block("is_peak", "1", 0, 1, _column("is_peak"))
IS_OFFPEAK = block("is_offpeak", "1", 0, 1, _column("is_offpeak"))
SETTLEMENT = block("settlement_price", "1", -1, 3, _settlement_price)
ASINH_BOUND = 10.0  # of asinh(price / median): 11,000 times the median
PRICE_ASINH = block("price_asinh", "1", -ASINH_BOUND, ASINH_BOUND, _price_asinh)
CLOCK, MARKET = (TIME_OF_DAY, HOUR), (PRICE_SIGNAL, IS_PEAK, IS_OFFPEAK)
GRID = (
    block("total_load_norm", "1", 0, 2, _total_load),
    block("mean_voltage_dev", "0.1 pu", -10, 10, _mean_deviation),
    block("grid_stress", "0.1 pu", 0, 10, lambda scene: jnp.max(jnp.abs(_deviation(scene)))[None] * 10),
)
VOLTAGE = block(
    "local_bus_voltage",
    "pu",
    0,
    2,
    lambda scene: unchecked(at_devices)(scene.params.place_bus, scene.electrical[0])[:, None],
)
PROGRESS = block("episode_progress", "1", 0, 1, _progress)
SOC = block("soc", "1", 0, 1, lambda scene: scene.by_unit(_soc)[:, None])
STORAGE = (
    SOC,
    block("p_mw_norm", "1", -1, 1, lambda scene: (scene.once(_power)[0] / scene.once(_rating))[:, None]),
    *CLOCK,
    *MARKET,
    block("power_limit_norm", "MW", 0, 10, lambda scene: scene.once(_rating)[:, None]),
    block("capacity_norm", "MWh", 0, 10, lambda scene: scene.by_unit(_capacity)[:, None]),
    PROGRESS,
    block("target_soc", "1", 0, 1, lambda scene: jnp.full((1,), TARGET_SOC, scene.row.dtype)),
)
VEHICLE = (
    SOC,
    block("is_home", "1", 0, 1, _of_vehicle(lambda units: units.once(vehicle.home))),
    block("departure_ready", "1", 0, 1, _of_vehicle(vehicle.ready)),
    block("time_to_departure", "day", 0, 1, _of_vehicle(lambda units: units.once(vehicle.event_hours)[0] / 24)),
    *CLOCK,
    *MARKET,
    block("charge_limit_norm", "1", 0, 1, _of_vehicle(lambda units: units.once(vehicle.limits)[0])),
    block("discharge_limit_norm", "1", 0, 1, _of_vehicle(lambda units: units.once(vehicle.limits)[1])),
    PROGRESS,
    block("soc_departure_min", "1", 0, 1, _of_vehicle(lambda units: units.params.soc_departure_min)),
)


# Fields of every bus and every branch of a feeder.
NETWORK = (
    ("node", Field("v_norm", "0.1 pu", -10, 10, lambda scene: (scene.electrical[0] - 1) * 10)),
    ("line", Field("p_norm", "pu", -5, 5, lambda scene: scene.electrical[1])),
    ("line", Field("q_norm", "pu", -5, 5, lambda scene: scene.electrical[2])),
    ("node", Field("p_load_norm", "pu", -5, 5, lambda scene: _net_load(scene, 0))),
    ("node", Field("q_load_norm", "pu", -5, 5, lambda scene: _net_load(scene, 1))),
)
name_values(__name__)
PHASE_BOUND = 20  # of all of them on an unbalanced feeder, whose base power is that of one phase


@dataclass(frozen=True)
class UnitFields:
    """Value of the fields of one kind, unit after unit: those in the grid's part, or the units' own; equal by value."""

    kind: str
    own: bool

    def __call__(self, scene: FleetScene) -> Array:
        """(G k,)."""
        units, kind = scene.units[self.kind], KINDS[self.kind]
        fields = kind.own_fields if self.own else kind.grid_fields
        size = units.params.mask.shape
        return jnp.stack([jnp.broadcast_to(f.value(units), size) for f in fields], -1).reshape(-1)


def flattened_table(
    bus_ids: Sequence[int], n_line: int, kind: str, devices: Sequence[str], n_forecast: int | None
) -> FieldTable:
    """Grid, devices of one kind, clock and prices in the order of the contract.

    n_line:      branches, numbered from 1
    devices:     ids of the units
    n_forecast:  hours of price forecast behind the price; None shows no price
    """
    return fleet_table(grid_blocks(bus_ids, n_line), ((kind, devices),), n_forecast)


def grid_blocks(bus_ids: Sequence[int], n_line: int) -> list[FieldBlock]:
    """Voltages, branch flows and net loads of a balanced feeder."""
    places = {"node": bus_ids, "line": range(1, n_line + 1)}
    return [
        FieldBlock(f"{place}_{f.name}", tuple(f"{place}_{i}_{f.name}" for i in places[place]), *f[2:4], f.unit, f.value)
        for place, f in NETWORK
    ]


def phase_blocks(buses: Sequence[str], lines: Sequence[str]) -> list[FieldBlock]:
    """Voltages, line flows and net loads of a three-phase feeder, phase after phase; 0 where a bus or line lacks it."""
    places = {"node": buses, "line": lines}
    named = {
        (place, f.name): tuple(f"{place}_{row}_{f.name}_{phase}" for phase in PHASES for row in places[place])
        for place, f in NETWORK
    }
    return [
        FieldBlock(f"{place}_{f.name}", named[place, f.name], -PHASE_BOUND, PHASE_BOUND, f.unit, f.value)
        for place, f in NETWORK
    ]


def fleet_table(
    grid: Sequence[FieldBlock], fleet: Sequence[tuple[str, Sequence[str]]], n_forecast: int | None
) -> FieldTable:
    """Grid, devices kind after kind, clock and prices in the order of the contract.

    grid:        blocks of the network
    fleet:       (kind, ids of its units) of every kind
    n_forecast:  hours of price forecast behind the price; None shows no price
    """
    price = [] if n_forecast is None else ["price_signal", *(f"price_forecast_{k + 1}" for k in range(n_forecast))]
    return table(
        [
            *grid,
            *(
                unit_block(f"{kind}_grid_obs", ids, "_", KINDS[kind].grid_fields, UnitFields(kind, False))
                for kind, ids in fleet
            ),
            FieldBlock("clock", ("time_sin", "time_cos"), -1, 1, "1", _clock),
            *(
                unit_block(f"{kind}_obs", ids, "/", KINDS[kind].own_fields, UnitFields(kind, True))
                for kind, ids in fleet
            ),
            FieldBlock("time", ("time/time_sin", "time/time_cos"), -1, 1, "1", _clock),
            FieldBlock("price", tuple(price), -1, 3, "1", _prices),
        ]
    )


def _clock(scene: FleetScene) -> Array:
    return scene.row[SIN : COS + 1]


def _prices(scene: FleetScene) -> Array:
    """Price of the coming step and its forecasts, over the spread of the training prices."""
    return scene.price[SIGNAL:-1]


def agent_table(mode: str, kinds: Sequence[str], supported: Sequence[str], horizon: int) -> FieldTable:
    """The fields of one agent, which commands one unit; every agent of a task has the same names.

    kinds:      kinds of units in the task
    supported:  modes that the task offers
    horizon:    steps of forecasts
    Raises ValueError for a mode that the task does not offer, naming the nearest.
    """
    if mode not in supported:
        raise ValueError(unknown("observation mode", mode, supported))
    if mode == "ders_local":
        names = tuple(f"ders_state_{k}" for k in range(UNIT_STATE))
        states = FieldBlock("ders_state", names, -1, 1, "1", _all_unit_states)
        return table([*CLOCK, *MARKET, PROGRESS, VOLTAGE, states])
    vehicles = "vehicle" in kinds
    local = VEHICLE if vehicles else STORAGE
    if mode == "global":
        return table([*GRID, *local])
    if mode == "local_plus_voltage":
        return table([*local, VOLTAGE])
    if mode == "local_plus_forecast":
        return table([*local, *_forecasts(horizon, vehicles)])
    return table(local)


def _all_unit_states(scene: FleetScene) -> Array:
    return scene.by_unit(_unit_state)


def _price_forecast(scene: FleetScene) -> Array:
    return scene.price[SIGNAL + 1 : -1]


def _forecasts(horizon: int, vehicles: bool) -> list[FieldBlock]:
    """Load, price and, of vehicles, presence in each of the coming steps."""

    def ahead(key: str, low: float, high: float, value: Callable[[FleetScene], Array]) -> FieldBlock:
        return FieldBlock(key, tuple(f"{key}_t+{k}" for k in range(1, horizon + 1)), low, high, "1", value)

    shown = [ahead("load_forecast", 0, 2, _load_forecast), ahead("price_forecast", -1, 3, _price_forecast)]
    return [*shown, ahead("home_forecast", 0, 1, _home_forecast)] if vehicles else shown
