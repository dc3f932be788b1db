"""One episode as a picture: price, storage power, state of charge and lowest voltage over the day."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import Array

from powerzoo_jax.base import Purpose, Step, purpose_key
from powerzoo_jax.base.tree import stack_leaves
from powerzoo_jax.envs import Sim
from powerzoo_jax.envs.draw import Draw
from powerzoo_jax.envs.episode import Act

# Okabe and Ito's palette: told apart with any colour vision; line styles repeat the distinction in grey print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")
STYLES = ("-", "--", "-.", ":", (0, (5, 1)))
LIMIT = "#000000"
LABELS = ("price [$/MWh]", "power, + = discharge [MW]", "state of charge [-]", "lowest voltage [pu]")


def record_episode(sim: Sim, act: Act, key: Array, drawn: Draw, carry: Any = ()) -> Step:
    """Play one episode and keep every step: Step with a leading time axis.

    The loop runs on the host, so that one compiled step serves every policy.
    """
    state, obs = _begin(sim, key, drawn)
    steps = []
    for policy_key in jax.random.split(purpose_key(key, Purpose.POLICY), sim.spec.horizon):
        carry, action = act(carry, obs, policy_key)
        out = _step(sim, state, action)
        state, obs = out.state, out.obs
        steps.append(out)
    recorded: Step = stack_leaves(steps)
    return recorded


@jax.jit
def _begin(sim: Sim, key: Array, drawn: Draw) -> tuple[Any, Array]:
    state, obs = sim.env.begin(key, drawn, sim.params)
    return state, obs


@jax.jit
def _step(sim: Sim, state: Any, action: Array) -> Step:
    return sim.step(state, action)


def plot_episode(sim: Sim, episodes: Mapping[str, Step], path: str | Path, title: str = "") -> Path:
    """Draw recorded episodes of one day, one line a policy, into an image file; returns its path.

    Raises ImportError, naming the extra, where matplotlib is not installed.

    Example:
        steps = record_episode(sim, idle_act(sim), jax.random.key(0), drawn)
        plot_episode(sim, {"idle": steps}, "day.png")
    """
    figure = _figure(figsize=(8.0, 9.0), layout="constrained")
    axes = figure.subplots(4, 1, sharex=True)
    hours = sim.spec.dt_hours * np.arange(sim.spec.horizon + 1)
    first = next(iter(episodes.values())).info
    price = np.asarray(first.price_per_mwh)
    axes[0].step(hours, np.append(price, price[-1]), where="post", color=LIMIT)
    for (name, steps), colour, style in zip(episodes.items(), COLOURS, STYLES, strict=False):
        look = {"label": name, "color": colour, "linestyle": style, "linewidth": 1.6}
        _draw_policy(axes, hours, sim, steps, look)
    _draw_limits(axes, sim)
    for axis, label in zip(axes, LABELS, strict=True):
        axis.set_ylabel(label)
        axis.grid(alpha=0.3)
    axes[1].legend(loc="upper center", ncols=len(episodes), fontsize="small", bbox_to_anchor=(0.5, 1.2), frameon=False)
    axes[3].set_xlabel("time of day, local standard time [h]")
    axes[3].set_xlim(0, hours[-1])
    axes[3].set_xticks(np.arange(0, hours[-1] + 1, 3))
    figure.suptitle(title)
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=120)
    return target


def _draw_policy(axes: Any, hours: np.ndarray, sim: Sim, steps: Step, look: dict[str, Any]) -> None:
    """Power and voltage hold over a step; the state of charge is known at its ends."""
    info = steps.info
    power, voltage = np.asarray(info.p_mw).sum(axis=1), np.asarray(info.v_min_pu)
    start, after = np.asarray(steps.state.soc_start)[:1], np.asarray(info.soc)
    charge = np.concatenate([start, after]).mean(axis=1)
    axes[1].step(hours, np.append(power, power[-1]), where="post", **look)
    axes[2].plot(hours, charge, **look)
    axes[3].step(hours, np.append(voltage, voltage[-1]), where="post", **look)


def _draw_limits(axes: Any, sim: Sim) -> None:
    """Limits of power, state of charge and voltage, the lower voltage limit always in sight."""
    fleet, grid = sim.params.storage, sim.params.grid
    rating = float(np.sum(np.asarray(fleet.power_mw)))
    lowest = float(np.max(np.where(np.asarray(grid.bus_mask), np.asarray(grid.v_min), -np.inf)))
    style = {"color": LIMIT, "linestyle": (0, (1, 2)), "linewidth": 1.0}
    for axis, values in (
        (axes[1], (-rating, rating)),
        (axes[2], (float(np.asarray(fleet.soc_min)[0]), float(np.asarray(fleet.soc_max)[0]))),
        (axes[3], (lowest,)),
    ):
        for value in values:
            axis.axhline(value, **style)
    axes[3].annotate("limit", (0.0, lowest), xytext=(4, 3), textcoords="offset points", fontsize="small")


def _figure(**settings: Any) -> Any:
    """A figure without pyplot: no window, no global state, no change of a notebook's backend."""
    try:
        from matplotlib.figure import Figure
    except ImportError as err:
        raise ImportError("plots need matplotlib: pip install 'powerzoo-jax[viz]'") from err
    return Figure(**settings)
