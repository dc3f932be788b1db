"""Linear programmes of a data centre: the rows of its room, those of its jobs, and the solver.

Rows of a linear programme for jobs that run in one piece and start in the order of their queue.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from powerzoo_jax.base.errors import SolverError
from powerzoo_jax.devices.jobs import CLOCK_MIN
from powerzoo_jax.oracle.datacenter.problem import JobList, SiteProblem
from powerzoo_jax.oracle.storage.problem import Program

TOO_HOT_C = 100.0  # above every temperature that a room with a working set-point reaches
ROOM_ROWS = ("room", "removed", "fan")


class Sheet:
    """Linear programme under construction: minimise cost @ x, equal @ x = right, low <= x <= high."""

    def __init__(self, n_row: int) -> None:
        self.n_row = n_row
        self.cost: list[np.ndarray] = []
        self.low: list[np.ndarray] = []
        self.high: list[np.ndarray] = []
        self.size = 0
        self.entries: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self.right = np.zeros(n_row)

    def columns(self, count: int, cost: Any, low: Any, high: Any) -> np.ndarray:
        """Add columns and return their positions."""
        for store, value in ((self.cost, cost), (self.low, low), (self.high, high)):
            store.append(np.broadcast_to(np.asarray(value, np.float64), count))
        self.size += count
        return np.arange(self.size - count, self.size)

    def put(self, row: np.ndarray, column: np.ndarray, value: Any) -> None:
        """Set coefficients."""
        self.entries.append((row, column, np.broadcast_to(np.asarray(value, np.float64), row.shape)))

    def program(self) -> Program:
        """The programme written so far."""
        from scipy import sparse

        row, column, value = (np.concatenate(parts) for parts in zip(*self.entries, strict=True))
        equal = sparse.csc_matrix((value, (row, column)), shape=(self.n_row, self.size))
        return Program(
            np.concatenate(self.cost), equal, self.right, np.concatenate(self.low), np.concatenate(self.high)
        )


def idle_it_mw(problem: SiteProblem) -> np.ndarray:
    """Power of servers that run no job, (T,) [MW]."""
    v = problem.values
    serving = problem.serving * (v["active_w"] * v["infer_eta"] - v["idle_w"])
    return (v["n_gpus"] * v["idle_w"] + serving) / 1e6 + v["base_mw"]


def room_rows(problem: SiteProblem) -> int:
    """Rows that `write_room` writes."""
    return len(ROOM_ROWS) * problem.horizon * problem.substeps


def most_heat_kw(problem: SiteProblem, hottest_c: float) -> float:
    """Heat that the coil removes from a room at its hottest."""
    return problem.values["ua_kw_per_c"] * (hottest_c - problem.values["set_low_c"])


def write_room(
    sheet: Sheet,
    problem: SiteProblem,
    it_mw: np.ndarray,
    hottest_c: float,
    balance: np.ndarray,
    first_row: int,
    *,
    spare_fan_mw: np.ndarray | None = None,
    held_set: bool = True,
) -> dict[str, np.ndarray]:
    """Write the room for a given IT power (T,), cooling into the rows `balance` (T,): positions of columns by name.

    hottest_c:     upper limit of the room
    first_row:     of the rows of the room, one of each kind for every explicit step of the temperature
    spare_fan_mw:  (T,)  most that fans draw beyond the heat they remove; None = any
    held_set:      one set-point a step, as the environment has it; False = one for every explicit step
    """
    v, n, count = problem.values, problem.horizon, problem.horizon * problem.substeps
    at = {name: first_row + k * count + np.arange(count) for k, name in enumerate(ROOM_ROWS)}
    step = np.repeat(np.arange(n), problem.substeps)
    big_kw = most_heat_kw(problem, hottest_c)
    most_mw = big_kw / 1000 + v["cool_min_mw"]
    spare = most_mw if spare_fan_mw is None else np.minimum(spare_fan_mw, most_mw)[step]
    col = {
        "heat": sheet.columns(count, 0, 0, big_kw),
        "cooling": sheet.columns(count, 0, v["cool_min_mw"], most_mw),
        "idle_fan": sheet.columns(count, 0, 0, spare),
        "zone": sheet.columns(count, 0, v["set_low_c"], hottest_c),
        "set": sheet.columns(n if held_set else count, 0, v["set_low_c"], v["set_high_c"]),
    }
    sheet.put(balance[step], col["cooling"], -1 / problem.substeps)
    # C (T' - T) / dt = 1000 P_it air - heat + wall (T_out - T)
    degrees = pace(problem)
    keep = 1 - degrees * v["wall_kw_per_c"]
    sheet.put(at["room"], col["zone"], 1)
    sheet.put(at["room"][1:], col["zone"][:-1], -keep)
    sheet.put(at["room"], col["heat"], degrees)
    warming = 1000 * v["air_share"] * it_mw + v["wall_kw_per_c"] * problem.t_outdoor_c
    sheet.right[at["room"]] = degrees * warming[step]
    sheet.right[at["room"][0]] += keep * v["t_initial_c"]
    # heat = UA (T - set): with heat >= 0 the set-point need not be above the room
    sheet.put(at["removed"], col["heat"], 1)
    sheet.put(at["removed"], col["set"][step] if held_set else col["set"], v["ua_kw_per_c"])
    sheet.put(at["removed"][1:], col["zone"][:-1], -v["ua_kw_per_c"])
    sheet.right[at["removed"][0]] = v["ua_kw_per_c"] * v["t_initial_c"]
    # cooling >= heat / COP
    sheet.put(at["fan"], col["cooling"], 1)
    sheet.put(at["fan"], col["heat"], -1 / (1000 * problem.chiller_cop[step]))
    sheet.put(at["fan"], col["idle_fan"], -1)
    return col


def pace(problem: SiteProblem) -> float:
    """Temperature rise of the room per kilowatt in an explicit step."""
    return problem.dt_hours / problem.substeps / problem.values["heat_kwh_per_c"]


def write_jobs(
    sheet: Sheet, problem: SiteProblem, missed_usd: float, balance: np.ndarray, room: int, first_row: int
) -> None:
    """Write jobs that may be split, pre-empted and run in part.

    missed_usd:  price of a miss [$]
    balance:     rows (T,) that power enters;  room: first row of the room's temperature
    first_row:   of T rows of GPUs and one row for each job
    A run of a job is a point of it: x_jt in [0, 1] is the share of its GPUs that work in step t. Inference that
    running jobs push aside is bounded by the line under min(asked, GPUs left), which is what the step serves.
    """
    jobs, n = problem.jobs, problem.horizon
    v, count = problem.values, len(problem.jobs.gpus)
    width = np.maximum(jobs.last - jobs.arrival + 1, 0)
    of = np.repeat(np.arange(count), width)
    step = jobs.arrival[of] + np.arange(len(of)) - np.repeat(np.cumsum(width) - width, width)
    most = most_running(problem, int(jobs.steps.max(initial=1)))
    displaced = np.maximum(problem.serving + most - v["n_gpus"], 0) / most
    infer_mw = (v["active_w"] * v["infer_eta"] - v["idle_w"]) / 1e6
    power = jobs.gpus[of] * (np.asarray(problem.job_mw_per_gpu)[jobs.kind[of]] - displaced[step] * infer_mw)
    share = sheet.columns(len(of), 0, 0, 1)
    sheet.put(balance[step], share, -(1 + v["aux_share"]) * power)
    warming = -pace(problem) * 1000 * v["air_share"] * power
    for part in range(problem.substeps):
        sheet.put(room + problem.substeps * step + part, share, warming)
    left = sheet.columns(n, 0, 0, most)
    sheet.put(first_row + step, share, jobs.gpus[of])
    sheet.put(first_row + np.arange(n), left, 1)
    sheet.right[first_row : first_row + n] = most
    job_row = first_row + n + np.arange(count)
    need = np.where(jobs.priced, jobs.steps, jobs.duration_min / (60 * problem.dt_hours))
    hours = jobs.gpus * jobs.duration_min / 60
    price = np.where(jobs.priced, missed_usd, problem.backlog_usd_per_gpu_h * hours)
    undone = sheet.columns(count, problem.weight * price, 0, 1)
    sheet.put(job_row[of], share, 1)
    sheet.put(job_row, undone, need)
    sheet.right[job_row] = need


def most_running(problem: SiteProblem, longest: int) -> np.ndarray:
    """GPUs that jobs can hold, (T,): a job started within its longest run ago, beside the inference of that step."""
    asked = problem.serving
    least = np.array([asked[max(0, t - longest + 1) : t + 1].min() for t in range(len(asked))])
    return problem.values["n_gpus"] - least


def solve(program: Program) -> tuple[np.ndarray, np.ndarray]:
    """Optimal point and multipliers by HiGHS. Raises SolverError when it does not reach the optimum."""
    from scipy.optimize import linprog

    result = linprog(
        program.cost,
        A_eq=program.equal,
        b_eq=program.right,
        bounds=np.column_stack([program.low, program.high]),
        method="highs-ipm",  # with crossover: half the time of the simplex on these, and exact multipliers
    )
    if result.status != 0:
        raise SolverError(
            f"HiGHS stopped with status {result.status} ({result.message}) on an episode of a data centre. A plan that "
            "cools enough always exists, so look for a critical temperature below the initial one."
        )
    return np.asarray(result.x), np.asarray(result.eqlin.marginals)


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

    def rows(self, horizon: int) -> int:
        """Rows that `write_starts` writes: GPUs and inference of each step, one a job, one a pair."""
        return 2 * horizon + len(self.first) + len(self.ahead)


def list_starts(problem: SiteProblem, slots: int) -> JobStarts:
    """Starts of every job while it is queued.

    slots:  places of a queue; where more jobs than that could wait the order of the queue is left out, for a job that
            finds no place stands in nobody's way
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
    """(ahead, behind, since, until) of one class, one row for every step up to which both may wait."""
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
        for behind, low, high in zip(order[k + 1 :], since, until, strict=True):
            found += [(ahead, behind, low, t) for t in range(low, high + 1)]
    return found


