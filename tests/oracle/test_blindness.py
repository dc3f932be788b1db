"""Causal planners see no future: what no observation has shown changes no action, and a plan depends on no draw."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.base.tree import take
from powerzoo_jax.oracle import get_causal
from powerzoo_jax.tasks.score import all_starts, episode_keys

pytestmark = pytest.mark.full

STOP = 14  # last step before the future changes
TASKS = (
    "battery_arbitrage",
    "dc_microgrid",
    "dc_scheduling",
    "marl_der_arbitrage",
    "dso",
    "marl_ev_v2g_1d",
    "marl_ders_benchmark",
    "marl_uc",
    "marl_opf",
    "comparison_tso_centralized",
)
# of a bank, and where an episode begins in them
TABLES = {
    "price_rows": "price_row",
    "load_rows": "load_row",
    "weather_rows": "load_row",
    "work_rows": "price_row",
}


def other_future(table, first):
    """A table of series with other values after the row of step STOP; what is published ahead stands in that row."""
    rows = np.asarray(table).copy()
    later = rows[first + STOP + 1 :]
    later *= np.random.default_rng(3).uniform(0.5, 1.5, later.shape)
    return jnp.asarray(rows, table.dtype)


@pytest.mark.tiers("long", full=["battery_arbitrage", "comparison_tso_centralized"])
@pytest.mark.parametrize("task", TASKS)
def test_a_future_that_is_not_shown_changes_no_action(task):
    here = powerzoo_jax.make(task, split="val")
    drawn, key = take(all_starts(here), 5), episode_keys(0, 1)[0]
    policy = get_causal(task)(here, jax.tree.map(lambda x: x[None], drawn), key[None])
    bank = here.params.bank
    changed = {
        name: other_future(getattr(bank, name), int(getattr(drawn, first)))
        for name, first in TABLES.items()
        if hasattr(bank, name)
    }
    other = dataclasses.replace(bank, **changed)
    elsewhere = here.replace(params=dataclasses.replace(here.params, bank=other))

    @jax.jit
    def actions(sim):
        state, obs = sim.env.begin(key, drawn, sim.params)

        def step(loop, _):
            state, obs, carry = loop
            carry, action = policy.act(carry, obs, key)
            out = sim.step(state, action)
            return (out.state, out.obs, carry), action

        return jax.lax.scan(step, (state, obs, take(policy.carry, 0)), length=sim.spec.horizon)[1]

    before, after = np.asarray(actions(here)), np.asarray(actions(elsewhere))
    np.testing.assert_array_equal(before[: STOP + 1], after[: STOP + 1])
    assert (before[STOP + 1 :] != after[STOP + 1 :]).any()


@pytest.mark.tiers("long", full=["marl_der_arbitrage", "dso", "comparison_tso_centralized"])
@pytest.mark.parametrize("task", TASKS)
def test_a_policy_is_made_without_knowing_the_episode(task):
    here = powerzoo_jax.make(task, split="val")
    starts, planner = all_starts(here), get_causal(task)
    made = [planner(here, take(starts, slice(k, k + 2)), episode_keys(k, 2)) for k in (0, 9)]
    one, other = (jax.tree.leaves((policy.act, policy.carry)) for policy in made)
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
