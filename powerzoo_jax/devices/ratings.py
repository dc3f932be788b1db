"""Ratings on their way from the host into a fleet: what is refused, and one column per name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

Rating = float | Sequence[float] | np.ndarray  # one value for the whole fleet, or one per unit


def positive(device: str, **values: Rating) -> None:
    """Raise ValueError for a rating that is not positive."""
    for name, value in values.items():
        if not (np.asarray(value) > 0).all():
            raise ValueError(f"{device} {name} = {value} must be positive.")


def not_negative(device: str, **values: Rating) -> None:
    """Raise ValueError for a rating below zero."""
    for name, value in values.items():
        if not (np.asarray(value) >= 0).all():
            raise ValueError(f"{device} {name} = {value} must not be negative.")


def share(device: str, **values: Rating) -> None:
    """Raise ValueError for an efficiency or share outside (0, 1]."""
    for name, value in values.items():
        if not ((np.asarray(value) > 0) & (np.asarray(value) <= 1)).all():
            raise ValueError(f"{device} {name} = {value} must lie in (0, 1].")


def inverter(device: str, s_mva: Rating, power_mw: Rating, rating: str) -> None:
    """Raise ValueError for an apparent-power rating that cannot carry the active one."""
    if not (np.asarray(s_mva) >= np.asarray(power_mw)).all():
        raise ValueError(f"{device} s_mva = {s_mva} is below {rating} = {power_mw}. Raise s_mva, or lower the power.")


def columns(n_unit: int, dtype: Any, **values: Rating) -> dict[str, Array]:
    """One (G,) column per name; a single value holds for every unit.

    Raises ValueError for a list whose length is not n_unit.
    """
    made = {}
    for name, value in values.items():
        table = np.asarray(value, np.float64)
        if table.shape not in ((), (n_unit,)):
            raise ValueError(f"{name} has {table.size} values for {n_unit} units. Give one value, or one per unit.")
        made[name] = jnp.asarray(np.broadcast_to(table, n_unit), dtype)
    return made
