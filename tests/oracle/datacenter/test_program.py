"""The oracle of the data centre on a feeder against an optimum by hand, its own bound, and the env that executes it."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.base.tree import take
from powerzoo_jax.devices.facility import FINETUNE, TRAIN, JobClass
from powerzoo_jax.oracle.datacenter.policies import (
    SCHEDULING,
    build_site_problems,
    plan_episodes,
    play_starts,
    read_episodes,
    relaxed_program,
    return_bound,
)
from powerzoo_jax.oracle.datacenter.problem import JobList
from powerzoo_jax.oracle.datacenter.program import solve_site, undone_usd
from powerzoo_jax.oracle.datacenter.search import (
    COST_GRAIN,
    MODES,
    common_sizes,
    play_plans,
    read_work,
    search,
    simple_plans,
)
from powerzoo_jax.oracle.linear_program import dual_bound
from powerzoo_jax.tasks.score import all_starts, episode_keys, evaluate

pytestmark = [pytest.mark.reference, pytest.mark.full]

TASK = "dc_scheduling"
EXACT = 1e-6  # a programme solved to 1e-9 and executed in float64
DAYS = np.array([3, 24, 45])


def without_jobs(kind: JobClass) -> JobClass:
    return JobClass(0.0, kind.gpus, kind.duration_min, kind.deadline_factor, kind.eta)


@pytest.fixture(scope="module")
def played():
    """Returns of the reference policies on three test days, and the foresight of the oracle, in float64."""
    with jax.enable_x64(True):
        sim = powerzoo_jax.make(TASK, split="test", dtype="float64")
        draws, keys = take(all_starts(sim), DAYS), episode_keys(0, len(DAYS))
        plan = SCHEDULING.oracle(sim, draws, keys)
        policies = {name: choose(sim, draws, keys) for name, choose in SCHEDULING.rules.items()}
        policies["oracle"] = plan.policy
        records = {name: evaluate(sim, p.act, carry=p.carry, draws=draws, seed=0) for name, p in policies.items()}
        episodes = read_episodes(sim, keys, draws.load_row, draws.price_row)
    return plan, records, build_site_problems(sim, episodes), sim, episodes


def test_an_hour_without_jobs_warms_the_room_and_pays_for_servers_and_fans():
    """The fans' 50 kW remove 250 kW at a coefficient of 5, of the servers' 555, so that more would cost more than the
    heat that is left; what the room has warmed by then is paid as the electricity that would cool it.
    """
    with jax.enable_x64(True):
        sim = powerzoo_jax.make(
            TASK,
            split="test",
            dtype="float64",
            max_steps=2,
            infer_gpu_peak=0,
            train_cfg=without_jobs(TRAIN),
            finetune_cfg=without_jobs(FINETUNE),
        )
        draws = take(all_starts(sim), slice(0, 1))
        (plan,) = plan_episodes(sim, draws, episode_keys(0, 1))
        price = np.asarray(sim.params.bank.price_rows)[int(draws.price_row[0]) + np.arange(2), 0]
    warm_c, outdoor_c = 0.0, 8.0
    for _ in range(12):  # explicit steps of 5 min: 500 kWh and walls of 5 kW a degree
        warm_c += (555 - 250 - 5 * (22 + warm_c - outdoor_c)) / 500 / 12
    heat_mwh = 500 * warm_c / 1000 / 5
    by_hand = -0.01 * (0.5 * price.sum() * (1.05 * 0.555 + 0.05) + price.mean() * heat_mwh)
    assert (price > 0).all() and plan.bound == pytest.approx(by_hand, abs=EXACT)
    # one set-point for half an hour removes a little less than 250 kW at its end
    assert by_hand - 1e-5 < plan.objective < by_hand


@pytest.mark.long
def test_executed_the_plan_returns_what_the_programme_says_in_a_room_that_is_never_too_warm(played):
    plan, records, problems, *_ = played
    assert min(problem.usd_per_mwh.min() for problem in problems) < 0  # one of the days has negative prices
    np.testing.assert_allclose(records["oracle"].episode_rewards, plan.objective, atol=EXACT)
    assert records["oracle"].mean_costs_by_constraint["overtemp"] <= EXACT and records["oracle"].feasible


def test_no_policy_beats_the_bound_and_the_oracle_beats_every_rule(played):
    plan, records, *_ = played
    for name, record in records.items():
        returns = np.array(record.episode_rewards)
        assert (returns <= plan.bound + EXACT).all()
        assert name == "oracle" or (returns < np.array(records["oracle"].episode_rewards)).all()


def test_the_planner_foresees_the_jobs_that_the_environment_draws(played):
    """Nothing is started: every job whose deadline lies inside the day is a miss, counted by hand."""
    _, records, problems, *_ = played
    missed = [float(problem.jobs.priced.sum()) for problem in problems]
    assert records["no_control"].episode_costs_by_constraint["sla"] == missed
    assert np.mean(missed) == pytest.approx(90, rel=0.15)  # spec 05: about 90 of 105 jobs


def test_the_bound_holds_for_any_multipliers_and_is_that_of_the_solver(played):
    plan, _, problems, *_ = played
    program = relaxed_program(problems[1])
    dual = solve_site(program).dual
    start = problems[1].initial_heat  # what the room holds at first is a constant beside the programme
    assert start - dual_bound(program, dual) == pytest.approx(plan.bound[1], abs=EXACT)
    wrong = dual + 0.01 * np.random.default_rng(0).normal(size=dual.shape)
    assert start - dual_bound(program, wrong) > plan.bound[1]


def test_by_hand_a_job_runs_no_more_than_the_one_ahead_of_it(played):
    """600 GPUs beside inference, energy for nothing, two jobs of 700 and 100 that are in time in the first step only.

    Shares a and b of them start: 700 a + 100 b <= 600 and b <= a, so 3/4 of each; b = 1 and a = 5/7 in any order.
    A miss weighs 5.
    """
    jobs = JobList(
        kind=np.zeros(2, int),
        arrival=np.zeros(2, int),
        last=np.array([2, 2]),
        gpus=np.array([700.0, 100.0]),
        duration_min=np.full(2, 60.0),
        steps=np.full(2, 2.0),
        priced=np.ones(2, bool),
        due_min=np.array([80.0, 85.0]),
    )
    calm = np.zeros(48)
    free = {"usd_per_mwh": calm, "end_heat_usd_per_c": 0.0}
    problem = dataclasses.replace(played[2][0], jobs=jobs, serving=calm + 400, **free)
    assert return_bound(problem) == pytest.approx(-2 * 5 / 4, abs=EXACT)
    # a queue with one place refuses the second job, which then waits for none
    unordered = dataclasses.replace(problem, slots=1)
    assert return_bound(unordered) == pytest.approx(-2 * 5 / 7, abs=EXACT)


def test_the_model_of_the_queues_starts_and_loses_what_the_environment_does(played):
    """Energy for nothing: plans that switch at random cost the misses and the work left that the kernel counts."""
    problems, sim, episodes = played[2:]
    sizes, rng = common_sizes(problems), np.random.default_rng(5)
    modes = np.repeat(rng.integers(0, len(MODES), (len(problems), 12, 2, 1)), 4, axis=1)
    works = [read_work(problem, np.zeros(48), sizes) for problem in problems]
    with jax.enable_x64(True):
        nothing = jnp.zeros((sizes.jobs + 1, 1), "float32")
        modelled = [play_plans(work, plan, nothing) for work, plan in zip(works, modes, strict=True)]
        gpus = jnp.asarray(np.array([gpus[..., 0] for _, gpus, _ in modelled]), "float64")
        trail = jax.tree.map(np.asarray, play_starts(sim, episodes, gpus, jnp.asarray(0.6, "float64")))
    assert trail.missed.min() > 0 and trail.backlog_gpu_h.min() > 0
    rows = zip(problems, modelled, trail.missed, trail.backlog_gpu_h, strict=True)
    for problem, (beside, *_), missed, left in rows:
        idle = problem.weight * undone_usd(problem).sum()
        lost = problem.weight * (problem.missed_usd * missed + problem.backlog_usd_per_gpu_h * left)
        assert float(beside[0]) + idle == pytest.approx(lost, abs=len(problem.jobs.gpus) / COST_GRAIN / 2)


def test_by_hand_the_search_drops_the_job_that_would_cost_four_others(played):
    """600 GPUs beside inference. A takes 500 of them for four hours, at once or never; half an hour later come four
    jobs of 200, of which three fit at once, the last in time if it follows them; C of 100 comes at six o'clock."""
    jobs = JobList(
        kind=np.array([0, 0, 1, 1, 1, 1]),
        arrival=np.array([0, 12, 1, 1, 1, 1]),
        last=np.array([8, 16, 3, 4, 5, 6]),
        gpus=np.array([500.0, 100.0, 200.0, 200.0, 200.0, 200.0]),
        duration_min=np.array([240.0, 60.0, 60.0, 60.0, 60.0, 60.0]),
        steps=np.array([8.0, 2.0, 2.0, 2.0, 2.0, 2.0]),
        priced=np.ones(6, bool),
        due_min=np.array([250.0, 480.0, 100.0, 110.0, 120.0, 160.0]),
    )
    calm = np.zeros(48)
    problem = dataclasses.replace(played[2][0], jobs=jobs, serving=calm + 400, usd_per_mwh=calm)
    sizes = common_sizes([problem])
    gpus = search(read_work(problem, calm, sizes), sizes, simple_plans(calm, (1.0, 1.0)), days=1).gpus[0]
    np.testing.assert_array_equal(gpus[:4], [[0, 0], [0, 600], [0, 0], [0, 200]])
    assert gpus[4:12].sum() == 0 and gpus[12:15, 0].sum() == 100 and gpus[:, 0].sum() == 100


def test_a_bonus_on_the_usage_effectiveness_is_refused():
    sim = powerzoo_jax.make(TASK, pue_bonus_weight=1.0)
    with pytest.raises(ValueError, match="pue_bonus_weight"):
        build_site_problems(sim, None)  # before any episode is read
