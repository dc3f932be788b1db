"""Seconds from `pip install` of the wheel to a first picture, as a new user meets them.

The table builds the wheel, makes an environment with nothing in it, installs the wheel there
without pip's cache, and writes the page of an episode in an empty folder with no compiled program at hand. It prints
the seconds of each part, of the clock and of the processor, and of what a user waits for: installation and picture. On
a busy machine the processor tells more.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from powerzoo_jax.cli.commands.bench import device_name
from tools.tables import Row, Table

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ("view", "battery_arbitrage", "--policy", "rule", "--out", "picture.html")
WAITED = ("pip install", "powerzoo-jax view")  # the wheel is there, and an environment often is
COLUMNS = ("part", "seconds", "CPU seconds")
# of this process alone: they would lend the new environment sources, programs and settings that a user lacks
OURS = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "XLA_FLAGS", "JAX_COMPILATION_CACHE_DIR")
VERSIONS = """
import platform
from importlib.metadata import version
print(f"Python {platform.python_version()}", *(f"{name} {version(name)}" for name in ("powerzoo-jax", "jax")), sep=", ")
"""


class Spent(NamedTuple):
    """Time [s] that has passed, and that processes have used."""

    seconds: float
    cpu: float


def now() -> Spent:
    """Reading of the clock, and of the processor time of the commands that have ended."""
    used = os.times()
    return Spent(time.monotonic(), used.children_user + used.children_system)


def parts(python: str, folder: Path) -> tuple[dict[str, Spent], str]:
    """Time of each part by its name, in order, and the versions of the new environment.

    python:  interpreter that the environment is made with
    folder:  empty folder, which takes the wheel, the environment and the picture
    Raises RuntimeError with the last words of a command that fails.
    """
    scripts = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
    environment = {name: value for name, value in os.environ.items() if name not in OURS}
    environment["XDG_CACHE_HOME"] = str(folder / "cache")
    spent = {}

    def run(*command: object) -> str:
        words = [str(word) for word in command]
        done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(words)} ended with status {done.returncode}: {done.stderr[-2000:]}")
        return done.stdout

    def timed(part: str, *command: object) -> None:
        start = now()
        run(*command)
        spent[part] = Spent(*(b - a for a, b in zip(start, now(), strict=True)))

    # built here, where the back end is installed, as the tests of the wheel do
    built = ("pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, ROOT)
    timed("pip wheel", sys.executable, "-m", *built)
    (wheel,) = folder.glob("*.whl")
    timed("python -m venv", python, "-m", "venv", scripts.parent)
    timed("pip install", scripts / "python", "-m", "pip", "install", "-q", "--no-cache-dir", wheel)
    timed("powerzoo-jax view", scripts / "powerzoo-jax", *PICTURE)
    versions = run(scripts / "python", "-c", VERSIONS).strip()
    return spent, versions


def rows(python: str = sys.executable) -> Iterator[Row | str]:
    """Seconds from `pip install` of the wheel to a first picture.

    --python  interpreter of the new environment
    """
    with tempfile.TemporaryDirectory() as place:
        spent, versions = parts(python, Path(place))
        size_kb = (Path(place) / PICTURE[-1]).stat().st_size / 1e3
    spent[" and ".join(WAITED)] = Spent(*map(sum, zip(*(spent[part] for part in WAITED), strict=True)))
    yield f"{device_name()}, {os.cpu_count()} cores; {versions}; {' '.join(PICTURE[:-2])}: {size_kb:.0f} kB"
    for part, both in spent.items():
        yield dict(zip(COLUMNS, (part, *(f"{x:.1f}" for x in both)), strict=True))


TABLE = Table(rows, COLUMNS)
