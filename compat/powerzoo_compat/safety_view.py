"""Safe reinforcement learning: six values a step, the cost beside the reward.

Example:
    from powerzoo_compat.safety_view import make_safe_env
    env = make_safe_env("dc_microgrid_safe")
    obs, info = env.reset(seed=0)
    obs, reward, cost, terminated, truncated, info = env.step(env.action_space.sample())
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from powerzoo_compat._apart import make
from powerzoo_compat.powerzoo_api.envs.single_agent import SingleAgentEnv


class SafeEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A single-agent task whose step returns six values.

    env:          the task
    vector_cost:  return the channels that have a budget (C,) instead of their sum

    `cost_names` and `cost_thresholds` say what the entries are and what an episode may use of each.
    """

    def __init__(self, env: SingleAgentEnv, *, vector_cost: bool = False) -> None:
        super().__init__(env)
        self.vector_cost = vector_cost
        self.cost_names = env.selected_constraint_names()
        self.cost_thresholds = env.cost_thresholds
        self.cost_threshold = env.cost_threshold

    def step(self, action: Any) -> tuple[Any, float, Any, bool, bool, dict[str, Any]]:  # type: ignore[override]
        """Advance one step: (observation, reward, cost, terminated, truncated, info)."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        cost = np.array(info["selected_constraint_costs"]) if self.vector_cost else info["cost"]
        return obs, float(reward), cost, terminated, truncated, info


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

    vector_cost:   return each channel that has a budget instead of their sum
    unit_actions:  take actions in [-1, 1] instead of the box of the contract
    kwargs:        task keywords
    """
    env = SingleAgentEnv(make(name, split=split, **kwargs), unit_actions=unit_actions, render_mode=render_mode)
    return SafeEnv(env, vector_cost=vector_cost)
