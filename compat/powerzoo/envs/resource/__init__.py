"""Devices that a grid takes at a bus."""

from powerzoo_compat.powerzoo_api.envs.resources import BatteryEnv as BatteryEnv
from powerzoo_compat.powerzoo_api.envs.resources import CommuteTrip as CommuteTrip
from powerzoo_compat.powerzoo_api.envs.resources import DataCenterEnv as DataCenterEnv
from powerzoo_compat.powerzoo_api.envs.resources import DieselResource as DieselResource
from powerzoo_compat.powerzoo_api.envs.resources import FlexLoad as FlexLoad
from powerzoo_compat.powerzoo_api.envs.resources import RenewableEnv as RenewableEnv
from powerzoo_compat.powerzoo_api.envs.resources import ResourceEnv as ResourceEnv
from powerzoo_compat.powerzoo_api.envs.resources import SolarEnv as SolarEnv
from powerzoo_compat.powerzoo_api.envs.resources import VehicleEnv as VehicleEnv
from powerzoo_compat.powerzoo_api.envs.resources import WindEnv as WindEnv
