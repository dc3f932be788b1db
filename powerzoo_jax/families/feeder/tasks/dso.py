"""Builder of the task of a network operator: flexible loads in three zones of a feeder, one agent."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from powerzoo_jax.base import Dims, TaskSpec
from powerzoo_jax.base.errors import listing
from powerzoo_jax.base.numerics import resolve_dtype
from powerzoo_jax.base.ranges import Count, Finite, Label, NotNegative, Positive
from powerzoo_jax.cases import Case
from powerzoo_jax.data import load_dataset
from powerzoo_jax.devices import FlexLoadParams, flexload_params
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.observe import FieldTable
from powerzoo_jax.families.feeder.fields import flattened_table
from powerzoo_jax.families.feeder.tasks.build import FeederFleet, FeederTaskConfig, build_sim, feeder_case
from powerzoo_jax.families.feeder.tasks.catalog import variants_of
from powerzoo_jax.families.feeder.tasks.own_grid import fit_to_grid
from powerzoo_jax.families.feeder.tasks.series import Extra
from powerzoo_jax.families.feeder.tasks.settings import (
    FeederSettings,
    chosen_tightness,
    hashable,
    knows,
    merge_settings,
    own_series,
)
from powerzoo_jax.families.feeder.tasks.storage import FORECAST_HOURS
from powerzoo_jax.tasks.settings import agent_names

ZONES = (tuple(range(2, 19)), tuple(range(19, 23)), tuple(range(23, 34)))


@dataclass(frozen=True, kw_only=True)
class FlexKeywords:
    """Keywords of every task with flexible loads.

    shift_horizon:  steps over which deferred load returns
    curtail_cost_per_mwh, shift_cost_per_mwh: [$/MWh]
    """

    shift_horizon: Count = 4
    curtail_cost_per_mwh: NotNegative = 50.0
    shift_cost_per_mwh: NotNegative = 10.0


@dataclass(frozen=True, kw_only=True)
class DsoSettings(FlexKeywords, FeederSettings):
    """Keywords of the operator's task.

    flexload_config:      (id, bus, curtail_cap_mw, shift_cap_mw) of each flexible load
    feeder_shapes:        load signal of each zone, or load_column for all
    feeder_bus_map:       buses of each zone
    bus_load_scale_overrides: (bus, factor) on nominal loads
    preserve_feeder_totals: scale zones back to their sum
    loss_price:           [$/MWh] of losses (None: the market's price, at least 0)
    constraint_tightness: loose, standard or strict budgets
    """

    flexload_config: tuple[tuple[str, Label, Positive, Positive], ...] = ()
    feeder_shapes: tuple[str, ...] = ()
    feeder_bus_map: tuple[tuple[Label, ...], ...] = ZONES
    bus_load_scale_overrides: tuple[tuple[Label, Positive], ...] = ()
    preserve_feeder_totals: bool = False
    loss_price: Finite | None = None
    constraint_tightness: str = "standard"

    def idle(self) -> dict[str, str]:
        needs = "bus_load_scale_overrides"
        return super().idle() | ({} if self.bus_load_scale_overrides else {"preserve_feeder_totals": needs})


def flexload_stack(
    settings: FlexKeywords, curtail_mw: tuple[float, ...], shift_mw: tuple[float, ...], dtype: Any
) -> FlexLoadParams:
    """Flexible loads as the keywords describe them."""
    return flexload_params(
        len(curtail_mw),
        dtype,
        curtail_cap_mw=curtail_mw,
        shift_cap_mw=shift_mw,
        curtail_usd_per_mwh=settings.curtail_cost_per_mwh,
        shift_usd_per_mwh=settings.shift_cost_per_mwh,
    )


def build_dso(spec: TaskSpec, *, split: str, dims: Dims | None = None, dtype: Any = None, **overrides: Any) -> Sim:
    """Build a feeder whose operator sheds and defers load at some buses."""
    dtype = resolve_dtype(dtype)
    spec, overrides = own_series(spec, fit_to_grid(spec, hashable(overrides)))
    variants = variants_of(spec)
    shift = variants.shift(split)
    tight = chosen_tightness(spec, variants, overrides)
    settings = _resolved(spec, dict(tight.limits) | dict(shift.changes), overrides)
    # on record are the signals of the zones, which load_column may have named
    listed, overrides = ({k: v for k, v in x.items() if k != "load_column"} for x in (dict(spec.overrides), overrides))
    overrides |= {"feeder_shapes": settings.feeder_shapes}
    spec = dataclasses.replace(spec, overrides=tuple(listed.items()))
    ids, buses, curtail, move = zip(*settings.flexload_config, strict=True)
    fleet = FeederFleet(
        kinds=("flexload",) * len(ids),
        bus_ids=buses,
        stacks={"flexload": flexload_stack(settings, curtail, move, dtype)},
        return_steps=settings.shift_horizon,
    )

    def fields(case: Case) -> FieldTable:
        shown = FORECAST_HOURS if settings.price_forecast else None
        return flattened_table(case.bus.id.tolist(), case.n_branch, "flexload", ids, shown)

    plan = FeederTaskConfig(
        spec=dataclasses.replace(spec, agents=agent_names(spec, ("dso_0",)), cost_budget=tight.cost_budget),
        settings=settings,
        overrides=overrides,
        split="test" if split == "iid" else split,
        shift=shift,
        fleet=fleet,
        fields=fields,
        extra=Extra(shapes=settings.feeder_shapes[1:], price_floor=0.0, price_fixed=settings.loss_price),
        zones=settings.feeder_bus_map if len(settings.feeder_bus_map) > 1 else (),
    )
    return build_sim(plan, _scaled(feeder_case(spec, settings), settings), dims, dtype)


def _resolved(spec: TaskSpec, limits: dict[str, Any], overrides: dict[str, Any]) -> DsoSettings:
    """Settings whose first load signal is that of the first zone.

    Raises ValueError for a fleet without units, or zones and signals of different numbers.
    """
    settings = merge_settings(DsoSettings, spec, limits, overrides)
    shapes = settings.feeder_shapes
    if "feeder_shapes" in overrides and "load_column" in overrides:
        raise ValueError(f"{spec.id}: load_column is the signal of all zones, feeder_shapes of each. Give one of them.")
    own = not all(knows(load_dataset(settings.load_set), shape) for shape in shapes)
    one = len(settings.feeder_bus_map) == 1
    if "feeder_shapes" not in overrides and ("load_column" in overrides or own or one):
        shapes = (settings.load_column,) * len(settings.feeder_bus_map)
    if not settings.flexload_config:
        raise ValueError(f"{spec.id}: flexload_config is empty. Give (id, bus, curtail_cap_mw, shift_cap_mw) rows.")
    if len(shapes) != len(settings.feeder_bus_map):
        raise ValueError(
            f"{spec.id}: {len(shapes)} feeder_shapes for {len(settings.feeder_bus_map)} zones of feeder_bus_map. "
            "Give one signal for each zone."
        )
    return dataclasses.replace(settings, load_column=shapes[0], feeder_shapes=shapes)


def _scaled(case: Case, settings: DsoSettings) -> Case:
    """The case with nominal loads scaled bus by bus; ValueError for an unknown bus."""
    if not settings.bus_load_scale_overrides:
        return case
    factor = np.ones(case.n_bus)
    for bus, scale in settings.bus_load_scale_overrides:
        if bus not in case.bus_index:
            raise ValueError(f"bus_load_scale_overrides: {case.name} has no bus {bus}. Valid: {listing(case.bus.id)}.")
        factor[case.bus_index[bus]] = scale
    if settings.preserve_feeder_totals:
        for zone in settings.feeder_bus_map:
            at = case.positions(np.asarray(zone, np.int64))
            factor[at] *= case.p_load_mw[at].sum() / (factor[at] * case.p_load_mw[at]).sum()
    scale = factor[case.positions(case.load.bus_id)]
    load = dataclasses.replace(case.load, p_mw=case.load.p_mw * scale, q_mvar=case.load.q_mvar * scale)
    return dataclasses.replace(case, load=load)
