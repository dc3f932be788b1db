"""A world of Grid2Op as a Sim: the assembly of `OperationParams`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np

from powerzoo_jax.base import Dims, TaskSpec, no_padding
from powerzoo_jax.base.errors import unknown
from powerzoo_jax.base.host import use_compilation_cache
from powerzoo_jax.base.numerics import FLOAT, resolve_dtype
from powerzoo_jax.base.ranges import Count, Range, fitted
from powerzoo_jax.base.solver_mode import AUTO, NATIVE
from powerzoo_jax.cases.grid import to_grid
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.families.operation.actions import MOST, Screen, blank, discrete, from_dict, join, keys_of, topology
from powerzoo_jax.families.operation.env import OperationEnv
from powerzoo_jax.families.operation.fields import operation_fields
from powerzoo_jax.families.operation.grid2op.episodes import SPLITS, choose_episodes, read_episodes
from powerzoo_jax.families.operation.grid2op.grid import Elements
from powerzoo_jax.families.operation.grid2op.world import World, read_world
from powerzoo_jax.families.operation.names import COSTS, TERMS
from powerzoo_jax.families.operation.opponent import read_opponent
from powerzoo_jax.families.operation.topology import reach
from powerzoo_jax.families.operation.types import EpisodeRows, GridAction, OperationParams, Rules
from powerzoo_jax.powerflow.busbars.network import TopologyNetwork, prepare_topology

DT_HOURS = 5 / 60  # of energies and rewards, whatever the clock of the series says
SCREENED = 20  # rows that the usefulness of busbar settings is judged on


def from_grid2op(
    folder: str | Path,
    *,
    episodes: Any = None,
    difficulty: str | int | None = None,
    actions: Any = "topology",
    action_class: str | None = None,
    max_steps: int | None = None,
    seeds: Sequence[int] = (0,),
    dtype: Any = None,
    solver: str = AUTO,
) -> Sim:
    """World of Grid2Op as a simulation, from its environment folder; nothing of the folder is executed.

    episodes:   names or numbers of episodes, a slice of them, "train", "val" or "test" (eight, one and one of ten);
                None takes all. `init` draws one of them
    difficulty: key of difficulty_levels.json; None takes `competition`, else the largest number
    actions:    rows of the table that an action is one of: "topology" (nothing, lines, and up to 512 busbar settings
                by usefulness), a number of settings in the place of 512, "discrete" (all of Grid2Op's discrete action
                space under its ids), or a list of the dicts that Grid2Op's action space takes
    action_class: name of Grid2Op's class of actions that "topology" and "discrete" are for; None takes the world's own
    max_steps:  of an episode; None plays each to its end
    seeds:      of Grid2Op's `env.reset(seed=...)`; one copy of each episode for each, where maintenance is drawn
    dtype:      float32 (None) or float64, of the power flow
    solver:     "auto", "native", "adaptive" or "fixed", as in `solve_topology`

    Raises DataMissing for a folder or file that is not there, CaseError and DataError for a world that cannot be played
    and for an unknown episode or difficulty, ValueError for actions that are none of the world, or an unknown class.

    Example:
        from powerzoo_jax.families.operation import write_world
        sim = from_grid2op(write_world("five"), episodes="train")
        state, obs = sim.init(jax.random.key(0))
        state, obs, reward, cost, info = sim.step(state, jnp.zeros((1, 1), int))
    """
    use_compilation_cache()
    world = read_world(folder, difficulty)
    if action_class is not None:
        world = dataclasses.replace(world, keys=keys_of(action_class))
    split = episodes if isinstance(episodes, str) and episodes in SPLITS else "all"
    return world_sim(world, choose_episodes(world, episodes), actions, max_steps, seeds, dtype, solver, split)


def world_sim(
    world: World,
    episodes: Sequence[str],
    actions: Any = "topology",
    max_steps: int | None = None,
    seeds: Sequence[int] = (0,),
    dtype: Any = None,
    solver: str = AUTO,
    split: str = "all",
) -> Sim:
    """Simulation of a world that has been read, on some of its episodes; arguments as of `from_grid2op`."""
    dtype = resolve_dtype(dtype)
    max_steps = fitted("max_steps", max_steps, Count | None)
    seeds = fitted("seeds", tuple(seeds), tuple[Annotated[int, Range(0, 2**32 - 1)], ...])
    series, rows = read_episodes(world, episodes, seeds)
    steps = rows - 1 if max_steps is None else np.minimum(rows - 1, max_steps)
    first = np.cumsum(rows) - rows
    e, case, names = world.elements, world.case, world.names
    table, fields = action_table(world, actions), operation_fields(world.names)
    fixed = slice(len(names.load), None)
    dims = Dims(
        bus=case.n_bus,
        branch=case.n_branch,
        unit=case.n_unit,
        agent=1,
        obs=fields.size,
        act=1,
        choice=len(table.set_line),
        cost=len(COSTS),
        term=len(TERMS),
    )

    def real(values: Any) -> Any:
        return jnp.asarray(values, dtype)

    def whole(values: Any) -> Any:
        return jnp.asarray(values, jnp.int32)

    params = OperationParams(
        grid=to_grid(case, dtype),
        factors=_network(e, dtype, solver),
        masks=no_padding(dims),
        horizon=whole(steps.max()),
        bank=_bank(series, first, steps, dtype),
        rules=_rules(world),
        fleet=jax.tree.map(jnp.asarray, world.fleet),
        limit_a=jnp.asarray(world.limit_a),
        amps=real(1000 * case.base_mva / (np.sqrt(3) * case.bus.base_kv[case.branch.from_id])),
        sub=whole(names.sub),
        place=whole(np.argsort(names.order)),
        kv=real(case.bus.base_kv),
        q_storage=real(e.q_storage),
        p_fixed=real(case.load.p_mw[fixed]),
        q_fixed=real(case.load.q_mvar[fixed]),
        table=table,
        first_row=whole(first),
        n_step=whole(steps),
        reach=None,
        opponent=read_opponent(world.config, names.line),
        foreseen=None if world.foreseen is None else _network(world.foreseen, dtype, solver),
    )
    params = dataclasses.replace(params, reach=reach(table, params))
    weights = tuple(float(name == world.reward) for name in TERMS)
    spec = TaskSpec(
        id=world.name,
        version=1,
        family="operation",
        case=world.name,
        horizon=int(steps.max()),
        dt_hours=DT_HOURS,
        split=split,
        agents=("operator",),
        cost_names=COSTS,
        cost_budget=(np.inf,) * len(COSTS),
        term_names=TERMS,
        term_weights=weights,
    )
    form = AUTO if solver == NATIVE else solver
    env = OperationEnv(dims=dims, dt_hours=DT_HOURS, term_weights=weights, fields=fields, solver=form)
    return Sim(params=params, env=env, spec=spec)


def action_table(world: World, actions: Any) -> GridAction:
    """Actions that there are: "topology", "discrete", a number of busbar settings, or a list of Grid2Op's dicts.

    Raises ValueError for anything else, and where an action is none of this world.
    """
    names = world.names
    if isinstance(actions, list | tuple) and all(isinstance(action, Mapping) for action in actions):
        given = [from_dict(names, action) for action in actions]
        table = join([blank(names, 1), *(jax.tree.map(lambda x: x[None], action) for action in given)])
    elif isinstance(actions, int | np.integer):
        table = topology(names, world.keys, _screen(world), fitted("actions", actions, Count))
    elif isinstance(actions, str) and actions in ("topology", "discrete"):
        table = (
            topology(names, world.keys, _screen(world), MOST)
            if actions == "topology"
            else discrete(names, world.keys, world.fleet)
        )
    else:
        raise ValueError(
            f"{unknown('actions', actions, ('topology', 'discrete'))} A number or a list of dicts will do too."
        )
    return jax.tree.map(jnp.asarray, table)  # type: ignore[no-any-return]


def _screen(world: World) -> Screen:
    """DC model of the first rows of the first episode, which is a training one."""
    series, _ = read_episodes(world, world.episodes[:1])
    branch, names = world.case.branch, world.names
    p = np.zeros((min(SCREENED, len(series.p_unit)), len(names.sub)))
    units = 2 * len(names.line) + np.arange(len(names.unit))
    p[:, units] = series.p_unit[: len(p)]
    p[:, units[-1] + 1 :][:, : len(names.load)] = -series.p_load[: len(p)]
    x = branch.x_pu * branch.tap
    # a line without reactance pushes nothing, as in the start of the power flow
    return Screen(np.divide(1, x, out=np.zeros(len(x)), where=x != 0), branch.rate_a_mva, p, world.elements.slack)


def _network(e: Elements, dtype: Any, solver: str) -> TopologyNetwork:
    losses = e.conductance_pu.tolist() if e.conductance_pu.any() else None
    sites = e.storage_bus.tolist()
    return prepare_topology(e.case, storages=sites, conductance_pu=losses, dtype=dtype, solver=solver)


def _rules(world: World) -> Rules:
    p = world.parameters

    def number(key: str) -> Any:
        return jnp.asarray(p[key], jnp.int32 if isinstance(p[key], int) else FLOAT)

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


def _bank(series: EpisodeRows, first: np.ndarray, steps: np.ndarray, dtype: Any) -> EpisodeRows:
    """Series on the device: set-points and the clock in the float type of the flow, the rest as Grid2Op keeps it.

    first, steps:  (Q,) first row of each episode, and its steps
    """
    left = np.zeros(len(series.p_load))
    for row, n in zip(first, steps + 1, strict=True):
        left[row : row + n] = np.asarray(series.p_load[row : row + n], float).sum(axis=1)[::-1].cumsum()[::-1]

    def door(path: Any, values: Any) -> Any:
        if path[-1].name in ("v_set", "clock"):
            return jnp.asarray(values, dtype)
        return jnp.asarray(values, FLOAT if np.issubdtype(values.dtype, np.floating) else None)

    return jax.tree_util.tree_map_with_path(door, dataclasses.replace(series, load_left=jnp.asarray(left)))
