"""100,000 random and adversarial steps of each feeder task with a fleet, in one program a task, on the host."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

import powerzoo_jax
from powerzoo_jax.envs import Sim

STEPS = 100_000
TASKS = ("dso", "marl_der_arbitrage", "marl_ders_benchmark", "marl_ev_v2g")
LANES = 32  # of one call: a program serves few lanes that fail, each with its costly last attempts, and all others
HIGH, LOW, JUMPING, IDLE, WILD = range(
    5
)  # lanes k with k mod 8 below five do the same all day, the others act at random


class Played(NamedTuple):
    """Episodes of a task, lanes first: first (B,) and every later state (B, T), outputs (B, T), float64 where real."""

    sim: Sim
    actions: np.ndarray
    first: Any
    states: Any
    reward: np.ndarray
    cost: np.ndarray
    info: Any

    def channel(self, name: str) -> np.ndarray:
        """One cost channel (B, T)."""
        return self.cost[..., self.sim.spec.cost_names.index(name)]

    def rows(self, table: str) -> np.ndarray:
        """Bank rows (B, T, F) that the steps met."""
        first = self.first.load_row if table == "load_rows" else self.first.price_row
        bank = np.asarray(getattr(self.sim.params.bank, table), np.float64)
        return bank[first.astype(int)[:, None] + np.arange(self.actions.shape[1])]

    def column(self, name: str) -> np.ndarray:
        """A column of the load table (B, T)."""
        return self.rows("load_rows")[..., self.sim.env.columns.at(name)]

    @property
    def price(self) -> np.ndarray:
        """(B, T) [$/MWh]."""
        return self.rows("price_rows")[..., 0]

    @property
    def lanes(self) -> np.ndarray:
        return np.arange(len(self.actions))


def lane_actions(sim: Sim, lanes: int) -> np.ndarray:
    """(B, T, A, U)."""
    shape = (lanes, sim.spec.horizon, sim.env.dims.agent, sim.env.dims.act)
    actions = np.random.default_rng(3).uniform(-1, 1, shape).astype(np.float32)
    kind = np.arange(lanes) % 8
    actions[kind == HIGH], actions[kind == LOW], actions[kind == IDLE] = 1, -1, np.nan
    actions[kind == JUMPING] = np.where(np.arange(shape[1]) % 2, -1, 1)[:, None, None]
    actions[kind == WILD] *= 1e6
    return actions


@jax.jit
def play(sim: Sim, keys: Array, actions: Array) -> Any:
    """Episodes without restarts: (first states, (states, reward, cost, info) with axes (T, B) in front)."""
    first, _ = jax.vmap(sim.init)(keys)

    def advance(state: Any, action: Array) -> Any:
        out = jax.vmap(sim.step)(state, action)
        return out.state, (bare(out.state), out.reward, out.cost, out.info)

    return bare(first), lax.scan(advance, first, jnp.swapaxes(actions, 0, 1))[1]


def bare(state: Any) -> Any:
    """A state without its key, which is no number."""
    return dataclasses.replace(state, key=state.t)


def host(tree: Any) -> Any:
    """NumPy leaves; numbers in float64."""
    return jax.tree.map(lambda x: np.asarray(x, np.float64 if x.dtype == jnp.float32 else None), tree)


@cache
def make(task: str) -> Sim:
    return powerzoo_jax.make(task)


@cache
def run(task: str, load_ratio: float | None = None) -> Played:
    """Play a task; one call of it alone where another load ratio is given. One program for both."""
    sim = make(task)
    calls = -(-STEPS // (sim.spec.horizon * LANES))
    if load_ratio is not None:
        ratio, calls = jnp.asarray(load_ratio, sim.params.load_ratio.dtype), 1
        sim = sim.replace(params=dataclasses.replace(sim.params, load_ratio=ratio))
    actions = lane_actions(sim, calls * LANES)
    keys = jax.random.split(jax.random.key(1), calls * LANES)
    parts = []
    for first in range(0, calls * LANES, LANES):
        chunk = slice(first, first + LANES)
        state, steps = host(play(sim, keys[chunk], jnp.asarray(actions[chunk])))
        parts.append((state, jax.tree.map(lambda x: np.swapaxes(x, 0, 1), steps)))
    state, steps = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
    return Played(sim, actions, state, *steps)


def before(first: np.ndarray, states: np.ndarray) -> np.ndarray:
    """A state's leaf before each step, (B, T, ...)."""
    return np.concatenate([first[:, None], states[:, :-1]], axis=1)


def stack(played: Played, kind: str) -> Any:
    """Parameters of one kind of device, as NumPy float64."""
    return host(getattr(played.sim.params, kind))
