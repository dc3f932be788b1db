"""Checkpoints: every bit comes back, and a wrong or missing file is named."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from powerzoo_jax.base.errors import DataError, DataMissing
from powerzoo_jax.cli import storage

STATE = {
    "w": jnp.asarray([0.1, jnp.nan, -0.0]),
    "n": jnp.asarray(3, jnp.int32),
    "key": jax.random.split(jax.random.key(7)),
}


def test_a_state_comes_back_bit_by_bit(tmp_path):
    path = tmp_path / "checkpoint.npz"
    storage.save(path, STATE, 5)
    back, done = storage.load(path, jax.eval_shape(lambda: STATE))
    assert done == 5
    for a, b in zip(
        map(storage._to_host, jax.tree.leaves(STATE)), map(storage._to_host, jax.tree.leaves(back)), strict=True
    ):
        assert a.dtype == b.dtype and a.tobytes() == b.tobytes()


def test_a_checkpoint_of_another_network_is_refused_by_name(tmp_path):
    path = tmp_path / "checkpoint.npz"
    storage.save(path, STATE, 5)
    with pytest.raises(DataError, match="'w'"):
        storage.load(path, {**STATE, "w": jnp.zeros(4)})


def test_a_missing_checkpoint_says_what_to_do(tmp_path):
    with pytest.raises(DataMissing, match="--overwrite"):
        storage.load(tmp_path / "none.npz", STATE)


def test_a_failed_write_keeps_the_checkpoint_before_it(tmp_path, monkeypatch):
    path = tmp_path / "checkpoint.npz"
    storage.save(path, STATE, 5)
    monkeypatch.setattr(storage.np, "savez", lambda file, **arrays: file.write(b"half") and 1 / 0)
    with pytest.raises(ZeroDivisionError):
        storage.save(path, STATE, 6)
    assert storage.load(path, STATE)[1] == 5
