"""Integer program of whole jobs at prices of power, and a bound of plant and jobs apart (Lagrangian decomposition).

Power of servers is all that ties jobs to the plant. With prices p_t of it [reward/MW]

    min over both (plant(power) + jobs(power))  >=  min (plant(power) - p' power)  +  min (jobs + p' power)

for every p: the plant is bounded by weak duality, the jobs by branch and bound over whole starts. At the multipliers of
the relaxation of both together the sum is no less than its optimum.
Source: Guignard and Kim 1987, doi:10.1007/BF02592954.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from powerzoo_jax.base.errors import SolverError
from powerzoo_jax.oracle.datacenter.problem import SiteProblem
from powerzoo_jax.oracle.datacenter.program import (
    JobStarts,
    SiteRows,
    enter_power,
    infer_mw_per_gpu,
    leaving_step,
    most_running,
    pace,
    solve_site,
    start_cost,
    undone_usd,
    write_order,
)
from powerzoo_jax.oracle.linear_program import LinearProgram, ProgramWriter, dual_bound, solve

WINDOW, STRIDE = 14, 7  # steps whose starts are chosen anew together, and between two such windows
PASSES = 1  # over all windows
HALF_GPU = 0.5  # sums of GPUs are whole numbers
ENOUGH = 0.002  # of a search: relative gap at which it ends


class WholeJobs(NamedTuple):
    """Whole job starts at prices of power.

    gpus:   (T, 2)  of training and fine-tuning jobs that start in each step
    cost:   of the starts, their power included [reward];  bound: no starts cost less
    """

    gpus: np.ndarray
    cost: float
    bound: float


def server_prices(problem: SiteProblem, rows: SiteRows, dual: np.ndarray) -> np.ndarray:
    """Cost of power of servers in each step, (T,) [reward/MW], by multipliers of the rows that it enters."""
    v = problem.values
    room = dual[rows.room].reshape(problem.horizon, problem.substeps).sum(axis=1)
    cost: np.ndarray = (1 + v["aux_share"]) * dual[rows.balance] + pace(problem) * 1000 * v["air_share"] * room
    return cost


def plant_bound(writer: ProgramWriter, rows: SiteRows, problem: SiteProblem, price: np.ndarray) -> float:
    """Least cost of a plant that is paid price (T,) [reward/MW] for the power of servers beside idle ones.

    writer, rows:  the plant beside idle servers; the columns of the power sold are added to it
    """
    most = most_running(problem, int(problem.jobs.steps.max(initial=1)))
    least = -infer_mw_per_gpu(problem) * _aside_most(problem, most)
    power = writer.columns(problem.horizon, -price, least, most * max(problem.job_mw_per_gpu))
    enter_power(writer, problem, rows, np.arange(problem.horizon), power, np.ones(problem.horizon))
    program = writer.program()
    return dual_bound(program, solve_site(program).dual)


def _aside_most(problem: SiteProblem, most: np.ndarray) -> np.ndarray:
    """GPUs (T,) of inference that running jobs can push aside at most."""
    aside: np.ndarray = np.maximum(problem.serving + most - problem.values["n_gpus"], 0)
    return aside


@dataclass(frozen=True, eq=False)
class _Starts:
    """Integer program of an episode; columns of the starts (S,) and of jobs never started (J,)."""

    program: LinearProgram
    starts: JobStarts
    x: np.ndarray
    undone: np.ndarray

    def cost(self, begun: np.ndarray) -> float:
        """Cost of starts (S,) bool, and of the jobs that they leave out."""
        left = np.ones(len(self.undone), bool)
        left[self.starts.job[begun]] = False
        cost = self.program.cost
        return float(cost[self.x[begun]].sum() + cost[self.undone[left]].sum())


def plan_whole_jobs(
    problem: SiteProblem, starts: JobStarts, price: np.ndarray, gpus: np.ndarray, seconds: float
) -> WholeJobs:
    """Cheap whole starts where power of servers costs price (T,) [reward/MW], in the order of the queues.

    gpus:     (T, 2)  of starts known, as `WholeJobs` has them, which windows of a search over few steps better
    seconds:  of the search over all starts, which gives the bound, and of all windows in a pass

    Raises SolverError where HiGHS finds no starts in that time.
    """
    written = _write(problem, starts, price)
    found = solve(written.program, gap=ENOUGH, seconds=seconds)
    begun = np.round(found.x[written.x]) > 0
    if found.objective - found.bound > ENOUGH * abs(found.objective):
        known = _begun(problem, starts, gpus)
        begun = min((begun, known), key=lambda x: written.cost(x))
        begun = _bettered(problem, written, begun, seconds)
    taken = np.zeros((problem.horizon, 2))
    jobs, of = problem.jobs, starts.job[begun]
    np.add.at(taken, (starts.step[begun], jobs.kind[of]), jobs.gpus[of])
    return WholeJobs(taken, written.cost(begun), found.bound)


def _begun(problem: SiteProblem, starts: JobStarts, gpus: np.ndarray) -> np.ndarray:
    """Starts (S,), true for those that the queues make of GPUs (T, 2): in each step the first jobs by deadline."""
    jobs, leaves = problem.jobs, leaving_step(problem)
    begun = np.zeros(len(starts.job), bool)
    waiting = np.ones(len(jobs.gpus), bool)
    order = np.argsort(jobs.due_min, kind="stable")
    for step in range(problem.horizon):
        for kind in (0, 1):
            queue = order[waiting[order] & (jobs.kind[order] == kind)]
            queue = queue[(jobs.arrival[queue] <= step) & (leaves[queue] >= step)]
            first = queue[np.cumsum(jobs.gpus[queue]) < gpus[step, kind] + HALF_GPU]
            waiting[first] = False
            begun[starts.first[first] + step - jobs.arrival[first]] = True
    return begun


def _bettered(problem: SiteProblem, written: _Starts, begun: np.ndarray, seconds: float) -> np.ndarray:
    """Starts (S,) after windows of them were chosen anew, the others held: a large neighbourhood search."""
    jobs, starts = problem.jobs, written.starts
    firsts = range(0, max(problem.horizon - WINDOW, 0) + STRIDE, STRIDE)
    for _ in range(PASSES):
        before = written.cost(begun)
        for first in firsts:
            at = np.full(len(jobs.gpus), -1)
            at[starts.job[begun]] = starts.step[begun]
            inside = (first <= at) & (at < first + WINDOW)
            free = inside | ((at < 0) & (jobs.arrival < first + WINDOW) & (jobs.last >= first))
            kept = ~free[starts.job]
            low, high = written.program.low.copy(), written.program.high.copy()
            low[written.x[kept]] = high[written.x[kept]] = begun[kept]
            try:
                part = replace(written.program, low=low, high=high)
                found = solve(part, gap=ENOUGH / 10, seconds=seconds / len(firsts))
            except SolverError:  # no starts in that time
                continue
            new = np.round(found.x[written.x]) > 0
            if written.cost(new) < written.cost(begun):
                begun = new
        if written.cost(begun) == before:
            break
    return begun


def _write(problem: SiteProblem, starts: JobStarts, price: np.ndarray) -> _Starts:
    """Write starts, whole or none, with the room that inference leaves where one starts.

    running_t <= n - asked_t where a job starts in t, which y_t in {0, 1} tells; else what could be started before. What
    running jobs then push aside saves at most the chord of its power, as in `write_starts`.
    """
    jobs, n, v = problem.jobs, problem.horizon, problem.values
    writer, power = ProgramWriter(), jobs.gpus * np.asarray(problem.job_mw_per_gpu)[jobs.kind]
    runs = np.minimum(jobs.steps[starts.job], n - starts.step).astype(int)
    upto = np.append(0, np.cumsum(price))
    paid = power[starts.job] * (upto[starts.step + runs] - upto[starts.step])
    x = writer.columns(len(starts.job), start_cost(problem, starts.job, starts.step) + paid, 0, 1, whole=True)
    most = most_running(problem, int(jobs.steps.max(initial=1)))
    aside_most = _aside_most(problem, most)
    left = writer.columns(n, 0, 0, most)
    gpus = writer.rows(n, most, most, (left, 1))
    at = np.repeat(np.arange(len(runs)), runs)
    step = starts.step[at] + np.arange(len(at)) - np.repeat(np.cumsum(runs) - runs, runs)
    writer.put(gpus[step], x[at], jobs.gpus[starts.job[at]])
    saved = infer_mw_per_gpu(problem) * np.maximum(price, 0)
    aside = writer.columns(n, -saved, 0, aside_most)
    writer.rows(n, -np.inf, aside_most, (aside, 1), (left, aside_most / most))
    starting = writer.columns(n, 0, 0, 1, whole=True)
    writer.rows(n, 0, np.inf, (left, 1), (starting, -aside_most))
    begun = writer.rows(n, -np.inf, 0, (starting, -(v["n_gpus"] - problem.serving)))
    writer.put(begun[starts.step], x, jobs.gpus[starts.job])
    undone = writer.columns(len(starts.first), problem.weight * undone_usd(problem), 0, 1, whole=True)
    one = writer.rows(len(undone), 1, 1, (undone, 1))
    writer.put(one[starts.job], x, 1)
    write_order(writer, problem, starts, x)
    return _Starts(writer.program(), starts, x, undone)
