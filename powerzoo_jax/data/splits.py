"""Split calendars: the local days of a data set used for training, validation and testing.

Pairing of days: which days of a secondary data set may accompany a day of the primary one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

import numpy as np

from powerzoo_jax.base.errors import DataError, unknown
from powerzoo_jax.data.clock import local_days
from powerzoo_jax.data.series import EVENTS, Series, whole_days

MAX_PAIRS = 31  # the days of one month
MONTHS = 12


def pair_days(starts: np.ndarray, candidates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Positions (n, 31) in `candidates` that each start day may be paired with, and their number (n,).

    The same month and day where the candidates have it (in every year), else every day of the month, else of the
    nearest month around the year.  More than 31 are thinned evenly; unused places repeat the first one, so that
    an episode draws with its seed among the first `number` places.
    Both arguments are sorted datetime64[D]; candidates must not be empty.
    """
    of_day, of_month = month_day(candidates), _month(candidates)
    months = np.unique(of_month)
    pairs, counts = np.zeros((len(starts), MAX_PAIRS), np.int64), np.zeros(len(starts), np.int64)
    for i, (day, month) in enumerate(zip(month_day(starts), _month(starts), strict=True)):
        found = np.flatnonzero(of_day == day)
        if not len(found):
            away = np.abs(months - month)
            found = np.flatnonzero(of_month == months[np.argmin(np.minimum(away, MONTHS - away))])
        if len(found) > MAX_PAIRS:
            found = found[np.linspace(0, len(found) - 1, MAX_PAIRS).astype(np.int64)]
        pairs[i] = found[0]
        pairs[i, : len(found)] = found
        counts[i] = len(found)
    return pairs, counts


def month_day(days: np.ndarray) -> np.ndarray:
    """Month and day of dates as 100 * month + day."""
    day = (days - days.astype("datetime64[M]").astype("datetime64[D]")).astype(np.int64) + 1
    return 100 * _month(days) + day


def _month(days: np.ndarray) -> np.ndarray:
    return days.astype("datetime64[M]").astype(np.int64) % MONTHS + 1


UNUSED = ""
# Validation runs of the monthly table hold four days: longer horizons need whole weeks
LONGEST_MONTHLY_HORIZON = 4
WEEK_CYCLE = 5  # every split comes back after five weeks, so that each has all seasons
SPLIT_OF_WEEK = ("test", "train", "train", "train", "val")  # indexed by ISO week mod 5


@dataclass(frozen=True)
class Calendar:
    """Days a data set covers on its local standard clock, and how they are split.

    first, last:  ISO dates, inclusive
    ranges:       (split, first, last) rows; empty = the monthly table of single-year sets
    """

    first: str
    last: str
    ranges: tuple[tuple[str, str, str], ...] = ()


def _last_year(year: int) -> tuple[tuple[str, str, str], ...]:
    """Halves of the months of a year: days 1-15 validate, the rest test."""
    rows = []
    for month in np.arange(np.datetime64(f"{year}-01"), np.datetime64(f"{year + 1}-01")):
        first, end = month.astype("datetime64[D]"), (month + 1).astype("datetime64[D]")
        rows += [("val", str(first), str(first + 14)), ("test", str(first + 15), str(end - 1))]
    return tuple(rows)


def span(first: str, last: str) -> np.ndarray:
    """Every date from first to last, inclusive, datetime64[D]."""
    return np.arange(np.datetime64(first, "D"), np.datetime64(last, "D") + 1)


CALENDARS: dict[str, Calendar] = {
    "simbench_2016": Calendar("2016-01-01", "2016-12-31"),
    "activsg200_load": Calendar("2017-01-01", "2017-12-31"),
    "de_2018": Calendar("2018-01-01", "2018-12-31"),
    "de_smard_2018": Calendar("2018-01-01", "2018-12-31"),
    "tmy": Calendar("2018-01-01", "2018-12-31"),
    "caiso_moer": Calendar("2019-04-30", "2021-08-31"),
    "fr_2017_2019": Calendar("2017-01-01", "2019-12-31", (("train", "2017-01-01", "2018-12-31"), *_last_year(2019))),
    "gb_2018_2020": Calendar("2018-01-01", "2020-12-31", (("train", "2018-01-01", "2019-12-31"), *_last_year(2020))),
    # 2021 is also the shift of behaviour: fewer sessions, after the pandemic
    "acn_sessions": Calendar(
        "2019-05-01",
        "2021-08-31",
        (
            ("train", "2019-05-01", "2019-12-31"),
            ("val", "2020-02-01", "2020-03-10"),
            ("test", "2021-05-01", "2021-08-31"),
        ),
    ),
    "ercot_dam_2021_2022": Calendar(
        "2021-01-01",
        "2022-12-31",
        (
            ("train", "2021-01-01", "2021-02-09"),
            ("price_stress", "2021-02-10", "2021-02-20"),
            ("train", "2021-02-21", "2021-12-31"),
            ("val", "2022-01-01", "2022-06-30"),
            ("test", "2022-07-01", "2022-12-31"),
        ),
    ),
}


