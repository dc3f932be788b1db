"""Linear programs of a data centre: the rows of its room, and those of its jobs.

Rows of a linear program for jobs that run in one piece and start in the order of their queue.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from powerzoo_jax.devices.jobs import CLOCK_MIN
from powerzoo_jax.oracle.datacenter.problem import JobList, SiteProblem
from powerzoo_jax.oracle.linear_program import LinearProgram, Optimum, ProgramWriter, solve

TOO_HOT_C = 100.0  # above every temperature that a room with a working set-point reaches
COOLING_EXISTS = "A plan that cools enough always exists, so look for a critical temperature below the initial one."


class SiteRows(NamedTuple):
    """Rows that the power of servers enters: balance (T,) [MW], and room (T S,) of every explicit step [C]."""

    balance: np.ndarray
    room: np.ndarray


def idle_it_mw(problem: SiteProblem) -> np.ndarray:
    """Power of servers that run no job, (T,) [MW]."""
    v = problem.values
    return v["n_gpus"] * v["idle_w"] / 1e6 + problem.serving * infer_mw_per_gpu(problem) + v["base_mw"]


def infer_mw_per_gpu(problem: SiteProblem) -> float:
    """Power of a GPU that serves inference beyond that of an idle one [MW]."""
    v = problem.values
    return (v["active_w"] * v["infer_eta"] - v["idle_w"]) / 1e6


def most_heat_kw(problem: SiteProblem, hottest_c: float) -> float:
    """Heat that the coil removes from a room at its hottest."""
    return problem.values["ua_kw_per_c"] * (hottest_c - problem.values["set_low_c"])


def write_room(
    writer: ProgramWriter,
    problem: SiteProblem,
    it_mw: np.ndarray,
    hottest_c: float,
    balance: np.ndarray,
    *,
    spare_fan_mw: np.ndarray | None = None,
    held_set: bool = True,
) -> tuple[np.ndarray, SiteRows]:
    """Write the room for a given IT power (T,), cooling into the rows `balance` (T,): set-point columns, and rows.

    hottest_c:     upper limit of the room
    spare_fan_mw:  (T,)  most that fans draw beyond the heat they remove; None = any
    held_set:      one set-point a step, as the environment has it; False = one for every explicit step
    """
    v, n, count = problem.values, problem.horizon, problem.horizon * problem.substeps
    step, first = np.repeat(np.arange(n), problem.substeps), np.arange(count) == 0
    big_kw = most_heat_kw(problem, hottest_c)
    most_mw = big_kw / 1000 + v["cool_min_mw"]
    spare = most_mw if spare_fan_mw is None else np.minimum(spare_fan_mw, most_mw)[step]
    heat = writer.columns(count, 0, 0, big_kw)
    cooling = writer.columns(count, 0, v["cool_min_mw"], most_mw)
    idle_fan = writer.columns(count, 0, 0, spare)
    end_heat = np.where(np.arange(count) == count - 1, problem.weight * problem.end_heat_usd_per_c, 0.0)
    zone = writer.columns(count, end_heat, v["set_low_c"], hottest_c)
    set_c = writer.columns(n if held_set else count, 0, v["set_low_c"], v["set_high_c"])
    writer.put(balance[step], cooling, -1 / problem.substeps)
    # C (T' - T) / dt = 1000 P_it air - heat + wall (T_out - T)
    degrees = pace(problem)
    keep = 1 - degrees * v["wall_kw_per_c"]
    warming = degrees * (1000 * v["air_share"] * it_mw + v["wall_kw_per_c"] * problem.t_outdoor_c)[step]
    warming += np.where(first, keep * v["t_initial_c"], 0.0)
    room = writer.rows(count, warming, warming, (zone, 1), (heat, degrees))
    writer.put(room[1:], zone[:-1], -keep)
    # heat = UA (T - set): with heat >= 0 the set-point need not be above the room
    removed = np.where(first, v["ua_kw_per_c"] * v["t_initial_c"], 0.0)
    coil = writer.rows(count, removed, removed, (heat, 1), (set_c[step] if held_set else set_c, v["ua_kw_per_c"]))
    writer.put(coil[1:], zone[:-1], -v["ua_kw_per_c"])
    # cooling >= heat / COP
    per_kw = -1 / (1000 * problem.chiller_cop[step])
    writer.rows(count, 0, 0, (cooling, 1), (heat, per_kw), (idle_fan, -1))
    if problem.hot_usd_per_c and hottest_c > v["t_critical_c"]:
        above = writer.columns(n, problem.weight * problem.hot_usd_per_c, 0, hottest_c - v["t_critical_c"])
        ends = zone[problem.substeps - 1 :: problem.substeps]
        writer.rows(n, -np.inf, v["t_critical_c"], (ends, 1), (above, -1))
    return set_c, SiteRows(balance, room)


def pace(problem: SiteProblem) -> float:
    """Temperature rise of the room per kilowatt in an explicit step."""
    return problem.dt_hours / problem.substeps / problem.values["heat_kwh_per_c"]


def server_prices(problem: SiteProblem, rows: SiteRows, dual: np.ndarray) -> np.ndarray:
    """Cost of power of servers in each step, (T,) [reward/MW], by multipliers of the rows that it enters."""
    v = problem.values
    room = dual[rows.room].reshape(problem.horizon, problem.substeps).sum(axis=1)
    cost: np.ndarray = (1 + v["aux_share"]) * dual[rows.balance] + pace(problem) * 1000 * v["air_share"] * room
    return cost


class Crowding(NamedTuple):
    """Room that running jobs can take from inference, which asks for more than it did when the last of them started.

    most:   (T,)    GPUs that jobs can hold
    share:  (T, A)  GPUs of inference that give way in a step to each GPU of a job which began A steps before, at most
    """

    most: np.ndarray
    share: np.ndarray


def crowding(problem: SiteProblem) -> Crowding:
    """GPUs of inference that running jobs push aside at most, whatever starts when.

    Jobs start beside the inference of their step. So those that run in t, the last of them started in s, hold no more
    GPUs than inference left free in s, nor than all jobs have that can have begun by s and still run in t:

        h_s = min(n - asked_s, sum of these)

    Going back from t, let h rise above h_0 = n - asked_t at s_1 > s_2 > ... to h_1 < h_2 < ..., and let r_k be the GPUs
    in t of jobs begun by s_k. Then jobs that hold r > h_0 push aside

        r - h_0  <=  sum_k (h_k - h_(k-1)) r_k / h_k,

    for with m the first k of h_k >= r all r_k up to it are r or more, and h_(m-1) - h_0 + (h_m - h_(m-1)) r / h_m
    exceeds r - h_0 by (1 - (h_m - h_(m-1)) / h_m) (h_m - r).
    """
    jobs, asked = problem.jobs, problem.serving
    free = problem.values["n_gpus"] - asked
    n, ages = len(asked), int(jobs.steps.max(initial=1))
    most, share = np.zeros(n), np.zeros((n, ages))
    for t in range(n):
        top = free[t]
        for age in range(min(ages, t + 1)):
            since = t - age
            running = np.maximum(jobs.arrival, t + 1 - jobs.steps) <= np.minimum(jobs.last, since)
            held = min(free[since], jobs.gpus[running].sum())
            most[t] = max(most[t], held)
            if held > top:
                share[t, age:] += (held - top) / held
                top = held
    return Crowding(most, share)


def solve_site(program: LinearProgram) -> Optimum:
    """Optimum of a program of a data centre. Raises SolverError when HiGHS does not reach it."""
    # with crossover: half the time of the simplex on these, and exact multipliers
    return solve(program, method="highs-ipm", hint=COOLING_EXISTS)


class JobStarts(NamedTuple):
    """All ways to start a job, and the order of the queues.

    job, step:  (S,)  a start, those of a job side by side and in order
    first:      (J,)  position of a job's first start
    ahead, behind, since, until:  (P,)  of two jobs, both queued from `since` to `until`, the one behind starts in that
                time only if the one ahead has started
    """

    job: np.ndarray
    step: np.ndarray
    first: np.ndarray
    ahead: np.ndarray
    behind: np.ndarray
    since: np.ndarray
    until: np.ndarray


def list_starts(problem: SiteProblem, slots: int) -> JobStarts:
    """Starts of every job while it is queued.

    slots:  places of a queue; where more jobs than that could wait the order of the queue is left out, for a job that
            finds no place stands in nobody's way; 0 leaves it out in any case
    """
    jobs = problem.jobs
    width = np.maximum(jobs.last - jobs.arrival + 1, 0).astype(int)
    first = np.cumsum(width) - width
    job = np.repeat(np.arange(len(width)), width)
    step = jobs.arrival[job] + np.arange(len(job)) - first[job]
    leaves = leaving_step(problem)
    pairs = [pair for kind in np.unique(jobs.kind) for pair in _pairs(jobs, leaves, jobs.kind == kind, slots)]
    table = np.array(pairs, int).reshape(-1, 4)
    return JobStarts(job, step, first, *table.T)


def leaving_step(problem: SiteProblem) -> np.ndarray:
    """Step (J,) at whose end a job leaves the queue: its deadline lies in it, or it is the last."""
    last = np.ceil(problem.jobs.due_min / (60 * problem.dt_hours)).astype(int) - 1
    return np.minimum(last, problem.horizon - 1)


def _pairs(jobs: JobList, leaves: np.ndarray, ours: np.ndarray, slots: int) -> list[tuple[int, int, int, int]]:
    """(ahead, behind, since, until) of one class, one row for every step up to which both may wait, but for those
    that follow from others: no share of a start changes when they are left out.
    """
    ids = np.flatnonzero(ours)
    steps = np.arange(leaves.max(initial=0) + 1)
    waiting = (jobs.arrival[ids, None] <= steps) & (steps <= leaves[ids, None])
    if waiting.sum(axis=0).max(initial=0) > slots:
        return []
    order = ids[np.argsort(jobs.due_min[ids], kind="stable")]
    found = []
    for k, ahead in enumerate(order):
        since = np.maximum(jobs.arrival[ahead], jobs.arrival[order[k + 1 :]])
        until = np.minimum(leaves[ahead], jobs.last[order[k + 1 :]])
        came = jobs.arrival[order[k + 1 :]]
        for place, (behind, low, high) in enumerate(zip(order[k + 1 :], since, until, strict=True)):
            # a third job that came after the one ahead, and waits between the two up to that step, hands its row on
            between = slice(0, place)
            links = (came[between] >= jobs.arrival[ahead]) & (came[between] <= low)
            handed_on = until[between][links].max(initial=-1)
            found += [(ahead, behind, low, t) for t in range(max(low, handed_on + 1), high + 1)]
    return found


def write_starts(
    writer: ProgramWriter, problem: SiteProblem, starts: JobStarts, rows: SiteRows, fewest_misses: int = 0
) -> None:
    """Write jobs of which a share x may start in any step, and then runs to its end.

    fewest_misses:  known of whole jobs [-], which shares of jobs might avoid

    A run of whole jobs is a point of it:
        sum_s x_js + undone_j = 1                         one start, or none
        running_t = running_(t-1) + GPUs that start in t - GPUs that end before t, by class
        sum of running_t <= n - asked_t + aside_t         aside_t as `crowding` has it
        sum_(since <= s <= until) x_behind,s <= sum_(s <= until) x_ahead,s
    """
    jobs, n = problem.jobs, problem.horizon
    x = writer.columns(len(starts.job), start_cost(problem, starts.job, starts.step), 0, 1)
    room = crowding(problem)
    running = writer.columns((2, n), 0, 0, np.stack([room.most, room.most]))
    kind, gpus = jobs.kind[starts.job], jobs.gpus[starts.job]
    change = writer.rows((2, n), 0, 0, (running, 1))
    writer.put(change[kind, starts.step], x, -gpus)
    writer.put(change[:, 1:], running[:, :-1], -1)
    end = starts.step + jobs.steps[starts.job].astype(int)
    inside = end < n
    writer.put(change[kind[inside], end[inside]], x[inside], gpus[inside])
    for columns, power_mw in zip(running, problem.job_mw_per_gpu, strict=True):
        enter_power(writer, problem, rows, np.arange(n), columns, np.full(n, power_mw))
    free = problem.values["n_gpus"] - problem.serving
    aside = writer.columns(n, 0, 0, np.maximum(room.most - free, 0))
    enter_power(writer, problem, rows, np.arange(n), aside, np.full(n, -infer_mw_per_gpu(problem)))
    writer.rows(n, -np.inf, np.minimum(room.most, free), (running[0], 1), (running[1], 1), (aside, -1))
    given = writer.rows(n, -np.inf, 0, (aside, 1))
    _give_way(writer, problem, starts, room.share, given, x)
    undone = writer.columns(len(starts.first), problem.weight * undone_usd(problem), 0, 1)
    one = writer.rows(len(undone), 1, 1, (undone, 1))
    writer.put(one[starts.job], x, 1)
    if fewest_misses:
        late = x[starts_late(problem, starts.job, starts.step)]
        never = undone[problem.jobs.priced]
        writer.rows(1, fewest_misses, np.inf, (late[:, None], 1), (never[:, None], 1))
    write_order(writer, problem, starts, x)


def steps_within(problem: SiteProblem, starts: JobStarts) -> np.ndarray:
    """Steps within the horizon that each start runs for, (S,)."""
    return np.minimum(problem.jobs.steps[starts.job], problem.horizon - starts.step).astype(int)


def _give_way(
    writer: ProgramWriter, problem: SiteProblem, starts: JobStarts, share: np.ndarray, given: np.ndarray, x: np.ndarray
) -> None:
    """Let running jobs push inference aside in the rows given (T,), by `crowding.share` of their age; x (S,) starts."""
    runs = steps_within(problem, starts)
    start = np.repeat(np.arange(len(x)), runs)
    age = np.arange(len(start)) - np.repeat(np.cumsum(runs) - runs, runs)
    step = starts.step[start] + age
    gpus = problem.jobs.gpus[starts.job[start]] * share[step, age]
    some = gpus > 0
    writer.put(given[step[some]], x[start[some]], -gpus[some])


def enter_power(
    writer: ProgramWriter, problem: SiteProblem, rows: SiteRows, step: np.ndarray, column: np.ndarray, mw: np.ndarray
) -> None:
    """Let power of servers enter the balance and warm the room."""
    v = problem.values
    writer.put(rows.balance[step], column, -(1 + v["aux_share"]) * mw)
    for part in range(problem.substeps):
        at = rows.room[problem.substeps * step + part]
        writer.put(at, column, -pace(problem) * 1000 * v["air_share"] * mw)


def start_cost(problem: SiteProblem, job: np.ndarray, step: np.ndarray) -> np.ndarray:
    """Cost of starts (S,) beside their energy: the miss if one comes too late, and work left at the horizon."""
    jobs, minutes = problem.jobs, 60 * problem.dt_hours
    until_end = (problem.horizon - step) * minutes
    late = starts_late(problem, job, step)
    unfinished = jobs.steps[job] * minutes > until_end
    left_min = np.where(unfinished, np.maximum(jobs.duration_min[job] - until_end, 0), 0)
    backlog = problem.backlog_usd_per_gpu_h * jobs.gpus[job] * left_min / 60
    cost: np.ndarray = problem.weight * (problem.missed_usd * late + backlog)
    return cost


def starts_late(problem: SiteProblem, job: np.ndarray, step: np.ndarray) -> np.ndarray:
    """Starts (S,), true for those that end after their deadline and are counted as misses."""
    jobs, minutes = problem.jobs, 60 * problem.dt_hours
    late: np.ndarray = step * minutes + jobs.duration_min[job] > jobs.due_min[job] + CLOCK_MIN
    return late & jobs.priced[job]


def undone_usd(problem: SiteProblem) -> np.ndarray:
    """Cost of a job that is never started, (J,) [$]."""
    jobs = problem.jobs
    work = jobs.gpus * jobs.duration_min / 60
    dropped = problem.missed_usd + problem.dropped_usd_per_gpu_h * work
    return np.where(jobs.priced, dropped, problem.backlog_usd_per_gpu_h * work)


def write_order(writer: ProgramWriter, problem: SiteProblem, starts: JobStarts, x: np.ndarray) -> None:
    """Write the order of the queues."""
    arrival = problem.jobs.arrival
    count = len(starts.ahead)
    row = writer.rows(count, 0, 0)
    for job, since, sign in ((starts.behind, starts.since, 1.0), (starts.ahead, arrival[starts.ahead], -1.0)):
        size = starts.until - since + 1
        at = np.repeat(np.arange(count), size)
        step = since[at] + np.arange(len(at)) - np.repeat(np.cumsum(size) - size, size)
        writer.put(row[at], x[starts.first[job[at]] + step - arrival[job[at]]], sign)
    writer.put(row, writer.columns(count, 0, 0, 1), 1)
