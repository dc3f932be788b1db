"""Types, spaces, tree verbs, numerics, errors and key discipline: the vocabulary of every layer."""

from powerzoo_jax.base.errors import CaseError as CaseError
from powerzoo_jax.base.errors import DataError as DataError
from powerzoo_jax.base.errors import DataMissing as DataMissing
from powerzoo_jax.base.errors import PowerZooError as PowerZooError
from powerzoo_jax.base.errors import Problem as Problem
from powerzoo_jax.base.errors import RunError as RunError
from powerzoo_jax.base.errors import SettingsError as SettingsError
from powerzoo_jax.base.errors import SolverError as SolverError
from powerzoo_jax.base.random import Purpose as Purpose
from powerzoo_jax.base.random import purpose_key as purpose_key
from powerzoo_jax.base.spaces import Box as Box
from powerzoo_jax.base.spaces import Discrete as Discrete
from powerzoo_jax.base.spaces import MultiDiscrete as MultiDiscrete
from powerzoo_jax.base.spaces import Space as Space
from powerzoo_jax.base.types import Dims as Dims
from powerzoo_jax.base.types import EnvState as EnvState
from powerzoo_jax.base.types import Info as Info
from powerzoo_jax.base.types import Masks as Masks
from powerzoo_jax.base.types import Step as Step
from powerzoo_jax.base.types import TaskSpec as TaskSpec
from powerzoo_jax.base.types import no_padding as no_padding
