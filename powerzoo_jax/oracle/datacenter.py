"""Reference plans of the data centre on a feeder: baselines by rule, an oracle that plans ahead, and its bound."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base.errors import SolverError
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.draw import Draw
from powerzoo_jax.envs.money import BACKLOG_USD_PER_GPU_H
from powerzoo_jax.oracle.bounds import dual_bound
from powerzoo_jax.oracle.datacenterrun import Episode, Habit, Trail, play_habits, read_episodes
from powerzoo_jax.oracle.playbook import Foresight, Playbook, Policy, follow
from powerzoo_jax.oracle.program import Program
from powerzoo_jax.oracle.siteproblem import SiteProblem, list_jobs, refuse_cold, site_facts
from powerzoo_jax.oracle.siteprogram import (
    TOO_HOT_C,
    Sheet,
    idle_it_mw,
    most_heat_kw,
    room_rows,
    solve,
    write_room,
)
from powerzoo_jax.oracle.sitestarts import list_starts, write_starts

NO_CONTROL = (-1.0, -1.0, -1.0)  # starts nothing, coldest set-point
RULE = (1.0, 1.0, 0.2)  # whatever fits by deadline, at 0.6 of the set-point's range
COOLING = 0.6
FINE_FIRST = (1.0, 0.5, 0.0)  # habits that the search starts from
LOOK_AHEAD = (2, 4, 8)  # steps in which a lower price makes a job wait, in the habits that look at prices
# [$/MWh] at which the energy of a training and a fine-tuning job of mean size, 0.37 and 0.031 MWh with auxiliaries and
# cooling, costs as much as its miss
WORTH_PER_MWH = (1360.0, 16_300.0)
DROP_AT = (0.5, 1.0, 2.0)  # of these prices: habits that the search also starts from
SAVING_PER_MWH = 5.0  # [$/MWh] by which a price must be lower
CHILDREN = 24  # variations of an episode's best habit in a round
ROUNDS = 40  # of the search, for a day; longer episodes have more
LONGEST_SWITCH = 6  # steps that a variation changes at once
SEED = 7  # of the search


@dataclass(frozen=True, eq=False, kw_only=True)
class FeederSiteProblem(SiteProblem):
    """One episode; usd_per_mwh (T,) is the price of energy at the weight of the reward, slots the size of a queue."""

    usd_per_mwh: np.ndarray
    slots: int


def build_site_problems(sim: Sim, episodes: Episode) -> list[FeederSiteProblem]:
    """Read episodes (leading axis B) of a Sim into problems.

    Raises SolverError for a task that pays for its power usage effectiveness: the programmes do not know that term.
    """
    weights = dict(zip(sim.spec.term_names, sim.spec.term_weights, strict=True))
    if weights["pue_bonus"]:
        raise SolverError(f"{sim.spec.id}: the oracle knows no pue_bonus_weight. Leave it at 0.")
    scale, site = weights["unserved_energy"], sim.params.datacenter
    # rounded in the precision of the Sim, as the environment does
    use = np.clip(np.asarray(episodes.infer_util), 0, 1)
    serving = np.round(np.asarray(site.infer_gpu_peak)[0] * use).astype(np.float64)
    host = jax.tree.map(lambda x: np.asarray(x, np.float64), episodes)
    problems = []
    for b in range(len(serving)):
        arrivals = [(kind.gpus[b, :, 0], kind.duration_min[b, :, 0]) for kind in host.arrivals]
        problem = FeederSiteProblem(
            dt_hours=sim.spec.dt_hours,
            serving=serving[b],
            jobs=list_jobs(arrivals, site, sim.spec.dt_hours),
            weight=scale,
            missed_usd=float(sim.params.miss_usd) * weights["job_misses"] / scale,
            backlog_usd_per_gpu_h=BACKLOG_USD_PER_GPU_H * weights["backlog"] / scale,
            usd_per_mwh=host.price_per_mwh[b] * weights["site_energy"] / scale,
            slots=sim.env.layout.sizes.queue,
            **site_facts(site, host.t_outdoor_c[b]),
        )
        refuse_cold(problem)
        problems.append(problem)
    return problems


def cooling_program(problem: FeederSiteProblem, it_mw: np.ndarray) -> tuple[Program, dict[str, np.ndarray]]:
    """Cheapest set-points for servers that draw it_mw (T,), the room below its critical limit; positions by name.

    Exact. Where the price is negative, plans whose fans draw more than the heat they remove takes are left out: the
    environment does not waste energy.
    """
    sheet = Sheet(problem.horizon + room_rows(problem))
    spare = np.where(problem.usd_per_mwh < 0, 0.0, np.inf)
    columns = _write_site(sheet, problem, it_mw, problem.values["t_critical_c"], spare, held_set=True)
    return sheet.program(), columns


def relaxed_program(problem: FeederSiteProblem) -> Program:
    """A programme whose optimum no policy beats: jobs as `write_starts` has them, set-points that change within a step,
    and a room that may heat up."""
    n, starts = problem.horizon, list_starts(problem, problem.slots)
    first_row = n + room_rows(problem)
    sheet = Sheet(first_row + starts.rows(n))
    spare = np.where(problem.usd_per_mwh < 0, problem.values["cool_min_mw"], np.inf)
    _write_site(sheet, problem, idle_it_mw(problem), TOO_HOT_C, spare, held_set=False)
    write_starts(sheet, problem, starts, np.arange(n), n, first_row)
    return sheet.program()


def _write_site(
    sheet: Sheet, problem: FeederSiteProblem, it_mw: np.ndarray, hottest_c: float, spare: np.ndarray, *, held_set: bool
) -> dict[str, np.ndarray]:
    """Write the power bought for servers and cooling, cost in units of the reward, and the room."""
    v, n = problem.values, problem.horizon
    balance = np.arange(n)
    largest = 2 * (v["n_gpus"] * v["active_w"] / 1e6 + v["base_mw"]) * (1 + v["aux_share"])
    largest += most_heat_kw(problem, hottest_c) / 1000
    bought = sheet.columns(n, problem.weight * problem.dt_hours * problem.usd_per_mwh, 0, largest)
    sheet.put(balance, bought, 1)
    sheet.right[balance] = (1 + v["aux_share"]) * it_mw
    room = write_room(sheet, problem, it_mw, hottest_c, balance, n, spare_fan_mw=spare, held_set=held_set)
    return {"bought": bought, **room}


def return_bound(problem: FeederSiteProblem) -> float:
    """No policy returns more, from the multipliers of the relaxation, recomputed by hand (weak duality)."""
    program = relaxed_program(problem)
    return -dual_bound(program, solve(program)[1])


@dataclass(frozen=True, eq=False)
class SitePlan:
    """A plan that the environment can execute: actions (T, 1, 3), its return by the programme, and the bound."""

    action: np.ndarray
    objective: float
    bound: float


def plan_episodes(sim: Sim, draws: Draw, keys: Array) -> list[SitePlan]:
    """The oracle's plan of every drawn episode.

    A search over which jobs wait in which steps finds the cheapest run of the jobs, every one started by deadline;
    set-points then come from a linear programme with the whole episode known.
    """
    episodes = read_episodes(sim, keys, draws.load_row, draws.price_row)
    problems = build_site_problems(sim, episodes)
    trail = search(sim, episodes, np.stack([problem.usd_per_mwh for problem in problems]))
    return [_plan(problem, jax.tree.map(lambda x, b=b: x[b], trail)) for b, problem in enumerate(problems)]


def _plan(problem: FeederSiteProblem, trail: Trail) -> SitePlan:
    program, at = cooling_program(problem, np.asarray(trail.it_mw, np.float64))
    x, _ = solve(program)
    v, action = problem.values, np.array(trail.action, np.float64)
    action[:, 2] = 2 * (x[at["set"]] - v["set_low_c"]) / (v["set_high_c"] - v["set_low_c"]) - 1
    lost = problem.missed_usd * float(trail.missed) + problem.backlog_usd_per_gpu_h * float(trail.backlog_gpu_h)
    objective = -float(program.cost @ x) - problem.weight * lost
    return SitePlan(np.clip(action, -1, 1)[:, None], objective, return_bound(problem))


def search(sim: Sim, episodes: Episode, usd_per_mwh: np.ndarray, rounds: int = ROUNDS) -> Trail:
    """Best trail found for each of B episodes, (B, ...): simple habits, then variations of the best so far.

    rounds:  for a day
    """
    rng = np.random.default_rng(SEED)
    held, fine_first, urgent = _first_habits(usd_per_mwh, 60 * sim.spec.dt_hours)
    days = max(1, round(sim.spec.horizon * sim.spec.dt_hours / 24))
    pick = np.arange(len(held))
    best: Trail | None = None
    value = np.full(len(held), -np.inf)
    own = [held[:, 0], fine_first[:, 0], urgent[:, 0]]
    for _ in range(1 + rounds * days):
        found = jax.tree.map(np.asarray, play_habits(sim, episodes, _habits(sim, held, fine_first, urgent)))
        first = np.argmax(found.total_usd, axis=1)
        gain = found.total_usd[pick, first] > value
        chosen = jax.tree.map(lambda leaf, first=first: leaf[pick, first], found)
        if best is not None:
            chosen = jax.tree.map(lambda old, new, gain=gain: _where(gain, new, old), best, chosen)
        best = chosen
        value = np.where(gain, found.total_usd[pick, first], value)
        tried = held, fine_first, urgent
        own = [_where(gain, new[pick, first], old) for new, old in zip(tried, own, strict=True)]
        held = _varied(rng, own[0])
        fine_first, urgent = (np.repeat(x[:, None], CHILDREN, axis=1) for x in own[1:])
    assert best is not None
    return best


def _where(gain: np.ndarray, new: np.ndarray, old: np.ndarray) -> np.ndarray:
    return np.where(gain.reshape(-1, *(1,) * (new.ndim - 1)), new, old)


def _habits(sim: Sim, held: np.ndarray, fine_first: np.ndarray, urgent_min: np.ndarray) -> Habit:
    dtype, shape = sim.params.load_ratio.dtype, fine_first.shape
    return Habit(
        held=jnp.asarray(held),
        cooling=jnp.full(shape, COOLING, dtype),
        urgent_min=jnp.asarray(urgent_min, dtype),
        fine_first=jnp.asarray(fine_first, dtype),
    )


def _first_habits(usd_per_mwh: np.ndarray, step_min: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Held steps (B, K, T, 2), `fine_first` and `urgent_min` (B, K) of simple habits, repeated up to K.

    Nothing waits; what can waits for a lower price; or jobs are dropped where they cost more than their miss, which is
    what holding without an urgent case does. Less slack than a step is none.
    """
    count, horizon = usd_per_mwh.shape
    never = np.zeros((count, horizon), bool)
    rows = [(never, never, share, step_min) for share in FINE_FIRST]
    for ahead in LOOK_AHEAD:
        padded = np.concatenate([usd_per_mwh, np.repeat(usd_per_mwh[:, -1:], ahead, axis=1)], axis=1)
        lowest = np.min([padded[:, k : k + horizon] for k in range(1, ahead + 1)], axis=0)
        dear = usd_per_mwh > lowest + SAVING_PER_MWH
        rows += [(dear, dear, share, step_min) for share in FINE_FIRST]
    train, fine = WORTH_PER_MWH
    rows += [(usd_per_mwh > part * train, usd_per_mwh > part * fine, 1.0, -np.inf) for part in DROP_AT]
    rows = [rows[k] for k in np.resize(np.arange(len(rows)), CHILDREN)]
    held = np.stack([np.stack(row[:2], axis=-1) for row in rows], axis=1)
    fine_first, urgent = (np.tile(np.array([row[k] for row in rows]), (count, 1)) for k in (2, 3))
    return held, fine_first, urgent


