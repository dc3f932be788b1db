"""Description of a task for a reader or a program."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from powerzoo_compat.powerzoo_api.rl.config import RLConfig
from powerzoo_compat.powerzoo_api.tasks.catalog import MULTI
from powerzoo_compat.powerzoo_api.tasks.factory import get_task_info, make_task_env
from powerzoo_jax.base.errors import unknown

FORMATS = ("dict", "json")


def info(task: str, format: str = "dict") -> Any:
    """Card of a task with the spaces of its environment and a configuration to start from; a dict, or JSON text.

    Raises ValueError for an unknown task or format.
    """
    if format not in FORMATS:
        raise ValueError(unknown("format", format, FORMATS))
    card = get_task_info(task)
    env = make_task_env(card["task_id"])
    if card["agent_mode"] == MULTI:
        seen, done = ({a: _box(s) for a, s in spaces.items()} for spaces in (env.observation_spaces, env.action_spaces))
    else:
        seen, done = _box(env.observation_space), _box(env.action_space)
    told = card | {
        "observation_space": seen,
        "action_space": done,
        "observation_fields": list(env.get_observation_fields()),
        "reward": card["reward_contract"],
        "cost": card["cost_contract"],
        "config_template": RLConfig(task_name=card["task_id"], algorithm="PPO").to_dict(),
    }
    return json.dumps(told, indent=2) if format == "json" else told


def describe(task: str) -> str:
    """Text that describes a task: subject, agents, spaces, fields, budgets and reference scores."""
    told = info(task)
    budgets = told["cost_thresholds"]
    lines = [
        f"{told['task_id']} (version {told['version']}): {told['description']}",
        f"case {told['grid_case']}, {told['default_episode_horizon_steps']} steps of {told['delta_t_minutes']} min, "
        f"agents: {', '.join(told['agents'])}",
        f"splits: {', '.join(told['splits'])}",
        f"reward [{told['reward_unit']}]: {told['reward_contract']}",
        "budgets an episode: "
        + (", ".join(f"{n} {b:g} {told['constraint_units'][n]}" for n, b in budgets.items()) or "none"),
        f"observation ({len(told['observation_fields'])}): {', '.join(told['observation_fields'])}",
        told["action_contract"],
    ]
    for split, scores in told["baselines"]["scores"].items():
        lines.append(f"returns on {split}: " + ", ".join(f"{name} {x:.4g}" for name, x in scores.items()))
    return "\n".join(lines)


def _box(space: Any) -> dict[str, Any]:
    return {
        "type": "Box",
        "shape": list(space.shape),
        "dtype": str(space.dtype),
        "low": float(np.min(space.low)),
        "high": float(np.max(space.high)),
    }
