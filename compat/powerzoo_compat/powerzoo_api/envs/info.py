"""Info dicts of the contract: plain Python values under the same keys at reset and at every step."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from powerzoo_compat._host import Host, Reading
from powerzoo_compat.powerzoo_api.envs.base import finite, fresh
from powerzoo_compat.powerzoo_api.envs.reports import Episode, report_of
from powerzoo_jax.envs.constraint import UNITS
from powerzoo_jax.envs.family import family_of
from powerzoo_jax.powerflow import Status

SUMMARY = "episode_summary"  # "episode" belongs to Gymnasium's RecordEpisodeStatistics, which asserts that it is free
OF_EVERY_TASK = ("thermal_overload", "voltage_violation", "resource")  # 0 where a task has no such channel
NOT_A_LIMIT = "resource"  # a command that a device could not follow never reaches the grid
OUTAGE = "unserved_energy"
# is_safe allows a channel what the solvers' rounding can make of zero: power grows with the base power of the case
TOLERANCE = 1e-6  # every unit other than power
POWER_TOLERANCE = 1e-3  # [MW, MVA] at least
POWER_TOLERANCE_OF_BASE = {4: 2e-4, 8: 1e-5}  # of the base power, by bytes of the dtype
# as plain integers: an enum's names and comparisons are slow in every step
CONVERGED, OUT_OF_STEPS = int(Status.CONVERGED), int(Status.OUT_OF_STEPS)
REFUSED = (int(Status.SINGULAR), int(Status.BAD_INPUT))
PEAK_HOURS = range(9, 21)  # of the contract's `is_peak`
MINUTES_PER_HOUR = 60


class InfoBuilder:
    """Builder of the info dicts of one task.

    names, selected:  all cost channels, and those with a budget
    thresholds:       budgets of the selected channels, per episode
    reward_scale:     reward over money
    """

    def __init__(self, host: Host) -> None:
        spec, params = host.sim.spec, host.sim.params
        self.host = host
        self.report = report_of(host)
        self.absent = {f"cost_{name}": 0.0 for name in OF_EVERY_TASK if name not in spec.cost_names}
        self.individual = family_of(host.sim).rivals or getattr(host.sim.env, "pooling", None) == "individual"
        self.names = tuple(spec.cost_names)
        self.keys = tuple(f"cost_{name}" for name in self.names)
        self.paid = None if OUTAGE not in spec.term_names else [k for k, n in enumerate(spec.term_names) if n != OUTAGE]
        budgets = zip(spec.cost_names, spec.cost_budget, strict=True)
        self.thresholds = {name: float(budget) for name, budget in budgets if math.isfinite(budget)}
        self.selected = tuple(self.thresholds)
        self.reward_scale = float(spec.term_weights[0])
        base_mva, width = float(getattr(params.grid, "base_mva", 1.0)), host.sim.spaces()[0].low.dtype.itemsize
        power = max(POWER_TOLERANCE, POWER_TOLERANCE_OF_BASE[width] * base_mva)
        tolerances = [power if UNITS[n] in ("MW", "MVA") else TOLERANCE for n in self.names]
        self.allowed = [math.inf if n == NOT_A_LIMIT else x for n, x in zip(self.names, tolerances, strict=True)]

    def opening(self, reading: Reading, start_row: int) -> tuple[Episode, dict[str, Any]]:
        """Start the record of an episode: (record, info of the state it starts from)."""
        terms = dict.fromkeys(self.host.sim.spec.term_names, 0.0)
        day = self.host.day_id(start_row)
        episode = Episode(start_row, day, [0.0] * len(self.names), np.zeros(self.host.sim.env.dims.unit), dict(terms))
        return episode, self._build(episode, reading, terms, reading.cost.tolist(), 0.0)

    def step(self, episode: Episode, reading: Reading) -> dict[str, Any]:
        """Record one executed step: its info."""
        spec = self.host.sim.spec
        # agents that share a reward share its terms; elsewhere the team's money is their sum
        values = self._team(reading.info.terms)
        terms = dict(zip(spec.term_names, values, strict=True))
        profit_usd = sum(values if self.paid is None else [values[k] for k in self.paid])
        episode.steps += 1
        reward = reading.reward
        episode.reward += reward.item() if len(reward) == 1 else float(reward.mean())
        costs = reading.cost.tolist()
        episode.costs = list(map(operator.add, episode.costs, costs))
        episode.profit_usd += profit_usd
        episode.terms = dict(zip(spec.term_names, map(operator.add, episode.terms.values(), values), strict=True))
        if hasattr(reading.info, "p_mw"):
            episode.throughput_mwh += np.abs(reading.info.p_mw) * spec.dt_hours
        return self._build(episode, reading, terms, costs, profit_usd)

    def _team(self, terms: np.ndarray) -> list[float]:
        """Reward terms (A, K) of all agents together."""
        if self.individual:
            total: list[float] = terms.sum(axis=0).tolist()
            return total
        # a sum of one number has no negative zero
        return [x + 0.0 for x in terms[0].tolist()]

    def of_agent(self, info: dict[str, Any], reading: Reading, agent: int) -> dict[str, Any]:
        """Info of an agent: a copy of the shared info, its own reward terms before weighting, its own fields."""
        names = self.host.sim.spec.term_names
        own = {"reward_terms": dict(zip(names, reading.info.terms[agent].tolist(), strict=True))}
        return {**copied(info), **own, **self.report.of_agent(reading.info, agent)}

    def _build(
        self, episode: Episode, reading: Reading, terms: dict[str, float], costs: list[float], profit_usd: float
    ) -> dict[str, Any]:
        safety = self._safety(reading.info, costs)
        if (safety["pf_converged"] and not safety["voltage_collapse"]) or not episode.electrical:
            # after a failed solve the flows of the last valid state stand
            episode.electrical = self.report.electrical(reading.info)
            episode.v_min = min(episode.v_min, episode.electrical.get("v_min_actual", math.inf))
        return {
            **safety,
            **self.costs(costs),
            **episode.electrical,
            "reward_usd": sum(terms.values()),
            "reward_scale": self.reward_scale,
            "reward_components": terms,
            "profit_usd": profit_usd,
            **self._clock(episode),
            **self.report.devices(episode, reading),
            SUMMARY: self._summary(episode),
        }

    def _safety(self, info: Any, costs: list[float]) -> dict[str, Any]:
        status, within = int(info.pf_status), all(map(operator.le, costs, self.allowed))
        converged, collapsed = status == CONVERGED, bool(getattr(info, "collapsed", False))
        return {
            "is_safe": converged and not collapsed and within,
            "pf_converged": converged,
            "cost_exception": status in REFUSED,
            "is_diverged": status == OUT_OF_STEPS,
            "voltage_collapse": collapsed,
            "pf_residual": finite(info.pf_residual),
            "pf_iterations": int(getattr(info, "pf_iterations", 0)),
        }

    def costs(self, values: list[float]) -> dict[str, Any]:
        """Entries of the cost channels and of their sums; what every task reports is 0 where this one lacks it."""
        by_name = dict(zip(self.names, values, strict=True))
        chosen = {name: by_name[name] for name in self.selected}
        total = float(sum(chosen.values()))
        return {
            "constraint_names": self.names,
            "constraint_costs": fresh(values),
            **dict(zip(self.keys, values, strict=True)),
            **self.absent,
            "cost_sum": sum(values),
            "selected_constraint_names": self.selected,
            "selected_constraint_costs": fresh(list(chosen.values())),
            "selected_cost_sum": total,
            "cost": total,
            "costs": chosen,
        }

    def _clock(self, episode: Episode) -> dict[str, Any]:
        host, executed = self.host, max(episode.steps - 1, 0)
        within = (episode.start_row + executed) % host.steps_per_day
        hour = within * host.minutes // MINUTES_PER_HOUR
        return {
            "episode_step": episode.steps,
            "episode_day": host.date_at(episode.start_row, executed),
            "step_within_day": within,
            "start_day_id": episode.day_id,
            "delta_t_minutes": host.minutes,
            "split": host.sim.spec.split,
            "hour": hour,
            "is_peak": hour in PEAK_HOURS,
        }

    def _summary(self, episode: Episode) -> dict[str, Any]:
        """Totals of the episode so far, of the whole of it in its last step."""
        return {
            "r": episode.reward,
            "l": episode.steps,
            "costs": dict(zip(self.names, episode.costs, strict=True)),
            "metrics": self.report.metrics(episode),
        }


def copied(value: Any) -> Any:
    """Deep copy of an info, with dicts and arrays of its own, in a tenth of the time of `copy.deepcopy`."""
    if isinstance(value, dict):
        return {key: copied(inner) for key, inner in value.items()}
    return value.copy() if isinstance(value, np.ndarray) else value
