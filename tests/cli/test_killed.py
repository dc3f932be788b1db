"""A training process that is killed loses one interval at most, and the run ends as if it had not been."""

from __future__ import annotations

import random

import jax
import numpy as np
import pytest

from powerzoo_jax.cli.runs import LOG, load_state
from tests.cli.killed import GAP_S, UPDATES, kill_once, live
from tests.rl.toy_battery import toy_sim

KILLS = 2  # `python tests/cli/killed.py FOLDER 10` tries ten


@pytest.fixture(scope="module")
def survived(tmp_path_factory: pytest.TempPathFactory):
    """(undisturbed run, killed run, [(updates logged, updates saved)] after each kill)."""
    folder, draw = tmp_path_factory.mktemp("killed"), random.Random(1)
    left = [kill_once(folder / "cut", draw.uniform(0, GAP_S)) for _ in range(KILLS)]
    return live(folder / "whole"), live(folder / "cut"), left


def test_a_kill_loses_one_interval_at_most(survived):
    for logged, saved in survived[2]:
        assert 0 < logged <= UPDATES and logged - 1 <= saved <= logged


def test_the_log_of_a_killed_run_is_that_of_the_undisturbed_one(survived):
    whole, cut, _ = survived
    assert (cut.folder / LOG).read_text() == (whole.folder / LOG).read_text()


def test_the_final_state_of_a_killed_run_is_that_of_the_undisturbed_one(survived):
    whole, cut = (jax.tree.leaves(load_state(run, toy_sim())[0]) for run in survived[:2])
    for a, b in zip(whole, cut, strict=True):
        np.testing.assert_array_equal(words(a), words(b))


def words(x: jax.Array) -> jax.Array:
    return jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x
