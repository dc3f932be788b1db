"""The native VectorEnv: the same trajectory as Gymnasium's loop over single environments, ends included."""

from __future__ import annotations

import gymnasium
import numpy as np
import powerzoo  # noqa: F401  registers PowerZoo/...
import powerzoo_compat.gymnasium_view  # noqa: F401  registers PowerZooJax/...
import pytest
from gymnasium.vector import AutoresetMode
from powerzoo_compat import vector_view

from powerzoo_jax.tasks import get_spec

UNIT, PHYSICAL = "PowerZooJax/BatteryArbitrage-v1", "PowerZoo/BatteryArbitrage-v1"
LANES, SHORT = 3, 5
TASKS = {"MARL-DER": "marl_der_arbitrage", "MARL-UC": "marl_uc", "MARL-DERs": "marl_ders_benchmark"}
SAME = 1e-6  # programs of different batch sizes round differently
SEEN = 10 * SAME  # observations show deviations of voltages ten times enlarged


def both(mode, env_id=UNIT):
    """The native batch and Gymnasium's own, with episodes of a few steps."""
    native = gymnasium.make_vec(env_id, LANES, max_steps=SHORT, autoreset_mode=mode)
    loop = gymnasium.make_vec(env_id, LANES, "sync", vector_kwargs={"autoreset_mode": mode}, max_steps=SHORT)
    return native, loop


@pytest.mark.full
@pytest.mark.parametrize("env_id", [UNIT, PHYSICAL])
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_the_batch_equals_the_loop_through_two_episodes(mode, env_id):
    native, loop = both(mode, env_id)
    assert native.metadata["autoreset_mode"] == mode and native.action_space == loop.action_space
    seen = [envs.reset(seed=11)[0] for envs in (native, loop)]
    np.testing.assert_allclose(*seen, atol=SEEN)
    rng = np.random.default_rng(0)
    for _ in range(2 * SHORT + 2):
        actions = rng.uniform(native.action_space.low, native.action_space.high).astype(np.float32)
        one, two = native.step(actions), loop.step(actions)
        np.testing.assert_allclose(one[0], two[0], atol=SEEN)
        for a, b in zip(one[1:4], two[1:4], strict=True):
            np.testing.assert_allclose(a, b, rtol=SAME, atol=SAME)
        ended = two[2] | two[3]
        if mode == AutoresetMode.SAME_STEP and ended.any():
            np.testing.assert_array_equal(one[4]["_final_obs"], ended)
            for lane in np.flatnonzero(ended):
                np.testing.assert_allclose(one[4]["final_obs"][lane], two[4]["final_obs"][lane], atol=SEEN)
        told = [(one[4], two[4])]
        if mode == AutoresetMode.SAME_STEP and ended.any():
            told.append((one[4]["final_info"], two[4]["final_info"]))
        for native_info, loop_info in told:
            np.testing.assert_allclose(native_info["cost"], loop_info["cost"], rtol=SAME, atol=SAME)
            np.testing.assert_allclose(
                native_info["costs"]["resource"], loop_info["costs"]["resource"], rtol=SAME, atol=SAME
            )
            totals = loop_info["episode_summary"]["costs"]["resource"]
            np.testing.assert_allclose(native_info["episode_costs"]["resource"], totals, rtol=SAME, atol=SAME)


@pytest.mark.full
@pytest.mark.parametrize("name", ["MARL-DER", "MARL-UC", "MARL-DERs"])
def test_lanes_of_joined_agents_equal_the_loop(name):
    """Gymnasium had to loop over the centralised environments."""
    native, loop = both(AutoresetMode.SAME_STEP, f"PowerZoo/{name}-v{get_spec(TASKS[name]).version}")
    assert isinstance(native, vector_view.TaskVectorEnv)
    assert native.single_action_space == loop.single_action_space
    assert native.single_observation_space == loop.single_observation_space
    assert native.single_observation_space.names == loop.single_observation_space.names
    np.testing.assert_allclose(*(envs.reset(seed=4)[0] for envs in (native, loop)), atol=SEEN)
    rng = np.random.default_rng(0)
    for _ in range(SHORT + 1):
        actions = rng.uniform(native.action_space.low, native.action_space.high).astype(np.float32)
        one, two = native.step(actions), loop.step(actions)
        np.testing.assert_allclose(one[0], two[0], atol=SEEN)
        for a, b in zip(one[1:4], two[1:4], strict=True):
            np.testing.assert_allclose(a, b, rtol=10 * SAME, atol=10 * SAME)
        np.testing.assert_allclose(one[4]["cost"], two[4]["cost"], rtol=SEEN, atol=SEEN)


