"""Environments of the PowerZoo API."""

from powerzoo_compat.powerzoo_api.base_env import BaseEnv as BaseEnv
