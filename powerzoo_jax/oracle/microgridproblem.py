"""A drawn episode of the data-centre microgrid on the host: what a plan needs to know, as NumPy float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from powerzoo_jax.base.errors import SolverError
from powerzoo_jax.devices.jobs import CLOCK_MIN
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.draw import Draw
from powerzoo_jax.envs.microgrid import MicrogridEnv
from powerzoo_jax.envs.microgrid_state import CURVE, OUTDOOR, SUN


class JobList(NamedTuple):
    """All jobs of an episode, (J,) each.

    kind:      0 train, 1 fine-tune
    arrival:   step;  last: last step in which work before the deadline is possible
    gpus, duration_min;  steps: whole steps that a run holds its GPUs
    priced:    bool  the deadline lies inside the episode: a job not done by then is a miss
    """

    kind: np.ndarray
    arrival: np.ndarray
    last: np.ndarray
    gpus: np.ndarray
    duration_min: np.ndarray
    steps: np.ndarray
    priced: np.ndarray


@dataclass(frozen=True, eq=False, kw_only=True)
class MicrogridProblem:
    """One episode; powers in MW, temperatures in degC, all series (T,).

    sun_mw, t_outdoor_c, serving: offered sun, weather, GPUs that inference asks for
    usd_per_mwh:  diesel energy with its carbon at the weight of the reward
    weight:       reward per $;  fuel_usd_per_mwh alone settles the battery
    missed_usd:   what a miss costs (0 where it is not priced)
    values:       ratings by name, floats
    """

    dt_hours: float
    sun_mw: np.ndarray
    t_outdoor_c: np.ndarray
    serving: np.ndarray
    jobs: JobList
    usd_per_mwh: float
    fuel_usd_per_mwh: float
    weight: float
    missed_usd: float
    backlog_usd_per_gpu_h: float
    values: dict[str, float]
    chiller_cop: np.ndarray
    job_mw_per_gpu: tuple[float, float]

    @property
    def horizon(self) -> int:
        return len(self.sun_mw)


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
    values = _ratings(params)
    values["soc_start"] = float(np.clip(drawn.soc[0], values["soc_min"], values["soc_max"]))
    outdoor = weather[:, OUTDOOR]
    warm = np.maximum(outdoor - values["cop_ref_c"], 0)
    weights = dict(zip(sim.spec.term_names, sim.spec.term_weights, strict=True))
    money = weights["fuel"]
    site = params.site
    span = values["active_w"] - values["idle_w"]
    problem = MicrogridProblem(
        dt_hours=sim.spec.dt_hours,
        sun_mw=np.clip(weather[:, SUN], 0, 1) * values["pv_mw"],
        t_outdoor_c=outdoor,
        serving=_asked_gpus(sim, first, work_first),
        jobs=_list_jobs(sim, work),
        usd_per_mwh=values["fuel"] + weights["carbon"] / money * values["carbon_kg_per_mwh"],
        fuel_usd_per_mwh=values["fuel"],
        weight=money,
        missed_usd=float(params.sla_usd) * weights["missed_jobs"] / money,
        backlog_usd_per_gpu_h=float(params.backlog_usd_per_gpu_h),
        values=values,
        chiller_cop=values["cop"] * np.clip(1 - values["cop_decay_per_c"] * warm, 0.4, 1.2),
        job_mw_per_gpu=(span * float(site.train.eta[0]) / 1e6, span * float(site.finetune.eta[0]) / 1e6),
    )
    _refuse_cold(problem)
    return problem


def _asked_gpus(sim: Sim, first: int, work_first: int) -> np.ndarray:
    """GPUs that inference asks for, (T,); rounded in the precision of the Sim, as the environment does."""
    bank, horizon = sim.params.bank, sim.spec.horizon
    curve = np.asarray(bank.weather_rows[first : first + horizon, CURVE])
    use = np.clip(curve + np.asarray(bank.work_rows[work_first : work_first + horizon, 0]), 0, 1)
    return np.round(np.asarray(sim.params.site.infer_gpu_peak)[0] * use).astype(np.float64)


def _ratings(params: Any) -> dict[str, float]:
    """Every rating that the programmes use, as floats."""
    site, store, diesel = params.site, params.storage, params.diesel
    names: tuple[str, ...] = (
        "n_gpus",
        "infer_gpu_peak",
        "idle_w",
        "active_w",
        "infer_eta",
        "base_mw",
        "cool_min_mw",
        "aux_share",
    )
    names += ("air_share", "cop", "cop_decay_per_c", "cop_ref_c", "ua_kw_per_c", "wall_kw_per_c", "heat_kwh_per_c")
    names += ("set_low_c", "set_high_c", "t_critical_c", "t_initial_c")
    values = {name: float(getattr(site, name)[0]) for name in names}
    names = ("capacity_mwh", "power_mw", "eta_charge", "eta_discharge", "soc_min", "soc_max", "degradation_per_mwh")
    values |= {name: float(getattr(store, name)[0]) for name in names}
    values |= {"diesel_mw": float(diesel.p_max_mw[0]), "carbon_kg_per_mwh": float(diesel.carbon_kg_per_mwh[0])}
    values |= {"fuel": float(diesel.mc_c[0]), "voll": float(params.voll)}
    values["pv_mw"] = float(params.pv.capacity_mw[0])
    return values


def _list_jobs(sim: Sim, work: np.ndarray) -> JobList:
    """The jobs of a trace, with the steps they need and may use."""
    minutes, horizon, site = sim.spec.dt_hours * 60, sim.spec.horizon, sim.params.site
    rows, left = [], 1
    for kind, (width, job) in enumerate(zip(sim.env.sizes.arrivals, (site.train, site.finetune), strict=True)):
        gpus, duration = work[:, left : left + width], work[:, left + width : left + 2 * width]
        left += 2 * width
        step, slot = np.nonzero(gpus > 0)
        g, d = gpus[step, slot], duration[step, slot]
        factor = 1 + float(site.slack_factor[0]) * (float(job.deadline_factor[0]) - 1)
        due = step * minutes + factor * d
        steps = np.maximum(np.ceil((d - CLOCK_MIN) / minutes), 1)
        # the clock's grain lets a job end that much after its deadline
        last = np.ceil((due + CLOCK_MIN) / minutes).astype(int) - 1
        priced = due <= horizon * minutes
        rows.append((np.full(len(g), kind), step, np.minimum(last, horizon - 1), g, d, steps, priced))
    return JobList(*(np.concatenate(columns) for columns in zip(*rows, strict=True)))


def _refuse_cold(problem: MicrogridProblem) -> None:
    """The programmes take the room to be warmer than its lowest set-point, which the servers' heat must ensure."""
    v = problem.values
    heat = 1000 * v["air_share"] * (v["n_gpus"] * v["idle_w"] / 1e6 + v["base_mw"])
    if v["t_initial_c"] < v["set_low_c"] or heat < v["wall_kw_per_c"] * (v["set_low_c"] - problem.t_outdoor_c.min()):
        raise SolverError(
            f"idle servers give {heat:.0f} kW of heat, too little to keep the room above {v['set_low_c']} degC at "
            f"{problem.t_outdoor_c.min():.1f} degC outside. The oracle knows warm rooms only."
        )
