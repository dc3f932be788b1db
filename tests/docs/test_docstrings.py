"""Every example of a docstring runs, in the folder of somebody who has just installed the package."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import powerzoo_jax as pz
from powerzoo_jax.tasks import registry
from tests.docs.examples import Example, find, play, tracing_jax

KERNEL, VIEWS = find("powerzoo_jax"), find("compat")
HERE = [example for example in KERNEL + VIEWS if not example.needs]  # the others: tests/compat_e1, tests/compat_e3
# Training and solving take minutes together: here they are traced, in their own tests they are done.
TRACED = ("powerzoo_jax.rl.", "powerzoo_jax.plot.network", "powerzoo_jax.envs.batch")


def name(example: Example) -> str:
    return f"{example.module}.{example.owner}"


@pytest.fixture(scope="module")
def sim() -> pz.Sim:
    return pz.make("battery_arbitrage", split="test")


def compile_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `init` and `step` the programs that `check_sim` has compiled: step by step they would take ten seconds."""
    init, step = pz.Sim.init, pz.Sim.step

    def _init(sim: pz.Sim, key: Any) -> Any:
        return init(sim, key)

    def _step(sim: pz.Sim, state: Any, action: Any) -> Any:
        return step(sim, state, action)

    monkeypatch.setattr(pz.Sim, "init", jax.jit(_init))
    monkeypatch.setattr(pz.Sim, "step", jax.jit(_step))


def test_examples_are_found():
    assert len(KERNEL) >= 30 and len(VIEWS) >= 15
    assert len(HERE) >= 40


@pytest.mark.parametrize("example", HERE, ids=name)
def test_an_example_runs(example, sim, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_TASKS", dict(registry._TASKS))  # what is registered here ends here
    if "jax.jit" not in example.body:
        compile_steps(monkeypatch)
    names = {"jax": tracing_jax()} if example.module.startswith(TRACED) else {}
    if names and example.module.endswith("parallel"):
        monkeypatch.setattr(f"{example.module}.jax", names["jax"])  # the function compiles by itself
    small = example._replace(body=example.body.replace("num_envs=1024", "num_envs=3"))  # the programs of test_vector
    left = play(small, sim, **names)
    assert np.isfinite(np.asarray(left.get("reward", 0.0))).all()
