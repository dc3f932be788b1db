"""Gymnasium for a world of Grid2Op: its own ids of actions, masks, chronics by name, `simulate`.

Example:
    from powerzoo_compat.grid2op_view import make_env
    from powerzoo_jax.families.operation import write_world
    env = make_env(write_world("five"), actions="discrete")  # in the place of your folder
    obs, info = env.reset(seed=0, options={"time serie id": "calm"})
    obs, reward, terminated, truncated, info = env.step(env.action_space.sample(env.action_masks().astype("int8")))

`action_masks()` is what MaskablePPO of sb3-contrib asks for. `actions="box"` takes real numbers as Grid2Op's
`BoxGymActSpace` does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box, Discrete
from jax import Array

from powerzoo_compat._host import NamedBox, seed_key
from powerzoo_jax.base.errors import unknown
from powerzoo_jax.base.random import Purpose, purpose_key
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.families.operation.build import from_grid2op
from powerzoo_jax.families.operation.grid2op.episodes import choose_episodes
from powerzoo_jax.families.operation.grid2op.world import World, read_world
from powerzoo_jax.families.operation.simulate import simulate
from powerzoo_jax.families.operation.types import ENDS, GridAction

BOX = "box"
CHRONICS = "time serie id"  # reset option, by the name that Grid2Op gives it


class Numbers(NamedTuple):
    """Real numbers of an action in the order of Grid2Op's Box: of each key its field, its units, low and high (n,)."""

    key: str
    field: str
    units: np.ndarray
    low: np.ndarray
    high: np.ndarray


def real_numbers(world: World) -> tuple[Numbers, ...]:
    """Entries of `actions="box"`: curtailment [share of Pmax], redispatch [MW], storage [MW, charging positive]."""
    fleet = jax.tree.map(np.asarray, world.fleet)
    plants, units = np.flatnonzero(fleet.renewable), np.flatnonzero(fleet.redispatchable)
    stores = np.arange(len(fleet.e_max_mwh))
    found = (
        Numbers("curtail", "curtail", plants, np.zeros(len(plants)), np.ones(len(plants))),
        Numbers("redispatch", "redispatch", units, -fleet.ramp_down_mw[units], fleet.ramp_up_mw[units]),
        Numbers("set_storage", "storage", stores, -fleet.produced_mw, fleet.absorbed_mw),
    )
    kept = tuple(part for part in found if part.key in world.keys and len(part.units))
    if not kept:
        raise ValueError(f'{world.name}: its class of actions takes no real numbers. Leave actions="discrete".')
    return kept


@jax.jit
def _begin(sim: Sim, key: Array, episode: Array) -> Any:
    none = jnp.zeros(0, jnp.float32)
    return sim.env.begin(key, Draw(episode, episode, none), sim.params)


@jax.jit
def _step(sim: Sim, state: Any, action: Array) -> Any:
    return sim.step(state, action)


@jax.jit
def _obey(sim: Sim, state: Any, action: GridAction) -> Any:
    """Step of an action that is no row of the table: the only row of one of its own."""
    table = jax.tree.map(lambda x: x[None], action)
    return sim.env.step(state, jnp.zeros((1, 1), jnp.int32), dataclasses.replace(sim.params, table=table))


@jax.jit(static_argnames="horizon")
def _simulate(sim: Sim, state: Any, action: Any, horizon: int) -> Any:
    return simulate(sim, state, action, horizon)


