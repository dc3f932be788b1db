"""Environments of task objects."""

from powerzoo_compat.powerzoo_api.tasks.adapters import TaskEVMultiAgentEnv as TaskEVMultiAgentEnv
from powerzoo_compat.powerzoo_api.tasks.adapters import TaskOPFMultiAgentEnv as TaskOPFMultiAgentEnv
from powerzoo_compat.powerzoo_api.tasks.adapters import TaskResourceMultiAgentEnv as TaskResourceMultiAgentEnv
from powerzoo_compat.powerzoo_api.tasks.adapters import TaskUCMultiAgentEnv as TaskUCMultiAgentEnv
from powerzoo_compat.powerzoo_api.tasks.adapters import create_multi_agent_env as create_multi_agent_env
from powerzoo_compat.powerzoo_api.tasks.adapters import create_task_env as create_task_env
