"""Series: signals on one UTC clock, their change of step, and whole days on the local standard clock."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from powerzoo_jax.base.errors import DataError, listing, unknown
from powerzoo_jax.data.clock import MINUTE_NS, local_days, steps_per_day, to_local

LARGEST = 1e9  # that a value may be in its unit: sums and squares of more leave float32
MOST_REVERSED = 10.0  # of the largest value, that a load may feed back
ROUNDED = 8 * float(np.finfo(np.float32).eps)  # relative difference that float32 does not tell from none
EVENTS = 0  # step_minutes of a table whose rows fall at any instant
# The end of a canonical name fixes the units that its values may have.
UNITS = {
    "_mw": ("MW",),
    "_mwh": ("MWh",),
    "_kwh": ("kWh",),
    "_pu": ("pu",),
    "_per_mwh": ("EUR/MWh", "USD/MWh", "GBP/MWh", "AUD/MWh", "$/MWh"),
    "_kg_per_kwh": ("kg/kWh",),
    "_c": ("degC",),
    "_w_per_m2": ("W/m2",),
    "_m_per_s": ("m/s",),
    "_min": ("min",),
    "_share": ("1",),
    "_code": ("code",),
}


@dataclass(frozen=True)
class Signal:
    """One column under its public name.

    name:       canonical name, `<kind>.<what>_<unit>`
    column:     name in the file; `Series.column` takes it too
    unit:       unit of the values
    reference:  constant D_ref that scaling divides by; None = the largest mean over all data (DatasetInfo)
    lowest:     smallest mean over all data, where the columns hold only a window of them
    """

    name: str
    column: str
    unit: str
    reference: float | None = None
    lowest: float | None = None


@dataclass(frozen=True)
class DatasetInfo:
    """Metadata of a data set, known without reading it.

    step_minutes:    length of an interval; 0 = events, one row at each instant
    scaling_minutes: length of the means whose extremes over all data are D_ref and D_min; 0 = step_minutes
    offset_minutes:  local standard time minus UTC, fixed all year
    civil_zone:      zone whose clock changes the publisher's stamps follow
    sha256:          digest of the decoded content
    default:         signal meant when a task names only the data set
    region:          what `load_signals(region=)` selects by: ISO country, market or site
    """

    name: str
    title: str
    licence: str
    step_minutes: int
    offset_minutes: int
    civil_zone: str
    signals: tuple[Signal, ...]
    default: str
    sha256: str
    currency_note: str = ""
    region: str = ""
    scaling_minutes: int = 0


@dataclass(frozen=True, eq=False)
class Series:
    """Signals on one clock: what the bundle, the adapters and a user's file all become; arrays are read-only.

    time_utc:  (T,)  int64 [ns]  start of each interval (events: the instant)
    columns:   canonical signal name -> (T,) float32; NaN = missing, never in a bundled set
    meta:      what is known of it
    repaired:  (R,)  int64  rows that hold a value which the source does not: interpolated or replaced
    """

    time_utc: np.ndarray
    columns: Mapping[str, np.ndarray]
    meta: DatasetInfo
    repaired: np.ndarray = field(default_factory=lambda: freeze(np.zeros(0, np.int64)))

    def __repr__(self) -> str:
        return f"Series({self.meta.name!r}, {len(self.time_utc)} rows, {', '.join(self.columns)})"

    def resolve(self, name: str) -> str:
        """Canonical signal name; takes the file's column name as well. Raises KeyError when unknown."""
        return find_signal(self.meta, name).name

    def column(self, name: str) -> np.ndarray:
        """Values (T,) of a signal, by canonical or by column name."""
        return self.columns[self.resolve(name)]

    def d_ref(self, name: str) -> float:
        """Constant that scaling divides by: the manifest's, else the largest mean over all data."""
        reference = find_signal(self.meta, name).reference
        return float(np.nanmax(self._scaling_means(name))) if reference is None else reference

    def divisor(self, name: str) -> float:
        """D_ref of a signal that others are scaled by.

        Raises DataError where no value is positive, or one lies further below zero than ten times the largest.
        """
        value = self.d_ref(name)
        if not value > 0:
            raise DataError(
                f"{self.meta.name}: the largest value of {name} is {value:g}, so nothing can be scaled by it. "
                "Give a signal with positive values; consumption and output are positive."
            )
        lowest = self.d_min(name)
        if lowest < -MOST_REVERSED * value:
            raise DataError(
                f"{self.meta.name}: the lowest value of {name} is {lowest:g}, the largest {value:g}, by which all are "
                f"divided. Check the signs, or leave out what lies below {-MOST_REVERSED * value:g}."
            )
        return value

    def d_min(self, name: str) -> float:
        """Smallest mean over all data: what `min_load_ratio` is the fraction of."""
        lowest = find_signal(self.meta, name).lowest
        return float(np.nanmin(self._scaling_means(name))) if lowest is None else lowest

    def _scaling_means(self, name: str) -> np.ndarray:
        minutes = self.meta.scaling_minutes or self.meta.step_minutes
        if minutes == self.meta.step_minutes:
            return self.column(name)
        return resample(self.time_utc, self.column(name), minutes, "mean", self.meta.offset_minutes)[1]


