"""Record of the operation family: what traces and scores ask of a grid operated by its topology."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from powerzoo_jax.base import Step
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.episode import Tally
from powerzoo_jax.envs.family import Family
from powerzoo_jax.envs.trace.readings import Readings, flow_of
from powerzoo_jax.families.operation.names import NAMES
from powerzoo_jax.families.operation.types import OperationInfo


def _read(sim: Sim, state: Any, action: Array, info: Any) -> Readings:
    """Flows, and rho as loading of lines whose rating is their limit; of a game over none."""
    _, (new, _) = flow_of(sim.env, sim, state, action)
    rate_mva = sim.params.grid.rate * sim.params.grid.base_mva
    return {
        "branch_flow_mw": new.flow.p_or,
        "branch_loading_mva": info.rho * jnp.where(rate_mva > 0, rate_mva, 0).astype(info.rho.dtype),
        "unit_power_mw": new.flow.gen_p,
    }


def _tally(state: Any, out: Step, params: Any, dt_hours: float) -> Tally:
    """Survival as the share of planned steps, hours beyond a limit, and actions that were refused."""
    info: OperationInfo = out.info
    one = jnp.ones((), info.rho.dtype)
    return {
        "survival": one / params.n_step[state.episode].astype(one.dtype),
        "overloaded_line_hours": jnp.sum(info.rho > 1, dtype=one.dtype) * dt_hours,
        "lines_tripped": jnp.sum(info.tripped >= 0, dtype=one.dtype),
        "refused_actions": (info.illegal | info.ambiguous).astype(one.dtype),
    }


def _action_ids(sim: Sim) -> tuple[str, ...]:
    del sim
    return ("action",)


OPERATION = Family(name="operation", names=NAMES, read=_read, tally=_tally, action_ids=_action_ids)
