"""Record of the operation family: what traces and scores ask of a grid operated by its topology."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base import Step
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.episode import Tally
from powerzoo_jax.envs.family import Family
from powerzoo_jax.envs.trace.names import network
from powerzoo_jax.envs.trace.readings import Readings, flow_of
from powerzoo_jax.envs.trace.types import TracedNetwork
from powerzoo_jax.families.operation import topology
from powerzoo_jax.families.operation.env import injections, row_at
from powerzoo_jax.families.operation.names import NAMES
from powerzoo_jax.families.operation.types import OperationInfo
from powerzoo_jax.powerflow.busbars.solve import solve_topology


def _read(sim: Sim, state: Any, action: Array, info: Any) -> Readings:
    """Flows, where lines stand, rho as loading, and voltages by busbar, solved once more; of a game over none."""
    _, (new, _) = flow_of(sim.env, sim, state, action)
    params, factors, n_line = sim.params, sim.params.factors, sim.params.limit_a.shape[0]
    powers = new.p_unit, new.p_load, new.q_load, new.dispatch.storage
    p, q = injections(*powers, new.busbar, params, factors)
    v_set = row_at(params, state.episode, state.t + 1).v_set.astype(p.dtype)
    found = solve_topology(factors, p, q, topology.on_network(new.busbar, 1, params), v_set, start="dc")
    # no number where nothing stands, and none of a game over
    v_pu = jnp.where(found.in_use & jnp.any(new.flow.on), found.v_pu, jnp.nan)
    standing = jnp.where(jnp.tile(new.flow.on, 2), new.busbar[: 2 * n_line], 0)
    rate_mva = params.grid.rate * params.grid.base_mva
    return {
        "branch_flow_mw": new.flow.p_or,
        "branch_loading_mva": info.rho * jnp.where(rate_mva > 0, rate_mva, 0).astype(info.rho.dtype),
        "branch_from_busbar": standing[:n_line],
        "branch_to_busbar": standing[n_line:],
        "bus_voltage_pu": v_pu[: factors.n_bus],
        "bus_second_voltage_pu": v_pu[factors.n_bus :],
        "unit_power_mw": new.flow.gen_p,
    }


def _networks(sim: Sim) -> dict[str, TracedNetwork]:
    """The grid with substations numbered from 0, as Grid2Op does, and its units."""
    n_line, units = sim.params.limit_a.shape[0], _names(sim, "gen_p")
    at = np.asarray(sim.params.sub)[2 * n_line :][: len(units)]
    found = network(sim.params.grid, None, units, at)
    root = int(np.asarray(sim.params.factors.slack))
    return {"": replace(found, bus_ids=tuple(map(str, range(len(found.bus_ids)))), root=root)}


def _not_stacked(sims: Sequence[Sim]) -> tuple[Any, list[Any]]:
    """Worlds are not stacked. Raises ValueError that says what to do."""
    raise ValueError(
        f"cannot stack {sims[0].spec.id!r}: every lane of one simulation draws among all its episodes. Read those of "
        "one folder together, from_grid2op(folder, episodes=[...]), and give each world a program of its own."
    )


def _names(sim: Sim, attribute: str) -> tuple[str, ...]:
    """Names of the elements that have an attribute, from fields attribute[name]."""
    known = next(block for block in sim.env.fields.blocks if block.key == attribute)
    return tuple(name[len(attribute) + 1 : -1] for name in known.names)


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


OPERATION = Family(
    name="operation",
    names=NAMES,
    read=_read,
    tally=_tally,
    networks=_networks,
    action_ids=_action_ids,
    align=_not_stacked,
)
