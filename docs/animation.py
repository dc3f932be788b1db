"""The moving picture of the README, docs/animation.svg: `python docs/animation.py`.

A day of a feeder with three batteries, without control and under the plan of the oracle, from the traces that
docs/episode.py writes. Motion is SMIL inside the picture, so that it plays wherever an image is shown.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

import numpy as np

from powerzoo_jax.envs import Trace, load_traces
from powerzoo_jax.plot.layout import locate_parts

TARGET, SOURCE = Path(__file__).with_name("animation.svg"), Path(__file__).with_name("episode.npz")
SHOWN = {"no_control": "without control", "oracle": "planned by the oracle"}
SECONDS = 12  # of a day
WIDTH, HEIGHT, MAP, TOP, CHART = 800, 430, 360, 62, 330  # of the picture, a map, and where maps and charts begin
LOW, MIDDLE, HIGH = (np.array(c, float) for c in ((194, 60, 10), (247, 247, 247), (16, 92, 165)))
COLOURS = ("#0072B2", "#D55E00", "#009E73")  # of the batteries


def moving(name: str, values: list[str], *, discrete: bool = True) -> str:
    """An attribute that takes one value a step."""
    mode = ' calcMode="discrete"' if discrete else ""
    return (
        f'<animate attributeName="{name}" dur="{SECONDS}s" repeatCount="indefinite"{mode} values="{";".join(values)}"/>'
    )


def colour(v_pu: float, reach: float) -> str:
    """Red below 1 pu, blue above."""
    share = (v_pu - 1) / reach
    mixed = MIDDLE + (HIGH - MIDDLE if share > 0 else LOW - MIDDLE) * min(1.0, abs(share)) ** 0.8
    return "#" + "".join(f"{round(x):02x}" for x in mixed)


def network(trace: Trace, left: float, reach: float) -> str:
    """One map: branches as wide as their flow, buses by voltage, batteries by their charge."""
    net = trace.networks[""]
    f, t, on = (np.asarray(part) for part in (net.from_bus, net.to_bus, net.in_service))
    place = locate_parts(len(net.bus_ids), f, t, on, net.root)
    span = np.ptp(place, axis=0)
    xy = (place - place.min(axis=0)) / span * [MAP - 40, -180] + [left + 20, TOP + 200]
    flow = np.abs(trace["branch_flow_mw"].values)
    wide = 0.8 + 6 * flow / flow.max()
    parts = [
        f'<line x1="{xy[a, 0]:.0f}" y1="{xy[a, 1]:.0f}" x2="{xy[b, 0]:.0f}" y2="{xy[b, 1]:.0f}">'
        f"{moving('stroke-width', [f'{x:.1f}' for x in wide[:, k]])}</line>"
        for k, (a, b) in enumerate(zip(f, t, strict=True))
        if on[k]
    ]
    volts = trace["bus_voltage_pu"].values
    dots = [
        f'<circle cx="{x:.0f}" cy="{y:.0f}" r="5">{moving("fill", [colour(v, reach) for v in volts[:, k]])}</circle>'
        for k, (x, y) in enumerate(xy)
    ]
    boxes = []
    for k, bus in enumerate(net.device_bus):
        x, y = xy[bus] + [-5, 9]
        high = 18 * trace["soc"].values[:, k]
        boxes.append(
            f'<rect x="{x:.0f}" y="{y:.0f}" width="10" height="18" fill="#fff" stroke="#444"/>'
            f'<rect x="{x:.0f}" width="10" fill="{COLOURS[k]}">{moving("height", [f"{h:.1f}" for h in high])}'
            f"{moving('y', [f'{y + 18 - h:.1f}' for h in high])}</rect>"
        )
    limit = float(net.v_min_pu.max())
    lowest = float(volts.min())
    held = "within" if lowest >= limit else "below"
    earned = float(trace["reward"].values.sum(axis=0).mean() * len(trace.agents))
    told = f"{SHOWN[trace.policy]}: {earned:.0f} $, lowest voltage {lowest:.3f} pu, {held} the limit of {limit:.2f}"
    return (
        f'<text x="{left + MAP / 2}" y="{TOP - 14}" text-anchor="middle">{escape(told)}</text>'
        f'<g stroke="#777">{"".join(parts)}</g><g stroke="#333">{"".join(dots)}</g>{"".join(boxes)}'
    )


def curve(values: np.ndarray, left: float, colour: str, low: float, high: float) -> str:
    """A line over the day, in steps."""
    x = left + np.linspace(0, MAP - 40, len(values) + 1)
    y = CHART + 62 - 62 * (values - low) / (high - low)
    path = f"M{x[0]:.0f} {y[0]:.0f}" + "".join(f"H{a:.0f}V{b:.0f}" for a, b in zip(x[1:-1], y[1:], strict=True))
    return f'<path d="{path}H{x[-1]:.0f}" fill="none" stroke="{colour}" stroke-width="1.8"/>'


def chart(title: str, left: float, curves: list[str], hours: float) -> str:
    """Curves above an axis of hours, with a line that moves with the day."""
    ticks = "".join(
        f'<text x="{left + (MAP - 40) * h / hours:.0f}" y="{CHART + 80}" text-anchor="middle">{h:.0f} h</text>'
        for h in np.linspace(0, hours, 5)
    )
    ends = [f"{left:.0f}", f"{left + MAP - 40:.0f}"]
    both = "".join(moving(name, ends, discrete=False) for name in ("x1", "x2"))
    return (
        f'<text x="{left}" y="{CHART - 8}">{escape(title)}</text>'
        f'<path d="M{left} {CHART}v62h{MAP - 40}" fill="none" stroke="#999"/>{"".join(curves)}{ticks}'
        f'<line y1="{CHART}" y2="{CHART + 62}" stroke="#000">{both}</line>'
    )


def picture() -> str:
    """The whole picture as SVG text."""
    found = load_traces(SOURCE)
    traces = [found[name] for name in SHOWN]
    reach = max(float(np.abs(trace["bus_voltage_pu"].values - 1).max()) for trace in traces)
    price = traces[0]["price_per_mwh"].values[:, 0]
    hours = len(price) * traces[0].dt_hours
    low, high = min(0.0, float(price.min())), float(price.max())
    charge = [curve(x, 440, COLOURS[k], 0, 1) for k, x in enumerate(traces[1]["soc"].values.T)]
    title = "A day of a 33-bus feeder: buses red below 1 pu and blue above, branches by flow, batteries by charge"
    body = [
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#fff"/>',
        f'<text x="{WIDTH / 2}" y="24" text-anchor="middle" font-size="15">{title}</text>',
        *(network(trace, 20 + 400 * k, reach) for k, trace in enumerate(traces)),
        chart(f"price of energy, up to {high:.0f} $/MWh", 40, [curve(price, 40, "#000", low, high)], hours),
        chart("state of charge under the oracle, 0 to 100 %", 440, charge, hours),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}" '
        f'font-family="sans-serif" font-size="12" fill="#222">{"".join(body)}</svg>\n'
    )


if __name__ == "__main__":
    TARGET.write_text(picture(), encoding="utf-8")
    print(TARGET)
