"""The joint task of two network operators: settings, and the Sim made of a transmission and a feeder task."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base import Dims, TaskSpec, no_padding
from powerzoo_jax.base.errors import listing
from powerzoo_jax.base.numerics import resolve_dtype
from powerzoo_jax.base.ranges import Count, Label, NotNegative, Positive
from powerzoo_jax.cases import Case, load_case
from powerzoo_jax.data import Series
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.series import SeriesBank
from powerzoo_jax.families.feeder.tasks.catalog import MARL_DER_ARBITRAGE
from powerzoo_jax.families.feeder.tasks.storage import StorageKeywords, build_der
from powerzoo_jax.families.joint.catalog import MODES
from powerzoo_jax.families.joint.env import JointEnv, JointFactors, JointParams, joint_fields
from powerzoo_jax.families.joint.names import COSTS, SETTLEMENT, TERMS
from powerzoo_jax.families.transmission.tasks.catalog import MARL_OPF
from powerzoo_jax.families.transmission.tasks.series import DEMAND, load_shares
from powerzoo_jax.families.transmission.tasks.units import (
    ACTION_MODES,
    PEAK_SHAPE,
    build_transmission,
    chosen_budget,
)
from powerzoo_jax.opf.dc.factors import prepare_dc_opf
from powerzoo_jax.powerflow.dc.network import build_dc_network
from powerzoo_jax.tasks.settings import (
    TIGHTNESS,
    Budgets,
    EpisodeSettings,
    Voltage,
    agent_names,
    recorded,
    refuse_names,
    refuse_padding,
    scaled_weights,
)
from powerzoo_jax.tasks.spec import Variants

PRICE_SCALE = 100.0  # [USD/MWh] that observed prices are relative to


@dataclass(frozen=True, kw_only=True)
class JointSettings(StorageKeywords, EpisodeSettings):
    """Keywords of the joint tasks; the catalog and the caller override them.

    trans_case, dist_case:   grids as `load_case` takes them (None: the spec's; case33bw)
    feeder_bus_ids:          buses of the transmission grid, one entry a feeder; a bus may carry several
    feeder_scale:            alike feeders that each of them stands for
    trans_load_ratio:        load of the transmission grid over its peak (None: by the tightness)
    dist_load_ratio:         load of a feeder over its nominal one; both follow the demand of one series
    trans_action_mode:       "score" or "direct", as in the tasks without feeders
    rating_scale:            of the lines of the transmission grid
    obs_mode:                global shows the line flows to all, local to nobody
    num_batteries:           how many of battery_bus_ids each feeder has; batteries as in the feeder tasks
    v_min, v_max:            [pu] band of the feeders
    constraint_tightness:    loose, standard or strict: budgets, and trans_load_ratio where that is None
    budgets:                 of an episode by channel: loose, standard, strict; empty keeps those of the spec
    load_set:                series with demand in MW
    reward_type:             "shared", there is no other
    voll, surplus_price:     [USD/MWh]
    reward_scale:            weight of the reward terms, in their proportions (None: the weights of the spec)
    stored_usd_per_mwh:      [USD/MWh] price, known to all, at which stored energy settles at the end, as a reward term
                             settlement; None settles nothing
    """

    trans_case: str | Path | Case | None = None
    dist_case: str | Path | Case = "case33bw"
    feeder_bus_ids: tuple[Label, ...] = (3,)
    feeder_scale: Positive = 10.0
    trans_load_ratio: Positive | None = None
    dist_load_ratio: Positive = 0.9
    trans_action_mode: str = "score"
    rating_scale: Positive = 1.0
    obs_mode: str = "global"
    num_batteries: Count = 3
    battery_bus_ids: tuple[Label, ...] = (6, 12, 18, 24, 30)
    v_min: Voltage = 0.94
    v_max: Voltage = 1.06
    constraint_tightness: str = "standard"
    budgets: Budgets = ()
    load_set: str | Path | Series = "fr_2017_2019"
    reward_type: str = "shared"
    voll: Positive = 10_000.0
    surplus_price: NotNegative = 500.0
    reward_scale: Positive | None = None
    stored_usd_per_mwh: NotNegative | None = None


FEEDER = (*(f.name for f in dataclasses.fields(StorageKeywords)), "num_batteries", "v_min", "v_max")
UPPER = ("rating_scale", "surplus_price", "constraint_tightness")
BOTH = ("load_set", "start_date", "end_date", "voll", "max_steps", "delta_t_minutes", "solver")


def build_joint(spec: TaskSpec, *, split: str, dims: Dims | None = None, dtype: Any = None, **overrides: Any) -> Sim:
    """Build a transmission grid with feeders and their batteries below some of its buses.

    Raises ValueError for an unknown split or mode, for a bus without enough load, and for `dims` other than the
    task's own.
    """
    dtype = resolve_dtype(dtype)
    overrides = {key: tuple(value) if isinstance(value, list) else value for key, value in overrides.items()}
    settings = resolve_settings(spec, overrides)
    case = load_case(spec.case if settings.trans_case is None else settings.trans_case)
    settings = dataclasses.replace(settings, trans_case=case)  # both read it
    spec = _settling(spec, settings.stored_usd_per_mwh is not None)
    refuse_names(spec, "cost_names", COSTS)
    Variants().shift(split)
    upper, lower = _upper(spec, settings, split, dtype), _lower(spec, settings, split, dtype)
    n_feeder, n_battery = len(settings.feeder_bus_ids), lower.env.dims.unit
    fields = joint_fields(upper.env.dims.branch if settings.obs_mode == "global" else 0)
    unit = upper.env.dims.unit + n_feeder * n_battery
    own = dataclasses.replace(
        upper.env.dims,
        unit=unit,
        agent=unit,
        obs=fields.size,
        cost=len(spec.cost_names),
        term=len(spec.term_names),
    )
    refuse_padding(spec.id, dims, own)
    env = JointEnv(
        dims=own,
        dt_hours=upper.env.dt_hours,
        term_weights=scaled_weights(spec.term_weights, settings.reward_scale),
        fields=fields,
        transmission=upper.env,
        feeder=dataclasses.replace(lower.env, pooling="sum"),
        n_feeder=n_feeder,
        term_names=spec.term_names,
        solver=settings.solver,
    )
    spec = dataclasses.replace(
        spec,
        case=case.name,
        split=upper.spec.split,
        horizon=upper.spec.horizon,
        dt_hours=env.dt_hours,
        agents=agent_names(spec, _agents(upper.env.dims.unit, n_feeder, n_battery)),
        cost_budget=chosen_budget(spec, settings.constraint_tightness, settings.budgets, overrides),
        term_weights=env.term_weights,
        overrides=recorded(spec, overrides),
    )
    return Sim(params=_params(case, settings, upper.params, lower.params, env, dtype), env=env, spec=spec)


def _settling(spec: TaskSpec, settles: bool) -> TaskSpec:
    """The spec with the term settlement where stored energy settles, weighted as the first term unless it says how."""
    refuse_names(spec, "term_names", (*TERMS, SETTLEMENT) if SETTLEMENT in spec.term_names else TERMS)
    weights = (*spec.term_weights, spec.term_weights[0])
    names = (*TERMS, SETTLEMENT) if settles else TERMS
    return dataclasses.replace(spec, term_names=names, term_weights=weights[: len(names)])


def resolve_settings(spec: TaskSpec, overrides: dict[str, Any]) -> JointSettings:
    """Merge defaults, catalog and caller; TypeError for an unknown keyword, naming the nearest.

    What belongs to one level alone is judged by the builder of that level.
    """
    settings = JointSettings.merged(spec.id, dict(spec.overrides), overrides)
    choices = {
        "constraint_tightness": TIGHTNESS,
        "obs_mode": MODES,
        "trans_action_mode": ACTION_MODES,
        "reward_type": ("shared",),
    }
    settings.check(spec.id, choices)
    if not settings.feeder_bus_ids:
        raise ValueError(f"{spec.id}: feeder_bus_ids is empty. Name at least one bus.")
    return settings


def _upper(spec: TaskSpec, settings: JointSettings, split: str, dtype: np.dtype) -> Sim:
    """The transmission task alone."""
    given = {name: getattr(settings, name) for name in (*UPPER, *BOTH)}
    alone = dataclasses.replace(MARL_OPF, id=spec.id, case=spec.case, horizon=spec.horizon, dt_hours=spec.dt_hours)
    return build_transmission(
        alone,
        split=split,
        dtype=dtype,
        case=settings.trans_case,
        max_load_ratio=settings.trans_load_ratio,
        action_mode=settings.trans_action_mode,
        **given,
    )


def _lower(spec: TaskSpec, settings: JointSettings, split: str, dtype: np.dtype) -> Sim:
    """The feeder task alone, with the demand of the transmission grid and without a price of its own."""
    given = {name: getattr(settings, name) for name in (*FEEDER, *BOTH)}
    names = ("degradation", "unserved_energy")
    grid: dict[str, Any] = {"case": settings.dist_case}  # the task's own, so that nothing is fitted to another
    alone = dataclasses.replace(
        MARL_DER_ARBITRAGE,
        id=spec.id,
        **grid,
        horizon=spec.horizon,
        dt_hours=spec.dt_hours,
        term_names=names,
        term_weights=(1.0,) * len(names),
    )
    return build_der(
        alone,
        split=split,
        dtype=dtype,
        max_load_ratio=settings.dist_load_ratio,
        load_column=DEMAND,
        obs_mode="local",
        settlement_price=False,
        **given,
    )


def _agents(n_unit: int, n_feeder: int, n_battery: int) -> tuple[str, ...]:
    units = tuple(f"unit_{i}" for i in range(n_unit))
    if n_feeder == 1:
        return units + tuple(f"bat_{k}" for k in range(n_battery))
    return units + tuple(f"bat_{i}_{k}" for i in range(n_feeder) for k in range(n_battery))


def _params(case: Case, settings: JointSettings, upper: Any, lower: Any, env: JointEnv, dtype: np.dtype) -> JointParams:
    network = build_dc_network(case)
    at = case.positions(np.asarray(settings.feeder_bus_ids, np.int64))
    boundary, hung = np.unique(at, return_inverse=True)
    shape = np.asarray(PEAK_SHAPE.get(case.name, case.p_load_mw), np.float64)
    share = load_shares(case, shape)
    each = settings.feeder_scale * float(lower.load_ratio * lower.load_mw)
    _refuse_overdrawn(case, each, np.bincount(hung), float(upper.full_load_mw) * share[boundary], boundary)
    n_battery = env.feeder.dims.unit
    agent_bus = np.concatenate([case.positions(case.unit.bus_id), np.repeat(at, n_battery)])

    def door(values: Any) -> Array:
        return jnp.asarray(values, dtype)

    return JointParams(
        grid=upper.grid,
        factors=JointFactors(
            flow=upper.factors,
            of_bus=door(network.ptdf[:, boundary]),
            feeder=lower.factors,
            market=prepare_dc_opf(case, dtype=dtype),
        ),
        masks=no_padding(env.dims),
        horizon=upper.horizon,
        # the feeders are paid no price of their own
        bank=SeriesBank(load_rows=lower.bank.load_rows, price_rows=jnp.zeros_like(lower.bank.price_rows)),
        transmission=dataclasses.replace(upper, bank=None, factors=None),
        feeder=dataclasses.replace(lower, bank=None, factors=None),
        load_share=door(share),
        boundary_bus=jnp.asarray(boundary, jnp.int32),
        feeder_bus=jnp.asarray(hung, jnp.int32),
        feeder_scale=door(settings.feeder_scale),
        agent_bus=jnp.asarray(agent_bus, jnp.int32),
        voll=upper.voll,
        price_scale=door(PRICE_SCALE),
        stored_per_mwh=None if settings.stored_usd_per_mwh is None else door(settings.stored_usd_per_mwh),
        starts=upper.starts,
    )


def _refuse_overdrawn(
    case: Case, each_mw: float, count: np.ndarray, available_mw: np.ndarray, boundary: np.ndarray
) -> None:
    """Feeders replace load of their bus, so there must be as much; both follow one series, so one look is enough."""
    short = count * each_mw > available_mw
    if short.any():
        raise ValueError(
            f"{case.name}: bus {listing(case.bus.id[boundary[short]])} has less load than its feeders. Hang fewer from "
            "it, or lower feeder_scale or dist_load_ratio."
        )
