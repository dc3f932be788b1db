"""Tasks of the PowerZoo API."""

from powerzoo_compat.powerzoo_api.observation import OBSERVATION_MODES as OBSERVATION_MODES
from powerzoo_compat.powerzoo_api.tasks import PUBLIC_TASKS as PUBLIC_TASKS
from powerzoo_compat.powerzoo_api.tasks import list_public_tasks as list_public_tasks
from powerzoo_compat.powerzoo_api.tasks import list_tasks as list_tasks
from powerzoo_compat.powerzoo_api.tasks import make_task_env as make_task_env
