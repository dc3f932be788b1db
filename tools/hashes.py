"""Hashes of everything that an installation downloads: `requirements-hashed.txt`, without any address.

`python -m tools.hashes --write` asks pip which files it would install, by the pins of constraints.txt, for every Python
and platform below, and writes the SHA-256 that pip reports for each. With that file

    pip install --require-hashes --only-binary :all: -r requirements-hashed.txt
    pip install --no-deps --no-build-isolation -e .

install nothing but these files, from whichever index pip is set to. Without `--write` the file is compared.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILE, PINS = ROOT / "requirements-hashed.txt", ROOT / "constraints.txt"
BUILD = ("hatchling", "editables")  # what `--no-build-isolation -e .` finds in the environment
PYTHONS = ("3.11", "3.12", "3.13")
GLIBC = (28, 27, 26, 24, 17)  # manylinux_2_N of the wheels in use
# uvloop, which orbax-checkpoint needs elsewhere, has no file for Windows: an installation there is not hashed.
PLATFORMS: dict[str, tuple[str, ...]] = {
    "Linux x86-64": (*(f"manylinux_2_{n}_x86_64" for n in GLIBC), "manylinux2014_x86_64"),
    "Linux ARM": (*(f"manylinux_2_{n}_aarch64" for n in GLIBC), "manylinux2014_aarch64"),
    "macOS ARM": ("macosx_14_0_arm64",),
}
HEADER = """# Written by `python -m tools.hashes --write`; pins are those of constraints.txt.
# pip install --require-hashes --only-binary :all: -r requirements-hashed.txt
# pip install --no-deps --no-build-isolation -e .
"""
NAME = re.compile(r"^([A-Za-z0-9._-]+)==([^\s\\;]+)", re.MULTILINE)
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})(?![0-9a-f])")

Hashes = dict[tuple[str, str], set[str]]


def canonical(name: str) -> str:
    """Name of a distribution in the form that indices compare."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_pins(text: str) -> dict[str, str]:
    """Version of every distribution that a file of requirements pins."""
    return {canonical(name): version for name, version in NAME.findall(text)}


def read_hashes(text: str) -> dict[str, list[str]]:
    """SHA-256 of every distribution of a hashed file."""
    blocks = re.split(r"^(?=\S)", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE), flags=re.MULTILINE)
    return {canonical(found[1]): HASH.findall(block) for block in blocks if (found := NAME.match(block))}


def needed() -> tuple[str, ...]:
    """Requirements of the package itself and of its build, without extras."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    return (*project["dependencies"], *BUILD)


def report(arguments: Iterable[str]) -> list[tuple[str, str, str]]:
    """Name, version and SHA-256 of the files that pip would install."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "report.json")
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--ignore-installed"]
        command += ["--only-binary=:all:", "--disable-pip-version-check", "--report", str(out), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            raise SystemExit(f"pip finds no set of files: {' '.join(lines)[:500]}")
        rows = json.loads(out.read_text(encoding="utf-8"))["install"]
    return [(canonical(row["metadata"]["name"]), row["metadata"]["version"], _digest(row)) for row in rows]


def _digest(row: Mapping[str, dict[str, dict[str, dict[str, str]]]]) -> str:
    return row["download_info"]["archive_info"]["hashes"]["sha256"]


def collect() -> Hashes:
    """Hashes of every file, by name and version: resolved once here, then looked up for each Python and platform."""
    found: Hashes = {}
    for name, version, digest in report(["-c", str(PINS), *needed()]):
        found.setdefault((name, version), set()).add(digest)
    pinned = [f"{name}=={version}" for name, version in found]
    for python in PYTHONS:
        for platform, tags in PLATFORMS.items():
            print(f"{platform}, Python {python}", flush=True)
            with tempfile.TemporaryDirectory() as target:
                where = ["--no-deps", "--target", target, "--python-version", python, "--implementation", "cp"]
                where += [part for tag in tags for part in ("--platform", tag)]
                for name, version, digest in report([*where, *pinned]):
                    found[name, version].add(digest)
    return found


def render(found: Hashes) -> str:
    """Content of the file: one requirement after the other, its hashes below it."""
    blocks = []
    for (name, version), digests in sorted(found.items()):
        lines = [f"{name}=={version}", *(f"    --hash=sha256:{digest}" for digest in sorted(digests))]
        blocks.append(" \\\n".join(lines))
    return HEADER + "\n".join(blocks) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Write or compare the file; 1 when it differs."""
    parser = argparse.ArgumentParser(prog="python -m tools.hashes", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write requirements-hashed.txt")
    options = parser.parse_args(argv)
    text = render(collect())
    if options.write:
        FILE.write_text(text, encoding="utf-8")
    same = FILE.is_file() and FILE.read_text(encoding="utf-8") == text
    print(f"{text.count('==')} distributions, {text.count('sha256:')} files: {'as written' if same else 'differs'}")
    return int(not same)


if __name__ == "__main__":
    sys.exit(main())
