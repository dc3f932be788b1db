"""Reference suites in float32 with the fixed form of every solver.

Usage: python -m tools.accelerators.suites [--only PART ...] [--out FILE]

One row a folder of tests, or a file of a large one, written as it comes; `--out` keeps the rows that are not run again.
Tests that are marked `reference` compare with another engine, a published figure or an independent solver; those of
float64 are left out. What is taken as fixed is `auto`, the default of all solvers; a test that asks for the adaptive
form gets it. The AC-OPF has one form and is left out, and so is the DC-OPF of grids with thousands of buses, whose
systems are dense in this form. Exit status 1 where a test failed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "fixed_mode.tsv"
COLUMNS = ("suite", "passed", "failed", "skipped", "seconds")
SUITES = (
    *(f"tests/powerflow/feeder/test_{name}.py" for name in ("collapse", "solve")),
    *(f"tests/powerflow/meshed/test_{name}.py" for name in ("fixed", "slack", "solve", "reactive_limits")),
    "tests/powerflow/meshed/test_pandapower_networks.py",
    *(f"tests/powerflow/{name}" for name in ("threephase", "dc", "contingency")),
    *(f"tests/powerflow/test_{name}.py" for name in ("golden", "topology")),
    *(f"tests/opf/dc/test_{name}.py" for name in ("security", "solve")),
)
CHOSEN = ("-m", "reference", "-k", "not float64 and not large_grid", "--auto-is", "fixed")
NOTHING_CHOSEN = 5  # status of pytest


def read_rows(path: Path) -> dict[str, tuple[str, ...]]:
    """Rows of an earlier run by suite."""
    lines = path.read_text(encoding="utf-8").splitlines()[1:] if path.is_file() else []
    return {line.split("\t")[0]: tuple(line.split("\t")) for line in lines}


def run(suite: str) -> tuple[str, ...]:
    """One row."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *CHOSEN, suite]
        done = subprocess.run(
            [*command, f"--junitxml={report}"], cwd=ROOT, env=os.environ | {"JAX_PLATFORMS": "cpu"}, check=False
        )
        if done.returncode not in (0, 1, NOTHING_CHOSEN):
            raise RuntimeError(f"pytest ended with status {done.returncode} on {suite}.")
        return counted(suite, report)


def counted(suite: str, report: Path) -> tuple[str, ...]:
    """Cells of a row from the report that pytest writes."""
    found = ElementTree.parse(report).getroot().find("testsuite")
    if found is None:
        raise ValueError(f"no test suite in {report}.")
    tests, skipped = int(found.attrib["tests"]), int(found.attrib["skipped"])
    failed = int(found.attrib["failures"]) + int(found.attrib["errors"])
    seconds = f"{float(found.attrib['time']):.0f}"
    return (suite, str(tests - failed - skipped), str(failed), str(skipped), seconds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], metavar="PART", help="suites whose name contains a part")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    rows = read_rows(args.out)
    for suite in SUITES:
        if not args.only or any(part in suite for part in args.only):
            rows[suite] = run(suite)
            kept = (rows[name] for name in SUITES if name in rows)
            lines = ("\t".join(row) for row in (COLUMNS, *kept))
            args.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
            print("\t".join(rows[suite]), flush=True)
    return int(any(int(row[2]) for row in rows.values()))


if __name__ == "__main__":
    raise SystemExit(main())
