"""Observation values of feeder tasks: one function for each block, computed only where a field table asks for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from powerzoo_jax.devices import at_devices, bus_injection, datacenter, flexload, storage, trips, vehicle
from powerzoo_jax.devices.jobs import Pool
from powerzoo_jax.envs.feeder.fleet import Layout, joined, power
from powerzoo_jax.envs.feeder.types import DistributionParams, DistributionState
from powerzoo_jax.envs.series import COS, INFER, OUTDOOR, PLANT, PRICE, SIGNAL, SIN, LoadColumns, spread

PRICE_REF = 100.0  # [$/MWh] that a flexible load compares prices with
TARGET_SOC = 0.5  # where a battery that no task asks more of would rest


class Scene(NamedTuple):
    """Sources of an observation: statics, parameters, the state it describes, and its electrical state.

    row, price:  the bank rows that the next action meets
    flows:       active and reactive power into the branches, (L,) [pu] each; empty where no table shows them
    """

    layout: Layout
    columns: LoadColumns
    dt_hours: float
    params: DistributionParams
    state: DistributionState
    row: Array
    price: Array
    v_pu: Array
    flows: tuple[Array, ...]

    @property
    def minute(self) -> Array:
        """Start of the coming step on the episode's clock, () int32."""
        return self.state.t * round(self.dt_hours * 60)

    @property
    def kinds(self) -> tuple[str, ...]:
        return self.layout.kinds


def view(scene: Scene, keys: set[str]) -> dict[str, Array]:
    """Values of the blocks with these keys: (k,) shared by all agents, or (A, k).

    In one order: that of a set differs between processes, and a program written in another order is not found in the
    compilation cache.
    """
    return {key: VIEWS[key](scene) for key in sorted(keys)}


def _node_load(scene: Scene, nominal: Array, device: Array | None) -> Array:
    """Net load of every bus at the coming step, (N,) [pu]."""
    load = spread(scene.columns.factors(scene.row), scene.params.shape_bus) * scene.params.load_ratio * nominal
    if device is None:
        return load
    return load - bus_injection(scene.params.place_bus, device) / scene.params.grid.base_mva


def _fleet(scene: Scene) -> tuple[Array, Array | None]:
    return power(scene.layout, scene.state, scene.params)


def _by_kind(scene: Scene, columns: dict[str, Callable[[Scene], Array]]) -> Array:
    """A column of every unit, by its kind: (A, 1)."""
    return joined(scene.layout, {kind: columns[kind](scene) for kind in scene.kinds})[:, None]


def _storage_limits(scene: Scene) -> tuple[Array, Array]:
    """Feasible charge and discharge of storage over its rating, (G,) each."""
    fleet = scene.params.storage
    low, high = storage.power_bounds(fleet, scene.state.storage, scene.dt_hours)  # type: ignore[arg-type]
    return -low / fleet.power_mw, high / fleet.power_mw  # type: ignore[union-attr]


def _storage_grid_obs(scene: Scene) -> Array:
    fleet, state = scene.params.storage, scene.state.storage
    charge, discharge = _storage_limits(scene)
    p = state.p_mw / fleet.power_mw  # type: ignore[union-attr]
    return jnp.stack([state.soc, discharge, charge, p], -1).reshape(-1)  # type: ignore[union-attr]


def _with_time(scene: Scene, columns: list[Array]) -> Array:
    """Rows of devices: columns (G,) whose names come before `time_cos`, then the clock; flat."""
    rows = jnp.stack(columns, -1)
    clock = jnp.stack([scene.row[COS], scene.row[SIN]])
    return jnp.concatenate([rows, jnp.broadcast_to(clock, (rows.shape[0], 2))], -1)


def _storage_obs(scene: Scene) -> Array:
    fleet, state = scene.params.storage, scene.state.storage
    charge, discharge = _storage_limits(scene)
    p = state.p_mw / fleet.power_mw  # type: ignore[union-attr]
    return _with_time(scene, [charge, discharge, p, state.soc]).reshape(-1)  # type: ignore[union-attr]


