"""From a spec to a Sim: cases, data and devices meet here, on the host."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from powerzoo_jax.base import Dims, Masks, TaskSpec
from powerzoo_jax.base.errors import BaseLoadError, SolverError, listing, unknown
from powerzoo_jax.base.numerics import resolve_dtype
from powerzoo_jax.cases import Case, load_case
from powerzoo_jax.cases.case import without_idle_branches
from powerzoo_jax.cases.grid import to_grid
from powerzoo_jax.data import Bank, Series, build_bank, list_datasets, load_dataset
from powerzoo_jax.devices import placement, storage_params
from powerzoo_jax.envs.align import pad_feeder_env
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.distribution import DistributionEnv, DistributionParams, SeriesBank
from powerzoo_jax.envs.draw import Starts
from powerzoo_jax.envs.observe import Block, FieldTable, table
from powerzoo_jax.powerflow import nominal_injection, prepare_feeder

MINUTES_PER_HOUR = 60
SOURCES = ("load_set", "price_set")
BASE_LOAD_FACTOR = 0.5  # middle of what a normalised load profile spans: the chord converges fastest around its base


@dataclass(frozen=True)
class FeederStorageSettings:
    """Keywords of the feeder-with-storage tasks; the catalog and the caller override them.

    case:                   case name or path of a .m file (None: the spec's)
    battery_bus_ids:        external bus ids, one battery each
    battery_capacity_mwh, battery_power_mw, eta_roundtrip, soc_min, soc_max, degradation_per_mwh
    initial_soc:            a value, or (low, high) to draw from
    load_set, price_set:    name of a bundled set, path of a CSV file (`data.read_csv`), "neso:PATH" and its like
                            (`data.adapters`), or a `data.Series`
    load_column, price_column: signal of it
    data_source:            the caller's load_set, with its default signal unless load_column is given as well
    start_date, end_date:   ISO dates that replace the split calendar
    max_load_ratio, load_scale: load = max_load_ratio * load_scale * nominal * D(t) / D_ref
    min_load_ratio:         ratio that the smallest value of all data is mapped to (None: D_min / D_ref of the maximum)
    v_min, v_max:           [pu] band;  v_slack: None takes the case's set-point
    rate_mva:               rating of every branch (None: the case's own, 0 = unlimited)
    voll:                   [$/MWh]
    price_forecast:         observe the price and its next 24 hours
    max_steps:              horizon in steps (None: the spec's);  delta_t_minutes: step (None: the spec's)
    """

    case: str | None = None
    battery_bus_ids: tuple[int, ...] = (6,)
    battery_capacity_mwh: float = 0.5
    battery_power_mw: float = 0.2
    eta_roundtrip: float = 0.95
    soc_min: float = 0.1
    soc_max: float = 0.9
    initial_soc: float | tuple[float, float] = 0.5
    degradation_per_mwh: float = 5.0
    load_set: str | Path | Series = "simbench_2016"
    load_column: str = "mv_semiurb"
    price_set: str | Path | Series = "de_smard_2018"
    price_column: str = "price.day_ahead_per_mwh"
    data_source: str | Path | Series | None = None
    start_date: str | None = None
    end_date: str | None = None
    max_load_ratio: float = 0.85
    min_load_ratio: float | None = None
    load_scale: float = 1.0
    v_min: float = 0.90
    v_max: float = 1.10
    v_slack: float | None = None
    rate_mva: float | None = None
    voll: float = 10_000.0
    price_forecast: bool = True
    max_steps: int | None = None
    delta_t_minutes: int | None = None


def resolve_settings(spec: TaskSpec, overrides: dict[str, Any]) -> FeederStorageSettings:
    """Merge defaults, catalog and caller; TypeError for an unknown keyword, naming the nearest."""
    known = {f.name for f in dataclasses.fields(FeederStorageSettings)}
    for key in overrides:
        if key not in known:
            raise TypeError(f"{spec.id}: {unknown('keyword', key, known)}")
    merged = dict(spec.overrides) | _name_source(spec, overrides)
    # a file becomes the series itself, so that it is read once
    merged |= {key: load_dataset(merged[key]) for key in SOURCES if merged.get(key, "") not in list_datasets()}
    if isinstance(merged.get("battery_bus_ids"), int):
        merged["battery_bus_ids"] = (merged["battery_bus_ids"],)
    settings = FeederStorageSettings(**merged)
    _check_ranges(spec, settings)
    if not 0 < settings.v_min < settings.v_max:
        raise ValueError(f"{spec.id}: v_min = {settings.v_min}, v_max = {settings.v_max}: need 0 < v_min < v_max.")
    if not settings.battery_bus_ids:
        raise ValueError(f"{spec.id}: battery_bus_ids is empty. Name at least one bus.")
    return settings


def _name_source(spec: TaskSpec, overrides: dict[str, Any]) -> dict[str, Any]:
    """Put `data_source` in the place of the load set, with its default signal."""
    source = overrides.get("data_source")
    if source is None:
        return overrides
    if "load_set" in overrides:
        raise ValueError(f"{spec.id}: data_source and load_set name the same thing. Give one of them.")
    data = load_dataset(source)
    return {"load_column": data.meta.default} | overrides | {"load_set": data}


def _check_ranges(spec: TaskSpec, settings: FeederStorageSettings) -> None:
    """Refuse numbers that no task can run with; None stands for the default."""
    for name in ("max_load_ratio", "load_scale", "voll", "v_slack"):
        value = getattr(settings, name)
        if value is not None and not 0 < value < math.inf:
            raise ValueError(f"{spec.id}: {name} = {value} must be positive and finite.")
    if settings.rate_mva is not None and not settings.rate_mva >= 0:
        raise ValueError(f"{spec.id}: rate_mva = {settings.rate_mva} must not be negative; 0 means unlimited.")
    for name in ("max_steps", "delta_t_minutes"):
        value = getattr(settings, name)
        if value is not None and (value != int(value) or value < 1):
            raise ValueError(f"{spec.id}: {name} = {value} must be a whole number of at least 1.")


def build_feeder_storage(
    spec: TaskSpec, *, split: str, dims: Dims | None = None, dtype: Any = None, **overrides: Any
) -> Sim:
    """Build a feeder with batteries at chosen buses, prices and loads from the data bank."""
    dtype = resolve_dtype(dtype)
    # the spec is static in every compiled program, so its values must be hashable
    overrides = {key: tuple(value) if isinstance(value, list) else value for key, value in overrides.items()}
    settings = resolve_settings(spec, overrides)
    default_minutes = spec.dt_hours * MINUTES_PER_HOUR
    minutes = round(default_minutes if settings.delta_t_minutes is None else settings.delta_t_minutes)
    horizon = spec.horizon if settings.max_steps is None else int(settings.max_steps)
    bank = build_bank(
        settings.load_set,
        settings.load_column,
        settings.price_set,
        settings.price_column,
        minutes,
        split,
        horizon,
        start_date=settings.start_date,
        end_date=settings.end_date,
        load_floor=None if settings.min_load_ratio is None else settings.min_load_ratio / settings.max_load_ratio,
    )
    case = without_idle_branches(load_case(spec.case if settings.case is None else settings.case))
    _refuse_slack_devices(case, settings)
    fields = _fields(case, settings, len(bank.price_fields) - 2)
    sizes = _dims(case, settings, fields, spec)
    params = _params(case, settings, bank, sizes, horizon, dtype)
    env = DistributionEnv(
        dims=sizes,
        dt_hours=minutes / MINUTES_PER_HOUR,
        term_weights=spec.term_weights,
        fields=fields,
        rated=bool(np.any(np.asarray(params.grid.rate) > 0)),
    )
    spec = dataclasses.replace(
        spec,
        case=case.name,
        split=bank.split,
        horizon=horizon,
        dt_hours=env.dt_hours,
        overrides=tuple(sorted((dict(spec.overrides) | overrides).items())),
    )
    sim = Sim(params=params, env=env, spec=spec)
    return sim if dims is None else _pad_to(sim, dims)


def _refuse_slack_devices(case: Case, settings: FeederStorageSettings) -> None:
    """A device at the slack bus would trade with the substation outside the feeder's power balance."""
    slack = np.intersect1d(settings.battery_bus_ids, case.bus.id[case.slack_bus])
    if slack.size:
        raise ValueError(
            f"{case.name}: battery_bus_ids contains the slack bus {listing(slack)}, whose voltage no device moves. "
            "Choose a bus of the feeder."
        )


def _pad_to(sim: Sim, dims: Dims) -> Sim:
    env, params = pad_feeder_env(sim.env, sim.params, dims)
    return Sim(params=params, env=env, spec=sim.spec)


def _fields(case: Case, settings: FeederStorageSettings, n_price: int) -> FieldTable:
    """The flattened observation of spec order: grid, devices, time, prices."""
    buses, lines = case.bus.id.tolist(), range(1, case.n_branch + 1)
    devices = [f"battery_{k}" for k in range(len(settings.battery_bus_ids))]
    grid_obs = [f"{d}_{x}" for d in devices for x in ("soc", "p_dis_max", "p_chg_max", "p_norm")]
    keys = ("p_charge_max_norm", "p_discharge_max_norm", "p_mw_norm", "soc", "time_cos", "time_sin")
    price = ["price_signal", *(f"price_forecast_{k}" for k in range(1, n_price))] if settings.price_forecast else []
    return table(
        [
            Block("node_v_norm", tuple(f"node_{i}_v_norm" for i in buses), -10, 10),
            Block("line_p_norm", tuple(f"line_{i}_p_norm" for i in lines), -5, 5),
            Block("line_q_norm", tuple(f"line_{i}_q_norm" for i in lines), -5, 5),
            Block("node_p_load_norm", tuple(f"node_{i}_p_load_norm" for i in buses), -5, 5),
            Block("node_q_load_norm", tuple(f"node_{i}_q_load_norm" for i in buses), -5, 5),
            Block("device_grid_obs", tuple(grid_obs), -1, 1),
            Block("clock", ("time_sin", "time_cos"), -1, 1),
            Block("device_obs", tuple(f"{d}/{key}" for d in devices for key in keys), -1, 1),
            Block("time", ("time/time_sin", "time/time_cos"), -1, 1),
            Block("price", tuple(price), -1, 3),
        ]
    )


def _dims(case: Case, settings: FeederStorageSettings, fields: FieldTable, spec: TaskSpec) -> Dims:
    unit = len(settings.battery_bus_ids)
    return Dims(
        bus=case.n_bus,
        branch=case.n_branch,
        unit=unit,
        agent=1,
        obs=fields.size,
        act=unit,
        choice=0,
        cost=len(spec.cost_names),
        term=len(spec.term_names),
    )


def _params(
    case: Case, settings: FeederStorageSettings, bank: Bank, dims: Dims, horizon: int, dtype: np.dtype
) -> DistributionParams:
    ratio = settings.max_load_ratio * settings.load_scale
    place = placement(case, settings.battery_bus_ids, dtype)
    base_load = BASE_LOAD_FACTOR * ratio
    try:
        factors = prepare_feeder(
            case,
            active_bus_ids=settings.battery_bus_ids,
            load_factor=base_load,
            v_slack=settings.v_slack,
            dtype=dtype,
        )
    except BaseLoadError as err:
        raise SolverError(
            f"{case.name} has no power flow at {base_load:g} times its nominal load, the middle of what "
            f"max_load_ratio = {settings.max_load_ratio:g} and load_scale = {settings.load_scale:g} ask for. "
            "Lower one of them, or check v_slack and the units of the case."
        ) from err
    active = np.asarray(factors.active)
    load = -nominal_injection(case)[active]
    n_unit = len(settings.battery_bus_ids)
    yes = np.ones(1, bool)
    return DistributionParams(
        grid=to_grid(case, dtype, v_min=settings.v_min, v_max=settings.v_max, rate_mva=settings.rate_mva),
        factors=factors,
        masks=Masks(
            agent=jnp.asarray(yes),
            obs=jnp.ones((1, dims.obs), bool),
            act=jnp.ones((1, dims.act), bool),
            cost=jnp.ones(dims.cost, bool),
            term=jnp.ones((1, dims.term), bool),
        ),
        horizon=jnp.asarray(horizon, jnp.int32),
        bank=SeriesBank(load_rows=jnp.asarray(bank.load_rows, dtype), price_rows=jnp.asarray(bank.price_rows, dtype)),
        storage=storage_params(
            n_unit,
            dtype,
            capacity_mwh=settings.battery_capacity_mwh,
            power_mw=settings.battery_power_mw,
            eta_roundtrip=settings.eta_roundtrip,
            soc_min=settings.soc_min,
            soc_max=settings.soc_max,
            initial_soc=settings.initial_soc,
            degradation_per_mwh=settings.degradation_per_mwh,
        ),
        place_bus=place,
        place_active=place[:, active],
        p_load=jnp.asarray(load.real, dtype),
        q_load=jnp.asarray(load.imag, dtype),
        load_ratio=jnp.asarray(ratio, dtype),
        load_mw=jnp.asarray(case.p_load_mw.sum(), dtype),
        voll=jnp.asarray(settings.voll, dtype),
        starts=Starts(
            load_row=jnp.asarray(bank.start_load_row, jnp.int32),
            n_start=jnp.asarray(bank.n_start, jnp.int32),
            price_row=jnp.asarray(bank.pair_price_row, jnp.int32),
            pair_count=jnp.asarray(bank.pair_count, jnp.int32),
        ),
    )
