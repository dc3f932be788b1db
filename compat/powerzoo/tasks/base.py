"""Task classes of the PowerZoo API."""

from powerzoo_compat.powerzoo_api.envs.constraint import ConstraintSpec as ConstraintSpec
from powerzoo_compat.powerzoo_api.tasks.base import MultiAgentTask as MultiAgentTask
from powerzoo_compat.powerzoo_api.tasks.base import SingleAgentTask as SingleAgentTask
from powerzoo_compat.powerzoo_api.tasks.base import Task as Task
