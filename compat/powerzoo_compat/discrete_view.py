"""Gymnasium with discrete actions and masks of those that the devices or the rules of commitment allow.

Example:
    from powerzoo_compat.discrete_view import make_discrete_env
    env = make_discrete_env("battery_arbitrage", levels=5)
    obs, info = env.reset(seed=0)
    obs, reward, terminated, truncated, info = env.step(env.action_space.sample(env.action_masks().astype("int8")))

`action_masks()` is what MaskablePPO of sb3-contrib asks for. Masks of units bind where minimum times do, for instance
in make_discrete_env("marl_uc").
"""

from __future__ import annotations

import itertools
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete, MultiDiscrete
from gymnasium.utils import RecordConstructorArgs

from powerzoo_compat._apart import make
from powerzoo_compat._host import RESOURCE
from powerzoo_compat._replay import ShowsEpisode
from powerzoo_compat.powerzoo_api.envs.multi_agent import MultiAgentTaskEnv
from powerzoo_compat.powerzoo_api.envs.single_agent import SingleAgentEnv
from powerzoo_compat.powerzoo_api.tasks.central import CentralisedEnv, pooling_of
from powerzoo_compat.powerzoo_api.tasks.factory import DROP_IN
from powerzoo_compat.powerzoo_api.tasks.registration import with_id

LEAST_LEVELS = 2
ROUNDING = 1e-5  # of a device's rating: what it can follow is told in float32
OFF_AND_ON = 2  # entries of a unit's commitment in an action and in its mask


class DiscreteEnv(ShowsEpisode, gymnasium.ActionWrapper[Any, Any, Any], RecordConstructorArgs):
    """A task whose actions are levels, with one agent for all entries.

    env:     the task, wrapped or not; several agents are joined, in their order
    levels:  of every entry, evenly from its least to its greatest value; of a unit with commitment, 0 is off and
             k = 1 ... levels is on with score k / levels

    The space is Discrete for one entry and MultiDiscrete for several.
    Raises ValueError for fewer than two levels, or one of a unit with commitment.
    """

    _runs_on = "env"

    def __init__(self, env: gymnasium.Env[Any, Any], levels: int) -> None:
        RecordConstructorArgs.__init__(self, levels=levels)  # of which Gymnasium rebuilds it
        super().__init__(env)
        task: SingleAgentEnv | CentralisedEnv = env.unwrapped  # type: ignore[assignment]
        host = task._host if isinstance(task, SingleAgentEnv) else task.agents_env._host
        self._host, self._joined = host, isinstance(task, CentralisedEnv)
        self._commits = bool(getattr(host.sim.env, "commitment", False))
        if levels < LEAST_LEVELS - self._commits:
            raise ValueError(f"levels = {levels} must be at least {LEAST_LEVELS - self._commits}.")
        self.levels = levels
        entries = env.action_space.shape[0] // (OFF_AND_ON if self._commits else 1)  # type: ignore[index]
        self._options = levels + self._commits
        several = entries > 1
        self.action_space = MultiDiscrete([self._options] * entries) if several else Discrete(self._options)
        self._values = np.linspace(env.action_space.low, env.action_space.high, levels, axis=-1)  # type: ignore[attr-defined]
        self._trials = None if self._commits or RESOURCE not in host.sim.spec.cost_names else self._tried()

    def action(self, action: Any) -> np.ndarray:
        """Levels as the task's action, float32; ValueError for what the space does not contain."""
        given = np.asarray(action)
        if not self.action_space.contains(given.astype(np.int64) if given.dtype.kind in "iu" else action):
            raise ValueError(f"action {action!r} is not in {self.action_space}. Give whole numbers from 0.")
        chosen = np.atleast_1d(given)
        if not self._commits:
            return np.take_along_axis(self._values, chosen[:, None], axis=-1)[:, 0].astype(np.float32)
        score, on = chosen / self.levels, (chosen > 0).astype(float)
        if self._joined:
            return np.stack([score, on], axis=-1).reshape(-1).astype(np.float32)
        # one operator: first the commitment of all units, then their scores, both from -1 to 1
        return (2 * np.concatenate([on, score]) - 1).astype(np.float32)

    def action_masks(self) -> np.ndarray:
        """Levels that can be followed next, one entry's after another's, bool; no entry has none.

        A level is masked where its device could not follow it, one of a unit where its minimum times forbid it. Two
        entries may share a limit, as active and reactive power of an inverter do: a level of the later one is allowed
        where it can be followed beside every allowed level of the earlier one. The level nearest to idle is never
        masked. Raises RuntimeError before the first reset.
        """
        if not self._host.started:
            raise RuntimeError("action_masks() was called before reset(). Call env.reset(seed=...) first.")
        if self._commits:
            legal = np.asarray(self._host.legal).reshape(-1, OFF_AND_ON)
            return np.concatenate([legal[:, :1], np.repeat(legal[:, 1:], self.levels, axis=1)], axis=1).reshape(-1)
        if self._trials is None:
            return np.ones(self._values.size, bool)
        entries, levels = self._values.shape
        least = ROUNDING * np.abs(self._values).max(axis=1)  # [MW] of each entry
        missed = self._host.trial_costs(self._trials)
        single, pairs = missed[: entries * levels].reshape(entries, levels), missed[entries * levels :]
        allowed = single <= least[:, None]
        idle = np.abs(self._values).argmin(axis=1)
        for (early, late), both in zip(self._pairs, pairs.reshape(-1, levels, levels), strict=True):
            # nothing to choose would leave a policy's softmax dividing by zero
            allowed[early, idle[early]] = True
            allowed[late] &= (both[allowed[early]] <= least[early] + least[late]).all(axis=0)
        allowed[np.arange(entries), idle] = True
        return allowed.reshape(-1)

    def _tried(self) -> np.ndarray:
        """Actions (N, A, U) in [-1, 1] that masks are made of: each level of each entry alone, then pairs of levels.

        Pairs are those of two entries of one agent; all other entries leave their devices alone.
        """
        agents = [agent for agent, box in enumerate(self._host.boxes) for _ in range(box.shape[0])]
        first = [agents.index(agent) for agent in agents]
        self._pairs = [(e, f) for e, f in itertools.combinations(range(len(agents)), 2) if agents[e] == agents[f]]
        dims = self._host.sim.env.dims
        scaled = np.linspace(-1, 1, self.levels, dtype=np.float32)
        tried = []
        for entries in (*((e,) for e in range(len(agents))), *self._pairs):
            for chosen in itertools.product(scaled, repeat=len(entries)):
                action = np.full((dims.agent, dims.act), np.nan, np.float32)
                for entry, value in zip(entries, chosen, strict=True):
                    action[agents[entry], entry - first[entry]] = value
                tried.append(action)
        return np.stack(tried)


def make_discrete_env(
    name: str, *, levels: int = 5, split: str | None = None, render_mode: str | None = None, **kwargs: Any
) -> DiscreteEnv:
    """Build a task with discrete actions; errors are those of `DiscreteEnv` and `powerzoo_jax.make`.

    kwargs:  task keywords, and `version`
    """
    sim = make(name, split=split, **kwargs)
    if len(sim.spec.agents) == 1:
        env: SingleAgentEnv | CentralisedEnv = SingleAgentEnv(sim, render_mode=render_mode)
    else:
        agents = MultiAgentTaskEnv(sim, render_mode=render_mode)
        env = CentralisedEnv(agents, pooling_of(name))
    return DiscreteEnv(with_id(env, DROP_IN, name, {"split": sim.spec.split, **kwargs}), levels)
