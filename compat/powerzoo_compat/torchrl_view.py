"""TorchRL: multi-agent tasks as its environments, by its own PettingZoo wrapper; agents are grouped by kind.

Example:
    from torchrl.envs.utils import check_env_specs
    from powerzoo_compat.torchrl_view import make_torchrl_env
    env = make_torchrl_env("marl_der_arbitrage")
    check_env_specs(env)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from powerzoo_compat import pettingzoo_view
from powerzoo_compat.pettingzoo_view import BaseParallelWrapper
from powerzoo_jax.base.errors import missing_extra

TOLD = ("is_safe", "cost", "cost_sum", "constraint_costs")


class NumericInfos(BaseParallelWrapper):
    """Numeric part of the agents' infos: the keys TOLD, as float32, the same at reset and at every step.

    TorchRL makes tensors of all infos, and refuses words, dates and keys that come and go.
    """

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode: (observations, infos)."""
        obs, infos = self.env.reset(seed=seed, options=options)
        return obs, _numbers(infos)

    def step(self, actions: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:  # type: ignore[override]
        """Advance one step."""
        *told, infos = self.env.step(actions)  # type: ignore[arg-type]
        return *told, _numbers(infos)


def _numbers(infos: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, np.ndarray]]:
    return {agent: {key: np.array(info[key], np.float32) for key in TOLD} for agent, info in infos.items()}


def parallel_env(task: str, **kwargs: Any) -> NumericInfos:
    """A multi-agent task as a ParallelEnv that TorchRL can wrap; see `pettingzoo_view.parallel_env`."""
    return NumericInfos(pettingzoo_view.parallel_env(task, **kwargs))


def make_torchrl_env(task: str, **kwargs: Any) -> Any:
    """A multi-agent task as TorchRL's `PettingZooWrapper`; see `pettingzoo_view.parallel_env` for the keywords.

    Raises ImportError without TorchRL.
    """
    try:
        from torchrl.envs.libs.pettingzoo import PettingZooWrapper
    except ImportError as err:
        raise ImportError(missing_extra("The view for TorchRL", "torchrl", "torchrl")) from err
    return PettingZooWrapper(parallel_env(task, **kwargs), use_mask=True)
