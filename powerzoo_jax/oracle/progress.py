"""Progress bar of the commands that search for long."""

from __future__ import annotations

import sys

WIDTH = 30


def show_progress(label: str, done: int, total: int) -> None:
    """One line on a terminal; nothing where the output is read by a program."""
    if sys.stderr.isatty():
        filled = WIDTH * done // total
        end = "\n" if done == total else ""
        print(f"\r{label:9}[{'#' * filled}{' ' * (WIDTH - filled)}] {done}/{total}", end=end, file=sys.stderr)
