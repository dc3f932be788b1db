"""The info dict of the contract: every key, as a plain Python value, at reset and at every step."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from powerzoo_compat._host import Host, Reading
from powerzoo_compat.powerzoo_api.base_env import fresh
from powerzoo_jax.envs.constraint import UNITS
from powerzoo_jax.powerflow import Status

NOT_A_LIMIT = "resource"  # a command that a device could not follow never reaches the grid
OUTAGE = "unserved_energy"
TOLERANCE = 1e-6  # every unit other than power
POWER_TOLERANCE = 1e-3  # [MW, MVA] at least
POWER_TOLERANCE_OF_BASE = {4: 2e-4, 8: 1e-5}  # of the base power, by bytes of the dtype
PEAK_HOURS = range(9, 21)
MINUTES_PER_HOUR = 60


@dataclass
class Episode:
    """What one episode has accumulated; a reset replaces it whole.

    start_row:       first row of the load table
    steps:           steps executed
    reward:          sum of rewards
    costs:           (C,) sums of the cost channels
    profit_usd:      money earned, without outages
    throughput_mwh:  (G,) energy through each device
    v_min:           lowest solved voltage [pu]
    electrical:      flows, losses and voltages of the last valid solve
    ended:           the last step has been reported
    """

    start_row: int
    costs: np.ndarray
    throughput_mwh: np.ndarray
    steps: int = 0
    reward: float = 0.0
    profit_usd: float = 0.0
    v_min: float = math.inf
    electrical: dict[str, float] = field(default_factory=dict)
    ended: bool = False


class InfoBuilder:
    """Builds the info dicts of one task.

    names, selected:  all cost channels, and those with a budget
    thresholds:       budgets of the selected channels, per episode
    reward_scale:     reward over money
    """

    def __init__(self, host: Host) -> None:
        spec = host.sim.spec
        self.host = host
        self.names = spec.cost_names
        budgets = zip(spec.cost_names, spec.cost_budget, strict=True)
        self.thresholds = {name: float(budget) for name, budget in budgets if math.isfinite(budget)}
        self.selected = tuple(self.thresholds)
        self.reward_scale = float(spec.term_weights[0])
        base_mva, width = float(host.sim.params.grid.base_mva), host.fleet.power_mw.dtype.itemsize
        power = max(POWER_TOLERANCE, POWER_TOLERANCE_OF_BASE[width] * base_mva)
        self.tolerances = np.array([power if UNITS[n] in ("MW", "MVA") else TOLERANCE for n in self.names])
        self.limits = np.array([n != NOT_A_LIMIT for n in self.names])
        fields = host.sim.env.fields.names
        self._room = [[fields.index(f"{d}_{side}") for side in ("p_chg_max", "p_dis_max")] for d in host.device_ids]

    def opening(self, reading: Reading, start_row: int) -> tuple[Episode, dict[str, Any]]:
        """Start the record of an episode: (record, info of the initial power flow)."""
        episode = Episode(start_row, np.zeros(len(self.names)), np.zeros(len(self.host.device_ids)))
        return episode, self._build(episode, reading, dict.fromkeys(self.host.sim.spec.term_names, 0.0))

    def step(self, episode: Episode, reading: Reading) -> dict[str, Any]:
        """Record one executed step: its info, with `episode` on the last one."""
        spec, dt_hours = self.host.sim.spec, self.host.sim.spec.dt_hours
        terms = {n: float(x) for n, x in zip(spec.term_names, reading.info.terms[0], strict=True)}
        episode.steps += 1
        episode.reward += float(reading.reward[0])
        episode.costs += reading.cost
        episode.profit_usd += _profit(terms)
        episode.throughput_mwh += np.abs(reading.info.p_mw) * dt_hours
        info = self._build(episode, reading, terms)
        if not episode.ended and (reading.info.terminated or reading.info.truncated):
            episode.ended = True
            info["episode"] = self._summary(episode)
        return info

    def _build(self, episode: Episode, reading: Reading, terms: dict[str, float]) -> dict[str, Any]:
        safety = self._safety(reading)
        if (safety["pf_converged"] and not safety["voltage_collapse"]) or not episode.electrical:
            # after a failed solve the flows of the last valid state stand
            episode.electrical = _electrical(reading.info)
            episode.v_min = min(episode.v_min, episode.electrical["v_min_actual"])
        return {
            **safety,
            **self._costs(reading.cost),
            **episode.electrical,
            **self._money(terms),
            **self._clock(episode),
            **self._devices(episode, reading, terms),
        }

    def _safety(self, reading: Reading) -> dict[str, Any]:
        info, status = reading.info, int(reading.info.pf_status)
        within = np.all((reading.cost <= self.tolerances) | ~self.limits)
        converged, collapsed = status == Status.CONVERGED, bool(info.collapsed)
        return {
            "is_safe": bool(converged and not collapsed and within),
            "pf_converged": converged,
            "cost_exception": status in (Status.SINGULAR, Status.BAD_INPUT),
            "is_diverged": status == Status.OUT_OF_STEPS,
            "voltage_collapse": collapsed,
            "pf_residual": _finite(info.pf_residual),
            "pf_iterations": int(info.pf_iterations),
        }

    def _costs(self, cost: np.ndarray) -> dict[str, Any]:
        by_name = {name: float(x) for name, x in zip(self.names, cost, strict=True)}
        chosen = {name: by_name[name] for name in self.selected}
        return {
            "constraint_names": tuple(self.names),
            "constraint_costs": fresh(cost),
            **{f"cost_{name}": x for name, x in by_name.items()},
            "cost_sum": sum(by_name.values()),
            "selected_constraint_names": self.selected,
            "selected_constraint_costs": fresh(list(chosen.values())),
            "selected_cost_sum": float(sum(chosen.values())),
            "cost": float(sum(chosen.values())),
            "costs": chosen,
        }

    def _money(self, terms: dict[str, float]) -> dict[str, Any]:
        return {
            "reward_usd": sum(terms.values()),
            "reward_scale": self.reward_scale,
            "reward_components": dict(terms),
            "profit_usd": _profit(terms),
        }

    def _clock(self, episode: Episode) -> dict[str, Any]:
        host, executed = self.host, max(episode.steps - 1, 0)
        within = (episode.start_row + executed) % host.steps_per_day
        hour = within * host.minutes // MINUTES_PER_HOUR
        return {
            "episode_step": episode.steps,
            "episode_day": host.date_at(episode.start_row, executed),
            "step_within_day": within,
            "start_day_id": host.day_id(episode.start_row),
            "delta_t_minutes": host.minutes,
            "split": host.sim.spec.split,
            "hour": hour,
            "is_peak": hour in PEAK_HOURS,
        }

    def _devices(self, episode: Episode, reading: Reading, terms: dict[str, float]) -> dict[str, Any]:
        info = reading.info
        short = np.abs(info.command_mw - info.p_mw)
        out = {
            "soc": _each(info.soc),
            "power": _each(info.p_mw),
            "requested_p_mw": _each(info.command_mw),
            "local_voltage": _each(info.local_v_pu),
            "price": float(info.price_per_mwh),
            "resources": {d: self._status(k, episode, reading) for k, d in enumerate(self.host.device_ids)},
        }
        return out | {f"{d}/cost_resource": float(short[k]) for k, d in enumerate(self.host.device_ids)}

    def _status(self, k: int, episode: Episode, reading: Reading) -> dict[str, Any]:
        """Status of one battery after the step."""
        info, fleet = reading.info, self.host.fleet
        charge, discharge = (float(reading.obs[0, i]) * float(fleet.power_mw[k]) for i in self._room[k])
        return {
            "current_p_mw": float(info.p_mw[k]),
            "current_q_mvar": 0.0,
            "time_step": episode.steps,
            "bus_id": int(self.host.settings.battery_bus_ids[k]),
            "local_v": float(info.local_v_pu[k]),
            "soc": float(info.soc[k]),
            "soc_percent": 100.0 * float(info.soc[k]),
            "energy_stored_mwh": float(info.soc[k] * fleet.capacity_mwh[k]),
            "p_max_feasible_mw": discharge,
            "p_min_feasible_mw": -charge,
            "throughput_mwh": float(episode.throughput_mwh[k]),
            "efficiency_rt": float(fleet.eta_charge[k] * fleet.eta_discharge[k]),
        }

    def _summary(self, episode: Episode) -> dict[str, Any]:
        """Totals of a finished episode; a cycle is one full charge and discharge of the capacity."""
        cycles = episode.throughput_mwh / (2 * self.host.fleet.capacity_mwh)
        return {
            "r": episode.reward,
            "l": episode.steps,
            "costs": {name: float(x) for name, x in zip(self.names, episode.costs, strict=True)},
            "metrics": {
                "profit_usd": episode.profit_usd,
                "cycles": float(cycles.mean()),
                "min_voltage_pu": episode.v_min,
            },
        }


def _electrical(info: Any) -> dict[str, float]:
    return {
        "p_slack_MW": _finite(info.p_slack_mw),
        "q_slack_MVAr": _finite(info.q_slack_mvar),
        "p_loss_MW": _finite(info.p_loss_mw),
        "v_min_actual": _finite(info.v_min_pu),
        "v_max_actual": _finite(info.v_max_pu),
    }


def _profit(terms: dict[str, float]) -> float:
    return sum(x for name, x in terms.items() if name != OUTAGE)


def _finite(x: Any) -> float:
    """A float that is never NaN or infinite: the largest number of its dtype stands for an overflow."""
    return float(np.nan_to_num(x, nan=np.finfo(np.asarray(x).dtype).max))


def _each(values: np.ndarray) -> float | np.ndarray:
    """A float for one device, else an array with one entry a device."""
    return float(values[0]) if len(values) == 1 else fresh(values)
