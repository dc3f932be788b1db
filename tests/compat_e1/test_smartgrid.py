"""Our SmartGrid beside the class it stands for, and one agent's side of a task before Stable-Baselines3's checker."""

from __future__ import annotations

import warnings

from powerzoo_compat import heron_view
from powerzoo_compat import smartgrid_view as sg
from smartgrid.environment import SmartGrid
from stable_baselines3.common.env_checker import check_env


def test_every_public_name_of_the_class_is_here():
    env = sg.parallel_env("marl_der_arbitrage", split="test")
    names = [name for name in dir(SmartGrid) if not name.startswith("_")]
    names += ["max_step", "world", "observation_manager", "reward_calculator"]  # set on its instances
    assert all(hasattr(env, name) and hasattr(sg.MinRewardAggregator(env), name) for name in names)


def test_one_agents_side_passes_the_checker_of_stable_baselines3():
    env = heron_view.SingleAgentWrapper(heron_view.parallel_env("marl_der_arbitrage", split="test"), "bat_0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="We recommend you to use a symmetric and normalized Box")
        check_env(env)