def _flexload_parts(scene: Scene) -> dict[str, Array]:
    """Shares of a flexible load's caps, (F,) each."""
    fleet, state = scene.params.flexload, scene.state.flexload
    assert fleet is not None and state is not None
    room = fleet.shift_cap_mw * scene.layout.return_steps
    return {
        "curtail": state.curtail_mw / fleet.curtail_cap_mw,
        "out": state.shift_mw / fleet.shift_cap_mw,
        "in": state.return_mw / fleet.shift_cap_mw,
        "fill": flexload.buffer_mwh(state, scene.dt_hours) / (room * scene.dt_hours),
        "next": state.due_mw[:, 0] / fleet.shift_cap_mw,
    }


def _flexload_norm(scene: Scene) -> Array:
    fleet, state = scene.params.flexload, scene.state.flexload
    assert fleet is not None and state is not None
    return (state.curtail_mw + state.shift_mw - state.return_mw) / (fleet.curtail_cap_mw + fleet.shift_cap_mw)


def _flexload_obs(scene: Scene) -> Array:
    part = _flexload_parts(scene)
    price = jnp.broadcast_to(scene.price[PRICE] / PRICE_REF, part["out"].shape)
    return _with_time(scene, [part["next"], part["fill"], part["curtail"], price, part["in"], part["out"]]).reshape(-1)


def _renewable_parts(scene: Scene) -> tuple[Array, Array]:
    """Available capacity factor of the coming step and power over capacity, (G,) each."""
    fleet, state = scene.params.renewable, scene.state.renewable
    assert fleet is not None and state is not None
    return scene.row[scene.columns.run(PLANT)], state.p_mw / fleet.capacity_mw


def _renewable_obs(scene: Scene) -> Array:
    return _with_time(scene, list(_renewable_parts(scene))).reshape(-1)


def _vehicle_norm(scene: Scene) -> Array:
    fleet, state = scene.params.vehicle, scene.state.vehicle
    assert fleet is not None and state is not None
    return state.p_mw / jnp.maximum(fleet.charge_mw, fleet.discharge_mw)


def _vehicle_obs(scene: Scene) -> Array:
    fleet, state = scene.params.vehicle, scene.state.vehicle
    assert fleet is not None and state is not None
    ready = (state.soc >= fleet.soc_departure_min).astype(state.soc.dtype)
    rows = _with_time(scene, [ready, _home(scene, 0), _vehicle_norm(scene), state.soc, fleet.soc_departure_min])
    departure, arrival = _hours_to_events(scene)
    return jnp.concatenate([rows, jnp.stack([arrival, departure], -1) / 24], -1).reshape(-1)


def _datacenter_norm(scene: Scene) -> Array:
    fleet, state = scene.params.datacenter, scene.state.datacenter
    assert fleet is not None and state is not None
    used = state.it_mw * (1 + fleet.aux_share) + state.cool_mw
    full = fleet.n_gpus * fleet.active_w / 1e6 + fleet.base_mw
    return -used / (full * (1 + fleet.aux_share) + datacenter.full_cooling_mw(fleet))


def _datacenter_obs(scene: Scene) -> Array:
    fleet, state = scene.params.datacenter, scene.state.datacenter
    assert fleet is not None and state is not None
    span = fleet.set_high_c - fleet.set_low_c
    one = jnp.ones_like(state.it_mw)

    def fill(pool: Pool) -> Array:
        return datacenter.queue_fill(pool)

    columns = [
        state.cool_mw / datacenter.full_cooling_mw(fleet),
        (state.infer_gpus + state.job_gpus) / fleet.n_gpus,
        scene.row[scene.columns.at(INFER)] * one,
        (scene.row[scene.columns.at(OUTDOOR)] - 10) / 20 * one,
        fill(state.finetune),
        fill(state.train),
        datacenter.urgency(state, scene.minute),
        (state.t_set_c - fleet.set_low_c) / span,
    ]
    rows = _with_time(scene, columns)
    return jnp.concatenate([rows, ((state.t_zone_c - 15) / 30)[:, None]], -1).reshape(-1)


def _soc(scene: Scene) -> Array:
    def rest(kind: str) -> Callable[[Scene], Array]:
        return lambda s: jnp.full_like(getattr(s.state, kind).p_mw, TARGET_SOC)

    return _by_kind(
        scene,
        {
            "storage": lambda s: s.state.storage.soc,  # type: ignore[union-attr]
            "vehicle": lambda s: s.state.vehicle.soc,  # type: ignore[union-attr]
            "renewable": rest("renewable"),
            "flexload": lambda s: jnp.full_like(s.state.flexload.shift_mw, TARGET_SOC),  # type: ignore[union-attr]
        },
    )


