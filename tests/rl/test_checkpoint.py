"""Checkpoints: a resumed run is the uninterrupted one, and a bad file is refused with the reason."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

from powerzoo_jax.base.errors import CheckpointError, DataError, DataMissing, RunError
from powerzoo_jax.rl.algorithms import apg, es, ppo
from powerzoo_jax.rl.training import checkpoint
from powerzoo_jax.rl.training.config import APGConfig, ESConfig, PPOConfig, PPOLagrangianConfig
from powerzoo_jax.rl.training.digests import DIGESTS, OWN, _digest_of
from tests.rl.toy_battery import toy_sim

CASES = {
    "ppo": (ppo, PPOConfig(lanes=4, total_steps=4 * 48 * 4, epochs=1, minibatches=2, widths=(8,))),
    "apg": (apg, APGConfig(lanes=4, updates=4, widths=(8,))),
    "ppo_lagrangian": (
        ppo,
        PPOLagrangianConfig(lanes=4, total_steps=768, epochs=1, minibatches=2, widths=(8,), greedy_episodes=2),
    ),
    "es": (es, ESConfig(lanes=2, population=4, updates=4, widths=(8,))),
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


@pytest.fixture
def copy(saved, tmp_path):
    """A copy of that folder to spoil."""
    shutil.copytree(saved[0], tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.long
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


def test_what_a_killed_process_left_half_written_is_passed_over(saved, copy):
    """A later update of which only a part, or only the name Orbax gives it while it writes, reached the disk."""
    folder, cfg, state = saved
    for name in ("4.orbax-checkpoint-tmp", "5.orbax-checkpoint-tmp-17", ".partial/4", ".partial/7"):
        shutil.copytree(folder / "3" / "settings", copy / name / "settings")
    assert checkpoint.load_config(copy) == (cfg, 3)
    checkpoint.save(copy, state, cfg, updates=4)
    assert checkpoint.load_config(copy)[1] == 4


def test_an_update_that_does_not_follow_the_last_one_is_refused(saved):
    folder, cfg, state = saved
    with pytest.raises(ValueError, match="3"):
        checkpoint.save(folder, state, cfg, updates=3)


def test_the_last_checkpoint_and_the_one_before_it_are_kept(copy, saved):
    for updates in (9, 12):
        checkpoint.save(copy, saved[2], saved[1], updates=updates)
    assert sorted(p.name for p in copy.iterdir()) == ["12", "9"]
    assert [checkpoint.load_config(copy, updates=n)[1] for n in (9, 12)] == [9, 12]
    with pytest.raises(DataMissing, match=r"no checkpoint of update 3\. Valid: 9, 12"):
        checkpoint.load_config(copy, updates=3)


def test_a_run_goes_on_from_the_checkpoint_before_a_damaged_one(copy, saved):
    cfg, state = saved[1:]
    checkpoint.save(copy, state, cfg, updates=9)
    put(copy / "9" / "state" / "manifest.ocdbt", b"foreign")
    with pytest.raises(
        CheckpointError, match=r"manifest\.ocdbt has 7 bytes, \d+ were saved\. .*update 3 is whole"
    ) as err:
        checkpoint.restore(copy, state)
    assert isinstance(err.value, DataError) and isinstance(err.value, RunError)
    back = checkpoint.restore(copy, state, updates=3)
    for a, b in zip(words(state), words(back), strict=True):
        np.testing.assert_array_equal(a, b)
    checkpoint.save(copy, back, cfg, updates=9)  # the run that went on comes to the same update again
    assert checkpoint.load_config(copy) == (cfg, 9)


def test_a_checkpoint_without_digests_is_read_with_a_warning(copy, saved):
    """Format 1, as it was before there were digests: no list of them, and settings that say no format."""
    strip(copy / "3")
    with pytest.warns(UserWarning, match="of format 1: it has no digests"):
        assert checkpoint.load_config(copy) == (saved[1], 3)
    with pytest.warns(UserWarning, match="of format 1"):
        back = checkpoint.restore(copy, saved[2])
    for a, b in zip(words(saved[2]), words(back), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_damaged_checkpoint_without_digests_is_refused_by_one_error(copy, saved):
    strip(copy / "3")
    (copy / "3" / "state" / "_METADATA").unlink()
    with pytest.raises(CheckpointError, match=r"update 3, cannot be used: .*Restore the folder from a copy"):
        checkpoint.restore(copy, saved[2])


def tamper(folder, **changes):
    """Digests of a checkpoint with other entries, and a digest of their own that fits."""
    content = json.loads((folder / DIGESTS).read_text()) | changes
    content.pop(OWN)
    put(folder / DIGESTS, json.dumps(content | {OWN: _digest_of(content)}).encode())


FAULTS = {
    "of a later version": (lambda d: tamper(d / "3", format=3), "tells format 3, this version reads 2"),
    "copied without its digests": (lambda d: (d / "3" / DIGESTS).unlink(), r"digests\.json is missing"),
    "under another name": (lambda d: (d / "3").rename(d / "5"), "named after update 5 and holds update 3"),
    "with an empty folder": (lambda d: (shutil.rmtree(d / "3"), (d / "3").mkdir()), "cannot be used"),
    "with settings that this version lacks": (
        lambda d: (put(d / "3" / "settings" / "metadata", settings(d, lrr=1)), strip(d / "3")),
        r"Unknown apg setting 'lrr'\. Did you mean 'lr'",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_checkpoint_that_cannot_be_used_gives_one_error_with_the_way_back(copy, saved, name):
    fault, words = FAULTS[name]
    fault(copy)
    with pytest.raises(CheckpointError, match=f"{words}.* Restore the folder from a copy, or train again"):
        checkpoint.load_config(copy)


def put(path, content):
    path.write_bytes(content)


def settings(folder, **changes):
    return json.dumps(json.loads((folder / "3" / "settings" / "metadata").read_text()) | changes).encode()


def strip(folder):
    """Make a checkpoint of format 1 of one of today."""
    (folder / DIGESTS).unlink()
    path = folder / "settings" / "metadata"
    record = json.loads(path.read_text())
    record.pop("format")
    put(path, json.dumps(record).encode())


@pytest.mark.parametrize("make", [lambda folder: None, Path.mkdir])
def test_a_folder_without_a_checkpoint_is_told_apart(tmp_path, make):
    make(tmp_path / "run")
    assert not checkpoint.exists(tmp_path / "run")
    with pytest.raises(DataMissing, match="holds no checkpoint"):
        checkpoint.load_config(tmp_path / "run")
