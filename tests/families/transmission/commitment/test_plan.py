"""Unit-commitment plans against a published day, brute force, and the rules that the environments play by."""

from __future__ import annotations

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.base.errors import SolverError
from powerzoo_jax.families.transmission.commitment.plan import piecewise_error, solve_commitment, solve_relaxation
from powerzoo_jax.families.transmission.commitment.problem import CommitmentDay, play_commitment
from powerzoo_jax.families.transmission.commitment.program import commitment_program
from powerzoo_jax.opf.commit import (
    CommitmentState,
    advance_commitment,
    commitment_rules,
    initial_commitment,
    output_window,
    project_commitment,
)
from powerzoo_jax.opf.offers import UnitCosts
from powerzoo_jax.oracle.linear_program import dual_bound

pytestmark = pytest.mark.reference

# Kazarlis, Bakirtzis, Petridis 1996, doi:10.1109/59.485989, ten units and 24 hours, 10 % reserve.
P_MAX = np.array([455, 455, 130, 130, 162, 80, 85, 55, 55, 55.0])
P_MIN = np.array([150, 150, 20, 20, 25, 20, 25, 10, 10, 10.0])
CONSTANT = np.array([1000, 970, 700, 680, 450, 370, 480, 660, 665, 670.0])
LINEAR = np.array([16.19, 17.26, 16.60, 16.50, 19.70, 22.26, 27.74, 25.92, 27.27, 27.79])
SQUARE = np.array([0.00048, 0.00031, 0.002, 0.00211, 0.00398, 0.00712, 0.00079, 0.00413, 0.00222, 0.00173])
MIN_TIME = np.array([8, 8, 5, 5, 6, 3, 3, 1, 1, 1])  # hours up and down alike
HOT_START = np.array([4500, 5000, 550, 560, 900, 170, 260, 30, 30, 30.0])
COLD_HOURS = np.array([5, 5, 4, 4, 4, 2, 2, 0, 0, 0])
INITIAL = np.array([8, 8, -5, -5, -6, -3, -3, -1, -1, -1])
LOAD = np.array(
    [
        [700, 750, 850, 950, 1000, 1100, 1150, 1200, 1300, 1400, 1450, 1500],
        [1400, 1300, 1200, 1050, 1000, 1100, 1200, 1400, 1300, 1100, 900, 800],
    ],
    float,
).ravel()
PUBLISHED_USD = 563_938.0  # Carrion and Arroyo 2006, doi:10.1109/TPWRS.2006.876672, by a commercial solver


def quadratic(low: np.ndarray, high: np.ndarray, constant, linear, square) -> UnitCosts:
    """constant + linear p + square p^2 on [low, high]."""
    at_low = (square * low + linear) * low + constant
    return UnitCosts(low, at_low, (high - low)[:, None], (linear + 2 * square * low)[:, None], 2 * square[:, None])


@pytest.fixture(scope="module")
def kazarlis() -> CommitmentDay:
    with jax.enable_x64(True):
        rules = commitment_rules(
            P_MIN, P_MAX, min_up=MIN_TIME, min_down=MIN_TIME, startup_usd=HOT_START, dtype="float64"
        )
    output = np.where(INITIAL > 0, [455, 245] + [0] * 8, 0.0)
    state = CommitmentState(on=INITIAL > 0, steps=np.abs(INITIAL), p_mw=output)
    costs = quadratic(P_MIN, P_MAX, CONSTANT, LINEAR, SQUARE)
    return CommitmentDay(rules, state, costs, LOAD, 0.1 * LOAD, 1.0, 2 * HOT_START, MIN_TIME + COLD_HOURS)


@pytest.fixture(scope="module")
def kazarlis_plan(kazarlis):
    return solve_commitment(kazarlis)


def test_the_published_ten_unit_day_is_reproduced_within_the_gap(kazarlis_plan):
    plan = kazarlis_plan
    assert plan.cost_usd == pytest.approx(PUBLISHED_USD, rel=plan.gap)
    assert abs(plan.cost_usd - PUBLISHED_USD) < 1  # printed to a dollar
    assert 0 <= plan.gap <= 1e-3
    assert plan.bound_usd <= PUBLISHED_USD
    assert plan.piecewise_usd <= 5e-4 * plan.cost_usd
    assert plan.played.unserved_usd == 0


