"""The demo from end to end, with a few updates a learner."""

from __future__ import annotations

import json

import pytest

from powerzoo_jax.cli import main

pytestmark = pytest.mark.full

POLICIES = ("random", "rule", "PPO", "analytic gradient", "causal", "oracle")


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    assert main(["demo", "--quick", "--out", str(folder)]) == 0
    return folder


def test_the_demo_scores_every_policy_on_every_test_day(demo):
    records = json.loads((demo / "battery_arbitrage.json").read_text())
    assert tuple(records) == POLICIES
    assert {r["n_episodes"] for (r,) in records.values()} == {66} and {r["split"] for (r,) in records.values()} == {
        "test"
    }


def test_the_demo_draws_a_day(demo):
    assert (demo / "battery_arbitrage_day.png").stat().st_size > 10_000


def test_nobody_beats_the_oracle(demo):
    returns = {
        name: r["mean_reward"] for name, (r,) in json.loads((demo / "battery_arbitrage.json").read_text()).items()
    }
    assert max(returns, key=returns.__getitem__) == "oracle"


def test_the_demo_ends_where_the_voltage_band_binds(demo):
    records = {name: r for name, (r,) in json.loads((demo / "marl_der_arbitrage.json").read_text()).items()}
    assert tuple(records) == ("no_control", "rule", "oracle")
    assert records["no_control"]["mean_reward"] < records["rule"]["mean_reward"] < records["oracle"]["mean_reward"]
    assert records["oracle"]["feasible"]
