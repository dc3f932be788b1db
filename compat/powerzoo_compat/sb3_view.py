"""Stable-Baselines3's VecEnv, natively: its learners on many lanes of one compiled program.

Example:
    from stable_baselines3 import PPO
    from powerzoo_compat.sb3_view import make_sb3_env
    PPO("MlpPolicy", make_sb3_env("battery_arbitrage", num_envs=32), n_steps=48, batch_size=384).learn(1_536)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium.vector import AutoresetMode

from powerzoo_jax.base.errors import missing_extra

try:
    from stable_baselines3.common.vec_env import VecEnv
except ImportError as err:
    raise ImportError(missing_extra("The view for Stable-Baselines3", "stable-baselines3", "sb3")) from err

from powerzoo_compat._replay import ShowsEpisode
from powerzoo_compat._seeds import checked_seed
from powerzoo_compat.vector_view import TaskVectorEnv, make_vec_env


class TaskVecEnv(ShowsEpisode, VecEnv):
    """A batch of a single-agent task as Stable-Baselines3 takes it: actions in [-1, 1], ends followed by a fresh start.

    envs:  lanes that restart in the step of their end (autoreset_mode SAME_STEP)

    infos[i] holds "cost", "costs", "episode_costs" and "constraint_costs"; where an episode ended also
    "terminal_observation" and "TimeLimit.truncated".
    """

    _runs_on = "envs"
    _moving: ClassVar[tuple[str, ...]] = ("_actions", "_next_seed", "_seeds", "_options", "reset_infos")

    def __init__(self, envs: TaskVectorEnv) -> None:
        self.envs = envs
        self.render_mode = None
        super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)
        self._actions: np.ndarray | None = None
        self._next_seed: int | None = None

    def reset(self) -> np.ndarray:
        """Begin an episode in every lane: observations (B, O).

        `set_options` gives the options of the next one, as those of the single environment.
        Raises ValueError where they differ between lanes.
        """
        given = self._options[0]
        if any(options != given for options in self._options):
            raise ValueError(f"lanes start together: give all of them the same options, got {self._options}.")
        obs, _ = self.envs.reset(seed=self._next_seed, options=given)
        self._reset_options()
        self._next_seed = None  # a seed holds for one reset; the streams of the lanes go on after it
        self.reset_infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        return obs

    def step_async(self, actions: np.ndarray) -> None:
        """Keep the actions (B, U) for `step_wait`."""
        self._actions = actions

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Advance every lane: observations (B, O), rewards (B,), ends (B,) and a dict a lane."""
        assert self._actions is not None
        obs, rewards, terminated, truncated, infos = self.envs.step(self._actions)
        last_obs = infos.get("final_obs", obs)
        infos = infos.get("final_info", infos)  # of the executed step, also where the next episode has begun
        costs, totals = (_by_lane(infos[name], self.num_envs) for name in ("costs", "episode_costs"))
        told = [
            {"cost": cost, "costs": costs[lane], "episode_costs": totals[lane], "constraint_costs": row.copy()}
            for lane, (cost, row) in enumerate(zip(infos["cost"].tolist(), infos["constraint_costs"], strict=True))
        ]
        ends = terminated | truncated
        for lane in np.flatnonzero(ends):
            told[lane]["terminal_observation"] = last_obs[lane]
            told[lane]["TimeLimit.truncated"] = bool(truncated[lane] and not terminated[lane])
        return obs, rewards, ends, told

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Fix the next reset; lane i takes seed + i. ValueError for a negative one, TypeError for no integer."""
        self._next_seed = None if seed is None else checked_seed(seed)
        return [None if seed is None else seed + lane for lane in range(self.num_envs)]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.envs!r})"

    def close(self) -> None:
        """Nothing to release."""

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """An attribute of the batch, once a lane."""
        return [getattr(self.envs, attr_name) for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Refused: lanes share one object."""
        raise AttributeError(f"lanes share one environment, {attr_name!r} cannot be set. Build another with keywords.")

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        """Call a method of the batch, once a lane."""
        return [getattr(self.envs, method_name)(*method_args, **method_kwargs) for _ in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """No lane is wrapped."""
        return [False for _ in self._get_indices(indices)]


def _by_lane(costs: dict[str, np.ndarray], lanes: int) -> list[dict[str, float]]:
    """Costs by channel (B,) as one dict a lane."""
    rows = zip(*(values.tolist() for values in costs.values()), strict=True) if costs else [()] * lanes
    return [dict(zip(costs, row, strict=True)) for row in rows]


def make_sb3_env(name: str, num_envs: int, *, split: str | None = None, **kwargs: Any) -> TaskVecEnv:
    """Build the VecEnv of a single-agent task; errors are those of `powerzoo_jax.make`.

    kwargs:  task keywords
    """
    return TaskVecEnv(make_vec_env(name, num_envs, split=split, autoreset_mode=AutoresetMode.SAME_STEP, **kwargs))
