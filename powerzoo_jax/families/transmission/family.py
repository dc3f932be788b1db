"""Record of the transmission family: units that share a load, and a grid under one operator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base import Step
from powerzoo_jax.envs.batch import factors_shared
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.episode import Tally, Totals
from powerzoo_jax.envs.family import Family
from powerzoo_jax.envs.surface import TaskSurface
from powerzoo_jax.envs.trace.names import entry_ids, layout_action_ids
from powerzoo_jax.envs.trace.readings import Readings, dc_flow
from powerzoo_jax.families.transmission.names import NAMES
from powerzoo_jax.families.transmission.operator import TransGridEnv
from powerzoo_jax.families.transmission.tasks.series import DEMAND
from powerzoo_jax.families.transmission.tasks.units import STRESS
from powerzoo_jax.families.transmission.units_types import TransmissionFlow, TransmissionInfo

ROUNDED_MW = 1e-3  # what rounding makes of a branch at its rating, or of a reserve that is just met


def _read(sim: Sim, state: Any, action: Array, info: Any) -> Readings:
    del state, action
    return {**dc_flow(sim.params.grid, info.line_flow_mw), "unit_power_mw": info.unit_power_mw}


def _read_operator(sim: Sim, state: Any, action: Array, info: Any) -> Readings:
    del state, action
    found = {
        "branch_flow_mw": info.line_flow_mw,
        "branch_loading_mva": info.line_loading_mva,
        "unit_power_mw": info.unit_power_mw,
        "device_power_mw": info.p_mw if hasattr(sim.env, "layout") else None,
    }
    if sim.env.physics == "ac":
        found["bus_voltage_pu"] = info.vm_pu
    else:
        found |= dc_flow(sim.params.grid, info.line_flow_mw)
    if sim.env.solver_mode == "opf":
        found["bus_price_per_mwh"] = info.lmp
    return found


def _tally(state: Any, out: Step, params: Any, dt_hours: float) -> Tally:
    del params, dt_hours
    info: TransmissionInfo = out.info
    count = info.overload_mw.dtype
    switching = info.startup_cost_usd + info.shutdown_cost_usd
    return {
        "operating_cost_usd": info.gen_cost_usd + info.no_load_cost_usd + switching,
        "total_startup_cost": info.startup_cost_usd,
        "startups": jnp.sum(info.committed & ~state.units.on, dtype=count),
        "committed_units": jnp.sum(info.committed, dtype=count),
        "units": jnp.full((), info.committed.shape[0], count),
        "overload_mw": info.overload_mw,
        "overload_steps": (info.overload_mw > ROUNDED_MW).astype(count),
        "reserve_shortfall_steps": (info.reserve_shortfall_mw > ROUNDED_MW).astype(count),
    }


def _figures(sim: Sim, totals: Totals) -> Mapping[str, tuple[Any, Any]]:
    del sim
    return {"total_cost_usd": (-np.asarray(totals.terms).mean(axis=1).sum(axis=1), np.ones(len(totals.total)))}


def _beside_best(mean: float, best: float) -> Mapping[str, float]:
    return {"percent_above_oracle_cost": 100 * (mean / best - 1)} if best < 0 else {}


def _action_ids(sim: Sim) -> tuple[str, ...]:
    env = sim.env
    if env.single_agent:
        return tuple(f"unit_{k}.{entry}" for entry in ("on", "score") for k in range(env.dims.unit))
    entries = (("schedule" if env.schedule else "score"), "on")[: env.dims.act]
    return entry_ids(sim, [entries] * len(sim.spec.agents))


def _operator_action_ids(sim: Sim) -> tuple[str, ...]:
    if hasattr(sim.env, "layout") and not sim.env.layout.per_device:
        return layout_action_ids(sim)
    n_unit, width = sim.env.dims.unit, sim.env.dims.act
    switches = (f"switch_{k}.closed" for k in range(width - n_unit))
    return (*(f"unit_{k}.place" for k in range(n_unit)), *switches)


def _shares_factors(factors: Any) -> bool:
    return factors.fixed.ndim == 1 if isinstance(factors, TransmissionFlow) else factors_shared(factors)


def units_surface(sim: Sim) -> TaskSurface:
    """Scores, states or schedules of units that share a load."""
    env = sim.env
    shape = env.dims.agent, env.dims.act
    low = np.full(shape, -1.0 if env.single_agent else 0.0)
    high = np.ones(shape)
    if env.schedule:
        rules = sim.params.rules
        low[:, 0], high[:, 0] = np.asarray(rules.p_min_mw), np.asarray(rules.p_max_mw)
    return TaskSurface(low, high, (dict(sim.spec.overrides)["load_set"], DEMAND))


def _operator_surface(sim: Sim) -> TaskSurface:
    high = np.ones((sim.env.dims.agent, sim.env.dims.act))
    return TaskSurface(-high, high, (dict(sim.spec.overrides)["load_set"], DEMAND))


TRANSMISSION = Family(
    name="transmission",
    names=NAMES,
    read=_read,
    tally=_tally,
    figures=_figures,
    beside_best=_beside_best,
    action_ids=_action_ids,
    shares_factors=_shares_factors,
    loads_shared=True,
    splits=STRESS,
    surface=units_surface,
    unit_fields=("unit_power_mw", "committed"),
    dc_flow=lambda spec: dict(spec.overrides).get("physics", "dc") == "dc",
    environments={
        TransGridEnv: {
            "read": _read_operator,
            "tally": Family.tally,
            "figures": Family.figures,
            "beside_best": Family.beside_best,
            "action_ids": _operator_action_ids,
            "loads_shared": False,
            "surface": _operator_surface,
            "unit_fields": (),
        }
    },
)
