"""Types and ranges at the door of the views: numbers of any type are taken or refused at once, x64 on or off."""

from __future__ import annotations

from typing import Annotated, get_origin

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from powerzoo.rl import RLConfig
from powerzoo_compat._host import checked_values
from powerzoo_compat.gymnasium_view import make_env
from powerzoo_compat.pettingzoo_view import parallel_env
from powerzoo_compat.powerzoo_api.grids.envs import ACConfig
from powerzoo_compat.powerzoo_api.tasks.observation import ObservationConfig

from powerzoo_jax.base.ranges import declared
from tests.base.test_ranges import numbers

TWO = gymnasium.spaces.Box(-1, 1, (2,))
TAKEN = {
    "list": [0.5, -1.0],
    "tuple": (0.5, -1),
    "list of NumPy scalars": [np.float64(0.5), np.int64(-1)],
    "NumPy float64": np.array([0.5, -1.0]),
    "NumPy float16": np.array([0.5, -1.0], np.float16),
    "JAX array": jnp.array([0.5, -1.0]),
    "bfloat16": jnp.array([0.5, -1.0], jnp.bfloat16),
}
REFUSED = {
    "text": (["0.5", "1"], TypeError, "real numbers, got list of <U3"),
    "booleans": (np.ones(2, bool), TypeError, "real numbers, got ndarray of bool"),
    "complex": (np.ones(2, complex), TypeError, "real numbers, got ndarray of complex128"),
    "ragged": ([[0.5], [0.5, 1.0]], TypeError, "an array of shape"),
    "nothing": (None, TypeError, "real numbers, got NoneType of object"),
    "scalar": (np.float32(0.5), ValueError, r"expected \(2,\), got \(\)"),
    "column": (np.ones((2, 1)), ValueError, r"expected \(2,\), got \(2, 1\)"),
    "NaN": ([np.nan, 0.0], ValueError, "holds NaN"),
}


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("name", TAKEN)
def test_real_numbers_of_any_type_become_the_same_action(name, x64):
    with jax.enable_x64(x64):
        values = checked_values(TAKEN[name], TWO)
    assert values.dtype == np.float32 and values.tolist() == [0.5, -1.0]


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_action_is_refused_at_once(name):
    value, error, words = REFUSED[name]
    with pytest.raises(error, match=f"action .*{words}"):
        checked_values(value, TWO)


def test_numbers_beyond_float32_are_clipped_as_infinity_is():
    assert checked_values([1e300, -np.inf], TWO).tolist() == [np.inf, -np.inf]


@pytest.mark.full
def test_a_gymnasium_environment_steps_alike_with_x64_switched_on_after_it_was_made():
    env = make_env("dc_microgrid")
    first, _ = env.reset(seed=0)
    told = env.step(np.full(env.action_space.shape, 0.25, np.float32))
    with jax.enable_x64(True):
        again, _ = env.reset(seed=0)
        wide = env.step([0.25] * env.action_space.shape[0])
    np.testing.assert_allclose(again, first, rtol=2e-4, atol=2e-4)
    np.testing.assert_allclose(wide[0], told[0], rtol=2e-4, atol=2e-4)
    assert wide[0].dtype == told[0].dtype == np.float32 and wide[1] == pytest.approx(told[1], rel=2e-4)


@pytest.mark.full
def test_a_pettingzoo_environment_steps_alike_with_x64_switched_on_after_it_was_made():
    env = parallel_env("marl_opf")
    env.reset(seed=0)
    shape = env.action_space(env.possible_agents[0]).shape
    told = env.step({agent: np.full(shape, 0.25, np.float32) for agent in env.possible_agents})
    with jax.enable_x64(True):
        env.reset(seed=0)
        wide = env.step({agent: [np.float64(0.25)] * shape[0] for agent in env.possible_agents})
    for agent in env.possible_agents:
        np.testing.assert_allclose(wide[0][agent], told[0][agent], rtol=2e-4, atol=2e-4)
        assert wide[0][agent].dtype == np.float32 and wide[1][agent] == pytest.approx(told[1][agent], rel=2e-4)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("total_timesteps: .nan", "total_timesteps = nan must be a whole number"),
        ("total_timesteps: -5", "total_timesteps = -5 must be a whole number of at least 1; the nearest .* is 1"),
        ("eval_episodes: true", "eval_episodes = True must be a whole number"),
        ("cost_threshold: -1.0", r"cost_threshold = -1\.0 must not be negative"),
        ("seed: 1.5", r"seed = 1\.5 must be a whole number"),
        ("normalize: 1", "normalize = 1 must be true or false"),
        ("hyperparams: {gamma: 2}", r"hyperparams: gamma = 2 must lie in \[0, 1\]; the nearest valid value is 1"),
        ("hyperparams: {learning_rate: .nan}", r"learning_rate = nan must lie in \[0, 1\]"),
    ],
)
def test_a_yaml_file_with_a_number_out_of_its_range_is_refused(tmp_path, setting, words):
    path = tmp_path / "run.yaml"
    path.write_text(f"task_name: dso\n{setting}\n")
    with pytest.raises(ValueError, match=words):
        RLConfig.from_yaml(path).validate()


def test_schedules_and_names_of_other_learners_pass():
    given = {"learning_rate": lambda left: 1e-3 * left, "ent_coef": "auto", "buffer_size": np.int64(1000)}
    RLConfig(task_name="dso", hyperparams=given).validate()


@pytest.mark.parametrize("settings", [RLConfig, ACConfig, ObservationConfig])
def test_every_number_of_the_settings_declares_its_range(settings):
    found = [number for kind in declared(settings).values() for number in numbers(kind)]
    assert found and all(get_origin(number) is Annotated for number in found)


def test_settings_of_grids_and_observations_have_ranges_too():
    with pytest.raises(ValueError, match=r"ACConfig: v_max = -1 must lie in \(0, 10\]"):
        ACConfig(v_max=-1)
    with pytest.raises(ValueError, match="forecast_horizon_steps = -1 must be a whole number of at least 0"):
        ObservationConfig(forecast_horizon_steps=-1)
