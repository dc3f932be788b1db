"""The microgrid's oracle against an optimum by hand, its own bound, and the environment that executes it."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.base.tree import take
from powerzoo_jax.devices.facility import FINETUNE, TRAIN, JobClass
from powerzoo_jax.oracle.datacenter.program import solve_site
from powerzoo_jax.oracle.linear_program import dual_bound
from powerzoo_jax.oracle.microgrid.policies import MICROGRID, plan_episodes, stored_value
from powerzoo_jax.oracle.microgrid.problem import build_microgrid_problem, relaxed_program
from powerzoo_jax.tasks.score import all_starts, episode_keys, evaluate

pytestmark = pytest.mark.reference

EXACT = 1e-6  # a programme solved to 1e-9 and executed in float64 over 288 steps
DAYS = np.array([0, 20, 40])


def without_jobs(kind: JobClass) -> JobClass:
    return JobClass(0.0, kind.gpus, kind.duration_min, kind.deadline_factor, kind.eta)


def test_an_hour_without_jobs_runs_on_the_battery_and_on_the_cold_of_the_room():
    """Nothing to cool below 27 degC; the battery costs 5 + 300 / 0.95 / 0.95 $/MWh, diesel 300 + 64 with its carbon."""
    with jax.enable_x64(True):
        sim = powerzoo_jax.make(
            "dc_microgrid",
            split="test",
            dtype="float64",
            max_steps=12,
            cpu_profile=(0.0,) * 288,
            solar_profile=(0.0,) * 288,
            train_cfg=without_jobs(TRAIN),
            finetune_cfg=without_jobs(FINETUNE),
        )
        (plan,) = plan_episodes(sim, take(all_starts(sim), slice(0, 1)))
    load = 1.05 * (0.4 + 1000 * 55 / 1e6)
    by_hand = -0.01 * load * (5 + 300 / 0.95**2)
    assert plan.objective == pytest.approx(by_hand, abs=EXACT)
    assert plan.bound == pytest.approx(by_hand, abs=EXACT)
    np.testing.assert_allclose(plan.action[:, 0, 3], load / 0.5, atol=EXACT)


@pytest.fixture(scope="module")
def played():
    """Returns of the reference policies on three test days, and the foresight of the oracle, in float64."""
    with jax.enable_x64(True):
        sim = powerzoo_jax.make("dc_microgrid", split="test", dtype="float64")
        draws = take(all_starts(sim), DAYS)
        plan = MICROGRID.foresee(sim, draws, episode_keys(0, len(DAYS)))
        policies = {name: choose(sim, draws, episode_keys(0, 3)) for name, choose in MICROGRID.rules.items()}
        policies["oracle"] = plan.policy
        records = {name: evaluate(sim, p.act, carry=p.carry, draws=draws) for name, p in policies.items()}
        problem = build_microgrid_problem(sim, take(draws, 1))
    return plan, records, problem


def test_executed_the_plan_returns_what_the_programme_says_and_breaks_nothing(played):
    plan, records, _ = played
    np.testing.assert_allclose(records["oracle"].episode_rewards, plan.objective, atol=EXACT)
    costs = records["oracle"].mean_costs_by_constraint
    assert costs["overtemp"] <= EXACT and costs["power_deficit"] <= EXACT and records["oracle"].feasible


def test_no_policy_beats_the_bound_and_the_oracle_beats_every_rule(played):
    plan, records, _ = played
    for name, record in records.items():
        returns = np.array(record.episode_rewards)
        assert (returns <= plan.bound + EXACT).all()
        assert name == "oracle" or (returns < np.array(records["oracle"].episode_rewards)).all()
    assert (plan.bound - plan.objective < 0.1 * np.abs(plan.objective)).all()


def test_the_bound_holds_for_any_multipliers_and_is_that_of_the_solver(played):
    plan, _, problem = played
    program = relaxed_program(problem, problem.missed_usd)
    dual = solve_site(program).dual
    assert -stored_value(problem) - dual_bound(program, dual) == pytest.approx(plan.bound[1], abs=EXACT)
    wrong = dual + 0.01 * np.random.default_rng(0).normal(size=dual.shape)
    assert -stored_value(problem) - dual_bound(program, wrong) > plan.bound[1]
