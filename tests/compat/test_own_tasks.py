"""A task that `powerzoo_jax.register` was told of: the drop-in makes it, and scores it between its anchors."""

from __future__ import annotations

import dataclasses

import numpy as np
import powerzoo
import pytest
from powerzoo.benchmarks import evaluate_task, normalized_score, register_baseline

import powerzoo_jax
from powerzoo_jax.tasks import get_spec, registry

BASE, MINE = "battery_arbitrage", "large_battery"
BUILD = "powerzoo_jax.families.feeder.tasks.storage:build_feeder_storage"


@pytest.mark.full
def test_a_registered_task_is_made_and_scored_between_its_anchors(monkeypatch, tmp_path):
    monkeypatch.setattr(registry, "_TASKS", dict(registry._TASKS))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    base = get_spec(BASE)
    changed = dict(base.overrides) | {"battery_capacity_mwh": 1.0}
    powerzoo_jax.register(dataclasses.replace(base, id=MINE, overrides=tuple(changed.items())), BUILD)
    assert powerzoo.make_task_env(MINE).action_space == powerzoo.make_task_env(BASE).action_space
    with pytest.raises(KeyError, match=MINE):
        normalized_score(MINE, 0.0)
    register_baseline(MINE, random=-20.0, oracle=30.0, rule=-10.0)
    record = evaluate_task(lambda obs: np.zeros(1, np.float32), MINE, override_n_episodes=1)
    assert record["mean_reward"] == 0.0  # who does not trade earns nothing
    assert record["normalized_score"] == 0.25 and record["task_id"] == MINE
