"""Whole job starts of a data centre and the bound of plant and jobs apart, against every way to start three jobs."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.base.errors import SolverError
from powerzoo_jax.base.tree import take
from powerzoo_jax.oracle.datacenter.policies import (
    build_site_problems,
    cooling_program,
    read_episodes,
    relaxed_plant,
)
from powerzoo_jax.oracle.datacenter.priced import MISS_USD, SitePlans, relaxed_bound
from powerzoo_jax.oracle.datacenter.problem import JobList
from powerzoo_jax.oracle.datacenter.program import (
    crowding,
    idle_it_mw,
    list_starts,
    solve_site,
    start_cost,
    starts_late,
    undone_usd,
)
from powerzoo_jax.oracle.datacenter.whole_jobs import fewest_misses, plan_whole_jobs, plant_bound
from powerzoo_jax.oracle.reference import execute
from powerzoo_jax.tasks.score import SEED, all_starts, episode_keys

pytestmark = pytest.mark.reference

EXACT = 1e-5  # of programs solved to 1e-7 in float64
ROUNDED = 2e-3  # of a return near 20, played in float32
STEPS, SECONDS = 12, 10.0


@pytest.fixture(scope="module")
def three_jobs():
    """A job of 500 GPUs and two small ones in six hours, where 600 are free at first and 450 later."""
    sim = powerzoo_jax.make("dc_scheduling", split="test", max_steps=STEPS)
    draws, keys = take(all_starts(sim), slice(9, 10)), episode_keys(SEED, 1)
    jobs = JobList(
        kind=np.array([0, 1, 1]),
        arrival=np.array([1, 1, 2]),
        last=np.array([4, 3, 5]),
        gpus=np.array([500.0, 150.0, 100.0]),
        duration_min=np.array([100.0, 60.0, 90.0]),
        steps=np.array([4.0, 2.0, 3.0]),
        priced=np.ones(3, bool),
        due_min=np.array([150.0, 110.0, 180.0]),
    )
    (problem,) = build_site_problems(sim, read_episodes(sim, keys, draws.load_row, draws.price_row))
    serving = np.where(np.arange(STEPS) < 4, 400.0, 550.0)
    return replace(problem, jobs=jobs, serving=serving, usd_per_mwh=60 + 20 * np.sin(np.arange(STEPS)))


def every_way(problem):
    """Returns of all starts that the queue and the free GPUs allow, with the best set-points beside each."""
    jobs, found = problem.jobs, {}
    for ways in product(*([*range(a, b + 1), None] for a, b in zip(jobs.arrival, jobs.last, strict=True))):
        held, it_mw, cost = np.zeros(STEPS), idle_it_mw(problem), 0.0
        for k, step in enumerate(ways):
            if step is None:
                cost += problem.weight * float(undone_usd(problem)[k])
                continue
            run = slice(step, step + int(jobs.steps[k]))
            held[run] += jobs.gpus[k]
            it_mw[run] += jobs.gpus[k] * problem.job_mw_per_gpu[jobs.kind[k]]
            cost += float(start_cost(problem, np.array([k]), np.array([step]))[0])
        free = 1000 - problem.serving
        first, second = ways[1], ways[2]  # due in this order, both waiting from step 2 to 3
        overtaken = second is not None and second <= 3 and (first is None or first > second)
        # inference gives way to what runs, and saves its power
        aside = np.maximum(held - free, 0)
        it_mw -= aside * (problem.values["active_w"] * problem.values["infer_eta"] - problem.values["idle_w"]) / 1e6
        if overtaken or any(held[step] > free[step] for step in ways if step is not None):
            continue
        program, _ = cooling_program(problem, it_mw)
        found[ways] = problem.initial_heat - solve_site(program).objective - cost
    return found


def least_missed(problem):
    """Misses of the way to start the jobs that has the fewest."""

    def late(job, step):
        return step is None or bool(starts_late(problem, np.array([job]), np.array([step]))[0])

    return min(sum(late(k, step) for k, step in enumerate(way)) for way in every_way(problem))


@pytest.mark.parametrize("missed_usd", [1.0, 500.0])
def test_no_way_to_start_three_jobs_beats_the_bound_at_any_prices_of_power(three_jobs, missed_usd):
    problem = replace(three_jobs, missed_usd=missed_usd)
    ways, starts = every_way(problem), list_starts(three_jobs, three_jobs.slots)
    best = max(ways.values())
    relaxed, price = relaxed_bound(problem, starts)
    nothing = np.zeros((STEPS, 2))
    bounds = []
    for at in (price, 0.5 * price, price + 0.3 * np.cos(np.arange(STEPS))):
        whole = plan_whole_jobs(problem, starts, at, nothing, SECONDS)
        bounds.append(problem.initial_heat - plant_bound(*relaxed_plant(problem), problem, at) - whole.bound)
        assert bounds[-1] >= best - EXACT
    assert bounds[0] <= relaxed + EXACT and bounds[0] < min(bounds[1:])
    # the starts at the relaxation's prices are among the ways, and lose little
    gpus = plan_whole_jobs(problem, starts, price, nothing, SECONDS).gpus
    own = [ways[way] for way in ways if np.array_equal(gpus, as_gpus(problem, way))]
    assert own and best - own[0] <= bounds[0] - best + EXACT


def test_no_run_of_jobs_pushes_more_inference_aside_than_their_ages_allow(three_jobs):
    """Forty jobs begin at random where they fit beside inference that jumps from step to step."""
    rng, count, seen = np.random.default_rng(3), 40, 0.0
    for _ in range(50):
        arrival, steps = rng.integers(0, STEPS - 2, count), rng.integers(1, 7, count)
        gpus = rng.integers(20, 300, count).astype(float)
        last = np.minimum(arrival + rng.integers(0, 6, count), STEPS - 1)
        jobs = three_jobs.jobs._replace(arrival=arrival, last=last, gpus=gpus, steps=steps.astype(float))
        problem = replace(three_jobs, jobs=jobs, serving=rng.integers(150, 450, STEPS).astype(float))
        room, free = crowding(problem), 1000 - problem.serving
        held = np.zeros((STEPS, 6))  # by age
        for step in range(STEPS):
            begun = step == 0 or rng.random() < 0.5
            for k in rng.permutation(np.flatnonzero((arrival <= step) & (step <= last))) if begun else ():
                if held[step].sum() + gpus[k] <= free[step]:
                    arrival[k] = STEPS  # begins once
                    for age in range(min(steps[k], STEPS - step)):
                        held[step + age, age] += gpus[k]
        aside = np.maximum(held.sum(axis=1) - free, 0)
        assert (aside <= (room.share * held[:, : room.share.shape[1]]).sum(axis=1) + EXACT).all()
        assert (held.sum(axis=1) <= room.most + EXACT).all()
        seen += aside.sum()
    assert seen > 0


def test_jobs_that_cannot_all_be_in_time_miss_as_few_deadlines_as_any_way_to_start_them(three_jobs):
    # the small jobs last as long as the large one, and no two of the three fit beside each other
    jobs = three_jobs.jobs._replace(gpus=np.array([500.0, 300.0, 350.0]), steps=np.array([4.0, 4.0, 4.0]))
    jobs = jobs._replace(
        duration_min=np.full(3, 110.0), last=np.array([4, 4, 5]), due_min=np.array([150.0, 145.0, 190.0])
    )
    problem = replace(three_jobs, jobs=jobs, missed_usd=500.0)
    fewest = least_missed(problem)
    starts = list_starts(problem, problem.slots)
    whole = plan_whole_jobs(problem, starts, relaxed_bound(problem, starts)[1], np.zeros((STEPS, 2)), SECONDS)
    assert fewest > 0 and whole.bound <= whole.cost
    # what a miss costs is most of the bound: the relaxation alone shares a start out among steps
    assert whole.bound > fewest * problem.weight * problem.missed_usd
    # the same number, if it is asked for on its own; never more than some starts are known to have
    assert [fewest_misses(problem, starts, known, SECONDS) for known in (0, fewest, 3)] == [0, fewest, fewest]


@pytest.mark.parametrize("large", [200.0, 500.0])
def test_misses_that_nobody_can_avoid_are_those_of_every_way_to_start(three_jobs, large):
    problem = replace(three_jobs, jobs=three_jobs.jobs._replace(gpus=np.array([large, 150.0, 100.0])))
    starts = list_starts(problem, problem.slots)
    assert fewest_misses(problem, starts, 3, SECONDS) == least_missed(problem) == (large > 200)
    # a search without time proves none
    assert fewest_misses(problem, starts, 3, 0.0) == 0


def test_without_the_library_a_plan_of_whole_jobs_names_its_extra(three_jobs, monkeypatch):
    monkeypatch.setitem(sys.modules, "ortools.sat.python", None)
    starts = list_starts(three_jobs, three_jobs.slots)
    with pytest.raises(ImportError, match=r"plan of whole jobs needs ortools.*powerzoo-jax\[ortools\]"):
        plan_whole_jobs(three_jobs, starts, np.ones(STEPS), np.zeros((STEPS, 2)), SECONDS)


def test_a_search_without_time_says_what_to_give_it(three_jobs):
    starts = list_starts(three_jobs, three_jobs.slots)
    with pytest.raises(SolverError, match=r"CP-SAT ended with status UNKNOWN after 0 s. Give it more seconds"):
        plan_whole_jobs(three_jobs, starts, np.ones(STEPS), np.zeros((STEPS, 2)), 0.0)


def as_gpus(problem, way):
    gpus = np.zeros((STEPS, 2))
    for k, step in enumerate(way):
        if step is not None:
            gpus[step, problem.jobs.kind[k]] += problem.jobs.gpus[k]
    return gpus


@pytest.mark.full
@pytest.mark.full
def test_a_plan_at_a_price_of_misses_returns_what_it_says_below_its_bound():
    sim = powerzoo_jax.make("dc_scheduling", split="val", max_steps=16)
    draws, keys = take(all_starts(sim), slice(3, 4)), episode_keys(SEED, 1)
    planner = SitePlans(sim, draws, keys)
    assert planner.most_price.max() == pytest.approx(0.01 * MISS_USD)
    for price in (np.zeros(6), planner.most_price):
        plan = planner.plan(0, price)
        played = execute(sim, draws, SEED, [plan])
        assert abs(played.mean_reward - plan.value) < ROUNDED
        assert played.mean_costs_by_constraint["sla"] == plan.cost[sim.spec.cost_names.index("sla")]
        assert plan.value - price @ plan.cost <= plan.bound + EXACT
