"""One writer a folder: who holds it is said, a reader is let in, and the folder of a dead process is free."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import jax.numpy as jnp
import pytest

from powerzoo_jax.base.errors import RunError
from powerzoo_jax.cli import lock, main
from powerzoo_jax.cli.lock import HOLDER, LOCK, hold
from powerzoo_jax.rl.training import checkpoint
from powerzoo_jax.rl.training.config import PPOConfig

TASK = "battery_arbitrage"
HOLD = """
import contextlib, sys, time
from pathlib import Path
from powerzoo_jax.cli.lock import hold
with contextlib.ExitStack() as held:
    for name in sys.argv[1:]:
        held.enter_context(hold(Path(name), "powerzoo-jax train"))
    print("held", flush=True)
    time.sleep(600)
"""
SAVE = """
import sys
import jax.numpy as jnp
from powerzoo_jax.rl.training import checkpoint
from powerzoo_jax.rl.training.config import PPOConfig
for updates in range(1, 10_000):
    checkpoint.save(sys.argv[1], {"w": jnp.full(9, updates)}, PPOConfig(lr=1 / updates), updates=updates)
"""


def process(code: str, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def holder_of(*folders: Path) -> subprocess.Popen[str]:
    """A process that holds the folders until it is killed."""
    child = process(HOLD, *map(str, folders))
    assert child.stdout is not None and child.stdout.readline() == "held\n"
    return child


def kill(child: subprocess.Popen[str]) -> None:
    child.send_signal(signal.SIGKILL)
    child.wait()


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """(folder, process): the process holds `run`, the demo's folder and the leaderboard's run below it."""
    folder = tmp_path_factory.mktemp("taken")
    child = holder_of(folder / "run", folder / "demo", folder / "board" / f"{TASK}_ppo")
    yield folder, child
    kill(child)


COMMANDS = {
    "train": (TASK, "--out", "run"),
    "train again": (TASK, "--out", "run", "--overwrite"),
    "train on": (TASK, "--out", "run", "--resume"),
    "sweep": (TASK, "--over", "lr=1e-3,1e-4", "--out", "run", "--overwrite"),
    "demo": ("--quick", "--out", "demo"),
    "leaderboard": (f"{TASK}:ppo", "--runs", "board", "--page", "page.md"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_leaves_a_folder_alone_that_another_process_holds(command, taken, monkeypatch, capsys):
    folder, child = taken
    monkeypatch.chdir(folder)
    assert main([command.split()[0], *COMMANDS[command]]) == 2
    err = capsys.readouterr().err
    assert f"is in use by `powerzoo-jax train`, process {child.pid} on {socket.gethostname()}, since 20" in err
    assert "Wait until it has ended, or choose another folder" in err and err.count("\n") == 1
    left = {path.relative_to(folder).name for path in folder.rglob("*") if path.is_file()}
    assert left == {LOCK}


def test_the_folder_of_a_killed_process_is_free_at_once(tmp_path):
    child = holder_of(tmp_path / "run")
    kill(child)
    assert json.loads((tmp_path / "run" / LOCK).read_text())["pid"] == child.pid  # it had no time to tidy up
    with hold(tmp_path / "run", "mine"):
        assert json.loads((tmp_path / "run" / LOCK).read_text())["pid"] == os.getpid()
    assert not (tmp_path / "run" / LOCK).exists()


@pytest.mark.full
def test_a_checkpoint_can_be_read_while_it_is_replaced(tmp_path):
    """Reader and writer are two processes; each reading is of one checkpoint, whole."""
    folder = tmp_path / "checkpoint"
    child, seen = process(SAVE, str(folder)), set[int]()
    try:
        while not checkpoint.exists(folder):
            assert child.poll() is None
            time.sleep(0.01)
        deadline = time.monotonic() + 120
        while len(seen) < 12:
            assert child.poll() is None and time.monotonic() < deadline
            (weight,) = set(checkpoint.restore(folder, {"w": jnp.zeros(9, jnp.int32)})["w"].tolist())
            config, updates = checkpoint.load_config(folder)
            assert config == PPOConfig(lr=1 / updates) and weight <= updates
            seen.add(updates)
    finally:
        kill(child)


def test_two_calls_of_one_process_do_not_share_a_folder(tmp_path):
    refused = pytest.raises(RunError, match=f"in use by `first`, process {os.getpid()}")
    with hold(tmp_path, "first"), refused, hold(tmp_path, "second"):
        pass
    with hold(tmp_path, "fourth"):
        pass


def test_a_command_that_is_refused_leaves_no_folder_behind(tmp_path):
    with hold(tmp_path / "a" / "b", "mine"):
        assert (tmp_path / "a" / "b").is_dir()
    assert not (tmp_path / "a" / "b").exists()


def test_a_file_in_the_place_of_the_folder_is_named(tmp_path):
    (tmp_path / "run").write_text("x")
    with (
        pytest.raises(RunError, match=r"run' cannot be written to: .*Choose another folder"),
        hold(tmp_path / "run", ""),
    ):
        pass


def test_a_lock_that_its_holder_removes_meanwhile_is_taken_anew(tmp_path, monkeypatch):
    """The holder before goes between the opening of the file and its locking: the file locked is no longer the one."""
    real, calls = lock.fcntl, []

    def flock(file: int, how: int) -> None:
        calls.append(file)
        if len(calls) == 1:
            (tmp_path / LOCK).unlink()
        real.flock(file, how)

    flags = {name: getattr(real, name) for name in ("LOCK_EX", "LOCK_NB")}
    monkeypatch.setattr(lock, "fcntl", SimpleNamespace(flock=flock, **flags))
    with hold(tmp_path, "mine"):
        monkeypatch.undo()
        assert len(calls) == 2
        with pytest.raises(RunError, match="in use by `mine`"), hold(tmp_path, "other"):
            pass


def no_locks(file: int, how: int) -> None:
    raise OSError(errno.ENOLCK, "No locks available")


@pytest.fixture(params=["no fcntl", "a drive without locks"])
def without_locks(request, monkeypatch):
    """A system, or a drive, that locks nothing."""
    stub = SimpleNamespace(flock=no_locks, LOCK_EX=2, LOCK_NB=4)
    monkeypatch.setattr(lock, "fcntl", None if request.param == "no fcntl" else stub)


def test_without_locks_a_file_keeps_others_out(without_locks, tmp_path):
    with hold(tmp_path, "first"):
        with pytest.raises(RunError, match=rf"`first`, process .*If that process is gone, remove .*{HOLDER}\."):
            hold(tmp_path, "second").__enter__()
        assert [path.name for path in tmp_path.iterdir()] == [HOLDER]
    assert not list(tmp_path.iterdir())


def test_without_locks_the_folder_of_a_dead_process_is_taken_over(without_locks, tmp_path):
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    mine = {"command": "train", "host": socket.gethostname(), "since": "yesterday"}
    (tmp_path / HOLDER).write_text(json.dumps({**mine, "pid": child.pid}))
    with hold(tmp_path, "second"):
        assert json.loads((tmp_path / HOLDER).read_text())["command"] == "second"


def test_without_locks_nobody_takes_over_from_another_machine(without_locks, tmp_path):
    mine = {"command": "train", "pid": 2**30, "host": "elsewhere", "since": "yesterday"}
    (tmp_path / HOLDER).write_text(json.dumps(mine))
    with pytest.raises(RunError, match="process 1073741824 on elsewhere, since yesterday"):
        hold(tmp_path, "second").__enter__()
