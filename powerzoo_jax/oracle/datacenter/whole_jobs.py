"""Whole jobs at prices of power by constraint programming, and a bound of plant and jobs apart.

Power of servers is all that ties jobs to the plant. With prices p_t of it [reward/MW] (Lagrangian decomposition)

    min over both (plant(power) + jobs(power))  >=  min (plant(power) - p' power)  +  min (jobs + p' power)

for every p: the plant is bounded by weak duality, the jobs by CP-SAT over whole starts. At the multipliers of the
relaxation of both together the sum is no less than its optimum. Where more work arrives than fits, jobs are told apart
by what fits beside what: rows of a linear program do not see that, the cumulative constraint does. Beside the order of
the queues it also shows, in seconds, that a day has misses which no starts avoid.
Source: Guignard and Kim 1987, doi:10.1007/BF02592954; Aggoun and Beldiceanu 1993, doi:10.1016/0895-7177(93)90068-A.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from powerzoo_jax.base.errors import SolverError, missing_extra
from powerzoo_jax.oracle.datacenter.problem import SiteProblem
from powerzoo_jax.oracle.datacenter.program import (
    Crowding,
    JobStarts,
    SiteRows,
    crowding,
    enter_power,
    infer_mw_per_gpu,
    leaving_step,
    solve_site,
    start_cost,
    starts_late,
    steps_within,
    undone_usd,
)
from powerzoo_jax.oracle.linear_program import ProgramWriter, dual_bound

HALF_GPU = 0.5  # sums of GPUs are whole numbers
ENOUGH = 0.005  # of a search: relative gap at which it ends
GRAIN = 1e-6  # [reward] of costs: those of CP-SAT are whole numbers
SAME = 1e-6  # of whole numbers in floats
SEED = 0
WORKERS = 1  # the same starts from run to run


class WholeJobs(NamedTuple):
    """Whole job starts at prices of power.

    gpus:   (T, 2)  of training and fine-tuning jobs that start in each step
    cost:   of the starts, their power included [reward];  bound: no starts cost less
    """

    gpus: np.ndarray
    cost: float
    bound: float


def plant_bound(writer: ProgramWriter, rows: SiteRows, problem: SiteProblem, price: np.ndarray) -> float:
    """Least cost of a plant that is paid price (T,) [reward/MW] for the power of servers beside idle ones.

    writer, rows:  the plant beside idle servers; the columns of the power sold are added to it
    """
    most = crowding(problem).most
    least = -infer_mw_per_gpu(problem) * np.maximum(problem.serving + most - problem.values["n_gpus"], 0)
    power = writer.columns(problem.horizon, -price, least, most * max(problem.job_mw_per_gpu))
    enter_power(writer, problem, rows, np.arange(problem.horizon), power, np.ones(problem.horizon))
    program = writer.program()
    return dual_bound(program, solve_site(program).dual)


@dataclass(frozen=True, eq=False)
class _StartCosts:
    """Cost of a choice among the starts of an episode [reward]: of each start (S,), and of each job left undone (J,).

    Running jobs push inference aside and save its power, at most what `program.crowding` has; that is linear in what
    runs, and part of the cost of a start.
    """

    problem: SiteProblem
    starts: JobStarts
    price: np.ndarray

    @cached_property
    def room(self) -> Crowding:
        return crowding(self.problem)

    @cached_property
    def runs(self) -> np.ndarray:
        return steps_within(self.problem, self.starts)

    @cached_property
    def start(self) -> np.ndarray:
        problem, job, step = self.problem, self.starts.job, self.starts.step
        jobs = problem.jobs
        saved = infer_mw_per_gpu(problem) * np.maximum(self.price, 0)[:, None] * self.room.share
        aged = np.zeros((problem.horizon + 1, saved.shape[1] + 1))  # of jobs of that age that begin in a step
        for age in range(saved.shape[1]):
            aged[: problem.horizon - age, age + 1] = saved[age:, age]
        aged = aged.cumsum(axis=1)
        mw = np.asarray(problem.job_mw_per_gpu)[jobs.kind]
        upto = np.append(0, np.cumsum(self.price))
        run = mw[job] * (upto[step + self.runs] - upto[step]) - aged[step, self.runs]
        cost: np.ndarray = start_cost(problem, job, step) + jobs.gpus[job] * run
        return cost

    @cached_property
    def late(self) -> np.ndarray:
        """Starts (S,) whose job is a miss."""
        return starts_late(self.problem, self.starts.job, self.starts.step)

    @cached_property
    def undone(self) -> np.ndarray:
        return self.problem.weight * undone_usd(self.problem)

    def left(self, begun: np.ndarray) -> np.ndarray:
        """Jobs (J,) without a start among those begun (S,)."""
        left = np.ones(len(self.undone), bool)
        left[self.starts.job[begun]] = False
        return left

    def cost(self, begun: np.ndarray) -> float:
        """Cost of starts (S,) bool, and of the jobs that they leave out."""
        return float(self.start[begun].sum() + self.undone[self.left(begun)].sum())


def plan_whole_jobs(
    problem: SiteProblem, starts: JobStarts, price: np.ndarray, gpus: np.ndarray, seconds: float
) -> WholeJobs:
    """Cheapest whole starts where power of servers costs price (T,) [reward/MW], in the order of the queues.

    gpus:     (T, 2)  of starts known, as `WholeJobs` has them, which the search begins at
    seconds:  of each of two searches; the bound holds whenever they end

    Raises ImportError without the extra `ortools`, SolverError where CP-SAT finds no starts in that time.
    """
    costs = _StartCosts(problem, starts, price)
    begun, bound = _search(costs, _begun(problem, starts, gpus), seconds)
    taken = np.zeros((problem.horizon, 2))
    jobs, of = problem.jobs, starts.job[begun]
    np.add.at(taken, (starts.step[begun], jobs.kind[of]), jobs.gpus[of])
    return WholeJobs(taken, costs.cost(begun), bound)


def fewest_misses(problem: SiteProblem, starts: JobStarts, known: int, seconds: float) -> int:
    """Misses [-] that no whole starts of an episode avoid, of at most as many as starts known have.

    starts:   in the order of the queues
    known:    misses [-] of some starts
    seconds:  [s]  of each search; one that ends without an answer proves nothing

    Raises ImportError without the extra `ortools`.
    """
    cp_model = _library()
    costs = _StartCosts(problem, starts, np.zeros(problem.horizon))
    for fewest in range(known):
        model, x, undone = _model(cp_model, costs)
        model.add(cp_model.LinearExpr.weighted_sum([*x, *undone], _missed(costs).tolist()) <= fewest)
        if _solver(cp_model, seconds).solve(model) != cp_model.INFEASIBLE:
            return fewest
    return known


def _missed(costs: _StartCosts) -> np.ndarray:
    """Misses (S + J,) of each start, and of each job left undone: 0 or 1."""
    return np.concatenate([costs.late, costs.problem.jobs.priced]).astype(int)


def _library() -> Any:
    try:
        from ortools.sat.python import cp_model
    except ImportError as err:
        raise ImportError(missing_extra("A plan of whole jobs", "ortools", "ortools")) from err
    return cp_model


def _solver(cp_model: Any, seconds: float) -> Any:
    """Search that gives the same answer from run to run, if it ends in time."""
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds, solver.parameters.relative_gap_limit = seconds, ENOUGH
    solver.parameters.num_workers, solver.parameters.random_seed = WORKERS, SEED
    return solver


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


def _search(costs: _StartCosts, known: np.ndarray, seconds: float) -> tuple[np.ndarray, float]:
    """Starts (S,) bool that CP-SAT finds, and a cost that none is below.

    How many jobs miss their deadline at least is asked first: a few large terms of the cost, which a search among all
    of them at once bounds badly.
    """
    cp_model = _library()
    model, x, undone = _model(cp_model, costs)
    columns = [*x, *undone]
    for column, value in zip(columns, np.concatenate([known, costs.left(known)]).tolist(), strict=True):
        model.add_hint(column, value)
    solver = _solver(cp_model, seconds)

    def least(worth: np.ndarray) -> float:
        """Bound on the sum of whole numbers (S + J,) of what is chosen, after a search for the least."""
        model.minimize(cp_model.LinearExpr.weighted_sum(columns, worth.tolist()))
        status = solver.solve(model)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            raise SolverError(
                f"CP-SAT ended with status {solver.status_name(status)} after {seconds:g} s. Give it more seconds."
            )
        return float(solver.best_objective_bound)

    missed = _missed(costs)
    if missed[: len(x)][known].any() or missed[len(x) :][costs.left(known)].any():
        fewest = int(np.ceil(least(missed) - SAME))
        model.add(cp_model.LinearExpr.weighted_sum(columns, missed.tolist()) >= fewest)
    # costs are rounded down, and so is the bound
    bound = GRAIN * least(np.floor(np.concatenate([costs.start, costs.undone]) / GRAIN).astype(int))
    return np.array([solver.boolean_value(column) for column in x], bool), bound


def _model(cp_model: Any, costs: _StartCosts) -> tuple[Any, list[Any], list[Any]]:
    """Whole starts as a model of CP-SAT: the model, and variables of the starts (S,) and of jobs never started (J,).

        sum_s x_js + undone_j = 1                                        one start, or none
        running_t = running_(t-1) + GPUs that start in t - GPUs that end before t
        running_t <= n - asked_t  where a job starts in t, else what could be started before
        sum_(since <= s <= until) x_behind,s <= sum_(s <= until) x_ahead,s  the order of the queues

    and running_t once more as a cumulative constraint over the runs.
    """
    problem, starts = costs.problem, costs.starts
    jobs, n, gpus = problem.jobs, problem.horizon, np.round(problem.jobs.gpus).astype(int).tolist()
    most = np.floor(costs.room.most + HALF_GPU).astype(int).tolist()
    free = np.floor(problem.values["n_gpus"] - problem.serving + HALF_GPU).astype(int).tolist()
    model = cp_model.CpModel()
    x = [model.new_bool_var("") for _ in starts.job]
    undone = [model.new_bool_var("") for _ in gpus]
    ways: list[list[int]] = [[] for _ in gpus]
    begin: list[list[int]] = [[] for _ in range(n)]
    end: list[list[int]] = [[] for _ in range(n + 1)]
    for s, (job, step, run) in enumerate(zip(starts.job.tolist(), starts.step.tolist(), costs.runs, strict=True)):
        ways[job].append(s)
        begin[step].append(s)
        end[step + run].append(s)
    runs, held = [], []
    for job, own in enumerate(ways):
        model.add_exactly_one([*(x[s] for s in own), undone[job]])
        if not own:
            continue
        steps = [int(starts.step[s]) for s in own]
        at, length = model.new_int_var_from_domain(cp_model.Domain.from_values(steps), ""), int(jobs.steps[job])
        for s, step in zip(own, steps, strict=True):
            model.add(at == step).only_enforce_if(x[s])
        runs.append(model.new_optional_interval_var(at, length, at + length, ~undone[job], ""))
        held.append(gpus[job])
    largest = max(most)
    for t in range(n):
        if most[t] < largest:
            runs.append(model.new_fixed_size_interval_var(t, 1, ""))
            held.append(largest - most[t])
    model.add_cumulative(runs, held, largest)
    before: Any = 0
    for t in range(n):
        running = model.new_int_var(0, most[t], "")
        added = sum(gpus[starts.job[s]] * x[s] for s in begin[t]) - sum(gpus[starts.job[s]] * x[s] for s in end[t])
        model.add(running == before + added)
        if begin[t]:
            starting = model.new_bool_var("")
            for s in begin[t]:
                model.add_implication(x[s], starting)
            model.add(running <= free[t]).only_enforce_if(starting)
        before = running
    for ahead, behind, since, until in zip(starts.ahead, starts.behind, starts.since, starts.until, strict=True):
        late = [x[s] for s in ways[behind] if since <= starts.step[s] <= until]
        if late:
            model.add(sum(late) <= sum(x[s] for s in ways[ahead] if starts.step[s] <= until))
    return model, x, undone
