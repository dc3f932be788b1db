"""Series of the data-centre microgrid: weather and expected use by day, and drawn traces of work."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from powerzoo_jax.base.errors import DataError, DataMissing, unknown
from powerzoo_jax.base.numerics import FLOAT
from powerzoo_jax.data import (
    Series,
    all_days,
    day_matrix,
    eligible_start_days,
    label_days,
    load_dataset,
    split_days,
    window_days,
)
from powerzoo_jax.data.bank import CUSTOM_SPLIT
from powerzoo_jax.data.clock import steps_per_day
from powerzoo_jax.data.synthetic import draw_ar1, rescale_persistence
from powerzoo_jax.data.synthetic_load import NATIVE_MINUTES, UtilisationModel, daily_curve
from powerzoo_jax.devices import jobs
from powerzoo_jax.devices.facility import JobClass, QueueSizes, datacenter_params
from powerzoo_jax.tasks.site import FIRST_MONDAY, WEATHER_SET, WEEKEND

TEST_GHI, TEST_CELL_C, CELL_LOSS, CELL_RISE = 1000.0, 25.0, 0.004, 1 / 32  # silicon, 45 degC nominal cell temperature
SEED_OF_SPLIT = {"train": 0, "val": 1, "test": 2, CUSTOM_SPLIT: 3}
SEED = 20260  # of all traces; another value is another version of the tasks
TRACE_ROWS = 512 * 288  # rows of work in a bank: 512 days at 5 min
PAIRS = 32  # traces of work that a start day may draw
DAYS = 366  # start days in a table, so that leap years fit

Profile = Sequence[float] | None


class WeatherSource(NamedTuple):
    """Sources of sun and temperature.

    kind:     "tmy" (a typical year) or "analytic" (one clear day, every day)
    site:     site of the typical year
    solar, temperature: profiles that replace them, repeated every day
    solar_factor, warmer_c: stress on top
    """

    kind: str
    site: str
    solar: Profile
    temperature: Profile
    solar_factor: float = 1.0
    warmer_c: float = 0.0


class Start(NamedTuple):
    """Start days of episodes: split name, first rows (S,) of weather, how many are real, dates of these."""

    split: str
    row: np.ndarray
    n_start: int
    days: tuple[str, ...]


def find_starts(split: str, horizon: int, minutes: int, window: tuple[str | None, str | None]) -> Start:
    """Start days of a split of the weather year, or of a window of dates.

    Raises DataError when no episode fits.
    """
    spd = steps_per_day(minutes)
    horizon_days = -(-horizon // spd)
    if window == (None, None):
        chosen = split_days(WEATHER_SET, split, horizon_days)
    else:
        split, chosen = CUSTOM_SPLIT, window_days(WEATHER_SET, *window, horizon_days)
    starts = eligible_start_days(chosen, horizon_days)
    if not len(starts):
        raise DataError(f"no {horizon_days}-day episode fits into {split!r} of {WEATHER_SET}. Shorten the horizon.")
    row = np.searchsorted(all_days(WEATHER_SET), starts) * spd
    padded = np.concatenate([row, np.repeat(row[:1], DAYS - len(row))])
    return Start(split, padded.astype(np.int32), len(starts), tuple(map(str, starts)))


def weather_rows(weather: WeatherSource, use: UtilisationModel | Profile, minutes: int) -> np.ndarray:
    """Table (R, 5) of the year: capacity factor, outdoor temperature, clock, expected use of the inference GPUs.

    use: a model, or a profile that is repeated every day
    cf = G / 1000 (1 - 0.004 (T_cell - 25)),  T_cell = T + G / 32  (PVWatts, NREL/TP-6A20-62641, NOCT 45 degC)
    """
    spd, days = steps_per_day(minutes), all_days(WEATHER_SET)
    hour = np.arange(spd) * minutes / 60
    sun, outdoor = _sky(weather, hour, len(days), minutes)
    if weather.solar is not None:
        sun = _every_day("solar_profile", weather.solar, spd, len(days))
    if weather.temperature is not None:
        outdoor = _every_day("temperature_profile", weather.temperature, spd, len(days))
    if isinstance(use, UtilisationModel):
        weekend = ((days - FIRST_MONDAY).astype(int) % 7 >= WEEKEND).astype(float)
        with jax.enable_x64(False):
            hours, weekends = np.broadcast_arrays(hour, weekend[:, None])
            curve = use.mean * np.asarray(daily_curve(jnp.asarray(hours), jnp.asarray(weekends), use), np.float64)
    else:
        curve = _every_day("cpu_profile", use, spd, len(days)) if use is not None else np.zeros_like(sun)
    angle = np.broadcast_to(2 * np.pi * hour / 24, sun.shape)
    columns = (sun * weather.solar_factor, outdoor + weather.warmer_c, np.sin(angle), np.cos(angle), curve)
    return np.stack([c.reshape(-1) for c in columns], axis=1)


def _sky(weather: WeatherSource, hour: np.ndarray, n_day: int, minutes: int) -> tuple[np.ndarray, np.ndarray]:
    """Capacity factor and outdoor temperature, (D, steps a day) each."""
    if weather.kind == "analytic":
        sun = np.where((hour >= 6) & (hour <= 18), np.sin(np.pi * (hour - 6) / 12), 0).clip(0)
        day = sun, 20 + 8 * np.sin(2 * np.pi * (hour - 8) / 24)
        return tuple(np.broadcast_to(x, (n_day, len(hour))) for x in day)  # type: ignore[return-value]
    if weather.kind != "tmy":
        raise ValueError(unknown("weather", weather.kind, ("tmy", "analytic")))
    data = load_dataset(WEATHER_SET)
    outdoor = day_matrix(data, f"weather.{weather.site}_temperature_c", minutes)[1]
    radiation = day_matrix(data, f"weather.{weather.site}_ghi_w_per_m2", minutes)[1]
    cell = outdoor + CELL_RISE * radiation
    return (radiation / TEST_GHI * (1 - CELL_LOSS * (cell - TEST_CELL_C))).clip(0, 1), outdoor


def _every_day(name: str, profile: Profile, spd: int, n_day: int) -> np.ndarray:
    """A profile of one day, repeated: (D, steps a day)."""
    day = np.asarray(profile, np.float64)
    if day.shape != (spd,) or not np.isfinite(day).all():
        raise ValueError(f"{name} has shape {day.shape}: give {spd} finite numbers, one for every step of a day.")
    return np.broadcast_to(day, (n_day, spd))


def work_rows(
    split: str,
    use: UtilisationModel | Series | None,
    classes: tuple[JobClass, JobClass],
    sizes: QueueSizes,
    horizon: int,
    minutes: int,
) -> np.ndarray:
    """Traces of work (n * horizon, 1 + 2 M_t + 2 M_f), n of them: use beside the expected one, then arriving jobs.

    use: a model whose noise is drawn, a trace whose days of the split are taken in turn, or None for no noise
    """
    n_trace = max(TRACE_ROWS // horizon, 1)
    jobs_part = _draw_jobs(split, classes, sizes, n_trace, horizon, minutes)
    if isinstance(use, Series):
        column = _trace_days(use, split, n_trace, horizon, minutes)
    else:
        column = np.zeros(n_trace * horizon) if use is None else _draw_noise(split, use, n_trace, horizon, minutes)
    return np.column_stack([column, jobs_part])


def pair_traces(horizon: int) -> np.ndarray:
    """First rows of work (S, PAIRS) that each start day may draw: traces in turn, so that all days use all."""
    n_trace = max(TRACE_ROWS // horizon, 1)
    turn = (np.arange(DAYS)[:, None] * PAIRS + np.arange(PAIRS)[None]) % n_trace
    return (turn * horizon).astype(np.int32)


def _key(split: str, stream: int) -> jax.Array:
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(SEED), SEED_OF_SPLIT[split]), stream)


@cache
def _draw_jobs(
    split: str, classes: tuple[JobClass, JobClass], sizes: QueueSizes, n_trace: int, horizon: int, minutes: int
) -> np.ndarray:
    # in float32 whatever the task's dtype, so that both play the same episodes
    with jax.enable_x64(False):
        site = datacenter_params(
            1, FLOAT, train=classes[0], finetune=classes[1], n_gpus=max(1000, *(c.gpus[1] for c in classes))
        )

        @jax.jit
        def arrivals(keys: jax.Array) -> list[jax.Array]:
            parts = []
            for stream, (kind, most) in enumerate(zip((site.train, site.finetune), sizes.arrivals, strict=True)):
                step = jnp.zeros((), FLOAT)
                (drawn,) = jax.vmap(
                    lambda key: jobs.draw((key,), (kind,), (most,), minutes / 60, step, site.slack_factor)  # noqa: B023
                )(keys[stream])
                parts += [drawn.gpus[:, 0], drawn.duration_min[:, 0]]
            return parts

        count = n_trace * horizon
        keys = jnp.stack([jax.random.split(_key(split, stream), count) for stream in (1, 2)])
        return np.concatenate([np.asarray(part) for part in arrivals(keys)], axis=1)


@cache
def _draw_noise(split: str, model: UtilisationModel, n_trace: int, horizon: int, minutes: int) -> np.ndarray:
    with jax.enable_x64(False):
        phi = rescale_persistence(model.phi, NATIVE_MINUTES, minutes)
        noise = draw_ar1(_key(split, 3), (horizon, n_trace), phi, model.sigma)
        return np.asarray(noise).T.reshape(-1)


def _trace_days(data: Series, split: str, n_trace: int, horizon: int, minutes: int) -> np.ndarray:
    """Days of the split of a user's trace over its fixed reference, in turn until there are enough: (n * horizon,)."""
    spd = steps_per_day(minutes)
    horizon_days = -(-horizon // spd)
    days, values = day_matrix(data, data.meta.default, minutes)
    labels = label_days(data, horizon_days)[np.isin(all_days(data), days)]
    starts = eligible_start_days(days[(labels == split) | (split == CUSTOM_SPLIT)], horizon_days)
    if not len(starts):
        raise DataError(f"{data.meta.name} has no {horizon_days}-day stretch in {split!r}. Give a longer trace.")
    first = np.searchsorted(days, starts)
    flat = values / data.divisor(data.meta.default)
    runs = [flat[k : k + horizon_days].reshape(-1)[:horizon] for k in first]
    return np.concatenate([runs[i % len(runs)] for i in range(n_trace)])


TRACES = ("google", "azure", "alibaba")


def load_workload(source: str | Path | Series, strict: bool) -> Series | None:
    """The trace of a source, or None for synthetic work; an absent trace raises, or is synthetic when not `strict`.

    Raises DataMissing (a FileNotFoundError) naming the adapter when a trace is asked for without a file.
    """
    if isinstance(source, str) and source == "synthetic":
        return None
    if isinstance(source, str) and source in TRACES:
        if not strict:
            return None
        raise DataMissing(
            f"workload_source = {source!r} needs your copy of that trace: give '{source}:PATH' to its file or folder."
        )
    return load_dataset(source)