def make_series(
    name: str,
    time_utc: np.ndarray,
    columns: Mapping[str, np.ndarray],
    units: Mapping[str, str],
    *,
    offset_minutes: int,
    title: str = "",
    licence: str = "",
    civil_zone: str = "UTC",
    region: str = "",
    currency_note: str = "",
    repaired: np.ndarray | None = None,
    headers: Mapping[str, str] | None = None,
) -> Series:
    """Make a series of signals by canonical name, and check it.

    time_utc:  (T,) datetime64[ns]  starts of the intervals
    columns:   name -> (T,) values in the unit that `units` gives the name
    repaired:  (T,) bool  rows that a reader filled

    The first column is the default signal; `headers` gives the names that the file uses.
    Raises DataError for a clock that goes backwards, has duplicates or gaps, for a column of another length,
    without any value, with infinities or values beyond 1e9, and for a name whose ending does not agree with its unit.
    """
    time_utc = np.array(time_utc, np.int64)
    check_clock(name, time_utc)
    signals = tuple(Signal(column, (headers or {}).get(column, column), units[column]) for column in columns)
    frozen = {column: freeze(np.array(values, np.float32)) for column, values in columns.items()}
    if not signals:
        raise DataError(f"{name} has no column. Name at least one signal.")
    for signal in signals:
        check_unit(name, signal)
        _check_values(name, signal.name, frozen[signal.name], len(time_utc))
    meta = DatasetInfo(
        name=name,
        title=title or name,
        licence=licence,
        step_minutes=int(time_utc[1] - time_utc[0]) // MINUTE_NS,
        offset_minutes=offset_minutes,
        civil_zone=civil_zone,
        signals=signals,
        default=signals[0].name,
        sha256=content_hash({"time_utc": time_utc, **frozen}),
        currency_note=currency_note,
        region=region,
    )
    rows = np.zeros(0, np.int64) if repaired is None else np.array(repaired, np.int64)
    return Series(freeze(time_utc), frozen, meta, freeze(rows))


def check_clock(name: str, time_utc: np.ndarray, lines: Sequence[int] | None = None) -> None:
    """Refuse a clock that is not regular; the message names the first bad stamps.

    lines:  of the file, for the message; gaps are then left to the reader, which counts and fills them
    """
    if len(time_utc) < 2:
        raise DataError(f"{name} has {len(time_utc)} row(s). A series needs at least two.")
    steps = np.diff(time_utc)
    lengths, counts = np.unique(steps, return_counts=True)
    usual = lengths[np.argmax(counts)]
    for found, what, remedy in (
        (steps < 0, "time goes backwards at", "Sort the rows, and check the zone of the stamps."),
        (steps == 0, "duplicated time stamps:", "Keep one row for each instant."),
        ((steps > usual) & (lines is None), "rows are missing before", "Fill the gaps first."),
        (steps < usual, "steps are shorter than the others before", "Bring all rows to one step."),
    ):
        if found.any():
            at = np.flatnonzero(found) + 1
            places = ["" if lines is None else f" (line {lines[i]})" for i in at.tolist()]
            shown = listing(f"{stamp} UTC{place}" for stamp, place in zip(stamps(time_utc[at]), places, strict=True))
            raise DataError(f"{name}: {what} {shown}. {remedy}")
    if steps.min() % MINUTE_NS:
        raise DataError(f"{name} has a step of {steps.min() / MINUTE_NS:g} min. Use whole minutes.")


