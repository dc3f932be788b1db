"""The causal planner of a few units: exact induction, units told from what is seen, budgets kept, and refusals."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.base.tree import take
from powerzoo_jax.families.transmission.causal.commitment import SlowUnit, cost_to_go, plan_units
from powerzoo_jax.oracle import evaluate_baseline
from powerzoo_jax.rl.policies import random_act
from powerzoo_jax.tasks.score import episode_keys, seeded_starts

EPISODES = 6
STAGES = 6
SLOW = SlowUnit(0, up=3, down=2, start_usd=7.0, stop_usd=1.0)
FAST = np.array([[0.0, 0.5], [2.0, 0.0]])  # [USD] from on (row 0) and from off


def cheapest(costs: np.ndarray, on: bool, held: int, fast: int) -> float:
    """Least cost of stages (J, 2, 2) of a slow and a fast unit, every legal path tried."""
    best = np.inf
    for path in itertools.product(itertools.product([True, False], [0, 1]), repeat=len(costs)):
        was, since, before, total = on, held, fast, 0.0
        for (now, other), cost in zip(path, costs, strict=True):
            if now != was and since < (SLOW.up if was else SLOW.down):
                total = np.inf
                break
            total += (SLOW.stop_usd if was else SLOW.start_usd) * (now != was)
            total += FAST[before, other] + cost[0 if now else 1, other]
            was, since, before = now, since + 1 if now == was else 1, other
        best = min(best, total)
    return best


@pytest.mark.parametrize("seed", [0, 1])
def test_the_cost_to_go_is_that_of_the_cheapest_legal_path(seed):
    costs = np.random.default_rng(seed).uniform(0, 10, (STAGES, 2, 2))
    value = cost_to_go((SLOW,), jnp.asarray(FAST), jnp.asarray(costs.reshape(STAGES, 4)))
    assert value.shape == (SLOW.states, 2)
    for state, fast in itertools.product(range(SLOW.states), range(2)):
        on = state < SLOW.up
        held = state + 1 if on else state + 1 - SLOW.up
        assert float(value[state, fast]) == pytest.approx(cheapest(costs, on, held, fast), rel=1e-5)


@pytest.mark.full
def test_units_are_told_from_what_is_seen_whoever_leads():
    sim = powerzoo_jax.make("marl_uc", split="val")
    policy = plan_units(sim, seeded_starts(sim, 1), episode_keys(0, 1))
    lead = random_act(sim)
    state, obs = sim.init(jax.random.key(3))

    def step(loop, key):
        state, obs, memory = loop
        memory, _ = policy.act(memory, obs, key)
        _, action = lead((), obs, key)
        out = sim.step(state, action)
        served = out.info.unserved_mw == 0
        return (out.state, out.obs, memory), (state.units, memory.units, served)

    keys = jax.random.split(jax.random.key(4), sim.spec.horizon)
    _, (true, told, served) = jax.jit(lambda loop: jax.lax.scan(step, loop, keys))((state, obs, take(policy.carry, 0)))
    np.testing.assert_array_equal(true.on, told.on)
    np.testing.assert_array_equal(true.steps, told.steps)
    assert np.asarray(served).any() and len(np.unique(np.asarray(true.on), axis=0)) > 4


@pytest.mark.long
@pytest.mark.parametrize("split", ["val", "test"])
def test_the_planner_keeps_the_budgets_and_earns_more_than_the_rule(split):
    sim = powerzoo_jax.make("marl_uc", split=split)
    draws = seeded_starts(sim, EPISODES)
    causal, rule = (evaluate_baseline(sim, name, draws=draws) for name in ("causal", "rule"))
    assert causal.feasible and causal.mean_reward > rule.mean_reward


def test_units_of_too_many_states_are_refused():
    sim = powerzoo_jax.make("comparison_tso_centralized", split="val")
    with pytest.raises(ValueError, match=r"54 units.*states, more than"):
        plan_units(sim, seeded_starts(sim, 1), episode_keys(0, 1))


def test_an_observation_without_the_whole_load_is_refused():
    sim = powerzoo_jax.make("marl_uc", split="val", obs_mode="local")
    with pytest.raises(ValueError, match=r"lack 'total_load_norm'.*obs_mode='global'"):
        plan_units(sim, seeded_starts(sim, 1), episode_keys(0, 1))
