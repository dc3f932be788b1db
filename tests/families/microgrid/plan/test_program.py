"""The microgrid's oracle against an optimum by hand, its own bound, and the environment that executes it."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import jax
import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.base.tree import take
from powerzoo_jax.devices.facility import FINETUNE, TRAIN, JobClass
from powerzoo_jax.families.microgrid.plan.policies import MICROGRID, plan_episodes, relaxed_return, stored_value
from powerzoo_jax.families.microgrid.plan.problem import build_microgrid_problem, dispatch_program, relaxed_program
from powerzoo_jax.oracle.datacenter.problem import JobList
from powerzoo_jax.oracle.datacenter.program import idle_it_mw, solve_site
from powerzoo_jax.oracle.linear_program import dual_bound
from powerzoo_jax.tasks.score import all_starts, episode_keys, evaluate

pytestmark = [pytest.mark.reference, pytest.mark.full]

EXACT = 1e-6  # a programme solved to 1e-9 and executed in float64 over 288 steps
GAP = 0.05  # of the bound of two jobs that it may split and start late in part
DAYS = np.array([0, 20, 40])


def without_jobs(kind: JobClass) -> JobClass:
    return JobClass(0.0, kind.gpus, kind.duration_min, kind.deadline_factor, kind.eta)


@pytest.mark.long
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
        plan = MICROGRID.oracle(sim, draws, episode_keys(0, len(DAYS)))
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
    program = relaxed_program(problem)
    dual = solve_site(program).dual
    assert -stored_value(problem) - dual_bound(program, dual) == pytest.approx(plan.bound[1], abs=EXACT)
    wrong = dual + 0.01 * np.random.default_rng(0).normal(size=dual.shape)
    assert -stored_value(problem) - dual_bound(program, wrong) > plan.bound[1]


def test_no_plan_of_two_jobs_beats_the_bound_at_a_price_of_dropped_work():
    """An hour in which a job of 64 GPUs and one of 128 start in any step or never, each way priced exactly."""
    sim = powerzoo_jax.make("dc_microgrid_safe", split="test", max_steps=12)
    jobs = JobList(
        kind=np.array([0, 1]),
        arrival=np.array([0, 2]),
        last=np.array([5, 7]),
        gpus=np.array([64.0, 128.0]),
        duration_min=np.array([20.0, 15.0]),
        steps=np.array([4.0, 3.0]),
        priced=np.array([True, True]),
        due_min=np.array([30.0, 40.0]),
    )
    problem = replace(build_microgrid_problem(sim, take(all_starts(sim), 30)), jobs=jobs)
    ways = [[*range(first, last + 1), None] for first, last in zip(jobs.arrival, jobs.last, strict=True)]
    earned, missed, dropped = [], [], []
    for starts in product(*ways):
        it_mw, late, gone = idle_it_mw(problem), 0, 0.0
        for k, start in enumerate(starts):
            if start is None:
                late, gone = late + 1, gone + jobs.gpus[k] * jobs.duration_min[k] / 60
            else:
                it_mw[start : start + int(jobs.steps[k])] += jobs.gpus[k] * problem.job_mw_per_gpu[k]
                late += 5 * start + jobs.duration_min[k] > jobs.due_min[k]
        program, *_ = dispatch_program(problem, it_mw)
        earned.append(-solve_site(program).objective - stored_value(problem))
        missed.append(late)
        dropped.append(gone)
    assert problem.missed_usd == 0 and max(dropped) == pytest.approx(64 / 3 + 128 / 4)
    bounds = []
    for missed_usd, dropped_usd in ((0.0, 0.0), (0.0, 0.02), (0.0, 20.0), (5.0, 0.0), (5.0, 20.0)):
        paid = problem.weight * (missed_usd * np.array(missed) + dropped_usd * np.array(dropped))
        best = (np.array(earned) - paid).max()
        bounds.append(relaxed_return(replace(problem, missed_usd=missed_usd, dropped_usd_per_gpu_h=dropped_usd)))
        assert bounds[-1] == pytest.approx(best, abs=EXACT)  # no job pushes inference aside, so nothing is relaxed
    # told of a miss, or of two, the bound is of the ways that have as many
    for fewest in (1, 2):
        best = (np.array(earned) - problem.weight * 500.0 * np.array(missed))[np.array(missed) >= fewest].max()
        dear = replace(problem, missed_usd=500.0)
        told = relaxed_return(dear, fewest_misses=fewest)
        assert best - EXACT <= told <= best + GAP * abs(best)
        assert told < relaxed_return(dear, fewest_misses=fewest - 1)
    # nothing is worth running until dropping it costs; then it runs, and to be in time costs nothing more
    assert bounds[0] > bounds[1] > bounds[2] == pytest.approx(bounds[4], abs=EXACT) and bounds[3] > bounds[4]
