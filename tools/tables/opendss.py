"""Published networks as our readers take them, beside the engine that they were written for.

The masters listed here are looked for in a folder that the user has. The engine solves with its controls first; its
taps are then those of both, its controls off and every capacitor on. Nothing of the networks is kept but the digest.
Runs where OpenDSS is installed (`pip install .[bench]`).
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import numpy as np

from powerzoo_jax.base.errors import PowerZooError, excerpt
from powerzoo_jax.cases import read_opendss
from powerzoo_jax.cases.threephase.case import ThreePhaseCase
from powerzoo_jax.powerflow.threephase.host import solve_threephase_on_host
from tools.tables import Row, Table

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


def find(folder: Path, end: str) -> Path | None:
    """The master whose path ends so, whatever its letters; None where the folder has none."""
    found = (p for p in sorted(folder.rglob("*")) if p.is_file() and p.as_posix().lower().endswith(f"/{end}"))
    return next(found, None)


def compare(path: Path) -> Row:
    """Read one master, solve it, and compare with the engine: cells by column."""
    expected: dict[str, complex] = {}
    taps: dict[str, int] = {}
    failure, error_pu = "", float("nan")
    here = os.getcwd()
    try:
        expected, taps = engine_volts(path)
    except Exception as err:  # the engine raises what it likes, and its failure is a remark of the row
        failure = f"OpenDSS: {excerpt(err, 120)}"
    finally:
        os.chdir(here)  # the engine moves
    texts: list[bytes] = []

    def read(name: str) -> str:
        target = path.parent / name
        if not target.is_file():
            target = next(p for p in target.parent.iterdir() if p.name.lower() == target.name.lower())
        texts.append(target.read_bytes())
        return texts[-1].decode("latin-1")

    row = {"nodes": "-1", "lines": "-1", "loads": "-1", "outcome": "refused", "read_s": "0", "solve_s": "0"}
    start = time.perf_counter()
    try:
        case = read_opendss(path.name, read=read, taps=taps)
        row["read_s"] = f"{time.perf_counter() - start:.2g}"
        row |= {"nodes": str(case.n_node), "lines": str(len(case.line)), "loads": str(len(case.load))}
        start = time.perf_counter()
        volts = solve_threephase_on_host(case)
        row |= {"outcome": "read", "solve_s": f"{time.perf_counter() - start:.2g}"}
        row["remark"] = failure or f"{len(case.notes)} notes"
        if expected:
            error_pu = largest_error(case, volts, expected)
    except PowerZooError as err:
        row["remark"] = excerpt(" ".join(str(err).splitlines()[:2]), 160).replace(str(path.parent), "")
    row |= {"sha256": hashlib.sha256(b"".join(texts)).hexdigest(), "size_bytes": str(sum(map(len, texts)))}
    return row | {"master": "/".join(path.parts[-2:]), "error_pu": f"{error_pu:.2g}"}


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


def rows(folder: Path, only: tuple[str, ...] = ("",)) -> Iterator[Row | str]:
    """Published feeders as `read_opendss` takes them, beside OpenDSS.

    A row holds digest and size of all files that the master leads to, the size of the case (-1 where it is refused),
    the largest difference of a node voltage to OpenDSS (nan without a comparison), the seconds of reading and of
    solving on the host, and the first problem of what is refused or the number of notes.

    --folder  where the masters lie
    --only    feeders whose names contain one of these
    """
    yield f"python -m tools.tables opendss --folder FOLDER; opendssdirect.py {metadata.version('opendssdirect.py')}"
    for feeder, end in MASTERS.items():
        if any(text.lower() in feeder.lower() for text in only) and (path := find(folder.resolve(), end)):
            yield {"feeder": feeder} | compare(path)


TABLE = Table(
    rows,
    ("feeder", "master", "sha256", "size_bytes", "nodes", "lines", "loads", "outcome", "error_pu", "read_s", "solve_s",
     "remark"),
)  # fmt: skip
