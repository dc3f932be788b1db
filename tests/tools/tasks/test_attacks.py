"""Attacks on the best returns: they climb, count only what keeps the budgets, and play the episodes of the record."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.oracle import get_reference
from powerzoo_jax.oracle.clock_plan import ClockPlan, get_trivial
from powerzoo_jax.oracle.reference import recorded_starts
from powerzoo_jax.oracle.trivial import Played, play_candidates, shapes
from powerzoo_jax.tasks.score import SEED, episode_keys, seeded_starts
from tools.tasks import attacks

SHAPE = ClockPlan(((0, 1),), 4)
GOAL = np.linspace(-0.6, 0.6, SHAPE.size)
BUDGET = np.array([0.5, np.inf])
START = np.zeros((1, SHAPE.size))


def hill(values: np.ndarray) -> Played:
    """Money falls with the distance from GOAL; a first value above 0.5 breaks the budget."""
    cost = np.stack([values[:, 0], np.full(len(values), 9.0)], axis=1)
    return Played(-((values - GOAL) ** 2).sum(axis=1), cost)


@pytest.mark.parametrize("search", [attacks.nearby, attacks.cross_entropy])
def test_a_search_climbs(search):
    found = [part.money.max() for part in search(SHAPE, hill, BUDGET, 1000, 3, START)]
    assert len(found) == 1000 // attacks.BATCH and max(found) > -0.1
    blind = [part.money.max() for part in attacks.constants(SHAPE, hill, BUDGET, 1000, 3, START)]
    assert max(blind) < max(found)


@pytest.mark.parametrize("search", [attacks.nearby, attacks.cross_entropy])
def test_a_search_goes_on_from_the_only_plan_that_keeps_a_tight_budget(search):
    known = np.full((2, SHAPE.size), 0.3)
    known[0] = 0.9  # breaks it

    def narrow(values):
        return Played(-((values - GOAL) ** 2).sum(axis=1), np.abs(values - 0.3).max(axis=1)[:, None])

    def kept(starts):
        found = search(SHAPE, narrow, np.array([0.1]), 500, 3, starts)
        return sum(int((part.cost[:, 0] <= 0.1).sum()) for part in found)

    assert kept(known) >= 500 // attacks.BATCH and kept(known[:1]) == 0


def test_ascent_follows_the_slope_from_every_start_and_stays_where_there_is_none():
    known = np.zeros((2, SHAPE.size))
    known[1] = 0.9

    def slope(values):
        upwards = -2 * (values - GOAL)
        upwards[1] = np.nan
        return hill(values), upwards

    found = [part.money for part in attacks.ascent(slope, 200, 3, known)]
    assert sum(map(len, found)) == 200 and found[0][0] == pytest.approx(hill(known).money[0])
    assert found[-1][0] > -0.01 and found[-1][1] == pytest.approx(hill(known).money[1])


@pytest.mark.full
def test_the_gradient_of_the_environment_is_that_of_differences():
    with jax.enable_x64(True):
        sim = powerzoo_jax.make("battery_arbitrage", split="val", dtype="float64")
        draws, keys, shape = seeded_starts(sim, 2), episode_keys(SEED, 2), shapes(sim)["clock"]
        values = np.random.default_rng(0).uniform(-0.1, 0.1, (1, shape.size))
        room = np.where(np.isfinite(sim.spec.cost_budget), 1e-3, np.inf)

        def money(values):
            played = play_candidates(sim, shape, values, draws, keys)
            return played.money[0] - 2.0 * np.maximum(played.cost[0] / room - 1, 0).sum()

        _, upwards = attacks.slope_of(sim, shape, jnp.asarray(values), draws, keys, jnp.asarray(room), jnp.asarray(2.0))
        step = 1e-5 * np.eye(shape.size)[5]
        assert upwards[0, 5] == pytest.approx((money(values + step) - money(values - step)) / 2e-5, rel=1e-4)


@pytest.mark.full
def test_searches_begin_at_devices_left_alone_and_at_the_trivial_policy():
    sim = powerzoo_jax.make("battery_arbitrage", split="val")
    shape = shapes(sim)["clock"]
    alone, trivial = attacks.starting_plans(sim, shape)
    stored = get_trivial("battery_arbitrage")
    assert not alone.any() and len(trivial) == shape.size
    assert np.array_equal(trivial[:: shape.blocks // stored["blocks"]], stored["values"])


def test_a_record_of_other_episodes_is_refused():
    sim = powerzoo_jax.make("battery_arbitrage", split="val")
    record = get_reference("battery_arbitrage", "val")
    assert recorded_starts(sim, record).load_row.shape[0] == record["n"]
    with pytest.raises(ValueError, match=r"split 'val'.*no score compares them"):
        recorded_starts(sim, record | {"episodes": "0"})
