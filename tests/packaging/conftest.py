"""Fixtures of the built wheel: its file, an installed copy, and a runner from a folder that holds nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build without isolation: the back end is pinned and in this environment already."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "-qq", "--no-deps", "--no-build-isolation", "-w", str(folder)]
    subprocess.run([*command, str(ROOT)], check=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpack as pip does, beside and not into this environment; its dependencies are shared."""
    site = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "-qq", "--no-deps", "--target", str(site)]
    subprocess.run([*command, str(wheel)], check=True)
    return site


@pytest.fixture
def run(installed: Path, tmp_path: Path):
    """Run a command from an empty folder with the installed wheel in front of everything else."""
    env = {**os.environ, "PYTHONPATH": str(installed)}

    def call(*command: str) -> str:
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return call
