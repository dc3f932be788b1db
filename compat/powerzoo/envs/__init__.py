"""Environments of the PowerZoo API: grids, devices, markets, the microgrid."""

from powerzoo_compat.powerzoo_api.base_env import BaseEnv as BaseEnv
from powerzoo_compat.powerzoo_api.grids import ACConfig as ACConfig
from powerzoo_compat.powerzoo_api.grids import DistGrid3PhaseEnv as DistGrid3PhaseEnv
from powerzoo_compat.powerzoo_api.grids import DistGridEnv as DistGridEnv
from powerzoo_compat.powerzoo_api.grids import GridEnv as GridEnv
from powerzoo_compat.powerzoo_api.grids import TransGridEnv as TransGridEnv
from powerzoo_compat.powerzoo_api.markets import BidBasedMarketEnv as BidBasedMarketEnv
from powerzoo_compat.powerzoo_api.markets import CostBasedMarketEnv as CostBasedMarketEnv
from powerzoo_compat.powerzoo_api.markets import DCMicrogridEnv as DCMicrogridEnv
from powerzoo_compat.powerzoo_api.markets import GenCosMARLEnv as GenCosMARLEnv
from powerzoo_compat.powerzoo_api.markets import MarketEnv as MarketEnv
from powerzoo_compat.powerzoo_api.markets import make_gencos_env as make_gencos_env
from powerzoo_compat.powerzoo_api.power_env import PowerEnv as PowerEnv
from powerzoo_compat.powerzoo_api.resources import BatteryEnv as BatteryEnv
from powerzoo_compat.powerzoo_api.resources import CommuteTrip as CommuteTrip
from powerzoo_compat.powerzoo_api.resources import DataCenterEnv as DataCenterEnv
from powerzoo_compat.powerzoo_api.resources import DieselResource as DieselResource
from powerzoo_compat.powerzoo_api.resources import FlexLoad as FlexLoad
from powerzoo_compat.powerzoo_api.resources import RenewableEnv as RenewableEnv
from powerzoo_compat.powerzoo_api.resources import ResourceEnv as ResourceEnv
from powerzoo_compat.powerzoo_api.resources import SolarEnv as SolarEnv
from powerzoo_compat.powerzoo_api.resources import VehicleEnv as VehicleEnv
from powerzoo_compat.powerzoo_api.resources import WindEnv as WindEnv
