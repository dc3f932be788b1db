"""A three-phase feeder on its map: lines by their number of phases, buses by their worst voltage."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from powerzoo_jax.cases.threephase.case import ThreePhaseCase
from powerzoo_jax.plot.layout import LIMIT, locate_parts, new_figure

BAND_PU = 0.1  # colours reach that far from 1 pu, farther where a voltage does
LABELLED = 60  # buses that still have room for their names
PHASES = 3  # nodes of higher number are neutrals
WIDTHS = (0.8, 1.6, 2.6)  # [points] of branches of one, two and three phases
HIGHEST = 0.8  # height of a map over its width


def locate_feeder(case: ThreePhaseCase) -> tuple[tuple[str, ...], np.ndarray]:
    """Names of the buses and their coordinates (N, 2) in the unit of the source, or [-] on a tree where it has none.

    A bus without coordinates stands in the middle of its neighbours that have some.
    """
    names = tuple(dict.fromkeys(map(str, case.node.bus)))
    f, t, _ = _branches(case, names)
    known = {str(bus): (x, y) for bus, x, y in zip(case.place.bus, case.place.x, case.place.y, strict=True)}
    if not known:
        root = names.index(str(case.node.bus[case.source.node[0]]))
        return names, locate_parts(len(names), f, t, np.ones(len(f), bool), root)
    xy = np.array([known.get(name, (np.nan, np.nan)) for name in names], float)
    return names, _filled(xy, f, t)


def _branches(case: ThreePhaseCase, names: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positions of the buses that lines and transformers join, (E,) each, once a pair, and their phases (E,)."""
    at = {name: k for k, name in enumerate(names)}
    bus = np.array([at[str(name)] for name in case.node.bus], np.int64)
    line, unit = case.line, case.transformer
    real = line.from_node >= 0
    joined = [(line.from_node[real], line.to_node[real]), (unit.from_node, unit.to_node)]
    phases: dict[tuple[int, int], set[int]] = {}
    for a, b in (pair for ends in joined for pair in zip(*ends, strict=True)):
        pair = (int(bus[a]), int(bus[b]))
        if a >= 0 and b >= 0 and pair[0] != pair[1] and case.node.phase[a] <= PHASES:
            phases.setdefault(pair, set()).add(int(case.node.phase[a]))
    ends = np.array(list(phases), np.int64).reshape(-1, 2)
    return ends[:, 0], ends[:, 1], np.array([len(own) for own in phases.values()], np.int64)


def _filled(xy: np.ndarray, f: np.ndarray, t: np.ndarray) -> np.ndarray:
    """Coordinates with those of unknown buses between their neighbours; of parts without any, in the middle."""
    lost = np.isnan(xy[:, 0])
    while True:
        sums, counts = np.zeros_like(xy), np.zeros(len(xy))
        for a, b in ((f, t), (t, f)):
            there = ~np.isnan(xy[b, 0])
            np.add.at(sums, a[there], xy[b[there]])
            np.add.at(counts, a[there], 1.0)
        reached = np.isnan(xy[:, 0]) & (counts > 0)
        if not reached.any():
            break
        xy[reached] = sums[reached] / counts[reached, None]
    for _ in range(len(xy) if lost.any() else 0):  # a chain of unknown buses is spread out between its ends
        sums, counts = np.zeros_like(xy), np.zeros(len(xy))
        for a, b in ((f, t), (t, f)):
            np.add.at(sums, a, xy[b])
            np.add.at(counts, a, 1.0)
        moved = lost & (counts > 0)
        xy[moved] = sums[moved] / counts[moved, None]
    return np.where(np.isnan(xy), np.nanmean(xy, axis=0), xy)


def plot_feeder(case: ThreePhaseCase, *, v_pu: ArrayLike | None = None, title: str = "") -> Any:
    """Draw a three-phase feeder, on its map where the case has coordinates: a matplotlib Figure.

    v_pu:  (N,) [pu]  voltage magnitudes of the nodes, to neutral; a bus takes the colour of its phase farthest from 1
    Raises ValueError for another number of nodes, ImportError without matplotlib (extra `viz`).

    Example:
        from powerzoo_jax.cases import load_feeder
        feeder = load_feeder("case13")
        plot_feeder(feeder, v_pu=np.full(feeder.n_node, 1.02)).savefig("feeder.png")
    """
    from matplotlib.collections import LineCollection

    names, xy = locate_feeder(case)
    f, t, phases = _branches(case, names)
    wide, high = np.maximum(np.ptp(xy, axis=0), 1e-9)
    figure = new_figure(8.0, float(np.clip(7.0 * high / wide, 3.0, 7.0 * HIGHEST)) + 1.0)
    axes = figure.subplots()
    widths = np.asarray(WIDTHS)[np.clip(phases, 1, PHASES) - 1]
    axes.add_collection(LineCollection(list(np.stack([xy[f], xy[t]], axis=1)), colors="0.5", linewidths=widths))
    size = float(np.clip(6000 / len(names), 8, 160))
    shown: dict[str, Any] = {"color": "white"}
    if v_pu is not None:
        worst = _worst(case, names, v_pu)
        reach = max(BAND_PU, float(np.nanmax(np.abs(worst - 1))))
        shown = {"c": worst, "cmap": "RdBu", "vmin": 1 - reach, "vmax": 1 + reach}
    points = axes.scatter(*xy.T, s=size, edgecolors="0.2", linewidths=0.7, zorder=3, gid="buses", **shown)
    source = xy[names.index(str(case.node.bus[case.source.node[0]]))]
    axes.scatter(*source, s=2.6 * size, marker="s", facecolors="none", edgecolors=LIMIT, zorder=4, label="source")
    for count in sorted(set(np.clip(phases, 1, PHASES).tolist())):
        label = f"{count} phase" + ("s" if count > 1 else "")
        axes.plot([], [], color="0.5", linewidth=WIDTHS[count - 1], label=label)
    if v_pu is not None:
        figure.colorbar(points, ax=axes, shrink=0.8, pad=0.02).set_label("voltage of the worst phase [pu]")
    if len(names) <= LABELLED:
        for name, place in zip(names, xy, strict=True):
            axes.annotate(name, place, xytext=(0, 7), textcoords="offset points", ha="center", fontsize=7)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=4, fontsize="small", frameon=False)
    axes.set_axis_off()
    axes.margins(0.06)
    if len(case.place):
        axes.set_aspect("equal", adjustable="datalim")
    axes.set_title(title or case.name, fontsize="medium")
    return figure


def _worst(case: ThreePhaseCase, names: tuple[str, ...], v_pu: ArrayLike) -> np.ndarray:
    """Voltage of each bus's phase that is farthest from 1 pu, (B,); neutrals do not count."""
    values = np.asarray(v_pu, float)
    if values.shape != (case.n_node,):
        raise ValueError(f"v_pu: expected ({case.n_node},), one value a node of {case.name}, got {values.shape}.")
    found = dict.fromkeys(names, np.nan)
    for bus, phase, value in zip(map(str, case.node.bus), case.node.phase, values, strict=True):
        if phase <= PHASES and not abs(value - 1) <= abs(found[bus] - 1):
            found[bus] = float(value)
    return np.array(list(found.values()))
