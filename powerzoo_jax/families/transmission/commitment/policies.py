"""Reference policies of the tasks with commitment: priority lists, and plans made with the whole day known.

Units with minimum times or ramps, and many of them, are planned by `secure.plan_day`; a few that may be switched at
will exactly, by dynamic programming over who runs.
"""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base.tree import take
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.families.transmission.commitment.lagrangian import priority_list, relax_commitment
from powerzoo_jax.families.transmission.commitment.problem import CommitmentDay, host_rules
from powerzoo_jax.families.transmission.commitment.secure import Wanted, by_list, operate, plan_day
from powerzoo_jax.families.transmission.commitment.secure_step import SECURITY
from powerzoo_jax.families.transmission.plan.dispatch import (
    DispatchSystem,
    free_floor,
    host_system,
    rated_floor,
    reachable,
)
from powerzoo_jax.families.transmission.plan.episode import commitment_problem
from powerzoo_jax.families.transmission.plan.policies import RULES, each_load, load_grid, shared_scores
from powerzoo_jax.families.transmission.units import reserve_share
from powerzoo_jax.opf.commit import RESERVE_SHARE, CommitmentRules
from powerzoo_jax.oracle.registry import Baselines, OraclePlan, Policy, follow

MOST_UNITS = 8  # 2^8 combinations, and as many squared to switch between


def few_at_will(rules: CommitmentRules) -> bool:
    """Whether every combination of the units can be tried: at most eight, without minimum times and ramps."""
    wide = host_rules(rules)
    on = wide["available"]
    held = np.maximum(wide["min_up"], wide["min_down"]) > 1
    ramped = np.minimum(wide["ramp_mw"], wide["start_mw"]) < wide["p_max_mw"]
    return bool(on.sum() <= MOST_UNITS and not (on & (held | ramped | np.isfinite(wide["stop_mw"]))).any())


def combinations(rules: CommitmentRules) -> np.ndarray:
    """Every choice of units that run (C, G) bool; the last one is all that are available.

    Raises ValueError for more than eight units, and for rules under which a step depends on more than who ran before.
    """
    on = host_rules(rules)["available"]
    if not few_at_will(rules):
        raise ValueError(
            f"{int(on.sum())} units, or units with minimum times or ramps, are too much for paths. "
            "Use solve_commitment or relax_commitment."
        )
    every = np.array(list(itertools.product([False, True], repeat=len(on))))
    return every[(every <= on).all(1)]


def switching_costs(rules: CommitmentRules, sets: np.ndarray) -> np.ndarray:
    """Cost [USD] of going from each combination to each other, (C, C)."""
    wide = host_rules(rules)
    before, after = sets[:, None, :], sets[None, :, :]
    return (after & ~before) @ wide["startup_usd"] + (before & ~after) @ wide["shutdown_usd"]


def cheapest_path(stage: np.ndarray, switching: np.ndarray, first: int) -> tuple[np.ndarray, float]:
    """Combinations (T,) of least total cost, and that cost; stage (C, T) [USD] of a step, `first` ran before it."""
    cost = switching[first] + stage[:, 0]
    came = []
    for step in stage.T[1:]:
        total = cost[:, None] + switching
        came.append(total.argmin(0))
        cost = total.min(0) + step
    path = [int(cost.argmin())]
    for back in reversed(came):
        path.append(int(back[path[-1]]))
    return np.array(path[::-1]), float(cost.min())


GRID = 49  # loads at which a combination of units is planned
WIDE_MARGIN = 0.12  # the same beside a reserve of a tenth
MARGIN, TSO_MARGIN = 0.10, RESERVE_SHARE  # [-] of the load, that a priority list commits beyond it
KEPT_MW = 1e-3  # overload that counts as none
SHORTFALL_USD = 10_000.0  # [USD/MWh] of missing reserve, in the oracle's choice among combinations


def join(sim: Sim, scores: np.ndarray, on: np.ndarray) -> np.ndarray:
    """Kernel actions of scores (T, G) in [-1, 1] and commitment (T, G)."""
    intent = np.where(on, 1.0, -1.0)
    if sim.env.single_agent:
        return np.concatenate([intent, scores], axis=1)[:, None, :]
    return np.stack([scores, intent], axis=-1)