class GridOperationEnv(gymnasium.Env[np.ndarray, Any]):
    """World of Grid2Op as a Gymnasium environment.

    sim:       from `from_grid2op`
    episodes:  names of its chronics, in their order
    numbers:   of an action of real numbers; None chooses rows of the table of actions

    `terminated` tells a game over, `truncated` the end of the data. The info holds "chronics", "seed", "end", "rho",
    "line_status", "illegal", "ambiguous", "costs" and "rewards" by name. The env never resets itself.
    """

    def __init__(self, sim: Sim, episodes: Sequence[str], numbers: Sequence[Numbers] | None = None) -> None:
        self.sim, self.episodes, self.numbers = sim, tuple(episodes), numbers
        low, high = (x[0].astype(np.float32) for x in sim.spaces()[0])
        self.observation_space = NamedBox(low, high, sim.env.fields.names)
        if numbers is None:
            self.action_space: Any = Discrete(sim.env.dims.choice)
        else:
            low, high = (np.concatenate([getattr(part, end) for part in numbers]) for end in ("low", "high"))
            self.action_space = Box(low.astype(np.float32), high.astype(np.float32))
        self.state: Any = None
        self.legal: np.ndarray | None = None
        self._idle = jax.tree.map(np.asarray, jax.tree.map(lambda x: x[0], sim.params.table))
        self._told: dict[str, Any] = {}
        self._key: Array | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode: (observation, info).

        seed:     fixes all that is drawn from here on; None continues the stream
        options:  "time serie id": the name of a chronics folder, or its number; None draws one
        Raises ValueError for an unknown option or chronics.
        """
        options = dict(options or {})
        if others := [name for name in options if name != CHRONICS]:
            raise ValueError(unknown("reset option", others[0], (CHRONICS,)))
        super().reset(seed=seed)
        if seed is None and self._key is not None:
            self._key = purpose_key(self._key, Purpose.NEXT_EPISODE)
        else:
            self._key = seed_key(int(self.np_random.integers(2**31)) if seed is None else seed)
        episode = self._episode(options.get(CHRONICS))
        self.state, obs = _begin(self.sim, self._key, np.int32(episode))
        self._told, self.legal = {"chronics": self.episodes[episode], "seed": seed}, None
        flow = self.state.flow
        told = {"rho": np.asarray(flow.a_or / self.sim.params.limit_a), "line_status": np.asarray(flow.on)}
        return np.asarray(obs[0], np.float32), self._told | told

    def _episode(self, wanted: Any) -> int:
        count = len(self.episodes)
        if wanted is None:
            return int(self.np_random.integers(count))
        if isinstance(wanted, str):
            if wanted not in self.episodes:
                raise ValueError(unknown("chronics", wanted, self.episodes))
            return self.episodes.index(wanted)
        if isinstance(wanted, bool) or not isinstance(wanted, int | np.integer) or not 0 <= wanted < count:
            raise ValueError(f"{CHRONICS} {wanted!r} is neither a name nor a number from 0 to {count - 1}.")
        return int(wanted)

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Advance one step: (observation, reward, terminated, truncated, info).

        An illegal action does nothing, and info says so.
        Raises RuntimeError before the first reset, ValueError for what the action space does not contain.
        """
        out = self._ask(action, _step, _obey)
        self.state, self.legal = out.state, np.asarray(out.info.legal[0])
        info, spec = jax.device_get(out.info), self.sim.spec
        told = {name: getattr(info, name) for name in ("rho", "line_status")}
        told |= {name: bool(getattr(info, name)) for name in ("illegal", "ambiguous", "refused_dispatch")}
        told |= {"end": ENDS[int(info.end)], "attacked": np.flatnonzero(info.attacked).tolist()}
        told["costs"] = dict(zip(spec.cost_names, np.asarray(out.cost).tolist(), strict=True))
        told["rewards"] = dict(zip(spec.term_names, info.terms[0].tolist(), strict=True))
        ends = bool(info.terminated), bool(info.truncated)
        return np.asarray(out.obs[0], np.float32), float(out.reward[0]), *ends, self._told | told

    def simulate(self, action: Any, horizon: int = 1) -> Any:
        """Grid after an action on the forecast of a row ahead, the episode untouched: see `operation.simulate`."""
        return jax.device_get(self._ask(action, _simulate, _simulate, horizon))

    def _ask(self, action: Any, by_row: Any, by_action: Any, *rest: Any) -> Any:
        if self.state is None:
            raise RuntimeError("no episode has begun. Call env.reset(seed=...) first.")
        if self.numbers is None:
            given = np.asarray(action)
            if given.dtype.kind not in "iu" or not self.action_space.contains(given.astype(np.int64).reshape(())):
                raise ValueError(f"action {action!r} is not in {self.action_space}. Give a whole number from 0.")
            row = given.astype(np.int32)
            return by_row(self.sim, self.state, row.reshape((1, 1)) if by_row is _step else row.reshape(()), *rest)
        return by_action(self.sim, self.state, self.orders(action), *rest)

    def orders(self, action: Any) -> GridAction:
        """Action on every element of the real numbers of `actions="box"`, in their units."""
        values = np.asarray(action, np.float32)
        if values.shape != self.action_space.shape or not np.isfinite(values).all():
            raise ValueError(f"action {action!r} is not in {self.action_space}. Give a finite number for each entry.")
        found, at = jax.tree.map(np.array, self._idle), 0
        for part in self.numbers or ():
            getattr(found, part.field)[part.units] = values[at : at + len(part.units)]
            at += len(part.units)
        return found  # type: ignore[no-any-return]

    def action_masks(self) -> np.ndarray:
        """Legality of every row of the table in the next step, bool; all of them before the first step."""
        count = self.sim.env.dims.choice
        return np.ones(count, bool) if self.legal is None else self.legal


def make_env(folder: str | Path, *, actions: Any = "topology", episodes: Any = None, **keywords: Any) -> Any:
    """Gymnasium environment of a folder of Grid2Op.

    actions:   as for `from_grid2op`; "discrete" has the ids of Grid2Op's `DiscreteActSpace`, "box" the numbers of its
               `BoxGymActSpace`: curtailment, redispatch, storage
    episodes, keywords: as for `from_grid2op`
    Raises ValueError for "box" in a world whose class of actions takes no real numbers, and errors of the reader.
    """
    world = read_world(folder, keywords.get("difficulty"))
    numbers = real_numbers(world) if isinstance(actions, str) and actions == BOX else None
    sim = from_grid2op(folder, actions=[] if numbers is not None else actions, episodes=episodes, **keywords)
    names = choose_episodes(world, episodes)
    seeds = keywords.get("seeds", (0,)) if world.draws else (None,)
    return GridOperationEnv(sim, [name if s is None else f"{name}@{s}" for name in names for s in seeds], numbers)
