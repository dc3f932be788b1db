"""Scripts for learners of other projects, each run in its environment and scored against random and idle play.

Usage: python -m tests.foreign [--names NAME ...] [--seeds N ...] [--checkout NAME PATH] [--record]
       python -m tests.foreign --quick     one seed, at most 90 s of a processor a script, two of the slow ones in turn
       python -m tests.foreign --page      the table of docs/measurements/foreign.md, from the record

A script fails where its returns, less two standard errors over the seeds, are not above random and idle play (with one
seed: where the return is not). The exit status is the number of those that fail and of which scripts.toml claims it.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.foreign.record import RECORD, ROOT, beats, merge, read_scripts, write_page

QUICK_S, LIMIT_S, SLOW_AT_ONCE = 90, 900, 2  # of processor time; compiling for the first time takes half of the 90
HANGING = 20  # longer than its processor time by this factor
ONE_THREAD = {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


def run_script(
    name: str, script: dict[str, Any], seeds: list[int], limit_s: int, words: list[str]
) -> list[dict[str, Any]]:
    """Records of a script's seeds; a single one with the key "error" where it failed."""
    python = os.environ.get(f"VENV_{script['env'].upper()}", f".venv-{script['env']}") + "/bin/python"
    module = f"tests.foreign.{script.get('file', name)}"
    limited = ["sh", "-c", f'ulimit -S -t {limit_s}; exec "$@"', name]
    command = [*limited, python, "-m", module, *script.get("args", []), *words, "--seeds", *map(str, seeds)]
    env = {**os.environ, **ONE_THREAD, "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))}
    if not (ROOT / python).exists():
        return [{"script": name, "error": f"{python} is missing. Run `make test-foreign`."}]
    begun = time.monotonic()
    try:
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=HANGING * limit_s)
    except subprocess.TimeoutExpired:
        return [{"script": name, "error": f"hangs: not done after {HANGING * limit_s} s"}]
    if done.returncode == -signal.SIGXCPU:
        return [{"script": name, "error": f"not done after {limit_s} s of processor time"}]
    if done.returncode:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        return [{"script": name, "error": last, "stderr": done.stderr}]
    told = [json.loads(line.removeprefix(RECORD)) for line in done.stdout.splitlines() if line.startswith(RECORD)]
    print(f"{name}: {time.monotonic() - begun:.0f} s", flush=True)
    return [{"script": name, **row, "date": f"{datetime.date.today()}"} for row in told]


def in_turn(slow: list[str], day: int) -> list[str]:
    """Two of the slow scripts, others on the next day."""
    first = day * SLOW_AT_ONCE % max(1, len(slow))
    return (slow + slow)[first : first + min(SLOW_AT_ONCE, len(slow))]


def main(argv: list[str] | None = None) -> int:
    """Run the scripts; the exit status is the number of claims that fail."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", nargs="+", metavar="NAME", help="scripts (default: all of the pinned environments)")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], metavar="N")
    parser.add_argument("--checkout", nargs=2, action="append", default=[], metavar=("NAME", "PATH"))
    parser.add_argument("--jobs", type=int, default=1, help="scripts that run side by side")
    parser.add_argument("--quick", action="store_true", help="what CI runs")
    parser.add_argument("--record", action="store_true", help="keep the results for the page")
    parser.add_argument("--page", action="store_true", help="write the page from what was kept, and run nothing")
    given = parser.parse_args(argv)
    if given.page:
        write_page()
        return 0
    scripts, folders = read_scripts(), dict(given.checkout)
    kept = [name for name, script in scripts.items() if not script.get("by_hand")]
    names = given.names or [name for name in kept if "checkout" not in scripts[name] or name in folders]
    for name in names:
        if name not in scripts:
            parser.error(f"there is no script {name!r}. There are {', '.join(scripts)}.")
        if "checkout" in scripts[name] and name not in folders:
            parser.error(f"{name} needs a checkout of {scripts[name]['checkout']}. Give --checkout {name} PATH.")
    seeds, limit_s = ([given.seeds[0]], QUICK_S) if given.quick else (given.seeds, LIMIT_S)
    if given.quick:
        slow = [name for name in names if scripts[name].get("slow")]
        due = in_turn(slow, datetime.date.today().toordinal())
        names = [name for name in names if name not in slow or name in due]

    def run_named(name: str) -> list[dict[str, Any]]:
        return run_script(name, scripts[name], seeds, limit_s, [folders[name]] if name in folders else [])

    failed = 0
    with ThreadPoolExecutor(given.jobs) as pool:
        for name, rows in zip(names, pool.map(run_named, names), strict=True):
            for row in rows:
                print("\t".join(f"{key}={value}" for key, value in row.items() if key != "stderr"), flush=True)
                if "stderr" in row:
                    print(row["stderr"], file=sys.stderr, flush=True)
            good = all("error" not in row for row in rows) and beats(rows)
            print(f"{name}: {'beats' if good else 'does not beat'} random and idle play", flush=True)
            failed += not good and scripts[name]["claim"]
            if given.record:
                merge([row for row in rows if "error" not in row])
    return failed


if __name__ == "__main__":
    raise SystemExit(main())
