"""Pictures of episodes: observations, actions and costs of a policy, and the dispatch that served the load."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jax import Array

from powerzoo_jax.base import Purpose, Step, purpose_key
from powerzoo_jax.base.tree import stack_leaves
from powerzoo_jax.envs import Sim
from powerzoo_jax.envs.constraint import UNITS
from powerzoo_jax.envs.episode import Act, first_carry
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.envs.trace.names import store_limits
from powerzoo_jax.plot.layout import LIMIT, LIMIT_LINE, look, new_figure

Draws = Callable[[Any, np.ndarray, Sim, Step, dict[str, Any]], None]


def record_episode(sim: Sim, act: Act, key: Array, drawn: Draw, carry: Any = ()) -> Step:
    """Play one episode and keep every step: Step with a leading time axis (T,).

    act:    (carry, obs (A, O), PRNG key) -> (carry, action (A, U) in [-1, 1])
    drawn:  which day, as `tasks.score.all_starts` lists them

    The loop runs on the host, so that one compiled step serves every policy.
    """
    state, obs = _begin(sim, key, drawn)
    carry, steps = first_carry(act, carry), []
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


def plot_episode(sim: Sim, episodes: Mapping[str, Step], title: str = "") -> Any:
    """Draw recorded episodes of one day, one line a policy: a matplotlib Figure.

    Panels, as far as the task has them: price, power, state of charge, lowest voltage; and since the start of the day
    the reward and every constrained cost beside its budget.

    episodes:  by name, each from `record_episode` or a `rollout` of one lane: Step with leading axis T
    Raises ImportError without matplotlib (extra `viz`), ValueError without an episode or for a batch of them.

    Example:
        from powerzoo_jax.base.tree import take
        from powerzoo_jax.oracle import idle_act
        from powerzoo_jax.plot import save_figure
        from powerzoo_jax.tasks.score import all_starts
        first_day = take(all_starts(sim), 0)
        steps = record_episode(sim, idle_act(sim), key, first_day)
        save_figure(plot_episode(sim, {"idle": steps}), "day.png")
    """
    first = _checked(episodes)
    panels = _panels(sim, first)
    figure = new_figure(8.0, 1.0 + 1.9 * len(panels))
    column = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for k, (name, steps) in enumerate(episodes.items()):
        hours = sim.spec.dt_hours * np.arange(len(np.asarray(steps.reward)) + 1)
        for axes, (_, draw) in zip(column, panels, strict=True):
            draw(axes, hours, sim, steps, {**look(k), "label": name})
    for axes, (label, _) in zip(column, panels, strict=True):
        axes.set_ylabel(label, fontsize="small")
        axes.grid(alpha=0.3)
    _draw_limits(dict(zip((label for label, _ in panels), column, strict=True)), sim)
    figure.legend(*column[-1].get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False)
    column[-1].set_xlabel("time since the start of the episode [h]")
    column[-1].set_xlim(0, sim.spec.dt_hours * len(np.asarray(first.reward)))
    column[0].set_title(title, fontsize="medium")  # a title of the figure would lie on the legend
    return figure


PRICE, POWER = "price\n[$/MWh]", "power, + = supply\n[MW]"
CHARGE, VOLTAGE, REWARD = "state of charge\n[-]", "lowest voltage\n[pu]", "reward so far\n"


def _checked(episodes: Mapping[str, Step]) -> Step:
    if not episodes:
        raise ValueError("no episode was given. Record one with `record_episode`.")
    for name, steps in episodes.items():
        if np.ndim(steps.reward) != 2:
            raise ValueError(
                f"episode {name!r}: expected rewards (T, A) of one lane, got {np.shape(steps.reward)}. Pick one lane."
            )
    return next(iter(episodes.values()))


def _panels(sim: Sim, steps: Step) -> list[tuple[str, Draws]]:
    """Labels and drawing functions of the quantities that the family of the task reports."""
    info = steps.info
    price = next((name for name in ("price_per_mwh", "mean_price") if hasattr(info, name)), None)
    panels: list[tuple[str, Draws]] = []
    if price is not None:
        panels.append((PRICE, _held(lambda sim, steps: np.asarray(getattr(steps.info, price)))))
    panels.append((POWER, _held(_power)))
    if np.size(getattr(info, "soc", np.zeros(0))):
        panels.append((CHARGE, _draw_charge))
    if hasattr(info, "v_min_pu"):
        panels.append((VOLTAGE, _held(lambda sim, steps: np.asarray(steps.info.v_min_pu))))
    unit = "[$]" if set(sim.spec.term_weights) == {1.0} else "[-]"
    panels.append((REWARD + unit, _summed(lambda steps: np.asarray(steps.reward).mean(axis=1))))
    return panels + [(_cost_label(name), _summed(_channel(k))) for k, name in _constrained(sim)]


def _constrained(sim: Sim) -> list[tuple[int, str]]:
    """Cost channels with a budget; all of them where none has one."""
    channels = list(enumerate(sim.spec.cost_names))
    return [(k, name) for k, name in channels if np.isfinite(sim.spec.cost_budget[k])] or channels


def _cost_label(name: str) -> str:
    return f"{name.replace('_', ' ')}\nso far [{UNITS.get(name, '-')}]"


def _channel(k: int) -> Callable[[Step], np.ndarray]:
    return lambda steps: np.asarray(steps.cost)[:, k]


def _power(sim: Sim, steps: Step) -> np.ndarray:
    """Power (T,) of everything the policy commands: devices, units, or battery and diesel of an island."""
    info = steps.info
    if hasattr(info, "p_batt_mw"):
        return np.asarray(info.p_batt_mw) + np.asarray(info.p_dg_mw)
    return np.asarray(info.p_mw if hasattr(info, "p_mw") else info.unit_power_mw).sum(axis=1)


def _held(values: Callable[[Sim, Step], np.ndarray]) -> Draws:
    """Drawing function of a quantity that is constant over a step."""

    def draw(axes: Any, hours: np.ndarray, sim: Sim, steps: Step, shown: dict[str, Any]) -> None:
        y = values(sim, steps)
        axes.step(hours, np.append(y, y[-1]), where="post", **shown)

    return draw


def _summed(values: Callable[[Step], np.ndarray]) -> Draws:
    """Drawing function of the running sum of a quantity at the ends of the steps."""

    def draw(axes: Any, hours: np.ndarray, sim: Sim, steps: Step, shown: dict[str, Any]) -> None:
        axes.plot(hours, np.append(0.0, np.cumsum(values(steps), dtype=float)), **shown)

    return draw


def _draw_charge(axes: Any, hours: np.ndarray, sim: Sim, steps: Step, shown: dict[str, Any]) -> None:
    """State of charge at the ends of the steps, mean over the stores."""
    after = np.asarray(steps.info.soc, float).reshape(len(hours) - 1, -1)
    before = np.asarray(steps.state.soc_start, float)[0]
    axes.plot(hours, np.append(before.mean(), after.mean(axis=1)), **shown)


def _draw_limits(axes: Mapping[str, Any], sim: Sim) -> None:
    """Voltage limits and bounds of the charge, always within the axes, and budgets of the costs."""
    grid = getattr(sim.params, "grid", None)
    if VOLTAGE in axes and grid is not None:
        lowest = float(np.max(np.where(np.asarray(grid.bus_mask), np.asarray(grid.v_min), -np.inf)))
        _mark(axes[VOLTAGE], lowest, "limit")
    if CHARGE in axes:
        for values, word in zip(store_limits(sim), ("lowest", "highest"), strict=True):
            if values:
                _mark(axes[CHARGE], float(np.mean(values)), word)
    for k, name in _constrained(sim):
        if np.isfinite(sim.spec.cost_budget[k]):
            _mark(axes[_cost_label(name)], sim.spec.cost_budget[k], "budget")


def _mark(axes: Any, value: float, word: str) -> None:
    axes.axhline(value, **LIMIT_LINE)
    axes.annotate(word, (0.0, value), xytext=(4, 3), textcoords="offset points", fontsize="small", color=LIMIT)
