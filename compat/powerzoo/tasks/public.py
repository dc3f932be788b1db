"""The public benchmark set of the PowerZoo API."""

from powerzoo_compat.powerzoo_api.tasks.catalog import PUBLIC_TASKS as PUBLIC_TASKS
from powerzoo_compat.powerzoo_api.tasks.factory import get_public_task_catalog as get_public_task_catalog
from powerzoo_compat.powerzoo_api.tasks.factory import get_public_task_info as get_public_task_info
from powerzoo_compat.powerzoo_api.tasks.factory import list_public_tasks as list_public_tasks
