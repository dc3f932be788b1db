"""Every name that the contract asks for is where it says; optional modules of old internals are left out."""

from __future__ import annotations

import importlib

import powerzoo
import pytest
from powerzoo.tasks.observation import (
    make_observation_config,
    normalize_agents_observation_configs,
    normalize_observation_config,
)

GRIDS = "GridEnv TransGridEnv DistGridEnv DistGrid3PhaseEnv ACConfig"
DEVICES = (
    "ResourceEnv BatteryEnv VehicleEnv CommuteTrip RenewableEnv SolarEnv WindEnv FlexLoad DataCenterEnv DieselResource"
)
PICTURES = "plot_episode plot_dispatch plot_eval_comparison"
ADAPTERS = "create_task_env create_multi_agent_env TaskOPFMultiAgentEnv TaskResourceMultiAgentEnv"
NAMES = {
    "powerzoo": "__version__ __license__ TransGridEnv DistGridEnv BatteryEnv SolarEnv WindEnv VehicleEnv load_case "
    "GymnasiumWrapper NormalizationWrapper MARLWrapper TaskPettingZooWrapper RandomPolicy RuleBasedPolicy OraclePolicy "
    "evaluate make_task_env make_task list_tasks list_public_tasks make_env RLConfig RewardWrapper info describe "
    "Trainer normalized_score CostBasedMarketEnv BidBasedMarketEnv " + PICTURES,
    "powerzoo.tasks": "Task ConstraintSpec SingleAgentTask MultiAgentTask ConfigTask ConfigMultiAgentTask "
    "make_task_env make_task list_tasks register_task get_task_class get_task_info audit_env audit_task_env "
    "audit_task_collection audit_public_tasks PUBLIC_TASKS list_public_tasks get_public_task_info "
    "get_public_task_catalog OBSERVATION_MODES make_observation_config " + ADAPTERS,
    "powerzoo.tasks.adapters": "TaskUCMultiAgentEnv TaskEVMultiAgentEnv " + ADAPTERS,
    "powerzoo.tasks.interfaces": "TaskPettingZooWrapper",
    "powerzoo.tasks.interfaces.pettingzoo": "TaskPettingZooWrapper",
    "powerzoo.tasks.observation": "OBSERVATION_MODES ObservationConfig make_observation_config "
    "normalize_observation_config normalize_agents_observation_configs",
    "powerzoo.tasks.public": "PUBLIC_TASKS list_public_tasks get_public_task_info get_public_task_catalog",
    "powerzoo.tasks.registry": "make_task_env make_task list_tasks register_task get_task_class get_task_info",
    "powerzoo.tasks.rewards": "RewardFunction REWARD_FUNCTIONS REWARD_CATEGORIES get_reward_function list_reward_types",
    "powerzoo.envs": f"BaseEnv PowerEnv {GRIDS} {DEVICES} MarketEnv DCMicrogridEnv",
    "powerzoo.envs.base": "BaseEnv",
    "powerzoo.envs.power_env": "PowerEnv",
    "powerzoo.envs.grid": GRIDS,
    "powerzoo.envs.resource": DEVICES,
    "powerzoo.envs.market": "MarketEnv CostBasedMarketEnv BidBasedMarketEnv GenCosMARLEnv make_gencos_env",
    "powerzoo.envs.microgrid": "DCMicrogridEnv",
    "powerzoo.wrappers": "GymnasiumWrapper NormalizationWrapper MARLWrapper TaskPettingZooWrapper FlattenObservation "
    "FlattenAction FlattenWrapper TaskCMDPWrapper CMDPWrapper SafeRLWrapper GymnasiumSafeWrapper ForecastWrapper",
    "powerzoo.rl": "RLConfig make_env RewardWrapper MDPFallbackRewardWrapper info describe Trainer",
    "powerzoo.benchmarks": "evaluate evaluate_task normalized_score get_baseline register_baseline list_baselines "
    "BasePolicy RandomPolicy RuleBasedPolicy OraclePolicy DatasetGenerator DatasetLoader " + PICTURES,
    "powerzoo.benchmarks.compute": "main",
    "powerzoo.case": "load_case list_cases CaseMeta Case5 Case14 Case29GB Case33bw Case118 Case118zh Case123 Case141 "
    "Case300 Case533mt_hi Case533mt_lo Case1354pegase Case2224GB Case2383wp",
    "powerzoo.data": "DataLoader signals DatasetRegistry DatasetManifest TimeAligner",
}
REWARDS = (
    *("zero", "safety_only", "economic_dispatch", "unit_commitment", "network_loss", "renewable_penetration"),
    *("battery_arbitrage", "battery_lmp_arbitrage", "ev_arbitrage", "dc_scheduling"),
)


