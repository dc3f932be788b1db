"""A transmission grid under one operator as a Sim, in DC or AC, by optimal power flow or by schedule."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from powerzoo_jax.base import Dims, TaskSpec, no_padding
from powerzoo_jax.base.errors import BaseLoadError, listing, unknown
from powerzoo_jax.base.numerics import resolve_dtype
from powerzoo_jax.base.ranges import Count, Label, NotNegative, Positive
from powerzoo_jax.cases import Case, load_case
from powerzoo_jax.cases.grid import to_grid
from powerzoo_jax.data import Series, list_splits, load_dataset
from powerzoo_jax.envs.constraint import N_MINUS_1
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.families.transmission.names import COSTS, REACTIVE_SHORTFALL, TERMS
from powerzoo_jax.families.transmission.operator import TransGridEnv, operator_fields
from powerzoo_jax.families.transmission.operator_types import (
    GridBank,
    GridFactors,
    ReactiveRanges,
    Switches,
    TransGridParams,
)
from powerzoo_jax.families.transmission.tasks.series import LoadSeries, load_series, load_shares
from powerzoo_jax.families.transmission.tasks.units import PEAK_MW, PEAK_SHAPE, outage_moves
from powerzoo_jax.opf.ac.factors import prepare_ac_opf
from powerzoo_jax.opf.commit import commitment_rules
from powerzoo_jax.opf.dc.factors import prepare_dc_opf
from powerzoo_jax.opf.offers import case_offers
from powerzoo_jax.powerflow import MeshedFactors, prepare_loops, prepare_meshed, prepare_reactive
from powerzoo_jax.powerflow.dc.network import DcNetwork, build_dc_network
from powerzoo_jax.tasks.settings import MINUTES_PER_DAY, MINUTES_PER_HOUR, TaskSettings, Voltage

MIDDLE = 0.6  # of the full load
PHYSICS, SOLVER_MODES = ("dc", "ac"), ("opf", "pf")
MEDIUM = "medium"
DIFFICULTIES = {"easy": (0.70, 60), MEDIUM: (0.90, 30), "hard": (0.95, 15)}  # load ratio, minutes of a step


@dataclass(frozen=True, kw_only=True)
class GridDaySettings(TaskSettings):
    """Keywords of a day on a transmission grid that no task spec describes.

    difficulty:        easy, medium or hard: max_load_ratio and delta_t_minutes where those are None; None is medium
    load_scale:        multiplies the loads
    load_set:          series with demand in MW
    max_episode_steps: None takes a day
    """

    difficulty: str | None = None
    max_load_ratio: Positive | None = None
    load_scale: Positive = 1.0
    load_set: str | Path | Series = "fr_2017_2019"
    max_episode_steps: Count | None = None

    @property
    def load_ratio(self) -> float:
        """Full load over the peak of the case."""
        return DIFFICULTIES[self.difficulty or MEDIUM][0] if self.max_load_ratio is None else self.max_load_ratio

    @property
    def minutes(self) -> int:
        """Length of a step."""
        return DIFFICULTIES[self.difficulty or MEDIUM][1] if self.delta_t_minutes is None else self.delta_t_minutes

    @property
    def horizon(self) -> int:
        """Steps of an episode."""
        return MINUTES_PER_DAY // self.minutes if self.max_episode_steps is None else self.max_episode_steps

    def series(self, split: str) -> LoadSeries:
        """Loads of a split, or of the dates. Raises ValueError for an unknown split, naming the nearest."""
        data = load_dataset(self.load_set)
        known = list_splits(data)
        if split not in known:
            raise ValueError(unknown("split", split, known))
        return load_series(data, split, self.minutes, self.horizon, 0, dates=self.dates)


@dataclass(frozen=True, kw_only=True)
class TransGridSettings(GridDaySettings):
    """Keywords of a transmission grid under one operator.

    physics:           "dc" or "ac";  solver_mode: "opf" or "pf", see `families.transmission.operator`
    rating_scale:      multiplies the ratings
    v_min, v_max:      [pu] band of all buses in AC (None: the case's limits)
    enforce_q_lim:     in AC the power flow keeps units within their reactive limits, and the channel
                       reactive_shortfall says what it cannot keep (the AC optimum keeps them in any case)
    n_minus_1:         report the cost channel n_minus_1 (DC)
    switch_lines:      positions of branches that the operator opens and closes (DC)
    voll, surplus_price: [USD/MWh];  reward_scale: of the money of a step
    """

    physics: str = "dc"
    solver_mode: str = "opf"
    rating_scale: Positive = 1.0
    v_min: Voltage | None = None
    v_max: Voltage | None = None
    enforce_q_lim: bool = True
    n_minus_1: bool = False
    switch_lines: tuple[Label, ...] = ()
    voll: Positive = 10_000.0
    surplus_price: NotNegative = 500.0
    reward_scale: Positive = 0.01


def make_transgrid(
    case: str | Path | Case = "pz_case5", *, split: str = "train", dtype: Any = None, **keywords: Any
) -> Sim:
    """Build a transmission grid under one operator; keywords are the fields of `TransGridSettings`.

    Raises TypeError for an unknown keyword, ValueError for an unknown split or mode and for options that exclude each
    other; each names the valid ones.

    Example:
        sim = make_transgrid("pz_case5", physics="ac", solver_mode="pf", split="test")
        state, obs = sim.init(jax.random.key(0))
        state, obs, reward, cost, info = sim.step(state, jnp.zeros((1, 5)))
    """
    dtype = resolve_dtype(dtype)
    settings = _resolved({k: tuple(v) if isinstance(v, list) else v for k, v in keywords.items()})
    series = settings.series(split)
    network_case = load_case(case)
    # names of the cost channels
    within = settings.physics == "ac" and settings.enforce_q_lim
    names = COSTS + (REACTIVE_SHORTFALL,) * within + (N_MINUS_1,) * settings.n_minus_1
    lines = settings.switch_lines
    fields = operator_fields(network_case.n_branch, network_case.bus.id.tolist(), network_case.n_unit, lines)
    n_switch = len(lines)
    dims = Dims(
        bus=network_case.n_bus,
        branch=network_case.n_branch,
        unit=network_case.n_unit,
        agent=1,
        obs=fields.size,
        act=network_case.n_unit + n_switch,
        choice=2 * n_switch,
        cost=len(names),
        term=len(TERMS),
    )
    env = TransGridEnv(
        dims=dims,
        dt_hours=settings.minutes / MINUTES_PER_HOUR,
        term_weights=(settings.reward_scale,) * len(TERMS),
        fields=fields,
        cost_names=names,
        physics=settings.physics,
        solver_mode=settings.solver_mode,
        n_switch=n_switch,
        solver=settings.solver,
    )
    spec = TaskSpec(
        id="transgrid",
        version=0,
        family="transmission",
        case=network_case.name,
        horizon=settings.horizon,
        dt_hours=env.dt_hours,
        split=series.split,
        agents=("operator_0",),
        cost_names=names,
        cost_budget=(math.inf,) * len(names),
        term_names=TERMS,
        term_weights=env.term_weights,
        overrides=tuple(sorted(({"load_set": settings.load_set} | keywords).items())),
    )
    return Sim(params=_params(network_case, settings, series, env, dtype), env=env, spec=spec)


def _resolved(keywords: dict[str, Any]) -> TransGridSettings:
    given = TransGridSettings.merged("transgrid", keywords)
    choices = {"physics": PHYSICS, "solver_mode": SOLVER_MODES, "difficulty": (None, *DIFFICULTIES)}
    given.check("transgrid", choices)
    if given.physics == "ac" and (given.n_minus_1 or given.switch_lines):
        raise ValueError("transgrid: n_minus_1 and switch_lines use distribution factors. Choose physics='dc'.")
    if given.n_minus_1 and given.switch_lines:
        raise ValueError("transgrid: n_minus_1 screens a fixed network. Leave out switch_lines, or n_minus_1.")
    return given


def clock_bank(series: LoadSeries, minutes: int, dtype: np.dtype) -> np.ndarray:
    """Columns (T, n) [-] of `GridBank`; the running sum in two floats, for that of three years fills one."""
    per_day = MINUTES_PER_DAY // minutes
    factor = series.rows[:, 0]
    ahead = np.concatenate([[0.0], np.cumsum(np.maximum(factor[:-1], 0.0))])  # what feeds back cannot go unserved
    high = ahead.astype(dtype).astype(np.float64)
    angle = 2 * np.pi * (np.arange(len(factor)) % per_day) / per_day
    return np.column_stack([factor, np.sin(angle), np.cos(angle), high, ahead - high])


def _reactive_share(case: Case, share: np.ndarray) -> np.ndarray:
    """Reactive load of each bus per MW of the whole load: the power factor of the bus, or its share of nominal load."""
    p, q = case.p_load_mw, case.q_load_mvar
    return np.where(p != 0, share * q / np.where(p != 0, p, 1), q / p.sum())


def _switches(case: Case, network: DcNetwork, lines: tuple[int, ...], dtype: np.dtype) -> Switches:
    loops = prepare_loops(case, switches=lines)
    off = [line for line in lines if not case.branch.in_service[line]]
    if off:
        raise ValueError(f"{case.name}: branch {listing(off)} is out of service and cannot be switched.")
    across = network.ptdf @ network.incidence[list(lines)].T
    return Switches(loops=loops, across=jnp.asarray(across, dtype))


def _at_load(case: Case, load_mw: float) -> Case:
    """The case with its units at the same place of their range, serving that load: the chord starts from there."""
    unit, load = case.unit, case.load
    room = (unit.p_max_mw - unit.p_min_mw) * unit.in_service
    place = np.clip((load_mw - (unit.p_min_mw * unit.in_service).sum()) / room.sum(), 0, 1)
    level = load_mw / load.p_mw.sum()
    return dataclasses.replace(
        case,
        unit=dataclasses.replace(unit, p_mw=unit.p_min_mw + place * room),
        load=dataclasses.replace(load, p_mw=level * load.p_mw, q_mvar=level * load.q_mvar),
    )


def _meshed(case: Case, full_load_mw: float, dtype: np.dtype) -> MeshedFactors:
    """Meshed factors at the middle of the demand range, or at the state of the tables where that has no power flow."""
    try:
        return prepare_meshed(_at_load(case, MIDDLE * full_load_mw), schedules=True, dtype=dtype)
    except BaseLoadError:
        return prepare_meshed(case, schedules=True, dtype=dtype)


def _reactive_ranges(case: Case, meshed: MeshedFactors, dtype: np.dtype) -> ReactiveRanges:
    unit = case.unit
    at_slack = np.isin(case.positions(unit.bus_id), case.slack_bus) & unit.in_service
    low, high = (x[at_slack].sum() / case.base_mva for x in (unit.q_min_mvar, unit.q_max_mvar))
    return ReactiveRanges(
        pv=prepare_reactive(case, meshed),
        slack_q_min=jnp.asarray(low, dtype),
        slack_q_max=jnp.asarray(high, dtype),
    )


def _factors(
    case: Case, settings: TransGridSettings, network: DcNetwork, full_load_mw: float, dtype: np.dtype
) -> GridFactors:
    rate = np.where(case.branch.in_service, case.branch.rate_a_mva * settings.rating_scale, 0.0)
    ac, opf = settings.physics == "ac", settings.solver_mode == "opf"
    meshed = _meshed(case, full_load_mw, dtype) if ac and not opf else None
    return GridFactors(
        dc=prepare_dc_opf(case, rate_mva=rate, dtype=dtype),
        meshed=meshed,
        reactive=_reactive_ranges(case, meshed, dtype) if meshed is not None and settings.enforce_q_lim else None,
        ac=prepare_ac_opf(case, rate_mva=rate, dtype=dtype) if ac and opf else None,
        switches=_switches(case, network, settings.switch_lines, dtype) if settings.switch_lines else None,
        move=jnp.asarray(outage_moves(case, network), dtype) if settings.n_minus_1 else None,
    )


def _params(
    case: Case, settings: TransGridSettings, series: LoadSeries, env: TransGridEnv, dtype: np.dtype
) -> TransGridParams:
    unit, network = case.unit, build_dc_network(case)
    nominal = np.asarray(PEAK_SHAPE.get(case.name, case.p_load_mw), np.float64)
    share = load_shares(case, nominal)
    peak = PEAK_MW.get(case.name, case.p_load_mw.sum())
    full_load = settings.load_ratio * settings.load_scale * peak

    def door(values: Any) -> Any:
        return jnp.asarray(values, dtype)

    return TransGridParams(
        grid=to_grid(case, dtype, v_min=settings.v_min, v_max=settings.v_max),
        factors=_factors(case, settings, network, full_load, dtype),
        masks=no_padding(env.dims),
        horizon=jnp.asarray(settings.horizon, jnp.int32),
        bank=GridBank(load_rows=door(clock_bank(series, settings.minutes, dtype))),
        rules=commitment_rules(unit.p_min_mw, unit.p_max_mw, available=unit.in_service, dtype=dtype),
        offers=case_offers(case, dtype),
        slack=jnp.asarray(np.isin(case.positions(unit.bus_id), case.slack_bus) & unit.in_service),
        slack_bus=jnp.asarray(case.slack_bus[0], jnp.int32),
        bus_id=jnp.asarray(case.bus.id, jnp.int32),
        load_share=door(share),
        reactive_share=door(_reactive_share(case, share)),
        full_load_mw=door(full_load),
        shunt_mw=door(case.bus.gs_mw.sum()),
        peak_load_mw=door(peak),
        voll=door(settings.voll),
        surplus_price=door(settings.surplus_price),
        starts=series.starts(),
    )
