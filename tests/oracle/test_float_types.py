"""Every baseline of every task plays in both float types, also where x64 mode makes literals 64 bits wide."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax.tree_util import Partial

import powerzoo_jax
from powerzoo_jax.envs.episode import run_episodes
from powerzoo_jax.oracle import baseline_policy, get_baselines, get_causal, list_baselines
from powerzoo_jax.oracle.baselines import CAUSAL, TRIVIAL
from powerzoo_jax.oracle.registry import has_causal, load_table, version_key
from powerzoo_jax.tasks.score import SEED, episode_keys, evaluate, seeded_starts

pytestmark = pytest.mark.full

ORACLE = "oracle"
ROUNDED = 1e-6  # of a bound, relative: optima are found to less


def names_of(task: str) -> list[str]:
    """Baselines of a task without the oracle, whose plan is played as those of rules are."""
    known = load_table()[task][version_key(task)]["test"]
    others = [name for name, has in ((TRIVIAL, TRIVIAL in known), (CAUSAL, has_causal(task))) if has]
    return [name for name in get_baselines(task).names if name != ORACLE] + others


@pytest.mark.tiers(
    long=[
        "dc_microgrid_safe-float32",
        "dc_microgrid_safe-float64",
        "dc_scheduling_7d-float32",
        "dc_scheduling_7d-float64",
        "joint_trans_dist_7d-float32",
        "joint_trans_dist_7d-float64",
        "marl_der_arbitrage_5bat-float32",
        "marl_der_arbitrage_5bat-float64",
        "marl_der_arbitrage_7d-float32",
        "marl_der_arbitrage_7d-float64",
        "marl_ev_v2g_10ev-float32",
        "marl_ev_v2g_10ev-float64",
        "marl_ev_v2g_1d-float32",
        "marl_ev_v2g_1d-float64",
        "marl_opf_118-float32",
        "marl_opf_118-float64",
        "marl_opf_7d-float32",
        "marl_opf_7d-float64",
        "opf_118_7d-float32",
        "opf_118_7d-float64",
    ]
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("task", list_baselines())
def test_every_baseline_is_a_program_of_the_float_type_of_its_task(task, dtype):
    """Traced, which is where mixed types are refused, and not compiled."""
    with jax.enable_x64(True):
        sim = powerzoo_jax.make(task, split="test", dtype=dtype)
        draws, keys = seeded_starts(sim, 1, SEED), episode_keys(SEED, 1)
        for name in names_of(task):
            policy = baseline_policy(sim, name, draws, keys)
            act = policy.act if isinstance(policy.act, Partial) else Partial(policy.act)
            total = jax.eval_shape(run_episodes, sim, act, keys, draws, policy.carry).total
            assert total.dtype == jnp.dtype(dtype), name


@pytest.mark.long
@pytest.mark.parametrize("task", list_baselines())
def test_no_plan_in_double_precision_returns_more_than_the_bound_of_its_day(task):
    """Played for an episode, compiled: the oracle, and the causal planner where the task has one."""
    with jax.enable_x64(True):
        sim = powerzoo_jax.make(task, split="test", dtype="float64")
        draws, keys = seeded_starts(sim, 1, SEED), episode_keys(SEED, 1)
        oracle = get_baselines(task).oracle(sim, draws, keys)
        policies = [oracle.policy, *([get_causal(task)(sim, draws, keys)] if has_causal(task) else [])]
        for policy in policies:
            record = evaluate(sim, policy.act, draws=draws, carry=policy.carry)
            assert record.mean_ep_length == sim.spec.horizon and record.pf_failure_rate == 0
            assert record.mean_reward <= oracle.bound[0] + ROUNDED * abs(oracle.bound[0])
