"""A world of Grid2Op as a Sim: the assembly of `OperationParams`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from powerzoo_jax.base import Dims, no_padding
from powerzoo_jax.base.numerics import resolve_dtype
from powerzoo_jax.base.solver_mode import AUTO
from powerzoo_jax.cases.grid import to_grid
from powerzoo_jax.families.operation.grid2op.episodes import choose_episodes, read_episodes
from powerzoo_jax.families.operation.grid2op.grid import Elements
from powerzoo_jax.families.operation.grid2op.world import World, read_world
from powerzoo_jax.families.operation.names import COSTS, TERMS
from powerzoo_jax.families.operation.types import EpisodeRows, GridAction, OperationParams, Rules
from powerzoo_jax.powerflow.busbars.network import TopologyNetwork, prepare_topology

DT_HOURS = 5 / 60  # of energies and rewards, whatever the clock of the series says
REWARDS = {"RedispReward": 0, "LinesCapacityReward": 2, "EpisodeDurationReward": 3}
L2RPN = 1  # where no reward that is offered is named


def from_grid2op(
    folder: str | Path,
    *,
    episodes: Any = None,
    difficulty: str | int | None = None,
    actions: Any = "topology",
    max_steps: int | None = None,
    seeds: Sequence[int] = (0,),
    dtype: Any = None,
    solver: str = AUTO,
) -> Any:
    """Sim of an environment folder of Grid2Op."""
    world = read_world(folder, difficulty)
    return build_params(
        world, choose_episodes(world, episodes), max_steps=max_steps, seeds=seeds, dtype=dtype, solver=solver
    )


def build_params(
    world: World,
    episodes: Sequence[str],
    *,
    max_steps: int | None = None,
    seeds: Sequence[int] = (0,),
    dtype: Any = None,
    solver: str = AUTO,
    table: GridAction | None = None,
) -> OperationParams:
    """Parameters of a world with some of its episodes.

    max_steps:  of an episode; None plays each to its end
    seeds:      of `env.reset(seed=...)` of Grid2Op, for worlds that draw their maintenance
    table:      actions that there are; None takes `line_actions`
    """
    dtype = resolve_dtype(dtype)
    series, rows = read_episodes(world, episodes, seeds)
    steps = rows - 1 if max_steps is None else np.minimum(rows - 1, max_steps)
    e, case = world.elements, world.case
    table = line_actions(e) if table is None else table
    kv = case.bus.base_kv
    from_kv = kv[e.split(e.sub)[0]]
    fixed = slice(len(world.names["load"]), None)
    dims = Dims(
        bus=case.n_bus,
        branch=case.n_branch,
        unit=case.n_unit,
        agent=1,
        obs=0,
        act=1,
        choice=len(table.set_line),
        cost=len(COSTS),
        term=len(TERMS),
    )

    def real(values: Any) -> Any:
        return jnp.asarray(values, dtype)

    def whole(values: Any) -> Any:
        return jnp.asarray(values, jnp.int32)

    def single(values: Any) -> Any:
        return jnp.asarray(values, jnp.float32)

    return OperationParams(
        grid=to_grid(case, dtype),
        factors=_network(e, dtype, solver),
        masks=no_padding(dims),
        horizon=whole(steps.max()),
        bank=_bank(series, dtype),
        rules=_rules(world),
        fleet=jax.tree.map(jnp.asarray, world.fleet),
        limit_a=single(world.limit_a),
        amps=real(1000 * case.base_mva / (np.sqrt(3) * from_kv)),
        sub=whole(e.sub),
        place=whole(e.place),
        kv=real(kv),
        q_storage=real(e.q_storage),
        p_fixed=real(case.load.p_mw[fixed]),
        q_fixed=real(case.load.q_mvar[fixed]),
        table=table,
        first_row=whole(np.cumsum(rows) - rows),
        n_step=whole(steps),
        foreseen=None if world.foreseen is None else _network(world.foreseen, dtype, solver),
    )


def _network(e: Elements, dtype: Any, solver: str) -> TopologyNetwork:
    losses = e.conductance_pu.tolist() if e.conductance_pu.any() else None
    sites = e.storage_bus.tolist()
    return prepare_topology(e.case, storages=sites, conductance_pu=losses, dtype=dtype, solver=solver)


def _rules(world: World) -> Rules:
    p = world.parameters

    def number(key: str) -> Any:
        return jnp.asarray(p[key], jnp.int32 if isinstance(p[key], int) else jnp.float32)

    return Rules(
        hard=number("HARD_OVERFLOW_THRESHOLD"),
        soft=number("SOFT_OVERFLOW_THRESHOLD"),
        allowed_steps=number("NB_TIMESTEP_OVERFLOW_ALLOWED"),
        protected=jnp.asarray(not p["NO_OVERFLOW_DISCONNECTION"]),
        reconnection=number("NB_TIMESTEP_RECONNECTION"),
        cooldown_line=number("NB_TIMESTEP_COOLDOWN_LINE"),
        cooldown_sub=number("NB_TIMESTEP_COOLDOWN_SUB"),
        max_lines=number("MAX_LINE_STATUS_CHANGED"),
        max_subs=number("MAX_SUB_CHANGED"),
        area=jnp.asarray(world.area),
        unchecked=jnp.asarray(world.unchecked),
        storage_loss=jnp.asarray(p["ACTIVATE_STORAGE_LOSS"]),
        storage_start=number("INIT_STORAGE_CAPACITY"),
    )


def _bank(series: EpisodeRows, dtype: Any) -> EpisodeRows:
    """Series on the device: set-points and the clock in the float type of the flow, the rest as Grid2Op keeps it."""

    def door(path: Any, values: Any) -> Any:
        name = path[-1].name
        if name in ("v_set", "clock"):
            return jnp.asarray(values, dtype)
        return jnp.asarray(values, jnp.float32 if np.issubdtype(values.dtype, np.floating) else None)

    return jax.tree_util.tree_map_with_path(door, series)


def line_actions(e: Elements) -> GridAction:
    """Actions on lines alone: nothing, then each line opened where it is closed and closed where it is open."""
    n_line, n = len(e.names["line"]), len(e.sub)
    m = n_line + 1
    return GridAction(
        set_line=jnp.zeros((m, n_line), jnp.int8),
        switch_line=jnp.asarray(np.eye(m, n_line, -1, dtype=bool)),
        set_busbar=jnp.zeros((m, n), jnp.int8),
        change_busbar=jnp.zeros((m, n), bool),
        redispatch=jnp.zeros((m, len(e.names["unit"])), jnp.float32),
        curtail=jnp.full((m, len(e.names["unit"])), -1, jnp.float32),
        storage=jnp.zeros((m, len(e.names["storage"])), jnp.float32),
    )