def test_lanes_are_reset_one_by_one_as_gymnasium_does_it():
    native, loop = both(AutoresetMode.DISABLED)
    for envs in (native, loop):
        envs.reset(seed=3)
    rng = np.random.default_rng(1)
    mask = np.array([False, True, False])
    for k in range(SHORT):
        actions = rng.uniform(-1, 1, native.action_space.shape).astype(np.float32)
        if k == 2:
            seen = [envs.reset(seed=[None, 8, None], options={"reset_mask": mask.copy()})[0] for envs in (native, loop)]
            np.testing.assert_allclose(*seen, atol=SEEN)
        one, two = native.step(actions), loop.step(actions)
        for a, b in zip(one[:4], two[:4], strict=True):
            np.testing.assert_allclose(a, b, rtol=SAME, atol=SEEN)
    ended = one[2] | one[3]
    np.testing.assert_array_equal(ended, ~mask)
    for envs, error in ((native, RuntimeError), (loop, AssertionError)):
        with pytest.raises(error):
            envs.step(actions)
    seen = [envs.reset(options={"reset_mask": ended.copy()})[0] for envs in (native, loop)]
    np.testing.assert_allclose(*seen, atol=SEEN)
    np.testing.assert_allclose(native.step(actions)[1], loop.step(actions)[1], rtol=SAME, atol=SAME)


@pytest.mark.parametrize(
    ("mask", "error", "words"),
    [
        ([True, False, True], TypeError, "NumPy array of booleans"),
        (np.ones(LANES), TypeError, "NumPy array of booleans"),
        (np.ones(2, bool), ValueError, r"shape \(2,\)"),
        (np.zeros(LANES, bool), ValueError, "at least one"),
    ],
)
def test_a_wrong_mask_is_named(mask, error, words):
    native = gymnasium.make_vec(UNIT, LANES, max_steps=SHORT)
    native.reset(seed=0)
    with pytest.raises(error, match=words):
        native.reset(options={"reset_mask": mask})


@pytest.mark.full
def test_the_step_after_an_end_ignores_its_action():
    native, _ = both(AutoresetMode.NEXT_STEP)
    native.reset(seed=0)
    for _ in range(SHORT):
        *_, truncations, _ = native.step(np.zeros(native.action_space.shape, np.float32))
    assert truncations.all()
    _, rewards, terminations, truncations, infos = native.step(np.ones(native.action_space.shape, np.float32))
    assert not rewards.any() and not terminations.any() and not truncations.any() and not infos["cost"].any()


@pytest.mark.full
def test_lanes_of_one_seed_are_alike_and_a_reset_goes_on():
    native, _ = both(AutoresetMode.NEXT_STEP)
    first = native.reset(seed=[4, 4, 5])[0]
    np.testing.assert_array_equal(first[0], first[1])
    again = native.reset()[0]
    np.testing.assert_array_equal(again[0], again[1])
    assert (again[0] != first[0]).any() and (again[0] != again[2]).any()


@pytest.mark.full
def test_three_programs_serve_any_number_of_steps():
    native, _ = both(AutoresetMode.SAME_STEP)
    programs = (vector_view.open_lanes, vector_view.step_lanes, vector_view.restart_lanes)
    for program in programs:
        program.clear_cache()
    for _ in range(2):
        native.reset(seed=1)
        for _ in range(SHORT + 1):
            native.step(native.action_space.sample())
    assert [program._cache_size() for program in programs] == [1, 1, 1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"autoreset_mode": "nextstep"}, "NextStep"),
        ({"num_envs": 0}, "at least 1"),
        ({"render_mode": "ansi"}, "None"),
        ({"pooling": "median"}, "mean"),
    ],
)
def test_a_wrong_keyword_is_named(change, words):
    with pytest.raises(ValueError, match=words):
        vector_view.make_vec_env("battery_arbitrage", **({"num_envs": 2} | change))


@pytest.mark.full
def test_a_wrong_call_is_refused_and_the_episode_goes_on():
    native, _ = both(AutoresetMode.NEXT_STEP)
    with pytest.raises(RuntimeError, match="reset"):
        native.step(np.zeros(native.action_space.shape))
    native.reset(seed=0)
    with pytest.raises(ValueError, match="shape"):
        native.step(np.zeros((2, 1)))
    with pytest.raises(ValueError, match="NaN"):
        native.step(np.full(native.action_space.shape, np.nan))
    with pytest.raises(ValueError, match="one each"):
        native.reset(seed=[1, 2])
