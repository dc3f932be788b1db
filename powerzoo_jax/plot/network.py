"""A network as a one-line diagram: voltages, loadings and prices on its buses and branches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from powerzoo_jax.cases import Case
from powerzoo_jax.cases.topology import branch_positions
from powerzoo_jax.plot.layout import ALARM, LIMIT, locate_buses, new_figure

LABELLED = 60  # buses that still have room for their numbers
ROUNDING = 1e-6  # [pu] of float32: a held voltage is no violation
TITLE_PAD = 16  # [points] between the axes and their title: room for the number of the topmost bus
BAND_PU = 0.1  # colours of voltages reach that far from 1 pu, farther where a voltage does


def branch_loading(case: Case, result: Any) -> np.ndarray:
    """Apparent power over rating, (L,) [-], the larger of the ends that the result holds; NaN without a rating.

    result:  a PowerFlowResult of the case, one scenario

    Example:
        from powerzoo_jax.powerflow import nominal_injection, prepare_meshed, solve_meshed
        case = powerzoo_jax.load_case("pz_case5")
        s = nominal_injection(case)
        result = jax.jit(solve_meshed)(prepare_meshed(case), jnp.float32(s.real), jnp.float32(s.imag))
        loading = branch_loading(case, result)
    """
    ends = [(result.p_from, result.q_from)]
    if hasattr(result, "p_to"):
        ends.append((result.p_to, result.q_to))
    flow = np.max([np.hypot(np.asarray(p, float), np.asarray(q, float)) for p, q in ends], axis=0)
    return over_rating(case, flow * case.base_mva)


def over_rating(case: Case, flow_mva: ArrayLike) -> np.ndarray:
    """|flow| over rating, (L,) [-]; NaN where a branch has no rating or is out of service."""
    rate = np.where(case.branch.in_service & (case.branch.rate_a_mva > 0), case.branch.rate_a_mva, np.nan)
    return np.abs(_column(case.n_branch, flow_mva, "flow", "branch")) / rate


def voltage_band(case: Case) -> tuple[float, float]:
    """The tightest limits [pu] of the buses beside the reference, whose own limits often fix its set-point."""
    free = np.setdiff1d(np.arange(case.n_bus), case.slack_bus)
    return float(case.bus.v_min_pu[free].max(initial=-np.inf)), float(case.bus.v_max_pu[free].min(initial=np.inf))


def plot_network(
    case: Case,
    *,
    v_pu: ArrayLike | None = None,
    loading: ArrayLike | None = None,
    lmp: ArrayLike | None = None,
    xy: ArrayLike | None = None,
    title: str = "",
) -> Any:
    """Draw the one-line diagram of a case: a matplotlib Figure, one diagram each for voltages and prices.

    v_pu:     (N,) [pu]       colours the buses; those outside of their band get a thick rim
    loading:  (L,) [-]        share of the rating (`branch_loading`), NaN = unrated; beyond 1 in another colour
    lmp:      (N,) [USD/MWh]  colours the buses of a second diagram, or of the only one without voltages
    xy:       (N, 2)          coordinates where they are known; None takes `locate_buses`
    Raises ValueError for an array of another length, ImportError without matplotlib (extra `viz`).

    Example:
        from powerzoo_jax.opf import dc_opf, prepare_dc_opf
        case = powerzoo_jax.load_case("pz_case5")
        result = jax.jit(dc_opf)(prepare_dc_opf(case), jnp.float32(case.p_load_mw))
        share = over_rating(case, result.line_flow_mw)
        plot_network(case, lmp=result.lmp, loading=share).savefig("grid.png")
    """
    quantities: list[tuple[Callable[..., None], np.ndarray]] = []
    if v_pu is not None:
        quantities.append((_draw_voltages, _column(case.n_bus, v_pu, "v_pu", "bus")))
    if lmp is not None:
        quantities.append((_draw_prices, _column(case.n_bus, lmp, "lmp", "bus")))
    share = None if loading is None else _column(case.n_branch, loading, "loading", "branch")
    place = locate_buses(case) if xy is None else np.asarray(xy, float)
    if place.shape != (case.n_bus, 2):
        raise ValueError(f"xy: expected ({case.n_bus}, 2), one row a bus of {case.name}, got {place.shape}.")
    count = max(1, len(quantities))
    wide, high = np.maximum(np.ptp(place, axis=0), 1e-9)
    height = float(np.clip(7.0 * high / wide, 3.0, 7.0)) + 1.5
    figure = new_figure(8.0 * count if count == 1 else 13.0, height)
    row = figure.subplots(1, count, squeeze=False)[0]
    for k, axes in enumerate(row):
        lines = _draw_branches(axes, case, place, share)
        if quantities:
            draw, values = quantities[k]
            draw(figure, axes, case, place, values)
        else:
            _draw_buses(axes, case, place, color="white")
        _finish(axes, case, place)
    if lines is not None:
        bar = figure.colorbar(lines, ax=list(row), orientation="horizontal", extend="max", shrink=0.4, pad=0.02)
        bar.set_label("branch loading, share of rating [%]")
    figure.suptitle(title or case.name)
    return figure


def _column(rows: int, values: ArrayLike, name: str, what: str) -> np.ndarray:
    array = np.asarray(values, float)
    if array.shape != (rows,):
        raise ValueError(f"{name}: expected ({rows},), one value a {what}, got {array.shape}. Pick one scenario.")
    return array


def _draw_branches(axes: Any, case: Case, place: np.ndarray, share: np.ndarray | None) -> Any:
    """Lines below the buses, dotted where out of service. Returns the collection for a colour bar, or None."""
    from matplotlib.collections import LineCollection
    from matplotlib.colors import LinearSegmentedColormap

    f, t = branch_positions(case)
    ends = np.stack([place[f], place[t]], axis=1)
    on = case.branch.in_service
    axes.add_collection(LineCollection(list(ends[~on]), colors="0.6", linestyles=":", linewidths=1.0, zorder=1))
    rated = on & np.isfinite(share) if share is not None else np.zeros_like(on)
    axes.add_collection(LineCollection(list(ends[on & ~rated]), colors="0.6", linewidths=1.2, zorder=1))
    if share is None or not rated.any():
        return None
    colours = LinearSegmentedColormap.from_list("loading", ("0.8", "0.0")).with_extremes(over=ALARM)
    lines = LineCollection(list(ends[rated]), cmap=colours, zorder=2, gid="loading")
    lines.set_array(100 * share[rated])
    lines.set_clim(0, 100)
    lines.set_linewidth(1.0 + 3.0 * np.clip(share[rated], 0, 1.2))
    axes.add_collection(lines)
    return lines


def _draw_voltages(figure: Any, axes: Any, case: Case, place: np.ndarray, v_pu: np.ndarray) -> None:
    reach = max(BAND_PU, float(np.nanmax(np.abs(v_pu - 1))))
    outside = (v_pu < case.bus.v_min_pu - ROUNDING) | (v_pu > case.bus.v_max_pu + ROUNDING)
    shown = {"cmap": "RdBu", "vmin": 1 - reach, "vmax": 1 + reach, "edgecolors": np.where(outside, ALARM, "0.2")}
    points = _draw_buses(axes, case, place, c=v_pu, linewidths=np.where(outside, 2.5, 0.8), **shown)
    bar = figure.colorbar(points, ax=axes, shrink=0.8, pad=0.02)
    bar.set_label("voltage [pu]")
    for limit in voltage_band(case):
        bar.ax.axhline(limit, color=LIMIT, linewidth=1.5)
    title = f"lowest {np.nanmin(v_pu):.3f} pu, highest {np.nanmax(v_pu):.3f} pu"
    axes.set_title(title, fontsize="medium", pad=TITLE_PAD)


def _draw_prices(figure: Any, axes: Any, case: Case, place: np.ndarray, lmp: np.ndarray) -> None:
    points = _draw_buses(axes, case, place, c=lmp, cmap="viridis", edgecolors="0.2", linewidths=0.8)
    figure.colorbar(points, ax=axes, shrink=0.8, pad=0.02).set_label("price of energy at the bus [$/MWh]")
    axes.set_title(f"{np.nanmin(lmp):.2f} to {np.nanmax(lmp):.2f} $/MWh", fontsize="medium", pad=TITLE_PAD)


def _draw_buses(axes: Any, case: Case, place: np.ndarray, **shown: Any) -> Any:
    """Buses as discs; a square frame marks the reference, a triangle above it a bus with units."""
    size = _area(case)
    shown.setdefault("edgecolors", "0.2")
    points = axes.scatter(*place.T, s=size, zorder=3, gid="buses", **shown)
    slack = case.slack_bus
    axes.scatter(
        *place[slack].T, s=2.6 * size, marker="s", facecolors="none", edgecolors=LIMIT, zorder=4, label="reference bus"
    )
    at = case.positions(case.unit.bus_id[case.unit.in_service])
    at = np.setdiff1d(at[at >= 0], slack)
    if len(at):
        axes.scatter(
            *place[at].T, s=2.6 * size, marker="o", facecolors="none", edgecolors=LIMIT, linewidths=1.0, zorder=4,
            label="bus with units",
        )  # fmt: skip
    return points


def _area(case: Case) -> float:
    """Area [points^2] of a bus: smaller the more there are."""
    return float(np.clip(9000 / case.n_bus, 15, 220))


def _finish(axes: Any, case: Case, place: np.ndarray) -> None:
    if case.n_bus <= LABELLED:
        above = 0.8 * _area(case) ** 0.5 + 3  # clear of the rings and frames
        for bus, (x, y) in zip(case.bus.id, place, strict=True):
            axes.annotate(str(bus), (x, y), xytext=(0, above), textcoords="offset points", ha="center", fontsize=7)
    if not case.branch.in_service.all():
        axes.plot([], [], ":", color="0.6", label="open branch")
    axes.legend(
        loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=3, fontsize="small", frameon=False, markerscale=0.5
    )
    axes.set_axis_off()
    axes.margins(0.06)