def _places(sim: Sim, level: np.ndarray, p: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    if sim.env.schedule:
        return np.clip(2 * (p - low) / np.where(high > low, high - low, 1) - 1, -1, 1)
    return shared_scores(level, p, low, high)


def _all_on(sim: Sim, draws: Draw, keys: Array) -> Policy:
    """All units committed, all scores alike."""
    del keys
    shape = (sim.spec.horizon, sim.env.dims.unit)
    action = join(sim, np.zeros(shape), np.ones(shape, bool))
    return follow(sim, np.tile(action, (draws.load_row.shape[0], 1, 1, 1)))


def _listed(problem: CommitmentDay, margin: float) -> tuple[np.ndarray, np.ndarray]:
    """Prefixes of the priority list (G, G) bool, and the shortest (T,) that can deliver the load and the margin."""
    order, _ = priority_list(problem)
    rules = host_rules(problem.rules)
    prefixes = np.zeros((len(order), len(order)), bool)
    for k in range(len(order)):
        prefixes[k, order[: k + 1]] = rules["available"][order[: k + 1]]
    reach = prefixes @ rules["p_max_mw"]
    return prefixes, np.minimum(np.searchsorted(reach, (1 + margin) * problem.load_mw), len(order) - 1)


def _merit_list(sim: Sim, draws: Draw, keys: Array, *, margin: float) -> Policy:
    """The shortest prefix of the priority list; the units of the shortest that meets the load come first."""
    del keys
    plans = []
    for i in range(draws.load_row.shape[0]):
        problem = commitment_problem(sim, take(draws, i))
        prefixes, shortest = _listed(problem, margin)
        _, needed = _listed(problem, 0.0)
        plans.append(join(sim, np.where(prefixes[needed], 1.0, -1.0), prefixes[shortest]))
    return follow(sim, np.stack(plans))


def _oracle_few(sim: Sim, draws: Draw, keys: Array) -> OraclePlan:
    """The cheapest path through the combinations of a few units, dispatched as scores allow; bounds likewise."""
    del keys
    system, rules = host_system(sim), sim.params.rules
    loads, sets = each_load(sim, draws), combinations(rules)
    switching, dt = switching_costs(rules, sets), sim.env.dt_hours
    idle = sets @ host_rules(rules)["no_load_usd_per_hour"]
    capacity = sets @ system.high_mw
    grid = load_grid(loads, GRID)
    # with less than the least load no reserve is kept: such a combination never helps a plan that keeps it
    able = np.flatnonzero(capacity >= grid[0])
    curves = {c: reachable(system, sets[c], grid, scores=not sim.env.schedule) for c in able}
    floors = {c: rated_floor(system, sets[c], grid) for c in able}
    plans, money = [], []
    for load in loads:
        short = np.maximum((1 + float(reserve_share(sim.params))) * (load - system.shunt_mw) - capacity[:, None], 0)
        free = free_floor(system, sets, load) + idle[:, None]
        spent, kept = np.full((2, *free.shape), np.inf)
        for c in able:
            p, _ = curves[c].at(load)
            spent[c] = system.cost(sets[c], p, load) + idle[c]
            spent[c] += SHORTFALL_USD * (system.overload(p, load) + short[c])
            kept[c] = np.maximum(floors[c].at(load) + idle[c], free[c])
        kept = np.where(short > short.min(0), np.inf, kept)
        path, _ = cheapest_path(dt * spent, switching, len(sets) - 1)
        plans.append(_play_path(sim, system, sets[path], [curves[c].at(load[t, None]) for t, c in enumerate(path)]))
        paid = _path_cost(system, sets[path], switching, path, load, plans[-1][1], idle[path], dt)
        bounds = (cheapest_path(dt * x, switching, len(sets) - 1)[1] for x in (free, kept))
        money.append([paid, *bounds])
    objective, bound, kept_bound = -sim.spec.term_weights[0] * np.array(money).T
    return OraclePlan(follow(sim, np.stack([actions for actions, _ in plans])), objective, bound, kept_bound)


def _play_path(
    sim: Sim, system: DispatchSystem, on: np.ndarray, steps: list[tuple[np.ndarray, np.ndarray]]
) -> tuple[np.ndarray, np.ndarray]:
    """Kernel actions of a path, and its dispatch (T, G) [MW]."""
    p, level = (np.concatenate(part) for part in zip(*steps, strict=True))
    low, high = (np.where(on, x, 0.0) for x in (system.low_mw, system.high_mw))
    return join(sim, _places(sim, level, p, low, high), on), p


def _path_cost(
    system: DispatchSystem,
    on: np.ndarray,
    switching: np.ndarray,
    path: np.ndarray,
    load: np.ndarray,
    p: np.ndarray,
    idle: np.ndarray,
    dt: float,
) -> float:
    """Cost of a path in the environment, [USD]; all units ran before it."""
    before = np.concatenate([[len(switching) - 1], path[:-1]])
    return float(dt * (system.cost(on, p, load) + idle).sum() + switching[before, path].sum())


def _oracle_many(sim: Sim, draws: Draw, keys: Array) -> OraclePlan:
    """The plan of `secure.plan_day`; bounds of the priced relaxation, and of the linear one with all limits."""
    del keys
    system = host_system(sim)
    actions, money = [], []
    for i in range(draws.load_row.shape[0]):
        drawn = take(draws, i)
        free = relax_commitment(commitment_problem(sim, drawn)).bound_usd
        plan = plan_day(system, commitment_problem(sim, drawn, float(reserve_share(sim.params))))
        actions.append(join(sim, plan.scores, plan.on))
        money.append([plan.cost_usd, free, max(plan.bound_usd, free)])
    objective, bound, kept_bound = -sim.spec.term_weights[0] * np.array(money).T
    return OraclePlan(follow(sim, np.stack(actions)), objective, bound, kept_bound)


def _oracle(sim: Sim, draws: Draw, keys: Array) -> OraclePlan:
    """The exact plan where every combination of the units can be tried, else that of the operator."""
    return (_oracle_few if few_at_will(sim.params.rules) else _oracle_many)(sim, draws, keys)


def _operator_list(sim: Sim, draws: Draw, keys: Array, *, margin: float, secure: bool) -> Policy:
    """The priority list of `secure.operate`, in merit order or in security-aware merit order."""
    del keys
    plans = []
    for i in range(draws.load_row.shape[0]):
        problem = commitment_problem(sim, take(draws, i))
        wanted = secure_output(sim) if secure else by_list(problem)
        on, scores = operate(problem, margin, wanted, host_system(sim) if secure else None)
        plans.append(join(sim, scores, on))
    return follow(sim, np.stack(plans))


def secure_output(sim: Sim, rule: Any = RULES["rule"]) -> Wanted:
    """Outputs of a rule of one step without overloads, as `over_levels` makes it: in merit order, unless given."""
    dtype = sim.params.voll.dtype

    def wanted(_: int, load: float, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        box = (jnp.asarray(x, dtype)[None, None] for x in (low, high))
        p, _ = rule(sim.params, jnp.asarray([load], dtype), *box)
        return np.asarray(p, np.float64)[0, 0]

    return wanted


COMMITMENT = Baselines(
    rules={
        "no_control": _all_on,
        "cheapest": partial(_merit_list, margin=0.0),
        "rule": partial(_operator_list, margin=WIDE_MARGIN, secure=True),
    },
    oracle=_oracle,
    splits=("train", "val", "test", "load_stress", "line_tightening"),
    violating="cheapest",
)

OPERATOR = Baselines(
    rules={
        "no_control": _all_on,
        "cheapest": partial(_merit_list, margin=0.0),
        "rule": partial(_operator_list, margin=MARGIN, secure=True),
        "merit_list": partial(_operator_list, margin=TSO_MARGIN, secure=False),
    },
    oracle=_oracle_many,
    splits=("val", "test", "load_stress", "line_tightening"),
    violating="cheapest",
    filters={"security": SECURITY},
)
