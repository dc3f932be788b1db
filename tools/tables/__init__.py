"""Tables of the measurement pages: one module computes one, `python -m tools.tables` records it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

Row = dict[str, str]


class Table(NamedTuple):
    """One table.

    rows:     its rows by column, in order, and remarks (text) on all of them; its parameters are options of the command
    columns:  names; a row may leave cells out
    fails:    whether a row counts in the exit status of the command
    """

    rows: Callable[..., Iterator[Row | str]]
    columns: tuple[str, ...]
    fails: Callable[[Row], Any] = lambda row: row.get("outcome") == "differs"
