"""Task classes of the PowerZoo API."""

from powerzoo_compat.powerzoo_api.task_base import ConstraintSpec as ConstraintSpec
from powerzoo_compat.powerzoo_api.task_base import MultiAgentTask as MultiAgentTask
from powerzoo_compat.powerzoo_api.task_base import SingleAgentTask as SingleAgentTask
from powerzoo_compat.powerzoo_api.task_base import Task as Task
