"""Linear programmes of the microgrid: dispatch and cooling for given jobs, and a relaxation over all jobs."""

from __future__ import annotations

from typing import Any

import numpy as np

from powerzoo_jax.base.errors import SolverError
from powerzoo_jax.oracle.microgridproblem import MicrogridProblem
from powerzoo_jax.oracle.program import Program

TOO_HOT_C = 100.0  # above every temperature that a room with a working set-point reaches
ROWS = ("balance", "store", "room", "removed", "fan")


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


def idle_it_mw(problem: MicrogridProblem) -> np.ndarray:
    """Power of servers that run no job, (T,) [MW]."""
    v = problem.values
    serving = problem.serving * (v["active_w"] * v["infer_eta"] - v["idle_w"])
    return (v["n_gpus"] * v["idle_w"] + serving) / 1e6 + v["base_mw"]


def dispatch_program(problem: MicrogridProblem, it_mw: np.ndarray) -> tuple[Program, dict[str, np.ndarray]]:
    """Cheapest battery, diesel and set-points for servers that draw it_mw (T,), the room below its critical limit.

    Exact: a step of the environment is linear in these columns. Returns their positions by name as well.
    """
    sheet = Sheet(len(ROWS) * problem.horizon)
    columns = _write_plant(sheet, problem, it_mw, problem.values["t_critical_c"])
    return sheet.program(), columns


def _write_plant(sheet: Sheet, problem: MicrogridProblem, it_mw: np.ndarray, hottest_c: float) -> dict[str, np.ndarray]:
    """Write the plant's rows for a given IT power, costs in units of the reward: positions of the columns by name."""
    v, dt, n = problem.values, problem.dt_hours, problem.horizon
    money = problem.weight
    at = {name: k * n + np.arange(n) for k, name in enumerate(ROWS)}
    wear = money * v["degradation_per_mwh"] * dt
    least, most, start = (v["capacity_mwh"] * v[k] for k in ("soc_min", "soc_max", "soc_start"))
    settle = np.zeros(n)
    settle[-1] = -money * problem.fuel_usd_per_mwh / v["eta_discharge"]
    big_kw = v["ua_kw_per_c"] * (hottest_c - v["set_low_c"])
    col = {
        "charge": sheet.columns(n, wear, 0, v["power_mw"]),
        "discharge": sheet.columns(n, wear, 0, v["power_mw"]),
        "energy": sheet.columns(n, settle, least, most),
        "diesel": sheet.columns(n, money * problem.usd_per_mwh * dt, 0, v["diesel_mw"]),
        "unserved": sheet.columns(n, money * v["voll"] * dt, 0, 10 * (it_mw.max() + big_kw / 1000)),
        "sun": sheet.columns(n, 0, 0, problem.sun_mw),
        "heat": sheet.columns(n, 0, 0, big_kw),
        "cooling": sheet.columns(n, 0, v["cool_min_mw"], big_kw / 1000 + v["cool_min_mw"]),
        "idle_fan": sheet.columns(n, 0, 0, big_kw / 1000 + v["cool_min_mw"]),
        "zone": sheet.columns(n, 0, v["set_low_c"], hottest_c),
        "set": sheet.columns(n, 0, v["set_low_c"], v["set_high_c"]),
    }
    for name, sign in (("sun", 1), ("discharge", 1), ("charge", -1), ("diesel", 1), ("unserved", 1), ("cooling", -1)):
        sheet.put(at["balance"], col[name], sign)
    sheet.right[at["balance"]] = (1 + v["aux_share"]) * it_mw
    # energy' = energy + dt (eta_c charge - discharge / eta_d)
    sheet.put(at["store"], col["energy"], 1)
    sheet.put(at["store"][1:], col["energy"][:-1], -1)
    sheet.put(at["store"], col["charge"], -dt * v["eta_charge"])
    sheet.put(at["store"], col["discharge"], dt / v["eta_discharge"])
    sheet.right[at["store"][0]] = start
    # C (T' - T) / dt = 1000 P_it air - heat + wall (T_out - T)
    pace = dt / v["heat_kwh_per_c"]
    keep = 1 - pace * v["wall_kw_per_c"]
    sheet.put(at["room"], col["zone"], 1)
    sheet.put(at["room"][1:], col["zone"][:-1], -keep)
    sheet.put(at["room"], col["heat"], pace)
    warming = 1000 * v["air_share"] * it_mw + v["wall_kw_per_c"] * problem.t_outdoor_c
    sheet.right[at["room"]] = pace * warming
    sheet.right[at["room"][0]] += keep * v["t_initial_c"]
    # heat = UA (T - set): with heat >= 0 the set-point need not be above the room
    sheet.put(at["removed"], col["heat"], 1)
    sheet.put(at["removed"], col["set"], v["ua_kw_per_c"])
    sheet.put(at["removed"][1:], col["zone"][:-1], -v["ua_kw_per_c"])
    sheet.right[at["removed"][0]] = v["ua_kw_per_c"] * v["t_initial_c"]
    # cooling >= heat / COP
    sheet.put(at["fan"], col["cooling"], 1)
    sheet.put(at["fan"], col["heat"], -1 / (1000 * problem.chiller_cop))
    sheet.put(at["fan"], col["idle_fan"], -1)
    return col


