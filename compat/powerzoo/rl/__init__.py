"""Training front end of the PowerZoo API; the learners load on demand."""

from powerzoo_compat.powerzoo_api.lazy import trainer_on_demand
from powerzoo_compat.powerzoo_api.rl.config import RLConfig as RLConfig
from powerzoo_compat.powerzoo_api.rl.describe import describe as describe
from powerzoo_compat.powerzoo_api.rl.describe import info as info
from powerzoo_compat.powerzoo_api.rl.front import make_env as make_env
from powerzoo_compat.powerzoo_api.wrappers.flatten import MDPFallbackRewardWrapper as MDPFallbackRewardWrapper
from powerzoo_compat.powerzoo_api.wrappers.flatten import RewardWrapper as RewardWrapper

__getattr__ = trainer_on_demand(__name__)
