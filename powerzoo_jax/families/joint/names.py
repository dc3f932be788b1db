"""Reward terms and cost channels of a transmission grid with feeders."""

from __future__ import annotations

from powerzoo_jax.envs.family import Names

COSTS = ("thermal_overload", "voltage_violation", "unserved_energy", "resource")
TERMS = ("generation", "surplus", "unserved_energy", "degradation")
SETTLEMENT = "settlement"  # reward term that a task may have behind TERMS
NAMES = Names((*TERMS, SETTLEMENT), COSTS)
