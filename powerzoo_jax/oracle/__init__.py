"""Oracles: perfect-foresight plans, certified bounds, baseline policies and the shipped reference returns."""

from typing import TYPE_CHECKING

from powerzoo_jax.base.exports import on_demand as _on_demand
from powerzoo_jax.oracle.baselines import BASELINES as BASELINES
from powerzoo_jax.oracle.baselines import baseline_policy as baseline_policy
from powerzoo_jax.oracle.baselines import evaluate_baseline as evaluate_baseline
from powerzoo_jax.oracle.baselines import idle_act as idle_act
from powerzoo_jax.oracle.baselines import random_act as random_act
from powerzoo_jax.oracle.clock_plan import get_trivial as get_trivial
from powerzoo_jax.oracle.registry import Baselines as Baselines
from powerzoo_jax.oracle.registry import OraclePlan as OraclePlan
from powerzoo_jax.oracle.registry import Policy as Policy
from powerzoo_jax.oracle.registry import follow as follow
from powerzoo_jax.oracle.registry import get_baselines as get_baselines
from powerzoo_jax.oracle.registry import get_causal as get_causal
from powerzoo_jax.oracle.registry import get_priced as get_priced
from powerzoo_jax.oracle.registry import get_reference as get_reference
from powerzoo_jax.oracle.registry import list_baselines as list_baselines
from powerzoo_jax.oracle.registry import list_causal as list_causal
from powerzoo_jax.oracle.registry import list_priced as list_priced
from powerzoo_jax.oracle.registry import plan_act as plan_act
from powerzoo_jax.oracle.registry import register_baselines as register_baselines

if TYPE_CHECKING:
    from powerzoo_jax.families.feeder.arbitrage.plan import Certificate as Certificate
    from powerzoo_jax.families.feeder.arbitrage.plan import Solution as Solution
    from powerzoo_jax.families.feeder.arbitrage.plan import certify as certify
    from powerzoo_jax.families.feeder.arbitrage.plan import solve_storage as solve_storage
    from powerzoo_jax.families.feeder.arbitrage.policies import evaluate_plans as evaluate_plans
    from powerzoo_jax.families.feeder.arbitrage.policies import plan_carry as plan_carry
    from powerzoo_jax.families.feeder.arbitrage.policies import rule_plan as rule_plan
    from powerzoo_jax.families.feeder.arbitrage.policies import solve_starts as solve_starts
    from powerzoo_jax.families.feeder.arbitrage.problem import StorageEpisode as StorageEpisode
    from powerzoo_jax.families.feeder.arbitrage.problem import build_problem as build_problem
    from powerzoo_jax.families.feeder.arbitrage.problem import build_problems as build_problems
    from powerzoo_jax.families.feeder.arbitrage.problem import play as play
    from powerzoo_jax.families.transmission.commitment.plan import CommitmentPlan as CommitmentPlan
    from powerzoo_jax.families.transmission.commitment.plan import solve_commitment as solve_commitment
    from powerzoo_jax.families.transmission.commitment.problem import CommitmentDay as CommitmentDay
    from powerzoo_jax.families.transmission.commitment.problem import PlayedCommitment as PlayedCommitment
    from powerzoo_jax.families.transmission.commitment.problem import play_commitment as play_commitment

_ARBITRAGE, _COMMITMENT = "powerzoo_jax.families.feeder.arbitrage", "powerzoo_jax.families.transmission.commitment"
__getattr__ = _on_demand(
    __name__,
    {
        **dict.fromkeys(("Certificate", "Solution", "certify", "solve_storage"), f"{_ARBITRAGE}.plan"),
        **dict.fromkeys(("evaluate_plans", "plan_carry", "rule_plan", "solve_starts"), f"{_ARBITRAGE}.policies"),
        **dict.fromkeys(("StorageEpisode", "build_problem", "build_problems", "play"), f"{_ARBITRAGE}.problem"),
        **dict.fromkeys(("CommitmentPlan", "solve_commitment"), f"{_COMMITMENT}.plan"),
        **dict.fromkeys(("CommitmentDay", "PlayedCommitment", "play_commitment"), f"{_COMMITMENT}.problem"),
    },
)
