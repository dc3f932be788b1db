"""A unit-commitment day on the host: units, costs, load; and a plan played forward by the rules of the environment."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import numpy as np

from powerzoo_jax.opf.commit import CommitmentRules, CommitmentState
from powerzoo_jax.opf.offers import UnitCosts

VOLL, SURPLUS_PRICE = 10_000.0, 500.0  # [USD/MWh]


class NetworkCuts(NamedTuple):
    """Ratings that bind at some steps: of_unit @ output of the step <= most + of_shed * load not served.

    step: (C,) int    of_unit: (C, G) [-]    of_shed: (C,) [-]    most: (C,) [MW]
    """

    step: np.ndarray
    of_unit: np.ndarray
    of_shed: np.ndarray
    most: np.ndarray


@dataclass(frozen=True, eq=False)
class CommitmentDay:
    """Unit-commitment problem of T steps and G units; of the network only what `cuts` say.

    rules:             CommitmentRules (G,)
    state:             CommitmentState (G,)  before the first step
    costs:             UnitCosts (G,), (G, K)  of running units
    load_mw:           (T,)  [MW]
    reserve_mw:        (T,)  [MW]  by which the capacity on the bars must exceed the load; -inf requires nothing
    dt_hours:          [h]
    cold_startup_usd:  (G,)  [USD]  of a start after more than `cold_after` steps off; None: all starts cost alike
    cold_after:        (G,)  int    [steps]
    voll, surplus_price: [USD/MWh]
    most_pieces:       linear pieces of a quadratic block at most
    cuts:              Cuts; what a plan cannot keep of them costs voll
    reserve_usd:       [USD/MW]  of reserve missing in a step; infinite: it must be kept
    count:             (G,) int  units, all alike, that each row stands for, in programs alone; None: one each
    """

    rules: CommitmentRules
    state: CommitmentState
    costs: UnitCosts
    load_mw: np.ndarray
    reserve_mw: np.ndarray
    dt_hours: float
    cold_startup_usd: np.ndarray | None = None
    cold_after: np.ndarray | None = None
    voll: float = VOLL
    surplus_price: float = SURPLUS_PRICE
    most_pieces: int = 64
    cuts: NetworkCuts | None = None
    reserve_usd: float = inf
    count: np.ndarray | None = None

    @property
    def units(self) -> np.ndarray:
        """Units that each row stands for, (G,)."""
        return np.ones(len(self.costs.base_mw)) if self.count is None else self.count


@dataclass(frozen=True, eq=False)
class PlayedCommitment:
    """A plan audited and priced by the rules of the environment.

    cost_usd:      [USD]  energy by the true costs, no-load, starts, stops, unserved load, surplus
    energy_usd, startup_usd, shutdown_usd, no_load_usd, unserved_usd, surplus_usd: its parts
    violation_mw:  [MW]   largest breach of a limit, ramp or of the reserve
    illegal:       number of switches that the minimum times forbid
    """

    cost_usd: float
    energy_usd: float
    startup_usd: float
    shutdown_usd: float
    no_load_usd: float
    unserved_usd: float
    surplus_usd: float
    violation_mw: float
    illegal: int


def running_cost(costs: UnitCosts, p_mw: np.ndarray) -> np.ndarray:
    """Cost of output p (..., G) [MW] of running units, (..., G) [USD/h]: blocks fill in order, the last without end."""
    start = np.cumsum(costs.width_mw, 1) - costs.width_mw
    room = costs.width_mw.copy()
    room[:, -1] = np.inf
    filled = np.clip((p_mw - costs.base_mw)[..., None] - start, 0.0, room)
    return costs.base_cost + np.sum((costs.price + 0.5 * costs.slope * filled) * filled, axis=-1)


def play_commitment(problem: CommitmentDay, on: np.ndarray, p_mw: np.ndarray) -> PlayedCommitment:
    """Audit and price a plan: on (T, G) bool, output (T, G) [MW]."""
    rules = host_rules(problem.rules)
    was, steps, before = (np.asarray(x) for x in (problem.state.on, problem.state.steps, problem.state.p_mw))
    steps = steps.astype(np.int64)
    before = before.astype(np.float64)
    worst, illegal, starts_usd, stops_usd = 0.0, 0, 0.0, 0.0
    for now, p, need in zip(on, p_mw, problem.load_mw + problem.reserve_mw, strict=True):
        starts, stops, stays = now & ~was, was & ~now, now & was
        illegal += int(np.sum(starts & (steps < rules["min_down"])) + np.sum(stops & (steps < rules["min_up"])))
        illegal += int(np.sum(now & ~rules["available"]))
        breaches = (
            np.where(now, np.maximum(rules["p_min_mw"] - p, p - rules["p_max_mw"]), np.abs(p)),
            np.where(stays, np.abs(p - before) - rules["ramp_mw"], 0.0),
            np.where(starts, p - rules["start_mw"], 0.0),
            np.where(stops, before - rules["stop_mw"], 0.0),
            need - np.sum(np.where(now, rules["p_max_mw"], 0.0))[None],
        )
        worst = max(worst, *(float(part.max(initial=0.0)) for part in breaches))
        starts_usd += float(_start_cost(problem, rules, steps)[starts].sum())
        stops_usd += float(rules["shutdown_usd"][stops].sum())
        steps, was, before = np.where(now == was, steps + 1, 1), now, p
    balance = problem.load_mw - p_mw.sum(1)
    dt = problem.dt_hours
    energy = dt * float(np.sum(np.where(on, running_cost(problem.costs, p_mw), 0.0)))
    no_load = dt * float(np.sum(on @ rules["no_load_usd_per_hour"]))
    unserved = dt * problem.voll * float(np.maximum(balance, 0).sum())
    surplus = dt * problem.surplus_price * float(np.maximum(-balance, 0).sum())
    total = energy + starts_usd + stops_usd + no_load + unserved + surplus
    return PlayedCommitment(total, energy, starts_usd, stops_usd, no_load, unserved, surplus, worst, illegal)


def _start_cost(problem: CommitmentDay, rules: dict[str, np.ndarray], steps_off: np.ndarray) -> np.ndarray:
    if problem.cold_startup_usd is None:
        return rules["startup_usd"]
    return np.where(steps_off > problem.cold_after, problem.cold_startup_usd, rules["startup_usd"])


def host_rules(rules: CommitmentRules) -> dict[str, np.ndarray]:
    """Rules as float64 arrays, whole numbers and flags as they are."""
    out = {name: np.asarray(value) for name, value in vars(rules).items()}
    return {name: value.astype(np.float64) if value.dtype.kind == "f" else value for name, value in out.items()}
