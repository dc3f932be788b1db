"""Gains on the cards of trained policies after references have changed: `python -m tools.tasks.zoo_gains`.

Returns and costs on a card stay: they are of the same weights on the same episodes. Rule and best are those of the
reference table, and the gain is computed anew. Without --write it prints what is behind and exits 1.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from powerzoo_jax.oracle.registry import get_reference
from powerzoo_jax.rl.zoo import find_policy, list_policies, read_card, save_card
from powerzoo_jax.tasks.score import gain

SAME = 1e-7  # relative difference of rule and best that is none


def renew_gains(path: Path, ends_of: Callable[[str, str], tuple[float, float]], *, write: bool = False) -> list[str]:
    """Lines on the splits of a card whose gain is behind; with `write`, the card is written with the new ones.

    ends_of:  (task, split) -> mean returns of the rule and of the best
    """
    about = read_card(path)
    lines = list(_changed(about, ends_of))
    if write and lines:
        save_card(path, about)
    return lines


def _changed(about: dict[str, Any], ends_of: Callable[[str, str], tuple[float, float]]) -> Iterator[str]:
    for split, score in about["scores"].items():
        if score["ends"] is None:
            continue
        rule, best = ends_of(about["task"], split)
        if np.allclose(score["ends"], (rule, best), rtol=SAME, atol=SAME):
            continue
        before = score["gain"]
        score["ends"] = [rule, best]
        score["gain"] = gain(score["return"], rule, best, feasible=score["feasible"])
        yield f"{about['task']} {split}: gain {_figure(before)} -> {_figure(score['gain'])}"


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def table_ends(task: str, split: str) -> tuple[float, float]:
    """Rule and best of the reference table; the rule keeps the budgets of the splits of a card."""
    record = get_reference(task, split)
    return record["rule"], record["best"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare the gains on the cards of the zoo with the reference table, or write them anew."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--write", action="store_true", help="write the cards that are behind")
    chosen = parser.parse_args(arguments)
    lines = [
        line for task in list_policies() for line in renew_gains(find_policy(task), table_ends, write=chosen.write)
    ]
    print("\n".join(lines) or "the gains of every card are those of the reference table")
    return int(bool(lines) and not chosen.write)


if __name__ == "__main__":
    raise SystemExit(main())
