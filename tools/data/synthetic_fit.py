"""Developers' fit of the synthetic generators' constants; never imported at run time.

`python -m tools.data.synthetic_fit [--cache DIR]` prints the price model fitted on the bundled series of
Germany 2018 and the quantiles of the batch jobs in the sample that `spar` ships (MIT; from the Alibaba 2018 trace),
and exits 1 when the committed constants differ.
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from powerzoo_jax.data.clock import MINUTE_NS, local_days, minute_of_day
from powerzoo_jax.data.library import load_dataset
from powerzoo_jax.data.series import Series, resample
from powerzoo_jax.data.synthetic import HOURS_PER_YEAR, PRICE_DE_2018, PriceModel
from powerzoo_jax.data.synthetic_load import JOB_LEVELS, JOBS, BatchJobs
from tools.pins import Pin, fetch, read_member

SPAR = Pin("spar", "0.0.7", "7a55aa9bce742f678b1fd7071f5d354e718c37396480a329cfc018d1ed66e174")
SAMPLE = "spar/data/samples/sample_tasks.csv"
DEFAULT_CACHE = Path.home() / ".cache" / "powerzoo_jax" / "pins"
SHIFT_PER_MWH = 200.0  # at 100 the simulated spread is a tenth too large, at 200 3 %
JUMP_SPREADS = 4.0  # innovations beyond this many robust spreads are jumps
MAD_TO_STD = 1.4826
DIGITS = 5
TOLERANCE = 2e-5  # of the fit on another machine: least squares in another BLAS, then rounding


def calendar(series: Series) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Local hour of day, weekend (0 or 1) and hour of the year, each (T,), at the middle of the intervals."""
    offset = series.meta.offset_minutes
    middle = series.time_utc + series.meta.step_minutes * MINUTE_NS // 2
    days = local_days(middle, offset)
    hour = minute_of_day(middle, offset) / 60.0
    weekend = (days.astype(np.int64) + 3) % 7 >= 5  # day 0 of 1970 was a Thursday
    of_year = (days - days.astype("datetime64[Y]").astype("datetime64[D]")).astype(np.int64) * 24.0 + hour
    return hour, weekend.astype(np.float64), of_year


def residual_load(series: Series) -> np.ndarray:
    """Hourly residual load (T,) [MW]: generation minus wind and solar."""
    renewable = ("solar.available_mw", "wind.onshore_available_mw", "wind.offshore_available_mw")
    total = series.column("generation.total_mw").astype(np.float64)
    quarter = total - sum(series.column(name).astype(np.float64) for name in renewable)
    return resample(series.time_utc, quarter, 60, "mean")[1]


def fit_price() -> PriceModel:
    """Least squares for the level, then lag-1 correlation, robust spread and jumps of what is left."""
    prices = load_dataset("de_smard_2018")
    hour, weekend, of_year = calendar(prices)
    residual = residual_load(load_dataset("de_2018"))
    mean, spread = residual.mean(), residual.std()
    angle = 2.0 * np.pi * of_year / HOURS_PER_YEAR
    hours = (np.floor(hour)[:, None] == np.arange(24)).astype(np.float64)
    design = np.column_stack([hours, weekend, np.cos(angle), np.sin(angle), (residual - mean) / spread])
    target = np.log(prices.column("price.day_ahead_per_mwh").astype(np.float64) + SHIFT_PER_MWH)
    beta = np.linalg.lstsq(design, target, rcond=None)[0]
    x = target - design @ beta
    phi = float(x[1:] @ x[:-1] / (x @ x))
    shocks = x[1:] - phi * x[:-1]
    robust = MAD_TO_STD * np.median(np.abs(shocks - np.median(shocks)))
    jump = np.abs(shocks) > JUMP_SPREADS * robust
    sigma = shocks[~jump].std() / np.sqrt(1.0 - phi**2)
    return PriceModel(
        shift_per_mwh=SHIFT_PER_MWH,
        hour_profile=tuple(round(float(b), DIGITS) for b in beta[:24]),
        **{name: round(float(b), DIGITS) for name, b in zip(LINEAR, beta[24:], strict=True)},
        residual_mean_mw=round(float(mean), 1),
        residual_std_mw=round(float(spread), 1),
        phi=round(phi, DIGITS),
        sigma=round(float(sigma), DIGITS),
        jumps_per_hour=round(float(jump.mean()), DIGITS),
        jump_mean=round(float(shocks[jump].mean()), DIGITS),
        jump_std=round(float(shocks[jump].std()), DIGITS),
    )


LINEAR = ("weekend", "year_cos", "year_sin", "residual_slope")


def fit_jobs(cache: Path) -> BatchJobs:
    """Quantiles of duration and instances, share of half-core instances, and rank correlation, of the spar sample."""
    text = read_member(fetch(SPAR, cache), SAMPLE).decode()
    rows = np.array([(row[3], row[4], row[6]) for row in csv.reader(io.StringIO(text))], np.float64)
    duration, cores, instances = rows.T
    order = [np.argsort(np.argsort(values, kind="stable"), kind="stable") for values in (duration, instances)]
    return BatchJobs(
        duration_s=tuple(round(float(q), 3) for q in np.quantile(duration, JOB_LEVELS)),
        instances=tuple(round(float(q), 3) for q in np.quantile(instances, JOB_LEVELS)),
        half_core_share=round(float((cores <= 50.0).mean()), 3),
        rank_correlation=round(float(np.corrcoef(order[0], order[1])[0, 1]), 3),
    )


def differences(fitted: Any, committed: Any) -> list[str]:
    """Names of the constants that differ, one line each."""
    found, kept = asdict(fitted), asdict(committed)
    return [
        f"{type(fitted).__name__}.{name}: fitted {found[name]}, committed {kept[name]}"
        for name in found
        if not np.allclose(found[name], kept[name], rtol=TOLERANCE, atol=TOLERANCE)
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Fit, print and compare; returns the exit status."""
    parser = argparse.ArgumentParser(description="Fit the constants of the synthetic generators.")
    parser.add_argument("--cache", type=Path, default=DEFAULT_CACHE, help="folder of downloaded artefacts")
    options = parser.parse_args(argv)
    price, jobs = fit_price(), fit_jobs(options.cache)
    for fitted in (price, jobs):
        print(fitted)
    lines = differences(price, PRICE_DE_2018) + differences(jobs, JOBS)
    for line in lines:
        print(line)
    print(f"{len(lines)} difference(s)")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
