"""JAX-native, vectorised power-grid simulation for reinforcement learning."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from powerzoo_jax.base.exports import on_demand as _on_demand
from powerzoo_jax.base.types import Info as Info
from powerzoo_jax.base.types import Step as Step
from powerzoo_jax.base.types import TaskSpec as TaskSpec
from powerzoo_jax.cases import load_case as load_case
from powerzoo_jax.envs import Sim as Sim
from powerzoo_jax.envs import autoreset as autoreset
from powerzoo_jax.envs import lanes as lanes
from powerzoo_jax.envs import stack as stack
from powerzoo_jax.envs import vstep as vstep
from powerzoo_jax.rl.rollout import rollout as rollout
from powerzoo_jax.rl.zoo import load_policy as load_policy
from powerzoo_jax.study import run_power_flow as run_power_flow
from powerzoo_jax.tasks import list_tasks as list_tasks
from powerzoo_jax.tasks import make as make
from powerzoo_jax.tasks import register as register

if _TYPE_CHECKING:
    from powerzoo_jax.families.operation.build import from_grid2op as from_grid2op

__getattr__ = _on_demand(__name__, {"from_grid2op": "powerzoo_jax.families.operation.build"})
__version__ = "0.1.0"
