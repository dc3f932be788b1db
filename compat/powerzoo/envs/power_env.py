"""A grid with its devices."""

from powerzoo_compat.powerzoo_api.envs.power import PowerEnv as PowerEnv
