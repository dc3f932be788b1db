"""A drawn episode as a deterministic problem on the host, and its storage played forward in float64.

The linear programme of one battery over one episode, as plain arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from powerzoo_jax.envs.batch import is_stacked
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.feeder.env import MEAN_AHEAD, PRICE, TERMS
from powerzoo_jax.envs.series import Draw


@dataclass(frozen=True, eq=False, kw_only=True)
class StorageEpisode:
    """Storage problem of one episode, all that a plan needs; NumPy float64.

    price_per_mwh:       (T,)  [$/MWh]  price of every step
    mean_price_per_mwh:  [$/MWh]  what energy left in store is settled at
    dt_hours:            [h]
    soc_start, soc_min, soc_max: (G,) [-]
    capacity_mwh, power_mw:      (G,) [MWh], [MW]
    eta_charge, eta_discharge:   (G,) [-]
    degradation_per_mwh: (G,)  [$/MWh]  cost of terminal throughput
    mask:                (G,)  bool     False = padding
    weight_sales, weight_degradation, weight_settlement: weights of the reward terms
    may_charge:          (T,)  [-]      share of the rating at which plans charge; None: all of it
    """

    price_per_mwh: np.ndarray
    mean_price_per_mwh: float
    dt_hours: float
    soc_start: np.ndarray
    soc_min: np.ndarray
    soc_max: np.ndarray
    capacity_mwh: np.ndarray
    power_mw: np.ndarray
    eta_charge: np.ndarray
    eta_discharge: np.ndarray
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
    fleet, dt = problem, problem.dt_hours
    soc, p_mw = [fleet.soc_start], []
    for command in np.clip(command_mw, -fleet.power_mw, fleet.power_mw) * fleet.mask:
        high = np.maximum(soc[-1] - fleet.soc_min, 0) * fleet.capacity_mwh * fleet.eta_discharge / dt
        low = -np.maximum(fleet.soc_max - soc[-1], 0) * fleet.capacity_mwh / (fleet.eta_charge * dt)
        p = np.clip(command, low, high)
        drawn = np.where(p > 0, p / fleet.eta_discharge, p * fleet.eta_charge) * dt
        p_mw.append(p)
        soc.append(np.clip(soc[-1] - drawn / fleet.capacity_mwh, fleet.soc_min, fleet.soc_max))
    power, stored = np.stack(p_mw), np.stack(soc)
    return PlayedStorage(power, stored, _profit(problem, power, stored))


def _profit(problem: StorageEpisode, p_mw: np.ndarray, soc: np.ndarray) -> np.ndarray:
    """sum_t dt (w_s price P - w_d c |P|)  +  w_m mean price * (rise * eta_d  or  fall / eta_c)."""
    sales = problem.dt_hours * problem.price_per_mwh @ p_mw
    wear = problem.dt_hours * problem.degradation_per_mwh * np.abs(p_mw).sum(axis=0)
    change = (soc[-1] - soc[0]) * problem.capacity_mwh
    value = problem.mean_price_per_mwh * np.where(
        change > 0, change * problem.eta_discharge, change / problem.eta_charge
    )
    total = problem.weight_sales * sales - problem.weight_degradation * wear + problem.weight_settlement * value
    return np.where(problem.mask, total, 0.0)


Branch = Literal["free", "rise", "fall"]
"""Direction in which the stored energy may end: a settlement that is not concave is solved once for each."""


@dataclass(frozen=True, eq=False)
class Program:
    """minimise cost @ x  subject to  equal @ x = right,  low <= x <= high; every bound is finite.

    x = [charge (T,) MW, discharge (T,) MW, energy after each step (T,) MWh, rise MWh, fall MWh]

    cost, low, high: (3 T + 2,)    equal: (T + 1, 3 T + 2) sparse    right: (T + 1,)
    """

    cost: np.ndarray
    equal: Any
    right: np.ndarray
    low: np.ndarray
    high: np.ndarray


def branches(problem: StorageEpisode) -> tuple[Branch, ...]:
    """The branches whose best is the optimum.

    rise is paid mean * eta_d and fall costs mean / eta_c: concave for mean >= 0, since eta_d <= 1 / eta_c.
    Below zero a single programme would book rise and fall at once, so each is fixed to zero in turn.
    """
    return ("free",) if problem.weight_settlement * problem.mean_price_per_mwh >= 0 else ("rise", "fall")


def storage_program(problem: StorageEpisode, unit: int, branch: Branch) -> Program:
    """Minus the profit of one battery.

    energy_t = energy_(t-1) + dt (eta_c charge_t - discharge_t / eta_d),   energy_T - energy_0 = rise - fall
    """
    from scipy import sparse

    dt, horizon = problem.dt_hours, len(problem.price_per_mwh)
    eta_c, eta_d = problem.eta_charge[unit], problem.eta_discharge[unit]
    capacity, power = problem.capacity_mwh[unit], problem.power_mw[unit]
    start, least, most = (capacity * x[unit] for x in (problem.soc_start, problem.soc_min, problem.soc_max))
    price = problem.weight_sales * problem.price_per_mwh
    wear = problem.weight_degradation * problem.degradation_per_mwh[unit]
    settle = problem.weight_settlement * problem.mean_price_per_mwh
    may_charge = np.ones(horizon) if problem.may_charge is None else problem.may_charge
    eye = sparse.eye(horizon)
    balance = [-dt * eta_c * eye, dt / eta_d * eye, eye - sparse.eye(horizon, k=-1), sparse.csr_matrix((horizon, 2))]
    final = np.zeros((1, 3 * horizon + 2))
    final[0, -3:] = 1.0, -1.0, 1.0
    right = np.zeros(horizon + 1)
    right[0] = right[-1] = start
    return Program(
        cost=np.concatenate(
            [dt * (price + wear), dt * (wear - price), np.zeros(horizon), [-settle * eta_d, settle / eta_c]]
        ),
        equal=sparse.vstack([sparse.hstack(balance), sparse.csr_matrix(final)]).tocsc(),
        right=right,
        low=np.concatenate([np.zeros(2 * horizon), np.full(horizon, least), np.zeros(2)]),
        high=np.concatenate(
            [
                power * may_charge,
                np.full(horizon, power),
                np.full(horizon, most),
                [0.0 if branch == "fall" else most - start, 0.0 if branch == "rise" else start - least],
            ]
        ),
    )
