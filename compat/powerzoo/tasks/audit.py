"""Contract checks of the PowerZoo API."""

from powerzoo_compat.powerzoo_api.benchmarks.audit import audit_env as audit_env
from powerzoo_compat.powerzoo_api.benchmarks.audit import audit_public_tasks as audit_public_tasks
from powerzoo_compat.powerzoo_api.benchmarks.audit import audit_task_collection as audit_task_collection
from powerzoo_compat.powerzoo_api.benchmarks.audit import audit_task_env as audit_task_env
