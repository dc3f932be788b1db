"""Evaluation of the PowerZoo API: policies, scores, offline data."""

from powerzoo_compat.powerzoo_api.benchmarks.evaluation import evaluate as evaluate
from powerzoo_compat.powerzoo_api.benchmarks.evaluation import evaluate_task as evaluate_task
from powerzoo_compat.powerzoo_api.benchmarks.offline import DatasetGenerator as DatasetGenerator
from powerzoo_compat.powerzoo_api.benchmarks.offline import DatasetLoader as DatasetLoader
from powerzoo_compat.powerzoo_api.benchmarks.policies import BasePolicy as BasePolicy
from powerzoo_compat.powerzoo_api.benchmarks.policies import OraclePolicy as OraclePolicy
from powerzoo_compat.powerzoo_api.benchmarks.policies import RandomPolicy as RandomPolicy
from powerzoo_compat.powerzoo_api.benchmarks.policies import RuleBasedPolicy as RuleBasedPolicy
from powerzoo_compat.powerzoo_api.benchmarks.scores import get_baseline as get_baseline
from powerzoo_compat.powerzoo_api.benchmarks.scores import list_baselines as list_baselines
from powerzoo_compat.powerzoo_api.benchmarks.scores import normalized_score as normalized_score
from powerzoo_compat.powerzoo_api.benchmarks.scores import register_baseline as register_baseline
from powerzoo_compat.powerzoo_api.lazy import PICTURES as _PICTURES

from powerzoo_jax.base.exports import on_demand as _on_demand

__getattr__ = _on_demand(__name__, _PICTURES)
