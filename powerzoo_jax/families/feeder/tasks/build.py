"""Assembly of a feeder task's Sim from its blueprint, on the host: case, data and devices."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base import Dims, TaskSpec, no_padding
from powerzoo_jax.base.errors import BaseLoadError, DataError, SolverError, listing
from powerzoo_jax.cases import Case
from powerzoo_jax.cases.case import without_idle_branches
from powerzoo_jax.cases.grid import Grid, to_grid
from powerzoo_jax.cases.topology import branch_positions
from powerzoo_jax.data import Bank
from powerzoo_jax.data.bank import published_sums
from powerzoo_jax.devices import action_table, placement
from powerzoo_jax.devices.facility import QueueSizes
from powerzoo_jax.devices.fleet import Layout
from powerzoo_jax.devices.registry import KINDS
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.observe import FieldTable, with_field
from powerzoo_jax.envs.series import EpisodeStarts
from powerzoo_jax.families.feeder.env import DistributionEnv, SeriesBank
from powerzoo_jax.families.feeder.fields import SETTLEMENT
from powerzoo_jax.families.feeder.names import COSTS, OWN_TERMS
from powerzoo_jax.families.feeder.padding import pad_feeder_env
from powerzoo_jax.families.feeder.tasks.own_grid import given_case
from powerzoo_jax.families.feeder.tasks.series import Extra, build_series
from powerzoo_jax.families.feeder.tasks.settings import FeederSettings
from powerzoo_jax.families.feeder.types import DistributionParams
from powerzoo_jax.powerflow import FeederFactors, nominal_injection, prepare_feeder
from powerzoo_jax.tasks.settings import MINUTES_PER_HOUR as MINUTES_PER_HOUR
from powerzoo_jax.tasks.settings import horizon_steps as horizon_steps
from powerzoo_jax.tasks.settings import recorded, refuse_unknown_names, scaled_weights
from powerzoo_jax.tasks.settings import step_minutes as step_minutes
from powerzoo_jax.tasks.spec import Shift

BASE_LOAD_FACTOR = 0.5  # middle of what a normalised load profile spans: the chord converges fastest around its base


@dataclass(frozen=True)
class FeederFleet:
    """The units of a task, in the order of their ids.

    kinds, bus_ids:  of every unit;  stacks: parameters of each kind
    q_control:       kinds among storage and renewable that take a reactive command
    leaves:          further parameters of the environment, by name
    """

    kinds: tuple[str, ...]
    bus_ids: tuple[int, ...]
    stacks: dict[str, Any]
    q_control: tuple[str, ...] = ()
    return_steps: int = 1
    jitter_steps: int = 0
    trip_days: int = 1
    sizes: QueueSizes | None = None
    leaves: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class FeederTaskConfig:
    """Blueprint of a feeder task: the decisions of its family before anything is built.

    spec:       budgets and agents resolved;  overrides: the caller's keywords, for the record
    split:      as asked for, and the Shift it stands for
    fields:     case -> field table;  per_device: one agent a unit
    pooling:    "sum", "mean" or "individual"
    extra:      further columns of the load table
    zones:      buses of each load shape, in the order of load_column and extra.shapes; empty = one shape
    substation_mva: rating of the branch at the slack bus alone
    """

    spec: TaskSpec
    settings: FeederSettings
    overrides: dict[str, Any]
    split: str
    shift: Shift
    fleet: FeederFleet
    fields: Callable[[Case], FieldTable]
    per_device: bool = False
    pooling: str = "sum"
    extra: Extra = field(default_factory=Extra)
    zones: tuple[tuple[int, ...], ...] = ()
    substation_mva: float | None = None


def feeder_case(spec: TaskSpec, settings: FeederSettings) -> Case:
    """The network of a task, without branches out of service, or the part of it that one reference supplies."""
    return without_idle_branches(given_case(spec.case if settings.case is None else settings.case, settings.reference))


def build_sim(plan: FeederTaskConfig, case: Case, dims: Dims | None, dtype: np.dtype) -> Sim:
    """Assemble environment, parameters and spec; pad to `dims` where they are given."""
    settings, spec = plan.settings, plan.spec
    refuse_other_names(spec, plan.fleet.kinds, COSTS)
    minutes, horizon = step_minutes(spec, settings), horizon_steps(spec, settings)
    bank, columns, rows = build_series(settings, plan.shift, minutes, horizon, plan.extra)
    starts = kept_starts(bank, plan.shift, horizon)
    _refuse_slack_devices(case, plan.fleet)
    table = action_table(plan.fleet.kinds, plan.fleet.q_control)
    fleet = plan.fleet
    layout = Layout(table, plan.per_device, fleet.return_steps, fleet.jitter_steps, fleet.sizes, fleet.trip_days)
    fields = shown_fields(plan, case)
    sizes = _dims(case, plan, layout, fields)
    params = _params(plan, case, bank, rows, starts, sizes, horizon, dtype)
    weights = scaled_weights(spec.term_weights, settings.reward_scale)
    env = DistributionEnv(
        dims=sizes,
        dt_hours=minutes / MINUTES_PER_HOUR,
        term_weights=weights,
        fields=fields,
        layout=layout,
        columns=columns,
        cost_names=spec.cost_names,
        term_names=spec.term_names,
        pooling=plan.pooling,
        flattened=not plan.per_device,
        rated=bool(np.any(np.asarray(params.grid.rate) > 0)),
        head_rated=plan.substation_mva is not None,
        solver=settings.solver,
    )
    spec = built_spec(plan, case.name, bank, weights)
    if dims is None:
        return Sim(params=params, env=env, spec=spec)
    env, params = pad_feeder_env(env, params, dims)
    return Sim(params=params, env=env, spec=spec)


def refuse_other_names(spec: TaskSpec, kinds: tuple[str, ...], costs: tuple[str, ...]) -> None:
    """Raise ValueError for reward terms and cost channels that neither the feeder nor its devices have.

    costs:  channels of the network itself
    """
    own = [KINDS[kind] for kind in dict.fromkeys(kinds)]
    terms = set(OWN_TERMS).union(*(kind.terms for kind in own))
    refuse_unknown_names(spec, terms, set(costs).union(*(kind.costs for kind in own)))


def shown_fields(plan: FeederTaskConfig, case: Any) -> FieldTable:
    """The fields of a task on a case, with the settlement price last where it is shown."""
    fields = plan.fields(case)
    return with_field(fields, SETTLEMENT) if plan.settings.settlement_price else fields


def series_bank(plan: FeederTaskConfig, bank: Bank, rows: np.ndarray, dtype: np.dtype) -> SeriesBank:
    """The tables that an environment reads: the load table (R, F), prices, and sums of these where a mean is shown."""
    return SeriesBank(
        load_rows=jnp.asarray(rows, dtype),
        price_rows=jnp.asarray(bank.price_rows, dtype),
        price_sums=jnp.asarray(published_sums(bank), dtype) if plan.settings.settlement_price else None,
    )


def built_spec(plan: FeederTaskConfig, case: str, bank: Bank, weights: tuple[float, ...]) -> TaskSpec:
    """The spec as built, with the decisions of the caller and the data, for the record."""
    return dataclasses.replace(
        plan.spec,
        case=case,
        split=plan.split if bank.split == plan.shift.base else bank.split,
        horizon=horizon_steps(plan.spec, plan.settings),
        dt_hours=step_minutes(plan.spec, plan.settings) / MINUTES_PER_HOUR,
        term_weights=weights,
        overrides=recorded(plan.spec, plan.overrides),
    )


def with_shaping(spec: TaskSpec, name: str, weight: float) -> TaskSpec:
    """The spec with one more reward term, or as it is where the weight is 0."""
    if weight == 0:
        return spec
    weights = (*spec.term_weights, spec.term_weights[0] * weight)
    return dataclasses.replace(spec, term_names=(*spec.term_names, name), term_weights=weights)


def _refuse_slack_devices(case: Case, fleet: FeederFleet) -> None:
    """A device at the slack bus would trade with the substation outside the feeder's power balance."""
    slack = np.intersect1d(fleet.bus_ids, case.bus.id[case.slack_bus])
    if slack.size:
        raise ValueError(
            f"{case.name}: the list of device buses contains the slack bus {listing(slack)}, whose voltage no device "
            "moves. Choose a bus of the feeder."
        )


