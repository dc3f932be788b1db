"""Learning curves and score bars of learners, both with the spread over seeds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from powerzoo_jax.plot.layout import COLOURS, LIMIT_LINE, look, new_figure

RESAMPLES = 2000  # of the bootstrap: 50 of them lie beyond either end of the interval
LEVEL = 0.95
TRIMMED = 0.25  # share cut off at either end
FAR_BELOW = -1.0  # gain at which a bar is cut: one policy far below its rule would hide what the others gain
LABEL_GAP = 0.055  # of the height of the axes, a line of their small type


def interquartile_mean(values: ArrayLike, axis: int = 0) -> np.ndarray:
    """Mean of the middle half along an axis, (S, ...) -> (...) in any unit: floor(n / 4) values are cut at either end.

    One lucky seed moves it less than the mean, noise less than the median (Agarwal et al. 2021, arXiv:2108.13264). Of
    fewer than four values it is the mean.
    """
    ordered = np.sort(np.asarray(values, np.float64), axis=axis)
    count = ordered.shape[axis]
    cut = int(TRIMMED * count)
    return np.take(ordered, range(cut, count - cut), axis=axis).mean(axis=axis)


def interval(values: ArrayLike, level: float = LEVEL, seed: int = 0) -> np.ndarray:
    """Percentile bootstrap of the interquartile mean over the first axis, the seeds: (S, ...) -> (2, ...) in any unit.

    With one seed both ends are its value: nothing is known of the spread.
    """
    runs = np.asarray(values, np.float64)
    draws = np.random.default_rng(seed).integers(0, len(runs), (RESAMPLES, len(runs)))
    means = np.stack([interquartile_mean(runs[row]) for row in draws])
    return np.quantile(means, [(1 - level) / 2, (1 + level) / 2], axis=0)


def plot_learning_curves(
    curves: Mapping[str, ArrayLike],
    steps: ArrayLike | Mapping[str, ArrayLike],
    *,
    references: Mapping[str, float] | None = None,
    label: str = "return of an episode [$]",
    title: str = "",
) -> Any:
    """Draw returns over training, interquartile mean over seeds and its 95 % bootstrap interval: a matplotlib Figure.

    curves:      by name, (S, U) one row a seed, or (U,) of one; in the unit that `label` names
    steps:       (U,) [-] environment steps at each point, the same for all or by name
    references:  returns of other policies as horizontal lines, such as random, rule and oracle, named beside the axes
    Raises ValueError where lengths differ, ImportError without matplotlib (extra `viz`).

    Example:
        returns = np.array([[-8.0, 1.5, 5.2], [-9.0, 2.0, 5.6]])  # two seeds, three points each
        plot_learning_curves({"PPO": returns}, [100_000, 1_000_000, 2_000_000], references={"oracle": 7.6})
    """
    figure = new_figure(7.0, 4.5)
    axes = figure.subplots()
    for k, (name, values) in enumerate(curves.items()):
        x = np.asarray(steps[name] if isinstance(steps, Mapping) else steps, float)
        runs = np.atleast_2d(np.asarray(values, float))
        if runs.ndim != 2 or x.shape != runs.shape[1:]:
            raise ValueError(f"curve {name!r}: expected (S, {x.size}), one value a point, got {np.shape(values)}.")
        count = f"{len(runs)} seed" + ("s" if len(runs) > 1 else "")
        axes.plot(x, interquartile_mean(runs), label=f"{name}, {count}", **look(k))
        if len(runs) > 1:
            axes.fill_between(x, *interval(runs), color=COLOURS[k % len(COLOURS)], alpha=0.2, linewidth=0)
    _draw_references(axes, references or {})
    axes.set(xlabel="environment steps [-]", ylabel=label, title=title)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", frameon=False)
    return figure


def _draw_references(axes: Any, references: Mapping[str, float]) -> None:
    """Horizontal lines whose names stand beside the axes, where no band of a curve covers them and none another."""
    for value in references.values():
        axes.axhline(value, **LIMIT_LINE)
    low, high = axes.get_ylim()
    axes.set_ylim(low, high)  # the names are placed by it
    at = (np.array(list(references.values()), float) - low) / (high - low)
    for name, value, place in zip(references, at, spread_labels(at, LABEL_GAP), strict=True):
        axes.annotate(
            name, (1, value), xycoords="axes fraction", xytext=(1.03, place), textcoords="axes fraction", va="center",
            fontsize="small", annotation_clip=False, arrowprops={"arrowstyle": "-", "linewidth": 0.6, "shrinkB": 0},
        )  # fmt: skip


def spread_labels(at: ArrayLike, gap: float) -> np.ndarray:
    """Positions (n,) that are at least `gap` apart, in the order of `at` (n,), and nearest to it in least squares.

    With the gaps taken off this is isotonic regression: neighbours that are too close are pooled to their mean.
    """
    values = np.asarray(at, float)
    order = np.argsort(values, kind="stable")
    pools: list[list[float]] = []  # sum and count of each
    for k, value in enumerate(values[order]):
        pools.append([value - k * gap, 1.0])
        while len(pools) > 1 and pools[-2][0] / pools[-2][1] > pools[-1][0] / pools[-1][1]:
            total, count = pools.pop()
            pools[-1][0] += total
            pools[-1][1] += count
    means = np.repeat([total / count for total, count in pools], [int(count) for _, count in pools])
    placed = np.empty(len(values))
    placed[order] = means + gap * np.arange(len(values))
    return placed


def plot_gains(
    gains: Mapping[str, ArrayLike | None], *, label: str = "gain: 0 = rule, 1 = best known [-]", title: str = ""
) -> Any:
    """Draw what policies gain on the rule within the same budgets, best first: a matplotlib Figure.

    gains:  by name, (S,) [-] one a seed, as `tasks.score.gain` has them; None for a policy that breaks a budget, which
            gets a row without a bar; a bar that reaches below -1 is cut there, with its value written on it
    Raises ValueError without a policy, ImportError without matplotlib (extra `viz`).

    Example:
        plot_gains({"PPO": [0.61, 0.66, 0.58], "causal": 0.4, "random": None})
    """
    if not gains:
        raise ValueError("no gain was given. Pass name -> gains of its seeds.")
    values = {name: None if x is None else np.atleast_1d(np.asarray(x, float)) for name, x in gains.items()}
    middle = {name: np.nan if x is None else float(interquartile_mean(x)) for name, x in values.items()}
    names = sorted(values, key=lambda name: (values[name] is None, -np.nan_to_num(middle[name])))
    figure = new_figure(7.0, 1.4 + 0.4 * len(names))
    axes = figure.subplots()
    axes.set_axisbelow(True)
    for k, name in enumerate(names):
        runs = values[name]
        if runs is None:
            axes.annotate("over a budget", (0, k), xytext=(4, 0), textcoords="offset points", va="center")
            continue
        if middle[name] < FAR_BELOW:
            axes.barh(k, FAR_BELOW, color=COLOURS[0])
            place = {"xytext": (4, 0), "textcoords": "offset points", "va": "center"}
            axes.annotate(f"{middle[name]:.3g}", (FAR_BELOW, k), color="white", **place)
            continue
        ends = np.abs(interval(runs) - middle[name])[:, None]
        axes.barh(k, middle[name], xerr=ends, color=COLOURS[0], capsize=3)
    for value in (0.0, 1.0):
        axes.axvline(value, **LIMIT_LINE)
    axes.set_xlim(left=max(axes.get_xlim()[0], FAR_BELOW))
    axes.set_yticks(np.arange(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set(xlabel=label, title=title)
    return figure


def plot_comparison(records: Mapping[str, Any], *, label: str = "return of an episode [$]", title: str = "") -> Any:
    """Draw evaluation records side by side, returns above and costs over budgets below: a matplotlib Figure.

    records:  by name, `tasks.score.Evaluation` or the dict that its `to_dict` gives
    Returns carry their bootstrap interval `ci95`. Costs are means of an episode over the budget, one group a channel; a
    channel without a budget, or with one of zero, is left out. Bars of policies that break a budget are hatched.
    Raises ValueError without a record, ImportError without matplotlib (extra `viz`).

    Example:
        from powerzoo_jax.oracle import evaluate_baseline
        records = {name: evaluate_baseline(sim, name) for name in ("rule", "oracle")}
        plot_comparison(records)
    """
    if not records:
        raise ValueError("no record was given. Pass name -> Evaluation.")
    plain = {name: record if isinstance(record, Mapping) else record.to_dict() for name, record in records.items()}
    budgets = next(iter(plain.values()))["cost_thresholds"]
    channels = [name for name, budget in budgets.items() if budget]
    figure = new_figure(7.0, 6.0 if channels else 3.5)
    upper, *lower = np.atleast_1d(figure.subplots(1 + bool(channels), 1))
    _draw_returns(upper, plain, label)
    if channels:
        _draw_costs(lower[0], plain, channels)
    figure.suptitle(title)
    return figure


def _draw_returns(axes: Any, plain: Mapping[str, Mapping[str, Any]], label: str) -> None:
    mean = np.array([record["mean_reward"] for record in plain.values()])
    ends = np.array([record["ci95"] for record in plain.values()]).T
    at = np.arange(len(plain))
    bars = axes.bar(at, mean, yerr=np.abs(ends - mean), color=[COLOURS[k % len(COLOURS)] for k in at], capsize=4)
    _mark_infeasible(axes, bars, [not record["feasible"] for record in plain.values()])
    axes.set_xticks(at, list(plain))
    axes.axhline(0, color="black", linewidth=0.8)
    axes.set_ylabel(label)


def _draw_costs(axes: Any, plain: Mapping[str, Mapping[str, Any]], channels: list[str]) -> None:
    width = 0.8 / len(plain)
    for k, (name, record) in enumerate(plain.items()):
        costs, budgets = record["mean_costs_by_constraint"], record["cost_thresholds"]
        share = [100 * costs[channel] / budgets[channel] for channel in channels]
        at = np.arange(len(channels)) + (k - (len(plain) - 1) / 2) * width
        bars = axes.bar(at, share, width, color=COLOURS[k % len(COLOURS)], label=name)
        _mark_infeasible(axes, bars, [x > 100 for x in share], legend=False)
    axes.axhline(100, **LIMIT_LINE)
    axes.set_xticks(np.arange(len(channels)), [channel.replace("_", " ") for channel in channels])
    axes.set_ylabel("mean cost, share of budget [%]")
    axes.legend(fontsize="small", frameon=False)


def _mark_infeasible(axes: Any, bars: Any, broken: list[bool], legend: bool = True) -> None:
    """Hatch bars that break a budget; the legend, below the axes where it covers none, explains it and other labels."""
    from matplotlib.patches import Patch

    for bar, over in zip(bars, broken, strict=True):
        bar.set(hatch="//" if over else "", edgecolor="white")
    shown, _ = axes.get_legend_handles_labels()
    if any(broken):
        shown.append(Patch(facecolor="0.6", hatch="//", edgecolor="white", label="breaks a budget"))
    if legend and shown:
        place = {"loc": "outside lower center", "ncols": len(shown)}
        axes.figure.legend(handles=shown, fontsize="small", frameon=False, **place)