def _varied(rng: np.random.Generator, held: np.ndarray) -> np.ndarray:
    """CHILDREN variations (B, K, T, 2) of the held steps (B, T, 2): a run of steps of one class switched each."""
    count, horizon, _ = held.shape
    shape = (count, CHILDREN)
    first, length = rng.integers(0, horizon, shape), rng.integers(1, LONGEST_SWITCH + 1, shape)
    t = np.arange(horizon)
    run = (t >= first[..., None]) & (t < (first + length)[..., None])
    of = rng.integers(0, 2, shape)[..., None, None] == np.arange(2)
    return held[:, None] ^ (run[..., None] & of)


def _constant(sim: Sim, draws: Draw, action: tuple[float, ...]) -> np.ndarray:
    """An action at every step (B, T, 1, 3)."""
    return np.broadcast_to(np.asarray(action), (len(draws.load_row), sim.spec.horizon, 1, len(action))).copy()


def _idle(sim: Sim, draws: Draw, keys: Array) -> Policy:
    del keys
    return follow(sim, _constant(sim, draws, NO_CONTROL))


def _rule(sim: Sim, draws: Draw, keys: Array) -> Policy:
    """Whatever fits by deadline, unless its energy costs more than its miss."""
    dear = _too_dear(read_episodes(sim, keys, draws.load_row, draws.price_row))
    actions = _constant(sim, draws, RULE)
    actions[:, :, 0, :2] = np.where(dear, -1.0, actions[:, :, 0, :2])
    return follow(sim, actions)


