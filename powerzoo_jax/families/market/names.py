"""Reward terms and cost channels of markets: of units that bid, and of a battery that trades."""

from __future__ import annotations

from powerzoo_jax.envs.family import Names

COSTS = ("thermal_overload", "unserved_energy")
TERMS = ("revenue", "generation_cost")
BATTERY_COSTS = ("thermal_overload", "unserved_energy", "resource")
BATTERY_TERMS = ("energy_sales", "degradation", "smoothing", "settlement")
NAMES = Names(TERMS, COSTS)
