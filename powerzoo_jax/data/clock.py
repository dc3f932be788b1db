"""Clocks: UTC instants, the local standard clock of a data set, and civil settlement days.

Instants are int64 nanoseconds since 1970-01-01 UTC.  The local standard clock is UTC plus one fixed
offset, so every local day has the same number of steps; civil time, with its clock changes, is needed only
to read files that are stamped with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

SECOND_NS = 1_000_000_000
MINUTE_NS = 60 * SECOND_NS
MINUTES_PER_DAY = 1440
DAY_NS = MINUTES_PER_DAY * MINUTE_NS
YEARS = (1678, 2261)  # the whole years, first and last, that int64 nanoseconds hold


def to_local(time_utc: np.ndarray, offset_minutes: int) -> np.ndarray:
    """Shift UTC instants to the local standard clock, int64 ns."""
    return np.asarray(time_utc, np.int64) + offset_minutes * MINUTE_NS


def local_days(time_utc: np.ndarray, offset_minutes: int) -> np.ndarray:
    """Local standard date of each instant, datetime64[D]."""
    return (to_local(time_utc, offset_minutes) // DAY_NS).astype("datetime64[D]")


def minute_of_day(time_utc: np.ndarray, offset_minutes: int) -> np.ndarray:
    """Minutes since local standard midnight, 0..1439."""
    return to_local(time_utc, offset_minutes) % DAY_NS // MINUTE_NS


def steps_per_day(step_minutes: int) -> int:
    """Number of steps in a day; raises ValueError when a day is not a whole number of steps."""
    if step_minutes <= 0 or MINUTES_PER_DAY % step_minutes:
        raise ValueError(f"step of {step_minutes} min does not divide a day. Choose 5, 15, 30 or 60 min.")
    return MINUTES_PER_DAY // step_minutes


def iso_dates(days: np.ndarray) -> tuple[str, ...]:
    """Dates as YYYY-MM-DD strings."""
    return tuple(str(d) for d in np.asarray(days, "datetime64[D]"))


def _find_zone(zone: str) -> tzinfo:
    if zone == "UTC":  # needs no table of zones
        return UTC
    try:
        return ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError) as err:
        raise ValueError(
            f"unknown time zone {zone!r}. Use an IANA name such as Europe/London; "
            "a system without a table of zones needs `pip install tzdata`."
        ) from err


def has_instant(stamp: datetime) -> bool:
    """Range test: int64 nanoseconds hold the stamp."""
    return YEARS[0] <= stamp.year <= YEARS[1]


def check_year(stamp: datetime) -> datetime:
    """The stamp itself; raises ValueError where int64 nanoseconds do not hold it."""
    if not has_instant(stamp):
        raise ValueError(f"{stamp.isoformat(' ', 'minutes')} is outside the years {YEARS[0]} to {YEARS[1]}.")
    return stamp


def instant_ns(stamp: datetime) -> int:
    """UTC instant [ns] of a stamp with an offset; raises ValueError outside the years that the clock holds."""
    return round(check_year(stamp).timestamp()) * SECOND_NS


def civil_to_utc(wall: datetime, zone: str, *, repeated: bool = False) -> int:
    """UTC instant [ns] of a civil wall-clock reading; `repeated` marks the second pass of a doubled hour.

    Raises ValueError for a reading that the spring clock change skips, one outside the years that the clock holds, and
    for an unknown zone.
    """
    instant = check_year(wall).replace(tzinfo=_find_zone(zone), fold=int(repeated)).astimezone(UTC)
    if is_skipped(wall, zone):
        raise ValueError(f"{wall:%Y-%m-%d %H:%M} does not exist in {zone}: the clock was put forward over it.")
    return round(instant.timestamp()) * SECOND_NS


def is_skipped(wall: datetime, zone: str) -> bool:
    """Whether the spring clock change of a zone skips a wall-clock reading."""
    local = _find_zone(zone)
    return wall.replace(tzinfo=local).astimezone(UTC).astimezone(local).replace(tzinfo=None) != wall


def standard_offset(zone: str, year: int) -> int:
    """Local standard time minus UTC [min]: the smaller of the offsets in January and July."""
    offsets = [datetime(year, month, 1, tzinfo=_find_zone(zone)).utcoffset() for month in (1, 7)]
    return min(int(offset.total_seconds()) // 60 for offset in offsets if offset is not None)


def convert_stamps(stamps: Iterable[datetime], zone: str) -> np.ndarray:
    """UTC instants [ns] of civil stamps in file order, which alone tells the two passes of the October hour apart.

    A reading of the doubled hour that would lie before the stamp above it is of the second pass.
    """
    seen: set[datetime] = set()
    times: list[int] = []
    for wall in stamps:
        time = civil_to_utc(wall, zone, repeated=wall in seen)
        times.append(time if not times or time > times[-1] else civil_to_utc(wall, zone, repeated=True))
        seen.add(wall)
    return np.array(times, np.int64)


def settlement_periods(date: str, zone: str, period_minutes: int = 30) -> np.ndarray:
    """UTC start [ns] of every settlement period of a civil day.

    Half-hours number 46 on the day the clock is put forward, 50 on the day it is put back, else 48.
    """
    midnight = datetime.fromisoformat(date)
    first = civil_to_utc(midnight, zone)
    last = civil_to_utc(midnight + timedelta(days=1), zone)
    return np.arange(first, last, period_minutes * MINUTE_NS, dtype=np.int64)
