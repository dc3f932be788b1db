"""Output of every benchmark: its arguments, and a table that is printed row by row and kept as TSV."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType

from peers import versions

from powerzoo_jax.cli.commands.bench import device_name


def parser(doc: str | None, quick: str) -> argparse.ArgumentParser:
    """Arguments that all benchmarks take."""
    given = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--quick", action="store_true", help=quick)
    given.add_argument("--rounds", type=int, default=None, help="rounds in which every engine runs")
    # resolved at once: OpenDSS moves the working directory
    given.add_argument("--out", type=lambda name: Path(name).resolve(), help="also write the table to this file")
    return given


class Table:
    """Rows of a benchmark, printed as they come and written at the end, also after an interruption.

    The first line names the device and the versions of what took part.
    """

    def __init__(self, columns: Sequence[str], out: Path | None, note: str = "") -> None:
        self._out = out
        self._lines: list[str] = []
        self._print(" ".join(filter(None, ("#", f"{device_name()};", versions(), note))))
        self.add(columns)

    def add(self, cells: Iterable[str]) -> None:
        """Print a row."""
        self._print("\t".join(cells))

    def _print(self, line: str) -> None:
        self._lines.append(line)
        print(line, flush=True)

    def __enter__(self) -> Table:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._out is not None:
            self._out.write_text("\n".join(self._lines) + "\n")
