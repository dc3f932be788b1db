"""Linear programmes of a data centre: the rows of its room, those of its jobs, and the solver."""

from __future__ import annotations

from typing import Any

import numpy as np

from powerzoo_jax.base.errors import SolverError
from powerzoo_jax.oracle.datacenter.problem import SiteProblem
from powerzoo_jax.oracle.storage.program import Program

TOO_HOT_C = 100.0  # above every temperature that a room with a working set-point reaches
ROOM_ROWS = ("room", "removed", "fan")


class Sheet:
    """Rows and columns of a programme while it is written: minimise cost @ x, equal @ x = right, low <= x <= high."""

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
    """Degrees that a kilowatt warms the room by in an explicit step."""
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
