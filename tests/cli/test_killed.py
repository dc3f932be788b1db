"""A training process that is killed loses one interval at most, and the run ends as if it had not been."""

from __future__ import annotations

import random

import pytest

from powerzoo_jax.cli.runs import LOG
from tests.cli.killed import GAP_S, UPDATES, assert_same_state, kill_once, live

pytestmark = pytest.mark.full

KILLS = 1  # `python tests/cli/killed.py FOLDER 400 10` tries ten


@pytest.fixture(scope="module")
def survived(tmp_path_factory: pytest.TempPathFactory):
    """(undisturbed run, killed run, [(updates logged, updates saved)] after each kill)."""
    folder, draw = tmp_path_factory.mktemp("killed"), random.Random(1)
    left = [kill_once(folder / "cut", draw.uniform(0, GAP_S)) for _ in range(KILLS)]
    return live(folder / "whole"), live(folder / "cut"), left


def test_a_kill_loses_one_interval_at_most(survived):
    for logged, saved in survived[2]:
        assert 0 < logged <= UPDATES and logged - 1 <= saved <= logged


@pytest.mark.long
def test_the_log_of_a_killed_run_is_that_of_the_undisturbed_one(survived):
    whole, cut, _ = survived
    assert (cut.folder / LOG).read_text() == (whole.folder / LOG).read_text()


def test_the_final_state_of_a_killed_run_is_that_of_the_undisturbed_one(survived):
    assert_same_state(*survived[:2])
