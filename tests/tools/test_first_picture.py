"""The way to a first picture starts with nothing, is timed part by part, and says where it ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools import first_picture


@pytest.fixture
def walked(monkeypatch):
    """Every command of the way, none of them run: one second each, half of it of the processor.

    `walked.fail` names a word that makes a command fail.
    """

    class Walked(list):
        fail = ""

    walked, clock = Walked(), iter(range(100))

    def run(command, **given):
        walked.append((command, given))
        if command[2:4] == ["pip", "wheel"]:
            (given["cwd"] / "powerzoo_jax-0-py3-none-any.whl").touch()
        if "--out" in command:
            (given["cwd"] / command[-1]).write_bytes(b"x" * 50_000)
        failed = bool(walked.fail) and walked.fail in command
        return subprocess.CompletedProcess(command, int(failed), "Python 3, jax 0\n", "no room left on the disk")

    monkeypatch.setattr(first_picture.subprocess, "run", run)
    monkeypatch.setattr(first_picture, "now", lambda: first_picture.Spent(next(clock), len(walked) / 2))
    return walked


def test_the_parts_are_timed_and_a_user_waits_for_two_of_them(walked, tmp_path, capsys):
    out = tmp_path / "first_picture.tsv"
    assert first_picture.main(["--python", "python3.13", "--out", str(out)]) == 0
    head, columns, *rows = out.read_text().splitlines()
    assert capsys.readouterr().out == out.read_text()
    assert "; Python 3, jax 0; view battery_arbitrage --policy rule: 50 kB" in head
    assert columns == "part\tseconds\tCPU seconds"
    parts = ["pip wheel", "python -m venv", "pip install", "powerzoo-jax view"]
    assert rows == [*(f"{part}\t1.0\t0.5" for part in parts), "pip install and powerzoo-jax view\t2.0\t1.0"]
    assert walked[1][0][0] == "python3.13" and walked[0][0][0] == sys.executable


def test_nothing_of_this_checkout_helps_the_new_environment(walked, tmp_path, monkeypatch):
    for name in first_picture.OURS:
        monkeypatch.setenv(name, str(first_picture.ROOT))
    first_picture.parts(sys.executable, tmp_path)
    new = str(tmp_path / "venv")
    for command, given in walked[2:]:
        assert command[0].startswith(new) and not any(str(first_picture.ROOT) in word for word in command)
        assert not set(first_picture.OURS) & set(given["env"])
        assert Path(given["env"]["XDG_CACHE_HOME"]).parent == given["cwd"] == tmp_path
    assert "--no-cache-dir" in walked[2][0]


def test_a_command_that_fails_is_told_with_its_last_words(walked, tmp_path):
    walked.fail = "install"
    with pytest.raises(RuntimeError, match=r"install -q .*\.whl ended with status 1: no room left"):
        first_picture.parts(sys.executable, tmp_path)
