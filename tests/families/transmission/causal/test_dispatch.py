"""The causal dispatch: what the load of the step tells is all that foresight knows."""

from __future__ import annotations

import pytest

import powerzoo_jax
from powerzoo_jax.families.transmission.causal.dispatch import plan_dispatch
from powerzoo_jax.oracle import evaluate_baseline
from powerzoo_jax.tasks.score import episode_keys, seeded_starts

CLOSE = 1e-3  # relative: tables over 65 loads of all days of training, and over 129 of these


@pytest.mark.full
def test_the_planner_keeps_the_ratings_and_returns_what_foresight_does():
    sim = powerzoo_jax.make("marl_opf", split="val")
    draws = seeded_starts(sim, 6)
    causal, rule, oracle = (evaluate_baseline(sim, name, draws=draws) for name in ("causal", "rule", "oracle"))
    assert causal.feasible and causal.mean_reward > rule.mean_reward
    assert causal.mean_reward == pytest.approx(oracle.mean_reward, rel=CLOSE)


def test_an_observation_without_the_whole_load_is_refused():
    sim = powerzoo_jax.make("marl_opf", split="val", obs_mode="local")
    with pytest.raises(ValueError, match=r"lack 'total_load_norm'.*obs_mode='global'"):
        plan_dispatch(sim, seeded_starts(sim, 1), episode_keys(0, 1))