def _rating(scene: Scene) -> dict[str, Array]:
    """Power rating of every unit, by kind, (G_kind,) [MW]."""
    p, found = scene.params, {}
    if p.storage is not None:
        found["storage"] = p.storage.power_mw
    if p.renewable is not None:
        found["renewable"] = p.renewable.capacity_mw
    if p.flexload is not None:
        found["flexload"] = p.flexload.curtail_cap_mw + p.flexload.shift_cap_mw
    if p.vehicle is not None:
        found["vehicle"] = jnp.maximum(p.vehicle.charge_mw, p.vehicle.discharge_mw)
    return found


def _p_mw_norm(scene: Scene) -> Array:
    return (_fleet(scene)[0] / joined(scene.layout, _rating(scene)))[:, None]


def _capacity(scene: Scene) -> Array:
    rating = _rating(scene)
    cells = {kind: getattr(scene.params, kind) for kind in scene.kinds}
    sizes = {k: c.capacity_mwh if k in ("storage", "vehicle") else jnp.zeros_like(rating[k]) for k, c in cells.items()}
    return joined(scene.layout, sizes)[:, None]


def _ders_state(scene: Scene) -> Array:
    """Five numbers of every unit, (A, 5): storage, then plants, then flexible loads, in roster order."""
    rows: dict[str, Array] = {}
    p, state = scene.params, scene.state
    if p.storage is not None and state.storage is not None:
        soc, s = state.storage.soc, p.storage
        parts = [soc, state.storage.p_mw / s.power_mw, state.storage.q_mvar / s.s_mva, s.soc_max - soc, soc - s.soc_min]
        rows["storage"] = jnp.stack(parts, -1)
    if p.renewable is not None and state.renewable is not None:
        done, cf = state.renewable, scene.row[scene.columns.run(PLANT)]
        parts = [cf, done.p_mw / p.renewable.capacity_mw, done.q_mvar / p.renewable.s_mva, done.curtail]
        rows["renewable"] = jnp.stack([*parts, jnp.zeros_like(cf)], -1)
    if p.flexload is not None:
        part = _flexload_parts(scene)
        rows["flexload"] = jnp.stack([part[key] for key in ("curtail", "out", "in", "fill", "next")], -1)
    return joined(scene.layout, rows)


def _total_load(scene: Scene) -> Array:
    """Feeder load over the peak, ()."""
    p, factors = scene.params, scene.columns.factors(scene.row)
    nominal = factors * p.load_mw if p.shape_mw is None else jnp.sum(factors * p.shape_mw)
    return nominal * p.load_ratio / p.peak_mw


def _deviation(scene: Scene) -> Array:
    """v - 1 of the real buses, (N,) [pu]."""
    return jnp.where(scene.params.grid.bus_mask, scene.v_pu - 1, 0)


def _mean_deviation(scene: Scene) -> Array:
    real = scene.params.grid.bus_mask.astype(scene.v_pu.dtype)
    return (jnp.sum(_deviation(scene)) / jnp.sum(real) * 10)[None]


def _load_forecast(scene: Scene) -> Array:
    p = scene.params
    return scene.row[scene.columns.run("load_forecast")] * (p.load_ratio * p.load_mw / p.peak_mw)


def _home(scene: Scene, ahead: int) -> Array:
    """Mask of the vehicles plugged in `ahead` steps from now, (G,)."""
    fleet, state = scene.params.vehicle, scene.state.vehicle
    assert fleet is not None and state is not None
    minutes = round(scene.dt_hours * 60)
    # where a vehicle is at an instant, the window before it has decided
    home = trips.at_home(vehicle.episode_trips(fleet, state), scene.minute + (ahead - 1) * minutes, minutes)
    return home.astype(state.soc.dtype)


def _home_forecast(scene: Scene) -> Array:
    horizon = scene.price[SIGNAL + 1 : -1].shape[0]
    return jnp.stack([_home(scene, k) for k in range(1, horizon + 1)], -1)


