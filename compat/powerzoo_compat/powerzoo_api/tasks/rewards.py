"""Reward functions of an observation and an info, by name; tasks are scored by their own rewards all the same."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from powerzoo_jax.base.errors import unknown

RewardFn = Callable[[Any, Mapping[str, Any]], float]
MINUTES_PER_HOUR = 60
PERCENT = 100.0


class RewardFunction:
    """Base of reward functions r(observation, info); `category` is neutral, safety, economic, market or network."""

    category = "neutral"

    def __call__(self, obs: Any, info: Mapping[str, Any]) -> float:
        raise NotImplementedError


class ZeroReward(RewardFunction):
    """Zero reward, for learners that bring a reward of their own."""

    def __call__(self, obs: Any, info: Mapping[str, Any]) -> float:
        return 0.0


class SafetyOnlyReward(RewardFunction):
    """Priced constraint costs alone: r = -penalty sum_k c_k over all channels."""

    category = "safety"

    def __init__(self, penalty: float = 10.0) -> None:
        self.penalty = penalty

    def __call__(self, obs: Any, info: Mapping[str, Any]) -> float:
        return -self.penalty * info["cost_sum"]


class EconomicDispatchReward(RewardFunction):
    """Money of the step, weighted: r = cost_weight x reward_usd, which is negative where the step costs money."""

    category = "economic"

    def __init__(self, cost_weight: float = 0.01) -> None:
        self.cost_weight = cost_weight

    def __call__(self, obs: Any, info: Mapping[str, Any]) -> float:
        return self.cost_weight * info["reward_usd"]


class UnitCommitmentReward(EconomicDispatchReward):
    """Money of the step, with the default weight of unit commitment."""

    def __init__(self, cost_weight: float = 0.001) -> None:
        super().__init__(cost_weight)


class NetworkLossReward(RewardFunction):
    """Network losses: r = -loss_weight x energy lost [MWh]. KeyError where the task reports no losses."""

    category = "network"

    def __init__(self, loss_weight: float = 0.1) -> None:
        self.loss_weight = loss_weight

    def __call__(self, obs: Any, info: Mapping[str, Any]) -> float:
        return -self.loss_weight * info["p_loss_MW"] * info["delta_t_minutes"] / MINUTES_PER_HOUR


class BatteryArbitrageReward(RewardFunction):
    """Energy sales less a price on the state of charge: r = a price x MWh - b |soc - target|."""

    category = "market"

    def __init__(self, arbitrage_weight: float = 1.0, soc_weight: float = 0.1, target_soc: float = 0.5) -> None:
        self.arbitrage_weight, self.soc_weight, self.target_soc = arbitrage_weight, soc_weight, target_soc

    def __call__(self, obs: Any, info: Mapping[str, Any]) -> float:
        return arbitrage(info, "power", "price", self.arbitrage_weight, self.soc_weight, self.target_soc)


class BatteryLMPArbitrageReward(RewardFunction):
    """Energy sales at the price of the battery's bus: r = a lmp x MWh - b |soc - target|."""

    category = "market"

    def __init__(self, profit_weight: float = 0.01, soc_weight: float = 0.1, target_soc: float = 0.5) -> None:
        self.profit_weight, self.soc_weight, self.target_soc = profit_weight, soc_weight, target_soc

    def __call__(self, obs: Any, info: Mapping[str, Any]) -> float:
        return arbitrage(info, "realized_p_mw", "lmp_bus", self.profit_weight, self.soc_weight, self.target_soc)


def arbitrage(
    info: Mapping[str, Any], power: str, price: str, weight: float, soc_weight: float, target_soc: float
) -> float:
    """Energy sales less a price on the state of charge, from the info's keys of power [MW] and price [$/MWh]."""
    energy = info[power] * info["delta_t_minutes"] / MINUTES_PER_HOUR
    return weight * info[price] * energy - soc_weight * abs(info["soc"] - target_soc)


class OwnReward(RewardFunction):
    """Reward of the task itself, r = reward_scale x reward_usd."""

    category = "market"

    def __call__(self, obs: Any, info: Mapping[str, Any]) -> float:
        return info["reward_scale"] * info["reward_usd"]


class EVArbitrageReward(OwnReward):
    """The reward of the vehicle tasks."""


class DataCenterSchedulingReward(OwnReward):
    """The reward of the data centre tasks."""

    category = "economic"


class RenewablePenetrationReward(RewardFunction):
    """Renewable share [%] of the power fed into the network, weighted. KeyError for a task without plants."""

    category = "network"

    def __init__(self, weight: float = 1.0) -> None:
        self.weight = weight

    def __call__(self, obs: Any, info: Mapping[str, Any]) -> float:
        fed = max(info["p_slack_MW"], 0.0) + float(np.maximum(info["power"], 0.0).sum())
        return self.weight * PERCENT * info["renewable_mw"] / fed if fed > 0 else 0.0


REWARD_FUNCTIONS: dict[str, type[RewardFunction]] = {
    "battery_arbitrage": BatteryArbitrageReward,
    "battery_lmp_arbitrage": BatteryLMPArbitrageReward,
    "dc_scheduling": DataCenterSchedulingReward,
    "economic_dispatch": EconomicDispatchReward,
    "ev_arbitrage": EVArbitrageReward,
    "network_loss": NetworkLossReward,
    "renewable_penetration": RenewablePenetrationReward,
    "safety_only": SafetyOnlyReward,
    "unit_commitment": UnitCommitmentReward,
    "zero": ZeroReward,
}
REWARD_CATEGORIES = ("neutral", "safety", "economic", "market", "network")


def list_reward_types(category: str | None = None) -> list[str]:
    """Names of the rewards, all or those of a category. Raises ValueError for an unknown category."""
    if category is not None and category not in REWARD_CATEGORIES:
        raise ValueError(unknown("reward category", category, REWARD_CATEGORIES))
    return [name for name, cls in REWARD_FUNCTIONS.items() if category in (None, cls.category)]


def get_reward_function(given: Mapping[str, Any] | RewardFn) -> RewardFn:
    """A reward out of {"type": name, **parameters}, or the function itself.

    Raises ValueError for an unknown type or parameter, TypeError for neither.
    """
    if callable(given):
        return given
    if not isinstance(given, Mapping):
        raise TypeError(f"reward must be a dict with 'type', or a function of (obs, info); got {type(given).__name__}.")
    parameters = dict(given)
    kind = parameters.pop("type", None)
    if kind not in REWARD_FUNCTIONS:
        raise ValueError(unknown("reward type", str(kind), REWARD_FUNCTIONS))
    cls = REWARD_FUNCTIONS[kind]
    valid = [name for name in inspect.signature(cls).parameters]
    for name in parameters:
        if name not in valid:
            raise ValueError(unknown(f"parameter of reward {kind!r}", name, valid))
    return cls(**parameters)
