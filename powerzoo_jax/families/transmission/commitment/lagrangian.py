"""Lagrangian relaxation of a commitment day, a lower bound: load and reserve are priced, and every unit plans alone.

    max over prices of  sum lam_t D_t + sum mu_t (D_t + reserve_t) + sum_i min (cost_i - lam p_i - mu p_max_i u_i)

True for every price; where missing reserve has a price itself, for every mu up to that. A unit's own plan is a dynamic
programme over the steps at which it starts and stops; ramps are left out, which can only lower the bound.
Source: Merlin and Sandrin 1983, doi:10.1109/TPAS.1983.318063.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from powerzoo_jax.families.transmission.commitment.problem import CommitmentDay, host_rules, running_cost
from powerzoo_jax.families.transmission.plan.dispatch import cheapest_output

ROUNDS = 400
FIRST_RISE = 0.02  # [-] of the bound, by which the next one is hoped to be higher
PATIENCE = 8  # rounds without a better bound after which that hope is halved
SETTLED = 0.5  # of the rounds, whose plans no longer count


class Relaxed(NamedTuple):
    """The best bound found, and how often (T, G) in [0, 1] units ran in the later rounds."""

    bound_usd: float
    share_on: np.ndarray


def relax_commitment(problem: CommitmentDay, rounds: int = ROUNDS) -> Relaxed:
    """Raise the bound by subgradients, as far as `rounds` allow."""
    rules = host_rules(problem.rules)
    reserved = np.isfinite(problem.reserve_mw)
    need = np.where(reserved, problem.load_mw + problem.reserve_mw, 0.0)
    price, worth = _first_price(problem, rules), np.zeros(len(problem.load_mw))
    best, rise, waited = -np.inf, FIRST_RISE, 0
    at = price, worth
    on_sum = np.zeros((len(price), len(rules["p_max_mw"])))
    for k in range(rounds):
        bound, on, p = _priced(problem, rules, price, worth)
        bound += float(worth @ need)
        if bound > best:
            best, at, waited = bound, (price, worth), 0
        else:
            waited += 1
        if waited == PATIENCE:
            (price, worth), rise, waited = at, rise / 2, 0
            continue
        if k >= SETTLED * rounds:
            on_sum += on
        short = problem.dt_hours * (problem.load_mw - p.sum(1))
        bare = np.where(reserved, need - on @ rules["p_max_mw"], 0.0)
        # where a price stands at its limit, the part of the direction that leads beyond counts for nothing
        held = ((worth <= 0) & (bare < 0)) | ((worth >= problem.reserve_usd) & (bare > 0))
        bare = np.where(held, 0.0, bare)
        length = (best * (1 + rise) - bound) / max(float(short @ short + bare @ bare), 1e-9)
        price = np.clip(price + length * short, -problem.surplus_price, problem.voll)
        worth = np.clip(worth + length * bare, 0.0, problem.reserve_usd)
    return Relaxed(best, on_sum / max(on_sum.max(), 1.0))


def _first_price(problem: CommitmentDay, rules: dict[str, np.ndarray]) -> np.ndarray:
    """Average cost at full load of the unit that a priority list reaches at each load, (T,) [USD/MWh]."""
    order, average = priority_list(problem)
    reach = np.cumsum(np.where(rules["available"], rules["p_max_mw"], 0)[order])
    at = np.minimum(np.searchsorted(reach, problem.load_mw), len(order) - 1)
    return np.clip(average[order][at], -problem.surplus_price, problem.voll)


def priority_list(problem: CommitmentDay) -> tuple[np.ndarray, np.ndarray]:
    """Units by average cost at full load, no-load cost included, and that cost (G,) [USD/MWh]; unavailable last."""
    rules = host_rules(problem.rules)
    full = np.where(rules["available"], rules["p_max_mw"], 0.0)
    money = running_cost(problem.costs, full) + rules["no_load_usd_per_hour"]
    average = np.where(full > 0, money / np.where(full > 0, full, 1.0), np.inf)
    return np.argsort(average, kind="stable"), np.where(np.isfinite(average), average, problem.voll)


def output_at(problem: CommitmentDay, rules: dict[str, np.ndarray], price: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Output (..., G) [MW] of running units that minimises cost less price (..., G) times output, and that minimum."""
    p, _ = cheapest_output(problem.costs, price)
    p = np.clip(p, rules["p_min_mw"], rules["p_max_mw"])  # costs are convex: the limit next to the free choice is best
    return p, running_cost(problem.costs, p) - price * p