@pytest.mark.parametrize("module", NAMES)
def test_a_module_offers_the_names_of_the_contract(module):
    found = importlib.import_module(module)
    assert [name for name in NAMES[module].split() if not hasattr(found, name)] == []


def test_rewards_by_name_are_those_of_the_contract_without_its_legacy():
    from powerzoo.tasks.rewards import REWARD_CATEGORIES, get_reward_function, list_reward_types

    assert set(list_reward_types()) == set(REWARDS)
    assert sorted(name for kind in REWARD_CATEGORIES for name in list_reward_types(kind)) == sorted(REWARDS)
    info = {"p_slack_MW": 3.0, "power": 1.0, "renewable_mw": 1.0, "reward_usd": -50.0, "reward_scale": 0.1}
    info |= {"lmp_bus": 40.0, "realized_p_mw": -2.0, "delta_t_minutes": 30, "soc": 0.7}
    by_hand = {"renewable_penetration": 25.0, "battery_lmp_arbitrage": -0.42, "ev_arbitrage": -5.0}
    for name, value in by_hand.items():
        assert get_reward_function({"type": name})(None, info) == pytest.approx(value)


def test_an_observation_config_is_checked_and_made_of_what_is_given():
    config = make_observation_config("local_plus_forecast", forecast_horizon_steps=3)
    assert config.task_keywords == {"obs_mode": "local_plus_forecast", "forecast_horizon_steps": 3}
    assert normalize_observation_config(config) is config and normalize_observation_config(None).mode == "local"
    assert normalize_observation_config({"mode": "global"}) == normalize_observation_config("global")
    each = normalize_agents_observation_configs({"bat_0": "global"}, ["bat_0", "bat_1"])
    assert (each["bat_0"].mode, each["bat_1"].mode) == ("global", "local")
    for given, error, words in (
        ("globel", ValueError, "global"),
        ({"modes": "global"}, ValueError, "mode"),
        ({"mode": "global", "supported": ("local",)}, ValueError, "local"),
        (3, TypeError, "dict"),
    ):
        with pytest.raises(error, match=words):
            normalize_observation_config(given)


def test_a_task_object_makes_the_environment_that_its_name_makes():
    from powerzoo.tasks import create_multi_agent_env, create_task_env

    task = powerzoo.make_task("marl_opf")
    assert create_multi_agent_env(task).possible_agents == create_task_env("marl_opf").possible_agents
    with pytest.raises(ValueError, match="one agent"):
        create_multi_agent_env("battery_arbitrage")
    with pytest.raises(TypeError, match="make_task"):
        create_task_env(task, max_steps=3)


def test_the_command_that_computes_references_prints_the_record(monkeypatch, capsys):
    from powerzoo.benchmarks import compute

    monkeypatch.setattr("powerzoo_compat.powerzoo_api.benchmarks.compute.reference", lambda task, split: {task: split})
    assert compute.main(["tso", "--split", "val"]) == 0
    assert capsys.readouterr().out.split() == ["{", '"comparison_tso_centralized":', '"val"', "}"]
    with pytest.raises(ValueError, match="battery_arbitrage"):
        compute.main(["battery"])
