"""Builders of feeders with devices of any kind that one agent commands: balanced ones, and three-phase ones."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from powerzoo_jax.base import Dims, TaskSpec, no_padding
from powerzoo_jax.base.errors import BaseLoadError, SolverError, unknown
from powerzoo_jax.base.numerics import resolve_dtype
from powerzoo_jax.base.ranges import Positive
from powerzoo_jax.cases import Case, ThreePhaseCase, load_feeder
from powerzoo_jax.cases.threephase.case import GROUND
from powerzoo_jax.devices import action_table
from powerzoo_jax.devices.fleet import Layout
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.observe import FieldTable
from powerzoo_jax.families.feeder.fields import PHASES, fleet_table, grid_blocks, phase_blocks
from powerzoo_jax.families.feeder.names import PHASE_COSTS
from powerzoo_jax.families.feeder.tasks.build import (
    BASE_LOAD_FACTOR,
    MINUTES_PER_HOUR,
    FeederTaskConfig,
    build_sim,
    built_spec,
    feeder_case,
    horizon_steps,
    kept_starts,
    refuse_other_names,
    series_bank,
    shown_fields,
    step_minutes,
)
from powerzoo_jax.families.feeder.tasks.roster import (
    RosterSettings,
    applicable,
    extra_series,
    make_fleet,
    read_rows,
    unit_names,
)
from powerzoo_jax.families.feeder.tasks.series import build_series
from powerzoo_jax.families.feeder.tasks.settings import hashable, merge_settings, own_series
from powerzoo_jax.families.feeder.tasks.storage import FORECAST_HOURS
from powerzoo_jax.families.feeder.types import DistributionParams
from powerzoo_jax.families.feeder.unbalanced import PhaseGrid, UnbalancedEnv
from powerzoo_jax.powerflow import nominal_phase_load, prepare_threephase
from powerzoo_jax.tasks.settings import agent_names, scaled_weights
from powerzoo_jax.tasks.spec import Variants

ANY_VOLTAGE_PU = 2.0  # upper limit where a bus lacks the phase
Rows = list[tuple[str, Any, dict[str, Any]]]


@dataclass(frozen=True, kw_only=True)
class PhaseSettings(RosterSettings):
    """Keywords of three-phase feeders.

    Among those of other feeders, `case` is a three-phase feeder, as `load_feeder` takes it, rate_mva holds for every
    conductor of every line (None: normamps of the script at the base voltage), and v_slack for all phases of the
    source.

    vuf_max:  [%] largest voltage unbalance that breaks nothing
    """

    case: str | Path | ThreePhaseCase | None = None
    vuf_max: Positive = 2.0


def build_grid(spec: TaskSpec, *, split: str, dims: Dims | None = None, dtype: Any = None, **overrides: Any) -> Sim:
    """Build a balanced feeder with the devices of the keyword `devices`, see `RosterSettings`."""
    dtype = resolve_dtype(dtype)
    spec, overrides = own_series(spec, hashable(overrides))
    settings = merge_settings(RosterSettings, spec, {}, overrides)
    rows = read_rows(spec, settings)

    def fields(case: Case) -> FieldTable:
        grid = grid_blocks(case.bus.id.tolist(), case.n_branch)
        return fleet_table(grid, unit_names(rows), _hours(settings))

    plan = _plan(spec, settings, overrides, split, rows, dtype, fields)
    return build_sim(plan, feeder_case(spec, settings), dims, dtype)


def build_unbalanced(
    spec: TaskSpec, *, split: str, dims: Dims | None = None, dtype: Any = None, **overrides: Any
) -> Sim:
    """Build a three-phase feeder with the devices of the keyword `devices`, see `PhaseSettings`.

    Regulators keep the taps of the case. Raises ValueError for `dims` other than the feeder's own.
    """
    dtype = resolve_dtype(dtype)
    spec, overrides = own_series(spec, hashable(overrides))
    settings = merge_settings(PhaseSettings, spec, {}, overrides)
    rows = read_rows(spec, settings)
    case = _phase_case(spec, settings)

    def fields(_: Any) -> FieldTable:
        return fleet_table(phase_blocks(_buses(case), case.line.name.tolist()), unit_names(rows), _hours(settings))

    plan = _plan(spec, settings, overrides, split, rows, dtype, fields)
    refuse_other_names(plan.spec, plan.fleet.kinds, PHASE_COSTS)
    minutes, horizon = step_minutes(spec, settings), horizon_steps(spec, settings)
    shown = shown_fields(plan, None)
    bank, columns, table = build_series(settings, plan.shift, minutes, horizon, plan.extra)
    layout = Layout(
        action_table(plan.fleet.kinds, plan.fleet.q_control), False, plan.fleet.return_steps, 0, plan.fleet.sizes
    )
    own = Dims(
        bus=3 * len(_buses(case)),
        branch=3 * len(case.line),
        unit=len(rows),
        agent=1,
        obs=shown.size,
        act=layout.table.width,
        choice=0,
        cost=len(plan.spec.cost_names),
        term=len(plan.spec.term_names),
    )
    if dims is not None and dims != own:
        raise ValueError(f"{spec.id}: a three-phase feeder has nothing to pad; leave dims out, or give {own}.")
    env = UnbalancedEnv(
        dims=own,
        dt_hours=minutes / MINUTES_PER_HOUR,
        term_weights=scaled_weights(plan.spec.term_weights, settings.reward_scale),
        fields=shown,
        layout=layout,
        columns=columns,
        cost_names=plan.spec.cost_names,
        term_names=plan.spec.term_names,
        rated=bool(_line_rates(case, settings).any()),
        solver=settings.solver,
    )
    params = DistributionParams(
        masks=no_padding(own),
        horizon=jnp.asarray(horizon, jnp.int32),
        bank=series_bank(plan, bank, table, dtype),
        starts=kept_starts(bank, plan.shift, horizon),
        **plan.fleet.stacks,
        **plan.fleet.leaves,
        **_network(case, settings, rows, dtype),
    )
    return Sim(params=params, env=env, spec=built_spec(plan, case.name, bank, env.term_weights))


def _hours(settings: RosterSettings) -> int | None:
    return FORECAST_HOURS if settings.price_forecast else None


def _plan(
    spec: TaskSpec, settings: RosterSettings, overrides: dict[str, Any], split: str, rows: Rows, dtype: Any, fields: Any
) -> FeederTaskConfig:
    """Blueprint common to both kinds of feeder: fleet, series, and the terms and channels that it has."""
    fleet = make_fleet(spec, settings, rows, step_minutes(spec, settings), dtype)
    terms, costs = applicable(spec.term_names, fleet.kinds), applicable(spec.cost_names, fleet.kinds)
    return FeederTaskConfig(
        spec=dataclasses.replace(
            spec,
            agents=agent_names(spec, ("operator_0",)),
            cost_names=tuple(spec.cost_names[k] for k in costs),
            cost_budget=tuple(spec.cost_budget[k] for k in costs),
            term_names=tuple(spec.term_names[k] for k in terms),
            term_weights=tuple(spec.term_weights[k] for k in terms),
        ),
        settings=settings,
        overrides=overrides,
        split=split,
        shift=dataclasses.replace(Variants().shift(split), months=settings.months),
        fleet=fleet,
        fields=fields,
        extra=extra_series(settings, fleet),
    )


def _phase_case(spec: TaskSpec, settings: PhaseSettings) -> ThreePhaseCase:
    if settings.reference is not None:
        raise ValueError(
            f"{spec.id}: reference = {settings.reference}: a three-phase feeder has one source. Leave it out."
        )
    case = load_feeder(spec.case if settings.case is None else settings.case)
    if settings.v_slack is None:
        return case
    return dataclasses.replace(case, source=dataclasses.replace(case.source, v_pu=np.full(3, settings.v_slack)))


def _buses(case: ThreePhaseCase) -> list[str]:
    """Names of the buses in the order of their nodes."""
    return list(dict.fromkeys(map(str, case.node.bus)))


def _places(case: ThreePhaseCase) -> np.ndarray:
    """(3, buses) node of every phase of every bus, the number of nodes where there is none."""
    names = _buses(case)
    found = [[case.node_index.get(f"{bus}.{phase}", case.n_node) for bus in names] for phase in (1, 2, 3)]
    return np.array(found, np.int64)


def _network(case: ThreePhaseCase, settings: PhaseSettings, rows: Rows, dtype: np.dtype) -> dict[str, Any]:
    """Leaves of the network: places, rows that inject, and where the devices stand among them."""
    ratio = settings.max_load_ratio * settings.load_scale
    places = _places(case).reshape(-1)
    there = places < case.n_node
    place_of = np.zeros(case.n_node, np.int64)
    place_of[places[there]] = np.flatnonzero(there)
    ports = [(unit, *port) for unit, row in enumerate(rows) for port in _ports(case, row)]
    n_load = len(case.load)
    try:
        factors = prepare_threephase(
            case,
            ders=[port for _, port, _ in ports],
            movable_taps=False,
            load_factor=BASE_LOAD_FACTOR * ratio,
            dtype=dtype,
        )
    except BaseLoadError as err:
        raise SolverError(
            f"{case.name} has no power flow at {BASE_LOAD_FACTOR * ratio:g} times its nominal load. Lower "
            "max_load_ratio or load_scale."
        ) from err
    at_rows, at_places = np.zeros((len(rows), n_load + len(ports))), np.zeros((len(rows), len(places)))
    for k, (unit, port, weight) in enumerate(ports):
        at_rows[unit, n_load + k] = weight
        ends = (port,) if isinstance(port, str) else port
        for end in ends:
            at_places[unit, place_of[case.position(end)]] += weight / len(ends)
    load = np.concatenate([-nominal_phase_load(case), np.zeros(len(ports))])
    by_place = _load_of_places(case, place_of, len(places))
    buses = [unit for unit, row in enumerate(rows) if row[0] == "flexload"]
    flexible = (at_places[buses] > 0) @ by_place * case.base_mva
    leaves = {
        "grid": _phase_grid(case, settings, places, by_place, dtype),
        "factors": factors,
        "place_bus": at_places,
        "place_active": at_rows,
        "p_load": load.real,
        "q_load": load.imag,
        "load_ratio": ratio,
        "load_mw": load.real.sum() * case.base_mva,
        "peak_mw": ratio * load.real.sum() * case.base_mva,
        "voll": settings.voll,
    }
    if buses:
        leaves |= {"flex_p_mw": flexible.real, "flex_q_mvar": flexible.imag}
    return {k: v if k in ("grid", "factors") else jnp.asarray(v, dtype) for k, v in leaves.items()}


def _line_rates(case: ThreePhaseCase, settings: PhaseSettings) -> np.ndarray:
    """Rating (L,) [MVA] of the conductors of every line, 0 = none: those of the case at the base voltage."""
    if settings.rate_mva is not None:
        return np.full(len(case.line), settings.rate_mva)
    return case.line.rating_amp * case.node.base_kv[case.line.from_node.max(axis=1)] / 1e3


def _phase_grid(
    case: ThreePhaseCase, settings: PhaseSettings, places: np.ndarray, load: np.ndarray, dtype: np.dtype
) -> PhaseGrid:
    there = places < case.n_node
    carried = (case.line.from_node >= 0).T.reshape(-1) & np.tile(case.line.in_service, 3)
    rate = np.tile(_line_rates(case, settings), 3) / case.base_mva
    place = np.full(case.n_node + 1, 0)
    place[places[there]] = np.flatnonzero(there)

    def door(values: Any) -> Any:
        return jnp.asarray(values, dtype)

    def ends(nodes: np.ndarray) -> Any:
        return jnp.asarray(place[nodes].T.reshape(-1), jnp.int32)

    return PhaseGrid(
        base_mva=door(case.base_mva),
        p_load=door(load.real),
        q_load=door(load.imag),
        v_min=door(np.where(there, settings.v_min, 0.0)),
        v_max=door(np.where(there, settings.v_max, ANY_VOLTAGE_PU)),
        from_bus=ends(case.line.from_node),
        to_bus=ends(case.line.to_node),
        rate=door(np.where(carried, rate, 0.0)),
        bus_mask=jnp.asarray(there),
        branch_mask=jnp.asarray(carried),
        node=jnp.asarray(places, jnp.int32),
        whole_buses=jnp.asarray(case.three_phase_nodes[1], jnp.int32),
        vuf_max=door(settings.vuf_max),
    )


def _load_of_places(case: ThreePhaseCase, place_of: np.ndarray, n_place: int) -> np.ndarray:
    """(places,) complex [pu] nominal load; half of a load between two phases counts at either."""
    total = np.zeros(n_place, complex)
    for node, end, power in zip(case.load.node, case.load.end, -nominal_phase_load(case), strict=True):
        ends = [k for k in (node, end) if k != GROUND]
        for k in ends:
            total[place_of[k]] += power / len(ends)
    return total


def _ports(case: ThreePhaseCase, row: tuple[str, Any, dict[str, Any]]) -> list[tuple[str | tuple[str, str], float]]:
    """Terminals of a device, and its share of power at each.

    Raises ValueError for phases that are no letters of "abc", repeat, or have weights that do not sum to 1; CaseError
    for a phase that the bus does not have.
    """
    kind, bus, ratings = row
    phases = ratings.get("phases", PHASES)
    if not isinstance(phases, str):
        weights = tuple(float(w) for w in phases)
        if len(weights) != len(PHASES) or min(weights) < 0 or abs(sum(weights) - 1) > 1e-9:
            raise ValueError(f"{kind} at bus {bus}: phases = {phases} must be three weights from 0 that sum to 1.")
        return [(f"{bus}.{k + 1}", w) for k, w in enumerate(weights) if w]
    letters = phases.lower().replace("-", "")
    if not letters or len(set(letters)) < len(letters) or not set(letters) <= set(PHASES):
        raise ValueError(f"{kind} at bus {bus}: {unknown('phases', phases, ('a', 'b', 'c', 'ab', 'abc', 'a-b'))}")
    nodes = [f"{bus}.{PHASES.index(letter) + 1}" for letter in letters]
    if "-" not in phases:
        return [(node, 1 / len(nodes)) for node in nodes]
    if len(nodes) != 2:
        raise ValueError(f"{kind} at bus {bus}: phases = {phases!r}: a device lies between two phases, as in 'a-b'.")
    return [((nodes[0], nodes[1]), 1.0)]
