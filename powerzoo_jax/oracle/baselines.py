"""Reference policies of any task: random, idle, and those of its baselines by name."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.tree_util import Partial

from powerzoo_jax.base import Box
from powerzoo_jax.base.errors import unknown
from powerzoo_jax.base.random import integers, uniform_between
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.episode import Act
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.oracle.clock_plan import load_trivial, trivial_policy
from powerzoo_jax.oracle.registry import Baselines, Policy, get_baselines, get_causal, has_causal, version_key
from powerzoo_jax.tasks.score import SEED, Evaluation, all_starts, episode_keys, evaluate, seeded_starts

RANDOM, RULE, CAUSAL, TRIVIAL = "random", "rule", "causal", "trivial"
ORACLE, BEST = "oracle", "best"  # the second is what tables call the best plans known
BASELINES = (RANDOM, "no_control", RULE, ORACLE)


def random_act(sim: Sim) -> Act:
    """Uniform over the action space, legal or not."""
    space = sim.spaces()[1]
    if not isinstance(space, Box):
        return Partial(_chosen, jnp.asarray(getattr(space, "nvec", getattr(space, "n", 1))))
    return Partial(_uniform, jnp.asarray(space.low), jnp.asarray(space.high))


def _uniform(low: Array, high: Array, carry: Any, obs: Array, key: Array) -> tuple[Any, Array]:
    del obs
    return carry, uniform_between(key, low.shape, low, high, low.dtype)


def _chosen(counts: Array, carry: Any, obs: Array, key: Array) -> tuple[Any, Array]:
    del obs
    return carry, integers(key, counts.shape, 0, counts)


def idle_act(sim: Sim) -> Act:
    """Leave every device alone: no power from storage, nothing curtailed, shed or deferred."""
    return Partial(_constant, jnp.asarray(idle_action(sim)))


def idle_action(sim: Sim) -> np.ndarray:
    """The action (A, U) that leaves every device alone; the first option of a discrete space."""
    space = sim.spaces()[1]
    if not isinstance(space, Box):
        return np.zeros(np.shape(getattr(space, "nvec", 0)), np.int32)
    action = np.zeros(space.shape, space.low.dtype)
    layout = getattr(sim.env, "layout", None)
    if layout is not None:
        for block in layout.table.blocks:
            low, high = np.asarray(block.low), np.asarray(block.high)
            kernel, width = (np.asarray(block.idle) - (high + low) / 2) / ((high - low) / 2), len(block.names)
            for unit, first in zip(block.units, block.first, strict=True):
                row, column = (unit, 0) if layout.per_device else (0, first)
                action[row, column : column + width] = kernel
    return action


def _constant(action: Array, carry: Any, obs: Array, key: Array) -> tuple[Any, Array]:
    del obs, key
    return carry, action


def evaluate_baseline(
    sim: Sim, name: str, *, n_episodes: int | None = None, seed: int = SEED, draws: Draw | None = None, **arguments: Any
) -> Evaluation:
    """Evaluate "random", "no_control", "rule", "oracle" or another policy of the task's baselines.

    "best", as tables name the best plans known, is the oracle: it keeps the limits of every episode by itself, and may
    return a little less than a table's best, which keeps budgets on average over the episodes.
    Beside them "causal" is its planner without foresight, see `get_causal`, and "trivial" the best policy that looks at
    no observation, see `oracle.trivial`.

    The episodes are those that `evaluate` would play with the same arguments.
    Raises ValueError for another name, or a task without baselines.

    Example:
        record = evaluate_baseline(powerzoo_jax.make("battery_arbitrage", split="test"), "oracle")
    """
    _require_baseline(sim, name)
    if draws is None:
        draws = all_starts(sim) if n_episodes is None else seeded_starts(sim, n_episodes, seed)
    policy = baseline_policy(sim, name, draws, episode_keys(seed, draws.load_row.shape[0]))
    return evaluate(sim, policy.act, draws=draws, seed=seed, carry=policy.carry, **arguments)


def baseline_policy(sim: Sim, name: str, draws: Draw, keys: Array) -> Policy:
    """Baseline of a task for drawn episodes: an Act, and its carry with leading axis B.

    name:   as in `evaluate_baseline`, which plays the policy; errors likewise
    draws:  Draw with leading axis B
    keys:   (B,) one PRNG key an episode [-]
    """
    baselines = _require_baseline(sim, name)
    if name == "random":
        return Policy(random_act(sim))
    if name in (ORACLE, BEST):
        return baselines.oracle(sim, draws, keys).policy
    if name == CAUSAL:
        return get_causal(sim.spec.id)(sim, draws, keys)
    if name == TRIVIAL:
        return trivial_policy(sim, draws)
    return baselines.rules[name](sim, draws, keys)


def _require_baseline(sim: Sim, name: str) -> Baselines:
    """Baselines of a task, where one of them has the name."""
    baselines = get_baselines(sim.spec.id)
    known = policy_names(sim.spec.id)
    if name not in (*known, CAUSAL, TRIVIAL, BEST):  # those of them that a task lacks say how to make them
        raise ValueError(unknown("baseline", name, (*known, BEST)))
    return baselines


def policy_names(task_id: str) -> tuple[str, ...]:
    """Names that `evaluate_baseline` plays on a task: its baselines, and a planner or a trivial policy it has."""
    extra = [CAUSAL] if has_causal(task_id) else []
    if version_key(task_id) in load_trivial().get(task_id, ()):
        extra.append(TRIVIAL)
    return (*get_baselines(task_id).names, *extra)


def action_box(sim: Sim) -> Box:
    """Space of actions (A, U); raises ValueError for a discrete one."""
    space = sim.spaces()[1]
    if not isinstance(space, Box):
        raise ValueError(f"task {sim.spec.id!r} has a discrete action space; these policies command powers.")
    return space
