"""Tables of results with a unit for every column, printed as text or handed to pandas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from powerzoo_jax.base.errors import missing_extra
from powerzoo_jax.base.struct import brief

DIGITS = {"pu": 4, "deg": 3, "MW": 3, "Mvar": 3, "%": 1, "USD/MWh": 3}


@dataclass(frozen=True, eq=False)
class StudyTable:
    """Columns of one length by name, each with its unit.

    columns:    name -> (n,) array in the unit of `units`; NaN where a row has no such number, such as the loading of
                a branch without rating
    units:      name -> unit such as "MW" or "pu"; "" for ids and words [-]
    violation:  (n,) of text, "" where every limit of the row is kept
    """

    name: str
    columns: Mapping[str, np.ndarray]
    units: Mapping[str, str]
    violation: Sequence[str]

    __repr__ = brief

    def __len__(self) -> int:
        return len(self.violation)

    def __getitem__(self, column: str) -> np.ndarray:
        if column not in self.columns:
            raise KeyError(f"The table {self.name!r} has no column {column!r}. It has {', '.join(self.columns)}.")
        return self.columns[column]

    def to_frame(self) -> Any:
        """Data frame of the columns and the violations; ImportError, naming the extra, without pandas."""
        try:
            import pandas
        except ImportError as err:
            raise ImportError(missing_extra("A data frame", "pandas", "frames")) from err
        return pandas.DataFrame({**self.columns, "violation": list(self.violation)})

    def records(self) -> list[dict[str, Any]]:
        """One dictionary a row, of plain numbers and text; None where a row has no such number."""
        plain = {
            name: [None if isinstance(x, float) and not np.isfinite(x) else x for x in values.tolist()]
            for name, values in self.columns.items()
        }
        plain["violation"] = list(self.violation)
        return [dict(zip(plain, row, strict=True)) for row in zip(*plain.values(), strict=True)]

    def header(self) -> tuple[str, ...]:
        """Names of the printed columns with their units, the violations last."""
        return (*(f"{n} [{u}]" if (u := self.units[n]) else n for n in self.columns), "violation")

    def text_rows(self, most: int) -> list[tuple[str, ...]]:
        """Rows as printed: at most `most`, of a longer table those with a violation first."""
        order = np.arange(len(self))
        if len(self) > most:
            order = np.argsort([not v for v in self.violation], kind="stable")[:most]
        return [(*(self._cell(name, k) for name in self.columns), self.violation[k]) for k in order.tolist()]

    def _cell(self, name: str, row: int) -> str:
        value = self.columns[name][row]
        if np.issubdtype(self.columns[name].dtype, np.floating):
            digits = DIGITS.get(self.units[name], 3)
            return "-" if np.isnan(value) else f"{round(value, digits) + 0.0:.{digits}f}"  # no minus before zero
        return str(value)