def _safe_rule(sim: Sim, draws: Draw, keys: Array) -> Policy:
    """The rule with small jobs first: training leaves room for the fine-tuning that waits."""
    episodes = read_episodes(sim, keys, draws.load_row, draws.price_row)
    shape = len(draws.load_row), 1
    habits = _habits(sim, _too_dear(episodes)[:, None], np.ones(shape), np.full(shape, -np.inf))
    trail = play_habits(sim, episodes, habits)
    return follow(sim, np.asarray(trail.action)[:, 0, :, None])


def _too_dear(episodes: Episode) -> np.ndarray:
    """Steps in which a job of each class costs more than its miss, (B, T, 2)."""
    return np.asarray(episodes.price_per_mwh)[..., None] > np.array(WORTH_PER_MWH)


def _foresee(sim: Sim, draws: Draw, keys: Array) -> Foresight:
    plans = plan_episodes(sim, draws, keys)
    bound = np.array([plan.bound for plan in plans])
    return Foresight(
        policy=follow(sim, np.stack([plan.action for plan in plans])),
        objective=np.array([plan.objective for plan in plans]),
        bound=bound,
        kept_bound=bound,
    )


SCHEDULING = Playbook(
    rules={"no_control": _idle, "rule": _rule, "safe_rule": _safe_rule},
    foresee=_foresee,
    splits=("train", "val", "test", "price_stress", "cooling_stress"),
    violating="no_control",
    safe="safe_rule",
)
