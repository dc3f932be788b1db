"""Reference returns of a task, computed anew: the anchors of `normalized_score`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from powerzoo_compat.powerzoo_api.tasks.factory import get_task_class
from powerzoo_jax.oracle.reference import reference


def main(argv: Sequence[str] | None = None) -> int:
    """Print the references of one task as JSON. Raises ValueError for an unknown task or split."""
    parser = argparse.ArgumentParser(prog="powerzoo.benchmarks.compute", description=main.__doc__)
    parser.add_argument("task")
    parser.add_argument("--split", default="test")
    given = parser.parse_args(argv)
    print(json.dumps(reference(get_task_class(given.task).name, given.split), indent=1))
    return 0