def _dims(case: Case, plan: FeederTaskConfig, layout: Layout, fields: FieldTable) -> Dims:
    unit, widest = len(plan.fleet.kinds), max((len(block.names) for block in layout.table.blocks), default=0)
    return Dims(
        bus=case.n_bus,
        branch=case.n_branch,
        unit=unit,
        agent=unit if plan.per_device else 1,
        obs=fields.size,
        act=widest if plan.per_device else layout.table.width,
        choice=0,
        cost=len(plan.spec.cost_names),
        term=len(plan.spec.term_names),
    )


def _factors(case: Case, settings: FeederSettings, bus_ids: tuple[int, ...], dtype: np.dtype) -> FeederFactors:
    base_load = BASE_LOAD_FACTOR * settings.max_load_ratio * settings.load_scale
    try:
        return prepare_feeder(
            case, active_bus_ids=bus_ids, load_factor=base_load, v_slack=settings.v_slack, dtype=dtype
        )
    except BaseLoadError as err:
        raise SolverError(
            f"{case.name} has no power flow at {base_load:g} times its nominal load, the middle of what "
            f"max_load_ratio = {settings.max_load_ratio:g} and load_scale = {settings.load_scale:g} ask for. "
            "Lower one of them, or check v_slack and the units of the case."
        ) from err


