"""Evaluation of any policy on any environment of the contract: whole episodes by seeds, as one JSON-ready record."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from powerzoo_compat.powerzoo_api.benchmarks.scores import joint_gain
from powerzoo_compat.powerzoo_api.envs.info import SUMMARY
from powerzoo_compat.powerzoo_api.envs.multi_agent import ALL
from powerzoo_compat.powerzoo_api.tasks.cards import EVALUATED
from powerzoo_compat.powerzoo_api.tasks.central import COMPETITIVE
from powerzoo_compat.powerzoo_api.tasks.factory import get_task_class, make_task
from powerzoo_jax.tasks import get_spec
from powerzoo_jax.tasks.score import dataset_hashes, summary

SIX = 6  # values of a step that returns the cost apart from the info


@dataclass
class Played:
    """Totals of one episode: reward (of the team, or of all rivals), length, costs by channel, failed solves."""

    reward: float = 0.0
    length: int = 0
    failures: int = 0
    costs: dict[str, float] = field(default_factory=dict)
    per_agent: dict[str, float] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)


def evaluate(
    policy: Any,
    env: Any,
    n_episodes: int = 10,
    seed_start: int = 0,
    verbose: bool = False,
    task_id: str | None = None,
    cost_threshold: float | None = None,
    cost_thresholds: Sequence[float] | None = None,
) -> dict[str, Any]:
    """Play whole episodes of seeds seed_start, seed_start + 1, ...; the same arguments give the same numbers.

    policy:           an object with `act(obs, info)` and perhaps `reset()`, or a function of the observation
    task_id:          names the task whose anchors give the normalised score; None takes the environment's own
    cost_threshold:   budget of the summed selected channels in place of theirs, but for budgets of zero; None takes
                      those of the channels
    cost_thresholds:  budgets of the selected channels; None takes the environment's
    On a market normalized_score is None and joint_gain the gain of all agents together; see
    `scores.normalized_score` for the score from their NashConv.
    Raises ValueError for less than one episode.
    """
    if n_episodes < 1:
        raise ValueError(f"n_episodes = {n_episodes} must be at least 1.")
    clock = time.perf_counter()
    played = []
    for k in range(n_episodes):
        played.append(play(policy, env, seed_start + k))
        if verbose:
            print(f"episode {k + 1}/{n_episodes}: reward {played[-1].reward:.4f}")
    seconds = time.perf_counter() - clock
    spec = spec_of(env)
    names = tuple(env.selected_constraint_names())
    budgets = tuple(env.cost_thresholds if cost_thresholds is None else cost_thresholds)
    record = _record(played, names, budgets, cost_threshold, seed_start)
    task = task_id or spec.id
    # anchors are those of the task as registered: with keywords changed they measure nothing
    same = task_id is not None or spec == get_spec(spec.id)
    # a gain, and what breaks a budget has none
    share = _gain(task, record["mean_reward"], spec.split) if same and record["feasible"] else None
    # the score of rivals is how near they are to an equilibrium, which their returns do not tell
    score = {"normalized_score": None, "joint_gain": share} if task in COMPETITIVE else {"normalized_score": share}
    return record | {
        **score,
        "steps_per_second": sum(p.length for p in played) / seconds,
        "task_id": task,
        "task_version": spec.version,
        "split": spec.split,
        "dataset_hashes": dataset_hashes(spec),
        "library_version": importlib.import_module("powerzoo_jax").__version__,
    }


def evaluate_task(
    policy: Any,
    task_name: str,
    override_n_episodes: int | None = None,
    override_seed: int | None = None,
    override_split: str | None = None,
    verbose: bool = False,
) -> dict[str, Any]:
    """Evaluate on the protocol of a task: its split, first seed and number of episodes; None overrides nothing.

    A policy with `bind` is bound to the environment that is made here.
    """
    name = get_task_class(task_name).name
    task = make_task(name, EVALUATED if override_split is None else override_split)
    protocol, env = task.eval_protocol, task.create_env()
    return evaluate(
        policy.bind(env) if hasattr(policy, "bind") else policy,
        env,
        protocol["n_episodes"] if override_n_episodes is None else override_n_episodes,
        protocol["seed_start"] if override_seed is None else override_seed,
        verbose,
        name,
    )


def play(policy: Any, env: Any, seed: int) -> Played:
    """Totals of one episode."""
    obs, info = env.reset(seed=seed)
    if hasattr(policy, "reset"):
        policy.reset()
    act: Callable[..., Any] = policy.act if hasattr(policy, "act") else lambda obs, info: policy(obs)
    spec, out, done = spec_of(env), Played(), False
    while not done:
        obs, reward, *rest = env.step(act(obs, info))
        terminated, truncated, info = rest[1:] if len(rest) + 2 == SIX else rest
        done = ended(terminated) or ended(truncated)
        rewards = reward if isinstance(reward, dict) else {}
        total = sum(rewards.values()) / (1 if spec.id in COMPETITIVE else max(len(rewards), 1)) if rewards else reward
        told = next(iter(info.values())) if rewards else info
        out.reward += float(total)
        out.length += 1
        out.failures += not told["pf_converged"]
        for name, cost in zip(told["constraint_names"], told["constraint_costs"], strict=True):
            out.costs[name] = out.costs.get(name, 0.0) + float(cost)
        for agent, value in rewards.items():
            out.per_agent[agent] = out.per_agent.get(agent, 0.0) + value
        out.metrics = told.get(SUMMARY, {}).get("metrics", out.metrics)
    return out


def _record(
    played: list[Played], names: tuple[str, ...], budgets: tuple[float, ...], total: float | None, seed: int
) -> dict[str, Any]:
    reward = np.array([p.reward for p in played])
    costs = np.array([[p.costs[name] for name in names] for p in played]).reshape(len(played), len(names))
    agents = list(played[0].per_agent)
    return summary(reward, costs, names, budgets, total=total, seed=seed) | {
        # channels are those that the caller selected, also where a budget is infinite
        "constraint_names": list(names),
        "cost_thresholds": dict(zip(names, map(float, budgets), strict=True)),
        "mean_ep_length": float(np.mean([p.length for p in played])),
        "episode_metrics": [p.metrics for p in played],
        "per_agent": {agent: float(np.mean([p.per_agent[agent] for p in played])) for agent in agents},
        "pf_failure_rate": float(np.mean([p.failures > 0 for p in played])),
        "seeds": list(range(seed, seed + len(played))),
    }


def _gain(task: str, mean: float, split: str) -> float | None:
    try:
        return joint_gain(task, mean, split)
    except (KeyError, ValueError):  # no anchors are shipped for this task or split, or they leave nothing to gain
        return None


def spec_of(env: Any) -> Any:
    """Specification of the task that an environment of the contract plays, wrapped or not."""
    inner = env.unwrapped
    inner = getattr(inner, "agents_env", getattr(inner, "_env", inner))
    return inner._host.sim.spec


def ended(flag: Any) -> bool:
    """True where a flag, or one of a dict by agent, tells of an end."""
    if isinstance(flag, dict):
        return bool(flag[ALL]) if ALL in flag else any(flag.values())
    return bool(flag)
