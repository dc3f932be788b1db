"""Cost channels of a constrained Markov decision process, with their budgets."""

from __future__ import annotations

from dataclasses import dataclass

SCALAR_LIMIT = 1.0  # of the scalar cost of safe environments: a sum of shares of budgets


@dataclass(frozen=True)
class ConstraintSpec:
    """Cost channels that count, the budget of an episode in each, and their prices in a scalar fallback.

    Raises ValueError for lists of different lengths.
    """

    selected_names: tuple[str, ...] = ()
    thresholds: tuple[float, ...] = ()
    fallback_weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        lengths = len(self.selected_names), len(self.thresholds), len(self.fallback_weights)
        if len(set(lengths)) > 1:
            raise ValueError(f"a ConstraintSpec of {lengths} names, thresholds and weights. Give as many of each.")

    @property
    def scalar_threshold(self) -> float | None:
        """Sum of the thresholds; None without any."""
        return float(sum(self.thresholds)) if self.thresholds else None
