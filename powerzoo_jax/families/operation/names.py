"""Reward terms and cost channels of the operation of a grid."""

from __future__ import annotations

from powerzoo_jax.envs.family import Names

TERMS = ("redispatch", "margin", "capacity", "duration")  # RedispReward, L2RPNReward, LinesCapacity-, EpisodeDuration-
COSTS = ("thermal_overload", "unserved_energy")
NAMES = Names(TERMS, COSTS)
