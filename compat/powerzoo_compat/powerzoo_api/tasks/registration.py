"""Gymnasium ids: `<namespace>/<name>-v<TaskSpec.version>`."""

from __future__ import annotations

from typing import Any

import gymnasium

from powerzoo_jax.tasks import get_spec, list_tasks

DROP_IN = "PowerZoo"
GRIDS = {"TransGrid": "TransGridEnv", "DistGrid": "DistGridEnv"}
DIFFICULTIES = ("easy", "medium", "hard")
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


def register_grid_ids() -> None:
    """Register the grids as environments of their own, one id a difficulty."""
    for name in GRIDS:
        for difficulty in DIFFICULTIES:
            env_id = f"{DROP_IN}/{name}-{difficulty}-v0"
            if env_id not in gymnasium.registry:
                gymnasium.register(env_id, f"{__name__}:make_grid", kwargs={"grid": name, "difficulty": difficulty})


def make_grid(grid: str, **keywords: Any) -> Any:
    """A grid as a standard environment; keywords and errors are those of its class."""
    from powerzoo_compat.powerzoo_api.grids import envs as grids
    from powerzoo_compat.powerzoo_api.wrappers.flatten import GymnasiumWrapper

    return GymnasiumWrapper(getattr(grids, GRIDS[grid])(**keywords))
