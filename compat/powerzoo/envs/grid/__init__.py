"""Grids as environments."""

from powerzoo_compat.powerzoo_api.grids import ACConfig as ACConfig
from powerzoo_compat.powerzoo_api.grids import DistGrid3PhaseEnv as DistGrid3PhaseEnv
from powerzoo_compat.powerzoo_api.grids import DistGridEnv as DistGridEnv
from powerzoo_compat.powerzoo_api.grids import GridEnv as GridEnv
from powerzoo_compat.powerzoo_api.grids import TransGridEnv as TransGridEnv
