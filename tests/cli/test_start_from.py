"""Runs that begin with the policies of another run, and the planner that their row of the leaderboard names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.base.errors import DataMissing
from powerzoo_jax.cli import selection
from powerzoo_jax.cli.commands.leaderboard import page
from powerzoo_jax.cli.runs import Run
from powerzoo_jax.cli.selection import begun_state, planner_seen
from powerzoo_jax.rl.algorithms import apg
from powerzoo_jax.rl.training.config import APGConfig, DAggerConfig, ESConfig, PPOConfig
from tests.cli.test_leaderboard import PAGE
from tests.rl.toy_cue import toy_cue

CFG = APGConfig(lanes=2, updates=2, widths=(4,))


def test_seeds_begin_with_the_policies_of_the_other_runs_seeds_from_the_first_again(tmp_path, monkeypatch):
    """Three seeds of a run whose source had two."""
    sim, keys = toy_cue(), jax.vmap(jax.random.key)(jnp.arange(3))
    init = jax.jit(jax.vmap(lambda key: apg.make_update(CFG, sim)[0](key, sim)))
    state, other = init(keys), init(jax.vmap(jax.random.key)(jnp.arange(10, 12)))
    Run(tmp_path / "source", CFG, seeds=2).write()
    monkeypatch.setattr(Run, "make", lambda self: sim)
    monkeypatch.setattr(selection, "load_state", lambda run, sim: (other, 2))
    begun = begun_state(Run(tmp_path, PPOConfig(start_from=str(tmp_path / "source")), seeds=3), state)
    for mine, theirs, old in zip(
        *map(jax.tree.leaves, ((begun.actor, begun.scale), (other.actor, other.scale), (state.actor, state.scale))),
        strict=True,
    ):
        np.testing.assert_array_equal(mine, np.asarray(theirs)[[0, 1, 0]])
        assert mine.shape == old.shape
    assert any((a != b).any() for a, b in zip(*map(jax.tree.leaves, (begun.actor, state.actor)), strict=True))
    for a, b in zip(*map(jax.tree.leaves, (begun.opt, state.opt)), strict=True):
        np.testing.assert_array_equal(a, b)
    assert begun_state(Run(tmp_path, PPOConfig(), seeds=3), state) is state


def test_a_policy_has_seen_the_planner_of_the_run_that_it_started_from(tmp_path):
    taught, tuned = (str(tmp_path / name) for name in ("taught", "tuned"))
    Run(Path(taught), DAggerConfig(teacher="oracle")).write()
    Run(Path(tuned), APGConfig(start_from=taught)).write()
    assert planner_seen(PPOConfig(start_from=tuned)) == "oracle"
    assert planner_seen(PPOConfig()) == ""
    assert planner_seen(APGConfig(task="dc_microgrid", column_rule="starts")) == "rule"
    alone = ESConfig(task="comparison_tso_centralized", safety_filter="security")
    assert planner_seen(alone) == "rule" and planner_seen(replace(alone, start_from=tuned)) == "oracle"
    with pytest.raises(DataMissing, match="holds no run"):
        planner_seen(PPOConfig(start_from=str(tmp_path / "nowhere")))


def test_the_leaderboard_says_who_has_seen_a_planner():
    row = {
        "task": "battery_arbitrage", "version": 1, "planner": "causal", "known": None, "budgets": {}, "steps": 1,
        "run": {"config": {"algorithm": "apg"}}, "seconds": None, "cpu_s": None, "date": "", "where": "",
        "seeds": [{"return": 1.0, "gain": None, "costs": {}, "kept": [True]}], "named": {},
    }  # fmt: skip
    assert "|causal|\n" in page([row]) and "|causal|\n" not in page([{**row, "planner": ""}])
    assert "|planner seen|" in PAGE.read_text()
