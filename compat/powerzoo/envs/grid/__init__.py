"""Grids as environments."""

from powerzoo_compat.powerzoo_api.grids.envs import ACConfig as ACConfig
from powerzoo_compat.powerzoo_api.grids.envs import DistGrid3PhaseEnv as DistGrid3PhaseEnv
from powerzoo_compat.powerzoo_api.grids.envs import DistGridEnv as DistGridEnv
from powerzoo_compat.powerzoo_api.grids.envs import GridEnv as GridEnv
from powerzoo_compat.powerzoo_api.grids.envs import TransGridEnv as TransGridEnv
