"""Grids and devices out of dicts."""

from powerzoo_compat.powerzoo_api.grid_config import create_grid as create_grid
from powerzoo_compat.powerzoo_api.grids import GRID_TYPES as GRID_TYPES
from powerzoo_compat.powerzoo_api.resources import RESOURCE_TYPES as RESOURCE_TYPES
from powerzoo_compat.powerzoo_api.resources import create_resource as create_resource
