"""The search under mean budgets against brute force, and its bound recomputed by weak duality."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from powerzoo_jax.oracle.lagrangian import (
    PlanPool,
    PricedPlan,
    choose_plans,
    dual_value,
    missing_room,
    relaxation,
    search_prices,
)
from powerzoo_jax.oracle.linear_program import NoPointError

ROUND = 1e-9
BUDGET = np.array([1.0, np.inf, 0.4])


class Menu:
    """Planner of days that each have a few plans to choose from: values (n, K), costs (n, K, C)."""

    def __init__(self, days=6, plans=4, seed=0):
        rng = np.random.default_rng(seed)
        self.cost = np.sort(rng.uniform(0, 3, (days, plans, 3)), axis=1)
        self.cost[:, 0] = 0.0
        # who breaks more earns more, with less and less to win
        self.value = np.sqrt(self.cost.sum(axis=2)) + rng.normal(0, 0.05, (days, plans))
        self.most_price = np.array([50.0, 0.0, 50.0])
        self.asked = 0

    def plan(self, episode, price):
        self.asked += 1
        worth = self.value[episode] - self.cost[episode] @ price
        best = int(worth.argmax())
        action = np.full((2, 1, 1), float(best))
        return PricedPlan(action, float(self.value[episode, best]), self.cost[episode, best], float(worth[best]))

    def brute_force(self, budget):
        """Largest mean value of all choices of one plan a day within the budgets."""
        n, count = self.value.shape
        every = np.array(list(itertools.product(range(count), repeat=n)))
        cost = self.cost[np.arange(n), every].mean(axis=1)
        kept = (cost <= budget + ROUND).all(axis=1)
        return self.value[np.arange(n), every].mean(axis=1)[kept].max()


@pytest.mark.parametrize("seed", range(4))
def test_no_choice_of_plans_within_the_budgets_exceeds_the_bound(seed):
    menu, pool = Menu(seed=seed), PlanPool()
    found = search_prices(menu, 6, BUDGET, pool=pool)
    exact, chosen = menu.brute_force(BUDGET), choose_plans(pool, 6, BUDGET)
    mean = np.mean([plan.value for plan in chosen])
    assert mean <= exact + ROUND <= found.bound + 2 * ROUND
    assert (np.mean([plan.cost for plan in chosen], axis=0) <= BUDGET + ROUND).all()
    # one plan a day of two budgets leaves at most two days of six short of the mixture
    assert mean >= menu.value[:, 0].mean() and mean <= found.mixed + ROUND
    assert found.bound - found.mixed <= 0.003 * found.mixed and exact - mean < 0.1 * exact
    assert found.price[1] == 0.0 and found.price[[0, 2]].max() > 0
    # duality of the mixture: at its prices the plans known of each day are worth as much together, and no more
    worth = [max(plan.value - plan.cost @ found.support for plan in pool.of(day)) for day in range(6)]
    room = found.support[[0, 2]] @ BUDGET[[0, 2]]
    assert np.mean(worth) + room == pytest.approx(found.mixed, abs=ROUND) and found.support[1] == 0.0


def test_the_bound_is_the_dual_function_and_holds_at_any_prices():
    menu, pool = Menu(), PlanPool()
    found = search_prices(menu, 6, BUDGET, pool=pool)
    exact = menu.brute_force(BUDGET)

    def by_hand(price):
        worth = menu.value - menu.cost @ price
        return worth.max(axis=1).mean() + price[0] * BUDGET[0] + price[2] * BUDGET[2]

    assert found.bound == pytest.approx(by_hand(found.price), abs=ROUND)
    for price in np.random.default_rng(1).exponential(1.0, (50, 3)) * [1.0, 0.0, 1.0]:
        bounds = np.array([menu.plan(day, price).bound for day in range(6)])
        assert dual_value(price, bounds, BUDGET) == pytest.approx(by_hand(price), abs=ROUND)
        # among these prices none is better than what the search found, but for its tolerance
        assert by_hand(price) >= exact - ROUND and by_hand(price) >= found.bound * (1 - 0.003)


def test_prices_that_prove_nothing_are_refused():
    bounds = np.ones(3)
    with pytest.raises(ValueError, match="must not be negative"):
        dual_value(np.array([-1.0, 0.0, 0.0]), bounds, BUDGET)
    with pytest.raises(ValueError, match="0 for those without a budget"):
        dual_value(np.array([0.0, 1.0, 0.0]), bounds, BUDGET)


def test_budgets_that_do_not_bind_take_one_round_and_the_bound_is_what_is_earned():
    menu, pool = Menu(), PlanPool()
    found = search_prices(menu, 6, np.array([9.0, np.inf, 9.0]), pool=pool)
    assert menu.asked == 6 and not found.price.any()
    best = np.mean([plan.value for plan in choose_plans(pool, 6, np.array([9.0, np.inf, 9.0]))])
    assert best == pytest.approx(found.bound, abs=ROUND) and best == pytest.approx(menu.value.max(axis=1).mean())


def test_prices_known_from_other_days_are_the_first_that_a_search_tries():
    known = np.array([0.3, 0.0, 0.7]), np.array([0.5, 0.0, 0.2])
    for own in ((), (np.array([0.1, 0.0, 0.1]),)):
        menu, pool = Menu(), PlanPool()
        if own:
            menu.first_prices = own
        search_prices(menu, 6, BUDGET, pool=pool, first=known, rounds=3)
        np.testing.assert_array_equal(pool.prices, [np.zeros(3), *known])


def test_prices_do_not_fall_below_what_bounds_need():
    menu, pool = Menu(), PlanPool()
    menu.least_price = np.array([0.0, 9.0, 0.4])  # the second channel has no budget, hence no price
    search_prices(menu, 6, BUDGET, pool=pool)
    assert len(pool.prices) > 2 and (np.array(pool.prices)[:, 2] >= 0.4).all() and not np.array(pool.prices)[:, 1].any()


def test_plans_that_are_dearer_are_chosen_from_too():
    menu, alone, pool = Menu(), PlanPool(), PlanPool()
    search_prices(menu, 6, BUDGET, pool=alone, rounds=2)
    every = [PricedPlan(np.zeros((2, 1, 1)), *ways, np.inf) for ways in zip(menu.value[0], menu.cost[0], strict=True)]
    menu.plans = lambda episode, price: [menu.plan(episode, price), *(every if episode == 0 else ())]
    found = search_prices(menu, 6, BUDGET, pool=pool, rounds=2)
    assert len(pool.of(0)) == 2 * (1 + len(every)) and len(pool.of(1)) == 2
    assert found.mixed >= relaxation(alone, 6, BUDGET, menu.most_price).mixed and np.isfinite(found.bound)


def test_a_planner_that_keeps_the_budgets_by_itself_is_asked_at_its_own_prices_too():
    menu, pool = Menu(), PlanPool()
    menu.first_prices = (np.array([0.1, 0.0, 0.1]),)
    search_prices(menu, 6, np.array([9.0, np.inf, 9.0]), pool=pool)
    np.testing.assert_array_equal(pool.prices[:2], [np.zeros(3), menu.first_prices[0]])
    assert menu.asked >= 12


def test_a_search_goes_on_from_its_file_and_plans_nothing_twice(tmp_path):
    path, menu = tmp_path / "plans.npz", Menu()
    whole = PlanPool()
    search_prices(menu, 6, BUDGET, pool=whole)
    asked, menu.asked = menu.asked, 0
    search_prices(menu, 6, BUDGET, pool=PlanPool(), rounds=2, path=path)
    assert menu.asked == 12
    within = PlanPool.load(path)  # stopped in the second round
    for episode in (4, 5):
        del within.plans[1, episode]
    within.save(path)
    menu.asked -= 2
    search_prices(menu, 6, BUDGET, pool=(again := PlanPool.load(path)), path=path)
    assert menu.asked == asked
    first, second = (relaxation(pool, 6, BUDGET, menu.most_price) for pool in (whole, again))
    assert second.bound == pytest.approx(first.bound) and second.mixed == pytest.approx(first.mixed)
    np.testing.assert_array_equal(PlanPool.load(path).plans[1, 3].action, whole.plans[1, 3].action)


def test_budgets_that_no_plans_keep_are_named():
    pool = PlanPool()
    menu = Menu()
    menu.cost[:, 0] = 2.0
    search_prices(menu, 6, BUDGET, pool=pool, rounds=2)
    with pytest.raises(NoPointError, match="No choice of the plans known keeps the budgets"):
        choose_plans(pool, 6, BUDGET)


def test_where_no_choice_keeps_the_budgets_the_least_that_they_lack_is_found():
    pool, menu, limited = PlanPool(), Menu(), np.isfinite(BUDGET)
    menu.cost[:, 0] = 2.0
    search_prices(menu, 6, BUDGET, pool=pool, rounds=4)
    excess = [
        np.maximum(np.mean([plan.cost for plan in chosen], axis=0) - BUDGET, 0.0)[limited]
        for chosen in itertools.product(*(pool.of(episode) for episode in range(6)))
    ]
    least = min((each / BUDGET[limited]).sum() for each in excess)
    lacking = missing_room(pool, 6, BUDGET)
    assert least > 0.1 and (lacking[limited] / BUDGET[limited]).sum() == pytest.approx(least, rel=1e-5)
    assert not lacking[~limited].any()
    mean = np.mean([plan.cost for plan in choose_plans(pool, 6, BUDGET + lacking * (1 + 1e-6))], axis=0)
    assert (mean <= BUDGET + lacking * (1 + 1e-6) + ROUND).all()
    assert not missing_room(pool, 6, np.where(limited, 9.0, np.inf)).any()