def _priced(
    problem: CommitmentDay, rules: dict[str, np.ndarray], price: np.ndarray, worth: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
    """Bound without the term of the reserve, and the units' own plans: on (T, G), output (T, G) [MW]."""
    dt = problem.dt_hours
    p, least = output_at(problem, rules, np.broadcast_to(price[:, None], (len(price), len(rules["p_min_mw"]))))
    run = dt * (least + rules["no_load_usd_per_hour"]) - worth[:, None] * rules["p_max_mw"]
    values, stop, start = plan_alone(run, rules)
    on, first = follow_alone(problem, rules, stop, start)
    held = np.arange(len(price))[:, None] < first
    total = np.sum(np.where(held & on, run, 0.0)) + values[first, np.asarray(problem.state.on).astype(int)].sum()
    return float(total + dt * price @ problem.load_mw), on, np.where(on, p, 0.0)


class _Values:
    """Costs to go (2, T + 1, G) of units free to switch: row 1 on, row 0 off."""

    def __init__(self, n_step: int, n_unit: int) -> None:
        self.to_go = np.zeros((2, n_step + 1, n_unit))

    def __getitem__(self, key: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        step, on = key
        out: np.ndarray = self.to_go[on, step, np.arange(self.to_go.shape[2])]
        return out


def plan_alone(run: np.ndarray, rules: dict[str, np.ndarray]) -> tuple[_Values, np.ndarray, np.ndarray]:
    """Costs to go, and whether to stop and whether to start at each step (T, G), of what running costs (T, G)."""
    n_step, n_unit = run.shape
    values, unit = _Values(n_step, n_unit), np.arange(n_unit)
    off, on = values.to_go
    sums = np.concatenate([np.zeros((1, n_unit)), np.cumsum(run, axis=0)])
    stop, start = np.zeros((2, n_step, n_unit), bool)
    for t in range(n_step - 1, -1, -1):
        up, down = np.minimum(t + rules["min_up"], n_step), np.minimum(t + rules["min_down"], n_step)
        stay, leave = run[t] + on[t + 1], rules["shutdown_usd"] + off[down, unit]
        begin = rules["startup_usd"] + sums[up, unit] - sums[t] + on[up, unit]
        stop[t] = (leave < stay) | ~rules["available"]
        start[t] = (begin < off[t + 1]) & rules["available"]
        on[t] = np.where(stop[t], leave, stay)
        off[t] = np.where(start[t], begin, off[t + 1])
    return values, stop, start


def follow_alone(
    problem: CommitmentDay, rules: dict[str, np.ndarray], stop: np.ndarray, start: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Commitment (T, G) by the units' own plans, and the step (G,) from which each unit is free to switch."""
    on = np.asarray(problem.state.on).copy()
    free = np.maximum(np.where(on, rules["min_up"], rules["min_down"]) - np.asarray(problem.state.steps), 0)
    first = np.minimum(free, len(stop)).astype(np.int64)
    plan = np.zeros(stop.shape, bool)
    for t in range(len(stop)):
        switch = (free <= t) & np.where(on, stop[t], start[t])
        on = on ^ switch
        free = np.where(switch, t + np.where(on, rules["min_up"], rules["min_down"]), free)
        plan[t] = on
    return plan, first
