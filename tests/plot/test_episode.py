"""Pictures of a day: recorded with the numbers that the score counts, drawn as they are, written without a display."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from jax.tree_util import Partial
from matplotlib.backends.backend_agg import FigureCanvasAgg

import powerzoo_jax as pz
from powerzoo_jax.base import Step
from powerzoo_jax.base.tree import take
from powerzoo_jax.envs.series import FACTOR
from powerzoo_jax.oracle import evaluate_plans, idle_act, plan_act, plan_carry
from powerzoo_jax.plot import dispatch_of, plot_dispatch, plot_episode, record_episode, save_figure
from powerzoo_jax.tasks.score import all_starts


@pytest.fixture(scope="module")
def day():
    """A test day with a ramp of battery power, and the same day idle."""
    sim = pz.make("battery_arbitrage", split="test")
    draws = take(all_starts(sim), slice(0, 1))
    plan = np.linspace(-0.1, 0.1, sim.spec.horizon)[None, :, None]
    first = take(draws, 0)
    steps = record_episode(sim, plan_act, jax.random.key(0), first, take(plan_carry(sim, plan), 0))
    idle = record_episode(sim, idle_act(sim), jax.random.key(0), first)
    return SimpleNamespace(sim=sim, draws=draws, plan=plan, steps=steps, idle=idle)


def panel(figure, words):
    return next(axes for axes in figure.axes if words in axes.get_ylabel())


@pytest.mark.full
def test_a_recorded_day_earns_what_the_score_says(day):
    record = evaluate_plans(day.sim, day.plan, day.draws)
    assert float(day.steps.reward.sum()) == pytest.approx(record.mean_reward, rel=1e-5)


@pytest.mark.full
def test_a_policy_that_remembers_is_recorded_from_the_memory_it_brings(day):
    def act(carry, obs, key, memory=()):
        return carry, carry * np.ones((1, 1), np.float32)

    key, drawn, half = jax.random.key(0), take(day.draws, 0), np.float32(0.5)
    own = record_episode(day.sim, Partial(act, memory=half), key, drawn)
    given = record_episode(day.sim, act, key, drawn, half)
    np.testing.assert_array_equal(own.reward, given.reward)
    assert (np.asarray(own.reward) != np.asarray(day.idle.reward)).any()


@pytest.mark.full
def test_every_panel_shows_what_its_axis_says(day):
    figure = plot_episode(day.sim, {"ramp": day.steps, "idle": day.idle})
    first = {words: panel(figure, words).lines[0].get_ydata() for words in ("price", "power", "charge", "voltage")}
    info = day.steps.info
    assert first["price"][:-1] == pytest.approx(np.asarray(info.price_per_mwh))
    assert first["power"][:-1] == pytest.approx(np.asarray(info.p_mw)[:, 0])
    assert first["charge"][0] == pytest.approx(0.5) and first["charge"][1:] == pytest.approx(np.asarray(info.soc)[:, 0])
    assert first["voltage"][:-1] == pytest.approx(np.asarray(info.v_min_pu))
    reward = panel(figure, "reward so far").lines
    assert reward[0].get_ydata()[-1] == pytest.approx(float(day.steps.reward.sum()), rel=1e-5)
    assert reward[1].get_ydata()[-1] == pytest.approx(float(day.idle.reward.sum()), abs=1e-6)
    spent = panel(figure, "resource").lines
    assert spent[0].get_ydata()[-1] == pytest.approx(float(day.steps.cost[:, 3].sum()), rel=1e-5)
    assert spent[2].get_ydata()[0] == 0.5  # the budget
    bounds = [line.get_ydata()[0] for line in panel(figure, "charge").lines[2:]]
    assert bounds == [pytest.approx(0.1), pytest.approx(0.9)]
    assert all("[" in axes.get_ylabel() for axes in figure.axes) and "[h]" in figure.axes[-1].get_xlabel()


@pytest.mark.full
def test_no_text_of_the_dashboard_lies_on_another(day):
    figure = plot_episode(day.sim, {"ramp": day.steps, "idle": day.idle}, "one day of the test split")
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    title, (legend,) = figure.axes[0].title, figure.legends
    boxes = [text.get_window_extent(canvas.get_renderer()) for text in (title, legend)]
    assert title.get_text() and not boxes[0].overlaps(boxes[1])


@pytest.mark.full
def test_the_sources_of_a_feeder_add_up_to_its_load_and_losses(day):
    sim, steps = day.sim, day.steps
    sources, load = dispatch_of(sim, steps)
    params, row = sim.params, int(day.draws.load_row[0])
    factors = np.asarray(params.bank.load_rows)[row : row + sim.spec.horizon, FACTOR]
    scheduled = factors * float(params.load_ratio * params.load_mw)
    assert sources["storage"] == pytest.approx(np.asarray(steps.info.p_mw)[:, 0])
    assert load - np.asarray(steps.info.p_loss_mw) == pytest.approx(scheduled, rel=1e-4)


@pytest.mark.full
def test_charging_hangs_below_zero(day):
    axes = plot_dispatch(day.sim, day.steps).axes[0]
    below = [area for area in axes.collections if area.get_paths()[0].vertices[:, 1].min() < 0]
    assert [area.get_label() for area in below] == ["storage"]
    assert "[MW]" in axes.get_ylabel()


def test_unserved_load_and_small_units_are_part_of_the_stack():
    sim = pz.make("opf_118")
    power = np.tile(np.arange(54.0), (4, 1))
    info = SimpleNamespace(
        unit_power_mw=power, unserved_mw=np.full(4, 9.0), surplus_mw=np.zeros(4), load_mw=power.sum(axis=1) + 9
    )
    sources, load = dispatch_of(sim, Step(None, None, np.zeros((4, 54)), None, info))
    assert list(sources)[:7] == [*(f"unit_{k}" for k in range(53, 47, -1)), "48 other units"]
    assert sum(sources.values()) == pytest.approx(load)


@pytest.mark.full
def test_a_batch_is_refused(day):
    many = day.steps._replace(reward=np.zeros((3, 48, 1)))
    with pytest.raises(ValueError, match=r"expected rewards \(T, A\) of one lane, got \(3, 48, 1\)"):
        plot_episode(day.sim, {"many": many})
    with pytest.raises(ValueError, match="Pick one lane"):
        plot_dispatch(day.sim, many)


@pytest.mark.full
def test_the_picture_is_written_and_no_window_is_opened(day, tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "matplotlib.pyplot", raising=False)  # another test may have opened a window
    path = save_figure(plot_episode(day.sim, {"idle": day.idle}, "a day"), tmp_path / "new" / "day.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert "matplotlib.pyplot" not in sys.modules


@pytest.mark.full
def test_a_missing_matplotlib_names_the_extra(day, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"powerzoo-jax\[viz\]"):
        plot_episode(day.sim, {"idle": day.idle})
