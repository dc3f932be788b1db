"""Multi-agent tasks as PettingZoo environments."""

from powerzoo_compat.powerzoo_api.envs.parallel import TaskPettingZooWrapper as TaskPettingZooWrapper