def write_starts(
    sheet: Sheet, problem: SiteProblem, starts: JobStarts, balance: np.ndarray, room: int, first_row: int
) -> None:
    """Write jobs of which a share x may start in any step, and then runs to its end.

    balance:    rows (T,) that power enters;  room: first row of the room's temperature
    first_row:  of `starts.rows` rows
    A run of whole jobs is a point of it:
        sum_s x_js + undone_j = 1                         one start, or none
        running_t = sum of GPUs over starts that still run in t, at most what inference left free when they started
        sum_(since <= s <= until) x_behind,s <= sum_(s <= until) x_ahead,s
    Inference that running jobs push aside is at most the chord of asked - min(asked, GPUs left).
    """
    jobs, n, v = problem.jobs, problem.horizon, problem.values
    x = sheet.columns(len(starts.job), start_cost(problem, starts.job, starts.step), 0, 1)
    runs = np.minimum(jobs.steps[starts.job], n - starts.step).astype(int)
    at = np.repeat(np.arange(len(runs)), runs)
    step = starts.step[at] + np.arange(len(at)) - np.repeat(np.cumsum(runs) - runs, runs)
    of = starts.job[at]
    power = jobs.gpus[of] * np.asarray(problem.job_mw_per_gpu)[jobs.kind[of]]
    _enter(sheet, problem, balance, room, step, x[at], power)
    most = most_running(problem, int(jobs.steps.max(initial=1)))
    gpus, served = first_row + np.arange(n), first_row + n + np.arange(n)
    left = sheet.columns(n, 0, 0, most)
    sheet.put(first_row + step, x[at], jobs.gpus[of])
    sheet.put(gpus, left, 1)
    sheet.right[gpus] = most
    aside_most = np.maximum(problem.serving + most - v["n_gpus"], 0)
    aside, spare = sheet.columns(n, 0, 0, aside_most), sheet.columns(n, 0, 0, aside_most)
    infer_mw = (v["active_w"] * v["infer_eta"] - v["idle_w"]) / 1e6
    _enter(sheet, problem, balance, room, np.arange(n), aside, np.full(n, -infer_mw))
    sheet.put(served, aside, 1)
    sheet.put(served, spare, 1)
    sheet.put(served, left, aside_most / most)
    sheet.right[served] = aside_most
    one = first_row + 2 * n + np.arange(len(starts.first))
    undone = sheet.columns(len(one), problem.weight * undone_usd(problem), 0, 1)
    sheet.put(one[starts.job], x, 1)
    sheet.put(one, undone, 1)
    sheet.right[one] = 1
    _write_order(sheet, problem, starts, x, first_row + 2 * n + len(one))


