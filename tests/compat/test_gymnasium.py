"""The Gymnasium side: the checker with warnings as errors, ids, seeds, options, compiles."""

from __future__ import annotations

import copy
import warnings

import gymnasium
import numpy as np
import powerzoo
import powerzoo_compat.gymnasium_view  # noqa: F401  registers PowerZooJax/...
import pytest
from gymnasium.utils.env_checker import check_env
from powerzoo_compat import _host

import powerzoo_jax

TASK = "battery_arbitrage"
PHYSICAL, UNIT = "PowerZoo/BatteryArbitrage-v1", "PowerZooJax/BatteryArbitrage-v1"


@pytest.fixture(scope="module")
def env():
    return powerzoo.make_task_env(TASK)


@pytest.mark.parametrize("env_id", [PHYSICAL, UNIT])
def test_a_registered_id_passes_the_checker_without_a_warning(env_id):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make(env_id).unwrapped)


@pytest.mark.parametrize("split", ["train", "val", "test", "price_stress"])
def test_a_task_env_passes_the_checker_without_a_warning(split):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(powerzoo.make_task_env(TASK, split=split))


def test_the_spec_rebuilds_the_env_and_both_close_twice():
    env = powerzoo.make_task_env(TASK, split="test", max_load_ratio=0.8)
    again = env.spec.make()
    assert again.unwrapped.reset(seed=1)[1]["p_slack_MW"] == env.reset(seed=1)[1]["p_slack_MW"]
    for one in (env, again):
        one.close()
        one.close()


def made_by_trial(env_id, **presets):
    """Make an environment as learners do that do not know which keywords it takes.

    TorchRL's GymEnv gives "frameskip", and leaves it out where a TypeError says so in Python's words.
    """
    while True:
        try:
            return gymnasium.make(env_id, disable_env_checker=True, **presets)
        except TypeError as err:
            refused = [name for name in presets if f"got an unexpected keyword argument '{name}'" in str(err)]
            if not refused:
                raise
            presets.pop(refused[0])


@pytest.mark.parametrize("env_id", sorted(name for name in gymnasium.registry if name.startswith("PowerZoo")))
def test_an_unknown_keyword_is_refused_in_words_that_learners_look_for(env_id):
    with pytest.raises(TypeError, match="got an unexpected keyword argument 'frameskip'"):
        gymnasium.make(env_id, frameskip=1)


def test_a_learner_that_tries_keywords_out_gets_its_environment():
    env = made_by_trial(UNIT, frameskip=1, render_mode="rgb_array")
    assert env.render_mode == "rgb_array" and env.reset(seed=0)[0].shape == (203,)


def test_the_version_of_an_id_is_that_of_the_task():
    version = powerzoo_jax.make(TASK).spec.version
    assert {gymnasium.spec(PHYSICAL).version, gymnasium.spec(UNIT).version} == {version}


@pytest.mark.full
@pytest.mark.parametrize("env_id", [PHYSICAL, UNIT])
def test_the_id_of_version_0_is_another_name_on_which_gymnasium_warns(env_id):
    old = env_id.replace("-v1", "-v0")
    words = rf"The environment {old} is out of date. You should consider upgrading to version `v1`."
    with pytest.warns(DeprecationWarning, match=words) as told:
        env = gymnasium.make(old, split="test")
    assert len([w for w in told if issubclass(w.category, DeprecationWarning)]) == 1
    assert env.unwrapped.observation_space == gymnasium.make(env_id, split="test").unwrapped.observation_space


def test_the_action_spaces_are_those_of_the_contract(env):
    assert env.action_space == gymnasium.spaces.Box(-0.2, 0.2, (1,), np.float32)
    assert gymnasium.make(UNIT).action_space == gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    assert env.observation_space.shape == (203,)
    assert len(env.get_observation_fields()) == 203


def test_a_seed_fixes_the_stream_of_episodes(env):
    runs = []
    for _ in range(2):
        first, _ = env.reset(seed=5)
        runs.append((first, env.reset()[0], env.reset()[0]))
    np.testing.assert_array_equal(runs[0], runs[1])
    assert len({info["start_day_id"] for info in (env.reset()[1] for _ in range(8))}) > 1


def test_long_seeds_differ_from_short_ones():
    keys = [str(_host.seed_key(s)) for s in (7, 7 + 2**32, 7 + 2**64)]
    assert len(set(keys)) == 3


def test_a_first_reset_without_a_seed_is_not_always_the_same():
    days = {powerzoo.make_task_env(TASK).reset()[1]["start_day_id"] for _ in range(6)}
    assert len(days) > 1


def test_reset_options_choose_day_and_charge(env):
    _, info = env.reset(seed=0, options={"day": "2016-03-04", "soc": 0.25})
    assert (info["episode_day"], info["soc"]) == ("2016-03-04", 0.25)
    _, info = env.reset(seed=0, options={"day_id": 3, "soc": {"battery_0": 0.75}})
    assert (info["episode_day"], info["start_day_id"], info["soc"]) == ("2016-01-04", 3, 0.75)


def test_a_random_charge_stays_in_its_range(env):
    drawn = [env.reset(seed=s, options={"randomize_soc": (0.4, 0.6)})[1]["soc"] for s in range(5)]
    assert 0.4 <= min(drawn) < max(drawn) <= 0.6
    assert env.reset(seed=0, options={"randomize_soc": False})[1]["soc"] == 0.5


def test_instances_and_splits_share_one_program():
    envs = [powerzoo.make_task_env(TASK, split=s) for s in ("train", "test")] + [gymnasium.make(UNIT).unwrapped]
    _host.open_episode.clear_cache()
    _host.step_program.cache_clear()
    for one in envs:
        for options in ({}, {"day_id": 1, "soc": 0.3}):
            one.reset(seed=0, options=options)
            one.step(one.action_space.sample())
        one.reset()
        one.step(one.action_space.sample())
    (program,) = {one._host._advance for one in envs}
    assert (_host.open_episode._cache_size(), program._run._cache_size()) == (1, 1)


def test_metadata_belongs_to_the_instance(env):
    other = powerzoo.make_task_env(TASK)
    copy.copy(other).metadata["render_modes"].append("depth_array")
    assert env.metadata["render_modes"] == ["human", "ansi", "rgb_array"]


def test_ansi_rendering_is_a_line_of_text():
    env = powerzoo.make_task_env(TASK, render_mode="ansi")
    env.reset(seed=0, options={"day": "2016-03-04"})
    assert "2016-03-04 00:00" in env.render()
    env.step(np.zeros(1, np.float32))
    assert "step 1/48" in env.render()


def test_the_contract_namespace_offers_its_versions():
    assert (powerzoo.__version__, powerzoo.__license__) == ("0.2.0", "MIT")


def test_modes_and_difficulties_sort_the_tasks_into_groups():
    for key, values in (("agent_mode", ("single", "multi")), ("difficulty", ("simple", "middle", "complex"))):
        groups = [powerzoo.list_tasks(**{key: value}) for value in values]
        assert all(groups) and sorted(task for group in groups for task in group) == powerzoo.list_tasks()
