"""Policies that look at no observation: one action for all steps, or one for each part of the day.

The shipped ones are the best of each task on its days of training, as `oracle.trivial` finds them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.oracle.registry import Policy, follow, version_key

FILE = Path(__file__).parent / "trivial.json"
COMMAND = "python -m powerzoo_jax.oracle.trivial"
HOURS_PER_DAY = 24


@dataclass(frozen=True)
class ClockPlan:
    """Actions that depend on the clock alone, and how few values they are made of; static.

    group:  value that each entry (A, U) of an action takes, in 0 .. groups - 1
    blocks: of a day, each with values of its own; 1 for a constant
    """

    group: tuple[tuple[int, ...], ...]
    blocks: int

    @property
    def size(self) -> int:
        return self.blocks * (1 + max(max(row) for row in self.group))

    def actions(self, values: Array, horizon: int, per_day: int) -> Array:
        """Values (size,) -> actions (T, A, U)."""
        block = (jnp.arange(horizon, dtype=jnp.int32) % per_day) * self.blocks // per_day
        plan: Array = values.reshape(self.blocks, -1)[block][:, jnp.asarray(self.group, jnp.int32)]
        return plan


@cache
def load_trivial() -> dict[str, Any]:
    """Read the shipped policies, task -> "v" + version -> record, once per process; do not change what it returns."""
    table: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return table


def get_trivial(task_id: str, *, version: int | None = None) -> dict[str, Any]:
    """Shipped record of a task: kind, values, group, and what it returned on train days.

    version:  of the task; None takes that of `make`
    Raises KeyError where the file has none, with the command that makes it.
    """
    key = version_key(task_id, version)
    record = load_trivial().get(task_id, {}).get(key)
    if record is None:
        option = "" if version is None else f" --version {version}"
        how = f"{COMMAND} {task_id}{option} --write"
        raise KeyError(f"no trivial policy is stored for {task_id!r} {key}. Fit it: {how}")
    return dict(record)


def trivial_policy(sim: Sim, draws: Draw) -> Policy:
    """The stored policy of a task as a plan for each drawn episode.

    Raises KeyError where none is stored, ValueError where the Sim has other actions than the task as registered.
    """
    record = get_trivial(sim.spec.id, version=sim.spec.version)
    group = tuple(tuple(row) for row in record["group"])
    expected = (sim.env.dims.agent, sim.env.dims.act)
    if np.shape(group) != expected:
        raise ValueError(
            f"the trivial policy of {sim.spec.id!r} has actions {np.shape(group)}, this Sim has {expected}. "
            "It is fitted for the task as registered."
        )
    plan, values = ClockPlan(group, record["blocks"]), jnp.asarray(record["values"])
    actions = np.asarray(plan.actions(values, sim.spec.horizon, steps_per_day(sim)))
    return follow(sim, np.broadcast_to(actions, (draws.load_row.shape[0], *actions.shape)))


def steps_per_day(sim: Sim) -> int:
    """Steps of a day."""
    return round(HOURS_PER_DAY / sim.spec.dt_hours)
