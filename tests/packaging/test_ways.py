"""The ways of a student, an engineer and a reviewer: each a script, from `pip install` of the wheel to its figures.

Each starts with nothing compiled, in a folder of its own. Their times are printed, not judged: 323 s together on two
cores with little else to do.
"""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS, WAYS = ROOT / "docs", Path(__file__).parent / "ways"
GAIN = 3  # column of a leaderboard
TIMES: dict[str, Times] = {}


class Times(NamedTuple):
    """Seconds of the clock, and of processors."""

    clock_s: float
    cpu_s: float


@contextmanager
def timed(name: str) -> Iterator[None]:
    """Keep the times of what is run within, children included."""
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    yield
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    TIMES[name] = Times(time.perf_counter() - began, cpu_s)


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Programs of an environment that holds the wheel and what it asks for, by the pins."""
    folder = tmp_path_factory.mktemp("environment")
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "-qq", "-c", str(ROOT / "constraints.txt")]
    with timed("pip install"):
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([*pip, str(wheel)], check=True)
    return folder / "bin"


@pytest.fixture
def walk(environment: Path, tmp_path: Path) -> Callable[[str], str]:
    """Play a script in an empty folder, as bash does in a fresh account, and keep its time; returns what it prints."""
    own = {"PATH": f"{environment}:{os.defpath}", "HOME": str(tmp_path), "LANG": "C.UTF-8"}

    def play(way: str) -> str:
        command = ["bash", str(WAYS / f"{way}.sh")]
        with timed(way):
            done = subprocess.run(command, cwd=tmp_path, env=own, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    return play


def row(page: str, begin: str) -> list[str]:
    """Cells of the row of a leaderboard that begins so."""
    (line,) = [line for line in page.splitlines() if line.startswith(begin)]
    return line.split("|")


def test_a_student_gets_from_a_loop_to_a_gain_of_an_own_reward(walk, tmp_path):
    printed = walk("student")
    assert "random play: 48 steps" in printed
    (table,) = [line.split() for line in printed.splitlines() if line.startswith("ppo ")]
    assert float(table[2]) > 0 and table[-1] == "yes"
    assert float(re.search(r"own reward: .* feasible True, gain (\S+)", printed)[1]) > 0
    assert '"name":"ppo"' in (tmp_path / "results" / "day.html").read_text(encoding="utf-8")


def test_an_engineer_plays_rule_and_plan_on_an_own_net_and_meter(walk):
    printed = walk("engineer")
    assert "no problems found" in printed and "load 2.850 MW" in printed and "20 quarters filled" in printed
    rule, plan, gain = map(float, re.search(r"rule (\S+) \$, plan (\S+) \$ .* gain (\S+)", printed).groups())
    assert 0 < rule < plan and 0 < gain <= 1
    assert 0.95 <= float(re.search(r"dso: .* lowest voltage (\S+) pu", printed)[1]) < 1
    assert re.search(r"^oracle .* 1\.000 ", printed, re.MULTILINE)


def test_a_reviewer_finds_the_figures_of_the_pages(walk, tmp_path):
    printed = walk("reviewer")
    own, page = (path.read_text(encoding="utf-8") for path in (tmp_path / "board.md", DOCS / "leaderboard.md"))
    for begin in ("|`battery_arbitrage-v1`|causal|", "|`battery_arbitrage` test|", "|`gencos_bidding` test|"):
        assert row(own, begin) == row(page, begin)
    mine, recorded = (row(text, "|`gencos_bidding-v1`|ippo|")[GAIN] for text in (own, page))
    low, high = map(float, re.findall(r"[-0-9.]+(?=[,\]])", recorded))
    assert low <= float(mine.split()[0]) <= high  # processors round differently, and learning makes much of it
    (record,) = json.loads((tmp_path / "zoo.json").read_text())["zoo"]
    card = (ROOT / "configs" / "zoo" / "marl_der_arbitrage.md").read_text(encoding="utf-8")
    assert f"|test|66|{record['mean_reward']:.4g}|{record['gain']:.4g}|" in card
    assert "@software{powerzoo_jax," in printed


def test_the_times_of_the_ways_are_printed(capsys):
    assert len(TIMES) == 4, "the ways above were not played"
    lines = [f"{name:12s} {clock_s:6.1f} s, {cpu_s:6.1f} s of processors" for name, (clock_s, cpu_s) in TIMES.items()]
    with capsys.disabled():
        print("", *lines, sep="\n")
