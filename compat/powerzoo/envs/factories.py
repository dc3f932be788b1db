"""Grids and devices out of dicts."""

from powerzoo_compat.powerzoo_api.envs.resources import RESOURCE_TYPES as RESOURCE_TYPES
from powerzoo_compat.powerzoo_api.envs.resources import create_resource as create_resource
from powerzoo_compat.powerzoo_api.grids.config import create_grid as create_grid
from powerzoo_compat.powerzoo_api.grids.envs import GRID_TYPES as GRID_TYPES
