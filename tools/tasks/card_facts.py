"""Table of facts from which the drop-in tells the cards of shipped tasks: python -m tools.tasks.card_facts"""

from __future__ import annotations

import dataclasses
import json

from powerzoo_compat.powerzoo_api.tasks.cards import FACTS, Facts, built_facts, facts_row
from powerzoo_compat.powerzoo_api.tasks.factory import get_task_class

from powerzoo_jax.tasks import list_tasks


def table() -> str:
    """The table as text, a line a task."""
    rows = {task: facts_row(built_facts(get_task_class(task))) for task in list_tasks()}
    lines = (f"{json.dumps(task)}: {json.dumps(row, sort_keys=True)}" for task, row in rows.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> None:
    """Write the table."""
    FACTS.write_text(table(), encoding="utf-8")
    print(
        f"{FACTS}: {len(json.loads(FACTS.read_text(encoding='utf-8')))} tasks, {len(dataclasses.fields(Facts))} facts"
    )


if __name__ == "__main__":
    main()
