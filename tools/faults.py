"""Seeded faults: known mistakes put into a copy of the sources one by one, and the test that notices each.

`python -m tools.faults` copies the checkout into a temporary folder, applies the faults of tests/faults/seeded.toml
there one after the other, runs the tests named beside each and prints what caught it; the checkout itself stays as it
is. It exits with 1 where a fault passes unnoticed. The named tests run once without any fault first: a test that fails
anyhow catches nothing.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "tests/faults/seeded.toml"
RECORD = ROOT / "tests/recorded/seeded_faults.tsv"
COLUMNS = ("fault", "kind", "tier", "caught", "by", "seconds")
KINDS = ("bound", "draw", "index", "mask", "price", "sign", "status", "unit")
FAILED, PASSED = 1, 0  # what pytest exits with


class Fault(NamedTuple):
    """One mistake.

    name:   unique
    kind:   one of KINDS
    tier:   quick where a test of `make test` is named, full where only `make test-all` notices
    file:   path in the checkout
    old:    text that stands once in it;  new: what takes its place
    tests:  node ids of pytest that notice
    """

    name: str
    kind: str
    tier: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


class Outcome(NamedTuple):
    """Result of the named tests: exit status of pytest, first test that failed, [s], and what was printed."""

    status: int
    by: str
    seconds: float
    text: str


def read_faults(path: Path = LIST) -> tuple[Fault, ...]:
    """Faults of a list. Raises ValueError for a name that stands twice, an unknown kind or tier."""
    rows = tomllib.loads(path.read_text(encoding="utf-8"))["fault"]
    faults = tuple(Fault(**row | {"tests": tuple(row["tests"])}) for row in rows)
    for fault in faults:
        if sum(other.name == fault.name for other in faults) > 1:
            raise ValueError(f"two faults are called {fault.name!r}. Rename one.")
        if fault.kind not in KINDS or fault.tier not in ("quick", "full"):
            raise ValueError(f"{fault.name}: kind {fault.kind!r}, tier {fault.tier!r}. Kinds: {', '.join(KINDS)}.")
    return faults


def apply(fault: Fault, root: Path) -> str:
    """Text of the fault's file with the fault in it; ValueError where the old text does not stand there once."""
    path = root / fault.file
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    if (count := text.count(fault.old)) != 1:
        raise ValueError(f"{fault.name}: {fault.old!r} stands {count} times in {fault.file}, expected once. Update it.")
    return text.replace(fault.old, fault.new)


def copy_checkout(root: Path, target: Path) -> None:
    """Copy what git tracks, and new files that it does not ignore."""
    listed = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-co", "--exclude-standard", "-z"], capture_output=True, check=True
    )
    for name in listed.stdout.decode().split("\0"):
        if name and (root / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, target / name)


def run_tests(root: Path, tests: Iterable[str], *, first_only: bool) -> Outcome:
    """Run tests in a checkout with its own sources ahead of any installed ones."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(root), str(root / "compat")))}
    flags = ["-q", "-rfE", "-p", "no:cacheprovider", *(["-x"] if first_only else [])]
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *flags, *tests], cwd=root, env=env, capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - start
    found = re.search(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", done.stdout, re.MULTILINE)
    return Outcome(done.returncode, found.group(1) if found else "", seconds, done.stdout + done.stderr)


def seed(fault: Fault, copy: Path, turn: int) -> Outcome:
    """Run the named tests of one fault in a copy of the checkout, which is as before afterwards."""
    path, changed = copy / fault.file, apply(fault, copy)
    kept = path.with_suffix(".sound")
    shutil.copy2(path, kept)
    try:
        path.write_text(changed, encoding="utf-8")
        # bytecode is known by size and time in seconds: a sign that changes within one second would go unread
        os.utime(path, (stamp := kept.stat().st_mtime + 10 + turn, stamp))
        return run_tests(copy, fault.tests, first_only=True)
    finally:
        kept.replace(path)


def trial(faults: Sequence[Fault], root: Path) -> Iterator[tuple[str, ...]]:
    """Rows of COLUMNS, one fault after the other. RuntimeError where tests fail without a fault or cannot be run."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        copy_checkout(root, copy)
        sound = run_tests(copy, dict.fromkeys(test for fault in faults for test in fault.tests), first_only=False)
        if sound.status != PASSED:
            raise RuntimeError(f"the named tests do not pass without a fault:\n{sound.text[-4000:]}")
        for turn, fault in enumerate(faults):
            found = seed(fault, copy, turn)
            if found.status not in (FAILED, PASSED):
                raise RuntimeError(f"{fault.name}: its tests could not be run:\n{found.text[-4000:]}")
            caught = "yes" if found.status == FAILED else "no"
            yield fault.name, fault.kind, fault.tier, caught, found.by, f"{found.seconds:.1f}"


def write_record(rows: Iterable[tuple[str, ...]], path: Path) -> None:
    """Put rows into a TSV by fault; other rows stay."""
    known = {row[0]: row for row in read_record(path)} if path.exists() else {}
    known |= {row[0]: row for row in rows}
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ["\t".join(row) for row in (COLUMNS, *(known[key] for key in sorted(known)))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def read_record(path: Path = RECORD) -> list[tuple[str, ...]]:
    """Rows of a record without its header."""
    return [tuple(line.split("\t")) for line in path.read_text(encoding="utf-8").splitlines()[1:]]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; 0 where every fault was caught, 1 where one was not, 2 where the list is out of date."""
    parser = argparse.ArgumentParser(prog="python -m tools.faults", description=__doc__.partition("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("--only", nargs="+", metavar="NAME", help="run these faults")
    parser.add_argument("--check", action="store_true", help="only look whether every fault still applies")
    parser.add_argument("--out", type=Path, metavar="TSV", help=f"record the rows, such as {RECORD.relative_to(ROOT)}")
    asked = parser.parse_args(argv)
    faults = read_faults()
    if unknown := set(asked.only or ()) - {fault.name for fault in faults}:
        parser.error(f"no fault is called {', '.join(sorted(unknown))}. Names stand in {LIST.relative_to(ROOT)}.")
    faults = tuple(fault for fault in faults if not asked.only or fault.name in asked.only)
    errors = []
    for fault in faults:
        try:
            apply(fault, ROOT)
        except ValueError as err:
            errors.append(str(err))
    if errors:
        print(*errors, sep="\n", file=sys.stderr)
        return 2
    if asked.check:
        print(f"{len(faults)} faults apply")
        return 0
    print(*COLUMNS, sep="\t", flush=True)
    missed = []
    for row in trial(faults, ROOT):
        print(*row, sep="\t", flush=True)
        missed += [row[0]] if row[3] == "no" else []
        if asked.out:
            write_record([row], asked.out)  # at once: a run takes minutes and may be stopped
    print(f"{len(faults) - len(missed)} of {len(faults)} caught" + "".join(f"; not caught: {x}" for x in missed))
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
