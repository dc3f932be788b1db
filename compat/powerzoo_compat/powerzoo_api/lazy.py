"""Lazy import of names whose modules are heavy or need an optional package."""

from __future__ import annotations

API = "powerzoo_compat.powerzoo_api."
WRAPPER = {
    "TaskPettingZooWrapper": API + "envs.parallel",
    "MARLWrapper": API + "grids.marl",
    "FlattenWrapper": API + "grids.power",
}
CONFIGURED = dict.fromkeys(("ConfigTask", "ConfigMultiAgentTask"), API + "tasks.config")
TRAINER = {"Trainer": API + "rl.trainer"}
PICTURES = dict.fromkeys(("plot_episode", "plot_dispatch", "plot_eval_comparison"), API + "benchmarks.viz")
TOP_LEVEL = {
    **WRAPPER,
    **TRAINER,
    **PICTURES,
    **dict.fromkeys(("RandomPolicy", "RuleBasedPolicy", "OraclePolicy"), API + "benchmarks.policies"),
    **dict.fromkeys(("GymnasiumWrapper", "NormalizationWrapper", "RewardWrapper"), API + "wrappers.flatten"),
    **dict.fromkeys(("DistGridEnv", "TransGridEnv"), API + "grids.envs"),
    **dict.fromkeys(("BatteryEnv", "SolarEnv", "VehicleEnv", "WindEnv"), API + "envs.resources"),
    **dict.fromkeys(("BidBasedMarketEnv", "CostBasedMarketEnv"), API + "grids.markets"),
    **dict.fromkeys(("info", "describe"), API + "rl.describe"),
    "evaluate": API + "benchmarks.evaluation",
    "load_case": API + "grids.cases",
    "make_env": API + "rl.front",
    "normalized_score": API + "benchmarks.scores",
    "RLConfig": API + "rl.config",
}
