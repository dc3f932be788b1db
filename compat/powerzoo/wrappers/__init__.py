"""Wrappers of the PowerZoo API; those of other projects load on demand."""

from powerzoo_compat.powerzoo_api.lazy import WRAPPER as _WRAPPER
from powerzoo_compat.powerzoo_api.wrappers.flatten import CMDPWrapper as CMDPWrapper
from powerzoo_compat.powerzoo_api.wrappers.flatten import FlattenAction as FlattenAction
from powerzoo_compat.powerzoo_api.wrappers.flatten import FlattenObservation as FlattenObservation
from powerzoo_compat.powerzoo_api.wrappers.flatten import ForecastWrapper as ForecastWrapper
from powerzoo_compat.powerzoo_api.wrappers.flatten import GymnasiumSafeWrapper as GymnasiumSafeWrapper
from powerzoo_compat.powerzoo_api.wrappers.flatten import GymnasiumWrapper as GymnasiumWrapper
from powerzoo_compat.powerzoo_api.wrappers.flatten import NormalizationWrapper as NormalizationWrapper
from powerzoo_compat.powerzoo_api.wrappers.flatten import SafeRLWrapper as SafeRLWrapper
from powerzoo_compat.powerzoo_api.wrappers.flatten import TaskCMDPWrapper as TaskCMDPWrapper

from powerzoo_jax.base.exports import on_demand as _on_demand

__getattr__ = _on_demand(__name__, _WRAPPER)
