"""The data centre of a task: its keywords, the sizes of its queues, its parameters, and its use and weather by day."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from powerzoo_jax.base.errors import unknown
from powerzoo_jax.base.ranges import Count, NotNegative, Positive, PositiveShare, Whole
from powerzoo_jax.data import all_days, day_matrix, load_dataset
from powerzoo_jax.data.clock import steps_per_day
from powerzoo_jax.data.splits import month_day
from powerzoo_jax.data.synthetic_load import UTILISATION, UtilisationModel, draw_utilisation
from powerzoo_jax.devices import DataCenterParams, datacenter_params
from powerzoo_jax.devices.facility import FINETUNE, TRAIN, JobClass, QueueSizes, enough_slots, sizes
from powerzoo_jax.tasks.settings import Celsius

WEATHER_SET = "tmy"
WEEKEND = 5  # first weekday of the weekend, Monday is 0
FIRST_MONDAY = np.datetime64("1970-01-05", "D")
SEED = 20261  # of the noise on the use of all days; another value is another version of the tasks


@dataclass(frozen=True, kw_only=True)
class SiteKeywords:
    """Keywords of every task with a data centre.

    n_gpus, infer_gpu_peak, infer_gpu_eta, gpu_idle_w, gpu_active_w: servers, see devices.facility
    p_base_mw, p_aux_frac, p_cool_min_mw:   base load [MW], auxiliaries over IT power, fans [MW]
    cop, cop_decay_per_c, cop_ref_c, ua_kw_per_c, wall_kw_per_c, heat_kwh_per_c, air_heat_fraction: the room
    t_set_min_c, t_set_max_c, t_initial_c:  [degC]
    t_critical_c:           [degC] None takes that of the tightness
    queue:                  jobs of one class that can wait
    train_cfg, finetune_cfg: `JobClass` of training jobs and of fine-tuning
    slack_factor:           scales the slack of the jobs: 1 as the classes say, 0 start at once
    """

    n_gpus: Count = 1000
    infer_gpu_peak: Whole = 400
    infer_gpu_eta: PositiveShare = 0.5
    gpu_idle_w: NotNegative = 55.0
    gpu_active_w: Positive = 1100.0
    p_base_mw: NotNegative = 0.5
    p_aux_frac: NotNegative = 0.05
    p_cool_min_mw: NotNegative = 0.05
    cop: Positive = 5.0
    cop_decay_per_c: NotNegative = 0.04
    cop_ref_c: Celsius = 20.0
    ua_kw_per_c: Positive = 200.0
    wall_kw_per_c: NotNegative = 5.0
    heat_kwh_per_c: Positive = 500.0
    air_heat_fraction: PositiveShare = 1.0
    t_set_min_c: Celsius = 18.0
    t_set_max_c: Celsius = 27.0
    t_initial_c: Celsius = 22.0
    t_critical_c: Celsius | None = None
    queue: Count = 64
    slack_factor: NotNegative = 1.0
    train_cfg: JobClass = TRAIN
    finetune_cfg: JobClass = FINETUNE


def site_sizes(settings: SiteKeywords, minutes: int) -> QueueSizes:
    """Static sizes of the queues at this step length."""
    train, finetune = settings.train_cfg, settings.finetune_cfg
    static = sizes(minutes, train=train, finetune=finetune)
    return dataclasses.replace(static, queue=enough_slots(train, finetune, settings.queue))


def site_stack(settings: SiteKeywords, t_critical_c: float, dtype: Any) -> DataCenterParams:
    """One data centre as the keywords describe it; the critical temperature is theirs, or else the one given."""
    return datacenter_params(
        1,
        dtype,
        train=settings.train_cfg,
        finetune=settings.finetune_cfg,
        n_gpus=settings.n_gpus,
        infer_gpu_peak=settings.infer_gpu_peak,
        idle_w=settings.gpu_idle_w,
        active_w=settings.gpu_active_w,
        infer_eta=settings.infer_gpu_eta,
        base_mw=settings.p_base_mw,
        cool_min_mw=settings.p_cool_min_mw,
        aux_share=settings.p_aux_frac,
        air_share=settings.air_heat_fraction,
        cop=settings.cop,
        cop_decay_per_c=settings.cop_decay_per_c,
        cop_ref_c=settings.cop_ref_c,
        ua_kw_per_c=settings.ua_kw_per_c,
        wall_kw_per_c=settings.wall_kw_per_c,
        heat_kwh_per_c=settings.heat_kwh_per_c,
        set_low_c=settings.t_set_min_c,
        set_high_c=settings.t_set_max_c,
        t_critical_c=t_critical_c if settings.t_critical_c is None else settings.t_critical_c,
        t_initial_c=settings.t_initial_c,
        slack_factor=settings.slack_factor,
    )


@dataclass(frozen=True)
class Surroundings:
    """Surroundings of a feeder's data centre on the days of the load.

    preset:    of the synthetic use of the inference GPUs
    weather:   site of the typical year;  warmer_c: [degC] on top of it
    """

    preset: str
    weather: str
    warmer_c: float = 0.0

    def rows(self, days: np.ndarray, minutes: int) -> np.ndarray:
        """Use of the inference GPUs [0, 1] and outdoor temperature [degC] on these local days, (D * steps a day, 2).

        The noise on the use is one fixed series over all days, so that a day is the same whoever plays it. The
        weather is that of the same month and day of the typical year, of 28 February on a leap day.
        """
        spd = steps_per_day(minutes)
        hour = np.tile(np.arange(spd) * minutes / 60, len(days))
        weekend = np.repeat((days - FIRST_MONDAY).astype(int) % 7 >= WEEKEND, spd).astype(float)
        model = utilisation_model(self.preset)
        with jax.enable_x64(False):
            use = draw_utilisation(jax.random.key(SEED), jnp.asarray(hour), jnp.asarray(weekend), model, minutes)
        outdoor = day_matrix(load_dataset(WEATHER_SET), f"weather.{self.weather}_temperature_c", minutes)[1]
        at = np.searchsorted(month_day(all_days(WEATHER_SET)), month_day(days), side="right") - 1
        return np.column_stack([np.asarray(use, np.float64), outdoor[at].reshape(-1) + self.warmer_c])


def utilisation_model(preset: str) -> UtilisationModel:
    """A preset of the generator; raises ValueError naming the nearest one."""
    if preset not in UTILISATION:
        raise ValueError(unknown("workload preset", preset, UTILISATION))
    return UTILISATION[preset]
