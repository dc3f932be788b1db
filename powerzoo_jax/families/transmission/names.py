"""Reward terms and cost channels of transmission grids."""

from __future__ import annotations

from powerzoo_jax.envs.constraint import CONSTRAINTS, N_MINUS_1
from powerzoo_jax.envs.family import Names

COSTS = ("thermal_overload", "voltage_violation", "power_balance", "unserved_energy", "resource")
RESERVE = "reserve_shortfall"
REACTIVE_SHORTFALL = "reactive_shortfall"
TERMS = ("generation", "surplus", "unserved_energy")
SWITCHING_TERMS = ("no_load", "startup", "shutdown")
NAMES = Names((*TERMS, *SWITCHING_TERMS, CONSTRAINTS), (*COSTS, RESERVE, REACTIVE_SHORTFALL, N_MINUS_1), devices=True)
