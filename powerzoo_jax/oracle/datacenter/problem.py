"""Planning problem of a drawn data-centre episode on the host: jobs, servers and room, in float64."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from powerzoo_jax.base.errors import SolverError
from powerzoo_jax.devices import DataCenterParams
from powerzoo_jax.devices.datacenter import SUBSTEP_MIN
from powerzoo_jax.devices.jobs import CLOCK_MIN

RATINGS = (
    *("n_gpus", "infer_gpu_peak", "idle_w", "active_w", "infer_eta", "base_mw", "cool_min_mw", "aux_share"),
    *("air_share", "cop", "cop_decay_per_c", "cop_ref_c", "ua_kw_per_c", "wall_kw_per_c", "heat_kwh_per_c"),
    *("set_low_c", "set_high_c", "t_critical_c", "t_initial_c"),
)


class JobList(NamedTuple):
    """All jobs of an episode, (J,) each.

    kind:      0 train, 1 fine-tune
    arrival:   step;  last: last step in which work before the deadline is possible
    gpus, duration_min;  steps: whole steps that a run holds its GPUs
    priced:    bool  the deadline lies inside the episode: a job not done by then is a miss
    due_min:   deadline
    """

    kind: np.ndarray
    arrival: np.ndarray
    last: np.ndarray
    gpus: np.ndarray
    duration_min: np.ndarray
    steps: np.ndarray
    priced: np.ndarray
    due_min: np.ndarray


@dataclass(frozen=True, eq=False, kw_only=True)
class SiteProblem:
    """One episode of a data centre; powers in MW, temperatures in degC, all series (T,).

    t_outdoor_c, serving: weather, GPUs that inference asks for
    weight:       reward per $
    missed_usd:   what a miss costs (0 where it is not priced)
    values:       ratings by name, floats
    end_heat_usd_per_c: [$/degC] of the room above its initial temperature at the end; 0 where heat does not settle
    dropped_usd_per_gpu_h: of the work of a job that never starts, beside its miss
    hot_usd_per_c: [$/degC] of a room above its critical temperature, at the end of every step
    """

    dt_hours: float
    t_outdoor_c: np.ndarray
    serving: np.ndarray
    jobs: JobList
    weight: float
    missed_usd: float
    backlog_usd_per_gpu_h: float
    values: dict[str, float]
    chiller_cop: np.ndarray
    job_mw_per_gpu: tuple[float, float]
    end_heat_usd_per_c: float = 0.0
    dropped_usd_per_gpu_h: float = 0.0
    hot_usd_per_c: float = 0.0

    @property
    def initial_heat(self) -> float:
        """Reward that the programs leave out: of the heat that the room has at the start."""
        return self.weight * self.end_heat_usd_per_c * self.values["t_initial_c"]

    @property
    def horizon(self) -> int:
        return len(self.t_outdoor_c)

    @property
    def substeps(self) -> int:
        """Explicit steps of the temperature in a step of the environment."""
        return math.ceil(self.dt_hours * 60 / SUBSTEP_MIN)


def site_facts(site: DataCenterParams, t_outdoor_c: np.ndarray) -> dict[str, Any]:
    """The fields of a problem that follow from the only data centre of a fleet and from the weather."""
    values = {name: float(getattr(site, name)[0]) for name in RATINGS}
    warm = np.maximum(t_outdoor_c - values["cop_ref_c"], 0)
    span = values["active_w"] - values["idle_w"]
    return {
        "t_outdoor_c": t_outdoor_c,
        "values": values,
        "chiller_cop": values["cop"] * np.clip(1 - values["cop_decay_per_c"] * warm, 0.4, 1.2),
        "job_mw_per_gpu": (span * float(site.train.eta[0]) / 1e6, span * float(site.finetune.eta[0]) / 1e6),
    }


def end_heat(facts: Mapping[str, Any], usd_per_mwh: float) -> float:
    """Cost of a degree of the room at the end, [$/degC], its electricity in the last weather at this price."""
    return float(usd_per_mwh * facts["values"]["heat_kwh_per_c"] / 1000 / facts["chiller_cop"][-1])


def list_jobs(arrivals: Sequence[tuple[np.ndarray, np.ndarray]], site: DataCenterParams, dt_hours: float) -> JobList:
    """The jobs of an episode, with the steps they need and may use.

    arrivals:  of each class (train, fine-tune) GPUs (T, M), 0 where no job is, and duration (T, M) [min]
    """
    minutes, rows = dt_hours * 60, []
    for kind, ((gpus, duration), job) in enumerate(zip(arrivals, (site.train, site.finetune), strict=True)):
        horizon = len(gpus)
        step, slot = np.nonzero(gpus > 0)
        g, d = gpus[step, slot], duration[step, slot]
        factor = 1 + float(site.slack_factor[0]) * (float(job.deadline_factor[0]) - 1)
        due = step * minutes + factor * d
        steps = np.maximum(np.ceil((d - CLOCK_MIN) / minutes), 1)
        # the clock's grain lets a job end that much after its deadline
        last = np.ceil((due + CLOCK_MIN) / minutes).astype(int) - 1
        priced = due <= horizon * minutes
        rows.append((np.full(len(g), kind), step, np.minimum(last, horizon - 1), g, d, steps, priced, due))
    return JobList(*(np.concatenate(columns) for columns in zip(*rows, strict=True)))


def refuse_cold(problem: SiteProblem) -> None:
    """The programmes take the room to be warmer than its lowest set-point, which the servers' heat must ensure."""
    v = problem.values
    heat = 1000 * v["air_share"] * (v["n_gpus"] * v["idle_w"] / 1e6 + v["base_mw"])
    if v["t_initial_c"] < v["set_low_c"] or heat < v["wall_kw_per_c"] * (v["set_low_c"] - problem.t_outdoor_c.min()):
        raise SolverError(
            f"idle servers give {heat:.0f} kW of heat, too little to keep the room above {v['set_low_c']} degC at "
            f"{problem.t_outdoor_c.min():.1f} degC outside. The oracle knows warm rooms only."
        )
