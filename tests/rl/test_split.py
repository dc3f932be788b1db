"""First layers on observations in two parts: the layer, moments and training of the whole observation."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import powerzoo_jax as pz
from powerzoo_jax.base.errors import RunError
from powerzoo_jax.envs import SharedObs
from powerzoo_jax.envs.batch import split_observations
from powerzoo_jax.rl.algorithms import ppo
from powerzoo_jax.rl.networks import split
from powerzoo_jax.rl.networks.body import Torso, denormalise, normalise, observe_batch, scale_from_bounds
from powerzoo_jax.rl.networks.split import SplitDense, split_input, summed_repetitions
from powerzoo_jax.rl.policies import group_agents, make_actor
from powerzoo_jax.rl.training import checkpoint
from powerzoo_jax.rl.training.config import ALGORITHMS, DAggerConfig, PPOConfig

RUNS = ((True, 2), (False, 3), (True, 1))
AGENTS, SAMPLES = 4, 8


def whole(numbers: np.random.Generator, joint: bool) -> tuple[Any, jax.Array]:
    """The same samples in two parts and whole, of small integers: their products are exact."""
    shared = jnp.asarray(numbers.integers(-4, 5, (SAMPLES, 3)), jnp.float32)
    own = jnp.asarray(numbers.integers(-4, 5, (SAMPLES, AGENTS, 3)), jnp.float32)
    obs = SharedObs(shared, own, RUNS)
    flat = obs.expand()
    return split_input(obs, joint), flat.reshape(SAMPLES, 1, -1) if joint else flat


@pytest.mark.parametrize("joint", [True, False])
def test_the_layer_and_its_gradient_are_those_of_the_whole_observation(joint):
    numbers = np.random.default_rng(0)
    parts, x = whole(numbers, joint)
    assert parts.shape == x.shape
    kernel = jnp.asarray(numbers.integers(-4, 5, (x.shape[-1], 5)), jnp.float32)
    params = {"params": {"kernel": kernel, "bias": jnp.arange(5.0)}}
    weight = jnp.asarray(numbers.integers(-4, 5, (*x.shape[:-1], 5)), jnp.float32)
    layers = (SplitDense(5, nn.initializers.zeros, jnp.float32), nn.Dense(5))

    def out(layer: nn.Module, seen: Any) -> tuple[Any, Any]:
        slope = jax.grad(lambda p: jnp.sum(weight * layer.apply(p, seen)))(params)
        return layer.apply(params, seen), slope

    one, other = out(layers[0], parts), out(layers[1], x)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.tiers(full=["True"])
@pytest.mark.parametrize("joint", [True, False])
def test_weights_start_as_those_of_the_whole_observation(joint):
    """So that policies saved with either form can be read by the other."""
    parts, x = whole(np.random.default_rng(1), joint)
    network = Torso((6, 5), "tanh", jnp.float32)
    one, other = (network.init(jax.random.key(3), seen) for seen in (parts, x))
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("joint", [True, False])
def test_moments_are_those_of_the_whole_observation(joint):
    parts, x = whole(np.random.default_rng(2), joint)
    scale = scale_from_bounds(jnp.full(x.shape[-1], -4.0), jnp.full(x.shape[-1], 4.0), 0.05)
    one, other = observe_batch(scale, parts), observe_batch(scale, x)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
    seen = normalise(other, parts)
    np.testing.assert_array_equal(SharedObs(seen.shared, seen.own, RUNS).expand().reshape(x.shape), normalise(other, x))
    back = denormalise(other, seen)
    np.testing.assert_allclose(back.own, parts.own, atol=1e-5)
    np.testing.assert_allclose(back.shared, parts.shared, atol=1e-5)


def trained(algorithm: str, least: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A short run on five units that see fourteen numbers in common and six of their own."""
    monkeypatch.setattr(split, "LEAST", least)
    sim = pz.make("marl_uc", split="train", dtype="float64")
    settings = {"lanes": 8, "steps": 6, "total_steps": 96, "epochs": 2, "minibatches": 2, "widths": [8]}
    cfg = ALGORITHMS[algorithm].from_dict({"task": "marl_uc", "normalise_reward": True, **settings})
    return jax.jit(ppo.make_train(cfg, sim))(jax.random.key(0), sim)


@pytest.mark.long
@pytest.mark.parametrize("algorithm", ["ppo", "mappo"])  # all as one; each for itself, with one value
def test_training_is_that_on_the_whole_observation(algorithm, monkeypatch):
    """Two updates in float64, where only the order of sums differs."""
    with jax.enable_x64(True):
        parts, other = (trained(algorithm, least, monkeypatch) for least in (1, 10**9))
        assert isinstance(parts.state.obs, SharedObs) and not isinstance(other.state.obs, SharedObs)
        learned = [jax.tree.leaves((run.state.params, run.state.scale)) for run in (parts, other)]
        for a, b in zip(*learned, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)


def test_which_tasks_are_read_in_two_parts():
    """Those whose observation is long and repeats itself; small ones keep one product and their bits."""
    assert [name for name in ("marl_opf", "marl_uc", "opf_118") if split.worth_splitting(pz.make(name))] == ["opf_118"]


def test_states_saved_with_whole_observations_are_read(tmp_path):
    obs = SharedObs(jnp.arange(6.0).reshape(2, 3), jnp.arange(24.0).reshape(2, 4, 3), RUNS)
    other = {"params": jnp.arange(3.0), "none": jnp.zeros((2, 0))}
    checkpoint.save(tmp_path, {**other, "obs": obs.expand()}, PPOConfig(), updates=1)
    for updates in (1, 2):  # an old state, then one in two parts
        found = checkpoint.restore(tmp_path, {**other, "obs": obs})
        np.testing.assert_array_equal(found["obs"].shared, obs.shared)
        np.testing.assert_array_equal(found["obs"].own, obs.own)
        np.testing.assert_array_equal(found["params"], other["params"])
        if updates == 1:
            checkpoint.save(tmp_path, found, PPOConfig(), updates=2)
    with pytest.raises(RunError, match="obs"):
        checkpoint.restore(tmp_path, {**other, "obs": obs.expand()})


@pytest.mark.full
def test_summed_repetitions_are_the_same_policy_with_most_weights_zero():
    sim = pz.make("opf_118")
    groups = group_agents(sim, joint=True)
    network = make_actor(DAggerConfig(task="opf_118", widths=(4,)), groups)
    obs = split_observations(sim).init(jax.random.key(0))[1]
    seen = groups.view(obs)
    weights = {"all": network.init(jax.random.key(1), seen)}
    # the last layer starts near zero, and the test would see little
    weights = jax.tree.map(lambda x: x + 0.1 * jnp.cos(jnp.arange(x.size)).reshape(x.shape), weights)
    summed = summed_repetitions(sim, weights)
    kernels = [w["all"]["params"]["Torso_0"]["Dense_0"]["kernel"] for w in (weights, summed)]
    assert np.mean(kernels[0] == 0) < 0.01 and np.mean(kernels[1] == 0) > 0.9
    outs = [network.apply(w["all"], seen)[0] for w in (weights, summed)]
    np.testing.assert_allclose(outs[1], outs[0], atol=1e-6)
    # the whole observation, as the task shows it, is read alike
    np.testing.assert_allclose(network.apply(summed["all"], obs.expand().reshape(1, -1))[0], outs[0], atol=1e-6)
    alone = pz.make("battery_arbitrage")
    assert summed_repetitions(alone, weights) is weights
