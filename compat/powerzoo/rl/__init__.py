"""Training front end of the PowerZoo API; the learners load on demand."""

from powerzoo_compat.powerzoo_api.lazy import TRAINER as _TRAINER
from powerzoo_compat.powerzoo_api.rl.config import RLConfig as RLConfig
from powerzoo_compat.powerzoo_api.rl.describe import describe as describe
from powerzoo_compat.powerzoo_api.rl.describe import info as info
from powerzoo_compat.powerzoo_api.rl.front import make_env as make_env
from powerzoo_compat.powerzoo_api.wrappers.flatten import MDPFallbackRewardWrapper as MDPFallbackRewardWrapper
from powerzoo_compat.powerzoo_api.wrappers.flatten import RewardWrapper as RewardWrapper

from powerzoo_jax.base.exports import on_demand as _on_demand

__getattr__ = _on_demand(__name__, _TRAINER)
