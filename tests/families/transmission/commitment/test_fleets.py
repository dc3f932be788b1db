"""Units alike counted as one: bounds against brute force over all commitments, with ratings and without."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest

from powerzoo_jax.families.transmission.commitment.fleets import GAP, fleet_rows, plan_fleets
from powerzoo_jax.families.transmission.commitment.problem import CommitmentDay
from powerzoo_jax.families.transmission.plan.dispatch import DispatchSystem
from powerzoo_jax.opf.offers import UnitCosts
from tests.families.transmission.commitment.test_plan import brute_force, small_problem

TWINS = np.array([0, 0, 1, 2])  # the first unit of `small_problem` twice


def twins(seed: int) -> CommitmentDay:
    """Four units, two of them alike, and three steps: 4,096 commitments."""
    problem = small_problem(seed)

    def pick(x):
        return np.asarray(x)[TWINS]

    load = problem.load_mw[:3] / problem.load_mw[:3].max() * 0.9 * pick(problem.rules.p_max_mw).sum()
    return replace(
        problem,
        rules=jax.tree.map(pick, problem.rules),
        state=jax.tree.map(pick, problem.state),
        costs=UnitCosts(*(pick(x) for x in problem.costs)),
        load_mw=load,
        reserve_mw=np.full(3, -np.inf),
    )


def one_line(problem: CommitmentDay, unit: int, rate_mw: float) -> DispatchSystem:
    """A system whose only line carries what one unit gives; a rating of 0 is none."""
    return DispatchSystem(
        *(np.asarray(x, np.float64) for x in (problem.rules.p_min_mw, problem.rules.p_max_mw)),
        costs=problem.costs,
        of_unit=(np.arange(4) == unit)[None].astype(float),
        of_load=np.zeros(1),
        fixed_mw=np.zeros(1),
        rate_mw=np.array([rate_mw]),
        shunt_mw=0.0,
        voll=problem.voll,
        surplus_price=problem.surplus_price,
    )


def limited(problem: CommitmentDay, unit: int, most_mw: float) -> CommitmentDay:
    high = np.array(problem.rules.p_max_mw, np.float64)
    high[unit] = most_mw
    return replace(problem, rules=problem.rules.replace(p_max_mw=high))


def test_who_is_alike_stands_in_one_row():
    day, row = fleet_rows(twins(0))
    assert row[0] == row[1] and len(set(row.tolist())) == 3
    assert sorted(day.units.tolist()) == [1, 1, 2] and day.units[row[0]] == 2
    apart = twins(0)
    steps = np.array(apart.state.steps)
    steps[0] += 1  # has run, or stood, for longer
    assert len(fleet_rows(replace(apart, state=apart.state.replace(steps=steps)))[0].units) == 4


@pytest.mark.parametrize("seed", range(4))
def test_without_ratings_the_plan_is_the_cheapest_of_all(seed):
    problem = twins(seed)
    found, best = plan_fleets(one_line(problem, 0, 0.0), problem, 0.0), brute_force(problem)
    assert best * (1 - GAP - 1e-6) <= found.bound_usd <= best * (1 + 1e-6)
    assert not found.on[:, :2].any()  # of twins only the number is known


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("unit", [0, 2])  # one of the twins, and one that no other is like
def test_a_rating_raises_the_bound_and_never_beyond_the_cheapest_plan_that_keeps_it(seed, unit):
    problem = twins(seed)
    low, high = (float(np.asarray(x)[unit]) for x in (problem.rules.p_min_mw, problem.rules.p_max_mw))
    rate = 0.5 * (low + high)
    free, kept = brute_force(problem), brute_force(limited(problem, unit, rate))
    found = plan_fleets(one_line(problem, unit, rate), problem, 1e5)
    assert free * (1 - GAP - 1e-6) <= found.bound_usd <= kept * (1 + 1e-6)
    if unit == 2:  # nothing is relaxed where a unit stands alone
        assert found.bound_usd == pytest.approx(kept, rel=GAP + 1e-6)
    cheap = plan_fleets(one_line(problem, unit, rate), problem, 0.0)
    assert cheap.bound_usd == pytest.approx(free, rel=GAP + 1e-6)


def test_missing_reserve_costs_its_price_and_no_more():
    problem = twins(1)
    capacity = float(np.asarray(problem.rules.p_max_mw).sum())
    short = replace(problem, reserve_mw=capacity + 10.0 - problem.load_mw, reserve_usd=2.0)
    best = brute_force(problem)
    found = plan_fleets(one_line(problem, 0, 0.0), short, 0.0)
    # at least 10 MW are missing in every step, at most all of it
    assert best * (1 - GAP) + 3 * 2.0 * 10.0 <= found.bound_usd <= best + 3 * 2.0 * (capacity + 10.0)
