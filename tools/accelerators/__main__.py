"""Compile every program for accelerators that are not there, count, compare with the limits.

Usage: python -m tools.accelerators [--quick] [--only PART ...] [--platform h200 v5e] [--jobs N] [--out FILE]
       python -m tools.accelerators --tighten      lower the limits to what was measured, add missing ones

One row a program and platform, written as it comes; rows that are there already for the same sources are kept, so that
an interrupted run goes on where it stopped. Where sources have changed, a program is lowered, and compiled only if what
is lowered has changed. A compilation that fails or does not end is a row with the reason. Exit status 1 where a limit
of `limits.tsv` is broken.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from tools.accelerators import limits
from tools.accelerators.compile_one import PINS
from tools.accelerators.targets import PLATFORMS

ROOT = Path(__file__).parents[2]
LANES = 4096
LARGE = 65_536  # of which only the memory is asked
COLUMNS = (
    *("program", "platform", "lanes", "outcome", "kernels", "questions", "loops", "branches", "rare", "library"),
    *("wide", "unpinned", "state_bytes", "obs_bytes", "temp_mb", "temp_mb_65536", "compile_s", "source", "lowered"),
)
REASONS = ("UNIMPLEMENTED: .*", "RESOURCE_EXHAUSTED: .*", "Check failed: .*", r"\w+(?:Error|Exception): .*")
LATE = "not compiled within"
Key = tuple[str, str]
Rows = dict[Key, dict[str, str]]


def source_hash() -> str:
    """Fingerprint of all that a compiled program follows from."""
    digest = hashlib.sha256()
    folder = ROOT / "tools" / "accelerators"
    own = [folder / name for name in ("hlo.py", "programs.py", "targets.py", "compile_one.py", "h200.txtpb")]
    package = (p for p in (ROOT / "powerzoo_jax").rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    for path in [*sorted(package), *own, PINS]:
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def read_rows(path: Path) -> Rows:
    """Rows of an earlier run, by program and platform."""
    lines = path.read_text().splitlines() if path.is_file() else []
    rows = [dict(zip(COLUMNS, line.split("\t"), strict=True)) for line in lines[2:]]
    return {(row["program"], row["platform"]): row for row in rows}


def write_rows(path: Path, rows: Rows, order: list[Key]) -> None:
    """Write the table whole, so that an interruption leaves the one before."""
    pins = (line for line in PINS.read_text().splitlines() if line.startswith(("jax==", "jax-cuda", "libtpu==")))
    versions = " ".join(pins).replace("==", "=")
    kept = [rows[key] for key in order if key in rows]
    text = [f"# compiled ahead of time, never run: NVIDIA H200, TPU v5e; {versions}", "\t".join(COLUMNS)]
    text += ["\t".join(row[name] for name in COLUMNS) for row in kept]
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text("\n".join(text) + "\n")
    part.replace(path)


def compile_program(
    program: str, platform: str, lanes: list[int], seconds: float, source: str, before: dict[str, str] | None = None
) -> dict[str, str]:
    """One row: figures of the first number of lanes, the memory of the second.

    before:  the whole row of an earlier run, which stands if the lowered program is still the same
    """
    known = before["lowered"] if before else "-"
    command = [sys.executable, "-m", "tools.accelerators.compile_one", program, platform, known, *map(str, lanes)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, cwd=ROOT, check=False)
        printed, failed = done.stdout, "" if done.returncode == 0 else reason(done.stderr, done.returncode)
    except subprocess.TimeoutExpired as err:
        printed = err.stdout.decode() if isinstance(err.stdout, bytes) else err.stdout or ""
        failed = f"{LATE} {seconds:.0f} s"
    found = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    if before and found and found[0]["known"]:
        return before | {"source": source}
    row = dict.fromkeys(COLUMNS, "-") | {"program": program, "platform": platform, "lanes": str(lanes[0])}
    row |= {"source": source, "outcome": "ok" if found else failed or "no figures"}
    if found:
        row |= figures(found[0])
    if len(lanes) > 1:
        # what is said of the first number of lanes stands also where the second one fails
        row["temp_mb_65536"] = _mb(found[1]["temp_bytes"]) if len(found) > 1 else failed or "-"
    return row


def figures(found: dict[str, Any]) -> dict[str, str]:
    """Cells of a row, from what the compiling process printed."""
    cells = {name: str(found[name]) for name in COLUMNS if name in found}
    return cells | {"questions": str(found["loops"] + found["branches"]), "temp_mb": _mb(found["temp_bytes"])}


def _mb(size: int) -> str:
    return f"{size / 1e6:.1f}"


def reason(text: str, code: int) -> str:
    """Why a compilation failed, in one line, from what it wrote."""
    for pattern in REASONS:
        found = re.findall(pattern, text)
        if found:
            # an address is where a trace of the stack begins on the same line
            return re.sub(r":? *@ +0x.*", "", re.sub(r"\s+", " ", found[-1]))[:160].strip()
    return f"ended with status {code}"


def chosen(args: argparse.Namespace, names: tuple[str, ...], known: limits.Limits) -> Iterator[Key]:
    """Programs and platforms of this run: tasks before solvers before training."""
    for name in names:
        if args.only and not any(part in name for part in args.only):
            continue
        for platform in args.platform:
            if not args.quick or known.get((name, platform), {}).get("quick") == "yes":
                yield name, platform


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="what limits.tsv calls quick: each task on one platform")
    parser.add_argument("--only", nargs="+", default=[], metavar="PART", help="programs whose name contains a part")
    parser.add_argument("--platform", nargs="+", default=list(PLATFORMS), choices=PLATFORMS)
    parser.add_argument("--jobs", type=int, default=1, help="compilations side by side")
    parser.add_argument("--seconds", type=float, default=300, help="limit of one compilation")
    parser.add_argument("--large", type=int, default=LARGE, help="lanes of the second figure of memory; 0: none")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "accelerators.tsv")
    parser.add_argument("--tighten", action="store_true", help="see above")
    args = parser.parse_args()
    os.environ["JAX_PLATFORMS"] = "cpu"  # this process only asks for names
    from tools.accelerators.programs import names

    every, known, source = names(), limits.read(), source_hash()
    order = [(name, platform) for name in every for platform in PLATFORMS]
    rows, wanted = read_rows(args.out), list(chosen(args, every, known))

    def lanes(program: str) -> list[int]:
        return [LANES, args.large] if args.large and not args.quick and program.startswith("task/") else [LANES]

    def whole(key: Key) -> dict[str, str] | None:
        """The row of a program, if it has all figures that are asked for."""
        row = rows.get(key)
        return row if row and (len(lanes(key[0])) == 1 or row["temp_mb_65536"] != "-") else None

    def there(key: Key) -> bool:
        row = rows.get(key)
        return row is not None and row["source"] == source and (row["outcome"] != "ok" or whole(key) is not None)

    # programs that have no row come first: an interrupted run then leaves as few gaps as it can
    missing = sorted((key for key in wanted if not there(key)), key=lambda key: key in rows)
    begin = time.monotonic()
    with ThreadPoolExecutor(args.jobs) as pool:
        jobs = [pool.submit(compile_program, *key, lanes(key[0]), args.seconds, source, whole(key)) for key in missing]
        for number, job in enumerate(as_completed(jobs), 1):
            row = job.result()
            rows[row["program"], row["platform"]] = row
            write_rows(args.out, rows, order)
            told = f"{row['kernels']} kernels, {row['questions']} questions, {row['compile_s']} s"
            told = told if row["outcome"] == "ok" else row["outcome"]
            seconds = time.monotonic() - begin
            print(f"[{number}/{len(jobs)}, {seconds:.0f} s] {row['program']} {row['platform']}: {told}", flush=True)
    return judge([rows[key] for key in wanted], known, args.tighten)


def judge(rows: list[dict[str, str]], known: limits.Limits, tighten: bool) -> int:
    """Print what is broken and what is still to reach; 1 where a limit is broken."""
    if tighten:
        changed = limits.tighten(known, rows)
        limits.write(known)
        print(f"limits of {len(changed)} programs set")
    bad = [f"{row['program']} {row['platform']}: {what}" for row in rows for what in limits.broken(row, known)]
    open_targets = [f"{row['program']} {row['platform']}: {what}" for row in rows for what in limits.missed(row, known)]
    for line in open_targets:
        print(f"to reach: {line}")
    for line in bad:
        print(f"BROKEN: {line}")
    print(f"{len(rows)} programs, {len(bad)} limits broken, {len(open_targets)} targets to reach")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
