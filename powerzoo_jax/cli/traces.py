"""Traces of policies on the command line: baselines by name and trained ones, on the same episodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from powerzoo_jax.base.tree import take
from powerzoo_jax.envs import Sim, Trace, save_traces, trace_episode
from powerzoo_jax.envs.episode import Act
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.oracle import Policy, baseline_policy
from powerzoo_jax.tasks.score import all_starts, episode_keys, seeded_starts


def chosen_starts(sim: Sim, n_episodes: int | None, seed: int) -> Draw:
    """Starts of the episodes that are traced: as many seeded ones as asked for, else the first of the split."""
    return take(all_starts(sim), slice(0, 1)) if n_episodes is None else seeded_starts(sim, n_episodes, seed)


def trace_policies(
    sim: Sim, names: Sequence[str], trained: Mapping[str, Act], draws: Draw, seed: int, first: int = 0
) -> dict[str, list[Trace]]:
    """Traces of baselines and then of trained policies on drawn episodes (B,), one an episode, by policy.

    first:  number of the first episode, from 0
    """
    keys = episode_keys(seed, draws.load_row.shape[0])
    policies = {name: baseline_policy(sim, name, draws, keys) for name in dict.fromkeys(names)}
    policies |= {name: Policy(act) for name, act in trained.items()}
    return {
        name: [
            trace_episode(
                sim, policy.act, keys[k], take(draws, k), take(policy.carry, k), policy=name, episode=first + k
            )
            for k in range(len(keys))
        ]
        for name, policy in policies.items()
    }


def write_traces(target: Path, traces: Mapping[str, Sequence[Trace]]) -> Path:
    """Write the traces of all policies to one file: "rule" with one episode, "rule_1", "rule_2", ... with several."""
    several = any(len(rows) > 1 for rows in traces.values())
    named = {
        f"{name}_{k + 1}" if several else name: trace for name, rows in traces.items() for k, trace in enumerate(rows)
    }
    return save_traces(target, named)
