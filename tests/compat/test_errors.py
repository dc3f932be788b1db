"""Bad input: what the contract's error table says, naming the remedy, and nothing half-built left behind."""

from __future__ import annotations

import numpy as np
import powerzoo
import pytest

TASK = "battery_arbitrage"
WRONG_CALLS = [
    (dict(name="batery_arbitrage"), ValueError, "battery_arbitrage"),
    (dict(name=3), TypeError, "list_tasks"),
    (dict(name={"name": TASK}), ValueError, "grid type"),
    (dict(name=TASK, split="tests"), ValueError, "'test'"),
    (dict(name=TASK, split="iid"), ValueError, "train"),
    (dict(name=TASK, split=""), ValueError, "train"),
    (dict(name=TASK, framework="gym"), ValueError, "gymnasium"),
    (dict(name=TASK, framework="pettingzoo"), ValueError, "one agent"),
    (dict(name=TASK, framework="rllib"), ValueError, "one agent"),
    (dict(name=TASK, obs_mode="local"), ValueError, "flattened"),
    (dict(name=TASK, obs_mode="flattened", observation_mode="global"), ValueError, "differ"),
    (dict(name=TASK, battery_capacity=1.0), TypeError, "battery_capacity_mwh"),
    (dict(name=TASK, dims=None), TypeError, "powerzoo_jax.make"),
    (dict(name=TASK, start_date="2016-01-01"), ValueError, "both dates"),
    (dict(name=TASK, start_date="2016-01-02", end_date="2016-01-01"), ValueError, "ends before"),
    (dict(name=TASK, start_date="2015-01-01", end_date="2015-01-02"), ValueError, "2016"),
    (dict(name=TASK, max_steps=0), ValueError, "at least 1"),
    (dict(name=TASK, delta_t_minutes=7), ValueError, "divide"),
    (dict(name=TASK, case="case33"), ValueError, "case33bw"),
    (dict(name=TASK, render_mode="svg"), ValueError, "ansi"),
    (dict(name=TASK, data_source="nowhere.csv"), FileNotFoundError, "nowhere.csv"),
    (dict(name=TASK, load_column="mv_suburb"), KeyError, "mv_semiurb"),
    (dict(name="dc_microgrid", constraint_tightness="tight"), ValueError, "strict"),
    (dict(name="marl_opf", framework="gymnasium"), ValueError, "auto"),
    (dict(name="marl_opf", obs_mode="locals"), ValueError, "local_plus_forecast"),
]
WRONG_ACTIONS = [
    (np.array([np.nan]), ValueError, "NaN"),
    (np.zeros(2), ValueError, r"\(1,\).*\(2,\)"),
    (0.1, ValueError, r"\(1,\).*\(\)"),
    ({"battery_0": 0.1}, TypeError, "dict"),
]
WRONG_OPTIONS = [
    ({"days": 1}, "day"),
    ({"start_step": 3}, "randomize_soc"),
    ({"day": "2016-01-25"}, "no start day"),
    ({"day": "yesterday"}, "YYYY-MM-DD"),
    ({"day_id": 10_000}, "from 0 to"),
    ({"day_id": True}, "from 0 to"),
    ({"day": "2016-01-01", "day_id": 0}, "exclude"),
    ({"soc": 0.95}, "band"),
    ({"soc": float("nan")}, "band"),
    ({"soc": {"battery_9": 0.5}}, "battery_0"),
    ({"soc": 0.5, "randomize_soc": True}, "exclude"),
    ({"randomize_soc": (0.6, 0.4)}, "band"),
]


@pytest.fixture
def env():
    env = powerzoo.make_task_env(TASK)
    env.reset(seed=0)
    return env


@pytest.mark.parametrize(("call", "error", "remedy"), WRONG_CALLS)
def test_a_wrong_call_names_the_remedy(call, error, remedy):
    with pytest.raises(error, match=remedy):
        powerzoo.make_task_env(**call)


def test_a_corrupt_case_file_is_refused(tmp_path):
    path = tmp_path / "broken.m"
    path.write_text("function mpc = broken\nmpc.bus = [1 3 0 0;\n")
    with pytest.raises(ValueError, match="broken"):
        powerzoo.make_task_env(TASK, case=str(path))


@pytest.mark.tiers(full=["action0-ValueError-NaN"])
@pytest.mark.parametrize(("action", "error", "message"), WRONG_ACTIONS)
def test_a_wrong_action_is_refused_and_the_episode_goes_on(action, error, message, env):
    with pytest.raises(error, match=message):
        env.step(action)
    assert env.time_step == 0
    untouched = powerzoo.make_task_env(TASK)
    untouched.reset(seed=0)
    idle = np.zeros(1, np.float32)
    np.testing.assert_array_equal(env.step(idle)[0], untouched.step(idle)[0])


@pytest.mark.parametrize(("options", "message"), WRONG_OPTIONS)
def test_a_wrong_reset_option_is_refused_and_the_stream_goes_on(options, message, env):
    with pytest.raises(ValueError, match=message):
        env.reset(options=options)
    untouched = powerzoo.make_task_env(TASK)
    untouched.reset(seed=0)
    np.testing.assert_array_equal(env.reset()[0], untouched.reset()[0])


@pytest.mark.parametrize("method", ["step", "render", "obs"])
def test_using_an_env_before_reset_is_refused(method):
    env = powerzoo.make_task_env(TASK, render_mode="ansi")
    with pytest.raises(RuntimeError, match="reset"):
        getattr(env, method)(*([np.zeros(1)] if method == "step" else []))


def test_an_action_outside_the_box_is_clipped(env):
    *_, info = env.step(np.array([9.0]))
    assert info["requested_p_mw"] == pytest.approx(0.2)
    *_, info = env.step(np.array([-np.inf]))
    assert info["requested_p_mw"] == pytest.approx(-0.2)


@pytest.mark.parametrize("kind", ["difficulty", "agent_mode"])
def test_an_unknown_filter_is_refused(kind):
    with pytest.raises(ValueError, match="Valid"):
        powerzoo.list_tasks(**{kind: "nobody"})


def test_equal_spellings_of_the_mode_are_accepted():
    env = powerzoo.make_task_env(TASK, obs_mode="flattened", observation_mode="flattened")
    assert env.observation_space.shape == (203,)
