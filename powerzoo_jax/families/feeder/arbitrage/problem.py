"""A drawn episode as a deterministic problem on the host, and its storage played forward in float64.

The linear program of one battery over one episode.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from powerzoo_jax.envs.batch import is_stacked
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.families.feeder.env import MEAN_AHEAD, PRICE
from powerzoo_jax.families.feeder.names import TERMS
from powerzoo_jax.oracle.linear_program import LinearProgram, ProgramWriter


@dataclass(frozen=True, eq=False, kw_only=True)
class StoredEnergy:
    """Batteries of an episode, (G,) each, as in `devices.storage`; NumPy float64.

    capacity_mwh:                [MWh]
    eta_charge, eta_discharge:   [-]
    soc_start, soc_min, soc_max: [-]
    """

    capacity_mwh: np.ndarray
    eta_charge: np.ndarray
    eta_discharge: np.ndarray
    soc_start: np.ndarray
    soc_min: np.ndarray
    soc_max: np.ndarray

    def deliver(self, soc: np.ndarray, p_mw: np.ndarray, dt_hours: float) -> tuple[np.ndarray, np.ndarray]:
        """Power (G,) [MW] that the energy band leaves of a command, and the state of charge after it."""
        low = -np.maximum(self.soc_max - soc, 0) * self.capacity_mwh / (self.eta_charge * dt_hours)
        high = np.maximum(soc - self.soc_min, 0) * self.capacity_mwh * self.eta_discharge / dt_hours
        p = np.clip(p_mw, low, high)
        drawn = np.where(p > 0, p / self.eta_discharge, p * self.eta_charge) * dt_hours
        return p, np.clip(soc - drawn / self.capacity_mwh, self.soc_min, self.soc_max)

    def settled_mwh(self, soc_end: np.ndarray) -> np.ndarray:
        """Change of the stored energy over the episode as seen at the bus, (G,) [MWh]."""
        change = (soc_end - self.soc_start) * self.capacity_mwh
        return np.where(change > 0, change * self.eta_discharge, change / self.eta_charge)


@dataclass(frozen=True, eq=False, kw_only=True)
class StorageEpisode(StoredEnergy):
    """Storage problem of one episode, all that a plan needs; NumPy float64.

    price_per_mwh:       (T,)  [$/MWh]  price of every step
    mean_price_per_mwh:  [$/MWh]  what energy left in store is settled at
    dt_hours:            [h]
    power_mw:            (G,)  [MW]
    degradation_per_mwh: (G,)  [$/MWh]  cost of terminal throughput
    mask:                (G,)  bool     False = padding
    weight_sales, weight_degradation, weight_settlement: weights of the reward terms
    may_charge:          (T,)  [-]      share of the rating at which plans charge; None: all of it
    """

    price_per_mwh: np.ndarray
    mean_price_per_mwh: float
    dt_hours: float
    power_mw: np.ndarray
    degradation_per_mwh: np.ndarray
    mask: np.ndarray
    weight_sales: float = 1.0
    weight_degradation: float = 1.0
    weight_settlement: float = 1.0
    may_charge: np.ndarray | None = None


class PlayedStorage(NamedTuple):
    """Storage after a plan.

    p_mw:        (T, G)    [MW]  delivered power, positive into the bus
    soc:         (T+1, G)  [-]
    profit_usd:  (G,)      [$]   weighted sum of sales, degradation and settlement
    """

    p_mw: np.ndarray
    soc: np.ndarray
    profit_usd: np.ndarray


def build_problem(sim: Sim, drawn: Draw) -> StorageEpisode:
    """Read a drawn episode (no batch axis) out of a Sim.

    Raises ValueError for a stacked Sim or for a task whose reward has other terms than the storage tasks.
    """
    if is_stacked(sim):
        raise ValueError("a stacked Sim holds several tasks; plan for its members one by one before stacking.")
    if sim.spec.term_names != TERMS:
        raise ValueError(
            f"task {sim.spec.id!r} pays for {', '.join(sim.spec.term_names)}; this oracle knows {', '.join(TERMS)}. "
            "Use the oracle of its own family."
        )
    fleet, bank = sim.params.storage, sim.params.bank
    first = int(drawn.price_row)
    rows = np.asarray(bank.price_rows[first : first + sim.spec.horizon], np.float64)
    weights = dict(zip(sim.spec.term_names, sim.spec.term_weights, strict=True))

    def host(name: str) -> np.ndarray:
        return np.asarray(getattr(fleet, name), np.float64)

    return StorageEpisode(
        price_per_mwh=rows[:, PRICE],
        mean_price_per_mwh=float(rows[0, MEAN_AHEAD]),
        dt_hours=sim.spec.dt_hours,
        soc_start=np.clip(np.asarray(drawn.soc, np.float64), host("soc_min"), host("soc_max")),
        soc_min=host("soc_min"),
        soc_max=host("soc_max"),
        capacity_mwh=host("capacity_mwh"),
        power_mw=host("power_mw"),
        eta_charge=host("eta_charge"),
        eta_discharge=host("eta_discharge"),
        degradation_per_mwh=host("degradation_per_mwh"),
        mask=np.asarray(fleet.mask),
        weight_sales=weights["energy_sales"],
        weight_degradation=weights["degradation"],
        weight_settlement=weights["settlement"],
    )


def build_problems(sim: Sim, draws: Draw) -> list[StorageEpisode]:
    """`build_problem` for every episode of a batch of draws."""
    rows = [np.asarray(x) for x in draws]
    return [build_problem(sim, Draw(*row)) for row in zip(*rows, strict=True)]


def play(problem: StorageEpisode, command_mw: np.ndarray) -> PlayedStorage:
    """Deliver what the state of charge allows of a plan (T, G) [MW], by the equations of devices.storage.

    Written again in NumPy float64, so that a plan can be made executable and audited without the env.
    """
    soc, p_mw = [problem.soc_start], []
    for command in np.clip(command_mw, -problem.power_mw, problem.power_mw) * problem.mask:
        p, after = problem.deliver(soc[-1], command, problem.dt_hours)
        p_mw.append(p)
        soc.append(after)
    power, stored = np.stack(p_mw), np.stack(soc)
    return PlayedStorage(power, stored, _profit(problem, power, stored))


def _profit(problem: StorageEpisode, p_mw: np.ndarray, soc: np.ndarray) -> np.ndarray:
    """sum_t dt (w_s price P - w_d c |P|)  +  w_m mean price * (rise * eta_d  or  fall / eta_c)."""
    sales = problem.dt_hours * problem.price_per_mwh @ p_mw
    wear = problem.dt_hours * problem.degradation_per_mwh * np.abs(p_mw).sum(axis=0)
    value = problem.mean_price_per_mwh * problem.settled_mwh(soc[-1])
    total = problem.weight_sales * sales - problem.weight_degradation * wear + problem.weight_settlement * value
    return np.where(problem.mask, total, 0.0)


Branch = Literal["free", "rise", "fall"]
"""Direction in which the stored energy may end: a settlement that is not concave is solved once for each."""


def branches(problem: StorageEpisode) -> tuple[Branch, ...]:
    """The branches whose best is the optimum.

    rise is paid mean * eta_d and fall costs mean / eta_c: concave for mean >= 0, since eta_d <= 1 / eta_c.
    Below zero a single program would book rise and fall at once, so each is fixed to zero in turn.
    """
    return ("free",) if problem.weight_settlement * problem.mean_price_per_mwh >= 0 else ("rise", "fall")


def storage_program(
    problem: StorageEpisode, unit: int, branch: Branch, *, exclusive: bool = False
) -> tuple[LinearProgram, np.ndarray]:
    """Linear program of minus the profit of one battery, and its columns of charge and discharge (2, T) [MW].

    energy_t = energy_(t-1) + dt (eta_c charge_t - discharge_t / eta_d),   energy_T - energy_0 = rise - fall

    exclusive:  no step may both charge and discharge, by one binary z a step: charge <= P z, discharge <= P (1 - z)
    """
    dt, horizon = problem.dt_hours, len(problem.price_per_mwh)
    eta_c, eta_d = problem.eta_charge[unit], problem.eta_discharge[unit]
    capacity, power = problem.capacity_mwh[unit], problem.power_mw[unit]
    start, least, most = (capacity * x[unit] for x in (problem.soc_start, problem.soc_min, problem.soc_max))
    price = problem.weight_sales * problem.price_per_mwh
    wear = problem.weight_degradation * problem.degradation_per_mwh[unit]
    settle = problem.weight_settlement * problem.mean_price_per_mwh
    most_charge = power * (np.ones(horizon) if problem.may_charge is None else problem.may_charge)
    writer = ProgramWriter()
    charge = writer.columns(horizon, dt * (price + wear), 0.0, most_charge)
    discharge = writer.columns(horizon, dt * (wear - price), 0.0, power)
    energy = writer.columns(horizon, 0.0, least, most)
    rise = writer.columns(1, -settle * eta_d, 0.0, 0.0 if branch == "fall" else most - start)
    fall = writer.columns(1, settle / eta_c, 0.0, 0.0 if branch == "rise" else start - least)
    if exclusive:
        z = writer.columns(horizon, 0.0, 0.0, 1.0, whole=True)
        writer.rows(horizon, -np.inf, 0.0, (charge, 1.0), (z, -most_charge))
        writer.rows(horizon, -np.inf, power, (discharge, 1.0), (z, power))
    before = np.where(np.arange(horizon) > 0, 0.0, start)
    stored = writer.rows(horizon, before, before, (charge, -dt * eta_c), (discharge, dt / eta_d), (energy, 1.0))
    writer.put(stored[1:], energy[:-1], -1.0)
    writer.rows(1, start, start, (energy[-1:], 1.0), (rise, -1.0), (fall, 1.0))
    return writer.program(), np.stack([charge, discharge])
