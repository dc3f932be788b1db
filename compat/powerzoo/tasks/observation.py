"""Observation modes of the PowerZoo API."""

from powerzoo_compat.powerzoo_api.observation import OBSERVATION_MODES as OBSERVATION_MODES
