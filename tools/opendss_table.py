"""Published networks as our readers take them, beside the engine that they were written for.

`--opendss FOLDER` looks for the masters listed here in a folder that the user has, and writes one row for each: digest
and size of all files read, read or refused and why, and the largest voltage difference to OpenDSS. The engine solves
with its controls first; its taps are then those of both, its controls off and every capacitor on. Nothing of the
networks is kept but the digest. Runs where OpenDSS is installed (`pip install .[bench]`).

Usage: python -m tools.opendss_table --opendss FOLDER [--write FILE] [--only TEXT]
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import time
from dataclasses import astuple, dataclass, field, fields
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from powerzoo_jax.base.errors import PowerZooError, excerpt
from powerzoo_jax.cases import read_opendss
from powerzoo_jax.cases.threephase.case import ThreePhaseCase
from powerzoo_jax.powerflow.threephase.host import solve_threephase_on_host

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "benchmarks" / "results" / "readers_opendss.tsv"
# feeder -> the end of the path of its master, in lower case
MASTERS = {
    "IEEE 13": "13bus/ieee13nodeckt.dss",
    "IEEE 34, mod 1": "34bus/ieee34mod1.dss",
    "IEEE 34, mod 2": "34bus/ieee34mod2.dss",
    "IEEE 37": "37bus/ieee37.dss",
    "IEEE 123": "123bus/ieee123master.dss",
    "4-bus D-Y": "4bus-dy-bal/4bus-dy-bal.dss",
    "4-bus grounded Y-D": "4bus-grdyd-bal/4bus-grdyd-bal.dss",
    "4-bus open Y-open D": "4bus-oyod-bal/4bus-oyod-bal.dss",
    "4-bus open Y-open D, unbalanced": "4bus-oyod-unbal/4bus-oyod-unbal.dss",
    "4-bus Y-D": "4bus-yd-bal/4bus-yd-bal.dss",
    "4-bus Y-Y": "4bus-yy-bal/4bus-yy-bal.dss",
    "4-bus Y-Y-D": "4bus-yyd/yyd-master-step1.dss",
    "4-bus Y-Y-D, fault": "4bus-yyd/yyd-master.dss",
    "European LV": "lvtestcase/master.dss",
    "North American LV network": "lvtestcasenorthamerican/master.dss",
    "secondary circuit": "secondarytestcircuit_modified/master.dss",
    "EPRI ckt5": "ckt5/master_ckt5.dss",
    "EPRI ckt7": "ckt7/master_ckt7.dss",
    "8500 nodes": "8500-node/master.dss",
    "8500 nodes, unbalanced": "8500-node/master-unbal.dss",
    "NEV": "nevtestcase/nevmaster.dss",
}
STEP = 0.00625  # ratio of one tap position
TIGHT = ("set controlmode=off", "set tolerance=1e-12", "set maxiterations=1000")


@dataclass
class Entry:
    """One row of the table.

    feeder, master:  what it is, and the last two parts of the path
    sha256, size_bytes: of all files read, in the order in which the master leads to them
    nodes, lines, loads: of the case; -1 where it is refused
    outcome:         "read" or "refused"
    error_pu:        largest difference of a node voltage to OpenDSS, on the node's base; nan without a comparison
    read_s, solve_s: [s] of reading, and of solving on the host
    remark:          first problem of what is refused, or the number of notes
    """

    feeder: str
    master: str
    sha256: str = ""
    size_bytes: int = 0
    nodes: int = -1
    lines: int = -1
    loads: int = -1
    outcome: str = "refused"
    error_pu: float = float("nan")
    read_s: float = 0.0
    solve_s: float = 0.0
    remark: str = ""
    texts: list[bytes] = field(default_factory=list)


def find(folder: Path, end: str) -> Path | None:
    """The master whose path ends so, whatever its letters; None where the folder has none."""
    found = (p for p in sorted(folder.rglob("*")) if p.is_file() and p.as_posix().lower().endswith(f"/{end}"))
    return next(found, None)


def entry(feeder: str, path: Path) -> Entry:
    """Read one master, solve it, and compare with the engine."""
    row = Entry(feeder, "/".join(path.parts[-2:]))
    expected: dict[str, complex] = {}
    taps: dict[str, int] = {}
    try:
        expected, taps = engine_volts(path)
    except Exception as err:  # the engine raises what it likes, and its failure is a remark of the row
        row.remark = f"OpenDSS: {excerpt(err, 120)}"

    def read(name: str) -> str:
        target = path.parent / name
        if not target.is_file():
            target = next(p for p in target.parent.iterdir() if p.name.lower() == target.name.lower())
        row.texts.append(target.read_bytes())
        return row.texts[-1].decode("latin-1")

    start = time.perf_counter()
    try:
        case = read_opendss(path.name, read=read, taps=taps)
        row.read_s = time.perf_counter() - start
        row.nodes, row.lines, row.loads = case.n_node, len(case.line), len(case.load)
        start = time.perf_counter()
        volts = solve_threephase_on_host(case)
        row.solve_s = time.perf_counter() - start
        row.outcome = "read"
        row.remark = row.remark or f"{len(case.notes)} notes"
        if expected:
            row.error_pu = largest_error(case, volts, expected)
    except PowerZooError as err:
        row.remark = excerpt(" ".join(str(err).splitlines()[:2]), 160).replace(str(path.parent), "")
    row.size_bytes = sum(map(len, row.texts))
    row.sha256 = hashlib.sha256(b"".join(row.texts)).hexdigest()
    return row


def largest_error(case: ThreePhaseCase, volts: np.ndarray, expected: dict[str, complex]) -> float:
    """[pu] over the nodes of the engine; infinite where one of them is none of ours."""
    if not expected.keys() <= case.node_index.keys():
        return float("inf")
    at = [case.node_index[name] for name in expected]
    return float(np.abs(volts[at] - np.array(list(expected.values())) / (1e3 * case.node.base_kv[at])).max())


def engine_volts(path: Path) -> tuple[dict[str, complex], dict[str, int]]:
    """Voltages [V] by node, and the tap positions of regulated transformers, once the engine's controls rest."""
    import opendssdirect as dss

    dss.Basic.AllowForms(False)
    dss.Basic.AllowEditor(False)
    dss.Basic.AllowChangeDir(False)
    for command in ("clear", "set defaultbasefrequency=60", f'compile "{path}"', "solve"):
        dss.Text.Command(command)
    taps = {}
    more = dss.RegControls.First()
    while more:
        name = dss.RegControls.Transformer()
        dss.Transformers.Name(name)
        dss.Transformers.Wdg(2)
        taps[name.lower()] = round((dss.Transformers.Tap() - 1) / STEP)
        more = dss.RegControls.Next()
    more = dss.Capacitors.First()
    while more:
        # a capacitor control opens its conductors as well, and the engine builds no admittances for the states alone
        steps = " ".join(["1"] * dss.Capacitors.NumSteps())
        for command in ("capacitor.{}.states=[{}]", "close capacitor.{} 1"):
            dss.Text.Command(command.format(dss.Capacitors.Name(), steps))
        more = dss.Capacitors.Next()
    for command in TIGHT:
        dss.Text.Command(command)
    dss.Solution.Solve()
    volts = np.array(dss.Circuit.AllBusVolts()).reshape(-1, 2) @ [1, 1j]
    return dict(zip(dss.Circuit.AllNodeNames(), volts.tolist(), strict=True)), taps


