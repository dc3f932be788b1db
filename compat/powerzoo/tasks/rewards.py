"""Rewards by name."""

from powerzoo_compat.powerzoo_api.tasks.rewards import REWARD_CATEGORIES as REWARD_CATEGORIES
from powerzoo_compat.powerzoo_api.tasks.rewards import REWARD_FUNCTIONS as REWARD_FUNCTIONS
from powerzoo_compat.powerzoo_api.tasks.rewards import BatteryArbitrageReward as BatteryArbitrageReward
from powerzoo_compat.powerzoo_api.tasks.rewards import BatteryLMPArbitrageReward as BatteryLMPArbitrageReward
from powerzoo_compat.powerzoo_api.tasks.rewards import DataCenterSchedulingReward as DataCenterSchedulingReward
from powerzoo_compat.powerzoo_api.tasks.rewards import EconomicDispatchReward as EconomicDispatchReward
from powerzoo_compat.powerzoo_api.tasks.rewards import EVArbitrageReward as EVArbitrageReward
from powerzoo_compat.powerzoo_api.tasks.rewards import NetworkLossReward as NetworkLossReward
from powerzoo_compat.powerzoo_api.tasks.rewards import RenewablePenetrationReward as RenewablePenetrationReward
from powerzoo_compat.powerzoo_api.tasks.rewards import RewardFunction as RewardFunction
from powerzoo_compat.powerzoo_api.tasks.rewards import SafetyOnlyReward as SafetyOnlyReward
from powerzoo_compat.powerzoo_api.tasks.rewards import UnitCommitmentReward as UnitCommitmentReward
from powerzoo_compat.powerzoo_api.tasks.rewards import ZeroReward as ZeroReward
from powerzoo_compat.powerzoo_api.tasks.rewards import get_reward_function as get_reward_function
from powerzoo_compat.powerzoo_api.tasks.rewards import list_reward_types as list_reward_types

__path__: list[str] = []  # PowerZooPy has a package here, whose `base` is an alias