def test_bounds_stand_in_order_and_the_relaxation_is_rechecked(kazarlis, kazarlis_plan):
    plan = kazarlis_plan
    assert plan.relaxed_usd <= plan.bound_usd <= plan.cost_usd
    assert plan.relaxed_usd > 0.99 * plan.cost_usd  # the relaxation of this formulation is within 1 %
    program = commitment_program(kazarlis)
    dual = solve_relaxation(program).dual
    tight = dual_bound(program.linear, dual) - piecewise_error(kazarlis, program)
    rng = np.random.default_rng(0)
    for scale in (1e-3, 1e-1, 1.0):
        loose = dual_bound(program.linear, dual + scale * rng.standard_normal(len(dual)))
        assert loose - piecewise_error(kazarlis, program) < tight


def test_segments_overstate_a_cost_by_no_more_than_is_stated(kazarlis):
    segments = commitment_program(kazarlis).segments
    for g in range(10):
        mine = segments.unit == g
        at = np.linspace(0, P_MAX[g] - P_MIN[g], 400)
        edges = np.concatenate([[0], np.cumsum(segments.width[mine])])
        chords = np.interp(at, edges, np.concatenate([[0], np.cumsum(segments.width[mine] * segments.price[mine])]))
        true = (LINEAR[g] + 2 * SQUARE[g] * P_MIN[g]) * at + SQUARE[g] * at**2
        assert (chords - true).min() > -1e-9
        assert (chords - true).max() == pytest.approx(segments.error[g], rel=0.02)


def small_problem(seed: int) -> CommitmentDay:
    """Three units, four steps, linear costs, no ramps: 4,096 commitments can be tried."""
    rng = np.random.default_rng(seed)
    high = rng.uniform(60, 200, 3)
    low = high * rng.uniform(0.2, 0.5, 3)
    up, down = rng.integers(1, 4, 3), rng.integers(1, 4, 3)
    rules = commitment_rules(
        low,
        high,
        min_up=up,
        min_down=down,
        startup_usd=rng.uniform(0, 900, 3),
        shutdown_usd=rng.uniform(0, 200, 3),
        no_load_usd_per_hour=rng.uniform(0, 300, 3),
    )
    on = rng.random(3) < 0.5
    state = CommitmentState(on=on, steps=rng.integers(1, 4, 3), p_mw=np.where(on, low, 0.0))
    costs = quadratic(low, high, np.zeros(3), rng.uniform(10, 60, 3), np.zeros(3))
    load = rng.uniform(0.2, 1.1, 4) * high.sum()
    return CommitmentDay(rules, state, costs, load, np.full(4, -np.inf), 0.5, voll=500.0, surplus_price=300.0)


def brute_force(problem: CommitmentDay) -> float:
    """Least cost [USD] over every commitment, each dispatched in merit order step by step."""
    price = problem.costs.price[:, 0]
    low, high = (np.asarray(x, float) for x in (problem.rules.p_min_mw, problem.rules.p_max_mw))
    up, down = np.asarray(problem.rules.min_up), np.asarray(problem.rules.min_down)
    start, stop, idle = (
        np.asarray(x, float)
        for x in (problem.rules.startup_usd, problem.rules.shutdown_usd, problem.rules.no_load_usd_per_hour)
    )
    steps, n = {}, len(price)
    for on in itertools.product([False, True], repeat=n):
        for t, load in enumerate(problem.load_mw):
            p, left = np.where(on, low, 0), load - low[list(on)].sum()
            for g in np.argsort(price):
                give = min(max(left, 0), high[g] - low[g]) if on[g] else 0.0
                p, left = p + give * (np.arange(n) == g), left - give
            money = price @ p + idle @ np.array(on)
            steps[on, t] = 0.5 * (money + 500.0 * max(left, 0) + 300.0 * max(-left, 0))
    best = np.inf
    for plan in itertools.product(itertools.product([False, True], repeat=n), repeat=len(problem.load_mw)):
        was, since, cost = np.asarray(problem.state.on), np.asarray(problem.state.steps), 0.0
        for t, now in enumerate(plan):
            on = np.array(now)
            if np.any(on & ~was & (since < down)) or np.any(was & ~on & (since < up)):
                cost = np.inf
                break
            cost += steps[now, t] + start[on & ~was].sum() + stop[was & ~on].sum()
            since, was = np.where(on == was, since + 1, 1), on
        best = min(best, cost)
    return best


