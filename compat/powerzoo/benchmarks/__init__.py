"""Evaluation of the PowerZoo API: policies, scores, offline data."""

from powerzoo_compat.powerzoo_api.evaluation import evaluate as evaluate
from powerzoo_compat.powerzoo_api.evaluation import evaluate_task as evaluate_task
from powerzoo_compat.powerzoo_api.lazy import pictures_on_demand
from powerzoo_compat.powerzoo_api.offline import DatasetGenerator as DatasetGenerator
from powerzoo_compat.powerzoo_api.offline import DatasetLoader as DatasetLoader
from powerzoo_compat.powerzoo_api.policies import BasePolicy as BasePolicy
from powerzoo_compat.powerzoo_api.policies import OraclePolicy as OraclePolicy
from powerzoo_compat.powerzoo_api.policies import RandomPolicy as RandomPolicy
from powerzoo_compat.powerzoo_api.policies import RuleBasedPolicy as RuleBasedPolicy
from powerzoo_compat.powerzoo_api.scores import get_baseline as get_baseline
from powerzoo_compat.powerzoo_api.scores import list_baselines as list_baselines
from powerzoo_compat.powerzoo_api.scores import normalized_score as normalized_score
from powerzoo_compat.powerzoo_api.scores import register_baseline as register_baseline

__getattr__ = pictures_on_demand(__name__)
