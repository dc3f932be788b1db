"""Fleets from rows: any mix of devices at any buses, as keywords of a task describe them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from powerzoo_jax.base import TaskSpec
from powerzoo_jax.base.errors import unknown
from powerzoo_jax.base.ranges import Count, NotNegative, Range
from powerzoo_jax.data.manifest import TMY_SITES
from powerzoo_jax.devices.protocol import DeviceKind
from powerzoo_jax.devices.registry import KINDS
from powerzoo_jax.families.feeder.tasks.build import FeederFleet
from powerzoo_jax.families.feeder.tasks.series import Extra
from powerzoo_jax.families.feeder.tasks.settings import FeederSettings
from powerzoo_jax.tasks.settings import DRAWN
from powerzoo_jax.tasks.site import Surroundings

Month = Annotated[int, Range(1, 12)]

KEYWORDS_OF = {
    ("storage", "renewable"): ("q_control",),
    ("renewable",): ("plant_columns",),
    ("flexload",): ("shift_horizon",),
    ("datacenter",): ("workload_preset", "weather_site", "sla_price", "target_pue"),
}


@dataclass(frozen=True, kw_only=True)
class RosterSettings(FeederSettings):
    """Keywords of feeders with devices of any kind, beside those of every feeder.

    devices:          rows (kind, bus, ratings): a kind of `devices.registry.KINDS`; ratings by name as the
                      `devices.*_params` function of the kind takes them, the same names for all units of a kind; a
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
    shift_horizon: Count = 4
    workload_preset: str = "hyperscale"
    weather_site: str = TMY_SITES[0]
    sla_price: NotNegative = 500.0
    target_pue: NotNegative = 1.3
    months: tuple[Month, ...] = ()

    def idle(self) -> dict[str, str]:
        return super().idle() | idle_of_devices(self.devices)


def idle_of_devices(rows: tuple[tuple[str, Any, Any], ...]) -> dict[str, str]:
    """Keywords of devices that are not there, and the kinds that they need."""
    kinds = {row[0] for row in rows}
    return {
        name: f"a device of kind {' or '.join(needed)}"
        for needed, names in KEYWORDS_OF.items()
        for name in names
        if not kinds & set(needed)
    }


def read_rows(spec: TaskSpec, settings: RosterSettings) -> list[tuple[str, Any, dict[str, Any]]]:
    """The devices kind after kind, with their ratings by name.

    Raises ValueError for an unknown kind, or units of one kind that name different ratings.
    """
    rows = [(kind, bus, dict(ratings)) for kind, bus, ratings in settings.devices]
    for kind, _, _ in rows:
        if kind not in KINDS:
            raise ValueError(f"{spec.id}: {unknown('device kind', kind, KINDS)}")
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
    for kind in settings.q_control:
        if kind not in kinds:
            raise ValueError(f"{spec.id}: q_control: {unknown('kind of the devices', kind, kinds)}")
    stacks: dict[str, Any] = {}
    leaves: dict[str, Any] = {}
    asked: dict[str, Any] = {}
    for kind in dict.fromkeys(kinds):
        units = [ratings for other, _, ratings in rows if other == kind]
        stacks[kind] = _stack(KINDS[kind], len(units), minutes, dtype, _by_name(units))
        settle = KINDS[kind].settle
        if settle is not None:
            more = settle(settings, minutes, dtype)
            leaves |= more.pop("leaves", {})
            asked |= more
    return FeederFleet(
        kinds=kinds,
        bus_ids=tuple(row[1] for row in rows),
        stacks=stacks,
        q_control=settings.q_control,
        return_steps=settings.shift_horizon,
        leaves=leaves,
        **asked,
    )


def _stack(kind: DeviceKind, n_unit: int, minutes: int, dtype: Any, ratings: dict[str, Any]) -> Any:
    """Parameters of the units of a kind."""
    if kind.stack is not None:
        return kind.stack(n_unit, minutes, dtype, ratings)
    return kind.make(n_unit, dtype, **ratings)


def _by_name(units: list[dict[str, Any]]) -> dict[str, Any]:
    """Ratings of all units of a kind, a list for each; ranges that are drawn from are pairs (low, high)."""
    found = {name: [unit[name] for unit in units] for name in units[0] if name != "phases"}
    pairs = {name: tuple(x if isinstance(x, tuple) else (x, x) for x in found[name]) for name in found if name in DRAWN}
    return found | pairs


def unit_names(rows: list[tuple[str, Any, dict[str, Any]]]) -> list[tuple[str, list[str]]]:
    """(kind, ids of its units) of every kind: battery_0, battery_1, ..."""
    kinds = [row[0] for row in rows]
    return [(kind, [f"{KINDS[kind].label}_{k}" for k in range(kinds.count(kind))]) for kind in dict.fromkeys(kinds)]


def extra_series(settings: RosterSettings, fleet: FeederFleet) -> Extra:
    """Series that the fleet meets beside load and price."""
    plants = np.resize(np.array(settings.plant_columns), fleet.kinds.count("renewable")).tolist()
    site = Surroundings(settings.workload_preset, settings.weather_site) if "datacenter" in fleet.kinds else None
    return Extra(plants=tuple(plants), site=site)


def applicable(names: tuple[str, ...], kinds: tuple[str, ...]) -> list[int]:
    """Positions of the terms or channels whose devices are there: a name that only other kinds know does not exist."""
    missing = {name for other in KINDS.values() for name in (*other.terms, *other.costs)}
    missing -= {name for kind in kinds for name in (*KINDS[kind].terms, *KINDS[kind].costs)}
    return [k for k, name in enumerate(names) if name not in missing]
