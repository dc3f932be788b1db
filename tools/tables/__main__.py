"""Recorder of tables: `python -m tools.tables NAME [--out FILE]` prints one row after the other, and counts outcomes.

Each table has options of its own, see `python -m tools.tables NAME --help`. The exit status is the number of rows that
should not be: networks that differ, faults that went unnoticed.
"""

from __future__ import annotations

import argparse
import inspect
import logging
import sys
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tools.tables import Table, cgmes, checkpoints, first_picture, networks, opendss, opf

TABLES = {
    "bands": opf.BANDS,
    "cgmes": cgmes.TABLE,
    "checkpoints": checkpoints.TABLE,
    "first_picture": first_picture.TABLE,
    "networks": networks.TABLE,
    "opendss": opendss.TABLE,
    "pglib": opf.PGLIB,
}


def add_options(parser: argparse.ArgumentParser, table: Table) -> None:
    """Options of a table: a parameter without a default is a folder, a tuple takes several values."""
    for name, parameter in inspect.signature(table.rows).parameters.items():
        flag, default = f"--{name}", parameter.default
        if default is parameter.empty:
            parser.add_argument(flag, type=Path, required=True, metavar="FOLDER")
        elif isinstance(default, tuple):
            parser.add_argument(flag, nargs="+", type=type(default[0]), default=default, metavar="TEXT")
        else:
            parser.add_argument(flag, type=type(default), default=default)


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table and write it where asked; the number of rows that fail."""
    parser = argparse.ArgumentParser(prog="python -m tools.tables", description=__doc__)
    names = parser.add_subparsers(dest="table", required=True, metavar="NAME")
    for name, table in TABLES.items():
        described = inspect.getdoc(table.rows)
        one = names.add_parser(name, description=described, formatter_class=argparse.RawDescriptionHelpFormatter)
        add_options(one, table)
        one.add_argument("--out", type=Path, help="file for the table")
    options = vars(parser.parse_args(argv))
    table, out = TABLES[options.pop("table")], options.pop("out")
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    remarks, lines, outcomes, failed = [], ["\t".join(table.columns)], Counter[str](), 0
    print(lines[0], flush=True)
    for row in table.rows(**options):
        if isinstance(row, str):
            remarks.append(f"# {row}")
            continue
        outcomes[row.get("outcome", "rows")] += 1
        failed += bool(table.fails(row))
        lines.append("\t".join(row.get(column, "") for column in table.columns))
        print(lines[-1], flush=True)
    print(*remarks, "; ".join(f"{count} {outcome}" for outcome, count in outcomes.items()), sep="\n")
    if out:
        out.write_text("\n".join((*remarks, *lines, "")), encoding="utf-8")
    return failed


if __name__ == "__main__":
    sys.exit(main())
