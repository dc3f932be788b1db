"""Parameters of data centres: ratings, job classes and the static sizes of the queues."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base import struct
from powerzoo_jax.base.ranges import Count, PositiveShare, Range, check_settings, checks_ranges
from powerzoo_jax.devices import jobs
from powerzoo_jax.devices.jobs import JobParams
from powerzoo_jax.devices.protocol import (
    EfficiencyRating,
    PositiveRating,
    Rating,
    SignlessRating,
    TemperatureRating,
    columns,
)

Minutes = Annotated[float, Range(0, 1e6, open_low=True)]


@dataclass(frozen=True)
class JobClass:
    """One class of jobs: (low, high) ranges and rates; the defaults of `TRAIN` and `FINETUNE` are those of spec 03."""

    rate_per_h: Annotated[float, Range(0, 1e6)]
    gpus: tuple[Count, Count]
    duration_min: tuple[Minutes, Minutes]
    deadline_factor: Annotated[float, Range(1)]
    eta: PositiveShare

    def __post_init__(self) -> None:
        check_settings("job class: ", self)


TRAIN = JobClass(1.5, (50, 200), (50.0, 250.0), 2.0, 0.90)
FINETUNE = JobClass(3.0, (10, 50), (25.0, 100.0), 3.0, 0.75)


@dataclass(frozen=True)
class QueueSizes:
    """Static sizes: queue slots of a class; per class (train, fine-tune) most arrivals, longest run in steps."""

    queue: int
    arrivals: tuple[int, int]
    bins: tuple[int, int]


@struct.dataclass(kw_only=True)
class DataCenterParams:
    """Ratings of a fleet of data centres.

    n_gpus, infer_gpu_peak:           (G,)
    idle_w, active_w:                 (G,)  [W]       of one GPU
    infer_eta:                        (G,)  [-]       share of active power while serving
    base_mw, cool_min_mw:             (G,)  [MW]
    aux_share, air_share:             (G,)  [-]       auxiliaries over IT power; IT heat that reaches the air
    cop, cop_decay_per_c, cop_ref_c:  (G,)  [-], [1/degC], [degC]
    ua_kw_per_c, wall_kw_per_c:       (G,)  [kW/degC] cooling coil, walls
    heat_kwh_per_c:                   (G,)  [kWh/degC]
    set_low_c, set_high_c:            (G,)  [degC]    range of the set-point
    t_critical_c, t_initial_c:        (G,)  [degC]
    slack_factor:                     (G,)  [-]       1 = deadlines as the job classes say, 0 = start at once
    train, finetune:                  JobParams
    mask:                             (G,)  bool
    """

    n_gpus: Array
    infer_gpu_peak: Array
    idle_w: Array
    active_w: Array
    infer_eta: Array
    base_mw: Array
    cool_min_mw: Array
    aux_share: Array
    air_share: Array
    cop: Array
    cop_decay_per_c: Array
    cop_ref_c: Array
    ua_kw_per_c: Array
    wall_kw_per_c: Array
    heat_kwh_per_c: Array
    set_low_c: Array
    set_high_c: Array
    t_critical_c: Array
    t_initial_c: Array
    slack_factor: Array
    train: JobParams
    finetune: JobParams
    mask: Array


PADDING = {"n_gpus": 1.0, "active_w": 1.0, "cop": 1.0, "heat_kwh_per_c": 1.0, "ua_kw_per_c": 1.0, "set_high_c": 1.0}


@checks_ranges("data centre")
def datacenter_params(
    n_unit: Count,
    dtype: Any,
    *,
    train: JobClass = TRAIN,
    finetune: JobClass = FINETUNE,
    n_gpus: PositiveRating = 1000,
    infer_gpu_peak: SignlessRating = 400,
    idle_w: SignlessRating = 55.0,
    active_w: PositiveRating = 1100.0,
    infer_eta: EfficiencyRating = 0.5,
    base_mw: SignlessRating = 0.5,
    cool_min_mw: SignlessRating = 0.05,
    aux_share: SignlessRating = 0.05,
    air_share: EfficiencyRating = 1.0,
    cop: PositiveRating = 5.0,
    cop_decay_per_c: SignlessRating = 0.04,
    cop_ref_c: TemperatureRating = 20.0,
    ua_kw_per_c: PositiveRating = 200.0,
    wall_kw_per_c: SignlessRating = 5.0,
    heat_kwh_per_c: PositiveRating = 500.0,
    set_low_c: TemperatureRating = 18.0,
    set_high_c: TemperatureRating = 27.0,
    t_critical_c: TemperatureRating = 35.0,
    t_initial_c: TemperatureRating = 22.0,
    slack_factor: SignlessRating = 1.0,
) -> DataCenterParams:
    """Parameters of `n_unit` data centres; each rating is one value for all, or one per unit.

    Raises ValueError for non-positive ratings, reversed ranges, shares outside (0, 1], or jobs that never fit.
    """
    ratings = {"n_gpus": n_gpus, "active_w": active_w, "cop": cop, "ua_kw_per_c": ua_kw_per_c}
    ratings["heat_kwh_per_c"] = heat_kwh_per_c
    signless = {"infer_gpu_peak": infer_gpu_peak, "idle_w": idle_w, "base_mw": base_mw, "cool_min_mw": cool_min_mw}
    signless |= {"aux_share": aux_share, "wall_kw_per_c": wall_kw_per_c, "cop_decay_per_c": cop_decay_per_c}
    signless["slack_factor"] = slack_factor
    for low, high, names in (
        (idle_w, active_w, "idle_w < active_w"),
        (set_low_c, set_high_c, "set_low_c < set_high_c"),
    ):
        if not (np.asarray(low) < np.asarray(high)).all():
            raise ValueError(f"data centre: need {names}, got {low} and {high}.")
    if not (np.asarray(infer_gpu_peak) <= np.asarray(n_gpus)).all():
        raise ValueError(f"data centre infer_gpu_peak = {infer_gpu_peak} exceeds n_gpus = {n_gpus}.")
    temperatures = {"cop_ref_c": cop_ref_c, "set_low_c": set_low_c, "set_high_c": set_high_c}
    temperatures |= {"t_critical_c": t_critical_c, "t_initial_c": t_initial_c}
    made = columns(n_unit, dtype, infer_eta=infer_eta, air_share=air_share, **ratings, **signless, **temperatures)
    return DataCenterParams(
        **made,  # type: ignore[arg-type]
        train=_job_params("train", train, n_unit, dtype, n_gpus),
        finetune=_job_params("finetune", finetune, n_unit, dtype, n_gpus),
        mask=jnp.ones(n_unit, bool),
    )


def _job_params(name: str, kind: JobClass, n_unit: int, dtype: Any, n_gpus: Rating) -> JobParams:
    gpus, duration = kind.gpus, kind.duration_min
    if not 1 <= gpus[0] <= gpus[1] <= np.min(np.asarray(n_gpus)):
        raise ValueError(f"data centre {name} jobs take {gpus} GPUs: need 1 <= low <= high <= n_gpus = {n_gpus}.")
    if not duration[0] <= duration[1]:
        raise ValueError(f"data centre {name} jobs last {duration} min: need 0 < low <= high.")
    made = columns(
        n_unit,
        dtype,
        rate_per_h=kind.rate_per_h,
        gpus_low=gpus[0],
        gpus_high=gpus[1],
        duration_low_min=duration[0],
        duration_high_min=duration[1],
        deadline_factor=kind.deadline_factor,
        eta=kind.eta,
    )
    return JobParams(**made)


def sizes(dt_minutes: int, *, train: JobClass = TRAIN, finetune: JobClass = FINETUNE, queue: int = 64) -> QueueSizes:
    """Static sizes for these job classes and step length."""
    both = (train, finetune)
    return QueueSizes(
        queue=queue,
        arrivals=tuple(jobs.most_arrivals(c.rate_per_h, dt_minutes / 60) for c in both),  # type: ignore[arg-type]
        bins=tuple(math.ceil(c.duration_min[1] / dt_minutes) for c in both),  # type: ignore[arg-type]
    )


def enough_slots(train: JobClass = TRAIN, finetune: JobClass = FINETUNE, queue: int = 64) -> int:
    """Number of queue slots that behave like `queue` of them: more jobs wait with a probability of `jobs.TAIL` at most.

    Jobs leave at their deadline at the latest, so the number waiting is Poisson with mean rate * E[deadline]
    when nothing is ever started, and smaller otherwise. Rounded up to whole vectors of eight.
    """
    hours = ((c.rate_per_h, c.deadline_factor * sum(c.duration_min) / 120) for c in (train, finetune))
    return min(queue, 8 * math.ceil(max(jobs.most_arrivals(*pair) for pair in hours) / 8))