def _hours_to_events(scene: Scene) -> tuple[Array, Array]:
    """Hours until a vehicle departs and until it returns, (G,) each."""
    fleet, state = scene.params.vehicle, scene.state.vehicle
    assert fleet is not None and state is not None
    plan, minutes = vehicle.episode_trips(fleet, state), round(scene.dt_hours * 60)
    return trips.hours_to_events(plan, scene.minute, minutes, state.soc.dtype)


def _vehicle_limits(scene: Scene) -> tuple[Array, Array]:
    fleet, state = scene.params.vehicle, scene.state.vehicle
    assert fleet is not None and state is not None
    low, high = vehicle.power_bounds(fleet, state, scene.dt_hours, scene.minute)
    return (-low / fleet.charge_mw)[:, None], (high / fleet.discharge_mw)[:, None]


def _ready(scene: Scene) -> Array:
    fleet, state = scene.params.vehicle, scene.state.vehicle
    assert fleet is not None and state is not None
    return (state.soc >= fleet.soc_departure_min).astype(state.soc.dtype)[:, None]


def _column(name: str) -> Callable[[Scene], Array]:
    return lambda scene: scene.row[scene.columns.at(name)][None]


def _progress(scene: Scene) -> Array:
    dtype = scene.v_pu.dtype
    return (scene.state.t.astype(dtype) / scene.params.horizon.astype(dtype))[None]


VIEWS: dict[str, Callable[[Scene], Any]] = {
    "node_v_norm": lambda s: (s.v_pu - 1) * 10,
    "line_p_norm": lambda s: s.flows[0],
    "line_q_norm": lambda s: s.flows[1],
    "node_p_load_norm": lambda s: _node_load(s, s.params.grid.p_load, _fleet(s)[0]),
    "node_q_load_norm": lambda s: _node_load(s, s.params.grid.q_load, _fleet(s)[1]),
    "storage_grid_obs": _storage_grid_obs,
    "storage_obs": _storage_obs,
    "renewable_grid_obs": lambda s: jnp.stack(_renewable_parts(s), -1).reshape(-1),
    "renewable_obs": _renewable_obs,
    "vehicle_grid_obs": _vehicle_norm,
    "vehicle_obs": _vehicle_obs,
    "flexload_grid_obs": _flexload_norm,
    "flexload_obs": _flexload_obs,
    "datacenter_grid_obs": _datacenter_norm,
    "datacenter_obs": _datacenter_obs,
    "clock": lambda s: s.row[SIN : COS + 1],
    "time": lambda s: s.row[SIN : COS + 1],
    "price": lambda s: s.price[SIGNAL:-1],
    "soc": _soc,
    "p_mw_norm": _p_mw_norm,
    "power_limit_norm": lambda s: joined(s.layout, _rating(s))[:, None],
    "capacity_norm": _capacity,
    "target_soc": lambda s: jnp.full((1,), TARGET_SOC, s.v_pu.dtype),
    "episode_progress": _progress,
    "price_signal": lambda s: s.price[SIGNAL : SIGNAL + 1],
    "price_forecast": lambda s: s.price[SIGNAL + 1 : -1],
    "load_forecast": _load_forecast,
    "home_forecast": _home_forecast,
    "total_load_norm": lambda s: _total_load(s)[None],
    "mean_voltage_dev": _mean_deviation,
    "grid_stress": lambda s: jnp.max(jnp.abs(_deviation(s)))[None] * 10,
    "local_bus_voltage": lambda s: at_devices(s.params.place_bus, s.v_pu)[:, None],
    "ders_state": _ders_state,
    "is_home": lambda s: _home(s, 0)[:, None],
    "departure_ready": _ready,
    "time_to_departure": lambda s: _hours_to_events(s)[0][:, None] / 24,
    "charge_limit_norm": lambda s: _vehicle_limits(s)[0],
    "discharge_limit_norm": lambda s: _vehicle_limits(s)[1],
    "soc_departure_min": lambda s: s.params.vehicle.soc_departure_min[:, None],  # type: ignore[union-attr]
    **{name: _column(name) for name in ("time_of_day", "hour_norm", "is_peak", "is_offpeak")},
}
