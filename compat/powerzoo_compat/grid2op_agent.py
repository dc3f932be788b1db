"""Agents for Grid2Op made of players of ours: the observation of theirs read as ours, the action put back into theirs.

Where grid2op is installed:

    import grid2op
    from lightsim2grid import LightSimBackend
    import powerzoo_jax
    from powerzoo_compat.grid2op_agent import as_agent
    from powerzoo_jax.families.operation.players import greedy

    env = grid2op.make("rte_case5_example", backend=LightSimBackend())
    sim = powerzoo_jax.from_grid2op(env.get_path_env())
    agent = as_agent(greedy(), env, sim)
    observation = env.reset()
    observation, reward, done, info = env.step(agent.act(observation, 0.0))

Grid2Op executes the config.py of a world: play worlds of authors you trust.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from powerzoo_jax.base.errors import listing
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.families.operation.actions import to_grid2op
from powerzoo_jax.families.operation.env import first_state
from powerzoo_jax.families.operation.fields import SeenGrid, observe_fields, seen_of
from powerzoo_jax.families.operation.players import Choose
from powerzoo_jax.families.operation.types import OperationParams, OperationState

COUNTERS = {
    "cooldown_line": "time_before_cooldown_line",
    "cooldown_sub": "time_before_cooldown_sub",
    "overflow": "timestep_overflow",
    "engaged": "timestep_protection_engaged",
}
DISPATCH = {"target": "target_dispatch", "actual": "actual_dispatch", "charge": "storage_charge"}
DISPATCH |= {"storage": "storage_power"}
FLOWS = {"on": "line_status", **{name: name for name in ("p_or", "q_or", "v_or", "a_or", "gen_p")}}


def read_state(
    observation: Any, params: OperationParams, episode: int, last: np.ndarray, key: jax.Array
) -> OperationState:
    """State of ours at an observation of Grid2Op's.

    episode:  number of the episode among ours
    last:     (E,) last busbar of each element
    What an observation does not show (limits of curtailment, set-points before dispatch) is as at reset.
    """

    def given(like: Any, name: str) -> Any:
        return jnp.asarray(getattr(observation, name), like.dtype)

    first = first_state(key, jnp.asarray(episode, jnp.int32), params)
    busbar = np.maximum(np.asarray(observation.topo_vect)[np.asarray(params.place)], 0)
    parts = (("dispatch", first.dispatch, DISPATCH), ("flow", first.flow, FLOWS))
    nested: dict[str, Any] = {
        name: dataclasses.replace(old, **{ours: given(getattr(old, ours), theirs) for ours, theirs in table.items()})
        for name, old, table in parts
    }
    return dataclasses.replace(
        first,
        t=jnp.asarray(observation.current_step, jnp.int32),
        busbar=jnp.asarray(busbar, first.busbar.dtype),
        last=jnp.asarray(last, first.last.dtype),
        p_unit=nested["flow"].gen_p,
        p_load=given(first.p_load, "load_p"),
        q_load=given(first.q_load, "load_q"),
        **{ours: given(getattr(first, ours), theirs) for ours, theirs in COUNTERS.items()},
        **nested,
    )


def read_observation(observation: Any, sim: Sim, state: OperationState) -> jax.Array:
    """Observation (1, O) of ours from Grid2Op's; sums of forecasts are of the rows of ours at `state`."""
    time = 2 * np.pi * (observation.hour_of_day + observation.minute_of_hour / 60) / 24
    shown = {name: getattr(observation, name) for name in SeenGrid._fields if hasattr(observation, name)}
    clock = np.array([np.sin(time), np.cos(time)])
    seen = seen_of(state, sim.params)._replace(**shown, clock=clock)
    return observe_fields(sim.env.fields, seen, sim.params)[None]


@jax.jit
def _decide(choose: Partial, sim: Sim, state: OperationState, obs: Any, key: jax.Array) -> jax.Array:
    action: jax.Array = choose(sim, state, obs, key)
    return action


def as_agent(choose: Choose, env: Any, sim: Sim, episodes: Sequence[str] = (), *, seed: int = 0) -> Any:
    """Agent of Grid2Op, a `BaseAgent`, that acts as a player of ours: `greedy()`, `recovery(sim)`, `learnt(...)`.

    env:       environment of Grid2Op, of the world that `sim` was read from
    episodes:  names of the episodes of `sim`, in order; () where it has all of the folder
    seed:      of a player that draws

    Raises ValueError where both have other numbers of elements, and in an episode that `sim` has not.
    """
    from grid2op.Agent import BaseAgent

    params: OperationParams = sim.params
    kind = type(env)
    sizes = {"lines": kind.n_line, "substations": kind.n_sub, "units": kind.n_gen, "elements": kind.dim_topo}
    ours = (len(params.limit_a), len(params.kv), len(params.fleet.cost), len(params.sub))
    if odd := [
        f"{theirs} {name}, ours {n}" for (name, theirs), n in zip(sizes.items(), ours, strict=True) if theirs != n
    ]:
        raise ValueError(f"the grid of the environment has {listing(odd)}. Read `sim` from the folder of its world.")
    names = list(episodes) or sorted(Path(path).name for path in env.chronics_handler.real_data.subpaths)
    if len(names) != len(params.n_step):
        raise ValueError(f"{len(names)} names of episodes for {len(params.n_step)}. Give `episodes`, one name each.")
    player = choose if isinstance(choose, Partial) else Partial(choose)

    class Player(BaseAgent):
        """Player of ours; `index` is the row of the table that it has played last, on the observation `seen` (1, O)."""

        def __init__(self) -> None:
            super().__init__(env.action_space)
            self.index, self.key, self.seen = 0, jax.random.key(seed), np.zeros((1, sim.env.dims.obs))
            self.last = np.ones(len(params.sub), int)

        def act(self, observation: Any, reward: float, done: bool = False) -> Any:
            """Action on an observation."""
            del reward, done
            name = Path(env.chronics_handler.get_id()).name
            if name not in names:
                raise ValueError(f"episode {name!r} is none of {listing(names)}. Read it into `sim` too.")
            at = np.asarray(observation.topo_vect)[np.asarray(params.place)]
            if observation.current_step == 0:
                self.last = np.ones_like(self.last)
            self.last = np.where(at > 0, at, self.last)
            self.key, key = jax.random.split(self.key)
            state = read_state(observation, params, names.index(name), self.last, key)
            self.seen = np.asarray(read_observation(observation, sim, state))
            self.index = int(_decide(player, sim, state, self.seen, key)[0, 0])
            return self.action_space(to_grid2op(sim, self.index))

    return Player()
