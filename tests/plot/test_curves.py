"""Curves and bars: the statistics are those of the literature, the bars those of the records."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from matplotlib.text import Text
from scipy.optimize import LinearConstraint, minimize
from scipy.stats import trim_mean

from powerzoo_jax.plot import (
    interquartile_mean,
    interval,
    plot_comparison,
    plot_gains,
    plot_learning_curves,
    save_figure,
)
from powerzoo_jax.plot.curves import spread_labels


def record(mean: float, cost: float, feasible: bool) -> dict:
    return {
        "mean_reward": mean,
        "ci95": [mean - 1, mean + 2],
        "feasible": feasible,
        "mean_costs_by_constraint": {"voltage_violation": cost, "resource": 0.1},
        "cost_thresholds": {"voltage_violation": 0.2, "resource": None},
    }


def test_the_interquartile_mean_is_the_trimmed_mean():
    values = np.random.default_rng(0).normal(size=(11, 3))
    assert interquartile_mean(values) == pytest.approx(trim_mean(values, 0.25))
    assert interquartile_mean([1, 2, 3, 100]) == 2.5
    assert interquartile_mean([1.0, 2.0, 6.0]) == 3


@pytest.mark.full
def test_the_interval_covers_the_centre_as_often_as_it_says():
    draws = np.random.default_rng(1).normal(size=(300, 20))
    ends = np.array([interval(row) for row in draws])
    covered = np.mean((ends[:, 0] < 0) & (ends[:, 1] > 0))
    assert 0.88 < covered < 0.98  # a percentile bootstrap of 20 values covers a little less than 95 %


def test_curves_show_seeds_as_one_line_and_its_interval():
    curves = np.random.default_rng(0).normal(size=(8, 5)).cumsum(axis=1)
    axes = plot_learning_curves({"ppo": curves}, np.arange(5) * 1000, references={"oracle": 4.0}).axes[0]
    assert axes.lines[0].get_ydata() == pytest.approx(trim_mean(curves, 0.25))
    low, high = interval(curves)
    area = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert area.min() == pytest.approx(low.min()) and area.max() == pytest.approx(high.max())
    assert axes.lines[1].get_ydata()[0] == 4.0
    assert "[$]" in axes.get_ylabel() and "8 seeds" in axes.get_legend().texts[0].get_text()


def test_a_curve_of_another_length_is_refused():
    with pytest.raises(ValueError, match=r"curve 'ppo': expected \(S, 4\).*got \(2, 5\)"):
        plot_learning_curves({"ppo": np.zeros((2, 5))}, np.arange(4))


def test_a_comparison_shows_returns_with_intervals_and_costs_over_budgets():
    figure = plot_comparison({"rule": record(3.0, 0.1, True), "bold": record(5.0, 0.3, False)})
    upper, lower = figure.axes
    assert [bar.get_height() for bar in upper.patches[:2]] == [3.0, 5.0]
    whiskers = upper.containers[0].lines[2][0].get_segments()
    assert whiskers[0][:, 1] == pytest.approx([2.0, 5.0])
    assert [bar.get_height() for bar in lower.patches] == pytest.approx([50, 150])
    assert [bool(bar.get_hatch()) for bar in lower.patches] == [False, True]
    assert [label.get_text() for label in lower.get_xticklabels()] == ["voltage violation"]


@pytest.mark.parametrize("draw", [plot_gains, plot_comparison])
def test_nothing_to_draw_is_refused(draw):
    with pytest.raises(ValueError, match="was given"):
        draw({})


def test_names_of_references_stand_beside_the_axes_and_apart():
    curves = np.random.default_rng(0).normal(size=(8, 5)).cumsum(axis=1)
    references = {"rule": 3.9, "oracle": 4.0, "causal": 3.95, "random": -2.0}
    figure = plot_learning_curves({"ppo": curves}, np.arange(5), references=references)
    figure.draw_without_rendering()
    axes = figure.axes[0]
    names = {text.get_text(): Text.get_window_extent(text) for text in axes.texts}  # without the lines that lead there
    assert set(names) == set(references)
    assert all(box.x0 > axes.get_window_extent().x1 for box in names.values())
    boxes = sorted(names.values(), key=lambda box: box.y0)
    assert all(below.y1 <= above.y0 for below, above in itertools.pairwise(boxes))
    assert names["rule"].y0 < names["causal"].y0 < names["oracle"].y0


def test_labels_are_spread_as_little_as_least_squares_asks():
    assert spread_labels([0.9, 0.1], 0.05) == pytest.approx([0.9, 0.1])
    assert spread_labels([0.5, 0.5, 0.5], 0.1) == pytest.approx([0.4, 0.5, 0.6])
    at, gap = np.random.default_rng(0).uniform(size=9), 0.08
    order = np.argsort(at)
    rows = LinearConstraint(-np.eye(9)[order][:-1] + np.eye(9)[order][1:], gap, np.inf)
    best = minimize(lambda x: np.sum((x - at) ** 2), at, constraints=[rows], method="SLSQP", tol=1e-12)
    assert spread_labels(at, gap) == pytest.approx(best.x, abs=1e-5)


def test_gains_are_ranked_and_a_broken_budget_has_no_bar():
    axes = plot_gains({"random": None, "causal": 0.4, "ppo": [0.5, 0.7]}).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["ppo", "causal", "random"]
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([0.6, 0.4])
    assert [text.get_text() for text in axes.texts] == ["over a budget"]
    with pytest.raises(ValueError, match="no gain was given"):
        plot_gains({})


def test_a_gain_far_below_the_rule_does_not_hide_the_others():
    axes = plot_gains({"ppo": 0.5, "lost": [-17.0, -18.0]}).axes[0]
    assert axes.get_xlim()[0] == -1.0 and [text.get_text() for text in axes.texts] == ["-17.5"]


@pytest.mark.parametrize("ending", ["svg", "pdf"])
def test_the_same_figure_is_the_same_file_with_letters_in_it(ending, tmp_path):
    written = [save_figure(plot_gains({"ppo": 0.9}), tmp_path / f"{k}.{ending}").read_bytes() for k in range(2)]
    assert written[0] == written[1]
    if ending == "pdf":  # fonts as TrueType, which matplotlib does not embed by default
        assert b"/Type0" in written[0] and b"/Type3" not in written[0]


def test_an_unknown_ending_lists_the_known_ones(tmp_path):
    with pytest.raises(ValueError, match=r"'\.doc'.*pdf.*svg"):
        save_figure(plot_gains({"ppo": 0.9}), tmp_path / "new" / "a.doc")
    assert not (tmp_path / "new").exists()
