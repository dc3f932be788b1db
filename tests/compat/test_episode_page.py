"""The running episode of a view as a trace and a page: its steps are those that the view has reported."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from pettingzoo import ParallelEnv
from powerzoo_compat import gymnasium_view, heron_view, momaland_view, pettingzoo_view, smartgrid_view, vector_view
from powerzoo_compat.discrete_view import make_discrete_env
from powerzoo_compat.pettingzoo_aec import TaskAECEnv
from powerzoo_compat.powerzoo_api.grids.envs import DistGridEnv
from powerzoo_compat.powerzoo_api.grids.power import PowerEnv
from powerzoo_compat.powerzoo_api.tasks.central import make_central_env
from powerzoo_compat.safety_view import make_safe_env

ONE, SEVERAL = "battery_arbitrage", "marl_der_arbitrage"
STEPS = 5


@pytest.fixture(scope="module")
def battery():
    return gymnasium.make("PowerZooJax/BatteryArbitrage-v1", split="test")


def stepped(env, seed=0):
    """Rewards, costs and lowest voltages of the first steps of a day under drawn actions."""
    env.action_space.seed(seed)
    env.reset(seed=seed)
    told = [env.step(env.action_space.sample()) for _ in range(STEPS)]
    infos = [t[-1] for t in told]
    return [np.array(x) for x in ([t[1] for t in told], *([i[k] for i in infos] for k in ("cost_sum", "v_min_actual")))]


@pytest.mark.full
def test_the_trace_holds_the_steps_that_were_taken(battery):
    reward, cost, lowest = stepped(battery)
    trace = battery.unwrapped.episode_trace(policy="drawn")
    assert len(trace) == STEPS and trace.policy == "drawn"
    assert trace["reward"].values.mean(axis=1) == pytest.approx(reward, rel=1e-5, abs=1e-6)
    assert trace["cost"].values.sum(axis=1) == pytest.approx(cost, rel=1e-4, abs=1e-6)
    assert trace["bus_voltage_pu"].values.min(axis=1) == pytest.approx(lowest, abs=1e-6)


@pytest.mark.full
def test_a_reset_right_after_the_end_keeps_the_episode(battery):
    stepped(battery, seed=1)
    before = battery.unwrapped.episode_trace()
    battery.reset()
    kept = battery.unwrapped.episode_trace()
    assert np.array_equal(kept["bus_voltage_pu"].values, before["bus_voltage_pu"].values)
    battery.step(battery.action_space.sample())
    assert len(battery.unwrapped.episode_trace()) == 1


@pytest.mark.full
def test_the_page_is_written_and_names_the_day(battery, tmp_path):
    day = battery.unwrapped._host.start_days[3]
    battery.reset(seed=0, options={"day": day})
    battery.step(battery.action_space.sample())
    target = battery.unwrapped.episode_html(tmp_path / "new" / "day.html", policy="drawn")
    page = target.read_text(encoding="utf-8")
    assert day in page and '"name":"drawn"' in page and "episode 4" in page
    assert battery.unwrapped.episode_html(title="A day").startswith("<!DOCTYPE html>")


def test_without_a_step_there_is_nothing_to_show():
    with pytest.raises(RuntimeError, match="no step to show"):
        gymnasium_view.make_env(ONE).episode_html()


@pytest.mark.full
def test_memory_is_bounded_where_an_episode_is_stepped_on_after_its_end(battery):
    battery.reset(seed=0)
    idle = np.zeros(battery.action_space.shape, np.float32)
    for _ in range(battery.spec.max_episode_steps + 3):
        battery.unwrapped.step(idle)
    assert len(battery.unwrapped._host.tape.shown().actions) == battery.spec.max_episode_steps
    assert len(battery.unwrapped.episode_trace()) == battery.spec.max_episode_steps


@pytest.mark.long
@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_the_first_lane_stands_for_a_batch(mode):
    envs = vector_view.make_vec_env(ONE, 2, split="test", autoreset_mode=mode)
    envs.action_space.seed(0)
    envs.reset(seed=7)
    rewards = [envs.step(envs.action_space.sample())[1][0] for _ in range(48)]
    ended = envs.unwrapped.episode_trace()
    assert ended["reward"].values[:, 0] == pytest.approx(rewards, rel=1e-5, abs=1e-6)
    if mode == AutoresetMode.NEXT_STEP:
        envs.step(envs.action_space.sample())
    reward = envs.step(envs.action_space.sample())[1][0]
    following = envs.unwrapped.episode_trace()
    assert following["reward"].values[:, 0] == pytest.approx([reward], rel=1e-5, abs=1e-6)
    assert following.episode != ended.episode


def parallel(env):
    """Play a parallel environment; its unwrapped one and the team's rewards."""
    env.reset(seed=3)
    rewards = [env.step({a: 0.5 * env.action_space(a).high for a in env.agents})[1] for _ in range(STEPS)]
    return env.unwrapped, np.array([[np.sum(x) for x in one.values()] for one in rewards])


