"""The shipped reference returns: what a score is measured against."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from powerzoo_jax.base.errors import unknown
from powerzoo_jax.tasks import get_spec
from powerzoo_jax.tasks.catalog import CATALOG

FILE = Path(__file__).parent / "references.json"
COMMAND = "python -m powerzoo_jax.oracle.reference"
FUNCTION = "powerzoo_jax.oracle.reference.reference"

Table = dict[str, dict[str, dict[str, Any]]]
"""task id -> "v" + version -> split -> record, see `oracle.reference.reference`"""


@cache
def load_table() -> Table:
    """Read the shipped table, once per process; do not change what it returns."""
    table: Table = json.loads(FILE.read_text(encoding="utf-8"))
    return table


def get_reference(task_id: str, split: str = "test") -> dict[str, Any]:
    """Shipped record of a task at its registered version; mean returns in the unit of the reward.

    Valid for the task as registered: with keywords changed, or for a task of your own, compute your own by
    `oracle.reference.reference`.
    Raises ValueError for an unknown task and KeyError where the table has no such version or split.

    Example:
        from powerzoo_jax.tasks.score import normalized_score
        record = get_reference("battery_arbitrage", "test")
        score = normalized_score(5.59, record["random"], record["oracle"])
    """
    version = f"v{get_spec(task_id).version}"
    splits = load_table().get(task_id, {}).get(version, {})
    if split not in splits:
        hint = unknown("split", split, splits) if splits else f"The table holds nothing for {task_id!r} {version}."
        # another process knows no task that this one has registered
        shipped = any(task_id == spec.id for spec, _ in CATALOG)
        how = f"{COMMAND} {task_id} --split {split}" if shipped else f"{FUNCTION}({task_id!r}, {split!r})"
        raise KeyError(f"{hint} Compute it: {how}")
    return dict(splits[split])
