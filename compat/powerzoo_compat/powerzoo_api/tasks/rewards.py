"""Rewards by name, as functions of an observation and an info; the core's own rewards stay what tasks are scored by."""

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
    """A reward of (observation, info); `category` is neutral, safety, economic, market or network."""

    category = "neutral"

    def __call__(self, obs: Any, info: Mapping[str, Any]) -> float:
        raise NotImplementedError


class ZeroReward(RewardFunction):
    """0."""

    def __call__(self, obs: Any, info: Mapping[str, Any]) -> float:
        return 0.0


class SafetyOnlyReward(RewardFunction):
    """Minus the priced sum of all cost channels."""

    category = "safety"

    def __init__(self, penalty: float = 10.0) -> None:
        self.penalty = penalty

    def __call__(self, obs: Any, info: Mapping[str, Any]) -> float:
        return -self.penalty * info["cost_sum"]


class EconomicDispatchReward(RewardFunction):
    """Minus the weighted money of the step."""

    category = "economic"

    def __init__(self, cost_weight: float = 0.01) -> None:
        self.cost_weight = cost_weight

    def __call__(self, obs: Any, info: Mapping[str, Any]) -> float:
        return self.cost_weight * info["reward_usd"]


class UnitCommitmentReward(EconomicDispatchReward):
    """The same, with another default weight."""

    def __init__(self, cost_weight: float = 0.001) -> None:
        super().__init__(cost_weight)


class NetworkLossReward(RewardFunction):
    """Minus the weighted energy lost in the network [MWh]; KeyError where the task reports no losses."""

    category = "network"

    def __init__(self, loss_weight: float = 0.1) -> None:
        self.loss_weight = loss_weight

    def __call__(self, obs: Any, info: Mapping[str, Any]) -> float:
        return -self.loss_weight * info["p_loss_MW"] * info["delta_t_minutes"] / MINUTES_PER_HOUR


class BatteryArbitrageReward(RewardFunction):
    """Sales of the energy delivered, less a price on distance from a state of charge."""

    category = "market"

    def __init__(self, arbitrage_weight: float = 1.0, soc_weight: float = 0.1, target_soc: float = 0.5) -> None:
        self.arbitrage_weight, self.soc_weight, self.target_soc = arbitrage_weight, soc_weight, target_soc

    def __call__(self, obs: Any, info: Mapping[str, Any]) -> float:
        energy = info["power"] * info["delta_t_minutes"] / MINUTES_PER_HOUR
        return self.arbitrage_weight * info["price"] * energy - self.soc_weight * abs(info["soc"] - self.target_soc)


class BatteryLMPArbitrageReward(RewardFunction):
    """Sales at the price of the battery's bus, less a price on distance from a state of charge."""

    category = "market"

    def __init__(self, profit_weight: float = 0.01, soc_weight: float = 0.1, target_soc: float = 0.5) -> None:
        self.profit_weight, self.soc_weight, self.target_soc = profit_weight, soc_weight, target_soc

    def __call__(self, obs: Any, info: Mapping[str, Any]) -> float:
        energy = info["realized_p_mw"] * info["delta_t_minutes"] / MINUTES_PER_HOUR
        return self.profit_weight * info["lmp_bus"] * energy - self.soc_weight * abs(info["soc"] - self.target_soc)


class OwnReward(RewardFunction):
    """The reward of the task itself."""

    category = "market"

    def __call__(self, obs: Any, info: Mapping[str, Any]) -> float:
        return info["reward_scale"] * info["reward_usd"]


class EVArbitrageReward(OwnReward):
    """The reward of the vehicle tasks."""


class DataCenterSchedulingReward(OwnReward):
    """The reward of the data centre tasks."""

    category = "economic"


class RenewablePenetrationReward(RewardFunction):
    """Weighted share [%] of plants in what feeds the network; KeyError where there is none."""

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
