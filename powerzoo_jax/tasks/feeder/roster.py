"""Fleets from rows: any mix of devices at any buses, as keywords of a task describe them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from powerzoo_jax.base import TaskSpec
from powerzoo_jax.base.errors import unknown
from powerzoo_jax.data.manifest import TMY_SITES
from powerzoo_jax.devices import (
    CommuteTrip,
    daily_trips,
    datacenter_params,
    flexload_params,
    renewable_params,
    storage_params,
    vehicle_params,
)
from powerzoo_jax.devices.facility import sizes
from powerzoo_jax.tasks.feeder.build import FeederFleet
from powerzoo_jax.tasks.feeder.dso import check_return
from powerzoo_jax.tasks.feeder.series import Extra
from powerzoo_jax.tasks.feeder.settings import FeederSettings
from powerzoo_jax.tasks.site import Surroundings

NAMES = {
    "storage": "battery",
    "renewable": "renewable",
    "flexload": "flexload",
    "vehicle": "vehicle",
    "datacenter": "datacenter",
}
SHARED_RATINGS = ("initial_soc",)  # one value for all units of a kind
WORK_TRIP = ((8.0, 18.0, 15.0),)  # depart [h], arrive [h], energy [kWh]
NEEDS = {
    **dict.fromkeys(("energy_sales", "degradation", "settlement"), ("storage", "vehicle")),
    "curtailed_energy": ("renewable",),
    **dict.fromkeys(("comfort", "deferral", "terminal_buffer"), ("flexload",)),
    **dict.fromkeys(("unmet_energy", "departure_shortfall"), ("vehicle",)),
    **dict.fromkeys(("site_energy", "job_misses", "backlog", "pue_bonus", "sla", "overtemp"), ("datacenter",)),
}
"""Kinds of which one must be there for a reward term or a cost channel to exist."""


@dataclass(frozen=True, kw_only=True)
class RosterSettings(FeederSettings):
    """Keywords of feeders with devices of any kind, beside those of every feeder.

    devices:          rows (kind, bus, ratings): storage, renewable, flexload, vehicle or datacenter; ratings by name as
                      the `devices.*_params` function of the kind takes them, the same names for all units of a kind; a
                      vehicle also takes `trips`, rows (depart_h, arrive_h, energy_kwh), and any device on a three-phase
                      feeder `phases`: "a" .. "abc" in equal shares, weights (w_a, w_b, w_c), or line to line "a-b"
    q_control:        kinds among storage and renewable that take a reactive command
    plant_columns:    signals of the plants, cycled;  shift_horizon: steps over which deferred load returns
    workload_preset, weather_site: what data centres meet;  sla_price, target_pue: see `build_datacenter`
    months:           months that an episode may start in, empty = all
    """

    devices: tuple[tuple[str, Any, Any], ...] = ()
    q_control: tuple[str, ...] = ()
    plant_columns: tuple[str, ...] = ("solar.pv1_pu",)
    shift_horizon: int = 4
    workload_preset: str = "hyperscale"
    weather_site: str = TMY_SITES[0]
    sla_price: float = 500.0
    target_pue: float = 1.3
    months: tuple[int, ...] = ()


def read_rows(spec: TaskSpec, settings: RosterSettings) -> list[tuple[str, Any, dict[str, Any]]]:
    """The devices kind after kind, with their ratings by name.

    Raises ValueError for an unknown kind, or units of one kind that name different ratings.
    """
    rows = [(kind, bus, dict(ratings)) for kind, bus, ratings in settings.devices]
    for kind, _, _ in rows:
        if kind not in NAMES:
            raise ValueError(f"{spec.id}: {unknown('device kind', kind, NAMES)}")
    kinds = list(dict.fromkeys(kind for kind, _, _ in rows))
    for kind in kinds:
        named = {tuple(sorted(set(ratings) - {"phases"})) for other, _, ratings in rows if other == kind}
        if len(named) > 1:
            raise ValueError(f"{spec.id}: the {kind} units name different ratings, {sorted(named)}. Name them for all.")
    return sorted(rows, key=lambda row: kinds.index(row[0]))


def make_fleet(
    spec: TaskSpec, settings: RosterSettings, rows: list[tuple[str, Any, dict[str, Any]]], minutes: int, dtype: Any
) -> FeederFleet:
    """Stacks of all kinds; `bus_ids` are the buses of the rows."""
    kinds = tuple(row[0] for row in rows)
    stacks: dict[str, Any] = {}
    leaves: dict[str, Any] = {}
    static = None
    for kind in dict.fromkeys(kinds):
        units = [ratings for other, _, ratings in rows if other == kind]
        ratings = _by_name(spec, kind, units)
        if kind == "vehicle":
            plans = [[CommuteTrip(*trip) for trip in unit.get("trips", WORK_TRIP)] for unit in units]
            ratings.pop("trips", None)
            stacks[kind] = vehicle_params(daily_trips(plans, minutes, dtype), dtype, **ratings)
            leaves["trip_factor"] = jnp.ones(1, dtype)
        else:
            stacks[kind] = PARAMS[kind](len(units), dtype, **ratings)
        if kind == "datacenter":
            static = sizes(minutes)
            leaves["miss_usd"] = jnp.asarray(settings.sla_price, dtype)
            leaves["target_pue"] = jnp.asarray(settings.target_pue, dtype)
    return FeederFleet(
        kinds=kinds,
        bus_ids=tuple(row[1] for row in rows),
        stacks=stacks,
        q_control=tuple(kind for kind in settings.q_control if kind in kinds),
        return_steps=check_return(spec, settings.shift_horizon),
        sizes=static,
        leaves=leaves,
    )


PARAMS: dict[str, Callable[..., Any]] = {
    "storage": storage_params,
    "renewable": renewable_params,
    "flexload": flexload_params,
    "datacenter": datacenter_params,
}


def _by_name(spec: TaskSpec, kind: str, units: list[dict[str, Any]]) -> dict[str, Any]:
    """Ratings of all units of a kind: a list for each, or one value where the kind has it in common."""
    found: dict[str, Any] = {}
    for name in units[0]:
        if name == "phases":
            continue
        values = [unit[name] for unit in units]
        if name in SHARED_RATINGS and len(set(values)) > 1:
            raise ValueError(f"{spec.id}: {name} of the {kind} units is {values}; it is one value for all of them.")
        found[name] = values[0] if name in SHARED_RATINGS else values
    return found


def unit_names(rows: list[tuple[str, Any, dict[str, Any]]]) -> list[tuple[str, list[str]]]:
    """(kind, ids of its units) of every kind: battery_0, battery_1, ..."""
    kinds = [row[0] for row in rows]
    return [(kind, [f"{NAMES[kind]}_{k}" for k in range(kinds.count(kind))]) for kind in dict.fromkeys(kinds)]


def extra_series(settings: RosterSettings, fleet: FeederFleet) -> Extra:
    """Series that the fleet meets beside load and price."""
    plants = np.resize(np.array(settings.plant_columns), fleet.kinds.count("renewable")).tolist()
    site = Surroundings(settings.workload_preset, settings.weather_site) if "datacenter" in fleet.kinds else None
    return Extra(plants=tuple(plants), site=site)


def applicable(names: tuple[str, ...], kinds: tuple[str, ...]) -> list[int]:
    """Positions of the terms or channels whose devices are there."""
    return [k for k, name in enumerate(names) if name not in NEEDS or set(NEEDS[name]) & set(kinds)]
