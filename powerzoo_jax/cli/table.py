"""Tables, a progress bar and a sign of life: drawn by rich on a terminal, plain where another program reads."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from powerzoo_jax.base.errors import excerpt, printable
from powerzoo_jax.base.files.results import write_text

NUMERIC = ("-", "+", ".", "n", "")  # signs, and what stands for a missing number: "-", "nan"
UNBOUNDED = 10_000  # columns of a line that nothing breaks
STDOUT = Path("-")  # value of --json without a file

_quiet = False
_document: TextIO | None = None  # where the JSON document goes while everything else is kept off standard output


def set_quiet(quiet: bool) -> None:
    """Choice of the running command: no bar and no sign of life, even on a terminal."""
    global _quiet
    _quiet = quiet


def is_shown(stream: TextIO) -> bool:
    """True where something may move: on a terminal, unless the command was told to be quiet."""
    return stream.isatty() and not _quiet


def render(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Table of rows under a header, as text; columns of numbers are right-aligned.

    On a terminal that is wide enough the header stands out; elsewhere the text is plain.
    """
    cells = [[excerpt(c, UNBOUNDED) for c in row] for row in (header, *rows)]
    columns = list(zip(*cells, strict=True))
    widths = [max(map(len, column)) for column in columns]
    right = [all(c[:1].isdigit() or c[:1] in NUMERIC for c in column[1:]) for column in columns]
    if sys.stdout.isatty() and (drawn := _drawn(cells, right)) is not None:
        return drawn

    def line(row: Sequence[str]) -> str:
        fit = (c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True))
        return "  ".join(fit).rstrip()

    rule = "  ".join("-" * w for w in widths)
    return "\n".join([line(cells[0]), rule, *(line(row) for row in cells[1:])])


def _drawn(cells: Sequence[Sequence[str]], right: Sequence[bool]) -> str | None:
    """The table as rich draws it; None where a row would not fit into a line of the terminal."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=sys.stdout)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name, is_number in zip(cells[0], right, strict=True):
        table.add_column(Text(name), justify="right" if is_number else "left", no_wrap=True)
    for row in cells[1:]:
        table.add_row(*map(Text, row))
    if console.measure(table, options=console.options.update(max_width=UNBOUNDED)).maximum > console.width:
        return None
    with console.capture() as drawn:
        console.print(table)
    return drawn.get().rstrip("\n")


def say(text: object) -> None:
    """Print text that may hold names out of files; line ends stay."""
    print(printable(str(text)), flush=True)


def render_pairs(pairs: Sequence[tuple[str, Any]]) -> str:
    """One `name  value` line a pair."""
    width = max(len(name) for name, _ in pairs)
    return "\n".join(f"{name.ljust(width)}  {excerpt(value, UNBOUNDED)}" for name, value in pairs)


@contextlib.contextmanager
def document_alone() -> Iterator[None]:
    """Keep standard output for the document of `write_json`: whatever else is printed goes to standard error."""
    global _document
    _document = sys.stdout
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        _document = None


def write_json(content: Any, target: Path) -> None:
    """JSON on standard output, or in a file whose folder is made."""
    text = json.dumps(content, indent=1)
    if target == STDOUT:
        print(text, file=_document or sys.stdout)
        return
    write_text(target, text + "\n")


class ProgressBar:
    """A bar on standard error; silent where that is no terminal, so that logs hold no control characters."""

    def __init__(self, label: str, total: int, done: int = 0, stream: TextIO | None = None) -> None:
        stream = sys.stderr if stream is None else stream
        self.visible = is_shown(stream)
        if not self.visible:
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            TimeRemainingColumn(),
        )
        self._progress = Progress(*columns, console=Console(file=stream), transient=True)
        self._task = self._progress.add_task(label, total=max(total, 1), completed=done, note="")
        self._progress.start()

    def show(self, done: int, note: str = "") -> None:
        """Redraw with `done` of the total finished."""
        if self.visible:
            self._progress.update(self._task, completed=done, note=note)

    def close(self) -> None:
        """Clear the bar: what follows starts on an empty line."""
        if self.visible:
            self._progress.stop()


@contextlib.contextmanager
def working(what: str, stream: TextIO | None = None) -> Iterator[None]:
    """Sign of life on standard error while something takes its time, such as the compiler; gone when it has ended.

    what:  what is being done, such as "compiling ppo"
    """
    stream = sys.stderr if stream is None else stream
    if not is_shown(stream):
        yield
        return
    from rich.console import Console

    with Console(file=stream).status(what):
        yield
