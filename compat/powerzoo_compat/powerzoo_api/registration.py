"""Gymnasium ids: `<namespace>/<name>-v<TaskSpec.version>`."""

from __future__ import annotations

import gymnasium

from powerzoo_jax.tasks import get_spec, list_tasks

DROP_IN = "PowerZoo"
GYM_NAMES = {
    "battery_arbitrage": "BatteryArbitrage",
    "dc_scheduling": "DCScheduling",
    "dc_microgrid": "DCMicrogrid",
    "dc_microgrid_safe": "DCMicrogridSafe",
    "dso": "DSO",
    "comparison_tso_centralized": "ComparisonTSOCentralized",
}


def gym_id(namespace: str, task: str) -> str:
    """Gymnasium id of a task in a namespace."""
    return f"{namespace}/{GYM_NAMES[task]}-v{get_spec(task).version}"


def register_ids(namespace: str, entry_point: str, vector_entry_point: str) -> None:
    """Register every task that has a Gymnasium name; a second call changes nothing."""
    for task in sorted(set(GYM_NAMES) & set(list_tasks())):
        env_id = gym_id(namespace, task)
        if env_id not in gymnasium.registry:
            gymnasium.register(env_id, entry_point, vector_entry_point=vector_entry_point, kwargs={"name": task})
