"""Planning problem of a drawn data-centre microgrid episode on the host, as NumPy float64.

Linear programs of the microgrid: dispatch and cooling for given jobs, and a relaxation over all jobs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from powerzoo_jax.base.errors import SolverError
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.families.microgrid.env import CURVE, OUTDOOR, SUN, MicrogridEnv
from powerzoo_jax.oracle.datacenter.problem import SiteProblem, end_heat, list_jobs, refuse_cold, site_facts
from powerzoo_jax.oracle.datacenter.program import (
    TOO_HOT_C,
    SiteRows,
    idle_it_mw,
    list_starts,
    most_heat_kw,
    write_room,
    write_starts,
)
from powerzoo_jax.oracle.linear_program import LinearProgram, ProgramWriter


@dataclass(frozen=True, eq=False, kw_only=True)
class MicrogridProblem(SiteProblem):
    """One episode of the plant around the data centre.

    sun_mw:       offered sun, (T,)
    usd_per_mwh:  diesel energy with its carbon at the weight of the reward
    stored_usd_per_mwh: what settles the battery: the fuel, with its carbon where that settles too
    slots:        places of a queue
    """

    sun_mw: np.ndarray
    usd_per_mwh: float
    stored_usd_per_mwh: float
    slots: int


def build_microgrid_problem(sim: Sim, drawn: Draw) -> MicrogridProblem:
    """Read a drawn episode (no batch axis) out of a Sim.

    Raises SolverError for a task of another family, or for a room so cold that it could fall below its set-points.
    """
    if not isinstance(sim.env, MicrogridEnv):
        raise SolverError(f"task {sim.spec.id!r} is no data-centre microgrid. Use the oracle of its own family.")
    params, horizon = sim.params, sim.spec.horizon
    first, work_first = int(drawn.load_row), int(drawn.price_row)
    weather = np.asarray(params.bank.weather_rows[first : first + horizon], np.float64)
    work = np.asarray(params.bank.work_rows[work_first : work_first + horizon], np.float64)
    facts = site_facts(params.site, weather[:, OUTDOOR])
    values = facts["values"]
    values |= _ratings(params)
    values["soc_start"] = float(np.clip(drawn.soc[0], values["soc_min"], values["soc_max"]))
    weights = dict(zip(sim.spec.term_names, sim.spec.term_weights, strict=True))
    money = weights["fuel"]
    stored = values["fuel"] + weights.get("stored_carbon", 0.0) / money * values["carbon_kg_per_mwh"]
    problem = MicrogridProblem(
        dt_hours=sim.spec.dt_hours,
        sun_mw=np.clip(weather[:, SUN], 0, 1) * values["pv_mw"],
        serving=_asked_gpus(sim, first, work_first),
        jobs=list_jobs(_arrivals(sim, work), params.site, sim.spec.dt_hours),
        usd_per_mwh=values["fuel"] + weights["carbon"] / money * values["carbon_kg_per_mwh"],
        stored_usd_per_mwh=stored,
        slots=sim.env.sizes.queue,
        end_heat_usd_per_c=end_heat(facts, stored) if "zone_heat" in weights else 0.0,
        weight=money,
        missed_usd=float(params.sla_usd) * weights["missed_jobs"] / money,
        backlog_usd_per_gpu_h=float(params.backlog_usd_per_gpu_h),
        **facts,
    )
    refuse_cold(problem)
    return problem


def _asked_gpus(sim: Sim, first: int, work_first: int) -> np.ndarray:
    """GPUs that inference asks for, (T,); rounded in the precision of the Sim, as the environment does."""
    bank, horizon = sim.params.bank, sim.spec.horizon
    curve = np.asarray(bank.weather_rows[first : first + horizon, CURVE])
    use = np.clip(curve + np.asarray(bank.work_rows[work_first : work_first + horizon, 0]), 0, 1)
    return np.round(np.asarray(sim.params.site.infer_gpu_peak)[0] * use).astype(np.float64)


def _ratings(params: Any) -> dict[str, float]:
    """Every rating of the plant that the programs use, as floats."""
    store, diesel = params.storage, params.diesel
    names = ("capacity_mwh", "power_mw", "eta_charge", "eta_discharge", "soc_min", "soc_max", "degradation_per_mwh")
    values = {name: float(getattr(store, name)[0]) for name in names}
    values |= {"diesel_mw": float(diesel.p_max_mw[0]), "carbon_kg_per_mwh": float(diesel.carbon_kg_per_mwh[0])}
    values |= {"fuel": float(diesel.mc_c[0]), "voll": float(params.voll)}
    values["pv_mw"] = float(params.pv.capacity_mw[0])
    return values


def _arrivals(sim: Sim, work: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """GPUs (T, M) and durations (T, M) of the arriving jobs of each class, from the columns of a trace."""
    parts, left = [], 1
    for width in sim.env.sizes.arrivals:
        parts.append((work[:, left : left + width], work[:, left + width : left + 2 * width]))
        left += 2 * width
    return parts


def dispatch_program(
    problem: MicrogridProblem, it_mw: np.ndarray
) -> tuple[LinearProgram, dict[str, np.ndarray], SiteRows]:
    """Cheapest battery, diesel and set-points for servers that draw it_mw (T,), the room below its critical limit.

    Exact: a step of the environment is linear in these columns. Returns their positions by name, and the rows that the
    power of servers enters, as well.
    """
    writer = ProgramWriter()
    columns, rows = _write_plant(writer, problem, it_mw, problem.values["t_critical_c"])
    return writer.program(), columns, rows


def _write_plant(
    writer: ProgramWriter, problem: MicrogridProblem, it_mw: np.ndarray, hottest_c: float
) -> tuple[dict[str, np.ndarray], SiteRows]:
    """Write the plant for a given IT power, costs in units of the reward: columns by name, and rows of the servers."""
    v, dt, n = problem.values, problem.dt_hours, problem.horizon
    money = problem.weight
    wear = money * v["degradation_per_mwh"] * dt
    least, most, start = (v["capacity_mwh"] * v[k] for k in ("soc_min", "soc_max", "soc_start"))
    settle = np.zeros(n)
    settle[-1] = -money * problem.stored_usd_per_mwh / v["eta_discharge"]
    largest = 10 * (it_mw.max() + most_heat_kw(problem, hottest_c) / 1000)
    charge = writer.columns(n, wear, 0, v["power_mw"])
    discharge = writer.columns(n, wear, 0, v["power_mw"])
    energy = writer.columns(n, settle, least, most)
    diesel = writer.columns(n, money * problem.usd_per_mwh * dt, 0, v["diesel_mw"])
    unserved = writer.columns(n, money * v["voll"] * dt, 0, largest)
    sun = writer.columns(n, 0, 0, problem.sun_mw)
    servers = (1 + v["aux_share"]) * it_mw
    supply = (sun, 1), (discharge, 1), (charge, -1), (diesel, 1), (unserved, 1)
    balance = writer.rows(n, servers, servers, *supply)
    # energy' = energy + dt (eta_c charge - discharge / eta_d)
    before = np.where(np.arange(n) > 0, 0.0, start)
    flows = (charge, -dt * v["eta_charge"]), (discharge, dt / v["eta_discharge"])
    stored = writer.rows(n, before, before, (energy, 1), *flows)
    writer.put(stored[1:], energy[:-1], -1)
    set_c, rows = write_room(writer, problem, it_mw, hottest_c, balance)
    columns = {"charge": charge, "discharge": discharge, "diesel": diesel, "unserved": unserved, "set": set_c}
    return columns, rows


def relaxed_program(problem: MicrogridProblem, *, ordered: bool = False, fewest_misses: int = 0) -> LinearProgram:
    """Relaxed program that bounds every policy: jobs as `write_starts` has them, and the room may heat up.

    ordered:        jobs start in the order of their queues: ten times as many rows, one for every step of five minutes
                    and pair of jobs
    fewest_misses:  known of whole jobs [-]
    """
    writer = ProgramWriter()
    _, rows = _write_plant(writer, problem, idle_it_mw(problem), TOO_HOT_C)
    write_starts(writer, problem, list_starts(problem, problem.slots if ordered else 0), rows, fewest_misses)
    return writer.program()
