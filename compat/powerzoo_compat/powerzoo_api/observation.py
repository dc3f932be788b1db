"""Observation modes of the contract."""

from __future__ import annotations

OBSERVATION_MODES = ("global", "local", "local_plus_forecast", "local_plus_voltage", "ders_local")
FLATTENED = "flattened"  # the one mode of single-agent tasks
