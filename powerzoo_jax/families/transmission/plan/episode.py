"""Load and unit commitment problem of one transmission episode, and the actions that follow a dispatch."""

from __future__ import annotations

import jax
import numpy as np

from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.families.transmission.commitment.problem import CommitmentDay
from powerzoo_jax.opf.commit import CommitmentState
from powerzoo_jax.opf.offers import UnitCosts


def episode_load(sim: Sim, drawn: Draw) -> np.ndarray:
    """Load (T,) [MW] that the units must serve in one drawn episode, shunts included."""
    params = sim.params
    first = int(drawn.load_row)
    rows = np.asarray(params.bank.load_rows[first : first + sim.spec.horizon, 0], np.float64)
    return rows * float(params.full_load_mw) + float(params.shunt_mw)


def commitment_problem(sim: Sim, drawn: Draw, reserve_share: float | None = None) -> CommitmentDay:
    """Problem of `solve_commitment` for one drawn episode of a task with commitment.

    reserve_share:  [-] of the load that the units on the bars must be able to deliver beyond it; None requires nothing
    """
    offers, loads = sim.params.offers, episode_load(sim, drawn)
    columns = {name: np.asarray(getattr(offers, name), np.float64) for name in UnitCosts._fields}
    return CommitmentDay(
        rules=sim.params.rules,
        state=_first_units(sim, drawn),
        costs=UnitCosts(**columns),
        load_mw=loads,
        reserve_mw=np.full(len(loads), -np.inf) if reserve_share is None else reserve_share * loads,
        dt_hours=sim.env.dt_hours,
        voll=float(sim.params.voll),
        surplus_price=float(sim.params.surplus_price),
    )


@jax.jit
def _first_units(sim: Sim, drawn: Draw) -> CommitmentState:
    state, _ = sim.env.begin(jax.random.key(0), drawn, sim.params)
    units: CommitmentState = state.units
    return units


def schedule_actions(sim: Sim, p_mw: np.ndarray) -> np.ndarray:
    """Kernel actions (T, A, 1) of a task in direct mode without commitment that follow a dispatch (T, G) [MW]."""
    rules = sim.params.rules
    low, high = (np.asarray(x, np.float64) for x in (rules.p_min_mw, rules.p_max_mw))
    place = (p_mw - low) / np.where(high > low, high - low, 1.0)
    return np.clip(2 * place - 1, -1, 1)[..., None]
