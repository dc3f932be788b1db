"""Tasks: what is simulated, on which data, judged how."""

from powerzoo_jax.base.types import TaskSpec as TaskSpec
from powerzoo_jax.tasks.registry import get_builder as get_builder
from powerzoo_jax.tasks.registry import get_spec as get_spec
from powerzoo_jax.tasks.registry import get_task as get_task
from powerzoo_jax.tasks.registry import list_presets as list_presets
from powerzoo_jax.tasks.registry import list_tasks as list_tasks
from powerzoo_jax.tasks.registry import list_versions as list_versions
from powerzoo_jax.tasks.registry import make as make
from powerzoo_jax.tasks.registry import register as register
from powerzoo_jax.tasks.registry import register_task as register_task
from powerzoo_jax.tasks.spec import Task as Task
