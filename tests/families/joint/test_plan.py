"""Batteries below a transmission grid: their share of what the joint task can gain, and bounds that hold for all."""

from __future__ import annotations

import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.families.joint.plan import priced
from powerzoo_jax.families.joint.plan.policies import where_drawn
from powerzoo_jax.families.transmission.plan.dispatch import LEAST, MOST
from powerzoo_jax.oracle import evaluate_baseline, get_baselines, get_priced
from powerzoo_jax.oracle.foresight import play_plans
from powerzoo_jax.oracle.registry import follow
from powerzoo_jax.oracle.trivial import spread_starts
from powerzoo_jax.tasks.score import SEED, episode_keys

pytestmark = pytest.mark.full

DAYS = 5  # at equal distances in the calendar
LEAST_SHARE = 0.1  # of what plans gain beyond the rule, that they lose where batteries idle
ROUNDED = 1e-9  # relative, of sums in float64
FLOAT32 = 1e-5  # relative, of returns
TRIED = 1  # of the prices of overload that the planner begins with
USD = priced.OVERLOAD_USD[TRIED]


@pytest.fixture(scope="module")
def sim():
    return powerzoo_jax.make("joint_trans_dist", split="val")


@pytest.fixture(scope="module")
def planner(sim):
    """The planner of days at equal distances in the calendar, whose bounds touch few loads."""
    draws = spread_starts(sim, DAYS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(priced, "FREE_LOADS", 9)
        patch.setattr(priced, "REACHED_LOADS", 3)
        found = get_priced("joint_trans_dist")(sim, draws, episode_keys(SEED, DAYS))
        for scores in (False, True):
            found._floors(USD, scores)
    return found


def test_a_tenth_of_the_gain_is_lost_where_batteries_idle(sim):
    draws = spread_starts(sim, DAYS)
    names = ("rule", "idle_batteries", "oracle")
    rule, idle, oracle = (evaluate_baseline(sim, name, draws=draws).mean_reward for name in names)
    assert rule < oracle and oracle - idle >= LEAST_SHARE * (oracle - rule)


@pytest.mark.parametrize("scores", [False, True])
def test_no_dispatch_costs_less_than_the_floor_of_its_load_and_draw(sim, planner, scores):
    system, rng = planner.system, np.random.default_rng(2)
    of_bus = np.asarray(sim.params.factors.of_bus, np.float64)
    room = system.high_mw - system.low_mw
    shape = 9000 if scores else 3000, len(room)
    share = room * rng.random(shape)
    if scores:
        weight = np.exp(rng.uniform(np.log(LEAST), np.log(MOST), shape))
        share = np.minimum(room, np.exp(rng.uniform(0.0, 7.0, (len(share), 1))) * weight)
    p, beyond = system.low_mw + share, rng.uniform(-1, 2, len(share)) * planner.rating_mw
    load = p.sum(1) - beyond
    inside = (planner.loads[0].min() <= load) & (load <= planner.loads[0].max())
    p, beyond, load = p[inside], beyond[inside], load[inside]
    drawn = [where_drawn(system, of_bus, np.array([b])) for b in beyond]
    over = np.array([s.overload(x, x.sum()) for s, x in zip(drawn, p, strict=True)])
    paid = system.cost(planner.on, p, p.sum(1)) + USD * over
    floor = np.array([planner._cost(planner._floors(USD, scores), load[[k]], b)[0] for k, b in enumerate(beyond)])
    assert len(load) > 300 and over.max() > 1.0 and (floor <= paid * (1 + ROUNDED)).all()


def test_the_least_of_a_floor_is_that_of_all_draws_tried(planner):
    load, price, rating = planner.loads[0], np.linspace(0, 60, 48), planner.rating_mw
    for floor in planner._floors(USD, False):
        tried = np.linspace(-rating, 20 * rating, 20_000)
        costs = [floor.at(load, np.full(48, b))[0] - price * min(b, rating) for b in tried if (load + b).max() <= 1500]
        least = floor.least(load, price, rating)
        assert (least <= np.min(costs, axis=0) + 1e-6).all()
        np.testing.assert_allclose(least, np.min(costs, axis=0), atol=1.0)  # the step of the draws times a price


def test_no_actions_return_more_than_the_bounds_at_a_price_of_overload(sim, planner):
    """Actions at random, the rule, and the oracle, which comes closer to the bound of what scores reach."""
    price, draws, keys = planner.first_prices[TRIED], planner.draws, planner.keys
    shape = DAYS, sim.spec.horizon, sim.env.dims.agent, 1
    random = np.random.default_rng(3).uniform(-1, 1, (3, *shape))
    rule = get_baselines(sim.spec.id).rules["rule"]
    policies = [*(follow(sim, x) for x in random), rule(sim, draws, keys)]
    played = [play_plans(sim, draws, keys, policy) for policy in policies]
    best = [planner.plan(day, price) for day in range(DAYS)]
    worth = [p.value - p.cost @ price for p in played] + [np.array([p.value - p.cost @ price for p in best])]
    free, reached = (np.array([f(k, price) for k in range(DAYS)]) for f in (planner.bound, planner.reached_bound))
    assert (np.max(worth, axis=0) <= reached + FLOAT32 * np.abs(reached)).all() and (reached <= free).all()
    assert reached.mean() < free.mean() and [p.bound for p in best] == free.tolist()
    # the oracle is far nearer to the bound of what scores reach than to that without ratings, which learners had
    assert (reached - worth[-1]).mean() < 0.5 * (planner.oracle.bounds - worth[-1]).mean()
