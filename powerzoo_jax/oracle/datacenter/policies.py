"""Reference plans of the data centre on a feeder: baselines by rule, an oracle that plans ahead, and its bound.

Play a data centre on a feeder alone, with as many GPUs for new jobs in each step as a plan says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from powerzoo_jax.base import Purpose, purpose_key
from powerzoo_jax.base.errors import SolverError
from powerzoo_jax.devices import datacenter, jobs
from powerzoo_jax.devices.datacenter import BACKLOG_USD_PER_GPU_H, DataCenterExogenous, Order
from powerzoo_jax.devices.jobs import Jobs
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.series import INFER, MEAN_AHEAD, OUTDOOR, PRICE, Draw
from powerzoo_jax.oracle.datacenter.problem import SiteProblem, end_heat, list_jobs, refuse_cold, site_facts
from powerzoo_jax.oracle.datacenter.program import (
    TOO_HOT_C,
    SiteRows,
    idle_it_mw,
    list_starts,
    most_heat_kw,
    solve_site,
    write_room,
    write_starts,
)
from powerzoo_jax.oracle.datacenter.search import (
    ALL,
    LEAVE,
    NONE,
    SearchSizes,
    common_sizes,
    play_plan,
    read_work,
    search,
    simple_plans,
)
from powerzoo_jax.oracle.linear_program import LinearProgram, ProgramWriter, dual_bound
from powerzoo_jax.oracle.registry import (
    Baselines,
    EpisodePlan,
    OraclePlan,
    Policy,
    follow,
    follow_plans,
    repeat_action,
)

HALF_GPU = 0.5  # above what is to start: rounding then starts no job more and no job less


class PlayedJobs(NamedTuple):
    """An episode played: actions (T, 3) of the kernel, IT power (T,) [MW], misses and backlog [GPU h], () each."""

    action: Array
    it_mw: Array
    missed: Array
    backlog_gpu_h: Array


class Episode(NamedTuple):
    """Inputs of an episode: jobs (T, 1, M) of both classes; use, temperature, price and its mean, (T,) each."""

    arrivals: tuple[Jobs, Jobs]
    infer_util: Array
    t_outdoor_c: Array
    price_per_mwh: Array
    mean_per_mwh: Array


@jax.jit
def read_episodes(sim: Sim, keys: Array, load_row: Array, price_row: Array) -> Episode:
    """Inputs of drawn episodes, leading axis B: the keys are those that the episodes start with."""
    env, params = sim.env, sim.params
    minutes, t = round(env.dt_hours * 60), jnp.arange(sim.spec.horizon, dtype=jnp.int32)

    def one(key: Array, load: Array, price: Array) -> Episode:
        source = purpose_key(key, Purpose.JOBS)

        def arriving(t: Array) -> tuple[Jobs, Jobs]:
            at = jax.random.fold_in(source, t)
            return datacenter.draw_arrivals(at, params.datacenter, env.layout.sizes, env.dt_hours, t * minutes)

        rows = params.bank.load_rows[load + t]
        return Episode(
            arrivals=jax.vmap(arriving)(t),
            infer_util=rows[:, env.columns.at(INFER)],
            t_outdoor_c=rows[:, env.columns.at(OUTDOOR)],
            price_per_mwh=params.bank.price_rows[price + t, PRICE],
            mean_per_mwh=jnp.broadcast_to(params.bank.price_rows[price, MEAN_AHEAD], t.shape),
        )

    return jax.vmap(one)(keys, load_row, price_row)


@jax.jit
def play_starts(sim: Sim, episodes: Episode, gpus: Array, cooling: Array) -> PlayedJobs:
    """Play B episodes, leading axis B.

    gpus:     (B, T, 2)  of the training and fine-tuning jobs that start in each step
    cooling:  ()         share of the set-point's range, 0 the coldest
    """
    return jax.vmap(lambda episode, some: _play(sim, episode, some, cooling))(episodes, gpus)


def _play(sim: Sim, episode: Episode, gpus: Array, cooling: Array) -> PlayedJobs:
    site, dt = sim.params.datacenter, sim.env.dt_hours
    t_set = site.set_low_c + cooling * (site.set_high_c - site.set_low_c)

    def advance(state: Any, row: Any) -> tuple[Any, Any]:
        t, some, now = row
        minute = t * round(dt * 60)
        asked = jnp.round(site.infer_gpu_peak * jnp.clip(now.infer_util, 0, 1))
        running = jobs.row_sum(state.train.held_gpus) + jobs.row_sum(state.finetune.held_gpus)
        free = jnp.maximum(site.n_gpus - running - asked, 0)
        train, fine = _share(some[0], free), _share(some[1], free - some[0])
        weather = DataCenterExogenous(now.infer_util[None], now.t_outdoor_c[None])
        state, out = datacenter.step(site, state, Order(train, fine, t_set), dt, minute, now.arrivals, weather)
        action = jnp.stack([2 * train[0] - 1, 2 * fine[0] - 1, 2 * cooling - 1])
        return state, (action, state.it_mw[0], out.missed_jobs[0])

    steps, first = jnp.arange(sim.spec.horizon, dtype=jnp.int32), datacenter.init(site, sim.env.layout.sizes)
    last, (action, it_mw, missed) = lax.scan(advance, first, (steps, gpus, episode))
    return PlayedJobs(action, it_mw, jnp.sum(missed), datacenter.backlog_gpu_h(site, last, dt)[0])


def _share(gpus: Array, free: Array) -> Array:
    """Share of the free GPUs (1,) that starts jobs of so many GPUs and no more."""
    return jnp.clip((gpus + HALF_GPU) / jnp.maximum(free, 1), 0, 1)


NO_CONTROL = (-1.0, -1.0, -1.0)  # starts nothing, coldest set-point
RULE = (1.0, 1.0, 0.2)  # whatever fits by deadline, at 0.6 of the set-point's range
COOLING = 0.6
# [$/MWh] at which the energy of a training and a fine-tuning job of mean size, 0.37 and 0.031 MWh with auxiliaries and
# cooling, costs as much as its miss
WORTH_PER_MWH = (1360.0, 16_300.0)


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
        facts = site_facts(site, host.t_outdoor_c[b])
        mean = host.mean_per_mwh[b, 0] * weights.get("zone_heat", 0.0) / scale
        problem = FeederSiteProblem(
            dt_hours=sim.spec.dt_hours,
            serving=serving[b],
            jobs=list_jobs(arrivals, site, sim.spec.dt_hours),
            weight=scale,
            missed_usd=float(sim.params.miss_usd) * weights["job_misses"] / scale,
            backlog_usd_per_gpu_h=BACKLOG_USD_PER_GPU_H * weights["backlog"] / scale,
            usd_per_mwh=host.price_per_mwh[b] * weights["site_energy"] / scale,
            slots=sim.env.layout.sizes.queue,
            end_heat_usd_per_c=end_heat(facts, float(mean)),
            **facts,
        )
        refuse_cold(problem)
        problems.append(problem)
    return problems


def cooling_program(problem: FeederSiteProblem, it_mw: np.ndarray) -> tuple[LinearProgram, np.ndarray]:
    """Cheapest set-points for servers that draw it_mw (T,), the room below its critical limit; positions by name.

    Exact. Where the price is negative, plans whose fans draw more than the heat they remove takes are left out: the
    environment does not waste energy.
    """
    writer = ProgramWriter()
    spare = np.where(problem.usd_per_mwh < 0, 0.0, np.inf)
    set_c, _ = _write_site(writer, problem, it_mw, problem.values["t_critical_c"], spare, held_set=True)
    return writer.program(), set_c


def relaxed_program(problem: FeederSiteProblem) -> LinearProgram:
    """Relaxation that bounds every policy: jobs as `write_starts` has them, set-points that change within a step,
    and a room that may heat up."""
    writer, rows = relaxed_plant(problem)
    write_starts(writer, problem, list_starts(problem, problem.slots), rows)
    return writer.program()


def relaxed_plant(problem: FeederSiteProblem) -> tuple[ProgramWriter, SiteRows]:
    """The same beside idle servers, without jobs."""
    writer = ProgramWriter()
    spare = np.where(problem.usd_per_mwh < 0, problem.values["cool_min_mw"], np.inf)
    _, rows = _write_site(writer, problem, idle_it_mw(problem), TOO_HOT_C, spare, held_set=False)
    return writer, rows


def _write_site(
    writer: ProgramWriter,
    problem: FeederSiteProblem,
    it_mw: np.ndarray,
    hottest_c: float,
    spare: np.ndarray,
    *,
    held_set: bool,
) -> tuple[np.ndarray, SiteRows]:
    """Write the power bought for servers and cooling, cost in units of the reward, and the room."""
    v, n = problem.values, problem.horizon
    largest = 2 * (v["n_gpus"] * v["active_w"] / 1e6 + v["base_mw"]) * (1 + v["aux_share"])
    largest += most_heat_kw(problem, hottest_c) / 1000
    bought = writer.columns(n, problem.weight * problem.dt_hours * problem.usd_per_mwh, 0, largest)
    servers = (1 + v["aux_share"]) * it_mw
    balance = writer.rows(n, servers, servers, (bought, 1))
    return write_room(writer, problem, it_mw, hottest_c, balance, spare_fan_mw=spare, held_set=held_set)


def return_bound(problem: FeederSiteProblem) -> float:
    """Upper bound of any return, from the multipliers of the relaxation, recomputed by hand (weak duality)."""
    program = relaxed_program(problem)
    return problem.initial_heat - dual_bound(program, solve_site(program).dual)


def plan_episodes(sim: Sim, draws: Draw, keys: Array) -> list[EpisodePlan]:
    """The oracle's plan of every drawn episode.

    A search over which jobs start when, in the order of their queues, finds a cheap run of the jobs; set-points then
    come from a linear programme with the whole episode known.
    """
    episodes = read_episodes(sim, keys, draws.load_row, draws.price_row)
    problems = build_site_problems(sim, episodes)
    sizes, days = common_sizes(problems), max(1, round(sim.spec.horizon * sim.spec.dt_hours / 24))
    trail = execute_starts(sim, episodes, [search_starts(problem, sizes, days) for problem in problems])
    plans = []
    for b, problem in enumerate(problems):
        action, objective = cooled_plan(problem, jax.tree.map(lambda x, b=b: x[b], trail))
        bound = return_bound(problem)
        plans.append(EpisodePlan(action, objective, bound, bound))
    return plans


def cooled_plan(problem: FeederSiteProblem, trail: PlayedJobs) -> tuple[np.ndarray, float]:
    """Actions (T, 1, 3) with the cheapest set-points beside the jobs of a trail, and the return."""
    program, set_c = cooling_program(problem, np.asarray(trail.it_mw, np.float64))
    x = solve_site(program).x
    v, action = problem.values, np.array(trail.action, np.float64)
    action[:, 2] = 2 * (x[set_c] - v["set_low_c"]) / (v["set_high_c"] - v["set_low_c"]) - 1
    lost = problem.missed_usd * float(trail.missed) + problem.backlog_usd_per_gpu_h * float(trail.backlog_gpu_h)
    objective = problem.initial_heat - float(program.cost @ x) - problem.weight * lost
    return np.clip(action, -1, 1)[:, None], objective


def search_starts(problem: FeederSiteProblem, sizes: SearchSizes, days: int) -> np.ndarray:
    """GPUs (T, 2) of the job starts that the evolutionary search finds."""
    usd = problem.usd_per_mwh
    return search(read_work(problem, usd, sizes), sizes, simple_plans(usd, WORTH_PER_MWH), days).gpus[0]


def execute_starts(sim: Sim, episodes: Episode, gpus: list[np.ndarray]) -> PlayedJobs:
    """Play the starts of each episode, GPUs (T, 2), at one set-point."""
    dtype = sim.params.load_ratio.dtype
    return play_starts(sim, episodes, jnp.asarray(np.stack(gpus), dtype), jnp.asarray(COOLING, dtype))


def _idle(sim: Sim, draws: Draw, keys: Array) -> Policy:
    del keys
    return repeat_action(sim, draws, np.array([NO_CONTROL]))


def _eager(sim: Sim, draws: Draw, keys: Array) -> Policy:
    """Whatever fits by deadline, unless its energy costs more than its miss."""
    dear = _too_dear(read_episodes(sim, keys, draws.load_row, draws.price_row))
    actions = np.tile(RULE, (len(draws.load_row), sim.spec.horizon, 1, 1))
    actions[:, :, 0, :2] = np.where(dear, -1.0, actions[:, :, 0, :2])
    return follow(sim, actions)


def _rule(sim: Sim, draws: Draw, keys: Array) -> Policy:
    """The same with small jobs first: training leaves room for the fine-tuning that waits."""
    episodes = read_episodes(sim, keys, draws.load_row, draws.price_row)
    problems, modes = build_site_problems(sim, episodes), np.where(_too_dear(episodes), NONE, [LEAVE, ALL])
    sizes = common_sizes(problems)
    gpus = [play_plan(read_work(p, p.usd_per_mwh, sizes), sizes, plan) for p, plan in zip(problems, modes, strict=True)]
    return follow(sim, np.asarray(execute_starts(sim, episodes, gpus).action)[:, :, None])


def _too_dear(episodes: Episode) -> np.ndarray:
    """Steps in which a job of each class costs more than its miss, (B, T, 2)."""
    return np.asarray(episodes.price_per_mwh)[..., None] > np.array(WORTH_PER_MWH)


def _oracle(sim: Sim, draws: Draw, keys: Array) -> OraclePlan:
    return follow_plans(sim, plan_episodes(sim, draws, keys))


SCHEDULING = Baselines(
    rules={"no_control": _idle, "rule": _rule, "eager": _eager},
    oracle=_oracle,
    splits=("train", "val", "test", "price_stress", "cooling_stress"),
    violating="no_control",
)