def _params(
    plan: FeederTaskConfig,
    case: Case,
    bank: Bank,
    rows: np.ndarray,
    starts: EpisodeStarts,
    dims: Dims,
    horizon: int,
    dtype: np.dtype,
) -> DistributionParams:
    settings, fleet = plan.settings, plan.fleet
    ratio = settings.max_load_ratio * settings.load_scale
    place = placement(case, fleet.bus_ids, dtype)
    factors = _factors(case, settings, fleet.bus_ids, dtype)
    active = np.asarray(factors.active)
    load = (case.p_load_mw + 1j * case.q_load_mvar)[active] / case.base_mva
    units = nominal_injection(case)[active] + load
    return DistributionParams(
        grid=_grid(case, plan, dtype),
        factors=factors,
        masks=no_padding(dims),
        horizon=jnp.asarray(horizon, jnp.int32),
        bank=series_bank(plan, bank, rows, dtype),
        place_bus=place,
        place_active=place[:, active],
        p_load=jnp.asarray(load.real, dtype),
        q_load=jnp.asarray(load.imag, dtype),
        load_ratio=jnp.asarray(ratio * plan.shift.load, dtype),
        load_mw=jnp.asarray(case.p_load_mw.sum(), dtype),
        peak_mw=jnp.asarray(ratio * case.p_load_mw.sum(), dtype),
        voll=jnp.asarray(settings.voll, dtype),
        starts=starts,
        **fleet.stacks,
        **fleet.leaves,
        **_shape_leaves(plan, case, active, dtype),
        **_flexible_leaves(plan, case, dtype),
        **({"unit_p": jnp.asarray(units.real, dtype), "unit_q": jnp.asarray(units.imag, dtype)} if units.any() else {}),
    )


def _int32(values: np.ndarray) -> Array:
    return jnp.asarray(values, jnp.int32)


def kept_starts(bank: Bank, shift: Shift, horizon: int) -> EpisodeStarts:
    """Start days of episodes of `horizon` steps: the eligible starts and price days that the shift keeps."""
    month = np.array([int(day[5:7]) for day in bank.start_day])
    kept = np.flatnonzero(np.isin(month, shift.months)) if shift.months else np.arange(bank.n_start)
    if not len(kept):
        raise DataError(f"no episode of {bank.split!r} starts in month {listing(shift.months)}. Widen the window.")
    price_row, count = _kept_prices(bank, shift.highest_price, horizon)
    kept = kept[count[kept] > 0]
    if not len(kept):
        above, most = shift.highest_price
        raise DataError(
            f"no episode of {bank.split!r} has its highest price above {above:g} and up to {most:g} per MWh. "
            "Choose another split or price_set."
        )
    return EpisodeStarts(
        load_row=_int32(_refilled(bank.start_load_row, kept)),
        n_start=jnp.asarray(len(kept), jnp.int32),
        price_row=_int32(_refilled(price_row, kept)),
        pair_count=_int32(_refilled(count, kept)),
    )


