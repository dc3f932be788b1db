"""Reward terms and cost channels of feeders, beside those of their kinds of devices."""

from __future__ import annotations

from powerzoo_jax.envs.constraint import CONSTRAINTS, OUTAGE, VOLTAGE
from powerzoo_jax.envs.family import Names

COSTS = ("voltage_violation", "thermal_overload", "unserved_energy", "resource")
PHASE_COSTS = ("voltage_violation", "thermal_overload", "vuf_violation", "unserved_energy", "resource")
TERMS = ("energy_sales", "degradation", "settlement", "unserved_energy")  # of a task that names none
LOSS = "network_loss"
OWN_TERMS = (LOSS, OUTAGE, CONSTRAINTS, VOLTAGE)
NAMES = Names(OWN_TERMS, PHASE_COSTS, devices=True, of_devices=True)