def stamps(time_utc: np.ndarray) -> list[str]:
    """Instants as "2019-03-31 01:30"."""
    return [str(t).replace("T", " ") for t in np.asarray(time_utc, "datetime64[ns]").astype("datetime64[m]")]


def check_unit(name: str, signal: Signal) -> None:
    """Refuse a signal whose name does not end in its unit."""
    endings = [ending for ending in UNITS if signal.name.endswith(ending)]
    if not endings:
        raise DataError(f"{name}: signal {signal.name!r} does not end in a unit. Valid: {', '.join(UNITS)}.")
    allowed = UNITS[max(endings, key=len)]
    if signal.unit not in allowed:
        raise DataError(f"{name}: {signal.name!r} is in {signal.unit!r}. Convert it to {' or '.join(allowed)}.")


def _check_values(name: str, column: str, values: np.ndarray, rows: int) -> None:
    if values.shape != (rows,):
        raise DataError(f"{name}: {column} has shape {values.shape}, the clock ({rows},). Give one value a row.")
    if np.isnan(values).all():
        raise DataError(f"{name}: {column} holds no number at all. Check its header and its decimal sign.")
    if np.isinf(values).any():
        raise DataError(f"{name}: {column} holds {int(np.isinf(values).sum())} infinite value(s). Remove them.")
    most = float(np.nanmax(np.abs(values)))
    if most > LARGEST:
        raise DataError(f"{name}: {column} holds {most:g}, more than {LARGEST:g}. Check its unit, or scale it.")


def find_signal(info: DatasetInfo, name: str) -> Signal:
    """Signal of a data set by canonical, column or SimBench profile name; raises KeyError when unknown."""
    by_name = {signal.name: signal for signal in info.signals}
    by_column = {signal.column: signal for signal in info.signals}
    # profile names of the task tables ("mv_semiurb") mean the active power
    by_profile = {signal.column.removesuffix("_pload"): signal for signal in info.signals}
    for table in (by_name, by_column, by_profile):
        if name in table:
            return table[name]
    raise KeyError(unknown(f"signal of {info.name}", name, by_name))


def differ(low: float, high: float) -> bool:
    """Whether the difference of two values of a series, high >= low, is more than the rounding of float32."""
    return high - low > ROUNDED * max(abs(low), abs(high))


def is_price(signal: str) -> bool:
    """Test whether a signal is a price: held within its interval, never interpolated."""
    return signal.startswith("price.")


def freeze(array: np.ndarray) -> np.ndarray:
    """Make an array read-only: caches hand the same one to every caller."""
    array.setflags(write=False)
    return array


