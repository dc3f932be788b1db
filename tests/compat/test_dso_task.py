"""The functions of the network operator's task: days of episodes, rules as they are written down, figures by hand."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from powerzoo.tasks import make_task_env
from powerzoo.tasks.dso_task import (
    DSO_FEEDER_BUS_MAP,
    DSO_FLEXLOAD_CONFIG,
    compute_dso_metrics,
    dso_droop_heuristic_rollout,
    dso_no_control_rollout,
    dso_tou_heuristic_rollout,
    make_dso_1flex_env,
    make_dso_env,
)


@cache
def split_days():
    return make_dso_env("test").unwrapped._host.start_days


def begun(env, count=3):
    return [env.reset(seed=0)[1]["episode_day"] for _ in range(count)]


@pytest.mark.long
def test_without_a_choice_of_days_it_is_the_env_of_the_task():
    one, other = make_dso_env("test"), make_task_env("dso", split="test")
    assert type(one) is type(other)
    np.testing.assert_array_equal(one.reset(seed=3)[0], other.reset(seed=3)[0])


@pytest.mark.full
def test_episodes_begin_on_the_chosen_days():
    first, second, *_, last = split_days()
    assert begun(make_dso_env("test", reset_sampling="cycle")) == list(split_days()[:3])
    assert begun(make_dso_env("test", reset_episode_starts=[last, 1], reset_sampling="cycle")) == [last, second, last]
    assert begun(make_dso_env("test", episode_start=first), 2) == [first, first]
    drawn = [begun(make_dso_env("test", reset_seed=seed), 4) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.full
def test_a_day_in_the_options_goes_before_the_choice():
    env = make_dso_env("test", episode_start=0)
    assert env.reset(seed=0, options={"day": split_days()[2]})[1]["episode_day"] == split_days()[2]


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"reset_episode_starts": []}, "is empty"),
        ({"reset_sampling": "cycles"}, "cycle"),
        ({"episode_start": "1999-01-01"}, "no start day"),
        ({"episode_start": 0, "reset_episode_starts": [0]}, "Give one of them"),
        ({"load_scale": 0.0}, "load_scale"),
    ],
)
def test_unusable_keywords_are_refused(keywords, message):
    with pytest.raises(ValueError, match=message):
        make_dso_env("test", **keywords)


def test_the_fleet_is_that_of_the_task_or_the_callers():
    assert make_dso_env("test", flexload_config=DSO_FLEXLOAD_CONFIG).action_space.shape == (12,)
    assert make_dso_1flex_env(split="test").action_space.shape == (2,)
    assert sum(map(len, DSO_FEEDER_BUS_MAP.values())) == 32


@pytest.mark.full
def test_rules_do_what_is_written_of_them():
    env = make_dso_env("test", episode_start=0)
    idle, peak, droop = (
        f(env) for f in (dso_no_control_rollout, dso_tou_heuristic_rollout, dso_droop_heuristic_rollout)
    )
    assert len(idle["rewards"]) == 48 and not any(idle["curtailed"] + idle["shifted"] + idle["shift_in"])
    acting = np.flatnonzero(peak["curtailed"])
    np.testing.assert_array_equal(acting, np.arange(32, 42))  # 16:00 to 21:00 in half hours
    # all caps sum to 0.65 MW, and no bus sheds more than its load
    caps = sum(row["curtail_cap_mw"] for row in DSO_FLEXLOAD_CONFIG.values())
    assert caps == pytest.approx(0.65) and 0 < max(peak["curtailed"]) <= 0.8 * caps
    assert sum(peak["shift_in"]) == pytest.approx(sum(peak["shifted"]))
    assert sum(droop["voltage_violations"]) < sum(idle["voltage_violations"])
    better = compute_dso_metrics(droop, baseline=idle)
    assert better["network_loss_reduction_pct"] > 0 and better["peak_shaving_pct"] > 0


def test_figures_of_two_steps_by_hand():
    run = {
        "rewards": [-1.0, -2.0],
        "losses": [0.1, 0.3],
        "violations": [1.0, 0.0],
        "voltage_violations": [0.02, 0.0],
        "thermal_violations": [0.0, 0.0],
        "curtailed": [0.2, 0.0],
        "shifted": [0.4, 0.0],
        "shift_in": [0.0, 0.1],
        "imports": [3.0, 4.0],
    }
    found = compute_dso_metrics(run, baseline=run | {"losses": [0.2, 0.6], "imports": [5.0, 2.0]})
    assert found == pytest.approx(
        {
            "total_reward": -3.0,
            "total_loss_mwh": 0.2,
            "mean_loss_mw": 0.2,
            "total_voltage_violations": 0.02,
            "total_voltage_violations_count": 1.0,
            "total_thermal_overloads": 0.0,
            "total_curtailed_mwh": 0.1,
            "total_shifted_mwh": 0.2,
            "total_shift_in_mwh": 0.05,
            "served_flex_ratio": 0.25,
            "network_loss_reduction_pct": 50.0,
            "peak_shaving_pct": 20.0,
        }
    )
