"""Reference plans of the data-centre microgrid: baselines by rule, an oracle that plans ahead, and its bound.

Rules that run a data-centre microgrid step by step, seeing the load of the step: the baseline and its variants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from powerzoo_jax.base.tree import take
from powerzoo_jax.devices import DataCenterState, datacenter
from powerzoo_jax.devices.jobs import Pool
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.families.microgrid.env import ACTIONS, OUTDOOR, SUN, MicrogridState
from powerzoo_jax.families.microgrid.names import DROPPED
from powerzoo_jax.families.microgrid.plan.problem import (
    MicrogridProblem,
    build_microgrid_problem,
    dispatch_program,
    relaxed_program,
)
from powerzoo_jax.families.microgrid.plan.starts import JOB_STARTS, RESERVE_MW, load_per_it, share_that_fits
from powerzoo_jax.families.microgrid.tasks.build import STRESS
from powerzoo_jax.oracle.datacenter.policies import HALF_GPU
from powerzoo_jax.oracle.datacenter.program import server_prices, solve_site
from powerzoo_jax.oracle.linear_program import dual_bound
from powerzoo_jax.oracle.registry import (
    Baselines,
    EpisodePlan,
    OraclePlan,
    Policy,
    follow,
    follow_plans,
    repeat_action,
)

BATTERY = [name for name, _, _ in ACTIONS].index("battery")


class Habit(NamedTuple):
    """Parameters that distinguish the rules; numbers, so that all of them share one program.

    cooling:    share of the set-point's range, 0 the coldest
    reserve_mw: jobs start while the load stays below sun + diesel + this; inf starts whatever fits
    urgent_train_min, urgent_fine_min: a job with less slack than this starts in any case; -inf never, inf always
    hold_min:   fine-tuning waits while the first training job does not fit and has less slack than this; 0 never
    """

    cooling: float = 0.6
    reserve_mw: float = float("inf")
    urgent_train_min: float = 30.0
    urgent_fine_min: float = 30.0
    hold_min: float = 0.0


RULE = Habit()
SAFE_RULE = Habit(reserve_mw=RESERVE_MW, urgent_train_min=60.0, urgent_fine_min=60.0)


class PlayedRule(NamedTuple):
    """A rule played: actions (B, T, A, U); per step it_mw, missed jobs; per episode the return, the backlog, and the
    work dropped, 0 where the task does not count it.
    """

    action: Array
    it_mw: Array
    missed: Array
    total: Array
    backlog_gpu_h: Array
    dropped_gpu_h: Array


def play_habit(sim: Sim, draws: Draw, habit: Habit) -> PlayedRule:
    """Play a rule in drawn episodes (leading axis B), every job as early as the habit allows, by deadline.

    Sun first, then diesel, then the battery; diesel to spare refills the battery, or the first peak would empty it.
    """
    return _play(sim, draws, jax.tree.map(lambda x: jnp.asarray(x, sim.params.voll.dtype), habit))


@jax.jit
def _play(sim: Sim, draws: Draw, habit: Habit) -> PlayedRule:
    return jax.vmap(lambda drawn: _episode(sim, drawn, habit))(draws)


def _episode(sim: Sim, drawn: Draw, habit: Habit) -> PlayedRule:
    return _trail(sim, drawn, lambda state, _: _act(sim, state, habit), None)


@jax.jit
def play_starts(sim: Sim, drawn: Draw, gpus: Array) -> PlayedRule:
    """Play one drawn episode with as many GPUs (T, 2) for training and fine-tuning jobs as start in each step."""

    def act(state: MicrogridState, some: Array) -> Array:
        order = jnp.zeros(5, gpus.dtype).at[2].set(RULE.cooling)
        idle = _probe(sim, state, order)[0]
        free = jnp.maximum(sim.params.site.n_gpus[0] - idle.infer_gpus[0] - idle.job_gpus[0], 0)
        room = jnp.maximum(jnp.stack([free, free - some[0]]), 1)
        order = order.at[:2].set(jnp.clip((some + HALF_GPU) / room, 0, 1))
        return _powered(sim, state, order)

    return _trail(sim, drawn, act, gpus)


def _trail(sim: Sim, drawn: Draw, act: Callable[[MicrogridState, Any], Array], rows: Any) -> PlayedRule:
    """Play one drawn episode: act(state, row of the step) -> action."""
    # nothing random is left once an episode is drawn
    state, _ = sim.env.begin(jax.random.key(0), drawn, sim.params)

    def advance(state: MicrogridState, row: Any) -> tuple[MicrogridState, Any]:
        action = act(state, row)
        out = sim.step(state, action)
        info = out.info
        dropped = out.cost[names.index(DROPPED)] if DROPPED in names else jnp.zeros_like(out.reward[0])
        jobs = info.step_sla_violations, info.backlog_gpu_h, dropped
        return out.state, (action, jnp.sum(out.state.site.it_mw), out.reward[0], *jobs)

    names = sim.spec.cost_names
    _, seen = lax.scan(advance, state, rows, length=sim.spec.horizon)
    action, it_mw, reward, missed, backlog, dropped = seen
    return PlayedRule(action, it_mw, missed, jnp.sum(reward), backlog[-1], jnp.sum(dropped))


def _act(sim: Sim, state: MicrogridState, habit: Habit) -> Array:
    """One action (1, 5): jobs by what the plant can carry, then power by the load that these give."""
    params, site = sim.params, sim.params.site
    row = params.bank.weather_rows[state.weather_row + jnp.minimum(state.t, params.horizon - 1)]
    sun = _sun_mw(sim, state)
    per_it = load_per_it(site.aux_share[0], site.air_share[0], datacenter.chiller_cop(site, row[OUTDOOR, None])[0])
    span = (site.active_w[0] - site.idle_w[0]) / 1e6 * per_it
    order = jnp.zeros(5, state.soc_start.dtype).at[2].set(habit.cooling)
    idle = _probe(sim, state, order)[0]
    room_mw = params.diesel.p_max_mw[0] + sun + habit.reserve_mw - idle.it_mw[0] * per_it
    free = site.n_gpus[0] - idle.infer_gpus[0] - idle.job_gpus[0]
    train = share_that_fits(
        room_mw, span * site.train.eta[0], free, _slack(idle.train, state, sim) < habit.urgent_train_min
    )
    begun = _probe(sim, state, order.at[0].set(train))[0]
    taken = begun.job_gpus[0] - idle.job_gpus[0]
    room_mw = room_mw - taken * span * site.train.eta[0]
    urgent = _slack(begun.finetune, state, sim) < habit.urgent_fine_min
    fine = share_that_fits(room_mw, span * site.finetune.eta[0], free - taken, urgent)
    fine = jnp.where(_slack(begun.train, state, sim) < habit.hold_min, 0, fine)
    return _powered(sim, state, order.at[0].set(train).at[1].set(fine))


def _powered(sim: Sim, state: MicrogridState, order: Array) -> Array:
    """Action (1, 5) of jobs and cooling (5,) with the battery at what sun and diesel lack, or have to spare."""
    params = sim.params
    sun = _sun_mw(sim, state)
    load_mw = _probe(sim, state, order)[1]
    lacking = (load_mw - sun - params.diesel.p_max_mw[0]) / params.storage.power_mw[0]
    order = order.at[3].set(jnp.clip(lacking, -1, 1)).at[4].set(1)
    return jnp.where(jnp.arange(5) == BATTERY, order, 2 * order - 1)[None]


def _sun_mw(sim: Sim, state: MicrogridState) -> Array:
    params = sim.params
    row = params.bank.weather_rows[state.weather_row + jnp.minimum(state.t, params.horizon - 1)]
    return row[SUN] * params.pv.capacity_mw[0]


def _probe(sim: Sim, state: MicrogridState, order: Array) -> tuple[DataCenterState, Array]:
    """Trial step under an order (5,): the site after it, and its load, () [MW]."""
    command = sim.env.decode(2 * order[None] - 1, sim.params)
    plant, delivered = sim.env.limit(state, command, sim.params)
    return plant.site, -jnp.sum(delivered.site.p_mw)


def _slack(pool: Pool, state: MicrogridState, sim: Sim) -> Array:
    """Least time that a queued job can still wait, () [min]; inf without jobs."""
    now = state.t.astype(pool.gpus.dtype) * (sim.spec.dt_hours * 60)
    return jnp.min(jnp.where(pool.gpus > 0, pool.deadline_min - now - pool.duration_min, jnp.inf))


NO_CONTROL = (-1.0, -1.0, -1.0, 0.0, -1.0)  # starts nothing, coldest set-point, idle battery, diesel off
MARGIN_MW = 1e-5  # of diesel above the plan: what is not needed is never burnt, and rounding sheds no load
HABITS = (
    RULE,
    Habit(hold_min=60.0),
    Habit(hold_min=120.0),
    Habit(reserve_mw=0.2, hold_min=60.0),
    Habit(reserve_mw=0.1, urgent_train_min=60.0, urgent_fine_min=60.0, hold_min=60.0),
    Habit(reserve_mw=0.0, urgent_train_min=60.0, urgent_fine_min=60.0),
    Habit(reserve_mw=-0.1, urgent_train_min=120.0, urgent_fine_min=120.0, hold_min=60.0),
    # where power is so short that a job costs more than its miss
    Habit(reserve_mw=0.0, urgent_train_min=-inf, urgent_fine_min=inf),
    Habit(reserve_mw=-0.1, urgent_train_min=-inf, urgent_fine_min=inf),
    Habit(reserve_mw=-inf, urgent_train_min=-inf, urgent_fine_min=inf),
    Habit(reserve_mw=0.0, urgent_train_min=-inf, urgent_fine_min=-inf),
    Habit(reserve_mw=-inf, urgent_train_min=-inf, urgent_fine_min=-inf),
)
FINALISTS = 2  # different job plans of an episode that get a programme of their own
SAFE_PRICE_USD = 200.0  # of a miss in the bound of a task that does not price it: more than any job's energy costs


def plan_episodes(sim: Sim, draws: Draw) -> list[EpisodePlan]:
    """The oracle's plan of every drawn episode.

    Several ways to run the jobs by deadline are played in the environment; the best get a linear programme for
    battery, diesel and cooling with the whole episode known, and the cheapest of these is the plan.
    """
    each = play_habits(sim, draws)
    return [_plan(sim, take(draws, i), trails) for i, trails in enumerate(each)]


def play_habits(sim: Sim, draws: Draw, habits: Sequence[Habit] = HABITS) -> list[list[PlayedRule]]:
    """Every habit played on every drawn episode: trails of each episode."""
    trails = [on_host(play_habit(sim, draws, habit)) for habit in habits]
    return [[take(trail, i) for trail in trails] for i in range(draws.load_row.shape[0])]


def on_host(trail: PlayedRule) -> PlayedRule:
    return PlayedRule(*(np.asarray(x, np.float64) for x in trail))  # type: ignore[arg-type]


def _plan(sim: Sim, drawn: Draw, trails: list[PlayedRule]) -> EpisodePlan:
    problem = build_microgrid_problem(sim, drawn)
    price = float(sim.params.sla_usd)
    best_value, best_action = -inf, np.zeros(0)
    for trail in finalists(problem, trails, price):
        found = dispatched(problem, trail)
        value = found.earned - job_loss(problem, trail, price)
        if value > best_value:
            best_value, best_action = value, found.action
            unpriced = (price - problem.missed_usd) * problem.weight * float(np.sum(trail.missed))
            objective = value + unpriced
    return EpisodePlan(best_action, objective, *return_bounds(problem, sim.spec.cost_budget[0]))


def finalists(
    problem: MicrogridProblem, trails: list[PlayedRule], price: float, dropped_usd: float = 0.0
) -> list[PlayedRule]:
    """The best different trails where a miss costs `price` [$], and work dropped so much more [$/GPU h]."""
    return _different(sorted(trails, key=lambda t: -_judged(problem, t, price, dropped_usd)))[:FINALISTS]


class PlantDispatch(NamedTuple):
    """Best dispatch of the jobs of a trail.

    earned:      return but for what its jobs lose;  action: (T, 1, 5)
    unserved_mw: load not served, summed over the steps
    power_price: (T,)  [reward/MW]  at which this plant gives power of servers, a subgradient of its cost
    """

    earned: float
    action: np.ndarray
    unserved_mw: float
    power_price: np.ndarray


def dispatched(problem: MicrogridProblem, trail: PlayedRule) -> PlantDispatch:
    """Best dispatch of the jobs of a trail."""
    program, at, rows = dispatch_program(problem, np.asarray(trail.it_mw))
    best = solve_site(program)
    plan = {name: best.x[columns] for name, columns in at.items()}
    earned = -float(program.cost @ best.x) - stored_value(problem)
    action = _action(problem, trail, plan)
    return PlantDispatch(earned, action, float(plan["unserved"].sum()), server_prices(problem, rows, best.dual))


def _judged(problem: MicrogridProblem, trail: PlayedRule, price: float, dropped_usd: float) -> float:
    """Return of a trail with misses and dropped work priced, whether or not the task does."""
    more = (price - problem.missed_usd) * float(np.sum(trail.missed)) + dropped_usd * float(trail.dropped_gpu_h)
    return float(trail.total) - problem.weight * more


def job_loss(problem: MicrogridProblem, trail: PlayedRule, price: float) -> float:
    """Cost of misses at a price [$] and of the backlog, in reward."""
    backlog = problem.backlog_usd_per_gpu_h * float(trail.backlog_gpu_h)
    return problem.weight * (price * float(np.sum(trail.missed)) + backlog)


def _different(trails: list[PlayedRule]) -> list[PlayedRule]:
    """The first trail of every way to run the jobs: power of the servers tells them apart."""
    kept: list[PlayedRule] = []
    for trail in trails:
        if not any(np.array_equal(trail.it_mw, other.it_mw) for other in kept):
            kept.append(trail)
    return kept


def _action(problem: MicrogridProblem, trail: PlayedRule, plan: dict[str, np.ndarray]) -> np.ndarray:
    """Kernel actions (T, 1, 5): the jobs of the trail, power and set-points of the programme."""
    v = problem.values
    action = np.array(trail.action)
    action[:, 0, 2] = 2 * (plan["set"] - v["set_low_c"]) / (v["set_high_c"] - v["set_low_c"]) - 1
    action[:, 0, 3] = (plan["discharge"] - plan["charge"]) / v["power_mw"]
    action[:, 0, 4] = 2 * (plan["diesel"] + MARGIN_MW) / v["diesel_mw"] - 1
    return np.clip(action, -1, 1)


def return_bounds(problem: MicrogridProblem, budget: float) -> tuple[float, float]:
    """(bound, kept bound) of an episode, from the multipliers of a relaxation, recomputed by hand.

    Where misses have no price, dropping every job pays. For policies whose mean number of misses meets the budget b,
    R <= max(R - w p misses) + w p b  holds for any price p.
    """
    bound = relaxed_return(problem)
    if problem.missed_usd > 0:
        return bound, bound
    priced = replace(problem, missed_usd=SAFE_PRICE_USD)
    return bound, relaxed_return(priced) + problem.weight * SAFE_PRICE_USD * budget


def relaxed_return(problem: MicrogridProblem, *, ordered: bool = False, fewest_misses: int = 0) -> float:
    """Bound of an episode's return, from multipliers, recomputed by hand; arguments as in `relaxed_program`."""
    program = relaxed_program(problem, ordered=ordered, fewest_misses=fewest_misses)
    return -stored_value(problem) - dual_bound(program, solve_site(program).dual)


