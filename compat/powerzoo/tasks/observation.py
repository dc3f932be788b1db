"""Observation modes of the PowerZoo API."""

from powerzoo_compat.powerzoo_api.tasks.observation import OBSERVATION_MODES as OBSERVATION_MODES
from powerzoo_compat.powerzoo_api.tasks.observation import ObservationConfig as ObservationConfig
from powerzoo_compat.powerzoo_api.tasks.observation import make_observation_config as make_observation_config
from powerzoo_compat.powerzoo_api.tasks.observation import (
    normalize_agents_observation_configs as normalize_agents_observation_configs,
)
from powerzoo_compat.powerzoo_api.tasks.observation import normalize_observation_config as normalize_observation_config
