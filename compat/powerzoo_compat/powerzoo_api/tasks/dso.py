"""Functions of the distribution operator's task: its environment, rollouts of three rules, and their metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import gymnasium
import numpy as np

from powerzoo_compat._replay import ShowsEpisode
from powerzoo_compat.powerzoo_api.tasks.factory import make_task_env
from powerzoo_jax.base.errors import unknown
from powerzoo_jax.families.feeder.tasks.dso import ZONES
from powerzoo_jax.tasks import get_spec

TASK = "dso"
_KEYWORDS = dict(get_spec(TASK).overrides)
DSO_FLEXLOAD_CONFIG = {
    name: {"bus_id": bus, "curtail_cap_mw": curtail, "shift_cap_mw": shift}
    for name, bus, curtail, shift in _KEYWORDS["flexload_config"]
}
DSO_FEEDER_BUS_MAP = dict(zip("ABC", map(list, ZONES), strict=True))
DSO_V_MIN, DSO_V_MAX = _KEYWORDS["v_min"], _KEYWORDS["v_max"]
SAMPLING = ("random", "cycle")
V_TOL = 1e-6  # [pu] in a step, below which rounding breaks no band
CURTAIL_SLOPE, DEFER_SLOPE, DEFER_MOST = 0.04, 0.06, 0.5  # [pu] below v_low for all of it; share of the cap

Rollout = dict[str, list[float]]
Rule = Callable[[np.ndarray, dict[str, Any]], Any]


class ChosenStarts(ShowsEpisode, gymnasium.Wrapper[Any, Any, Any, Any]):
    """Episodes that begin on chosen days, in turn or drawn; a day in the options of `reset` goes before.

    starts:    ISO dates or numbers of start days
    sampling:  "cycle" in their order, "random" by a generator of its own
    """

    _runs_on = "env"
    _moving: ClassVar[tuple[str, ...]] = ("_rng", "_next")

    def __init__(self, env: Any, starts: Sequence[str | int], sampling: str, seed: int | None) -> None:
        super().__init__(env)
        if sampling not in SAMPLING:
            raise ValueError(unknown("reset_sampling", sampling, SAMPLING))
        if not len(starts):
            raise ValueError("reset_episode_starts is empty. Give ISO dates or numbers of start days, or None for all.")
        self._starts, self._sampling = tuple(starts), sampling
        self._rng, self._next = np.random.default_rng(seed), 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        options = dict(options or {})
        if not {"day", "day_id"} & set(options):
            count = len(self._starts)
            row = self._next % count if self._sampling == "cycle" else int(self._rng.integers(count))
            self._next += 1
            start = self._starts[row]
            options["day" if isinstance(start, str) else "day_id"] = start
        return self.env.reset(seed=seed, options=options)


def make_dso_env(
    split: str = "train",
    *,
    flexload_config: Mapping[str, Mapping[str, float]] | Sequence[Sequence[Any]] | None = None,
    episode_start: str | int | None = None,
    reset_episode_starts: Sequence[str | int] | None = None,
    reset_sampling: str = "random",
    reset_seed: int | None = None,
    **kwargs: Any,
) -> Any:
    """Build the environment of `make_task_env("dso")`, with a choice of the days that episodes begin on.

    flexload_config:       id -> bus_id, curtail_cap_mw, shift_cap_mw; or such rows (None: the task's six)
    episode_start:         the one day of every episode, ISO date or number
    reset_episode_starts:  days to choose from (None: all of the split)
    reset_sampling:        "random" or "cycle";  reset_seed: of the generator that draws among chosen days
    kwargs:                keywords of the task

    Raises ValueError for an empty list of days, a day outside the split or an unknown sampling, and what
    `make_task_env` raises.
    """
    if isinstance(flexload_config, Mapping):
        fields = ("bus_id", "curtail_cap_mw", "shift_cap_mw")
        flexload_config = [(name, *(row[field] for field in fields)) for name, row in flexload_config.items()]
    if flexload_config is not None:
        kwargs["flexload_config"] = tuple(map(tuple, flexload_config))
    env = make_task_env(TASK, split=split, **kwargs)
    if episode_start is not None and reset_episode_starts is not None:
        raise ValueError("episode_start and reset_episode_starts name the same thing. Give one of them.")
    days = env.unwrapped._host.start_days
    starts = [episode_start] if episode_start is not None else reset_episode_starts
    for start in starts or ():
        if start not in days and start not in range(len(days)):
            valid = f"{days[0]} to {days[-1]}, or 0 to {len(days) - 1}"
            raise ValueError(f"{start!r} is no start day of split {split!r}: {valid}.")
    if starts is None and reset_sampling == "random" and reset_seed is None:
        return env
    return ChosenStarts(env, range(len(days)) if starts is None else starts, reset_sampling, reset_seed)


def make_dso_1flex_env(bus_id: int = 18, curtail_cap_mw: float = 0.1, shift_cap_mw: float = 0.1, **kwargs: Any) -> Any:
    """Environment of the task with one flexible load."""
    return make_dso_env(flexload_config=[("fl_1", bus_id, curtail_cap_mw, shift_cap_mw)], **kwargs)


def rollout_dso(env: Any, policy_fn: Rule, n_steps: int = 48, seed: int = 0) -> Rollout:
    """Play `policy_fn(obs, info)` for at most `n_steps` of an episode.

    Returns lists by step: rewards, losses [MW], violations (1 where a limit is broken), voltage_violations [pu],
    thermal_violations [MVA], curtailed, shifted, shift_in [MW] and imports [MW] at the head of the feeder.
    """
    obs, info = env.reset(seed=seed)
    found: Rollout = {}
    for _ in range(n_steps):
        obs, reward, terminated, truncated, info = env.step(policy_fn(obs, info))
        volt, heat = info["cost_voltage_violation"], info["cost_thermal_overload"]
        units = env.unwrapped._host.state.flexload
        step = {"rewards": reward, "losses": info["p_loss_MW"], "violations": float(volt > V_TOL or heat > 0)}
        step |= {"voltage_violations": volt, "thermal_violations": heat, "imports": info["p_slack_MW"]}
        flexible = {"curtailed": units.curtail_mw, "shifted": units.shift_mw, "shift_in": units.return_mw}
        step |= {name: float(np.sum(value)) for name, value in flexible.items()}
        for name, value in step.items():
            found.setdefault(name, []).append(float(value))
        if terminated or truncated:
            break
    return found


def dso_no_control_rollout(env: Any, n_steps: int = 48, seed: int = 0) -> Rollout:
    """Rollout that leaves all flexible load alone."""
    idle = np.zeros_like(env.action_space.low)
    return rollout_dso(env, lambda obs, info: idle, n_steps, seed)


def dso_tou_heuristic_rollout(
    env: Any,
    n_steps: int = 48,
    seed: int = 0,
    *,
    peak_start: float = 16,
    peak_end: float = 21,
    curtail: float = 0.8,
    defer: float = 0.5,
) -> Rollout:
    """Rollout that sheds and defers fixed shares of the caps in the clock hours [peak_start, peak_end)."""
    idle = np.zeros_like(env.action_space.low)
    active = np.tile(np.asarray([curtail, defer], idle.dtype), idle.size // 2)

    def rule(obs: np.ndarray, info: dict[str, Any]) -> np.ndarray:
        # info tells of the step before; at reset none has been executed
        ahead = info["step_within_day"] + (info["episode_step"] > 0)
        hour = ahead * info["delta_t_minutes"] / 60 % 24
        return active if peak_start <= hour < peak_end else idle

    return rollout_dso(env, rule, n_steps, seed)


def dso_droop_heuristic_rollout(env: Any, n_steps: int = 48, seed: int = 0, *, v_low: float = 0.96) -> Rollout:
    """Rollout that sheds and defers in proportion to the depth of each flexible load's bus voltage below `v_low`."""

    def rule(obs: np.ndarray, info: dict[str, Any]) -> np.ndarray:
        depth = v_low - np.asarray(info["local_voltage"])
        shares = np.clip(depth / CURTAIL_SLOPE, 0, 1), np.clip(depth / DEFER_SLOPE, 0, DEFER_MOST)
        return np.stack(shares, axis=1).reshape(-1).astype(env.action_space.dtype)

    return rollout_dso(env, rule, n_steps, seed)


def compute_dso_metrics(r: Rollout, baseline: Rollout | None = None, dt_hours: float = 0.5) -> dict[str, float]:
    """Figures of a rollout; the two in percent compare it with the baseline and are 0 without one.

    served_flex_ratio: energy taken back per energy deferred, 0 where none was.
    """
    total = {name: float(np.sum(values)) for name, values in r.items()}
    base = baseline or r
    lost, peak = float(np.sum(base["losses"])), max(base["imports"])
    return {
        "total_reward": total["rewards"],
        "total_loss_mwh": total["losses"] * dt_hours,
        "mean_loss_mw": float(np.mean(r["losses"])),
        "total_voltage_violations": total["voltage_violations"],
        "total_voltage_violations_count": float(np.sum(np.asarray(r["voltage_violations"]) > V_TOL)),
        "total_thermal_overloads": total["thermal_violations"],
        "total_curtailed_mwh": total["curtailed"] * dt_hours,
        "total_shifted_mwh": total["shifted"] * dt_hours,
        "total_shift_in_mwh": total["shift_in"] * dt_hours,
        "served_flex_ratio": total["shift_in"] / total["shifted"] if total["shifted"] else 0.0,
        "network_loss_reduction_pct": 100 * (1 - total["losses"] / lost) if lost else 0.0,
        "peak_shaving_pct": 100 * (1 - max(r["imports"]) / peak) if peak else 0.0,
    }
