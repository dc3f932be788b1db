"""Tasks of the PowerZoo API."""

from powerzoo_compat.powerzoo_api.benchmarks.audit import audit_env as audit_env
from powerzoo_compat.powerzoo_api.benchmarks.audit import audit_public_tasks as audit_public_tasks
from powerzoo_compat.powerzoo_api.benchmarks.audit import audit_task_collection as audit_task_collection
from powerzoo_compat.powerzoo_api.benchmarks.audit import audit_task_env as audit_task_env
from powerzoo_compat.powerzoo_api.envs.constraint import ConstraintSpec as ConstraintSpec
from powerzoo_compat.powerzoo_api.lazy import CONFIGURED as _CONFIGURED
from powerzoo_compat.powerzoo_api.tasks.adapters import TaskOPFMultiAgentEnv as TaskOPFMultiAgentEnv
from powerzoo_compat.powerzoo_api.tasks.adapters import TaskResourceMultiAgentEnv as TaskResourceMultiAgentEnv
from powerzoo_compat.powerzoo_api.tasks.adapters import create_multi_agent_env as create_multi_agent_env
from powerzoo_compat.powerzoo_api.tasks.adapters import create_task_env as create_task_env
from powerzoo_compat.powerzoo_api.tasks.base import MultiAgentTask as MultiAgentTask
from powerzoo_compat.powerzoo_api.tasks.base import SingleAgentTask as SingleAgentTask
from powerzoo_compat.powerzoo_api.tasks.base import Task as Task
from powerzoo_compat.powerzoo_api.tasks.catalog import PUBLIC_TASKS as PUBLIC_TASKS
from powerzoo_compat.powerzoo_api.tasks.factory import get_public_task_catalog as get_public_task_catalog
from powerzoo_compat.powerzoo_api.tasks.factory import get_public_task_info as get_public_task_info
from powerzoo_compat.powerzoo_api.tasks.factory import get_task_class as get_task_class
from powerzoo_compat.powerzoo_api.tasks.factory import get_task_info as get_task_info
from powerzoo_compat.powerzoo_api.tasks.factory import list_atomic_tasks as list_atomic_tasks
from powerzoo_compat.powerzoo_api.tasks.factory import list_public_tasks as list_public_tasks
from powerzoo_compat.powerzoo_api.tasks.factory import list_tasks as list_tasks
from powerzoo_compat.powerzoo_api.tasks.factory import make_atomic_task_env as make_atomic_task_env
from powerzoo_compat.powerzoo_api.tasks.factory import make_task as make_task
from powerzoo_compat.powerzoo_api.tasks.factory import make_task_env as make_task_env
from powerzoo_compat.powerzoo_api.tasks.factory import register_task as register_task
from powerzoo_compat.powerzoo_api.tasks.observation import OBSERVATION_MODES as OBSERVATION_MODES
from powerzoo_compat.powerzoo_api.tasks.observation import make_observation_config as make_observation_config

from powerzoo_jax.base.exports import on_demand as _on_demand

__getattr__ = _on_demand(__name__, _CONFIGURED)
