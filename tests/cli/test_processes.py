"""Several processes train one run: when one is killed the others name it and end, and the run goes on."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from powerzoo_jax.cli.runs import LOG
from powerzoo_jax.rl.training.processes import LOST
from tests.cli.killed import rows
from tests.cli.processes import TIMEOUT_S, UPDATES

pytestmark = pytest.mark.long

SCRIPT = Path(__file__).parent / "processes.py"
END_S = 30.0  # until all others have ended: TIMEOUT_S, a few beats, and what a busy machine needs
KILLED_AT = 5  # updates
FLAGS = "--xla_force_host_platform_device_count=1 --xla_cpu_multi_thread_eigen=false"
ROUNDING = 1e-4  # of the metrics of a run whose sums are taken in another order


def launch(folder: Path, count: int) -> list[subprocess.Popen[str]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    words = [[sys.executable, str(SCRIPT), str(folder), address, str(count), str(k)] for k in range(count)]
    quiet: dict[str, Any] = {"stderr": subprocess.PIPE, "stdout": subprocess.DEVNULL, "text": True}
    return [subprocess.Popen(w, env=os.environ | {"XLA_FLAGS": FLAGS}, **quiet) for w in words]


def finish(processes: list[subprocess.Popen[str]]) -> None:
    for process in processes:
        _, err = process.communicate(timeout=300)
        assert process.returncode == 0, err


def metrics(folder: Path) -> np.ndarray:
    return np.loadtxt(folder / LOG, skiprows=1, ndmin=2)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of two processes that nobody disturbs."""
    folder = tmp_path_factory.mktemp("whole")
    finish(launch(folder, 2))
    return folder


def kill(folder: Path, count: int, victim: int) -> tuple[list[subprocess.Popen[str]], float]:
    """Start a run, kill one process after some updates, and wait for the others: they, and the seconds it took."""
    processes = launch(folder, count)
    while rows(folder) < KILLED_AT and all(process.poll() is None for process in processes):
        time.sleep(0.01)
    gone = [process for process in processes if process.poll() is not None]
    assert not gone, gone[0].stderr.read()
    os.kill(processes[victim].pid, signal.SIGKILL)
    start = time.monotonic()
    others = [process for k, process in enumerate(processes) if k != victim]
    for process in others:
        process.wait(timeout=END_S)
    return others, time.monotonic() - start


@pytest.mark.parametrize(("count", "victim", "after"), [(2, 1, 2), (2, 1, 1), (4, 2, 4)])
def test_the_others_name_a_killed_process_and_the_run_goes_on(count, victim, after, whole, tmp_path):
    others, seconds = kill(tmp_path, count, victim)
    assert TIMEOUT_S <= seconds < END_S
    for process in others:
        assert process.returncode == LOST
        assert f"process {victim} of {count} ({socket.gethostname()}, process id " in process.stderr.read()
    assert KILLED_AT <= rows(tmp_path) < UPDATES
    finish(launch(tmp_path, after))
    assert rows(tmp_path) == UPDATES
    if (count, after) == (2, 2):
        assert (tmp_path / LOG).read_text() == (whole / LOG).read_text()
    else:
        np.testing.assert_allclose(metrics(tmp_path), metrics(whole), rtol=ROUNDING, atol=ROUNDING)


def test_the_others_end_at_once_when_the_coordinator_is_killed(tmp_path):
    others, seconds = kill(tmp_path, 2, 0)
    assert seconds < END_S
    for process in others:
        assert process.returncode not in (0, None) and "leader" in process.stderr.read()