def agent_by_agent(env):
    env.reset(seed=3)
    rewards = []
    for _ in range(STEPS):
        for agent in env.agents:
            env.step(0.5 * env.action_space(agent).high)
        rewards.append(list(env.rewards.values()))
    return env.unwrapped, np.array(rewards)


def joined(env):
    env.reset(seed=3)
    rewards = [env.step(0.5 * env.action_space.high)[1] for _ in range(STEPS)]
    return env.unwrapped, np.array(rewards)[:, None]


VIEWS = {
    "pettingzoo": lambda: parallel(pettingzoo_view.parallel_env(SEVERAL, split="test")),
    "aec": lambda: agent_by_agent(pettingzoo_view.env(SEVERAL, split="test")),
    "heron": lambda: parallel(heron_view.parallel_env(SEVERAL, split="test")),
    "central": lambda: joined(make_central_env(SEVERAL, split="test")),
    "smartgrid": lambda: parallel(
        smartgrid_view.WeightedSumRewardAggregator(smartgrid_view.parallel_env(SEVERAL, split="test"))
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("view", VIEWS)
def test_every_view_of_agents_shows_its_episode(view):
    env, rewards = VIEWS[view]()
    trace = env.episode_trace()
    assert len(trace) == STEPS and trace.task == SEVERAL
    if view != "smartgrid":  # its aggregator weighs the terms by 1 / n
        own = trace["reward"].values if rewards.shape[1] > 1 else trace["reward"].values.mean(axis=1, keepdims=True)
        assert own == pytest.approx(rewards, rel=1e-5, abs=1e-6)
    shown = trace["action"].values
    assert np.nanmin(shown) == np.nanmax(shown)  # half of what each agent can give, in [-1, 1]


@pytest.mark.full
@pytest.mark.parametrize(
    "env",
    [
        lambda: make_safe_env(ONE, split="test"),
        lambda: make_discrete_env(ONE, split="test"),
        lambda: momaland_view.single_env(ONE, split="test"),
        lambda: heron_view.SingleAgentWrapper(heron_view.parallel_env(SEVERAL, split="test"), "bat_0"),
        lambda: momaland_view.CentraliseAgent(momaland_view.parallel_env(SEVERAL, split="test")),
    ],
)
def test_wrappers_lead_to_the_environment_that_shows_it(env):
    env = env()
    env.reset(seed=0)
    env.step(env.action_space.sample())
    assert len(env.unwrapped.episode_trace()) == 1


@pytest.mark.long
def test_a_grid_of_its_own_shows_its_devices():
    from powerzoo_compat.powerzoo_api.envs.resources import BatteryEnv

    grid = DistGridEnv("Case33bw", split="test")
    grid.register_resource(BatteryEnv(capacity_mwh=1.0, power_mw=0.3), bus_id=18, name="home")
    env = PowerEnv(grid)
    env.reset(seed=0)
    env.step({"home": {"p_mw": 0.2}})
    assert env.unwrapped.episode_trace()["device_power_mw"].values == pytest.approx(np.array([[0.2]]), abs=1e-6)


class Foreign(ParallelEnv):
    metadata, possible_agents = {}, ["a"]


def test_an_environment_of_another_project_is_named():
    with pytest.raises(TypeError, match="Foreign keeps no actions"):
        TaskAECEnv(Foreign()).episode_html()
