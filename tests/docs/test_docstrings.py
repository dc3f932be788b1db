"""Every example of a docstring runs, in the folder of somebody who has just installed the package."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import powerzoo_jax as pz
from powerzoo_jax.envs import family
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


@pytest.mark.tiers(
    "full",
    quick=[
        "powerzoo_jax.cases.library.load_case",
        "powerzoo_jax.data.signals.load_signals",
        "powerzoo_jax.data.userfile.read_csv",
        "powerzoo_jax.envs.batch.autoreset",
        "powerzoo_jax.families.transmission.units.TransmissionEnv",
        "powerzoo_jax.oracle.linear_program.ProgramWriter",
        "powerzoo_jax.oracle.registry.get_reference",
        "powerzoo_jax.oracle.registry.get_baselines",
        "powerzoo_jax.plot.curves.plot_learning_curves",
        "powerzoo_jax.plot.network.plot_network",
        "powerzoo_jax.plot.profile.plot_branch_loading",
        "powerzoo_jax.rl.rollout.rollout",
        "powerzoo_jax.rl.training.config.override",
        "powerzoo_jax.tasks.registry.register",
        "powerzoo_jax.tasks.registry.list_tasks",
        "powerzoo_compat.gymnasium_view.module",
        "powerzoo_compat.heron_view.module",
        "powerzoo_compat.powerzoo_api.rl.front.make_env",
        "powerzoo_compat.powerzoo_api.tasks.factory.make_task_env",
    ],
    long=[
        "powerzoo_jax.envs.trace.episode.trace_episode",
        "powerzoo_jax.families.joint.env.JointEnv",
        "powerzoo_jax.families.market.bidding.MarketEnv",
        "powerzoo_jax.families.market.storage.StorageMarketEnv",
        "powerzoo_jax.families.market.tasks.storage.make_storage_market",
        "powerzoo_jax.families.operation.build.from_grid2op",
        "powerzoo_jax.families.operation.env.OperationEnv",
        "powerzoo_jax.families.transmission.operator.TransGridEnv",
        "powerzoo_jax.families.transmission.operator_fleet.FleetGridEnv",
        "powerzoo_jax.families.transmission.tasks.operator.make_transgrid",
        "powerzoo_jax.oracle.baselines.evaluate_baseline",
        "powerzoo_jax.oracle.registry.get_causal",
        "powerzoo_jax.plot.dispatch.plot_dispatch",
        "powerzoo_jax.plot.episode.plot_episode",
        "powerzoo_compat.grid2op_view.module",
        "powerzoo_compat.momaland_view.module",
        "powerzoo_compat.vector_view.module",
    ],
)
@pytest.mark.parametrize("example", HERE, ids=name)
def test_an_example_runs(example, sim, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for module, table in ((registry, "_TASKS"), (family, "_OWN")):  # what is registered here ends here
        monkeypatch.setattr(module, table, dict(getattr(module, table)))
    if "jax.jit" not in example.body:
        compile_steps(monkeypatch)
    names = {"jax": tracing_jax()} if example.module.startswith(TRACED) else {}
    if names and example.module.endswith("parallel"):
        monkeypatch.setattr(f"{example.module}.jax", names["jax"])  # the function compiles by itself
    small = example._replace(body=example.body.replace("num_envs=1024", "num_envs=3"))  # the programs of test_vector
    left = play(small, sim, **names)
    assert np.isfinite(np.asarray(left.get("reward", 0.0))).all()
