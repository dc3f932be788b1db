"""Task registry of the PowerZoo API."""

from powerzoo_compat.powerzoo_api.tasks.factory import get_task_class as get_task_class
from powerzoo_compat.powerzoo_api.tasks.factory import get_task_info as get_task_info
from powerzoo_compat.powerzoo_api.tasks.factory import list_tasks as list_tasks
from powerzoo_compat.powerzoo_api.tasks.factory import make_task as make_task
from powerzoo_compat.powerzoo_api.tasks.factory import make_task_env as make_task_env
from powerzoo_compat.powerzoo_api.tasks.factory import register_task as register_task
