"""Environments: static code plus parameters, one pure step, stacked lanes, automatic restarts."""

from typing import TYPE_CHECKING

from powerzoo_jax.base.exports import on_demand as _on_demand
from powerzoo_jax.envs.batch import autoreset as autoreset
from powerzoo_jax.envs.batch import is_stacked as is_stacked
from powerzoo_jax.envs.batch import lanes as lanes
from powerzoo_jax.envs.batch import split_observations as split_observations
from powerzoo_jax.envs.batch import stack as stack
from powerzoo_jax.envs.batch import vstep as vstep
from powerzoo_jax.envs.core import Env as Env
from powerzoo_jax.envs.core import EnvParams as EnvParams
from powerzoo_jax.envs.core import GridEnv as GridEnv
from powerzoo_jax.envs.core import Sim as Sim
from powerzoo_jax.envs.core import end_flags as end_flags
from powerzoo_jax.envs.core import in_range as in_range
from powerzoo_jax.envs.family import Family as Family
from powerzoo_jax.envs.family import Names as Names
from powerzoo_jax.envs.family import family_of as family_of
from powerzoo_jax.envs.family import get_family as get_family
from powerzoo_jax.envs.family import list_families as list_families
from powerzoo_jax.envs.family import register_family as register_family
from powerzoo_jax.envs.history import with_history as with_history
from powerzoo_jax.envs.observe import Scene as Scene
from powerzoo_jax.envs.observe import SharedObs as SharedObs
from powerzoo_jax.envs.observe import block as block
from powerzoo_jax.envs.observe import name_values as name_values
from powerzoo_jax.envs.observe import observe as observe
from powerzoo_jax.envs.observe import table as table
from powerzoo_jax.envs.own import with_fields as with_fields
from powerzoo_jax.envs.own import with_reward as with_reward
from powerzoo_jax.envs.series import EpisodeStarts as EpisodeStarts
from powerzoo_jax.envs.series import current_row as current_row
from powerzoo_jax.envs.surface import TaskSurface as TaskSurface
from powerzoo_jax.envs.trace.episode import build_trace as build_trace
from powerzoo_jax.envs.trace.episode import trace_episode as trace_episode
from powerzoo_jax.envs.trace.types import Trace as Trace
from powerzoo_jax.envs.trace.types import load_traces as load_traces
from powerzoo_jax.envs.trace.types import save_traces as save_traces

if TYPE_CHECKING:
    from powerzoo_jax.families.feeder.env import DistributionEnv as DistributionEnv

__getattr__ = _on_demand(__name__, {"DistributionEnv": "powerzoo_jax.families.feeder.env"})
