"""Oracles: perfect-foresight plans, certified bounds, baseline policies and the shipped reference returns."""

from powerzoo_jax.oracle.bounds import Certificate as Certificate
from powerzoo_jax.oracle.bounds import certify as certify
from powerzoo_jax.oracle.commitment import CommitmentPlan as CommitmentPlan
from powerzoo_jax.oracle.commitment import solve_commitment as solve_commitment
from powerzoo_jax.oracle.commitmentproblem import CommitmentProblem as CommitmentProblem
from powerzoo_jax.oracle.commitmentproblem import PlayedCommitment as PlayedCommitment
from powerzoo_jax.oracle.commitmentproblem import play_commitment as play_commitment
from powerzoo_jax.oracle.lp import Solution as Solution
from powerzoo_jax.oracle.lp import solve_storage as solve_storage
from powerzoo_jax.oracle.policies import BASELINES as BASELINES
from powerzoo_jax.oracle.policies import evaluate_baseline as evaluate_baseline
from powerzoo_jax.oracle.policies import evaluate_plans as evaluate_plans
from powerzoo_jax.oracle.policies import idle_act as idle_act
from powerzoo_jax.oracle.policies import plan_act as plan_act
from powerzoo_jax.oracle.policies import plan_carry as plan_carry
from powerzoo_jax.oracle.policies import random_act as random_act
from powerzoo_jax.oracle.policies import rule_plan as rule_plan
from powerzoo_jax.oracle.policies import solve_starts as solve_starts
from powerzoo_jax.oracle.problem import Problem as Problem
from powerzoo_jax.oracle.problem import build_problem as build_problem
from powerzoo_jax.oracle.problem import build_problems as build_problems
from powerzoo_jax.oracle.problem import play as play
from powerzoo_jax.oracle.table import get_reference as get_reference
