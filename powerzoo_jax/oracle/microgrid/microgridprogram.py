"""Linear programmes of the microgrid: dispatch and cooling for given jobs, and a relaxation over all jobs."""

from __future__ import annotations

import numpy as np

from powerzoo_jax.oracle.datacenter.program import (
    TOO_HOT_C,
    Sheet,
    idle_it_mw,
    most_heat_kw,
    room_rows,
    write_jobs,
    write_room,
)
from powerzoo_jax.oracle.datacenter.program import solve as solve
from powerzoo_jax.oracle.microgrid.problem import MicrogridProblem
from powerzoo_jax.oracle.storage.program import Program

SUPPLY_ROWS = 2  # balance and store, for every step


def dispatch_program(problem: MicrogridProblem, it_mw: np.ndarray) -> tuple[Program, dict[str, np.ndarray]]:
    """Cheapest battery, diesel and set-points for servers that draw it_mw (T,), the room below its critical limit.

    Exact: a step of the environment is linear in these columns. Returns their positions by name as well.
    """
    sheet = Sheet(_plant_rows(problem))
    columns = _write_plant(sheet, problem, it_mw, problem.values["t_critical_c"])
    return sheet.program(), columns


def _plant_rows(problem: MicrogridProblem) -> int:
    return SUPPLY_ROWS * problem.horizon + room_rows(problem)


def _write_plant(sheet: Sheet, problem: MicrogridProblem, it_mw: np.ndarray, hottest_c: float) -> dict[str, np.ndarray]:
    """Write the plant's rows for a given IT power, costs in units of the reward: positions of the columns by name."""
    v, dt, n = problem.values, problem.dt_hours, problem.horizon
    money = problem.weight
    balance, stored = np.arange(n), n + np.arange(n)
    wear = money * v["degradation_per_mwh"] * dt
    least, most, start = (v["capacity_mwh"] * v[k] for k in ("soc_min", "soc_max", "soc_start"))
    settle = np.zeros(n)
    settle[-1] = -money * problem.fuel_usd_per_mwh / v["eta_discharge"]
    largest = 10 * (it_mw.max() + most_heat_kw(problem, hottest_c) / 1000)
    col = {
        "charge": sheet.columns(n, wear, 0, v["power_mw"]),
        "discharge": sheet.columns(n, wear, 0, v["power_mw"]),
        "energy": sheet.columns(n, settle, least, most),
        "diesel": sheet.columns(n, money * problem.usd_per_mwh * dt, 0, v["diesel_mw"]),
        "unserved": sheet.columns(n, money * v["voll"] * dt, 0, largest),
        "sun": sheet.columns(n, 0, 0, problem.sun_mw),
    }
    for name, sign in (("sun", 1), ("discharge", 1), ("charge", -1), ("diesel", 1), ("unserved", 1)):
        sheet.put(balance, col[name], sign)
    sheet.right[balance] = (1 + v["aux_share"]) * it_mw
    # energy' = energy + dt (eta_c charge - discharge / eta_d)
    sheet.put(stored, col["energy"], 1)
    sheet.put(stored[1:], col["energy"][:-1], -1)
    sheet.put(stored, col["charge"], -dt * v["eta_charge"])
    sheet.put(stored, col["discharge"], dt / v["eta_discharge"])
    sheet.right[stored[0]] = start
    return col | write_room(sheet, problem, it_mw, hottest_c, balance, SUPPLY_ROWS * n)


def relaxed_program(problem: MicrogridProblem, missed_usd: float) -> Program:
    """A programme whose optimum no policy beats: jobs as `write_jobs` has them, and the room may heat up.

    missed_usd:  price of a miss [$]
    """
    n = problem.horizon
    sheet = Sheet(_plant_rows(problem) + n + len(problem.jobs.gpus))
    _write_plant(sheet, problem, idle_it_mw(problem), TOO_HOT_C)
    write_jobs(sheet, problem, missed_usd, np.arange(n), SUPPLY_ROWS * n, _plant_rows(problem))
    return sheet.program()
