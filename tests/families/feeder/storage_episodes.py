"""Episodes of battery_arbitrage for the tests: few programs, each compiled once, whatever grid or load they run on."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

import powerzoo_jax
from powerzoo_jax.base import Step
from powerzoo_jax.envs import Sim

TASK = "battery_arbitrage"
HORIZON, DT_HOURS = 48, 0.5
POWER_MW, CAPACITY_MWH, ETA = 0.2, 0.5, np.sqrt(0.95)
SEED = 5


class Episodes(NamedTuple):
    """Played episodes on the host: a batch B of T steps, and the simulation they ran on.

    actions (B, T, A, U); state and obs0: of init; steps: Step with axes (B, T) in front
    """

    sim: Sim
    actions: np.ndarray
    state: Any
    obs0: np.ndarray
    steps: Step


@cache
def make(**keywords: Any) -> Sim:
    """A Sim that shares its program with every other of the same sizes: the spec, which is static, stays one."""
    sim = powerzoo_jax.make(TASK, **keywords)
    return sim.replace(spec=dataclasses.replace(sim.spec, case="any", overrides=()))


def with_load(sim: Sim, ratio: float) -> Sim:
    """The same feeder and solver under another load ratio, also one that no power flow can serve."""
    scaled = jnp.asarray(ratio, sim.params.load_ratio.dtype)
    return sim.replace(params=dataclasses.replace(sim.params, load_ratio=scaled))


def play_one(sim: Sim, key: Array, actions: Array) -> tuple[Any, Array, Step]:
    """One episode from init on given actions (T, A, U), without restarts."""
    state, obs = sim.init(key)

    def advance(state: Any, action: Array) -> tuple[Any, Step]:
        out = sim.step(state, action)
        return out.state, out

    return state, obs, lax.scan(advance, state, actions)[1]


@jax.jit
def play(sim: Sim, keys: Array, actions: Array) -> tuple[Any, Array, Step]:
    """A batch of episodes on one Sim."""
    return jax.vmap(lambda key, chosen: play_one(sim, key, chosen))(keys, actions)


def episode_keys(n: int, seed: int = SEED) -> Array:
    return jax.vmap(lambda k: jax.random.fold_in(jax.random.key(seed), k))(jnp.arange(n))


def test_actions(units: int = 1) -> np.ndarray:
    """(8, T, 1, U): four lanes at random, then full charge, full discharge, alternating beyond the limits, idle."""
    actions = np.random.default_rng(SEED).uniform(-1, 1, (8, HORIZON, 1, units))
    actions[4], actions[5], actions[7] = -1, 1, 0
    actions[6] = np.where(np.arange(HORIZON) % 2, -5, 5)[:, None, None]
    return actions


test_actions.__test__ = False  # type: ignore[attr-defined]


@cache
def run(sim_key: tuple[tuple[str, Any], ...] = (), ratio: float | None = None) -> Episodes:
    """Play `test_actions` on make(**dict(sim_key)), under another load ratio where one is given."""
    sim = make(**dict(sim_key))
    sim = sim if ratio is None else with_load(sim, ratio)
    actions = test_actions(sim.env.dims.unit).astype(sim.params.load_ratio.dtype)
    return on_host(sim, actions, play(sim, episode_keys(len(actions)), jnp.asarray(actions)))


def on_host(sim: Sim, actions: np.ndarray, played: tuple[Any, Array, Step]) -> Episodes:
    """Bring what `play` returned to the host, without the keys of the states."""
    state, obs0, steps = played
    state = dataclasses.replace(state, key=jax.random.key_data(state.key))
    steps = steps._replace(state=dataclasses.replace(steps.state, key=jnp.zeros(())))
    return Episodes(sim, actions, *jax.tree.map(np.asarray, (state, obs0, steps)))


def rows_of(episodes: Episodes, table: str, ahead: int = 0) -> np.ndarray:
    """Bank rows (B, T, F) in float64 that the steps of the episodes read, or `ahead` rows later, inside the horizon."""
    first = episodes.state.load_row if table == "load_rows" else episodes.state.price_row
    steps = np.minimum(np.arange(episodes.actions.shape[1]) + ahead, episodes.actions.shape[1] - 1)
    bank = np.asarray(getattr(episodes.sim.params.bank, table), np.float64)
    return bank[first[:, None] + steps]


def load_mw(episodes: Episodes) -> np.ndarray:
    """Feeder load (B, T) [MW] in float64."""
    params = episodes.sim.params
    return rows_of(episodes, "load_rows")[..., 0] * float(params.load_ratio) * float(params.load_mw)
