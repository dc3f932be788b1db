"""Record how OpenDSS solves the small feeders of `opendss_feeders`, and what it calls its properties and commands.

Runs where OpenDSS is installed (`pip install .[bench]`). Without --write it prints the differences to what is
committed; with --write it replaces the files.

Usage: python tests/recorders/record_opendss_elements.py [--write]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from powerzoo_jax.base.npz import read_npz, write_npz  # noqa: E402
from powerzoo_jax.cases.readers.opendss.rules import FIXED, LOADSHAPE, PROPERTIES  # noqa: E402
from tests.references.opendss_feeders import feeders  # noqa: E402
from tests.references.opendss_shapes import FILES, SHAPES, STEPS  # noqa: E402
from tools.builder import compare_npz  # noqa: E402

DATA = ROOT / "tests" / "recorded" / "opendss"
# class -> what its example needs for the engine to take it
KINDS = {
    "vsource": "", "line": "", "linecode": "", "load": "", "transformer": "",
    "regcontrol": "transformer=x winding=2", "capacitor": "", "xfmrcode": "", "generator": "", "pvsystem": "",
    "storage": "", "loadshape": "",
    "wiredata": "rac=1 gmrac=1 diam=1 runits=mi gmrunits=ft radunits=in", "cndata": "",
    "linespacing": "nconds=1 nphases=1 x=[0] h=[10]",
    "linegeometry": "nconds=1 nphases=1 cond=1 wire=x x=0 h=10 units=ft", "reactor": "",
}  # fmt: skip
TABLES = {**PROPERTIES, "loadshape": LOADSHAPE}
SOLVE = ("set controlmode=off", "set tolerance=1e-12", "set maxiterations=500")


def start() -> Any:
    """The engine without a circuit; the base frequency outlives a circuit."""
    import opendssdirect as dss

    dss.Basic.AllowForms(False)
    dss.Text.Command("clear")
    dss.Text.Command("set defaultbasefrequency=60")
    return dss


def solve(text: str, folder: Path) -> tuple[list[str], np.ndarray]:
    """Names of the nodes and their voltages [V]; raises when OpenDSS does not read the script or does not converge."""
    dss = start()
    (folder / "feeder.dss").write_text(text)
    dss.Text.Command(f'redirect "{folder / "feeder.dss"}"')
    for command in SOLVE:
        dss.Text.Command(command)
    dss.Solution.Solve()
    if not dss.Solution.Converged():
        raise RuntimeError("OpenDSS does not converge")
    volts = np.array(dss.Circuit.AllBusVolts()).reshape(-1, 2)
    return list(dss.Circuit.AllNodeNames()), volts[:, 0] + 1j * volts[:, 1]


def load_powers(text: str, mode: str, hours: float, folder: Path) -> np.ndarray:
    """Active power [kW] of all loads over the steps of a solution in time."""
    for name, content in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)
    dss = start()
    (folder / "feeder.dss").write_text(text)
    dss.Text.Command(f'redirect "{folder / "feeder.dss"}"')
    for command in (*SOLVE, f"set mode={mode} stepsize={hours}h number=1"):
        dss.Text.Command(command)
    total = np.zeros(STEPS)
    for k in range(STEPS):
        dss.Solution.Solve()
        for load in dss.Loads.AllNames():
            dss.Circuit.SetActiveElement(f"load.{load}")
            total[k] += sum(dss.CktElement.Powers()[::2])
    return total


def series(folder: Path) -> dict[str, np.ndarray]:
    """Active power [kW] of all loads over the steps of every feeder of `opendss_shapes`, by name."""
    return {name: load_powers(text, mode, hours, folder) for name, (text, mode, hours) in SHAPES.items()}


def pack(solved: dict[str, tuple[list[str], np.ndarray]]) -> dict[str, np.ndarray]:
    """Arrays of all feeders, one after the other."""
    return {
        "feeder": np.array(list(solved)),
        "count": np.array([len(nodes) for nodes, _ in solved.values()]),
        "node": np.concatenate([nodes for nodes, _ in solved.values()]),
        "volt": np.concatenate([volts for _, volts in solved.values()]),
    }


def recorded() -> dict[str, dict[str, complex]]:
    """Voltage [V] by feeder and node, as `pack` keeps them."""
    arrays = read_npz(DATA / "expected.npz")
    ends = np.cumsum(arrays["count"])
    spans = [slice(end - count, end) for end, count in zip(ends, arrays["count"], strict=True)]
    found = zip(arrays["feeder"].tolist(), spans, strict=True)
    return {
        name: dict(zip(arrays["node"][at].tolist(), arrays["volt"][at].tolist(), strict=True)) for name, at in found
    }


def names(folder: Path) -> dict[str, Any]:
    """Properties by class, the defaults of those that the reader takes at their default alone, commands
    and options, lower case, in the order of the engine."""
    solve(feeders()["base"], folder)
    dss = start()
    dss.Text.Command("new circuit.c")
    properties, defaults = {}, {}
    fixed = {kind: [key for key, rule in rules.items() if rule.effect == FIXED] for kind, rules in TABLES.items()}
    for kind, needed in KINDS.items():
        if kind != "vsource":
            dss.Text.Command(f"new {kind}.x {needed}")
        element = f"{kind}.{'source' if kind == 'vsource' else 'x'}"
        dss.Text.Command(f"? {element}.like")
        properties[kind] = [name.lower() for name in dss.Element.AllPropertyNames()]
        defaults[kind] = {}
        for name in fixed[kind]:
            dss.Text.Command(f"? {element}.{name}")
            defaults[kind][name] = dss.Text.Result().lower()
    ask = dss.Executive
    return {
        "properties": properties,
        "defaults": defaults,
        "commands": [ask.Command(k + 1).lower() for k in range(ask.NumCommands())],
        "options": [ask.Option(k + 1).lower() for k in range(ask.NumOptions())],
        "classes": [name.lower() for name in dss.Basic.Classes()],
    }


README = """# opendss: how OpenDSS solves small feeders

