"""Reference solutions and batched solves, once per session and case."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from powerzoo_jax.powerflow import PowerFlowResult
from tests.references.feeders import States, reference_states, solve_all


@pytest.fixture(scope="session")
def states_of(cache_folder: Path) -> Callable[[str], States]:
    """Case name -> the 1,001 states with their reference solution."""
    return cache(lambda name: reference_states(name, cache_folder))


@pytest.fixture(scope="session")
def solved_by(states_of: Callable[[str], States]) -> Callable[[str, str, str], PowerFlowResult]:
    """(Case name, dtype, mode of the solver) -> the same states solved by the package."""

    @cache
    def solve(name: str, dtype: str, mode: str) -> PowerFlowResult:
        states = states_of(name)
        return solve_all(states.case, states.s, dtype, mode)

    return solve
