"""Replay of a world of Grid2Op by the package, one lane step by step, as recordings are compared with it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from powerzoo_jax.base.numerics import FLOAT
from powerzoo_jax.families.operation.build import world_sim
from powerzoo_jax.families.operation.env import advance, first_state, row_at
from powerzoo_jax.families.operation.fields import seen_of
from powerzoo_jax.families.operation.grid2op.world import read_world
from powerzoo_jax.families.operation.rewards import terms
from powerzoo_jax.families.operation.simulate import simulate
from powerzoo_jax.families.operation.types import ENDS, RUNNING, Attack, GridAction

DATA, ISLAND, DIVERGENCE, REDISPATCH = ENDS[1:]
REWARDS = ("redisp", "l2rpn", "lines", "duration")  # in the order of the reward terms
FLAGS = ("illegal", "ambiguous", "refused_dispatch")
Arrays = dict[str, np.ndarray]


@jax.jit
def _begun(params: Any, episode: Any) -> Any:
    state, still = first_state(jax.random.key(0), episode, params), jax.tree.map(lambda x: x[0], params.table)
    state, report = advance(state, still, row_at(params, episode, state.t), params, counting=False)
    return state, report, _all_seen(state, params)


@jax.jit
def _stepped(params: Any, state: Any, action: GridAction, attack: Attack) -> Any:
    t = state.t + 1
    new, report = advance(state, action, row_at(params, state.episode, t), params, attack)
    over = (new.end == RUNNING) & (t >= params.n_step[state.episode])
    new = dataclasses.replace(new, t=t, end=jnp.where(over, ENDS.index(DATA), new.end))
    bad = report.illegal | report.ambiguous | report.refused_dispatch
    return new, report, _all_seen(new, params), terms(new, bad, params)


@functools.partial(jax.jit, static_argnums=3)
def _simulated(sim: Any, state: Any, action: GridAction, horizon: int) -> Any:
    found = simulate(sim, state, action, horizon)
    return found.state, found.report, _all_seen(found.state, sim.params)


def _all_seen(state: Any, params: Any) -> dict[str, Any]:
    return seen_of(state, params)._asdict()


class PackageReplay:
    """World of a folder in the package, whose episodes are those of a recording."""

    def __init__(self, folder: Path, arrays: Arrays, dtype: str) -> None:
        self.folder, world = folder, read_world(folder)
        self.observation: dict[str, Any] | None = None
        self.outcome: Any = None
        names = world.names
        kinds = {"rho": names.line, "topo_vect": names.sub, "gen_p": names.unit, "load_p": names.load}
        self.sizes = {key: len(x) for key, x in kinds.items()} | {"storage_power": len(names.storage)}
        self.episodes: Sequence[str] = world.episodes
        played = list(dict.fromkeys(map(str, arrays["episode"])))
        seeds = list(dict.fromkeys(map(int, arrays["seed"])))
        known = [name for name in played if name in world.episodes]
        copies = [(name, seed) for name in known for seed in (seeds if world.draws else [0])]
        self._number, self._draws = {key: k for k, key in enumerate(copies)}, world.draws
        self._order = names.order
        if known:
            sim = world_sim(world, known, [], None, seeds, dtype)
            # attacks are those of the recording
            self.sim = dataclasses.replace(sim, params=dataclasses.replace(sim.params, opponent=None))

    def reset(self, name: str, seed: int) -> None:
        number = self._number[name, seed if self._draws else 0]
        self._keep(*_begun(self.sim.params, jnp.int32(number)))

    def step(self, action: Arrays, attacked: np.ndarray, duration: int) -> tuple[Any, bool]:
        attack = Attack(jnp.asarray(attacked, bool), jnp.int32(duration))
        *found, rewards = _stepped(self.sim.params, self.state, self._action(action), attack)
        self._keep(*found)
        self._rewards = dict(zip(REWARDS, np.asarray(rewards).tolist(), strict=True))
        return self.observation, self.outcome.end != ""

    def simulate(self, action: Arrays, horizon: int) -> tuple[dict[str, Any] | None, bool, Any]:
        state, report, seen = _simulated(self.sim, self.state, self._action(action), horizon)
        outcome = _outcome(state, report)
        return (None if outcome.end else {key: np.asarray(x) for key, x in seen.items()}), outcome.end != "", outcome

    def rewards(self) -> dict[str, float]:
        return self._rewards

    def _keep(self, state: Any, report: Any, seen: dict[str, Any]) -> None:
        self.state, self.outcome = state, _outcome(state, report)
        self.observation = {key: np.asarray(x) for key, x in seen.items()}
        if self.outcome.end not in ("", DATA):
            self.observation = None

    def _action(self, action: Arrays) -> GridAction:
        """The action by element."""
        found: dict[str, Any] = dict(action)
        for key in ("set_bus", "change_bus"):
            found[key + "bar"] = np.empty_like(found[key])
            found[key + "bar"][self._order] = found.pop(key)
        kinds = {"set_line": np.int8, "set_busbar": np.int8, "switch_line": bool, "change_busbar": bool}
        return GridAction(**{key: x.astype(kinds.get(key, FLOAT)) for key, x in found.items()})


def _outcome(state: Any, report: Any) -> SimpleNamespace:
    end = ENDS[int(state.end)]
    flags = {flag: bool(getattr(report, flag)) for flag in FLAGS}
    return SimpleNamespace(**flags, end="" if end == ENDS[0] else end, reason="")
