"""Minibatches of blocks of lanes: every sample once, an equal share of every block, and learning from them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.rl.algorithms import ppo, sac
from powerzoo_jax.rl.algorithms.onpolicy import by_block, shuffled
from powerzoo_jax.rl.policies import ppo_act
from powerzoo_jax.rl.rollout import evaluate_policy
from powerzoo_jax.rl.training.config import PPOConfig, SACConfig
from powerzoo_jax.rl.training.parallel import compile_on, make_mesh
from tests.rl.toy_battery import toy_sim

STEPS, LANES = 3, 8
TINY = {"lanes": 8, "steps": 8, "widths": (8,)}
LEARNERS = {
    "ppo": (ppo, PPOConfig(total_steps=128, epochs=1, minibatches=2, normalise_reward=True, **TINY)),
    "sac": (sac, SACConfig(total_steps=128, gradients=2, capacity=128, warmup=64, batch=8, **TINY)),
}


@pytest.mark.parametrize(("blocks", "minibatches", "share"), [(1, 6, 4), (4, 3, 2), (8, 2, 1)])
def test_every_sample_is_taken_once_and_every_block_gives_the_same(blocks, minibatches, share):
    """`share` samples of every block in every minibatch; what does not fit (one of three steps) is left out."""
    step, lane = jnp.meshgrid(jnp.arange(STEPS), jnp.arange(LANES), indexing="ij")
    parts = by_block({"step": step, "lane": lane}, blocks)
    bits = jax.random.bits(jax.random.key(0), (blocks, STEPS * LANES // blocks))
    batches = jax.jit(shuffled, static_argnames="minibatches")(parts, bits, minibatches=minibatches)
    assert batches["lane"].shape == (minibatches, blocks * share)
    pairs = np.stack([batches["step"], batches["lane"]], axis=-1)
    assert len(np.unique(pairs.reshape(-1, 2), axis=0)) == minibatches * blocks * share
    home = pairs[..., 1] // (LANES // blocks)
    assert all((np.bincount(row, minlength=blocks) == share).all() for row in home)


def test_one_block_is_the_plain_shuffle_of_all_samples():
    samples = jnp.arange(STEPS * LANES).reshape(STEPS, LANES)
    bits = jax.random.bits(jax.random.key(1), (1, STEPS * LANES))
    assert shuffled(by_block(samples, 1), bits, 4).reshape(-1).tolist() == np.argsort(bits[0], kind="stable").tolist()


def test_shards_that_do_not_divide_the_lanes_are_refused():
    with pytest.raises(ValueError, match="shards = 3 must divide lanes = 8"):
        PPOConfig(lanes=8, minibatches=2, shards=3)
    with pytest.raises(ValueError, match="at least minibatches = 16"):
        PPOConfig(lanes=8, steps=8, minibatches=16, shards=8)


@pytest.mark.long
@pytest.mark.parametrize("algorithm", LEARNERS)
def test_an_update_takes_the_memory_of_the_state_before_it(algorithm):
    """Every array of the state is given away, and what comes out is what an update that keeps it gives."""
    module, cfg = LEARNERS[algorithm]
    sim, mesh = toy_sim(), make_mesh(jax.devices()[:1])
    init, update = module.make_update(cfg, sim)
    begin = compile_on(mesh, init, jax.random.key(0), sim)
    state, twin = begin(jax.random.key(0), sim), begin(jax.random.key(0), sim)
    kept, _ = compile_on(mesh, update, state, sim)(state, sim)
    after, _ = compile_on(mesh, update, twin, sim, donate=(0,))(twin, sim)
    assert all(x.is_deleted() for x in jax.tree.leaves(twin) if x.size)
    assert not any(x.is_deleted() for x in jax.tree.leaves((state, sim)))
    for a, b in zip(jax.tree.leaves(after), jax.tree.leaves(kept), strict=True):
        a, b = (jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x for x in (a, b))
        np.testing.assert_array_equal(a, b)


@pytest.mark.long
def test_ppo_learns_to_trade_from_blocks_of_lanes():
    """The settings of the plain shuffle, under which an idle battery earns 0 and noise pays wear."""
    sim = toy_sim()
    cfg = PPOConfig(
        lanes=64, total_steps=64 * 48 * 40, epochs=4, minibatches=4, widths=(32, 32), lr=3e-3, gamma=1.0,
        bootstrap=False, reward_scale=0.3, shards=16,
    )  # fmt: skip
    state, metrics = jax.jit(ppo.make_train(cfg, sim))(jax.random.key(0), sim)
    totals = evaluate_policy(sim, ppo_act(cfg, sim, ppo.policy_of(state)), jax.random.split(jax.random.key(1), 64))
    assert float(metrics["return"][0]) < -5.0
    assert float(totals.total.mean()) > 6.0
