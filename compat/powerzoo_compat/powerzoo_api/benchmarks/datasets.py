"""Time series under the names of the contract."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from powerzoo_jax.data import (
    DatasetInfo,
    Series,
    all_days,
    find_sources,
    get_info,
    list_datasets,
    load_dataset,
    resample,
)
from powerzoo_jax.data import load_signals as load_core_signals

DatasetManifest = DatasetInfo


class DatasetRegistry:
    """The bundled sets by name."""

    def list(self) -> list[str]:
        """Names of the bundled sets."""
        return list(list_datasets())

    def get(self, name: str) -> DatasetInfo:
        """Metadata of a set. Raises ValueError naming the nearest."""
        return get_info(name)


class TimeAligner:
    """Resampling of regular series to a step of `minutes`.

    how:  "mean" averages whole intervals (coarser steps), "hold" repeats and "linear" interpolates (finer steps)
    """

    def __init__(self, minutes: int, how: str = "mean") -> None:
        self.minutes, self.how = minutes, how

    def align(self, time_utc: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(time_utc, values) at the step. Raises DataError for gaps, ValueError where the steps do not divide."""
        return resample(time_utc, values, self.minutes, self.how)


class DataLoader:
    """Reader of the bundled series, and of CSV files of a folder.

    data_dir:  folder of the CSV files that `source` may name; None = bundled series alone
    """

    def __init__(self, data_dir: str | Path | None = None) -> None:
        self._folder = None if data_dir is None else Path(data_dir)

    def load_signals(
        self,
        signals: str | Sequence[str],
        *,
        source: str | None = None,
        region: str | None = None,
        start_date: str | None = None,
        end_date: str | None = None,
        resample: int | None = None,
    ) -> Series:
        """Signals of one source over whole local days, at a step of `resample` minutes.

        Raises ValueError when several sources offer them, listing these, KeyError for an unknown signal,
        FileNotFoundError for a missing file.
        """
        return load_core_signals(
            signals,
            source=self._place(source),
            region=region,
            start_date=start_date,
            end_date=end_date,
            step_minutes=resample,
        )

    def load_actual_series(self, signal: str, **where: Any) -> Series:
        """One signal; see `load_signals`."""
        return self.load_signals(signal, **where)

    def list_available_datasets(self) -> list[str]:
        """Names of the bundled sets."""
        return list(list_datasets())

    def get_metadata(self, dataset: str) -> DatasetInfo:
        """Metadata of a set, without reading its series. Raises ValueError naming the nearest."""
        return get_info(dataset)

    def get_available_columns(self, dataset: str) -> list[str]:
        """Names of the signals of a set."""
        return [signal.name for signal in get_info(dataset).signals]

    def get_date_range(self, dataset: str) -> tuple[str, str]:
        """First and last local day, ISO dates."""
        days = all_days(load_dataset(self._place(dataset)))
        return str(days[0]), str(days[-1])

    def _place(self, source: str | None) -> Any:
        if source is None or self._folder is None or source in list_datasets():
            return source
        return self._folder / source


def signals(region: str | None = None) -> dict[str, tuple[str, ...]]:
    """Sources of every signal, of one region or of all."""
    names = {signal.name for dataset in list_datasets() for signal in get_info(dataset).signals}
    found = {name: find_sources(name, region) for name in sorted(names)}
    return {name: sources for name, sources in found.items() if sources}


class SignalModule(ModuleType):
    """A module whose attributes are the signals by constant: dots as underscores, in capitals.

    Called, it is the function `signals`.
    """

    def __call__(self, region: str | None = None) -> dict[str, tuple[str, ...]]:
        return signals(region)

    def __getattr__(self, name: str) -> str:
        known = {signal.replace(".", "_").upper(): signal for signal in signals()} if name.isupper() else {}
        if name not in known:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return known[name]
