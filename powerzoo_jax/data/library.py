"""Read the bundled data sets with NumPy alone, once per process."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from powerzoo_jax.base.errors import DataError, DataMissing
from powerzoo_jax.base.npz import read_npz
from powerzoo_jax.data.adapters import ADAPTERS, read_official
from powerzoo_jax.data.clock import MINUTE_NS, SECOND_NS
from powerzoo_jax.data.manifest import DATASETS, get_info
from powerzoo_jax.data.series import EVENTS, DatasetInfo, Series, content_hash, differ, freeze, refuse_missing
from powerzoo_jax.data.splits import split_rows
from powerzoo_jax.data.userfile import read_csv

BUNDLED = Path(__file__).parent / "bundled"
PRICE_QUANTILES = (5.0, 95.0)  # not the extremes: a few spikes would set the scale of all other hours
LEAST_PRICE = 1e-6  # [$/MWh] below which a price is 0: nothing is divided by it
FILE_SUFFIXES = (".csv", ".txt", ".tsv", ".xlsx")


def load_dataset(source: str | Path | Series) -> Series:
    """Load a bundled data set by name, read once per process; or a user's CSV or .xlsx file by its path.

    "neso:PATH" and its like read official files (`data.adapters`); a series is returned as it is.
    Raises ValueError for an unknown name, DataMissing when the file is absent and DataError when the content
    is not what the manifest says or the user's file has a mistake.
    """
    if isinstance(source, Series):
        return source
    kind, _, path = str(source).partition(":")
    if kind in ADAPTERS and path:
        return read_official(kind, path)[0]
    if isinstance(source, Path) or Path(source).suffix.lower() in FILE_SUFFIXES:
        return read_csv(source)
    return _load(get_info(source).name)


@cache
def _load(name: str) -> Series:
    return read_bundle(DATASETS[name], BUNDLED / f"{name}.npz")


def read_bundle(info: DatasetInfo, path: Path) -> Series:
    """Decode one bundled file and check it against its manifest entry."""
    if not path.is_file():
        raise DataMissing(
            f"data file {path.name} is not installed. Reinstall powerzoo-jax, "
            "or rebuild it with `python -m tools.data.build_bundle --write`."
        )
    arrays = read_npz(path)
    found = content_hash(arrays)
    if found != info.sha256:
        raise DataError(
            f"{path.name} decodes to content {found[:12]}, the manifest of {info.name} says {info.sha256[:12]}. "
            "Restore the file from the release."
        )
    index = {str(column): i for i, column in enumerate(arrays["columns"])}
    codes, scale = arrays["codes"], arrays["scale"]
    columns = {}
    for signal in info.signals:
        row = index[signal.column]
        columns[signal.name] = freeze((codes[row] * scale[row]).astype(np.float32))
    step_ns = int(arrays.get("step_s", EVENTS)) * SECOND_NS
    if step_ns != info.step_minutes * MINUTE_NS:
        raise DataError(f"{path.name} has a step of {step_ns // MINUTE_NS} min, its manifest {info.step_minutes} min.")
    if step_ns == EVENTS:
        time_utc = arrays["time_s"].astype(np.int64) * SECOND_NS
    else:
        time_utc = int(arrays["start_s"]) * SECOND_NS + step_ns * np.arange(codes.shape[1], dtype=np.int64)
    repaired = arrays.get("repaired_rows", np.zeros(0)).astype(np.int64)
    return Series(freeze(time_utc), columns, info, freeze(repaired))


def price_quantiles(source: str | Series, signal: str) -> tuple[float, float]:
    """5th and 95th percentile [$/MWh] of a price over the training split of its own data set.

    The monthly table defines the training split here whatever the horizon, so that one price has one
    normalisation.  A series too short to hold a training day is taken whole.
    """
    return _price_quantiles(load_dataset(source), signal)


def signal_range(source: str | Series, signal: str) -> tuple[float, float]:
    """Prices [$/MWh] at which the price signal is 0 and 1: the two percentiles of `price_quantiles`.

    Where these coincide, as with one dear hour a day, they are the lowest and the highest price of the training split;
    one price twice where all are alike, but for the rounding of float32.
    """
    data = load_dataset(source)
    prices = _training_prices(data, signal)
    for low, high in (price_quantiles(data, signal), (float(prices.min()), float(prices.max()))):
        if differ(low, high) and high - low > LEAST_PRICE:
            return low, high
    return low, low


def usual_price(source: str | Series, signal: str) -> float:
    """Positive price [$/MWh] that others are shown over: the median of the training split of its own data set.

    A median that is not positive gives way to that of the sizes of all prices other than 0, and to 1 without any.
    """
    prices = _training_prices(load_dataset(source), signal)
    sizes = np.abs(prices)[np.abs(prices) > LEAST_PRICE]
    middle = float(np.median(prices))
    if middle > LEAST_PRICE:
        return middle
    return float(np.median(sizes)) if len(sizes) else 1.0


@cache
def _price_quantiles(data: Series, signal: str) -> tuple[float, float]:
    low, high = np.percentile(_training_prices(data, signal), PRICE_QUANTILES)
    return float(low), float(high)


def _training_prices(data: Series, signal: str) -> np.ndarray:
    """Prices (R,) [$/MWh] of the training split in float64, or of all rows where that is empty."""
    refuse_missing(data, (signal,))
    train = split_rows(data, "train")
    if not train.any():
        train[:] = True
    prices: np.ndarray = data.column(signal)[train].astype(np.float64)
    return prices
