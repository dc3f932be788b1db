"""Environments of the PowerZoo API: grids, devices, markets, the microgrid."""

from powerzoo_compat.powerzoo_api.envs.base import BaseEnv as BaseEnv
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
from powerzoo_compat.powerzoo_api.grids.envs import ACConfig as ACConfig
from powerzoo_compat.powerzoo_api.grids.envs import DistGrid3PhaseEnv as DistGrid3PhaseEnv
from powerzoo_compat.powerzoo_api.grids.envs import DistGridEnv as DistGridEnv
from powerzoo_compat.powerzoo_api.grids.envs import GridEnv as GridEnv
from powerzoo_compat.powerzoo_api.grids.envs import TransGridEnv as TransGridEnv
from powerzoo_compat.powerzoo_api.grids.markets import BidBasedMarketEnv as BidBasedMarketEnv
from powerzoo_compat.powerzoo_api.grids.markets import CostBasedMarketEnv as CostBasedMarketEnv
from powerzoo_compat.powerzoo_api.grids.markets import DCMicrogridEnv as DCMicrogridEnv
from powerzoo_compat.powerzoo_api.grids.markets import GenCosMARLEnv as GenCosMARLEnv
from powerzoo_compat.powerzoo_api.grids.markets import MarketEnv as MarketEnv
from powerzoo_compat.powerzoo_api.grids.markets import make_gencos_env as make_gencos_env
from powerzoo_compat.powerzoo_api.grids.power import PowerEnv as PowerEnv
