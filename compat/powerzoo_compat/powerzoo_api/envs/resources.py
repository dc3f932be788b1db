"""Devices of the contract as objects, with ratings under the contract's names, to be registered at a bus.

They hold ratings; their physics runs in the core, inside the step of the grid that they are registered on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import numpy as np

from powerzoo_compat.powerzoo_api.envs.base import BaseEnv
from powerzoo_jax.base.errors import unexpected, unknown
from powerzoo_jax.devices import CommuteTrip as CommuteTrip
from powerzoo_jax.devices import (
    daily_trips,
    datacenter_params,
    flexload_params,
    renewable_params,
    storage_params,
    thermal_params,
    vehicle_params,
)

PHASES = ("A", "B", "C", "AB", "AC", "BC", "ABC")
STEP_MINUTES = 15
ALONE = "a device moves inside the step of its grid. Register it on a DistGridEnv, or take make_atomic_task_env."
DATACENTER = (
    *(
        "n_gpus",
        "infer_gpu_peak",
        "idle_w",
        "active_w",
        "infer_eta",
        "base_mw",
        "cool_min_mw",
        "aux_share",
        "air_share",
    ),
    *("cop", "cop_decay_per_c", "cop_ref_c", "ua_kw_per_c", "wall_kw_per_c", "heat_kwh_per_c", "set_low_c"),
    *("set_high_c", "t_critical_c", "t_initial_c", "slack_factor"),
)


class ResourceEnv(BaseEnv):
    """A device: ratings by keyword, and its bus once a grid has registered it.

    parent, bus_id:   grid and bus to register on at once; else `grid.register_resource(device, bus_id)`
    delta_t_minutes:  of a device alone; a grid's devices step with the grid
    phase:            "A" to "ABC" on a three-phase grid
    ratings:          see `KEYWORDS` of the class: keyword -> name in the core

    Raises TypeError for an unknown keyword, naming the nearest, ValueError for ratings that make no device.
    """

    kind: ClassVar[str]
    stem: ClassVar[str]
    KEYWORDS: ClassVar[dict[str, str]]
    ALIASES: ClassVar[dict[str, str]] = {}
    DEFAULTS: ClassVar[dict[str, Any]]

    def __init__(
        self,
        parent: Any = None,
        bus_id: Any = -1,
        delta_t_minutes: int = STEP_MINUTES,
        phase: str = "ABC",
        **ratings: Any,
    ) -> None:
        super().__init__(delta_t_minutes)
        if str(phase).upper() not in PHASES:
            raise ValueError(unknown("phase", str(phase), PHASES))
        self.phase, self.bus_id, self.parent, self.name = str(phase).upper(), bus_id, None, ""
        given = self._renamed(ratings)
        self.enable_q_control = bool(given.pop("enable_q_control", False))
        self.ratings = self.DEFAULTS | given
        jax.eval_shape(self.check)  # ratings are checked in NumPy; no array is made, which would start JAX
        if parent is not None:
            parent.register_resource(self, bus_id)

    def __repr__(self) -> str:
        rated = ", ".join(f"{name}={value!r}" for name, value in self.ratings.items())
        return f"{type(self).__name__}({rated}, bus_id={self.bus_id!r})"

    def _renamed(self, ratings: Mapping[str, Any]) -> dict[str, Any]:
        """Ratings under the core's names."""
        known = {**self.KEYWORDS, **{alias: self.KEYWORDS[name] for alias, name in self.ALIASES.items()}}
        found: dict[str, Any] = {}
        for key, value in ratings.items():
            if key not in known:
                raise TypeError(unexpected(type(self).__name__, key, known))
            if known[key] in found:
                raise ValueError(f"{type(self).__name__}: {key} says again what another keyword said. Give one.")
            found[known[key]] = value
        return found

    def check(self) -> Any:
        """Ratings as the core's parameters of one unit; ValueError for those that make no device."""
        raise NotImplementedError

    def row(self) -> tuple[str, Any, tuple[tuple[str, Any], ...]]:
        """(kind, bus, ratings) as the core's builder of feeders takes them."""
        return self.kind, self.bus_id, tuple(sorted(self.core_ratings().items()))

    def core_ratings(self) -> dict[str, Any]:
        """Ratings under the core's names, all of them: units of a kind name the same."""
        return dict(self.ratings)

    def attach(self, parent: Any, bus_id: Any, name: str) -> None:
        """Note grid, bus and name of the device; grids call this."""
        self.parent, self.bus_id, self.name, self.delta_t_minutes = parent, bus_id, name, parent.delta_t_minutes

    def detach(self) -> None:
        """Undo `attach`."""
        self.parent, self.bus_id, self.name = None, -1, ""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Refused: devices move with their grid."""
        raise RuntimeError(ALONE)

    def step(self, action: Any) -> Any:
        """Refused: devices move with their grid."""
        raise RuntimeError(ALONE)

    def own_action(self, action: Any, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """An action in the device's own space, clipped: an array or number as it is, a dict from physical units.

        low, high:  (U,)  bounds of that space
        Raises ValueError for an unknown key, a wrong shape or a NaN.
        """
        given = self.of_physical(action, len(low)) if isinstance(action, Mapping) else np.atleast_1d(action)
        values = np.asarray(given, np.float32)
        if values.shape != low.shape:
            raise ValueError(f"action of {self.name} has the wrong shape: expected {low.shape}, got {values.shape}.")
        if np.isnan(values).any():
            raise ValueError(f"action {values.tolist()} of {self.name} holds NaN. Leave the device out to let it idle.")
        return np.clip(values, low, high)

    def of_physical(self, action: Mapping[str, Any], width: int) -> list[float]:
        """Physical units -> own space (width,). ValueError for an unknown key."""
        raise NotImplementedError

    def _only(self, action: Mapping[str, Any], *known: str) -> list[float]:
        for key in action:
            if key not in known:
                raise ValueError(f"action of {self.name}: {unknown('key', key, known)}")
        return [float(action.get(key, 0.0)) for key in known]


class BatteryEnv(ResourceEnv):
    """A battery: action [-1, 1] of its power, + discharge, with `enable_q_control` also of its apparent power.

    Efficiency is `eta_roundtrip`, or `efficiency` of each way. As a dict: p_mw, q_mvar.
    """

    kind, stem = "storage", "battery"
    KEYWORDS: ClassVar[dict[str, str]] = {
        "capacity_mwh": "capacity_mwh",
        "power_mw": "power_mw",
        "s_rated": "s_mva",
        "eta_roundtrip": "eta_roundtrip",
        "efficiency": "efficiency",
        "soc_min": "soc_min",
        "soc_max": "soc_max",
        "initial_soc": "initial_soc",
        "cycle_cost_per_mwh": "degradation_per_mwh",
        "enable_q_control": "enable_q_control",
    }
    DEFAULTS: ClassVar[dict[str, Any]] = {
        "capacity_mwh": 50.0,
        "power_mw": 20.0,
        "soc_min": 0.1,
        "soc_max": 0.9,
        "initial_soc": 0.5,
        "degradation_per_mwh": 0.0,
    }

    def _renamed(self, ratings: Mapping[str, Any]) -> dict[str, Any]:
        given = super()._renamed(ratings)
        if {"efficiency", "eta_roundtrip"} <= given.keys():
            raise ValueError("BatteryEnv: efficiency and eta_roundtrip say the same thing. Give one of them.")
        each = given.pop("efficiency", 0.95)
        return {"eta_roundtrip": each * each} | given

    def check(self) -> Any:
        return storage_params(1, np.float32, **self.core_ratings())

    def core_ratings(self) -> dict[str, Any]:
        return {"s_mva": self.ratings["power_mw"]} | self.ratings

    def of_physical(self, action: Mapping[str, Any], width: int) -> list[float]:
        p, q = self._only(action, *("p_mw", "q_mvar")[:width], *(("",) if width == 1 else ()))
        rated = self.core_ratings()
        return [p / rated["power_mw"], q / rated["s_mva"]][:width]


class VehicleEnv(ResourceEnv):
    """An electric vehicle with trips: action [-1, 1] of its charger, + discharge. As a dict: p_mw."""

    kind, stem = "vehicle", "vehicle"
    KEYWORDS: ClassVar[dict[str, str]] = {
        "capacity_kwh": "capacity_kwh",
        "charge_power_kw": "charge_kw",
        "discharge_power_kw": "discharge_kw",
        "eta_charge": "eta_charge",
        "eta_discharge": "eta_discharge",
        "soc_min": "soc_min",
        "soc_max": "soc_max",
        "initial_soc": "initial_soc",
        "soc_departure_min": "soc_departure_min",
        "degradation_cost_per_mwh": "degradation_per_mwh",
        "unmet_price": "unmet_usd_per_mwh",
        "trips": "trips",
    }
    ALIASES: ClassVar[dict[str, str]] = {
        "E_max_kWh": "capacity_kwh",
        "soc_init": "initial_soc",
        "p_charge_max_kW": "charge_power_kw",
        "p_discharge_max_kW": "discharge_power_kw",
    }
    DEFAULTS: ClassVar[dict[str, Any]] = {
        "capacity_kwh": 60.0,
        "charge_kw": 7.0,
        "discharge_kw": 7.0,
        "initial_soc": 0.8,
        "soc_departure_min": 0.8,
        "trips": (CommuteTrip(),),
    }

    def core_ratings(self) -> dict[str, Any]:
        return self.ratings | {"trips": tuple(tuple(trip) for trip in self.ratings["trips"])}

    def check(self) -> Any:
        given = self.core_ratings()
        trips = daily_trips([[CommuteTrip(*trip) for trip in given.pop("trips")]], self.delta_t_minutes, np.float32)
        return vehicle_params(trips, np.float32, **given)

    def of_physical(self, action: Mapping[str, Any], width: int) -> list[float]:
        (p,) = self._only(action, "p_mw")
        return [1000 * p / self.ratings["discharge_kw" if p > 0 else "charge_kw"]]


class RenewableEnv(ResourceEnv):
    """A plant: action +1 curtails nothing, -1 everything; with `enable_q_control` also [-1, 1] of its apparent power.

    column:  signal that it follows, over the signal's largest value.  As a dict: curtailment [0, 1], q_norm.
    """

    kind, stem = "renewable", "renewable"
    KEYWORDS: ClassVar[dict[str, str]] = {
        "capacity_mw": "capacity_mw",
        "s_rated": "s_mva",
        "curtailment_penalty_per_mwh": "curtail_usd_per_mwh",
        "enable_q_control": "enable_q_control",
        "column": "column",
    }
    DEFAULTS: ClassVar[dict[str, Any]] = {"capacity_mw": 50.0, "curtail_usd_per_mwh": 0.0, "column": "solar.pv1_pu"}

    def core_ratings(self) -> dict[str, Any]:
        rated = {"s_mva": self.ratings["capacity_mw"]} | self.ratings
        return {key: value for key, value in rated.items() if key != "column"}

    def check(self) -> Any:
        return renewable_params(1, np.float32, **self.core_ratings())

    def of_physical(self, action: Mapping[str, Any], width: int) -> list[float]:
        curtailed, q = self._only(action, "curtailment", "q_norm")
        return [1 - 2 * curtailed, q][:width]


class SolarEnv(RenewableEnv):
    """A solar plant; see `RenewableEnv`."""

    stem = "solar"


class WindEnv(RenewableEnv):
    """A wind plant; see `RenewableEnv`."""

    stem = "wind"
    DEFAULTS: ClassVar[dict[str, Any]] = {**RenewableEnv.DEFAULTS, "column": "wind.wp4_pu"}


class FlexLoad(ResourceEnv):
    """A flexible share of the load at its bus: action (shed, deferred) in [0, 1] of the caps.

    As a dict: curtail_mw, shift_mw.
    """

    kind, stem = "flexload", "flexload"
    KEYWORDS: ClassVar[dict[str, str]] = {
        "curtail_cap_mw": "curtail_cap_mw",
        "shift_cap_mw": "shift_cap_mw",
        "shift_horizon": "shift_horizon",
        "curtail_cost_per_mwh": "curtail_usd_per_mwh",
        "shift_cost_per_mwh": "shift_usd_per_mwh",
        "complementarity_penalty": "both_usd_per_mwh",
    }
    DEFAULTS: ClassVar[dict[str, Any]] = {
        "curtail_cap_mw": 10.0,
        "shift_cap_mw": 10.0,
        "shift_horizon": 4,
        "curtail_usd_per_mwh": 50.0,
        "shift_usd_per_mwh": 10.0,
        "both_usd_per_mwh": 0.0,
    }

    def core_ratings(self) -> dict[str, Any]:
        return {key: value for key, value in self.ratings.items() if key != "shift_horizon"}

    def check(self) -> Any:
        return flexload_params(1, np.float32, **self.core_ratings())

    def of_physical(self, action: Mapping[str, Any], width: int) -> list[float]:
        shed, deferred = self._only(action, "curtail_mw", "shift_mw")
        return [shed / self.ratings["curtail_cap_mw"], deferred / self.ratings["shift_cap_mw"]]


class DataCenterEnv(ResourceEnv):
    """A data centre: action [-1, 1] of training, tuning and cooling. As a dict: shares train, finetune, cooling."""

    kind, stem = "datacenter", "datacenter"
    KEYWORDS: ClassVar[dict[str, str]] = {name: name for name in DATACENTER}
    DEFAULTS: ClassVar[dict[str, Any]] = {}

    def check(self) -> Any:
        return datacenter_params(1, np.float32, **self.core_ratings())

    def of_physical(self, action: Mapping[str, Any], width: int) -> list[float]:
        return [2 * share - 1 for share in self._only(action, "train", "finetune", "cooling")]


class DieselResource(ResourceEnv):
    """A diesel generator. Feeders take none; `DCMicrogridEnv` has its own."""

    kind, stem = "thermal", "diesel"
    KEYWORDS: ClassVar[dict[str, str]] = {
        "p_max_mw": "p_max_mw",
        "p_min_norm": "p_min_norm",
        "fuel_cost_per_mwh": "fuel_usd_per_mwh",
        "start_cost": "start_usd",
        "carbon_kg_per_mwh": "carbon_kg_per_mwh",
    }
    DEFAULTS: ClassVar[dict[str, Any]] = {"p_max_mw": 0.6, "fuel_usd_per_mwh": 300.0}

    def check(self) -> Any:
        return thermal_params(1, np.float32, **self.core_ratings())

    def of_physical(self, action: Mapping[str, Any], width: int) -> list[float]:
        (p,) = self._only(action, "p_mw")
        return [p / self.ratings["p_max_mw"]]


RESOURCE_TYPES: dict[str, type[ResourceEnv]] = {
    "battery": BatteryEnv,
    "datacenter": DataCenterEnv,
    "diesel": DieselResource,
    "flexload": FlexLoad,
    "solar": SolarEnv,
    "vehicle": VehicleEnv,
    "wind": WindEnv,
}


def create_resource(given: Mapping[str, Any]) -> tuple[ResourceEnv, Any]:
    """(device, bus) out of {"type": ..., "bus_id": ..., ratings}.

    Raises ValueError for an unknown type or key, or without a bus.
    """
    ratings = {key: value for key, value in given.items() if key not in ("type", "bus_id", "name")}
    kind = str(given.get("type"))
    if kind not in RESOURCE_TYPES:
        raise ValueError(unknown("resource type", kind, RESOURCE_TYPES))
    if given.get("bus_id") is None:
        raise ValueError(f"resource {dict(given)} names no bus_id. Give the id of the bus it stands at.")
    if kind == "vehicle" and "trips" in ratings:
        ratings["trips"] = [CommuteTrip(**trip) if isinstance(trip, Mapping) else trip for trip in ratings["trips"]]
    try:
        return RESOURCE_TYPES[kind](**ratings), given["bus_id"]
    except TypeError as err:  # a key of a file is data
        raise ValueError(str(err)) from err