def relaxed_program(problem: MicrogridProblem, missed_usd: float) -> Program:
    """A programme whose optimum no policy beats: jobs may be split, pre-empted and run in part, the room may heat up.

    missed_usd:  price of a miss [$]
    A run of a job is a point of it: x_jt in [0, 1] is the share of its GPUs that work in step t. Inference that
    running jobs push aside is bounded by the line under min(asked, GPUs left), which is what the step serves.
    """
    jobs, n = problem.jobs, problem.horizon
    v, count = problem.values, len(problem.jobs.gpus)
    sheet = Sheet((len(ROWS) + 1) * n + count)
    _write_plant(sheet, problem, idle_it_mw(problem), TOO_HOT_C)
    width = np.maximum(jobs.last - jobs.arrival + 1, 0)
    of = np.repeat(np.arange(count), width)
    step = jobs.arrival[of] + np.arange(len(of)) - np.repeat(np.cumsum(width) - width, width)
    most = _most_running(problem, int(jobs.steps.max(initial=1)))
    displaced = np.maximum(problem.serving + most - v["n_gpus"], 0) / most
    infer_mw = (v["active_w"] * v["infer_eta"] - v["idle_w"]) / 1e6
    power = jobs.gpus[of] * (np.asarray(problem.job_mw_per_gpu)[jobs.kind[of]] - displaced[step] * infer_mw)
    share = sheet.columns(len(of), 0, 0, 1)
    pace = problem.dt_hours / v["heat_kwh_per_c"]
    sheet.put(step, share, -(1 + v["aux_share"]) * power)
    sheet.put(ROWS.index("room") * n + step, share, -pace * 1000 * v["air_share"] * power)
    room = sheet.columns(n, 0, 0, most)
    gpu_row = len(ROWS) * n
    sheet.put(gpu_row + step, share, jobs.gpus[of])
    sheet.put(gpu_row + np.arange(n), room, 1)
    sheet.right[gpu_row : gpu_row + n] = most
    job_row = gpu_row + n + np.arange(count)
    need = np.where(jobs.priced, jobs.steps, jobs.duration_min / (60 * problem.dt_hours))
    hours = jobs.gpus * jobs.duration_min / 60
    price = np.where(jobs.priced, missed_usd, problem.backlog_usd_per_gpu_h * hours)
    undone = sheet.columns(count, problem.weight * price, 0, 1)
    sheet.put(job_row[of], share, 1)
    sheet.put(job_row, undone, need)
    sheet.right[job_row] = need
    return sheet.program()


def _most_running(problem: MicrogridProblem, longest: int) -> np.ndarray:
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
            f"HiGHS stopped with status {result.status} ({result.message}) on a microgrid episode. A plan that sheds "
            "load always exists, so look for a critical temperature below the initial one."
        )
    return np.asarray(result.x), np.asarray(result.eqlin.marginals)
