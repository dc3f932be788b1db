"""Plain-text tables and a progress bar."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any, TextIO

WIDTH = 28
NUMERIC = ("-", "+", ".", "n", "")  # signs, and what stands for a missing number: "-", "nan"
REFRESH_S = 0.1  # faster than the eye, slow enough to cost nothing


def render(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Lay out rows under a header; columns of numbers are right-aligned."""
    cells = [[str(c) for c in row] for row in (header, *rows)]
    columns = list(zip(*cells, strict=True))
    widths = [max(map(len, column)) for column in columns]
    right = [all(c[:1].isdigit() or c[:1] in NUMERIC for c in column[1:]) for column in columns]

    def line(row: Sequence[str]) -> str:
        fit = (c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True))
        return "  ".join(fit).rstrip()

    rule = "  ".join("-" * w for w in widths)
    return "\n".join([line(cells[0]), rule, *(line(row) for row in cells[1:])])


def render_pairs(pairs: Sequence[tuple[str, Any]]) -> str:
    """One `name  value` line a pair."""
    width = max(len(name) for name, _ in pairs)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in pairs)


class ProgressBar:
    """A bar on standard error; silent where that is no terminal, so that logs hold no control characters."""

    def __init__(self, label: str, total: int, done: int = 0, stream: TextIO | None = None) -> None:
        self.label, self.total, self.first = label, max(total, 1), done
        self.stream = sys.stderr if stream is None else stream
        self.started, self.shown = time.monotonic(), 0.0
        self.visible = self.stream.isatty()

    def show(self, done: int, note: str = "") -> None:
        """Redraw with `done` of `total` finished."""
        now = time.monotonic()
        if not self.visible or (now - self.shown < REFRESH_S and done < self.total):
            return
        self.shown = now
        share = done / self.total
        spent, fresh = now - self.started, done - self.first
        left = f"{spent / fresh * (self.total - done):.0f} s left" if fresh > 0 else ""
        bar = "#" * round(WIDTH * share)
        self.stream.write(f"\r\033[K{self.label}  [{bar:.<{WIDTH}}] {share:4.0%}  {note}  {left}")
        self.stream.flush()

    def close(self) -> None:
        """Clear the bar: what follows starts on an empty line."""
        if self.visible:
            self.stream.write("\r\033[K")
            self.stream.flush()
