"""Multi-agent tasks as PettingZoo environments."""

from powerzoo_compat.pettingzoo_view import TaskPettingZooWrapper as TaskPettingZooWrapper
