"""Gymnasium with actions in [-1, 1]; importing registers the ids `PowerZooJax/...`.

Example:
    import gymnasium
    import powerzoo_compat.gymnasium_view
    env = gymnasium.make("PowerZooJax/BatteryArbitrage-v1", split="train")
"""

from __future__ import annotations

from typing import Any

from powerzoo_compat._apart import make
from powerzoo_compat.powerzoo_api.envs.single_agent import SingleAgentEnv
from powerzoo_compat.powerzoo_api.tasks.registration import register_ids, with_id

NAMESPACE = "PowerZooJax"


def make_env(name: str, split: str | None = None, render_mode: str | None = None, **kwargs: Any) -> SingleAgentEnv:
    """Build the Gymnasium environment of a single-agent task; errors are those of `powerzoo_jax.make`.

    split:   None takes the task's default
    kwargs:  task keywords
    """
    env = SingleAgentEnv(make(name, split=split, **kwargs), unit_actions=True, render_mode=render_mode)
    return with_id(env, NAMESPACE, name, {"split": split, **kwargs})


register_ids(NAMESPACE, f"{__name__}:make_env", "powerzoo_compat.vector_view:make_vec_env")