def _enter(
    sheet: Sheet,
    problem: SiteProblem,
    balance: np.ndarray,
    room: int,
    step: np.ndarray,
    column: np.ndarray,
    mw: np.ndarray,
) -> None:
    """Let power of servers enter the balance and warm the room."""
    v = problem.values
    sheet.put(balance[step], column, -(1 + v["aux_share"]) * mw)
    for part in range(problem.substeps):
        sheet.put(room + problem.substeps * step + part, column, -pace(problem) * 1000 * v["air_share"] * mw)


def start_cost(problem: SiteProblem, job: np.ndarray, step: np.ndarray) -> np.ndarray:
    """Cost of starts (S,) beside their energy: the miss if one comes too late, and work left at the horizon."""
    jobs, minutes = problem.jobs, 60 * problem.dt_hours
    until_end = (problem.horizon - step) * minutes
    late = step * minutes + jobs.duration_min[job] > jobs.due_min[job] + CLOCK_MIN
    unfinished = jobs.steps[job] * minutes > until_end
    left_min = np.where(unfinished, np.maximum(jobs.duration_min[job] - until_end, 0), 0)
    backlog = problem.backlog_usd_per_gpu_h * jobs.gpus[job] * left_min / 60
    cost: np.ndarray = problem.weight * (problem.missed_usd * (late & jobs.priced[job]) + backlog)
    return cost


def undone_usd(problem: SiteProblem) -> np.ndarray:
    """Cost of a job that is never started, (J,) [$]."""
    jobs = problem.jobs
    backlog = problem.backlog_usd_per_gpu_h * jobs.gpus * jobs.duration_min / 60
    return np.where(jobs.priced, problem.missed_usd, backlog)


def _write_order(sheet: Sheet, problem: SiteProblem, starts: JobStarts, x: np.ndarray, first_row: int) -> None:
    """Write the order of the queues."""
    arrival = problem.jobs.arrival
    count = len(starts.ahead)
    row = first_row + np.arange(count)
    for job, since, sign in ((starts.behind, starts.since, 1.0), (starts.ahead, arrival[starts.ahead], -1.0)):
        size = starts.until - since + 1
        at = np.repeat(np.arange(count), size)
        step = since[at] + np.arange(len(at)) - np.repeat(np.cumsum(size) - size, size)
        sheet.put(row[at], x[starts.first[job[at]] + step - arrival[job[at]]], sign)
    sheet.put(row, sheet.columns(count, 0, 0, 1), 1)
