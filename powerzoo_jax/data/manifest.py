"""What is bundled: signals, units, licences and clocks of each data set, and the loader."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from powerzoo_jax.base.errors import DataError, DataMissing, unknown
from powerzoo_jax.base.npz import read_npz
from powerzoo_jax.data.clock import MINUTE_NS, SECOND_NS, local_days
from powerzoo_jax.data.splits import split_days

BUNDLED = Path(__file__).parent / "bundled"
CURRENCY_NOTE = "EUR and USD are both read as $, one to one: rewards of different price sets are not comparable."
PRICE_QUANTILES = (5.0, 95.0)


@dataclass(frozen=True)
class Signal:
    """One column under its public name.

    name:    canonical name, `<kind>.<what>_<unit>`
    column:  name in the bundled file; `Dataset.column` takes it too
    unit:    unit of the values
    """

    name: str
    column: str
    unit: str


@dataclass(frozen=True)
class DatasetInfo:
    """What is known of a data set without reading it.

    offset_minutes:  local standard time minus UTC, fixed all year
    civil_zone:      zone whose clock changes the publisher's stamps follow
    sha256:          digest of the decoded content of the bundled file
    default:         signal meant when a task names only the data set
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


def _simbench_signals() -> tuple[Signal, ...]:
    lv = ("lv_rural1", "lv_rural2", "lv_rural3", "lv_semiurb4", "lv_semiurb5", "lv_urban6")
    mv = ("mv_rural", "mv_semiurb", "mv_urban", "mv_comm")
    active = [Signal(f"load.{c}_pu", f"{c}_pload", "pu") for c in (*lv, *mv, "mv_add1", "mv_add2")]
    reactive = [Signal(f"load_reactive.{c}_pu", f"{c}_qload", "pu") for c in mv]
    solar = [Signal(f"solar.{c.lower()}_pu", c, "pu") for c in ("PV1", "PV3", "PV5")]
    wind = [Signal(f"wind.{c.lower()}_pu", c, "pu") for c in ("WP4", "WP7", "WP10")]
    return (*active, *reactive, *solar, *wind)


DATASETS: dict[str, DatasetInfo] = {
    info.name: info
    for info in (
        DatasetInfo(
            name="simbench_2016",
            title="SimBench load, solar and wind profiles, Germany 2016",
            licence="ODbL-1.0",
            step_minutes=15,
            offset_minutes=60,
            civil_zone="Europe/Berlin",
            signals=_simbench_signals(),
            default="load.mv_semiurb_pu",
            sha256="47f1f57e8135f2c429174586e076530449c66adf26b5f1dea90d3d9bc502670a",
        ),
        DatasetInfo(
            name="de_smard_2018",
            title="Day-ahead price, Germany and Luxembourg 2018 (with Austria to 30 September)",
            licence="CC-BY-4.0",
            step_minutes=60,
            offset_minutes=60,
            civil_zone="Europe/Berlin",
            signals=(Signal("price.day_ahead_per_mwh", "price_eur_per_mwh", "EUR/MWh"),),
            default="price.day_ahead_per_mwh",
            sha256="b1550be484c7e06f497aa983f77937260103c025fbd17de866e0ef859cc39e5f",
            currency_note=CURRENCY_NOTE,
        ),
        DatasetInfo(
            name="ercot_dam_2021_2022",
            title="ERCOT day-ahead hub prices 2021-2022",
            licence="CC-BY-4.0",
            step_minutes=60,
            offset_minutes=-360,
            civil_zone="America/Chicago",
            signals=tuple(
                Signal(f"price.day_ahead_{hub.lower()}_per_mwh", hub, "USD/MWh")
                for hub in ("HB_HOUSTON", "HB_NORTH", "HB_SOUTH", "HB_WEST")
            ),
            default="price.day_ahead_hb_houston_per_mwh",
            sha256="b0a844bce34c322d9e117a88fee7bb48992af27508b3521aeddea979f454e9b9",
            currency_note=CURRENCY_NOTE,
        ),
    )
}


@dataclass(frozen=True, eq=False)
class Dataset:
    """A loaded data set; its arrays are read-only.

    time_utc:  (T,)  int64 [ns]  start of each interval
    columns:   canonical signal name -> (T,) float32
    meta:      what is known of it
    """

    time_utc: np.ndarray
    columns: Mapping[str, np.ndarray]
    meta: DatasetInfo

    def resolve(self, name: str) -> str:
        """Canonical signal name; takes the file's column name as well. Raises KeyError when unknown."""
        return find_signal(self.meta, name).name

    def column(self, name: str) -> np.ndarray:
        """Values (T,) of a signal, by canonical or by column name."""
        return self.columns[self.resolve(name)]

    def d_ref(self, name: str) -> float:
        """Largest value of a signal over all data: the constant that load scaling divides by."""
        return float(self.column(name).max())


def list_datasets() -> tuple[str, ...]:
    """Names of the bundled data sets."""
    return tuple(sorted(DATASETS))


def get_info(name: str) -> DatasetInfo:
    """Manifest entry of a data set; raises ValueError for an unknown name."""
    if name not in DATASETS:
        raise ValueError(unknown("data set", name, DATASETS))
    return DATASETS[name]


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


def load_dataset(name: str) -> Dataset:
    """Load a bundled data set; read once per process.

    Raises ValueError for an unknown name, DataMissing when its file is absent and DataError when the content
    is not what the manifest says.
    """
    return _load(get_info(name).name)


@cache
def _load(name: str) -> Dataset:
    return read_bundle(DATASETS[name], BUNDLED / f"{name}.npz")


def read_bundle(info: DatasetInfo, path: Path) -> Dataset:
    """Decode one bundled file and check it against its manifest entry."""
    if not path.is_file():
        raise DataMissing(
            f"data file {path.name} is not installed. Reinstall powerzoo-jax, "
            "or rebuild it with `python -m powerzoo_jax.data.build_bundle --write`."
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
        columns[signal.name] = _frozen((codes[row] * scale[row]).astype(np.float32))
    step_ns = int(arrays["step_s"]) * SECOND_NS
    start_ns = int(arrays["start_s"]) * SECOND_NS
    time_utc = start_ns + step_ns * np.arange(codes.shape[1], dtype=np.int64)
    if step_ns != info.step_minutes * MINUTE_NS:
        raise DataError(f"{path.name} has a step of {step_ns // MINUTE_NS} min, its manifest {info.step_minutes} min.")
    return Dataset(_frozen(time_utc), columns, info)


def _frozen(array: np.ndarray) -> np.ndarray:
    # the cache hands the same arrays to every caller
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


@cache
def price_quantiles(name: str, signal: str) -> tuple[float, float]:
    """5th and 95th percentile [$/MWh] of a price over the training split of its own data set.

    The monthly table defines the training split here whatever the horizon, so that one price has one
    normalisation.
    """
    data = load_dataset(name)
    days = local_days(data.time_utc, data.meta.offset_minutes)
    train = np.isin(days, split_days(name, "train"))
    low, high = np.percentile(data.column(signal)[train].astype(np.float64), PRICE_QUANTILES)
    return float(low), float(high)