def stored_value(problem: MicrogridProblem) -> float:
    """Settlement deducted for energy and heat at the start, in reward; the programmes leave it out."""
    v = problem.values
    start_mwh = v["soc_start"] * v["capacity_mwh"]
    return problem.weight * problem.stored_usd_per_mwh * start_mwh / v["eta_discharge"] - problem.initial_heat


def _idle(sim: Sim, draws: Draw, keys: Array) -> Policy:
    del keys
    return repeat_action(sim, draws, np.array([NO_CONTROL]))


def _eager(sim: Sim, draws: Draw, keys: Array) -> Policy:
    del keys
    return follow(sim, np.asarray(play_habit(sim, draws, RULE).action))


def _rule(sim: Sim, draws: Draw, keys: Array) -> Policy:
    del keys
    return follow(sim, np.asarray(play_habit(sim, draws, SAFE_RULE).action))


def _oracle(sim: Sim, draws: Draw, keys: Array) -> OraclePlan:
    del keys
    return follow_plans(sim, plan_episodes(sim, draws))


MICROGRID = Baselines(
    rules={"no_control": _idle, "rule": _rule, "eager": _eager},
    oracle=_oracle,
    splits=("train", "val", "test", *STRESS),
    violating="no_control",
    headline="dg_derating",
    columns={"starts": JOB_STARTS},
)
