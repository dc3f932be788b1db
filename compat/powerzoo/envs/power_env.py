"""A grid with its devices."""

from powerzoo_compat.powerzoo_api.grids.power import PowerEnv as PowerEnv
