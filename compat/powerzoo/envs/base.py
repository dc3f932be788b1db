"""Base class of the PowerZoo API's environments."""

from powerzoo_compat.powerzoo_api.base_env import BaseEnv as BaseEnv
