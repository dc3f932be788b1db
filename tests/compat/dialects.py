"""One task in the dialects beside PowerZoo's own: what `test_public_tasks` plays while a task's program is there."""

from __future__ import annotations

import numpy as np
import powerzoo
import pytest
from powerzoo_compat import heron_view
from powerzoo_compat import momaland_view as mo
from powerzoo_compat import smartgrid_view as sg


def check_dialects(task, **kwargs):
    """Rewards, costs and end to 1e-6, weighted vectors to 1e-5, over a whole episode; fields that agents share."""
    kwargs |= {"split": "test"}
    auto = powerzoo.make_task_env(task, **kwargs)
    heron, grid, vector = (view.parallel_env(task, **kwargs) for view in (heron_view, sg, mo))
    weighted = sg.WeightedSumRewardAggregator(grid, grid.reward_weights)
    seen = [env.reset(seed=5)[0] for env in (auto, heron, weighted, vector)]
    rng, names, steps, ended = np.random.default_rng(2), auto.possible_agents, 0, False
    while not ended:
        actions = {a: rng.uniform(s.low, s.high).astype(np.float32) for a, s in auto.action_spaces.items()}
        told = [env.step(actions) for env in (auto, heron, weighted, vector)]
        seen = [each[0] for each in told]
        if not steps:
            check_shared_fields(grid, seen[2])
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


def check_shared_fields(grid, obs):
    """SmartGrid's global fields are those that all agents see alike."""
    seen = list(obs.values())
    assert all(o.get_global_observation() == seen[0].get_global_observation() for o in seen)
    assert len({o.get_local_observation() for o in seen}) > 1
    size = grid.observation_shape
    assert size["agent_state"] == size["local_state"] + size["global_state"] == len(seen[0].fields())
    assert all(grid.observation_space(a).contains(np.asarray(o)) for a, o in obs.items())
