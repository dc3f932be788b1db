"""A grid with its devices."""

from powerzoo_compat.powerzoo_api.power_env import PowerEnv as PowerEnv