@pytest.mark.parametrize("seed", range(4))
def test_small_systems_equal_brute_force(seed):
    problem = small_problem(seed)
    plan = solve_commitment(problem, gap=0.0)
    expected = brute_force(problem)
    assert plan.cost_usd == pytest.approx(expected, rel=1e-6)
    assert plan.relaxed_usd <= plan.bound_usd * (1 + 1e-7) <= expected * (1 + 1e-6)


STEPS, N_UNIT = 12, 4


@pytest.fixture(scope="module")
def sequences():
    """Fifty random intents played by the kernel with ramps: what ran, at which output, and what was overridden."""
    rng = np.random.default_rng(5)
    with jax.enable_x64(True):
        rules = commitment_rules(
            [20.0, 30, 10, 0],
            [100.0, 90, 60, 40],
            ramp_mw=[25.0, 15, 60, 10],
            min_up=[3, 2, 1, 4],
            min_down=[2, 3, 1, 2],
            startup_usd=[100.0, 50, 10, 5],
            shutdown_usd=[10.0, 0, 3, 0],
            no_load_usd_per_hour=[5.0, 4, 3, 2],
            dtype="float64",
        )
        first = initial_commitment(rules, jnp.asarray([60.0, 60, 30, 20]))

        @jax.jit
        def play(intent, place):
            def advance(state, inputs):
                requested, share = inputs
                on, overridden = project_commitment(rules, state, requested)
                low, high = output_window(rules, state, on)
                p = low + share * (high - low)
                return advance_commitment(rules, state, on, p), (on, p, overridden)

            return jax.lax.scan(advance, first, (intent, place))[1]

        flips = rng.random((50, STEPS, N_UNIT)) < 0.12
        intent = np.cumsum(flips, axis=1) % 2 == 0
        place = rng.random((50, STEPS, N_UNIT))
        on, p, overridden = (np.asarray(x) for x in jax.vmap(play)(jnp.asarray(intent), jnp.asarray(place)))
    costs = quadratic(
        np.asarray(rules.p_min_mw), np.asarray(rules.p_max_mw), np.zeros(4), np.arange(10.0, 50, 10), np.zeros(4)
    )
    return rules, first, costs, intent, on, p, overridden


@pytest.mark.full
def test_fifty_random_sequences_agree_with_highs(sequences):
    """HiGHS serves what the kernel served at no more cost, and refuses every intent that the kernel overrode."""
    rules, first, costs, intent, on, p, overridden = sequences
    refused = 0
    for k in range(50):
        load = p[k].sum(1)
        problem = CommitmentDay(rules, first, costs, load, np.full(STEPS, -np.inf), 0.5)
        played = play_commitment(problem, on[k], p[k])
        assert played.illegal == 0 and played.violation_mw < 1e-9
        best = solve_commitment(problem, commitment=on[k])
        assert best.played.unserved_usd < 1e-3 and best.played.surplus_usd < 1e-3
        assert best.bound_usd <= best.cost_usd * (1 + 1e-6) <= played.cost_usd * (1 + 2e-6)
        assert best.played.startup_usd == pytest.approx(played.startup_usd)
        if overridden[k].any():
            refused += 1
            with pytest.raises(SolverError, match="no plan obeys the rules"):
                solve_commitment(problem, commitment=intent[k])
    assert 10 <= refused <= 45


def test_a_reserve_beyond_the_capacity_is_refused(kazarlis):
    beyond = dataclasses.replace(kazarlis, reserve_mw=np.full(24, 1200.0))
    with pytest.raises(SolverError, match="no plan obeys the rules"):
        solve_commitment(beyond)


def test_the_audit_sees_a_plan_that_breaks_the_rules(sequences):
    rules, first, costs, _, on, p, _ = sequences
    problem = CommitmentDay(rules, first, costs, p[0].sum(1), np.full(STEPS, -np.inf), 0.5)
    jump = p[0].copy()
    unit = int(np.argmax(on[0][5]))
    jump[5, unit] = 500.0
    assert play_commitment(problem, on[0], jump).violation_mw >= 400.0
    flicker = np.ones_like(on[0])
    flicker[3, 0] = False
    assert play_commitment(problem, flicker, p[0]).illegal == 1
