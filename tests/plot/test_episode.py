"""The picture of a day: recorded with the numbers that the score counts, and written without a display."""

from __future__ import annotations

import sys

import jax
import numpy as np
import pytest

import powerzoo_jax as pz
from powerzoo_jax.base.tree import take
from powerzoo_jax.oracle import evaluate_plans, idle_act, plan_act, plan_carry
from powerzoo_jax.plot import plot_episode, record_episode
from powerzoo_jax.tasks.score import all_starts


@pytest.fixture(scope="module")
def day():
    sim = pz.make("battery_arbitrage", split="test")
    return sim, take(all_starts(sim), slice(0, 1))


def test_a_recorded_day_earns_what_the_score_says(day):
    sim, draws = day
    plan = np.linspace(-0.1, 0.1, sim.spec.horizon)[None, :, None]
    steps = record_episode(sim, plan_act, jax.random.key(0), take(draws, 0), take(plan_carry(sim, plan), 0))
    record = evaluate_plans(sim, plan, draws)
    assert float(steps.reward.sum()) == pytest.approx(record.mean_reward, rel=1e-5)


def test_the_picture_is_written_and_no_window_is_opened(day, tmp_path):
    sim, draws = day
    steps = record_episode(sim, idle_act(sim), jax.random.key(0), take(draws, 0))
    path = plot_episode(sim, {"idle": steps}, tmp_path / "new" / "day.png", "a day")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert "matplotlib.pyplot" not in sys.modules


def test_a_missing_matplotlib_names_the_extra(day, monkeypatch, tmp_path):
    sim, draws = day
    steps = record_episode(sim, idle_act(sim), jax.random.key(0), take(draws, 0))
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"powerzoo-jax\[viz\]"):
        plot_episode(sim, {"idle": steps}, tmp_path / "day.png")