`expected.npz` has the feeders of `tests/references/opendss_feeders.py` one after the other: their names, the numbers of
their nodes, the names of these, and their voltages in volt (complex) as OpenDSS (opendssdirect.py {version}, BSD
3-clause) finds them, its controls off. `names.json` has the names of the engine's properties of the classes that are
read, in its order, the defaults of those that are read at their default alone, and the names of its commands, options
and classes. `series.npz` has the active power [kW] of all loads of the feeders of
`tests/references/opendss_shapes.py` at the first steps of a solution in time. The feeders are our own.

Recorded by `tests/recorders/record_opendss_elements.py --write`; without the flag it prints what would change.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="replace the committed files")
    args = parser.parse_args()
    solved: dict[str, tuple[list[str], np.ndarray]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name, text in feeders().items():
            try:
                solved[name] = solve(text, Path(scratch))
            except Exception as err:
                raise RuntimeError(f"{name}: {err}") from err
        found = json.dumps(names(Path(scratch)), indent=1) + "\n"
        powers = series(Path(scratch))
    arrays = pack(solved)
    for line in compare_npz(DATA / "expected.npz", arrays) or [f"{len(solved)} feeders: unchanged"]:
        print(line)
    for line in compare_npz(DATA / "series.npz", powers) or [f"{len(powers)} series: unchanged"]:
        print(line)
    path = DATA / "names.json"
    print("names: unchanged" if path.is_file() and path.read_text() == found else "names: differ")
    if args.write:
        write_npz(DATA / "expected.npz", arrays)
        write_npz(DATA / "series.npz", powers)
        path.write_text(found)
        (DATA / "README.md").write_text(README.format(version=metadata.version("opendssdirect.py")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
