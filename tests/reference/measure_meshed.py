"""Print how far the meshed solver is from the reference over random states of ten cases, as TSV.

Usage: python tests/reference/measure_meshed.py [--states 1000] [--dtype float32] [CASE ...]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.reference.meshed_cases import (  # noqa: E402
    CASES,
    Accuracy,
    accuracy,
    factors_of,
    meshed_case,
    solve_all,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--states", type=int, default=1000, help="states per case, the base state among them")
    parser.add_argument("--dtype", action="append", choices=["float32", "float64"], help="one precision only")
    parser.add_argument("cases", nargs="*", default=CASES)
    args = parser.parse_args()
    print("case", "dtype", *Accuracy._fields, sep="\t", flush=True)
    for name in args.cases:
        known = meshed_case(name, args.states - 1)
        for dtype in args.dtype or ("float32", "float64"):
            found = accuracy(known, solve_all(factors_of(name, dtype), known.states))
            row = (f"{x:.1e}" if isinstance(x, float) else str(x) for x in found[:-1])
            print(name, dtype, *row, f"{found.steps[0]:.1f}, {found.steps[1]}", sep="\t", flush=True)


if __name__ == "__main__":
    main()
