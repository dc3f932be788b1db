"""Picture of a running episode: its network, flows and curves in one matplotlib figure, which every frame updates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.trace.names import networks_of
from powerzoo_jax.envs.trace.readings import PRICES
from powerzoo_jax.envs.trace.types import TracedNetwork
from powerzoo_jax.plot.layout import ALARM, COLOURS, LIMIT, locate_parts

WIDE_PX, HIGH_PX, DPI = 800, 600, 100
SMALL = 7  # points of the text beside the heading
CALM = tuple(colour for colour in COLOURS if colour != ALARM)
NUMBERS = 0.09  # room beside an axis for its numbers, of the figure
SHADES = 256  # of a bar of colours
LABELLED = 40  # buses that still have room for their numbers
VOLTAGE_REACH_PU = (0.03, 0.1)  # colours reach as far as the limits do, within these bounds
ROUNDING_PU = 1e-6  # of float32: a held voltage is no violation
STILL = 1e-3  # share of the largest flow so far below which a branch shows no direction
VOLTAGE, PRICE, INJECTION = "bus_voltage_pu", "bus_price_per_mwh", "bus_injection_mw"
BUS_SCALES = {
    VOLTAGE: ("bus: voltage [pu]", "RdBu"),
    PRICE: ("bus: price of energy [$/MWh]", "viridis"),
    INJECTION: ("bus: power into the network [MW]", "PuOr"),
}  # table of a network -> label and colours, the first one that a network has counts


Room = tuple[float, float, float, float]  # left, bottom, width and height of a part, as shares of the figure


class Curve(NamedTuple):
    """One quantity over time.

    name, unit:  of its panel
    read:        its value in the info of a step
    held:        a value holds for its whole step, else it is that at the end of the step
    bounds:      what the panel always shows
    """

    name: str
    unit: str
    read: Callable[[Any], float]
    held: bool = True
    bounds: tuple[float, float] = (np.inf, -np.inf)


def curves_of(info: Any) -> tuple[Curve, ...]:
    """Quantities that the info of a family tells about a step, in the order of the panels."""

    def total(name: str) -> Callable[[Any], float]:
        return lambda info: float(np.sum(getattr(info, name)))

    found = []
    price = next((name for name in (*PRICES, "lmp") if hasattr(info, name)), None)
    if price is not None:
        label = "price" if price == PRICES[0] else "mean price"
        found.append(Curve(label, "$/MWh", lambda info: float(np.mean(getattr(info, price)))))
    for name, label in POWERS.items():
        if hasattr(info, name):
            found.append(Curve(label, "MW", total(name)))
    if np.size(getattr(info, "soc", ())):
        found.append(Curve("charge", "%", lambda info: 100 * float(np.mean(info.soc)), False, (-2, 102)))
    if hasattr(info, "v_min_pu"):
        found.append(Curve("lowest voltage", "pu", lambda info: float(info.v_min_pu)))
    return tuple(found)


POWERS = {
    "load_mw": "load",
    "p_load_mw": "load",
    "unit_power_mw": "generation",
    "p_mw": "devices",
    "battery_mw": "batteries",
    "realized_p_mw": "battery",
    "p_batt_mw": "battery",
    "p_dg_mw": "diesel",
}  # field of an info -> its label; positive is supply, but for the load


class EpisodePicture:
    """Figure of a task: a map a network on the left, a panel a quantity on the right, a heading above.

    figure:  matplotlib Figure to draw in, WIDE_PX by HIGH_PX pixels
    sim:     the task
    curves:  of the panels

    Everything is made once: `update` moves what changes, and only that is painted over a kept background. Where a scale
    has to grow, its axis alone is drawn anew: texts take nearly all the time of a whole figure.
    """

    def __init__(self, figure: Any, sim: Sim, curves: Sequence[Curve]) -> None:
        self.figure = figure
        self.heading = figure.text(0.02, 0.965, "", fontsize=11, weight="bold", va="center", animated=True)
        self.remark = figure.text(0.02, 0.925, "", fontsize=9, va="center", color="0.25", animated=True)
        networks = networks_of(sim)
        self.maps = {
            name: _NetworkMap(figure, box, name, network)
            for (name, network), box in zip(networks.items(), _boxes(len(networks)), strict=True)
        }
        hours = sim.spec.horizon * sim.spec.dt_hours
        self.panels = _panels(figure, 0.63 if networks else 0.08, curves, hours)
        self._parts: list[_NetworkMap | _Panel] = [*self.maps.values(), *self.panels]
        self._moving = [self.heading, self.remark, *(artist for part in self._parts for artist in part.moving)]
        self._still: list[Any] = []  # what lies below the scale of each part
        self._background: Any = None
        # also where a window asks for all of the figure, as after a change of its size
        figure.canvas.mpl_connect("draw_event", self._keep)

    def update(
        self,
        heading: str,
        remark: str,
        readings: Mapping[str, np.ndarray],
        curves: Sequence[tuple[np.ndarray, np.ndarray]],
    ) -> None:
        """Paint a step.

        readings:  tables of the networks by name, as `read_step` gives them
        curves:    (times [h], values) of every panel
        """
        self.heading.set_text(heading)
        self.remark.set_text(remark)
        for name, one in self.maps.items():
            prefix = f"{name}." if name else ""
            one.update({table: readings[prefix + table] for table in TABLES if prefix + table in readings})
        for panel, (hours, values) in zip(self.panels, curves, strict=True):
            panel.update(hours, values)
        canvas = self.figure.canvas
        if self._background is None:
            canvas.draw()
        else:
            canvas.restore_region(self._background)
            if any(part.rescaled for part in self._parts):
                self._draw_scales()
            self._paint()
        canvas.blit(self.figure.bbox)

    def forget(self) -> None:
        """Begin another episode: scales that grew with the last one shrink again."""
        for part in self._parts:
            part.forget()

    def _keep(self, event: Any) -> None:
        """Keep what has just been drawn, all but the scales and the moving parts, and paint those over it."""
        del event
        self._still = [self.figure.canvas.copy_from_bbox(_pixels(self.figure, part.room)) for part in self._parts]
        for part in self._parts:
            part.rescaled = True
        self._draw_scales()
        self._paint()

    def _draw_scales(self) -> None:
        """Draw the scales that have changed in the place of what they were, and keep all but the moving parts."""
        canvas = self.figure.canvas
        for part, still in zip(self._parts, self._still, strict=True):
            if part.rescaled:
                canvas.restore_region(still)
                for artist in part.scale:
                    self.figure.draw_artist(artist)
                part.rescaled = False
        self._background = canvas.copy_from_bbox(self.figure.bbox)

    def _paint(self) -> None:
        for artist in self._moving:
            self.figure.draw_artist(artist)


TABLES = (*BUS_SCALES, "branch_flow_mw", "branch_loading_mva")


def _pixels(figure: Any, room: Room) -> Any:
    """Part of a figure in pixels."""
    from matplotlib.transforms import Bbox

    return Bbox.from_bounds(*room).transformed(figure.transFigure)


def _boxes(count: int) -> list[Room]:
    """Places of the maps in the figure: the first above, the others in a row below it."""
    low, high, left, wide = 0.10, 0.79, 0.02, 0.54
    if count < 2:
        return [(left, low, wide, high)][:count]
    half, each = high / 2, wide / (count - 1)
    return [(left, low + half, wide, half), *((left + k * each, low, each, half) for k in range(count - 1))]


def _panels(figure: Any, left: float, curves: Sequence[Curve], hours: float) -> list[_Panel]:
    """One panel a curve, below each other; the lowest has the axis of time."""
    low, high, gap = 0.09, 0.79, 0.045
    each = (high - gap * (len(curves) - 1)) / len(curves)
    panels = []
    for k, curve in enumerate(curves):
        bottom = low + (len(curves) - 1 - k) * (each + gap)
        axes = figure.add_axes((left, bottom, 0.97 - left, each))
        label = f"{curve.name} [{curve.unit}]" if curve.unit else curve.name
        axes.set_title(label, fontsize=SMALL, loc="left", pad=2)
        axes.tick_params(labelsize=SMALL - 1, labelbottom=k == len(curves) - 1, length=2)
        axes.set_xlim(0, hours)
        axes.locator_params(nbins=3)
        # a common offset of the numbers would push the title aside, which is drawn once
        axes.ticklabel_format(axis="y", style="plain", useOffset=False)
        axes.grid(alpha=0.3, axis="y")
        # numbers on the left and below, the title above; the lowest one has the axis of time
        below = 0.35 * gap if k < len(curves) - 1 else bottom
        room = (max(left - NUMBERS, 0), bottom - below, 1 - max(left - NUMBERS, 0), each + below + 0.65 * gap)
        panels.append(_Panel(axes, CALM[k % len(CALM)], curve.bounds, room))
    panels[-1].axes.set_xlabel("hours since the start of the episode", fontsize=SMALL)
    return panels


class _Panel:
    """A quantity over the hours of an episode.

    scale:     what is drawn anew after a change of the scale: the axis
    room:      that it and its numbers take
    rescaled:  whether the scale has changed since it was drawn
    """

    low: float
    high: float

    def __init__(self, axes: Any, colour: str, bounds: tuple[float, float], room: Room) -> None:
        self.axes, self.scale = axes, (axes.yaxis,)
        self.bounds, self.room = bounds, room
        axes.yaxis.set_animated(True)
        (self.line,) = axes.plot([], [], color=colour, linewidth=1.4, animated=True)
        self.moving = (self.line,)
        self.forget()

    def update(self, hours: np.ndarray, values: np.ndarray) -> None:
        self.line.set_data(hours, values)
        known = values[np.isfinite(values)]
        low, high = known.min(initial=np.inf), known.max(initial=-np.inf)
        if low < self.low or high > self.high:
            # some room beyond, for a flat line, and so that the scale does not change in every step
            room = max(0.3 * (high - low), 1e-3 * max(abs(high), abs(low)), 1e-6)
            self.low, self.high = (min(self.low, low - room), max(self.high, high + room))
            self.axes.set_ylim(self.low, self.high)
            self.rescaled = True

    def forget(self) -> None:
        (self.low, self.high), self.rescaled = self.bounds, True
        if self.low < self.high:
            self.axes.set_ylim(self.low, self.high)


class _NetworkMap:
    """Map of a network: buses coloured by voltage, price or injection, branches by loading, arrows with the flow.

    scale, room, rescaled:  of the bar of colours, as those of a panel
    """

    def __init__(self, figure: Any, box: Room, name: str, network: TracedNetwork) -> None:
        from matplotlib.collections import LineCollection
        from matplotlib.colors import LinearSegmentedColormap

        self.network = network
        left, bottom, wide, high = box
        self.axes = axes = figure.add_axes((left, bottom + 0.1 * high, wide, 0.9 * high))
        axes.set_axis_off()
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
        if name:
            axes.set_title(name.replace("_", " "), fontsize=SMALL + 1, pad=1)
        f, t, on = (np.asarray(x) for x in (network.from_bus, network.to_bus, network.in_service))
        place = _fitted(locate_parts(len(network.bus_ids), f, t, on, network.root))
        self.area = float(np.clip(3000 / len(place), 8, 110))
        ends = np.stack([place[f], place[t]], axis=1)
        axes.add_collection(LineCollection(list(ends[~on]), colors="0.7", linestyles=":", linewidths=1.0))
        grey = LinearSegmentedColormap.from_list("loading", ("0.8", "0.0")).with_extremes(over=ALARM, bad="0.6")
        self.on, self.rated = on, bool(np.any(network.rate_mva[on] > 0))
        self.lines = LineCollection(list(ends[on]), cmap=grey, animated=True)
        self.lines.set_clim(0, 100)
        axes.add_collection(self.lines)
        # directions on the screen, whatever the shape of the axes
        span = np.array([wide * WIDE_PX, 0.9 * high * HIGH_PX])
        along = (place[t] - place[f])[on] * span
        self.along = along / np.maximum(np.linalg.norm(along, axis=1, keepdims=True), 1e-9)
        middle = ends[on].mean(axis=1)
        self.arrows = axes.quiver(
            *middle.T, *self.along.T, units="dots", scale_units="dots", scale=1 / 8, width=0.8, headwidth=7,
            headlength=8, headaxislength=8, pivot="mid", color=COLOURS[0], animated=True,
        )  # fmt: skip
        self.buses = axes.scatter(*place.T, s=self.area, c=np.ones(len(place)), edgecolors="0.2", animated=True)
        self._mark(place)
        low, flat = bottom + 0.045 * high, 0.018 * high
        self.bar = figure.add_axes((left + 0.15 * wide, low, 0.7 * wide, flat), yticks=())
        # a colorbar of matplotlib's own is built anew whenever the ends of the colours move
        shades = np.linspace(0, 1, SHADES)[None]
        whole = {"extent": (0, 1, 0, 1), "transform": self.bar.transAxes, "aspect": "auto"}
        self.colours = self.bar.imshow(shades, **whole, animated=True)
        self.bar.tick_params(labelsize=SMALL - 1, length=2)
        self.bar.xaxis.set_animated(True)
        self.scale = (self.colours, self.bar.xaxis)
        self.room = (left, low - NUMBERS, wide, NUMBERS + flat + 0.01)
        self.quantity = ""
        self.note = axes.text(0.0, 0.0, "", fontsize=SMALL, color="0.3", va="bottom", animated=True)
        self.moving = (self.lines, self.arrows, self.buses, self.note)
        self.forget()

    def _mark(self, place: np.ndarray) -> None:
        """Mark the reference bus by a square, the buses with devices by a ring, and number the buses."""
        network, ring = self.network, {"s": 2.6 * self.area, "facecolors": "none", "edgecolors": LIMIT}
        self.axes.scatter(*place[[network.root]].T, marker="s", **ring)
        at = np.setdiff1d(network.device_bus, [network.root])
        self.axes.scatter(*place[at].T, marker="o", linewidths=1.0, **ring)
        if len(place) <= LABELLED:
            for bus, (x, y) in zip(network.bus_ids, place, strict=True):
                offset = (0, 0.8 * self.area**0.5 + 2)
                self.axes.annotate(bus, (x, y), offset, textcoords="offset points", ha="center", fontsize=SMALL - 1)

    def forget(self) -> None:
        self.largest_mw, self.low, self.high, self.rescaled = 0.0, np.inf, -np.inf, True

    def update(self, tables: Mapping[str, np.ndarray]) -> None:
        if quantity := next((name for name in BUS_SCALES if name in tables), ""):
            self._colour_buses(quantity, tables[quantity])
        flow = np.nan_to_num(tables["branch_flow_mw"])[self.on]
        self.largest_mw = max(self.largest_mw, float(np.abs(flow).max(initial=0)))
        share = np.abs(flow) / max(self.largest_mw, 1e-9)
        rate = self.network.rate_mva[self.on]
        loading = 100 * tables["branch_loading_mva"][self.on] / np.where(rate > 0, rate, np.nan)
        self.lines.set_array(np.ma.masked_invalid(loading))
        self.lines.set_linewidth(0.8 + 2.5 * np.where(rate > 0, np.clip(np.nan_to_num(loading) / 100, 0, 1.2), share))
        turned = np.ma.masked_where(np.repeat(share[:, None] < STILL, 2, axis=1), self.along * np.sign(flow)[:, None])
        self.arrows.set_UVC(*turned.T)
        fullest = f"fullest branch {np.nanmax(loading):.0f} %, " if self.rated else ""
        self.note.set_text(f"{fullest}largest flow {np.abs(flow).max(initial=0):.3g} MW")

    def _colour_buses(self, quantity: str, values: np.ndarray) -> None:
        if quantity != self.quantity:
            label, colours = BUS_SCALES[quantity]
            self.quantity, self.rescaled = quantity, True
            self.buses.set_cmap(colours)
            self.colours.set_cmap(colours)
            self.bar.set_xlabel(label, fontsize=SMALL, labelpad=1)
        low, high = self._reach(values)
        if (low, high) != (self.low, self.high):
            self.low, self.high, self.rescaled = low, high, True
            self.buses.set_clim(low, high)
            self.bar.set_xlim(low, high)
        self.buses.set_array(values)
        if quantity == VOLTAGE:
            outside = (values < self.network.v_min_pu - ROUNDING_PU) | (values > self.network.v_max_pu + ROUNDING_PU)
            self.buses.set_edgecolor([ALARM if out else "0.2" for out in outside])
            self.buses.set_linewidth(np.where(outside, 2.0, 0.7))

    def _reach(self, values: np.ndarray) -> tuple[float, float]:
        """Ends of the colours: fixed by the limits for voltages, else as far as the episode went."""
        if self.quantity == VOLTAGE:
            free = np.setdiff1d(np.arange(len(values)), [self.network.root])
            limits = np.abs([self.network.v_min_pu[free].max(initial=0) - 1, self.network.v_max_pu[free].min() - 1])
            reach = float(np.clip(limits.max(), *VOLTAGE_REACH_PU))
            return 1 - reach, 1 + reach
        low, high = float(values.min()), float(values.max())
        if self.low <= low and high <= self.high:
            return self.low, self.high
        low, high = min(self.low, low), max(self.high, high)
        if self.quantity == INJECTION:  # 0 in the middle
            reach = 1.15 * max(-low, high, 1e-6)
            return -reach, reach
        return low, max(high, low + 1e-6)


def _fitted(place: np.ndarray) -> np.ndarray:
    """Coordinates (N, 2) stretched to the inner part of the unit square."""
    low, span = place.min(axis=0), np.ptp(place, axis=0)
    share = np.where(span > 0, (place - low) / np.where(span > 0, span, 1), 0.5)
    return 0.06 + np.array([0.88, 0.84]) * share
