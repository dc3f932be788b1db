"""Same task, seed and actions through every dialect: rewards, costs and end to 1e-6, weighted vectors to 1e-5."""

from __future__ import annotations

import sys

import numpy as np
import powerzoo
import pytest
from powerzoo_compat import heron_view
from powerzoo_compat import momaland_view as mo
from powerzoo_compat import smartgrid_view as sg

TASKS = ("marl_der_arbitrage", "marl_ders_benchmark", "marl_ev_v2g_1d", "marl_opf", "marl_uc", "gencos_bidding")


@pytest.mark.parametrize("task", TASKS)
def test_a_whole_episode_has_the_same_numbers_in_every_dialect(task):
    auto = powerzoo.make_task_env(task, split="test")
    heron, grid, vector = (view.parallel_env(task, split="test") for view in (heron_view, sg, mo))
    weighted = sg.WeightedSumRewardAggregator(grid, grid.reward_weights)
    seen = [env.reset(seed=5)[0] for env in (auto, heron, weighted, vector)]
    rng, names, steps, ended = np.random.default_rng(2), auto.possible_agents, 0, False
    while not ended:
        actions = {a: rng.uniform(s.low, s.high).astype(np.float32) for a, s in auto.action_spaces.items()}
        told = [env.step(actions) for env in (auto, heron, weighted, vector)]
        seen = [each[0] for each in told]
        steps, ended = steps + 1, told[0][3]["__all__"]
        team = sum(told[0][1].values())
        for _, rewards, *_, infos in told[1:3]:
            assert sum(rewards.values()) == pytest.approx(team, rel=1e-6, abs=1e-6)
            assert infos[names[0]]["cost_sum"] == pytest.approx(told[0][4][names[0]]["cost_sum"], rel=1e-6, abs=1e-6)
        for name in names:
            scalar = float(vector.reward_weights @ told[3][1][name])
            assert scalar == pytest.approx(told[0][1][name], rel=1e-5, abs=1e-5)
        assert told[3][4][names[0]]["cost_sum"] == told[0][4][names[0]]["cost_sum"]
        assert told[1][3]["__all__"] is ended is (not vector.agents)
        # after the end SmartGrid shows the next day already
        for other in seen[1:2] + seen[3:] + ([] if ended else seen[2:3]):
            np.testing.assert_allclose(np.asarray(other[names[-1]]), seen[0][names[-1]], atol=1e-6)
    assert steps == auto.time_step > 1


def test_a_framework_that_is_not_installed_names_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "powerzoo_compat.rllib_view", raising=False)
    with pytest.raises(ImportError, match=r"powerzoo-jax\[rllib\]"):
        powerzoo.make_task_env("marl_opf", framework="rllib")
