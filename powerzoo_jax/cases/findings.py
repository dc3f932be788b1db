"""How the rules for cases name what they have found."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from powerzoo_jax.base.errors import Problem, listing
from powerzoo_jax.cases.case import Case

Findings = Iterator[Problem]
Rule = Callable[[Case], Findings]


def row_numbers(at: np.ndarray) -> tuple[object, ...]:
    """Positions as rows of a table, counted from 1."""
    return tuple(int(i) + 1 for i in at)


def bus_ids_at(case: Case, at: np.ndarray) -> tuple[object, ...]:
    """External ids of bus positions."""
    return tuple(int(i) for i in case.bus.id[at])


def branch_rows(case: Case, at: np.ndarray) -> str:
    """Branches by row and ends: `17 (bus 8 -> 9)`."""
    b = case.branch
    return listing(f"{i + 1} (bus {b.from_id[i]} -> {b.to_id[i]})" for i in at)
