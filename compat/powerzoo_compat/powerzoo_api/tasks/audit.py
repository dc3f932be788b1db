"""Contract checks, usable on any environment: a list of problems in sentences, empty when all is well."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from powerzoo_compat.powerzoo_api.benchmarks.policies import RandomPolicy
from powerzoo_compat.powerzoo_api.envs.info import SUMMARY
from powerzoo_compat.powerzoo_api.tasks.factory import PUBLIC_TASKS, make_task_env
from powerzoo_compat.powerzoo_api.tasks.multi_agent import ALL
from powerzoo_compat.powerzoo_api.tasks.splits import CALENDAR

TYPES: dict[type, str] = {
    bool: "is_safe pf_converged cost_exception is_diverged voltage_collapse",
    int: "pf_iterations episode_step step_within_day start_day_id delta_t_minutes",
    float: "cost_sum cost_thermal_overload cost_voltage_violation cost_resource p_slack_MW q_slack_MVAr pf_residual "
    "reward_usd reward_scale selected_cost_sum cost",
    str: "episode_day split",
    tuple: "constraint_names selected_constraint_names",
    dict: f"reward_components costs {SUMMARY}",
    np.ndarray: "constraint_costs selected_constraint_costs",
}
TYPE_OF = {key: kind for kind, keys in TYPES.items() for key in keys.split()}
TOTALS = ("costs", "l", "metrics", "r")  # of the episode so far
STATISTICS = "episode"  # what a statistics wrapper adds at the end of an episode
SEED = 0


def audit_info(info: dict[str, Any]) -> list[str]:
    """Problems of one info: keys, types, signs, sums, and values that are not finite."""
    found = [f"info lacks {key!r}" for key in TYPE_OF if key not in info]
    if found:
        return found
    found += [
        f"info[{key!r}] is {type(info[key]).__name__}, not {kind.__name__}"
        for key, kind in TYPE_OF.items()
        if type(info[key]) is not kind
    ]
    if tuple(sorted(info[SUMMARY])) != TOTALS:
        found.append(f"info[{SUMMARY!r}] holds {sorted(info[SUMMARY])}, not {list(TOTALS)}")
    costs = info["constraint_costs"]
    for name, cost in zip(info["constraint_names"], costs.tolist(), strict=True):
        if info.get(f"cost_{name}") != cost:
            found.append(f"info['cost_{name}'] is {info.get(f'cost_{name}')}, constraint_costs say {cost}")
    if not (np.all(np.isfinite(costs)) and np.all(costs >= 0)):
        found.append(f"constraint_costs {costs.tolist()} are not finite and non-negative")
    if not np.isclose(info["cost_sum"], costs.sum(), rtol=1e-6, atol=1e-6):
        found.append(f"cost_sum {info['cost_sum']} is not the sum {costs.sum()} of constraint_costs")
    scalars = (key for key, value in info.items() if isinstance(value, float) and not np.isfinite(value))
    return found + [f"info[{key!r}] is not finite" for key in scalars]


def audit_env(env: Any, steps: int | None = None) -> list[str]:
    """Problems of an environment played at random for `steps`, or to the end of its episode.

    Looks at spaces, field names, types of rewards and flags, and every info, whose keys stay the same.
    """
    multi = hasattr(env, "possible_agents")
    policy = RandomPolicy(env.action_spaces if multi else env.action_space, SEED)
    obs, info = env.reset(seed=SEED)
    found, count, done, keys = _seen(env, obs, info, multi), 0, False, _keys(info)
    while not done and count != steps:
        obs, rewards, terminated, truncated, info = env.step(policy.act(obs, info))
        found += _seen(env, obs, info, multi) + _ends(rewards, (terminated, truncated), multi)
        found += [] if _keys(info) == keys else ["the keys of info change between reset and step"]
        done = _over(terminated) or _over(truncated)
        count += 1
    return sorted(set(found))


def audit_task_env(name: str, split: str = "test", steps: int | None = None, **kwargs: Any) -> list[str]:
    """Problems of a task on a split; see `audit_env`."""
    return [f"{name} [{split}]: {problem}" for problem in audit_env(make_task_env(name, split, **kwargs), steps)]


def audit_task_collection(
    names: Iterable[str], splits: Iterable[str] = CALENDAR, steps: int | None = None
) -> list[str]:
    """Problems of several tasks on several splits."""
    splits = tuple(splits)
    return [problem for name in names for split in splits for problem in audit_task_env(name, split, steps)]


def audit_public_tasks(steps: int | None = None) -> list[str]:
    """Problems of all public tasks on train, val and test; without `steps` whole episodes are played."""
    return audit_task_collection(PUBLIC_TASKS, steps=steps)


def _seen(env: Any, obs: Any, info: Any, multi: bool) -> list[str]:
    if not multi:
        return _in_space("observation", env.observation_space, obs, env.get_observation_fields()) + audit_info(info)
    found = []
    if set(info) != set(env.possible_agents):
        found.append(f"infos are of {sorted(info)}, agents are {sorted(env.possible_agents)}")
    for agent in obs:
        fields = env.get_observation_fields(agent)
        found += _in_space(f"observation of {agent}", env.observation_spaces[agent], obs[agent], fields)
        found += audit_info(info[agent])
    return found


def _keys(told: Any) -> Any:
    """Keys of nested dicts, with nothing under them."""
    if not isinstance(told, dict):
        return None
    return {key: _keys(value) for key, value in told.items() if key != STATISTICS}


def _in_space(what: str, space: Any, values: Any, fields: tuple[str, ...]) -> list[str]:
    found = [] if space.contains(values) else [f"{what} lies outside its space"]
    entries = space.shape[0]
    return found + ([] if len(fields) == entries else [f"{what} has {entries} entries, {len(fields)} names"])


def _ends(rewards: Any, flags: tuple[Any, Any], multi: bool) -> list[str]:
    values = list(rewards.values()) if multi else [rewards]
    found = [f"a reward is {type(x).__name__}, not float" for x in values if type(x) is not float]
    for flag in flags:
        told = list(flag.values()) if multi else [flag]
        found += [f"a flag is {type(x).__name__}, not bool" for x in told if type(x) is not bool]
    return found


def _over(flag: Any) -> bool:
    if isinstance(flag, dict):
        return bool(flag[ALL]) if ALL in flag else any(flag.values())
    return bool(flag)
