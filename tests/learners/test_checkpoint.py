"""Checkpoints: a resumed run is the uninterrupted one, and a bad file is refused with the reason."""

from __future__ import annotations

import json

import jax
import numpy as np
import pytest

from powerzoo_jax.rl import apg, checkpoint, ppo
from powerzoo_jax.rl.config import APGConfig, PPOConfig
from tests.learners.toy_battery import toy_sim

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


@pytest.mark.parametrize("algorithm", CASES)
def test_a_resumed_run_equals_the_uninterrupted_one(sim, tmp_path, algorithm):
    module, cfg = CASES[algorithm]
    init, update = module.make_update(cfg, sim)
    init, update = jax.jit(init), jax.jit(update)
    state = init(jax.random.key(0), sim)
    for done in range(4):
        if done == 2:
            checkpoint.save(tmp_path / "run", state, cfg, updates=done)
        state, _ = update(state, sim)
    stored, done = checkpoint.load_config(tmp_path / "run")
    assert (stored, done) == (cfg, 2)
    resumed = checkpoint.restore(tmp_path / "run", init(jax.random.key(9), sim))
    for _ in range(2):
        resumed, _ = update(resumed, sim)
    assert update._cache_size() == 1  # same shapes and dtypes as before the break
    for a, b in zip(words(state), words(resumed), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_checkpoint_of_other_settings_is_refused_by_leaf(sim, tmp_path):
    cfg = CASES["apg"][1]
    checkpoint.save(tmp_path / "run", start(cfg, sim), cfg)
    wider = start(APGConfig(lanes=4, widths=(9,)), sim)
    with pytest.raises(ValueError, match=r"kernel.*expected float32\[9, 1\]"):
        checkpoint.restore(tmp_path / "run", wider)


def test_a_failed_write_keeps_the_old_checkpoint(sim, tmp_path, monkeypatch):
    cfg = CASES["apg"][1]
    state = start(cfg, sim)
    checkpoint.save(tmp_path / "run", state, cfg, updates=1)
    monkeypatch.setattr(checkpoint.os, "fsync", lambda number: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        checkpoint.save(tmp_path / "run", state, cfg, updates=2)
    assert checkpoint.load_config(tmp_path / "run")[1] == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run.json", "run.msgpack"]


def test_the_settings_lie_beside_the_arrays_as_json(sim, tmp_path):
    cfg = CASES["apg"][1]
    checkpoint.save(tmp_path / "run", start(cfg, sim), cfg, updates=3)
    assert json.loads((tmp_path / "run.json").read_text())["updates_done"] == 3