def get_calendar(dataset: str | Series) -> Calendar:
    """Calendar of a data set; raises ValueError for an unknown name.

    A series that is not bundled covers its own whole days and follows the monthly table.
    """
    if isinstance(dataset, Series) and dataset.meta.name not in CALENDARS:
        days = whole_days(dataset)
        return Calendar(str(days[0]), str(days[-1]))
    dataset = _name(dataset)
    if dataset not in CALENDARS:
        raise ValueError(unknown("data set", dataset, CALENDARS))
    return CALENDARS[dataset]


def all_days(dataset: str | Series) -> np.ndarray:
    """Local days (D,) datetime64[D] of a data set: of a series its whole days, of events those of the calendar."""
    if isinstance(dataset, Series) and dataset.meta.step_minutes != EVENTS:
        return whole_days(dataset)
    calendar = get_calendar(dataset)
    return span(calendar.first, calendar.last)


def list_splits(dataset: str | Series) -> tuple[str, ...]:
    """Names of the splits of a data set."""
    named = dict.fromkeys(row[0] for row in get_calendar(dataset).ranges)
    return tuple(named) if named else ("train", "val", "test")


def label_days(dataset: str | Series, horizon_days: int = 1) -> np.ndarray:
    """Split names (D,) of the days of `all_days` (datetime64), "" where unused: one label a day, so no overlap."""
    calendar, days = get_calendar(dataset), all_days(dataset)
    if not calendar.ranges:
        rule = _monthly_split if horizon_days <= LONGEST_MONTHLY_HORIZON else _weekly_split
        return np.array([rule(day) for day in days.tolist()])
    labels = np.full(len(days), UNUSED, dtype="<U16")
    for name, first, last in calendar.ranges:
        labels[(days >= np.datetime64(first)) & (days <= np.datetime64(last))] = name
    return labels


def _monthly_split(day: date) -> str:
    if day.day <= 20:
        return "train"
    if day.day <= 24:
        return "val"
    # day 25 is a gap: test days never touch a validation day
    return "test" if day.day >= 26 else UNUSED


def _weekly_split(day: date) -> str:
    return SPLIT_OF_WEEK[day.isocalendar().week % WEEK_CYCLE]


def split_days(dataset: str | Series, split: str, horizon_days: int = 1) -> np.ndarray:
    """Local days of one split in order, (D,) datetime64[D]; raises ValueError for an unknown split.

    Horizons above four days use ISO weeks in single-year sets: week mod 5 in {1, 2, 3}, 4, 0.
    """
    if split not in list_splits(dataset):
        raise ValueError(unknown(f"split of {_name(dataset)}", split, list_splits(dataset)))
    return all_days(dataset)[label_days(dataset, horizon_days) == split]


def split_rows(data: Series, split: str, horizon_days: int = 1) -> np.ndarray:
    """Mask (T,) bool of the rows of a series, or of the events, that fall on a day of the split."""
    days = split_days(data, split, horizon_days)
    return np.isin(local_days(data.time_utc, data.meta.offset_minutes), days)


def runs(days: np.ndarray) -> list[np.ndarray]:
    """Cut sorted days (D,) datetime64[D] into runs of consecutive ones."""
    days = np.asarray(days, "datetime64[D]")
    cuts = np.flatnonzero(np.diff(days) != np.timedelta64(1, "D")) + 1
    return [run for run in np.split(days, cuts) if len(run)]


def eligible_start_days(days: np.ndarray, horizon_days: int) -> np.ndarray:
    """Days (D',) from which the whole horizon stays inside one run of `days` (D,), both datetime64[D]."""
    if horizon_days < 1:
        raise ValueError(f"horizon_days must be at least 1, got {horizon_days}.")
    kept = [run[: max(len(run) - horizon_days + 1, 0)] for run in runs(days)]
    return np.concatenate([*kept, np.array([], "datetime64[D]")])


def find_overlap(groups: Sequence[np.ndarray]) -> np.ndarray:
    """Days (D,) datetime64[D] that occur in more than one group; empty = no overlap."""
    days, counts = np.unique(np.concatenate([np.unique(g) for g in groups]), return_counts=True)
    return days[counts > 1]


def _name(dataset: str | Series) -> str:
    return dataset if isinstance(dataset, str) else dataset.meta.name


def window_days(
    dataset: str | Series, start_date: str | None, end_date: str | None, horizon_days: int = 1
) -> np.ndarray:
    """Days (D,) datetime64[D] of a custom window, both ends included.

    Raises DataError (a ValueError) when only one date is given, a date is malformed or outside the data, or
    the window holds fewer days than the horizon.
    """
    covered = all_days(dataset)
    if start_date is None or end_date is None:
        raise DataError(f"got start_date={start_date!r} and end_date={end_date!r}. Give both dates or neither.")
    try:
        days = span(date.fromisoformat(start_date).isoformat(), date.fromisoformat(end_date).isoformat())
    except ValueError as err:
        raise DataError(f"window {start_date!r} to {end_date!r}: {err}. Write dates as YYYY-MM-DD.") from err
    if not len(days):
        raise DataError(f"window {start_date} to {end_date} ends before it starts. Swap the dates.")
    if days[0] < covered[0] or days[-1] > covered[-1]:
        raise DataError(
            f"window {start_date} to {end_date} leaves {_name(dataset)}, which holds {covered[0]} to {covered[-1]}."
        )
    if len(days) < horizon_days:
        raise DataError(
            f"window {start_date} to {end_date} holds {len(days)} day(s), an episode needs {horizon_days}. Widen it."
        )
    return days
