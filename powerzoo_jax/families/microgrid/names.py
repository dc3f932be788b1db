"""Reward terms and cost channels of microgrids."""

from __future__ import annotations

from powerzoo_jax.envs.family import Names

COSTS = ("sla", "overtemp", "power_deficit")
TERMS = ("fuel", "degradation", "unserved_energy", "missed_jobs", "backlog", "settlement", "carbon")
DROPPED = "dropped_gpu_h"  # cost channel that a task may have beside COSTS
SETTLED = ("zone_heat", "stored_carbon")  # reward terms that a task may have beside TERMS
CARBON_TERMS = ("carbon", "stored_carbon")  # in kg, all others in $
NAMES = Names((*TERMS, *SETTLED), (*COSTS, DROPPED))