def content_hash(arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 over name, dtype, shape and bytes of every array, in name order."""
    state = hashlib.sha256()
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        state.update(f"{name}|{array.dtype.str}|{array.shape}|".encode())
        state.update(array.tobytes())
    return state.hexdigest()


def resample(
    time_utc: np.ndarray, values: np.ndarray, minutes: int, how: str, offset_minutes: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Bring a regular series to another step: (time_utc, values).

    time_utc:  (T,) datetime64; values: (T,) or (T, S) in any unit, which stays
    how:  "mean" averages whole intervals (coarser steps), "hold" repeats and "linear" interpolates (finer steps)
    offset_minutes:  local standard time minus UTC; averaged intervals start on this clock
    Raises ValueError when the steps do not divide each other or `how` cannot be used in that direction.
    """
    native = int(time_utc[1] - time_utc[0]) // MINUTE_NS
    if np.any(np.diff(time_utc) != native * MINUTE_NS):
        raise DataError("the series has gaps or duplicates. Repair it before resampling.")
    values = np.asarray(values, np.float64)
    if minutes == native:
        return time_utc, values
    if minutes > native:
        return _average(time_utc, values, native, minutes, how, offset_minutes)
    if native % minutes or how not in ("hold", "linear"):
        raise ValueError(
            f"cannot bring {native} min to {minutes} min by {how!r}. Use 'hold' or 'linear' and a divisor."
        )
    factor = native // minutes
    fine = time_utc[0] + minutes * MINUTE_NS * np.arange(len(values) * factor, dtype=np.int64)
    if how == "hold":
        return fine, np.repeat(values, factor)
    return fine, np.interp(np.arange(len(fine)) / factor, np.arange(len(values)), values)


def _average(
    time_utc: np.ndarray, values: np.ndarray, native: int, minutes: int, how: str, offset_minutes: int
) -> tuple[np.ndarray, np.ndarray]:
    if minutes % native or how != "mean":
        raise ValueError(f"cannot bring {native} min to {minutes} min by {how!r}. Use 'mean' and a multiple.")
    factor = minutes // native
    lead = int(-(time_utc[0] // MINUTE_NS + offset_minutes) % minutes) // native
    count = (len(values) - lead) // factor
    kept = slice(lead, lead + count * factor)
    return time_utc[kept][::factor], values[kept].reshape(count, factor).mean(axis=1)


def natural_way(data: Series, signal: str, minutes: int) -> str:
    """Resampling method of a signal at a step: means when coarser, else prices held and the others interpolated."""
    if minutes > data.meta.step_minutes:
        return "mean"
    return "hold" if is_price(data.resolve(signal)) else "linear"


def day_matrix(data: Series, column: str, step_minutes: int) -> tuple[np.ndarray, np.ndarray]:
    """Complete local standard days of a signal: (days (D,), values (D, H) float64), H steps a day.

    Values stay in the unit of the signal: coarser steps average; finer ones hold prices, and interpolate the rest.
    Raises DataError for a table of events and for a signal that lacks values.
    """
    spd, name = steps_per_day(step_minutes), data.resolve(column)
    refuse_events(data)
    refuse_missing(data, (name,))
    how = natural_way(data, name, step_minutes)
    time_utc, values = resample(data.time_utc, data.column(name), step_minutes, how, data.meta.offset_minutes)
    days, first, counts = np.unique(
        local_days(time_utc, data.meta.offset_minutes), return_index=True, return_counts=True
    )
    whole = counts == spd
    return days[whole], values[first[whole, None] + np.arange(spd)]


def whole_days(data: Series) -> np.ndarray:
    """Complete local standard days of a series, datetime64[D]; raises DataError when it holds none."""
    refuse_events(data)
    step = data.meta.step_minutes * MINUTE_NS
    if to_local(data.time_utc[:1], data.meta.offset_minutes)[0] % step:
        raise DataError(
            f"{data.meta.name} starts at {stamps(data.time_utc[:1])[0]} UTC, which is no whole number of "
            f"{data.meta.step_minutes} min after local midnight. Give the start of each interval."
        )
    days, counts = np.unique(local_days(data.time_utc, data.meta.offset_minutes), return_counts=True)
    whole = days[counts == steps_per_day(data.meta.step_minutes)]
    if not len(whole):
        raise DataError(f"{data.meta.name} holds no whole day on its local standard clock. Give more rows.")
    return whole


def refuse_events(data: Series) -> None:
    """Raise DataError for a table of events, which has no step."""
    if data.meta.step_minutes == EVENTS:
        raise DataError(f"{data.meta.name} is a table of events without a step. Read its rows with load_dataset.")


def refuse_missing(data: Series, names: Iterable[str]) -> None:
    """Raise DataError when a signal lacks finite values, naming how many and where."""
    for name in names:
        lost = ~np.isfinite(data.column(name))
        if lost.any():
            where = listing(stamps(data.time_utc[lost]))
            raise DataError(
                f"{data.meta.name}: {name} lacks {int(lost.sum())} of {len(lost)} values ({where} UTC). "
                "Fill them, or cut a window without a gap with load_signals."
            )
