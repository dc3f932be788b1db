"""The mistakes that beginners are most likely to make: each is told in one clear line that says what to do."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import powerzoo_jax as pz
from powerzoo_jax.cases import from_matpower
from powerzoo_jax.cli import main
from powerzoo_jax.data import read_csv
from powerzoo_jax.oracle import evaluate_baseline
from powerzoo_jax.plot import plot_gains
from powerzoo_jax.powerflow import prepare_feeder, solve_feeder

TASK = "battery_arbitrage"
LONGEST = 700  # characters: lists of valid names are long

HOURS = ["2023-01-01T00:00Z", "2023-01-01T01:00Z", "2023-01-01T02:00Z"]
TWO_SLACKS = """function mpc = grid
mpc.version = '2';
mpc.baseMVA = 10;
mpc.bus = [
    1 3 0   0   0 0 1 1 0 20 1 1.1 0.9;
    2 {kind} 0.1 0.1 0 0 1 1 0 20 1 1.1 0.9;
];
mpc.gen = [1 0 0 10 -10 1 100 1 10 0];
mpc.branch = [1 2 {r} {x} 0 0 0 0 0 0 1 -360 360];
"""


@pytest.fixture(scope="module")
def sim() -> pz.Sim:
    return pz.make(TASK)


@pytest.fixture(scope="module")
def state(sim: pz.Sim) -> Any:
    return jax.eval_shape(sim.init, jax.random.key(0))[0]


def csv(folder: Path, *lines: str) -> Path:
    path = folder / "my_load.csv"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def grid(folder: Path, kind: int = 1, r: float = 0.01, x: float = 0.01) -> Path:
    path = folder / "grid.m"
    path.write_text(TWO_SLACKS.format(kind=kind, r=r, x=x), encoding="utf-8")
    return path


def gym_env() -> Any:
    from powerzoo.tasks import make_task_env

    return make_task_env(TASK)


# what the beginner does -> (the call, the error, what the line must say)
Mistake = tuple[Callable[[Path, pz.Sim, Any], Any], type[Exception], str]
MISTAKES: dict[str, Mistake] = {
    "misspells a task": (
        lambda d, s, x: pz.make("batery_arbitrage"),
        ValueError,
        r"Unknown task 'batery_arbitrage'\. Did you mean 'battery_arbitrage'\?",
    ),
    "takes a grid for a task": (
        lambda d, s, x: pz.make("case33bw"),
        ValueError,
        r"'case33bw' is a grid, not a task\. Write make\('battery_arbitrage', case='case33bw'\)",
    ),
    "takes another word for a split": (
        lambda d, s, x: pz.make(TASK, split="validation"),
        ValueError,
        r"Unknown split 'validation'\. Did you mean 'val'\?",
    ),
    "guesses a keyword": (
        lambda d, s, x: pz.make(TASK, battery_capacity=1.0),
        TypeError,
        r"got an unexpected keyword argument 'battery_capacity'\. Did you mean 'battery_capacity_mwh'\?",
    ),
    "puts the battery on a bus that is not there": (
        lambda d, s, x: pz.make(TASK, battery_bus_ids=(34,)),
        ValueError,
        r"case33bw has no bus 34\. Valid ids: 1, 2",
    ),
    "gives a meshed network to a feeder task": (
        lambda d, s, x: pz.make(TASK, case="case118"),
        ValueError,
        r"case118: bus .* holds its voltage \(PV\), which the feeder solver cannot represent",
    ),
    "asks for double precision without x64": (
        lambda d, s, x: pz.make(TASK, dtype="float64"),
        ValueError,
        r"needs x64 mode, which is off\. Set the environment variable JAX_ENABLE_X64=1",
    ),
    "gives a seed instead of a key": (
        lambda d, s, x: s.init(0),
        TypeError,
        r"init takes a random key, got 0\. Write sim\.init\(jax\.random\.key\(0\)\)",
    ),
    "gives many keys to one lane": (
        lambda d, s, x: s.init(jax.random.split(jax.random.key(0), 64)),
        ValueError,
        r"init takes one key, got \(64,\).*jax\.vmap\(sim\.init\)\(keys\)",
    ),
    "forgets that init returns two values": (
        lambda d, s, x: s.step((x, 0), jnp.zeros((1, 1))),
        TypeError,
        r"state, obs = sim\.init\(key\)",
    ),
    "forgets the agent axis of an action": (
        lambda d, s, x: s.step(x, jnp.zeros(1)),
        ValueError,
        r"action: expected \(A=1, U=1\), got \(1,\)\. One row an agent",
    ),
    "steps a batch without vmap": (
        lambda d, s, x: s.step(x, jnp.zeros((64, 1, 1))),
        ValueError,
        r"got \(64, 1, 1\).*jax\.vmap\(sim\.step\)",
    ),
    "gives a power flow another network's loads": (
        lambda d, s, x: solve_feeder(prepare_feeder(pz.load_case("case33bw")), jnp.zeros(30), jnp.zeros(30)),
        ValueError,
        r"expected \(N=33,\), got \(30,\).*vmap",
    ),
    "gives a power flow complex power": (
        lambda d, s, x: solve_feeder(prepare_feeder(pz.load_case("case33bw")), jnp.zeros(33, complex), jnp.zeros(33)),
        TypeError,
        r"p_pu holds complex64\. Give real numbers: s\.real",
    ),
    "mistypes the path of a grid": (
        lambda d, s, x: pz.make(TASK, case=str(d / "nowhere.m")),
        FileNotFoundError,
        r"nowhere\.m.*Check the path",
    ),
    "leaves a branch without impedance": (
        lambda d, s, x: from_matpower(grid(d, r=0, x=0)),
        ValueError,
        r"branch 1: r = x = 0 pu.*Give a small reactance.*or merge the two buses",
    ),
    "names two reference buses": (
        lambda d, s, x: prepare_feeder(from_matpower(grid(d, kind=3))),
        ValueError,
        r"the reference buses 1, 2; a feeder has one\. Give the others kind 1",
    ),
    "leaves the unit out of a column's name": (
        lambda d, s, x: read_csv(csv(d, "time,load", *(f"{t},1" for t in HOURS))),
        ValueError,
        r"Unknown column 'load'\. Did you mean 'load_\w+'\?.*ending is the unit",
    ),
    "loses an hour of a series": (
        lambda d, s, x: read_csv(csv(d, "time,load_mw", f"{HOURS[0]},1", f"{HOURS[1]},1", "2023-01-01T03:00Z,1")),
        ValueError,
        r"lacks 1 of 4 values, in 1 gap: 1 h from 2023-01-01 02:00 UTC \(line 4\)\. Complete the file, or let read_csv",
    ),
    "separates thousands": (
        lambda d, s, x: read_csv(csv(d, "time;load_kw", *(f"{t};1.500,5" for t in HOURS))),
        ValueError,
        r"line 2 '1\.500,5'.*Write its numbers without separators of thousands",
    ),
    "steps a Gymnasium environment before its reset": (
        lambda d, s, x: gym_env().step(np.zeros(1, np.float32)),
        RuntimeError,
        r"before reset\(\)\. Call env\.reset\(seed=\.\.\.\) first",
    ),
    "asks for a policy that is not there": (
        lambda d, s, x: evaluate_baseline(s, "orcale"),
        ValueError,
        r"Unknown baseline 'orcale'\. Did you mean 'oracle'\?",
    ),
    "gives an action with rows of different lengths": (
        lambda d, s, x: s.step(x, [[0.1], [0.1, 0.2]]),
        TypeError,
        r"action: expected an array of numbers, got list .*one row an agent",
    ),
    "gives one lane to vstep": (
        lambda d, s, x: pz.vstep(s, x, jnp.zeros((1, 1))),
        ValueError,
        r"vstep takes a batch of actions \(B, A, U\), got \(1, 1\)\. One lane: sim\.step",
    ),
    "starts a stack of grids as if it were one": (
        lambda d, s, x: pz.stack([s, pz.make(TASK, v_max=1.05)]).init(jax.random.key(0)),
        ValueError,
        r"this Sim is a stack of 2: map init over it.*lanes\(sims\)",
    ),
    "acts with NaN": (
        lambda d, s, x: (lambda env: (env.reset(seed=0), env.step(np.full(1, np.nan, np.float32))))(gym_env()),
        ValueError,
        r"action \[nan\] holds NaN\. Check the policy that produced it; 0 means idle",
    ),
    "gives a Gymnasium environment another shape of action": (
        lambda d, s, x: (lambda env: (env.reset(seed=0), env.step(np.zeros(3, np.float32))))(gym_env()),
        ValueError,
        r"action has the wrong shape: expected \(1,\), got \(3,\)",
    ),
    "asks for another observation mode": (
        lambda d, s, x: pz.make("marl_der_arbitrage", obs_mode="globl"),
        ValueError,
        r"Unknown observation mode 'globl'\. Did you mean 'global'\?",
    ),
    "leaves a cell of a series empty": (
        lambda d, s, x: read_csv(csv(d, "time,load_mw", f"{HOURS[0]},1", f"{HOURS[1]},", f"{HOURS[2]},2")),
        ValueError,
        r"load_mw lacks 1 of 3 values, in 1 gap: 1 h from 2023-01-01 01:00 UTC \(line 3\)\. .*fill='interpolate'",
    ),
    "writes days in the order of another country": (
        lambda d, s, x: read_csv(csv(d, "time,load_mw", "01/02/2023 00:00,1", "01/02/2023 01:00,2")),
        ValueError,
        r"line 2 '01/02/2023 00:00'.*is no ISO 8601 time\. Write 2023-01-31T14:30",
    ),
    "gives less than a day of data": (
        lambda d, s, x: pz.make(TASK, data_source=str(csv(d, "time,load_mw", *(f"{t},1" for t in HOURS)))),
        ValueError,
        r"holds no whole day.*Give more rows",
    ),
    "stacks different tasks": (
        lambda d, s, x: pz.stack([s, pz.make("marl_der_arbitrage")]),
        ValueError,
        r"cannot stack 'battery_arbitrage' and 'marl_der_arbitrage'.*Stack tasks of one family",
    ),
}

# commands of the shell -> what the line must say
COMMANDS = {
    "train battery_arbitrage --algorithm sca": r"Unknown algorithm 'sca'.*Valid:.*ppo",
    "train battery_arbitrage --set learning_rate=1e-3": r"Unknown ppo setting 'learning_rate'.*Valid:.*lr",
    "train battery_arbitrage --set lr": r"'lr' is not of the form KEY=VALUE",
    "evaluate results/nowhere": r"'results/nowhere' does not exist\. Train one:.* train TASK --out results/nowhere",
    "evaluate .": r"'\.' holds no run\. Train one",
    "evaluate battery_arbitrage --split validation": r"Unknown split 'validation'\. Did you mean 'val'\?",
    "check nowhere.m": r"nowhere\.m.*Check the path",
    "show batery_arbitrage": r"Did you mean 'battery_arbitrage'\?",
}


def test_there_are_twenty_of_them():
    assert len(MISTAKES) + len(COMMANDS) >= 20


@pytest.mark.parametrize("what", MISTAKES)
def test_a_beginner_who(what, tmp_path, sim, state):
    call, error, words = MISTAKES[what]
    with pytest.raises(error) as caught:
        call(tmp_path, sim, state)
    line = str(caught.value)
    assert re.search(words, line, re.DOTALL), line
    assert len(line) < LONGEST


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_cannot_be_obeyed(command, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert main(command.split()) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("powerzoo-jax: ") and captured.err.count("\n") == 1
    assert re.search(COMMANDS[command], captured.err), captured.err


def test_a_picture_without_matplotlib_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install 'powerzoo-jax\[viz\]'"):
        plot_gains({"rule": 1.0})


def test_a_static_sim_is_refused_without_printing_its_arrays(sim, state):
    with pytest.raises(ValueError, match=r"cannot be static\. Pass it as an ordinary argument"):
        jax.jit(type(sim).step, static_argnums=0)(sim, state, jnp.zeros((1, 1)))
    assert len(repr(sim)) < 200  # JAX shows it in front; its arrays are 30,000 characters


@pytest.mark.full
def test_an_absurd_load_is_explained_in_prose():
    from powerzoo_jax.powerflow import explain, nominal_injection

    case = pz.load_case("case33bw")
    load = 1000 * nominal_injection(case)  # kW read as MW
    result = solve_feeder(prepare_feeder(case), *(jnp.asarray(x, jnp.float32) for x in (load.real, load.imag)))
    assert "unit" in explain(result) or "too large" in explain(result)
