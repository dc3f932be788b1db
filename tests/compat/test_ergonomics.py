"""What a user asks of an environment before its first step: its length, its names, its line of text, its card."""

import re
import subprocess
import sys
import time

import gymnasium
import numpy as np
import powerzoo
import pytest
from powerzoo import tasks, wrappers
from powerzoo_compat import (
    discrete_view,
    gymnasium_view,
    heron_view,
    momaland_view,
    pettingzoo_view,
    safety_view,
    smartgrid_view,
    vector_view,
)
from powerzoo_compat.powerzoo_api.tasks import cards
from powerzoo_compat.powerzoo_api.tasks.central import make_central_env
from powerzoo_compat.powerzoo_api.tasks.factory import get_task_class

import powerzoo_jax
from tools.tasks.card_facts import table

SINGLE, MULTI = "battery_arbitrage", "marl_uc"
VIEWS = {
    "drop-in": lambda: powerzoo.make_task_env(SINGLE),
    "agents": lambda: powerzoo.make_task_env(MULTI),
    "parallel": lambda: pettingzoo_view.parallel_env(MULTI),
    "levels": lambda: pettingzoo_view.parallel_env(MULTI, levels=2),
    "turns": lambda: pettingzoo_view.raw_env(MULTI),
    "lanes": lambda: vector_view.make_vec_env(SINGLE, 2),
    "safe": lambda: safety_view.make_safe_env(SINGLE),
    "joined": lambda: gymnasium.make("PowerZoo/MARL-UC-v1").unwrapped,
    "smartgrid": lambda: smartgrid_view.parallel_env(MULTI),
    "aggregated": lambda: smartgrid_view.MinRewardAggregator(smartgrid_view.parallel_env(MULTI)),
    "objectives": lambda: momaland_view.parallel_env(MULTI),
    "heron": lambda: heron_view.parallel_env(MULTI),
    "one agent": lambda: heron_view.SingleAgentWrapper(heron_view.parallel_env(MULTI), "unit_0"),
}


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_shows_its_task_and_no_address(view):
    env = VIEWS[view]()
    task = SINGLE if SINGLE in repr(env.unwrapped) else MULTI
    assert re.search(rf"{task}'.*48 steps of 30 min", repr(env.unwrapped)) and " at 0x" not in repr(env)
    assert type(env.unwrapped).__name__ in repr(env.unwrapped)


def test_grids_and_devices_show_what_they_are():
    grid, battery = powerzoo.DistGridEnv(), powerzoo.BatteryEnv(power_mw=0.4)
    grid.register_resource(battery, 6)
    assert repr(grid) == "DistGridEnv('Case33bw', split='train', devices=['battery_0'])"
    assert repr(battery).startswith("BatteryEnv(") and "power_mw=0.4" in repr(battery) and "bus_id=6" in repr(battery)


@pytest.mark.full
def test_a_registration_tells_the_length_of_the_episode_and_limits_nothing():
    for given, steps in (({}, 48), ({"max_steps": 60}, 60)):
        env = gymnasium.make("PowerZoo/BatteryArbitrage-v1", **given)
        assert env.spec.max_episode_steps == steps == env.unwrapped.spec.max_episode_steps
        env.reset(seed=0)
        ends = [env.step(env.action_space.sample())[3] for _ in range(steps)]
        assert ends == [False] * (steps - 1) + [True]
    for name in ("PowerZoo/BatteryArbitrage-v1", "PowerZoo/BatteryArbitrage-v0", "PowerZooJax/BatteryArbitrage-v1"):
        assert gymnasium.spec(name).max_episode_steps == 48
    assert powerzoo.make_task_env(SINGLE, max_steps=12).spec.max_episode_steps == 12
    assert gymnasium.make("PowerZoo/MARL-UC-v1").spec.max_episode_steps == 48
    unit = gymnasium.make(f"{gymnasium_view.NAMESPACE}/BatteryArbitrage-v1", max_steps=60)
    again = gymnasium.make(unit.spec)
    assert again.spec.max_episode_steps == 60 == again.unwrapped._host.sim.spec.horizon
    assert powerzoo.BatteryEnv().spec is None


@pytest.mark.parametrize("build", [lambda s: gymnasium.make(s, max_steps=60), lambda s: s.make(max_steps=60)])
def test_an_environment_made_from_a_spec_ends_where_its_keywords_say(build):
    """A time limit of the former length ended it after 48 steps."""
    for env in (gymnasium.make("PowerZooJax/BatteryArbitrage-v1"), powerzoo.make_task_env(SINGLE)):
        longer = build(env.spec)
        assert longer.spec.max_episode_steps == 60
        longer.reset(seed=0)
        assert [longer.step(longer.action_space.sample())[3] for _ in range(60)] == [False] * 59 + [True]


def test_a_time_limit_that_was_asked_for_stays():
    env = gymnasium.make(gymnasium.make("PowerZooJax/BatteryArbitrage-v1", max_episode_steps=3).spec)
    assert env.spec.max_episode_steps == 3
    env.reset(seed=0)
    assert [env.step(env.action_space.sample())[3] for _ in range(3)] == [False, False, True]


