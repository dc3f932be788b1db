"""Measure how far the meshed solver is from the reference over random states of ten cases, one TSV row per precision.

Usage: python tests/recorders/measure_meshed.py [--states 1000] [--dtype float32] [--write] [CASE ...]

Rows are printed as they come; --write puts each into the committed table at once, beside the rows of other cases.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.references.meshed_cases import (  # noqa: E402
    CASES,
    DTYPES,
    TABLE,
    Accuracy,
    accuracy,
    factors_of,
    meshed_case,
    read_table,
    solve_all,
)

COLUMNS = ("case", "dtype", "states", *Accuracy._fields[:-1], "mean_steps", "most_steps")


def row_of(name: str, dtype: str, states: int, found: Accuracy) -> tuple[str, ...]:
    numbers = (f"{x:.1e}" if isinstance(x, float) else str(x) for x in found[:-1])
    return (name, dtype, str(states), *numbers, f"{found.steps[0]:.1f}", str(found.steps[1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--states", type=int, default=1000, help="states per case, the base state among them")
    parser.add_argument("--dtype", action="append", choices=DTYPES, help="one precision only")
    parser.add_argument("--write", action="store_true", help="renew the committed rows")
    parser.add_argument("cases", nargs="*", default=CASES)
    args = parser.parse_args()
    print(*COLUMNS, sep="\t", flush=True)
    for dtype in args.dtype or DTYPES:
        for name in args.cases:
            known = meshed_case(name, args.states - 1)
            row = row_of(name, dtype, args.states, accuracy(known, solve_all(factors_of(name, dtype), known.states)))
            print(*row, sep="\t", flush=True)
            if args.write:
                table = {key: tuple(values.values()) for key, values in read_table().items()} | {(name, dtype): row}
                order = sorted(table, key=lambda key: (CASES.index(key[0]), DTYPES.index(key[1])))
                TABLE.parent.mkdir(parents=True, exist_ok=True)
                TABLE.write_text("\n".join("\t".join(line) for line in (COLUMNS, *(table[k] for k in order))) + "\n")


if __name__ == "__main__":
    main()
