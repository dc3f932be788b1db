"""Wrappers of the PowerZoo API; those of other projects load on demand."""

from powerzoo_compat.powerzoo_api.lazy import wrapper_on_demand
from powerzoo_compat.powerzoo_api.wrappers import CMDPWrapper as CMDPWrapper
from powerzoo_compat.powerzoo_api.wrappers import FlattenAction as FlattenAction
from powerzoo_compat.powerzoo_api.wrappers import FlattenObservation as FlattenObservation
from powerzoo_compat.powerzoo_api.wrappers import ForecastWrapper as ForecastWrapper
from powerzoo_compat.powerzoo_api.wrappers import GymnasiumSafeWrapper as GymnasiumSafeWrapper
from powerzoo_compat.powerzoo_api.wrappers import GymnasiumWrapper as GymnasiumWrapper
from powerzoo_compat.powerzoo_api.wrappers import NormalizationWrapper as NormalizationWrapper
from powerzoo_compat.powerzoo_api.wrappers import SafeRLWrapper as SafeRLWrapper
from powerzoo_compat.powerzoo_api.wrappers import TaskCMDPWrapper as TaskCMDPWrapper

__getattr__ = wrapper_on_demand(__name__)
