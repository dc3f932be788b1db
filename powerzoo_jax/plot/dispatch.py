"""Dispatch of the sources that serve the load, hour by hour."""

from __future__ import annotations

from typing import Any

import numpy as np

from powerzoo_jax.base import Step
from powerzoo_jax.envs import Sim
from powerzoo_jax.plot.layout import COLOURS, HATCHES, LIMIT, new_figure

SHOWN = 7  # sources with a colour of their own; the smaller ones are added up

KINDS = {
    "storage": "storage",
    "renewable": "PV and wind",
    "flexload": "flexible load",
    "vehicle": "vehicles",
    "datacenter": "data centre",
    "thermal": "diesel",
}


def dispatch_of(sim: Sim, steps: Step) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Power of every source (T,) [MW] by name, + = into the grid, and the load (T,) [MW] that they serve together.

    On a feeder the load includes the losses; on a transmission network unserved load counts as a source, and output
    that nobody takes as a sink.

    steps:  one recorded episode, Step with leading axis T
    Raises ValueError for a batch of episodes.
    """
    if np.ndim(steps.reward) != 2:
        raise ValueError(f"expected rewards (T, A) of one lane, got {np.shape(steps.reward)}. Pick one lane.")
    info = steps.info
    if hasattr(info, "p_dg_mw"):
        names = {"sun": "p_pv_used_mw", "diesel": "p_dg_mw", "storage": "p_batt_mw", "not served": "power_deficit_mw"}
        return {name: _series(getattr(info, field)) for name, field in names.items()}, _series(info.p_load_mw)
    if hasattr(info, "unit_power_mw"):
        units = _largest(sim, _series(info.unit_power_mw))
        served = {"not served": _series(info.unserved_mw), "surplus": -_series(info.surplus_mw)}
        return units | served, _series(info.load_mw)
    power = _series(info.p_mw)
    sources = {"substation": _series(info.p_slack_mw)}
    for block in sim.env.layout.table.blocks:
        sources[KINDS.get(block.kind, block.kind)] = power[:, list(block.units)].sum(axis=1)
    return sources, np.sum(list(sources.values()), axis=0)


def _series(values: Any) -> np.ndarray:
    return np.asarray(values, np.float64)


def _largest(sim: Sim, power_mw: np.ndarray) -> dict[str, np.ndarray]:
    """Units (T, G) by name, those of little energy as one."""
    count = power_mw.shape[1]
    names = sim.spec.agents if len(sim.spec.agents) == count else tuple(f"unit_{k}" for k in range(count))
    order = np.argsort(-power_mw.sum(axis=0), kind="stable")
    shown = order if count <= SHOWN else order[: SHOWN - 1]
    found = {names[k]: power_mw[:, k] for k in shown}
    rest = np.setdiff1d(order, shown)
    return found | {f"{len(rest)} other units": power_mw[:, rest].sum(axis=1)} if len(rest) else found


def plot_dispatch(sim: Sim, steps: Step, title: str = "") -> Any:
    """Draw the sources of one episode stacked on each other, and the load as a line: a matplotlib Figure.

    What is taken out of the grid (charging, export) hangs below zero; sources that never gave anything are left out.

    steps:  one recorded episode, Step with leading axis T
    Raises ImportError without matplotlib (extra `viz`), ValueError for a batch of episodes.

    Example:
        from powerzoo_jax.base.tree import take
        from powerzoo_jax.oracle import idle_act
        from powerzoo_jax.plot import record_episode
        from powerzoo_jax.tasks.score import all_starts
        first_day = take(all_starts(sim), 0)
        steps = record_episode(sim, idle_act(sim), key, first_day)
        plot_dispatch(sim, steps).savefig("dispatch.png")
    """
    sources, load = dispatch_of(sim, steps)
    floor = 1e-6 * max(float(np.abs(load).max()), 1e-9)  # a source of roundings of float32 is not drawn
    sources = {name: power for name, power in sources.items() if np.abs(power).max() > floor}
    figure = new_figure(8.0, 4.5)
    axes = figure.subplots()
    hours = sim.spec.dt_hours * np.arange(len(load) + 1)
    looks = {name: (COLOURS[k % len(COLOURS)], HATCHES[k % len(HATCHES)]) for k, name in enumerate(sources)}
    for part in (np.maximum, np.minimum):
        rows = {name: part(power, 0) for name, power in sources.items()}
        drawn = {name: row for name, row in rows.items() if np.any(row)}
        if drawn:
            areas = axes.stackplot(hours, [np.append(row, row[-1]) for row in drawn.values()], step="post")
            for area, name in zip(areas, drawn, strict=True):
                colour, hatch = looks[name]
                area.set(facecolor=colour, hatch=hatch, edgecolor="white", linewidth=0.0, label=name)
    axes.step(hours, np.append(load, load[-1]), where="post", color=LIMIT, linewidth=1.8, label="load")
    axes.axhline(0, color=LIMIT, linewidth=0.6)
    shown = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))  # one entry for both signs
    figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=4, fontsize="small", frameon=False)
    axes.set(xlabel="time since the start of the episode [h]", ylabel="power [MW]", title=title)
    axes.set_xlim(0, hours[-1])
    return figure
