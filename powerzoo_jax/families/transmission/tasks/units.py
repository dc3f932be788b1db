"""The transmission tasks: settings, splits and stress, and the Sim they make."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from powerzoo_jax.base import Dims, TaskSpec, no_padding
from powerzoo_jax.base.errors import unknown
from powerzoo_jax.base.numerics import resolve_dtype
from powerzoo_jax.base.ranges import Label, NotNegative, Positive, Whole
from powerzoo_jax.cases import Case, load_case
from powerzoo_jax.cases.commitment import CASES as TABLED
from powerzoo_jax.cases.commitment import TECHNOLOGIES, commitment_table, from_technologies
from powerzoo_jax.cases.grid import to_grid
from powerzoo_jax.cases.topology import branch_positions
from powerzoo_jax.data import Series, list_splits, load_dataset
from powerzoo_jax.envs.constraint import N_MINUS_1
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.observe import FieldTable
from powerzoo_jax.families.transmission.names import COSTS, RESERVE, SWITCHING_TERMS, TERMS
from powerzoo_jax.families.transmission.tasks.catalog import MODES
from powerzoo_jax.families.transmission.tasks.series import LoadSeries, load_series, load_shares
from powerzoo_jax.families.transmission.units import TransmissionEnv, unit_fields
from powerzoo_jax.families.transmission.units_types import TransmissionBank, TransmissionFlow, TransmissionParams
from powerzoo_jax.opf.commit import RESERVE_SHARE, CommitmentRules, commitment_rules, table_rules
from powerzoo_jax.opf.offers import case_offers
from powerzoo_jax.powerflow.dc.network import DcNetwork, build_dc_network
from powerzoo_jax.powerflow.dc.outages import bridges, outage_factors
from powerzoo_jax.tasks.settings import (
    MINUTES_PER_HOUR,
    STANDARD,
    TIGHTNESS,
    Budgets,
    EpisodeSettings,
    agent_names,
    horizon_steps,
    recorded,
    refuse_names,
    refuse_padding,
    refuse_unknown_names,
    resolve_source,
    scaled_weights,
    step_minutes,
)

# Full load over the nominal one, where the task's own figure is not the sum of nominal loads; ours for the peak [MW].
PEAK_MW = {"pz_case5": 1530.0, "pz_case14": 362.6, "pz_case118": 7635.6}
PEAK_SHAPE = {"pz_case5": (0.0, 500.0, 600.0, 400.0, 0.0)}
OBS_MODES = (*MODES, "flattened")
ACTION_MODES = ("score", "direct")
STRESS = ("load_stress", "line_tightening")
ALIASES = {"iid": "test"}
UNTABLED_START_USD, UNTABLED_STOP_USD = 500.0, 200.0  # a unit without commitment data: switched at will, at a price


@dataclass(frozen=True, kw_only=True)
class TransmissionSettings(EpisodeSettings):
    """Keywords of the transmission tasks; the catalog and the caller override them.

    case:                   grid as `load_case` takes it (None: the spec's)
    lines_out:              positions of branches out of service, none of which may split the network
    action_mode:            "score" shares the load by scores, "direct" follows a schedule and lets the slack cover it
    obs_mode:               global, local, local_plus_forecast; flattened is one agent for all units
    forecast_horizon_steps: steps ahead that local_plus_forecast shows
    commitment:             units are switched on and off
    unit_technologies:      of `cases.commitment.TECHNOLOGIES`, one name a unit: their minimum times, ramps, least
                            outputs and costs of starting and running; empty takes the table of the case, if it has one
    reserve_share:          [-] of the load that running units must be able to deliver beyond it
    n_minus_1:              report a cost channel of that name, see `envs.security`
    constraint_tightness:   loose, standard or strict: budgets, and max_load_ratio where that is None
    load_ratios:            max_load_ratio of loose, standard and strict, where that is None
    budgets:                of an episode by channel: loose, standard, strict; empty keeps those of the spec
    max_load_ratio:         load = max_load_ratio * load_scale * peak * D(t) / D_ref
    peak_mw:                that peak (None: the case's own figure, else the sum of its nominal loads)
    load_scale, rating_scale: multiply loads and ratings
    stress_load:            what load_stress multiplies loads by
    wind_share, sun_share:  shares of wind and sun that the load is less by, each over its reference
    load_set:               series with demand (and wind and sun) in MW
    data_source:            the caller's file or series in the place of load_set
    voll, surplus_price:    [USD/MWh]
    reward_scale:           weight of the reward terms, in their proportions (None: the weights of the spec)
    """

    case: str | Path | Case | None = None
    lines_out: tuple[Label, ...] = ()
    action_mode: str = "score"
    obs_mode: str = "global"
    forecast_horizon_steps: Whole = 4
    commitment: bool = False
    unit_technologies: tuple[str, ...] = ()
    reserve_share: NotNegative = RESERVE_SHARE
    n_minus_1: bool = False
    constraint_tightness: str = "standard"
    load_ratios: tuple[Positive, Positive, Positive] = (0.70, 0.90, 0.98)
    budgets: Budgets = ()
    max_load_ratio: Positive | None = None
    peak_mw: Positive | None = None
    load_scale: Positive = 1.0
    rating_scale: Positive = 1.0
    stress_load: Positive = 1.08
    wind_share: NotNegative = 0.0
    sun_share: NotNegative = 0.0
    load_set: str | Path | Series = "fr_2017_2019"
    data_source: str | Path | Series | None = None
    voll: Positive = 10_000.0
    surplus_price: NotNegative = 500.0
    reward_scale: Positive | None = None

    def idle(self) -> dict[str, str]:
        fixed = self.max_load_ratio is not None
        return super().idle() | ({"load_ratios": "max_load_ratio=None"} if fixed else {})


def build_transmission(
    spec: TaskSpec, *, split: str, dims: Dims | None = None, dtype: Any = None, **overrides: Any
) -> Sim:
    """Build a transmission grid whose units share a load, with or without commitment.

    Raises ValueError for an unknown split or mode, and for `dims` other than the task's own.
    """
    dtype = resolve_dtype(dtype)
    overrides = {key: tuple(value) if isinstance(value, list) else value for key, value in overrides.items()}
    spec, overrides = resolve_source(spec, overrides, lambda source, _: {"load_set": source})
    settings = resolve_settings(spec, overrides)
    refuse_names(spec, "term_names", (*TERMS, *(SWITCHING_TERMS if settings.commitment else ())))
    refuse_unknown_names(spec, spec.term_names, (*COSTS, RESERVE))
    if settings.n_minus_1:
        spec = dataclasses.replace(
            spec, cost_names=(*spec.cost_names, N_MINUS_1), cost_budget=(*spec.cost_budget, math.inf)
        )
    split = ALIASES.get(split, split)
    source = load_dataset(settings.load_set)
    settings = _under_stress(split, settings, source)
    minutes, horizon = step_minutes(spec, settings), horizon_steps(spec, settings)
    ahead = settings.forecast_horizon_steps if settings.obs_mode == "local_plus_forecast" else 0
    series = load_series(
        source,
        "test" if split in STRESS else split,
        minutes,
        horizon,
        ahead,
        wind_share=settings.wind_share,
        sun_share=settings.sun_share,
        dates=settings.dates,
    )
    case = _without(load_case(spec.case if settings.case is None else settings.case), settings.lines_out)
    fields = unit_fields(
        case.n_branch,
        case.n_unit,
        local=settings.obs_mode in ("local", "local_plus_forecast"),
        n_forecast=ahead,
        commitment=settings.commitment,
    )
    own = _dims(case, settings, fields, spec)
    refuse_padding(spec.id, dims, own)
    weights = scaled_weights(spec.term_weights, settings.reward_scale)
    env = TransmissionEnv(
        dims=own,
        dt_hours=minutes / MINUTES_PER_HOUR,
        term_weights=weights,
        fields=fields,
        cost_names=spec.cost_names,
        commitment=settings.commitment,
        schedule=settings.action_mode == "direct",
        solver=settings.solver,
    )
    spec = dataclasses.replace(
        spec,
        case=case.name,
        split=split if series.split != "custom" else series.split,
        horizon=horizon,
        dt_hours=env.dt_hours,
        agents=agent_names(spec, ("tso_0",) if own.agent == 1 else tuple(f"unit_{i}" for i in range(own.agent))),
        cost_budget=chosen_budget(spec, settings.constraint_tightness, settings.budgets, overrides),
        term_weights=weights,
        overrides=recorded(spec, overrides),
    )
    return Sim(params=_params(case, settings, series, env, horizon, dtype), env=env, spec=spec)


def resolve_settings(spec: TaskSpec, overrides: dict[str, Any]) -> TransmissionSettings:
    """Merge defaults, catalog and caller; TypeError for an unknown keyword, naming the nearest."""
    settings = TransmissionSettings.merged(spec.id, dict(spec.overrides), overrides)
    choices = {"constraint_tightness": TIGHTNESS, "obs_mode": OBS_MODES, "action_mode": ACTION_MODES}
    settings.check(spec.id, choices)
    if not settings.commitment and (settings.unit_technologies or settings.reserve_share != RESERVE_SHARE):
        raise ValueError(f"{spec.id}: unit_technologies and reserve_share need commitment. Leave them out.")
    if settings.obs_mode == "flattened" and not settings.commitment:
        raise ValueError(f"{spec.id}: obs_mode = 'flattened' needs commitment. Choose global, or a task with it.")
    return settings


def _under_stress(split: str, settings: TransmissionSettings, source: Series) -> TransmissionSettings:
    """The settings that a split changes; a stress multiplies what the caller chose."""
    known = (*list_splits(source), *STRESS, *ALIASES)
    if split not in known:
        raise ValueError(unknown("split", split, known))
    if split == "load_stress":
        return dataclasses.replace(settings, load_scale=settings.load_scale * settings.stress_load)
    if split == "line_tightening":
        return dataclasses.replace(settings, rating_scale=settings.rating_scale * 0.85)
    return settings


def _without(case: Case, lines: tuple[int, ...]) -> Case:
    """The case with branches taken out of service one after the other; ValueError for one that splits the network."""
    on = case.branch.in_service.copy()
    f, t = branch_positions(case)
    for line in lines:
        if not 0 <= line < case.n_branch:
            raise ValueError(f"{case.name}: lines_out names branch {line}. Give positions of 0 to {case.n_branch - 1}.")
        if bridges(case.n_bus, f, t, on)[line]:
            ends = f"{case.branch.from_id[line]}-{case.branch.to_id[line]}"
            raise ValueError(
                f"{case.name}: without branch {line} ({ends}) the network falls apart. Leave it in service."
            )
        on[line] = False
    return dataclasses.replace(case, branch=dataclasses.replace(case.branch, in_service=on))


def budget_at(tightness: str, budgets: Budgets, cost_names: tuple[str, ...]) -> tuple[float, ...]:
    """Budget of every channel at a tightness; a channel without one is reported only."""
    place, listed = TIGHTNESS.index(tightness), dict(budgets)
    return tuple(listed[name][place] if name in listed else math.inf for name in cost_names)


def chosen_budget(spec: TaskSpec, tightness: str, budgets: Budgets, overrides: Mapping[str, Any]) -> tuple[float, ...]:
    """Budgets of the caller or of a tightness; standard ones are those of the spec.

    Raises ValueError where the spec gives two budgets of a channel.
    """
    listed = budget_at(tightness, budgets, spec.cost_names)
    if "budgets" in overrides or not budgets:
        return listed if budgets else spec.cost_budget
    if budget_at(STANDARD, budgets, spec.cost_names) != spec.cost_budget:
        raise ValueError(
            f"{spec.id}: cost_budget and the standard budgets of the keyword budgets differ. Give the same in both, or "
            "leave budgets out of overrides."
        )
    return listed


def outage_moves(case: Case, network: DcNetwork) -> np.ndarray:
    """Share of a lost branch (row) that each flow takes over, (L, L); 0 where the loss would split the network."""
    lodf, unsafe = outage_factors(case, network)
    lost = case.branch.in_service & ~unsafe
    return np.where(lost[:, None], lodf.T, 0.0)


def _dims(case: Case, settings: TransmissionSettings, fields: FieldTable, spec: TaskSpec) -> Dims:
    n_unit, one = case.n_unit, settings.obs_mode == "flattened"
    return Dims(
        bus=case.n_bus,
        branch=case.n_branch,
        unit=n_unit,
        agent=1 if one else n_unit,
        obs=fields.size,
        act=2 * n_unit if one else 1 + settings.commitment,
        choice=(2 * n_unit if one else 2) if settings.commitment else 0,
        cost=len(spec.cost_names),
        term=len(spec.term_names),
    )


def _rules(case: Case, settings: TransmissionSettings, dt_hours: float, dtype: np.dtype) -> CommitmentRules:
    unit = case.unit
    if settings.unit_technologies:
        table = from_technologies(_classes(case, settings.unit_technologies), unit.p_max_mw)
        return table_rules(table, dt_hours, available=unit.in_service, dtype=dtype)
    if settings.commitment and case.name in TABLED:
        return table_rules(commitment_table(case), dt_hours, available=unit.in_service, dtype=dtype)
    start, stop = (UNTABLED_START_USD, UNTABLED_STOP_USD) if settings.commitment else (0.0, 0.0)
    return commitment_rules(
        unit.p_min_mw, unit.p_max_mw, startup_usd=start, shutdown_usd=stop, available=unit.in_service, dtype=dtype
    )


def _classes(case: Case, names: tuple[str, ...]) -> np.ndarray:
    """Index into TECHNOLOGIES of every unit, (G,); ValueError for an unknown name, or too few or many of them."""
    known = [technology.name for technology in TECHNOLOGIES]
    if len(names) != case.n_unit:
        raise ValueError(
            f"{case.name}: unit_technologies names {len(names)} of {case.n_unit} units. Give one for each, of "
            f"{', '.join(known)}."
        )
    for name in names:
        if name not in known:
            raise ValueError(f"{case.name}: {unknown('technology', name, known)}")
    return np.array([known.index(name) for name in names], np.int64)


def _params(
    case: Case,
    settings: TransmissionSettings,
    series: LoadSeries,
    env: TransmissionEnv,
    horizon: int,
    dtype: np.dtype,
) -> TransmissionParams:
    dims, network = env.dims, build_dc_network(case)
    at = case.positions(case.unit.bus_id)
    nominal = np.asarray(PEAK_SHAPE.get(case.name, case.p_load_mw), np.float64)
    share = load_shares(case, nominal)
    peak = PEAK_MW.get(case.name, case.p_load_mw.sum()) if settings.peak_mw is None else settings.peak_mw
    ratio = settings.max_load_ratio
    if ratio is None:
        ratio = settings.load_ratios[TIGHTNESS.index(settings.constraint_tightness)]
    ends = np.stack([case.branch.from_id, case.branch.to_id])
    touches = (ends[:, None, :] == case.unit.bus_id[None, :, None]).any(0)

    def door(values: Any) -> Any:
        return jnp.asarray(values, dtype)

    return TransmissionParams(
        grid=to_grid(case, dtype, v_min=0.95, v_max=1.05),
        factors=TransmissionFlow(
            of_unit=door(network.ptdf[:, at]),
            of_load=door(network.ptdf @ share),
            fixed=door(network.flow_0 * case.base_mva),
            move=door(outage_moves(case, network)) if settings.n_minus_1 else None,
        ),
        masks=no_padding(dims),
        horizon=jnp.asarray(horizon, jnp.int32),
        bank=TransmissionBank(load_rows=door(series.rows)),
        rate_mw=door(np.where(case.branch.in_service, case.branch.rate_a_mva * settings.rating_scale, 0.0)),
        rules=_rules(case, settings, env.dt_hours, dtype),
        offers=case_offers(case, dtype),
        slack=jnp.asarray(np.isin(at, case.slack_bus) & case.unit.in_service),
        full_load_mw=door(ratio * settings.load_scale * peak),
        shunt_mw=door(case.bus.gs_mw.sum()),
        peak_load_mw=door(peak * ratio),
        unit_share=door(share[at] / share.max()),
        adjacent=door(touches),
        voll=door(settings.voll),
        surplus_price=door(settings.surplus_price),
        reserve_share=None if settings.reserve_share == RESERVE_SHARE else door(settings.reserve_share),
        starts=series.starts(),
    )