def render(rows: list[Entry]) -> str:
    """Text of the table."""
    names = [f.name for f in fields(Entry) if f.name != "texts"]

    def cell(value: Any) -> str:
        return f"{value:.2g}" if isinstance(value, float) else str(value)

    head = f"# python -m tools.opendss_table --opendss FOLDER; opendssdirect.py {metadata.version('opendssdirect.py')}"
    lines = [head, "\t".join(names), *("\t".join(map(cell, astuple(row)[:-1])) for row in rows)]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--opendss", type=Path, required=True, metavar="FOLDER", help="where the masters lie")
    parser.add_argument("--only", default="", metavar="TEXT", help="feeders whose name contains it")
    parser.add_argument(
        "--write", type=Path, metavar="FILE", help=f"write the table, such as {TABLE.relative_to(ROOT)}"
    )
    args = parser.parse_args()
    rows = []
    for feeder, end in MASTERS.items():
        path = find(args.opendss.resolve(), end) if args.only.lower() in feeder.lower() else None
        if path is not None:
            here = os.getcwd()  # the engine moves
            rows.append(entry(feeder, path))
            os.chdir(here)
            print("\t".join(map(str, astuple(rows[-1])[:-1])), flush=True)
    if args.write:
        args.write.write_text(render(rows), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
