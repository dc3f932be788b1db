"""Tasks as Gymnasium's VectorEnv, several agents joined: all environments of a batch are lanes of one program."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from jax import Array

from powerzoo_compat._apart import make, refuse_forked
from powerzoo_compat._host import Host, NamedBox, checked_values, of_one_agent, seed_key, starting_at, to_unit
from powerzoo_compat._replay import ShowsEpisode
from powerzoo_compat._seeds import checked_seed
from powerzoo_compat._tape import EpisodeTape, Take
from powerzoo_compat.powerzoo_api.envs.base import fresh
from powerzoo_compat.powerzoo_api.envs.episode import SEED_BOUND
from powerzoo_jax.base import Purpose, purpose_key
from powerzoo_jax.base.errors import unknown
from powerzoo_jax.base.tree import where_done
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.series import draw_episode

RESET_MASK = "reset_mask"  # option of Gymnasium's vector environments
SUM, MEAN = "sum", "mean"
POOLING: dict[str, Callable[..., Any]] = {SUM: np.sum, MEAN: np.mean}
MODES = (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED)


def _begin(env: Any, params: Any, key: Array, day: Array, soc_low: Array, soc_high: Array) -> Any:
    drawn = draw_episode(key, starting_at(params.starts, day), soc_low, soc_high)
    return env.begin(key, drawn, params)


@functools.partial(jax.jit, static_argnums=0)
def open_lanes(env: Any, params: Any, keys: Array, day: Array, soc_low: Array, soc_high: Array) -> Any:
    """Start an episode in every lane: (states, obs (B, A, O))."""
    return jax.vmap(lambda key: _begin(env, params, key, day, soc_low, soc_high))(keys)


@functools.partial(jax.jit, static_argnums=0)
def restart_lanes(
    env: Any, params: Any, keys: Array, ended: Array, states: Any, obs: Array, soc_low: Array, soc_high: Array
) -> Any:
    """Start the next episode where `ended` (B,): (keys, states, obs)."""
    following = jax.vmap(lambda key: purpose_key(key, Purpose.NEXT_EPISODE))(keys)
    keys = jnp.where(ended, following, keys)
    # every lane begins an episode and the ended ones keep it: one program of fixed shape, without a branch a lane
    begun = jax.vmap(lambda key: _begin(env, params, key, jnp.int32(-1), soc_low, soc_high))(keys)
    return keys, *where_done(ended, begun, (states, obs))


@functools.partial(jax.jit, static_argnums=0)
def reopen_lanes(
    env: Any,
    params: Any,
    keys: Array,
    day: Array,
    soc_low: Array,
    soc_high: Array,
    chosen: Array,
    states: Any,
    obs: Array,
) -> Any:
    """Start an episode in the lanes `chosen` (B,) and leave the others as they are: (states, obs (B, A, O))."""
    return where_done(chosen, open_lanes(env, params, keys, day, soc_low, soc_high), (states, obs))


@functools.partial(jax.jit, static_argnums=0)
def step_lanes(env: Any, params: Any, states: Any, actions: Array) -> Any:
    """One step of every lane: (states, (obs, reward, cost, terminated, truncated))."""
    out = jax.vmap(lambda state, action: env.step(state, action, params))(states, actions)
    return out.state, (out.obs, out.reward, out.cost, out.info.terminated, out.info.truncated)


class TaskVectorEnv(ShowsEpisode, VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """Vector environment of a task, whose lanes share one program.

    sim:             the task, from `powerzoo_jax.make`
    num_envs:        lanes
    autoreset_mode:  NEXT_STEP (the step after an end ignores its action and returns the first observation of the next
                     episode, reward 0), SAME_STEP (that observation comes at once, the last one as infos["final_obs"],
                     with the infos of the step in infos["final_info"]), or DISABLED (the caller resets what has ended,
                     options={"reset_mask": ended})
    unit_actions:    take actions in [-1, 1] instead of the box of the contract
    pooling:         "mean" or "sum" of the agents' rewards joins several agents: observations and actions one after
                     another, as the single environment `make_central_env` has them

    Lane i of `reset(seed=s)` is the environment of seed s + i. infos hold "cost" (B,), the sum of the channels with a
    budget, "costs" {name: (B,)} of each of them, "episode_costs" {name: (B,)} since the start of the lane's episode,
    and "constraint_costs" (B, C) in the order of `constraint_names`.

    cost_thresholds:  budgets of the channels `selected_constraint_names()`, per episode
    Raises ValueError for a task of several agents without a pooling, no lanes, or an unknown mode or pooling.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}  # type: ignore[misc]
    _moving: ClassVar[tuple[str, ...]] = (
        *("_keys", "_obs", "_states", "_ended", "_used", "_tape", "_np_random", "_np_random_seed"),
    )

    def __init__(
        self,
        sim: Sim,
        num_envs: int,
        *,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        unit_actions: bool = True,
        render_mode: str | None = None,
        pooling: str | None = None,
    ) -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs = {num_envs} must be at least 1.")
        if render_mode is not None:
            raise ValueError(f"render_mode = {render_mode!r}: a batch of environments has no picture. Give None.")
        self._mode = _mode(autoreset_mode)
        self.metadata = {**type(self).metadata, "autoreset_mode": self._mode}  # type: ignore[misc]
        self.num_envs = num_envs
        if pooling is not None and pooling not in POOLING:
            raise ValueError(unknown("pooling", pooling, POOLING))
        self._host = Host(sim if pooling else of_one_agent(sim), unit_actions=unit_actions)
        self._pool = POOLING[pooling or MEAN]
        self.single_observation_space, self._joined_box = joined_spaces(self._host)
        self.single_action_space = self._joined_box
        widths = [box.shape[0] for box in self._host.boxes]
        # agent and entry of each number of a joined action
        self._places = np.repeat(np.arange(len(widths)), widths), np.concatenate([np.arange(n) for n in widths])
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.constraint_names = sim.spec.cost_names
        self._selected = np.isfinite(np.asarray(sim.spec.cost_budget))
        self.cost_thresholds = tuple(float(x) for x in np.asarray(sim.spec.cost_budget)[self._selected])
        self._used = np.zeros((num_envs, len(self.cost_thresholds)))  # of the budgets, since the episode began
        self._keys: Array | None = None
        self._obs: Any = None  # (B, A, O) last observations
        self._states: Any = None
        self._ended = np.zeros(num_envs, bool)
        self._tape = EpisodeTape(sim.spec.horizon)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode in every lane: (observations (B, O), infos).

        seed:     of the first lane, or one a lane, None there or for all continues a stream
        options:  as those of the single environment, for all lanes; and "reset_mask" (B,): lanes to reset, the others
                  go on and their row of the observations is their last one
        Raises ValueError for a negative seed, another number of seeds than lanes or a mask without a lane, TypeError
        for a seed that is no integer or a mask that is no array of booleans.
        """
        refuse_forked()
        options = dict(options or {})
        chosen = self._masked(options.pop(RESET_MASK, None))
        choice = self._host.choice(options)
        keys = self._next_keys(self._seeds(seed))
        self._keys = keys if self._keys is None else jnp.where(chosen, keys, self._keys)
        super().reset(seed=seed if isinstance(seed, int) else None)
        env, params = self._host.sim.env, self._host.live.params
        start = env, params, self._keys, np.int32(choice.day), choice.soc_low, choice.soc_high
        if chosen.all():
            self._states, obs = open_lanes(*start)
        else:
            self._states, obs = reopen_lanes(*start, chosen, self._states, self._obs)
        self._ended, self._used = self._ended & ~chosen, np.where(chosen[:, None], 0.0, self._used)
        if chosen[0]:
            self._tape.begin(self._keys, choice)
        self._obs = jax.device_get(obs)
        return self._joined(self._obs), {}

    def selected_constraint_names(self) -> tuple[str, ...]:
        """Names of the channels that have a budget, in the order of `cost_thresholds`."""
        return tuple(itertools.compress(self.constraint_names, self._selected))

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Advance every lane: observations (B, O), rewards (B,), terminations, truncations (B,) and infos.

        Raises RuntimeError before the first reset, or with DISABLED where a lane has ended; ValueError for a wrong
        shape or a NaN.
        """
        if self._states is None:
            raise RuntimeError("step() was called before reset(). Call envs.reset(seed=...) first.")
        if self._mode == AutoresetMode.DISABLED and self._ended.any():
            raise RuntimeError(
                f"the episodes of lanes {np.flatnonzero(self._ended).tolist()} have ended, and autoreset_mode is "
                f"DISABLED. Reset them: envs.reset(options={{{RESET_MASK!r}: terminations | truncations}})."
            )
        env, params = self._host.sim.env, self._host.live.params
        lately = self._ended
        kernel = self._kernel(actions)
        self._tape.keep(kernel[0].copy())
        self._states, out = step_lanes(env, params, self._states, kernel)
        obs, reward, cost, terminated, truncated = jax.device_get(out)
        ended, cost = terminated | truncated, np.array(cost)
        if self._mode == AutoresetMode.NEXT_STEP:
            cost[lately] = 0.0  # their step is the start of an episode
        self._used = np.where(lately[:, None], 0.0, self._used) + cost[:, self._selected]
        infos = self._named(cost, self._used)
        reward = fresh(reward[:, 0] if reward.shape[1] == 1 else self._pool(reward.astype(float), axis=1))
        if self._mode == AutoresetMode.NEXT_STEP and lately.any():
            obs = self._restart(lately, obs)
            reward[lately], ended = 0.0, ended & ~lately
            terminated, truncated = terminated & ended, truncated & ended
        elif self._mode == AutoresetMode.SAME_STEP and ended.any():
            infos["final_info"], infos["final_obs"] = infos.copy(), _by_lane(self._joined(obs), ended)
            began = np.where(ended[:, None], 0.0, cost)
            infos["_final_obs"] = infos["_final_info"] = ended.copy()
            obs = self._restart(ended, obs)
            self._used[ended] = 0.0
            # as Gymnasium has it: what an ended lane tells now is the start of its next episode
            infos |= self._named(began, self._used)
            ended = np.zeros_like(ended)
        self._ended, self._obs = ended, obs
        return self._joined(obs), reward, np.array(terminated), np.array(truncated), infos

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._host.summary}, {self.num_envs} lanes)"

    def _restart(self, ended: np.ndarray, obs: np.ndarray) -> np.ndarray:
        """Begin the next episode where `ended`; returns the observations (B, A, O) of all lanes."""
        choice = self._host.choice(None)
        env, params = self._host.sim.env, self._host.live.params
        self._keys, self._states, obs = restart_lanes(
            env, params, self._keys, ended, self._states, obs, choice.soc_low, choice.soc_high
        )
        if ended[0]:
            self._tape.begin(self._keys, choice)
        return jax.device_get(obs)  # type: ignore[no-any-return]

    def _taped(self) -> tuple[Host, Take | None]:
        """The first lane stands for the batch."""
        take = self._tape.shown()
        return self._host, None if take is None else take._replace(key=take.key[0])

    def _seeds(self, seed: int | Sequence[int | None] | None) -> Sequence[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if not isinstance(seed, Sequence | np.ndarray):
            first = checked_seed(seed)
            return [first + k for k in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise ValueError(f"seed holds {len(seed)} values for {self.num_envs} environments. Give one, or one each.")
        return seed

    def _named(self, cost: np.ndarray, used: np.ndarray) -> dict[str, Any]:
        """Infos of the costs of a step (B, C), and of the budgets used since the episode began (B, S)."""
        chosen, names = cost[:, self._selected], self.selected_constraint_names()
        return {
            "cost": fresh(chosen.sum(1)),
            "costs": dict(zip(names, fresh(chosen.T), strict=True)),
            "episode_costs": dict(zip(names, fresh(used.T), strict=True)),
            "constraint_costs": fresh(cost),
        }

    def _masked(self, mask: Any) -> np.ndarray:
        """Lanes to reset (B,); all before the first reset and without a mask."""
        if mask is None:
            return np.ones(self.num_envs, bool)
        if not isinstance(mask, np.ndarray) or mask.dtype != bool:
            raise TypeError(f"reset option {RESET_MASK!r} must be a NumPy array of booleans, got {mask!r}.")
        if mask.shape != (self.num_envs,) or not mask.any():
            raise ValueError(
                f"reset option {RESET_MASK!r} has shape {mask.shape} and {int(mask.sum())} lanes to reset: it must "
                f"have {(self.num_envs,)} and at least one."
            )
        return mask if self._states is not None else np.ones_like(mask)

    def _next_keys(self, seeds: Sequence[int | None]) -> Array:
        """Keys of the next episodes (B,): of their seeds, or the next ones of the streams."""
        if self._keys is None:
            drawn = np.random.default_rng().integers(SEED_BOUND, size=self.num_envs).tolist()
            seeds = [new if seed is None else seed for seed, new in zip(seeds, drawn, strict=True)]
            return jnp.stack([seed_key(seed) for seed in seeds if seed is not None])
        following = jax.vmap(lambda key: purpose_key(key, Purpose.NEXT_EPISODE))(self._keys)
        if all(seed is None for seed in seeds):
            return following
        return jnp.stack([following[k] if seed is None else seed_key(seed) for k, seed in enumerate(seeds)])

    def _joined(self, obs: np.ndarray) -> np.ndarray:
        """Observations (B, A, O) one agent after another."""
        return fresh(obs.reshape(self.num_envs, -1))

    def _kernel(self, actions: Any) -> np.ndarray:
        """Actions as (B, A, U) in [-1, 1]; padding is NaN."""
        dims = self._host.sim.env.dims
        values = to_unit(checked_values(actions, self.action_space), self._joined_box)
        if values.shape[1] == dims.agent * dims.act:
            return values.reshape(self.num_envs, dims.agent, dims.act)
        kernel = np.full((self.num_envs, dims.agent, dims.act), np.nan, np.float32)
        kernel[:, *self._places] = values
        return kernel


def joined_spaces(host: Host) -> tuple[NamedBox, gymnasium.spaces.Box]:
    """Observation and action space of all agents together, one after another."""
    agents, fields = host.sim.spec.agents, host.sim.env.fields.names
    if len(agents) == 1:
        return host.observation_box(), host.boxes[0]
    seen = [host.observation_box(agent) for agent in range(len(agents))]
    (seen_low, seen_high), (low, high) = (
        (np.concatenate([box.low for box in boxes]), np.concatenate([box.high for box in boxes]))
        for boxes in (seen, host.boxes)
    )
    names = tuple(f"{agent}/{field}" for agent in agents for field in fields)
    return NamedBox(seen_low, seen_high, names), gymnasium.spaces.Box(low, high)


def _mode(given: AutoresetMode | str) -> AutoresetMode:
    names = {mode.value: mode for mode in MODES}
    if given in MODES:
        return AutoresetMode(given)
    if given not in names:
        raise ValueError(unknown("autoreset_mode", str(given), names))
    return names[str(given)]


def _by_lane(values: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """An array of objects with a row where chosen, else None."""
    out = np.full(len(values), None, dtype=object)
    for lane in np.flatnonzero(chosen):
        out[lane] = values[lane].copy()
    return out


def make_vec_env(
    name: str, num_envs: int, *, split: str | None = None, unit_actions: bool = True, **kwargs: Any
) -> TaskVectorEnv:
    """Build the vector environment of a task; errors are those of `powerzoo_jax.make` and `TaskVectorEnv`.

    kwargs:  `autoreset_mode`, `pooling`, which several agents need, and task keywords
    """
    modes = {key: kwargs.pop(key) for key in ("autoreset_mode", "render_mode", "pooling") if key in kwargs}
    return TaskVectorEnv(make(name, split=split, **kwargs), num_envs, unit_actions=unit_actions, **modes)