VIEWS_WITH_SPEC = {
    "safe": lambda: safety_view.make_safe_env(SINGLE, max_steps=4, vector_cost=True),
    "safe in MW": lambda: safety_view.make_safe_env(SINGLE, max_steps=4, unit_actions=False),
    "discrete": lambda: discrete_view.make_discrete_env(SINGLE, max_steps=4, levels=3),
    "discrete agents": lambda: discrete_view.make_discrete_env("marl_der_arbitrage", max_steps=4, levels=3),
    "central": lambda: make_central_env("marl_der_arbitrage", max_steps=4),
}


@pytest.mark.full
@pytest.mark.parametrize("view", VIEWS_WITH_SPEC)
def test_the_spec_of_a_view_rebuilds_it(view):
    env = VIEWS_WITH_SPEC[view]()
    again = gymnasium.make(env.spec)
    assert again.spec.max_episode_steps == env.spec.max_episode_steps == 4
    assert (type(again.unwrapped), again.action_space) == (type(env.unwrapped), env.action_space)
    np.testing.assert_array_equal(env.reset(seed=3)[0], again.reset(seed=3)[0])
    action = env.action_space.sample()
    np.testing.assert_equal(env.step(action), again.step(action))


@pytest.mark.full
def test_an_id_names_the_module_that_registers_it():
    for module, name in (("powerzoo", "PowerZoo"), ("powerzoo_compat.gymnasium_view", "PowerZooJax")):
        env_id = f"{name}/BatteryArbitrage-v1"
        code = f"import gymnasium; print(gymnasium.make('{module}:{env_id}').spec.id)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert done.stdout.strip() == env_id, done.stderr


def test_a_box_names_its_entries():
    env = gymnasium.make("PowerZoo/BatteryArbitrage-v1")
    names = env.observation_space.names
    assert names == env.unwrapped.get_observation_fields() and len(names) == env.observation_space.shape[0]
    assert env.observation_space == gymnasium.spaces.Box(env.observation_space.low, env.observation_space.high)
    joined = gymnasium.make("PowerZoo/MARL-UC-v1").observation_space
    assert joined.names[0].startswith("unit_0/") and len(joined.names) == joined.shape[0]
    obs, info = env.reset(seed=0)
    assert obs[names.index("battery_0_soc")] == pytest.approx(info["soc"])


@pytest.mark.tiers(full=["drop-in"])
@pytest.mark.parametrize("view", ["drop-in", "agents", "parallel", "levels", "safe", "joined", "aggregated"])
def test_what_lies_under_wrappers_returns_what_its_spaces_say(view):
    env = VIEWS[view]().unwrapped
    obs, _ = env.reset(seed=0)
    if not hasattr(env, "possible_agents"):
        assert env.observation_space.contains(obs)
        obs, *_ = env.step(env.action_space.sample())
        assert env.observation_space.contains(obs)
        return
    as_array = np.asarray if view != "aggregated" else lambda seen: np.array(seen)
    for agent in env.possible_agents:
        assert env.observation_space(agent).contains(as_array(obs[agent])), agent


@pytest.mark.full
def test_a_grid_returns_what_its_space_says_wrapped_or_not():
    grid = powerzoo.DistGridEnv(max_episode_steps=3)
    for env in (grid, wrappers.GymnasiumWrapper(grid)):
        obs, _ = env.reset(seed=0)
        assert env.observation_space.contains(obs)
        obs, *_ = env.step(env.action_space.sample())
        assert env.observation_space.contains(obs)
    assert grid.spec is None and wrappers.GymnasiumWrapper(grid).observation_space.names == grid.obs_names


@pytest.mark.full
def test_a_card_of_a_shipped_task_is_that_of_the_built_one():
    for name in (SINGLE, MULTI, "dc_microgrid_safe"):
        cls = get_task_class(name)
        assert cards.shipped_facts(cls) == cards.built_facts(cls)
        assert tasks.get_task_info(name) == cards.card_from(cls, cards.built_facts(cls))


def test_a_preset_whose_operator_commands_nothing_has_a_card():
    card = tasks.get_task_info("atomic_transmission_grid")
    assert card["action_shape"] == [0] and card["grid_type"] == "transmission"
    assert card["constraint_units"]["thermal_overload"] == "MW"  # a DC flow has no apparent power


@pytest.mark.full
def test_the_shipped_facts_are_those_of_all_built_tasks():
    """Where a task has changed: python -m tools.tasks.card_facts"""
    assert cards.FACTS.read_text(encoding="utf-8") == table()


def test_the_catalog_builds_no_task(monkeypatch):
    def refused(*args, **kwargs):
        raise AssertionError("a task was built")

    cards._card.cache_clear()
    monkeypatch.setattr(cards, "built_facts", refused)
    began = time.process_time()
    catalog = tasks.get_public_task_catalog()
    assert time.process_time() - began < 0.2
    assert [card["task_id"] for card in catalog] == list(tasks.PUBLIC_TASKS)


def test_a_task_of_ones_own_tells_what_it_builds(monkeypatch):
    class Small(tasks.SingleAgentTask):
        name = SINGLE
        description = "A battery whose day has twelve steps."

        def build(self, split, **kwargs):
            return powerzoo_jax.make(SINGLE, split=split, max_steps=12, **kwargs)

    assert cards.shipped_facts(Small) is None
    assert cards.card_of(Small)["default_episode_horizon_steps"] == 12