def _kept_prices(bank: Bank, limits: tuple[float, float], horizon: int) -> tuple[np.ndarray, np.ndarray]:
    """Candidate price rows (S, K) of each start, first those whose highest price is within limits, and their number."""
    if limits == (-math.inf, math.inf):
        return bank.pair_price_row, bank.pair_count
    rows = bank.pair_price_row
    highest = np.array([bank.price_rows[row : row + horizon, 0].max() for row in rows.ravel()]).reshape(rows.shape)
    ours = (np.arange(rows.shape[1]) < bank.pair_count[:, None]) & (highest > limits[0]) & (highest <= limits[1])
    order = np.argsort(~ours, axis=1, kind="stable")
    return np.take_along_axis(rows, order, axis=1), ours.sum(axis=1)


def _refilled(table: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Rows `kept` of a padded table, padded again with the first of them."""
    order = np.full(len(table), kept[0])
    order[: len(kept)] = kept
    return table[order]


def _grid(case: Case, plan: FeederTaskConfig, dtype: np.dtype) -> Grid:
    settings = plan.settings
    grid = to_grid(case, dtype, v_min=settings.v_min, v_max=settings.v_max, rate_mva=settings.rate_mva)
    if plan.substation_mva is None:
        return grid
    f, t = branch_positions(case)
    head = np.flatnonzero((f == case.slack_bus[0]) | (t == case.slack_bus[0]))
    if len(head) != 1:
        raise ValueError(
            f"{case.name} has {len(head)} branches at its slack bus; a substation rating is for one. Use rate_mva."
        )
    rate = np.zeros(case.n_branch)
    rate[head] = plan.substation_mva / case.base_mva
    return dataclasses.replace(grid, rate=jnp.asarray(rate, dtype))


def _shape_leaves(plan: FeederTaskConfig, case: Case, active: np.ndarray, dtype: np.dtype) -> dict[str, Any]:
    """Share of every bus that follows each load shape; nothing with one shape."""
    if not plan.zones:
        return {}
    share = np.zeros((len(plan.zones), case.n_bus))
    for k, zone in enumerate(plan.zones):
        share[k, case.positions(np.asarray(zone, np.int64))] = 1.0
    orphan = (share.sum(axis=0) != 1) & (case.p_load_mw != 0)
    if orphan.any():
        raise ValueError(f"{case.name}: bus {listing(case.bus.id[orphan])} belongs to no zone, or to several.")
    return {
        "shape_bus": jnp.asarray(share, dtype),
        "shape_active": jnp.asarray(share[:, active], dtype),
        "shape_mw": jnp.asarray(share @ case.p_load_mw, dtype),
    }


def _flexible_leaves(plan: FeederTaskConfig, case: Case, dtype: np.dtype) -> dict[str, Any]:
    """Nominal load at the buses of the flexible loads, and the shapes that it follows."""
    buses = [bus for kind, bus in zip(plan.fleet.kinds, plan.fleet.bus_ids, strict=True) if kind == "flexload"]
    if not buses:
        return {}
    doubled = sorted({bus for bus in buses if buses.count(bus) > 1})
    if doubled:
        raise ValueError(f"{case.name}: two flexible loads share bus {listing(doubled)}, whose load can move once.")
    at = case.positions(np.asarray(buses, np.int64))
    leaves = {
        "flex_p_mw": jnp.asarray(case.p_load_mw[at], dtype),
        "flex_q_mvar": jnp.asarray(case.q_load_mvar[at], dtype),
    }
    if plan.zones:
        share = np.array([[float(bus in zone) for bus in buses] for zone in plan.zones])
        leaves["flex_shape"] = jnp.asarray(share, dtype)
    return leaves
