"""Info keys of the families of tasks: network, devices and metrics, beside the keys that every info has."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Protocol

import jax
import numpy as np

from powerzoo_compat._host import Host, Reading
from powerzoo_compat.powerzoo_api.envs.base import finite, fresh
from powerzoo_jax.base import Info
from powerzoo_jax.envs.family import family_of

NO_BUS = -1  # in the place of a bus that holds its voltage: a list of ids would change its length from step to step


@dataclass
class Episode:
    """Running totals of one episode; a reset replaces them all.

    start_row:       first row of the load table
    day_id:          position of the first day among those that an episode may start on
    steps:           steps executed
    reward:          sum of rewards
    costs:           sums of the cost channels
    profit_usd:      money earned, without outages
    terms:           $ (or the term's own unit) of each reward term
    throughput_mwh:  (G,) energy through each device of a feeder
    v_min:           lowest solved voltage [pu]
    electrical:      flows, losses and voltages of the last valid solve
    """

    start_row: int
    day_id: int
    costs: list[float]
    throughput_mwh: np.ndarray
    terms: dict[str, float]
    steps: int = 0
    reward: float = 0.0
    profit_usd: float = 0.0
    v_min: float = math.inf
    electrical: dict[str, float] = field(default_factory=dict)


class Report(Protocol):
    """Report of a family of tasks; every value is a plain Python one or a fresh array."""

    def electrical(self, info: Any) -> dict[str, float]:
        """Exchange with the grid above, losses, voltages."""
        ...

    def devices(self, episode: Episode, reading: Reading) -> dict[str, Any]:
        """Report of the devices for the executed step."""
        ...

    def of_agent(self, info: Any, agent: int) -> dict[str, Any]:
        """Fields of one agent."""
        ...

    def metrics(self, episode: Episode) -> dict[str, float]:
        """Figures of the episode so far."""
        ...


class FeederReport:
    """Report of feeders: voltages, losses, and power by unit."""

    def __init__(self, host: Host) -> None:
        self.host = host
        params, env = host.sim.params, host.sim.env
        # of NumPy: every entry of an array on the device that a report reads would be a program of its own
        self.storage = jax.tree.map(np.asarray, params.storage)
        self.flat_storage = not env.layout.per_device and env.layout.kinds == ("storage",)
        if self.flat_storage:
            ids, fields = host.surface.stores.ids, env.fields.names
            self.room = [[fields.index(f"{d}_{side}") for side in ("p_chg_max", "p_dis_max")] for d in ids]
            given = dict(host.sim.spec.overrides)
            buses = given.get("battery_bus_ids") or [bus for _, bus, _ in given["devices"]]
            # three-phase feeders name their buses
            self.buses = [bus if isinstance(bus, str) else int(bus) for bus in buses]

    def electrical(self, info: Any) -> dict[str, float]:
        return {
            "p_slack_MW": finite(info.p_slack_mw),
            "q_slack_MVAr": finite(info.q_slack_mvar),
            "p_loss_MW": finite(info.p_loss_mw),
            "v_min_actual": finite(info.v_min_pu),
            "v_max_actual": finite(info.v_max_pu),
        }

    def devices(self, episode: Episode, reading: Reading) -> dict[str, Any]:
        info = reading.info
        out: dict[str, Any] = {
            "power": _each(info.p_mw),
            "requested_p_mw": _each(info.command_mw),
            "local_voltage": _each(info.local_v_pu),
            "price": float(info.price_per_mwh),
        }
        if self.host.surface.stores.ids:
            out["soc"] = _each(info.soc)
        if info.renewable is not None:
            out["renewable_mw"] = float(info.renewable.p_mw.sum())
        if not self.flat_storage:
            return out
        short = np.abs(info.command_mw - info.p_mw)
        ids = self.host.surface.stores.ids
        out["resources"] = {d: self._status(k, episode, reading) for k, d in enumerate(ids)}
        return out | {f"{d}/cost_resource": float(short[k]) for k, d in enumerate(ids)}

    def _status(self, k: int, episode: Episode, reading: Reading) -> dict[str, Any]:
        """Status of one battery after the step."""
        info, fleet = reading.info, self.storage
        charge, discharge = (float(reading.obs[0, i]) * float(fleet.power_mw[k]) for i in self.room[k])
        return {
            "current_p_mw": float(info.p_mw[k]),
            "current_q_mvar": 0.0,
            "time_step": episode.steps,
            "bus_id": self.buses[k],
            "local_v": float(info.local_v_pu[k]),
            "soc": float(info.soc[k]),
            "soc_percent": 100.0 * float(info.soc[k]),
            "energy_stored_mwh": float(info.soc[k] * fleet.capacity_mwh[k]),
            "p_max_feasible_mw": discharge,
            "p_min_feasible_mw": -charge,
            "throughput_mwh": float(episode.throughput_mwh[k]),
            "efficiency_rt": float(fleet.eta_charge[k] * fleet.eta_discharge[k]),
        }

    def of_agent(self, info: Any, agent: int) -> dict[str, Any]:
        if not self.host.sim.env.layout.per_device:
            return {}
        own = {
            "power": float(info.p_mw[agent]),
            "requested_p_mw": float(info.command_mw[agent]),
            "local_voltage": float(info.local_v_pu[agent]),
        }
        name, ids = self.host.sim.spec.agents[agent], self.host.surface.stores.ids
        return own | ({"soc": float(info.soc[ids.index(name)])} if name in ids else {})

    def metrics(self, episode: Episode) -> dict[str, float]:
        out = {"profit_usd": episode.profit_usd, "min_voltage_pu": episode.v_min}
        if self.flat_storage:
            # a cycle is one full charge and discharge of the capacity
            out["cycles"] = float((episode.throughput_mwh / (2 * self.storage.capacity_mwh)).mean())
        return out


class FieldReport:
    """Report of families with a flat info: each of its fields is a key; no exchange with a grid above."""

    def __init__(self, host: Host, base: frozenset[str], units: tuple[str, ...] = ()) -> None:
        self.host, self.base, self.units = host, base, units
        self.names: tuple[str, ...] = ()
        self.numbers: tuple[str, ...] = ()  # those of the names that are plain numbers; the rest are arrays
        self.arrays: tuple[str, ...] = ()
        self.totals = tuple(f"total_{name}" for name in host.sim.spec.term_names)

    def electrical(self, info: Any) -> dict[str, float]:
        return {"p_slack_MW": 0.0, "q_slack_MVAr": 0.0}

    def devices(self, episode: Episode, reading: Reading) -> dict[str, Any]:
        found = vars(reading.info)
        if not self.names:
            self.names = tuple(name for name in found if name not in self.base)
            self.numbers = tuple(name for name in self.names if isinstance(found[name], int | float))
            self.arrays = tuple(name for name in self.names if name not in self.numbers)
        out = dict(zip(self.names, map(found.__getitem__, self.names), strict=True))
        # one look at all numbers: where none of them is infinite, neither is their sum
        known = math.isfinite(sum(map(found.__getitem__, self.numbers)))
        for name in self.arrays if known else self.names:
            out[name] = _plain(out[name])
        return out

    def of_agent(self, info: Any, agent: int) -> dict[str, Any]:
        per_agent = self.host.sim.env.dims.agent == self.host.sim.env.dims.unit > 1
        own = {name: _plain(getattr(info, name)[agent]) for name in self.units} if per_agent else {}
        return own | ({"action_mask": np.array(info.legal[agent], np.int8)} if info.legal.shape[1] else {})

    def metrics(self, episode: Episode) -> dict[str, float]:
        return dict(zip(self.totals, episode.terms.values(), strict=True))


class TransmissionReport(FieldReport):
    """Report of generators that share a load: money and load by the names of the contract, which bear no units."""

    def devices(self, episode: Episode, reading: Reading) -> dict[str, Any]:
        env, info = self.host.sim.env, reading.info
        energy = float(info.load_mw - info.unserved_mw) * env.dt_hours
        shared = "direct" if env.schedule else "score"
        out = super().devices(episode, reading) | {
            "total_load_mw": finite(info.load_mw),
            "cost_per_mwh": finite(info.gen_cost_usd / energy) if energy > 0 else 0.0,
            "allocation_mode": "renewable_surplus" if info.surplus_mw > 0 else shared,
        }
        if not env.commitment:
            return out
        money = {name: finite(getattr(info, f"{name}_cost_usd")) for name in ("gen", "no_load", "startup", "shutdown")}
        return out | {
            **{f"{name}_cost": value for name, value in money.items()},
            "operating_cost": sum(money.values()),
            "reserve_shortfall": finite(info.reserve_shortfall_mw),
        }


class GridReport(FieldReport):
    """Report of a transmission grid under one operator: power at the reference bus, physics and solver mode."""

    def electrical(self, info: Any) -> dict[str, float]:
        seen = {"p_slack_MW": info.p_slack_mw, "q_slack_MVAr": info.q_slack_mvar, "p_loss_MW": info.p_loss_mw}
        if self.host.sim.env.physics == "ac":
            seen |= {"v_min_actual": info.vm_pu.min(), "v_max_actual": info.vm_pu.max()}
        return {name: finite(x) for name, x in seen.items()}

    def devices(self, episode: Episode, reading: Reading) -> dict[str, Any]:
        env, info = self.host.sim.env, reading.info
        limits = np.asarray(info.at_q_limit)  # of no bus in DC
        ids = np.asarray(self.host.sim.params.bus_id)[: len(limits)]
        return super().devices(episode, reading) | {
            "q_limited_bus_ids": np.where(limits == 0, NO_BUS, ids),
            "physics": env.physics,
            "solver_mode": env.solver_mode,
            "total_load_mw": finite(info.load_mw),
            "total_generation_mw": finite(info.unit_power_mw.sum()),
        }


def report_of(host: Host) -> Report:
    """The report of a task, by what its environment has."""
    env, units = host.sim.env, family_of(host.sim).unit_fields
    base = frozenset(Info.__dataclass_fields__)
    if hasattr(env, "physics"):
        return GridReport(host, base)
    if hasattr(env, "layout"):
        return FeederReport(host)
    return (TransmissionReport if hasattr(env, "commitment") else FieldReport)(host, base, units)


def _each(values: np.ndarray) -> float | np.ndarray:
    """A float for one device, else an array with one entry a device."""
    return float(values[0]) if len(values) == 1 else fresh(values)


def _plain(value: Any) -> Any:
    """A Python scalar, or a fresh array."""
    if isinstance(value, float):
        return value if math.isfinite(value) else finite(value)
    if isinstance(value, np.ndarray):
        if value.ndim:
            return value.copy() if value.dtype.kind in "bi" else fresh(value)
        return finite(value) if value.dtype.kind == "f" else value.item()
    return value
