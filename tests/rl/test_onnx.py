"""A policy as an ONNX graph: the actions of the policy itself, through a runtime that knows nothing of JAX."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime
import pytest

from powerzoo_jax.base.errors import PowerZooError
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.rl.export import memory_of, program_of
from powerzoo_jax.rl.onnx import OPSET, onnx_policy
from powerzoo_jax.rl.training.config import (
    APGConfig,
    Config,
    IPPOConfig,
    PPOConfig,
    PPOGRUConfig,
    SACConfig,
)
from powerzoo_jax.rl.training.learners import LEARNERS
from powerzoo_jax.tasks import make
from tests.rl.toy_battery import toy_sim
from tests.rl.toy_team import toy_team

SMALL: dict[str, Any] = {"lanes": 4, "widths": (8, 8)}
ROLLED = SMALL | {"steps": 8, "minibatches": 2}
POLICIES = {
    "gaussian": (toy_sim, PPOConfig(**ROLLED)),
    "gaussian behind a tanh": (toy_sim, PPOConfig(**ROLLED, squash=True)),
    "width by state": (toy_sim, SACConfig(**SMALL, batch=32)),
    "several observations": (toy_sim, PPOConfig(**ROLLED, activation="silu", history=3)),
    "memory": (toy_sim, APGConfig(**SMALL, activation="relu", memory=4)),
    "memory and several observations": (toy_sim, PPOGRUConfig(**ROLLED, memory=4, history=2)),
    "columns of a rule": (
        partial(make, "dc_microgrid", max_steps=4),
        APGConfig(**SMALL, task="dc_microgrid", column_rule="starts"),
    ),
    "kinds of agents": (toy_team, IPPOConfig(**ROLLED)),
    "agents of their own": (toy_team, IPPOConfig(**ROLLED, share=False)),
    "choices": (partial(toy_team, choice=True), IPPOConfig(**ROLLED)),
    "choices behind a tanh": (partial(toy_team, choice=True), IPPOConfig(**ROLLED, squash=True)),
}


def noisy(sim: Sim, cfg: Config) -> Any:
    """A policy whose actions differ, which those of a new one hardly do."""
    learner = LEARNERS[cfg.algorithm]
    policy = learner.policy_of(learner.make_update(cfg, sim)[0](jax.random.key(0), sim))
    leaves, form = jax.tree.flatten(policy.actor)
    rng = np.random.default_rng(1)
    moved = [x + jnp.asarray(rng.normal(0, 0.3, x.shape), x.dtype) for x in leaves]
    return learner.act(cfg, sim, replace(policy, actor=jax.tree.unflatten(form, moved)))


@pytest.fixture(scope="module", params=POLICIES)
def exported(request):
    """(session, policy over lanes, draw of inputs by name)."""
    build, cfg = POLICIES[request.param]
    sim = build()
    act = noisy(sim, cfg)
    (low, high), memory, rng = sim.spaces()[0], memory_of(act), np.random.default_rng(0)

    def draw(lanes):
        before = [rng.normal(0, 1, (lanes, *x.shape)).astype(x.dtype) for x in memory]
        return {f"memory_{i}": x for i, x in enumerate(before)} | {
            "obs": rng.uniform(low, high, (lanes, *low.shape)).astype(low.dtype)
        }

    def play(inputs):
        *before, obs = inputs.values()
        if not memory:
            return [program_of(act)(obs)]
        after, action = program_of(act)(tuple(before), obs)
        return [action, *after]

    session = onnxruntime.InferenceSession(onnx_policy(sim, act), providers=["CPUExecutionProvider"])
    return session, play, draw


@pytest.mark.tiers("full", quick=["gaussian-1"])
@pytest.mark.parametrize("lanes", [1, 5])
def test_the_graph_acts_and_remembers_as_the_policy_does(exported, lanes):
    session, play, draw = exported
    inputs = draw(lanes)
    found, wanted = session.run(None, inputs), play(inputs)
    assert len(found) == len(wanted) == len(session.get_outputs())
    for value, true in zip(found, wanted, strict=True):
        assert value.dtype == true.dtype
        np.testing.assert_allclose(value, true, atol=1e-5)


@pytest.mark.full
def test_the_graph_tells_observations_apart(exported):
    session, _, draw = exported
    assert np.ptp(session.run(["action"], draw(64))[0], axis=0).max() > 1e-2


@pytest.mark.full
def test_inputs_and_outputs_are_named_and_take_any_number_of_lanes():
    sim = toy_sim()
    model = onnx.load_from_string(onnx_policy(sim, noisy(sim, POLICIES["memory"][1])))
    assert [x.name for x in model.graph.input] == ["obs", "memory_0"]
    assert [x.name for x in model.graph.output] == ["action", "memory_0_after"]
    assert {x.type.tensor_type.shape.dim[0].dim_param for x in (*model.graph.input, *model.graph.output)} == {"lanes"}
    assert model.opset_import[0].version == OPSET


def test_an_operation_without_a_form_is_named():
    with pytest.raises(PowerZooError, match="cumsum has no form in the ONNX graphs of policies"):
        onnx_policy(toy_sim(), lambda carry, obs, key: (carry, jnp.cumsum(obs[:, :1], axis=0)))


def test_a_choice_that_depends_on_what_is_seen_is_refused():
    with pytest.raises(PowerZooError, match="depends on observations"):
        onnx_policy(toy_sim(), lambda carry, obs, key: (carry, obs[:, jnp.argmax(obs[0])][:, None]))


def test_without_onnx_the_extra_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"powerzoo-jax\[onnx\]"):
        onnx_policy(toy_sim(), lambda carry, obs, key: (carry, obs))
