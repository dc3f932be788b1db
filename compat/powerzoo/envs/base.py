"""Base class of the PowerZoo API's environments."""

from powerzoo_compat.powerzoo_api.envs.base import BaseEnv as BaseEnv
