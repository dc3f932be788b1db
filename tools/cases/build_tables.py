"""Developers' builder of tables/: python -m tools.cases.build_tables [--write] [--cache DIR]."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from powerzoo_jax.cases.case import Case
from powerzoo_jax.cases.library import FOLDER, to_arrays
from powerzoo_jax.cases.validate import assert_valid
from tools.builder import run_builder
from tools.cases.greatbritain import LINE_MVA, TRANSFORMER_MVA
from tools.cases.recipes import SHIPPED
from tools.pins import fetch, read_member

HEADER = """# Provenance of the network tables

Every npz here is derived by `python -m tools.cases.build_tables --write` and holds the arrays of one `Case`.
Common transform: columns renamed, tap 0 -> 1, infinite rating -> 0 (unlimited), angle limits 0, 0 -> -360, 360,
Pd and Qd moved into a load table (rows that are zero in both left out), cost columns cut to those in use.
The comment of each source file, with its citation, is kept in `Case.citation`.
Tables made from saved nets hold 9 significant digits: those numbers went through ohm, kA and percent and back.

| table | package | version | SHA-256 | member | licence / citation | further transform |
|---|---|---|---|---|---|---|
"""

RATINGS = """
Ratings of `case793gb` and `case2224gb` in MVA, round values in use at each voltage; the source writes 9900 for all.
With them the DC optimum stays that of the source, 1851891.46 USD/h: no rating binds at the nominal load.

- Lines: {lines}.
- Transformers: {transformers}.
"""


def build(cache: Path) -> dict[str, Case]:
    """Make and validate every shipped case from the pinned artefacts."""
    artefacts = {pin: fetch(pin, cache) for pin in {pin for r in SHIPPED.values() for pin, _ in r.sources}}
    cases = {}
    for name, recipe in SHIPPED.items():
        texts = [read_member(artefacts[pin], member).decode("utf-8") for pin, member in recipe.sources]
        cases[name] = recipe.make(name, texts)
        assert_valid(cases[name])
    return cases


def provenance() -> str:
    """Text of PROVENANCE.md: a row per table and source."""
    rows = [
        f"| `{name}.npz` | {pin.package} | {pin.version} | `{pin.sha256}` "
        f"| `{member}` | {recipe.licence} | {recipe.transform or 'none'} |"
        for name, recipe in SHIPPED.items()
        for pin, member in recipe.sources
    ]
    lines = ", ".join(f"{kv:g} kV {mva:g}" for kv, mva in LINE_MVA.items())
    transformers = ", ".join(f"{high:g}/{low:g} kV {mva:g}" for (high, low), mva in TRANSFORMER_MVA.items())
    return HEADER + "\n".join(rows) + "\n" + RATINGS.format(lines=lines, transformers=transformers)


def main(argv: Sequence[str] | None = None) -> int:
    """Compare (default) or write the tables; 1 when the committed ones differ."""

    def arrays(cache: Path) -> dict[str, dict[str, np.ndarray]]:
        return {name: to_arrays(case) for name, case in build(cache).items()}

    return run_builder("tables", FOLDER, arrays, provenance(), argv)


if __name__ == "__main__":
    sys.exit(main())
