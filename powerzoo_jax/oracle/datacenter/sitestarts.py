"""Rows of a linear programme for jobs that run in one piece and start in the order of their queue."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from powerzoo_jax.devices.jobs import CLOCK_MIN
from powerzoo_jax.oracle.datacenter.problem import JobList, SiteProblem
from powerzoo_jax.oracle.datacenter.program import Sheet, most_running, pace


class Starts(NamedTuple):
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


def list_starts(problem: SiteProblem, slots: int) -> Starts:
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
    return Starts(job, step, first, *table.T)


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
    sheet: Sheet, problem: SiteProblem, starts: Starts, balance: np.ndarray, room: int, first_row: int
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
    """What starts (S,) cost beside their energy: the miss if one comes too late, and work left at the horizon."""
    jobs, minutes = problem.jobs, 60 * problem.dt_hours
    until_end = (problem.horizon - step) * minutes
    late = step * minutes + jobs.duration_min[job] > jobs.due_min[job] + CLOCK_MIN
    unfinished = jobs.steps[job] * minutes > until_end
    left_min = np.where(unfinished, np.maximum(jobs.duration_min[job] - until_end, 0), 0)
    backlog = problem.backlog_usd_per_gpu_h * jobs.gpus[job] * left_min / 60
    cost: np.ndarray = problem.weight * (problem.missed_usd * (late & jobs.priced[job]) + backlog)
    return cost


def undone_usd(problem: SiteProblem) -> np.ndarray:
    """What a job costs that is never started, (J,) [$]."""
    jobs = problem.jobs
    backlog = problem.backlog_usd_per_gpu_h * jobs.gpus * jobs.duration_min / 60
    return np.where(jobs.priced, problem.missed_usd, backlog)


def _write_order(sheet: Sheet, problem: SiteProblem, starts: Starts, x: np.ndarray, first_row: int) -> None:
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
