"""Builder of a transmission grid in DC with devices that one agent commands, from rows as those of a feeder."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from powerzoo_jax.base import Dims, TaskSpec, no_padding
from powerzoo_jax.base.errors import DataError, unknown
from powerzoo_jax.base.numerics import matmul, resolve_dtype
from powerzoo_jax.base.ranges import Count, Positive
from powerzoo_jax.cases import Case, load_case
from powerzoo_jax.data import Series, load_dataset
from powerzoo_jax.data.series import day_matrix
from powerzoo_jax.devices import action_table, placement
from powerzoo_jax.devices.fleet import Layout
from powerzoo_jax.envs.constraint import CONSTRAINTS
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.series import PLANT, EpisodeStarts, LoadColumns
from powerzoo_jax.families.feeder.fields import fleet_table
from powerzoo_jax.families.feeder.tasks.build import FeederFleet
from powerzoo_jax.families.feeder.tasks.roster import (
    Month,
    RosterSettings,
    idle_of_devices,
    make_fleet,
    read_rows,
    unit_names,
)
from powerzoo_jax.families.feeder.tasks.settings import hashable
from powerzoo_jax.families.transmission.names import COSTS
from powerzoo_jax.families.transmission.operator import network_blocks
from powerzoo_jax.families.transmission.operator_fleet import FleetGridEnv, FleetGridParams
from powerzoo_jax.families.transmission.operator_types import GridBank
from powerzoo_jax.families.transmission.tasks.operator import make_transgrid
from powerzoo_jax.families.transmission.tasks.series import DEMAND
from powerzoo_jax.tasks.settings import (
    MINUTES_PER_DAY,
    MINUTES_PER_HOUR,
    EpisodeSettings,
    horizon_steps,
    recorded,
    refuse_names,
    refuse_padding,
    refuse_unknown_names,
    step_minutes,
)

KINDS = ("storage", "renewable", "flexload", "vehicle")


@dataclass(frozen=True, kw_only=True)
class GridFleetSettings(EpisodeSettings):
    """Keywords of a transmission grid with devices.

    devices, q_control, shift_horizon, months: as in `RosterSettings`, without data centres
    plant_columns:   signals of the plants over their references, cycled
    load_set:        series with demand in MW
    max_load_ratio:  of the peak reference of the grid
    """

    devices: tuple[tuple[str, Any, Any], ...] = ()
    q_control: tuple[str, ...] = ()
    plant_columns: tuple[str, ...] = ("solar.available_mw",)
    shift_horizon: Count = 4
    months: tuple[Month, ...] = ()
    load_set: str | Path | Series = "fr_2017_2019"
    max_load_ratio: Positive = 0.85
    rating_scale: Positive = 1.0
    voll: Positive = 10_000.0

    def idle(self) -> dict[str, str]:
        return super().idle() | idle_of_devices(self.devices)


def build_grid_fleet(
    spec: TaskSpec, *, split: str, dims: Dims | None = None, dtype: Any = None, **overrides: Any
) -> Sim:
    """Build a transmission grid with the devices of the keyword `devices`, dispatched by its DC optimum.

    Raises TypeError for an unknown keyword, ValueError for a device of another kind and for `dims`.
    """
    dtype, overrides = resolve_dtype(dtype), hashable(overrides)
    settings = GridFleetSettings.merged(spec.id, dict(spec.overrides), overrides)
    minutes, horizon = step_minutes(spec, settings), horizon_steps(spec, settings)
    case = load_case(spec.case)
    bare = make_transgrid(
        case,
        split=split,
        dtype=dtype,
        delta_t_minutes=minutes,
        max_episode_steps=horizon,
        **{k: getattr(settings, k) for k in ("load_set", "start_date", "end_date", "max_load_ratio", "voll", "solver")},
        rating_scale=settings.rating_scale,
    )
    of_fleet = RosterSettings(
        devices=settings.devices, q_control=settings.q_control, shift_horizon=settings.shift_horizon
    )
    refuse_names(spec, "term_names", (CONSTRAINTS,))
    refuse_unknown_names(spec, spec.term_names, COSTS)
    rows = read_rows(spec, of_fleet)
    other = [kind for kind, _, _ in rows if kind not in KINDS]
    if other:
        raise ValueError(f"{spec.id}: {unknown('device kind', other[0], KINDS)}")
    fleet = make_fleet(spec, of_fleet, rows, minutes, dtype)
    layout = Layout(action_table(fleet.kinds, fleet.q_control), False, fleet.return_steps)
    network = network_blocks(case.n_branch, case.bus.id.tolist(), case.n_unit)
    fields = fleet_table(network, unit_names(rows), None)
    own = dataclasses.replace(bare.env.dims, obs=fields.size, act=layout.table.width, term=len(spec.term_names))
    refuse_padding(spec.id, dims, own)
    plants = np.resize(np.array(settings.plant_columns), fleet.kinds.count("renewable")).tolist()
    env = FleetGridEnv(
        dims=own,
        dt_hours=minutes / MINUTES_PER_HOUR,
        term_weights=spec.term_weights,
        fields=fields,
        cost_names=spec.cost_names,
        layout=layout,
        columns=LoadColumns((*LoadColumns().names, *(f"{PLANT}_{k}" for k in range(1, len(plants) + 1)))),
        solver=settings.solver,
    )
    made = dataclasses.replace(
        spec,
        split=bare.spec.split,
        case=case.name,
        horizon=horizon,
        dt_hours=minutes / MINUTES_PER_HOUR,
        overrides=recorded(spec, overrides),
    )
    params = _params(bare, own, case, settings, fleet, plants, minutes, dtype)
    return Sim(params=params, env=env, spec=made)


def _params(
    bare: Sim,
    dims: Dims,
    case: Case,
    settings: GridFleetSettings,
    fleet: FeederFleet,
    plants: list[str],
    minutes: int,
    dtype: Any,
) -> FleetGridParams:
    """The parameters of the bare grid, and those of the devices."""
    old = {f.name: getattr(bare.params, f.name) for f in dataclasses.fields(bare.params)}
    data = load_dataset(settings.load_set)
    days, _ = day_matrix(data, DEMAND, minutes)
    cf = [np.clip(day_matrix(data, name, minutes)[1].reshape(-1) / data.divisor(name), 0, 1) for name in plants]
    extra = [np.append(column, column[-1]) for column in cf]
    load_rows = np.column_stack([np.asarray(old["bank"].load_rows), *extra])
    old["bank"] = GridBank(load_rows=jnp.asarray(load_rows, dtype))
    old["masks"] = no_padding(dims)
    old["starts"] = _in_months(old["starts"], days, MINUTES_PER_DAY // minutes, settings.months)
    place = placement(case, fleet.bus_ids, dtype)
    flexible = np.array([kind == "flexload" for kind in fleet.kinds], bool)
    at_bus = jnp.asarray(matmul(place, old["load_share"] * old["full_load_mw"]))[flexible]
    flex: dict[str, Any] = {"flex_p_mw": at_bus, "flex_q_mvar": jnp.zeros_like(at_bus)} if flexible.any() else {}
    return FleetGridParams(
        **old, place_bus=place, load_ratio=jnp.ones((), dtype), **fleet.stacks, **fleet.leaves, **flex
    )


def _in_months(starts: EpisodeStarts, days: np.ndarray, per_day: int, months: tuple[int, ...]) -> EpisodeStarts:
    """The starts whose day lies in these months, all of them where none is named."""
    if not months:
        return starts
    row = np.asarray(starts.load_row)[: int(starts.n_start)]
    month = days[row // per_day].astype("datetime64[M]").astype(int) % 12 + 1
    kept = row[np.isin(month, months)]
    if not len(kept):
        raise DataError(f"no episode starts in month {months}. Widen the window.")
    padded = np.full(len(starts.load_row), kept[0])
    padded[: len(kept)] = kept
    return dataclasses.replace(
        starts, load_row=jnp.asarray(padded, jnp.int32), n_start=jnp.asarray(len(kept), jnp.int32)
    )
