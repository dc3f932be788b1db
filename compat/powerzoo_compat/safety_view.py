"""Safe reinforcement learning: six values a step, the cost beside the reward.

The scalar cost adds up shares of budgets, so that its limit is 1: see `powerzoo_jax.envs.constraint.budget_scales`.

Example:
    from powerzoo_compat.safety_view import make_safe_env
    env = make_safe_env("dc_microgrid_safe")
    obs, info = env.reset(seed=0)
    obs, reward, cost, terminated, truncated, info = env.step(env.action_space.sample())
    envs = make_safe_vec_env("dc_microgrid_safe", 256)  # the same in a batch
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import RecordConstructorArgs

from powerzoo_compat._apart import make
from powerzoo_compat._replay import ShowsEpisode
from powerzoo_compat.gymnasium_view import NAMESPACE
from powerzoo_compat.powerzoo_api.envs.constraint import SCALAR_LIMIT
from powerzoo_compat.powerzoo_api.envs.single_agent import SingleAgentEnv
from powerzoo_compat.powerzoo_api.envs.vector import TaskVectorEnv, make_vec_env
from powerzoo_compat.powerzoo_api.tasks.factory import DROP_IN
from powerzoo_compat.powerzoo_api.tasks.registration import with_id
from powerzoo_jax.envs.constraint import budget_scales


class SafeEnv(ShowsEpisode, gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """A single-agent task whose step returns six values.

    env:          the task, wrapped or not
    vector_cost:  return the channels that have a budget (C,) in their units instead of the sum of their shares

    cost_names, cost_thresholds:  of the channels, and what an episode may use of each
    cost_threshold:               limit of the scalar cost, 1: within it every budget holds
    """

    _runs_on = "env"

    def __init__(self, env: gymnasium.Env[Any, Any], *, vector_cost: bool = False) -> None:
        RecordConstructorArgs.__init__(self, vector_cost=vector_cost)  # of which Gymnasium rebuilds it
        super().__init__(env)
        task: SingleAgentEnv = env.unwrapped  # type: ignore[assignment]
        self.vector_cost = vector_cost
        self.cost_names = task.selected_constraint_names()
        self.cost_thresholds = task.cost_thresholds
        self.cost_threshold = SCALAR_LIMIT
        self._scales = budget_scales(self.cost_names, self.cost_thresholds)

    def step(self, action: Any) -> tuple[Any, float, Any, bool, bool, dict[str, Any]]:  # type: ignore[override]
        """Advance one step: (observation, reward, cost, terminated, truncated, info)."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        cost = np.array(info["selected_constraint_costs"])
        told = cost if self.vector_cost else float((cost / self._scales).sum())
        return obs, float(reward), told, terminated, truncated, info


class SafeVectorEnv(ShowsEpisode, gymnasium.vector.VectorWrapper):
    """A batch of a single-agent task whose step returns six values.

    envs:         lanes of one compiled program
    vector_cost:  return the channels that have a budget (B, C) in their units instead of the sum of their shares (B,)

    Attributes as those of `SafeEnv`. In the step that begins the next episode of a lane the cost of that lane is 0.
    """

    _runs_on = "env"
    env: TaskVectorEnv

    def __init__(self, envs: TaskVectorEnv, *, vector_cost: bool = False) -> None:
        super().__init__(envs)
        self.vector_cost = vector_cost
        self.cost_names = envs.selected_constraint_names()
        self.cost_thresholds, self.cost_threshold = envs.cost_thresholds, SCALAR_LIMIT
        self._scales = budget_scales(self.cost_names, self.cost_thresholds)

    def step(self, actions: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:  # type: ignore[override]
        """Advance every lane: (observations, rewards, costs, terminations, truncations, infos)."""
        obs, rewards, terminated, truncated, infos = self.env.step(actions)
        cost = np.stack([infos["costs"][name] for name in self.cost_names], axis=-1)
        if "final_info" in infos:  # of lanes whose next episode has begun in this step
            last = np.stack([infos["final_info"]["costs"][name] for name in self.cost_names], axis=-1)
            cost = np.where(infos["_final_info"][:, None], last, cost)
        told = cost if self.vector_cost else (cost / self._scales).sum(-1).astype(cost.dtype)
        return obs, rewards, told, terminated, truncated, infos


def make_safe_env(
    name: str,
    *,
    split: str | None = None,
    vector_cost: bool = False,
    unit_actions: bool = True,
    render_mode: str | None = None,
    **kwargs: Any,
) -> SafeEnv:
    """Build the six-value environment of a single-agent task; errors are those of `powerzoo_jax.make`.

    vector_cost:   return each channel that has a budget in its unit instead of the sum of their shares
    unit_actions:  take actions in [-1, 1] instead of the box of the contract
    kwargs:        task keywords
    """
    env = SingleAgentEnv(make(name, split=split, **kwargs), unit_actions=unit_actions, render_mode=render_mode)
    namespace = NAMESPACE if unit_actions else DROP_IN
    env = with_id(env, namespace, name, {"split": env._host.sim.spec.split, **kwargs})
    return SafeEnv(env, vector_cost=vector_cost)


def make_safe_vec_env(
    name: str, num_envs: int, *, split: str | None = None, vector_cost: bool = False, **kwargs: Any
) -> SafeVectorEnv:
    """Build the six-value batch of a single-agent task; errors are those of `powerzoo_jax.make`.

    vector_cost:  as for `make_safe_env`
    kwargs:       those of `vector_view.make_vec_env`: `autoreset_mode`, `unit_actions`, and task keywords
    """
    return SafeVectorEnv(make_vec_env(name, num_envs, split=split, **kwargs), vector_cost=vector_cost)
