"""Checkpoints: a resumed run is the uninterrupted one, and a bad file is refused with the reason."""

from __future__ import annotations

import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

from powerzoo_jax.base.errors import DataMissing
from powerzoo_jax.rl.algorithms import apg, ppo
from powerzoo_jax.rl.training import checkpoint
from powerzoo_jax.rl.training.config import APGConfig, PPOConfig
from tests.rl.toy_battery import toy_sim

CASES = {
    "ppo": (ppo, PPOConfig(lanes=4, total_steps=4 * 48 * 4, epochs=1, minibatches=2, widths=(8,))),
    "apg": (apg, APGConfig(lanes=4, updates=4, widths=(8,))),
}


@pytest.fixture(scope="module")
def sim():
    return toy_sim()


def start(cfg, sim):
    return jax.jit(apg.make_update(cfg, sim)[0])(jax.random.key(0), sim)


def words(state):
    return [
        jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x
        for x in jax.tree.leaves(state)
    ]


@pytest.fixture(scope="module")
def saved(sim, tmp_path_factory):
    """(folder, settings, state) of a checkpoint of four lanes and eight units, three updates done."""
    folder, cfg = tmp_path_factory.mktemp("run") / "checkpoint", CASES["apg"][1]
    state = start(cfg, sim)
    checkpoint.save(folder, state, cfg, updates=3)
    return folder, cfg, state


@pytest.mark.parametrize("algorithm", CASES)
def test_a_resumed_run_equals_the_uninterrupted_one(sim, tmp_path, algorithm):
    module, cfg = CASES[algorithm]
    init, update = module.make_update(cfg, sim)
    first, step = jax.jit(init), jax.jit(update)
    state = first(jax.random.key(0), sim)
    for done in range(4):
        if done == 2:
            checkpoint.save(tmp_path / "run", state, cfg, updates=done)
        state, _ = step(state, sim)
    stored, done = checkpoint.load_config(tmp_path / "run")
    assert (stored, done) == (cfg, 2)
    resumed = checkpoint.restore(tmp_path / "run", jax.eval_shape(init, jax.random.key(9), sim))
    assert jax.tree.map(jax.typeof, resumed) == jax.tree.map(jax.typeof, state)  # or the step compiles anew
    for _ in range(2):
        resumed, _ = step(resumed, sim)
    for a, b in zip(words(state), words(resumed), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_checkpoint_of_other_settings_is_refused_by_leaf(sim, saved):
    other = APGConfig(lanes=4, widths=(9,))
    wider = jax.eval_shape(apg.make_update(other, sim)[0], jax.random.key(0), sim)
    with pytest.raises(ValueError, match=r"kernel is float32\[8, 1\], expected float32\[9, 1\]"):
        checkpoint.restore(saved[0], wider)


def test_a_leaf_of_another_dtype_is_refused_not_cast(saved):
    folder, _, state = saved
    whole = state.replace(actor=jax.tree.map(lambda x: x.astype(np.int32), state.actor))
    with pytest.raises(ValueError, match=r"is float32.*, expected int32"):
        checkpoint.restore(folder, whole)


def test_a_leaf_too_many_is_named(saved):
    folder, _, state = saved
    with pytest.raises(ValueError, match=r"do not both hold actor\.more"):
        checkpoint.restore(folder, state.replace(actor={**state.actor, "more": np.zeros(1, np.float32)}))


def test_arrays_without_elements_come_back(tmp_path):
    state = {"none": np.zeros((2, 0), np.int32), "some": np.ones(3, np.float32), "nested": [np.zeros(0, np.float32)]}
    state = jax.tree.map(jax.numpy.asarray, state)
    checkpoint.save(tmp_path / "run", state, CASES["apg"][1], updates=1)
    back = checkpoint.restore(tmp_path / "run", state)
    assert jax.tree.map(jax.typeof, back) == jax.tree.map(jax.typeof, state)


def test_what_a_killed_process_left_half_written_is_passed_over(saved, tmp_path):
    """A later update of which only a part, or only the name Orbax gives it while it writes, reached the disk."""
    folder, cfg, state = saved
    copy = tmp_path / "run"
    shutil.copytree(folder, copy)
    for name in ("4.orbax-checkpoint-tmp", "5.orbax-checkpoint-tmp-17"):
        shutil.copytree(folder / "3" / "settings", copy / name / "settings")
    assert checkpoint.load_config(copy) == (cfg, 3)
    checkpoint.save(copy, state, cfg, updates=4)
    assert checkpoint.load_config(copy)[1] == 4


def test_an_update_that_does_not_follow_the_last_one_is_refused(saved):
    folder, cfg, state = saved
    with pytest.raises(ValueError, match="3"):
        checkpoint.save(folder, state, cfg, updates=3)


def test_only_the_newest_checkpoint_is_kept(saved, tmp_path):
    folder, cfg, state = saved
    copy = tmp_path / "run"
    shutil.copytree(folder, copy)
    checkpoint.save(copy, state, cfg, updates=9)
    assert [p.name for p in copy.iterdir()] == ["9"]


@pytest.mark.parametrize("make", [lambda folder: None, Path.mkdir])
def test_a_folder_without_a_checkpoint_is_told_apart(tmp_path, make):
    make(tmp_path / "run")
    assert not checkpoint.exists(tmp_path / "run")
    with pytest.raises(DataMissing, match="holds no checkpoint"):
        checkpoint.load_config(tmp_path / "run")
