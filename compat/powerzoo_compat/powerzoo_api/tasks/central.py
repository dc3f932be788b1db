"""Centralised control of a multi-agent task, as a Gymnasium environment of the joint observation and action."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from powerzoo_compat._apart import make
from powerzoo_compat._host import checked_values
from powerzoo_compat._replay import ShowsEpisode
from powerzoo_compat.powerzoo_api.envs.base import BaseEnv
from powerzoo_compat.powerzoo_api.envs.multi_agent import ALL, MultiAgentTaskEnv
from powerzoo_compat.powerzoo_api.envs.render import RENDER_MODES
from powerzoo_compat.powerzoo_api.envs.vector import MEAN, POOLING, SUM, TaskVectorEnv, joined_spaces, make_vec_env
from powerzoo_compat.powerzoo_api.tasks.catalog import DROP_IN
from powerzoo_compat.powerzoo_api.tasks.registration import with_id
from powerzoo_jax.base.errors import unknown

COMPETITIVE = ("gencos_bidding",)


class CentralisedEnv(ShowsEpisode, BaseEnv):
    """All agents of a task as one: observations and actions joined in agent order.

    env:      the task
    pooling:  "mean" or "sum" of the agents' rewards

    info is the first agent's, whose system values are everyone's; "agents" holds the infos of all.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": list(RENDER_MODES), "render_fps": 2}  # type: ignore[misc]
    _runs_on = "agents_env"

    def __init__(self, env: MultiAgentTaskEnv, pooling: str = MEAN) -> None:
        if pooling not in POOLING:
            raise ValueError(unknown("pooling", pooling, POOLING))
        super().__init__(env.delta_t_minutes, env.render_mode)
        self.agents_env, self._pool = env, POOLING[pooling]
        self.cost_thresholds, self.cost_threshold = env.cost_thresholds, env.cost_threshold
        self.observation_space, self.action_space = joined_spaces(env._host)
        self._cuts = np.cumsum([box.shape[0] for box in env._host.boxes])[:-1]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode: (observation, info)."""
        super().reset(seed=seed)
        _, infos = self.agents_env.reset(seed=seed, options=options)
        return self.agents_env.state(), self._told(infos)

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Advance one step by the joined action; ValueError for a wrong shape."""
        parts = np.split(checked_values(action, self.action_space), self._cuts)
        given = dict(zip(self.agents_env.possible_agents, parts, strict=True))
        _, rewards, terminations, truncations, infos = self.agents_env.step(given)
        self.time_step = self.agents_env.time_step
        pooled = float(self._pool(list(rewards.values())))
        return self.agents_env.state(), pooled, terminations[ALL], truncations[ALL], self._told(infos)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.agents_env!r})"

    def episode_limit(self) -> int | None:
        """Steps of an episode."""
        return self.agents_env._host.sim.spec.horizon

    def obs(self) -> np.ndarray:
        """Last observation."""
        return self.agents_env.state()

    def render(self) -> Any:
        """See `MultiAgentTaskEnv.render`."""
        return self.agents_env.render()

    def close(self) -> None:
        """Close the multi-agent environment."""
        self.agents_env.close()

    def constraint_names(self) -> tuple[str, ...]:
        """Names of all cost channels."""
        return self.agents_env.constraint_names()

    def selected_constraint_names(self) -> tuple[str, ...]:
        """Names of the channels that have a budget, in the order of `cost_thresholds`."""
        return self.agents_env.selected_constraint_names()

    def get_observation_fields(self) -> tuple[str, ...]:
        """Names of the observation's entries: agent and field."""
        return self.observation_space.names  # type: ignore[no-any-return, attr-defined]

    def _told(self, infos: dict[str, dict[str, Any]]) -> dict[str, Any]:
        return {**infos[self.agents_env.possible_agents[0]], "agents": infos}


def pooling_of(task: str) -> str:
    """Pooling of the rewards of a task's agents: profits of rivals add up; elsewhere all get what the team earns."""
    return SUM if task in COMPETITIVE else MEAN


def make_central_vec_env(name: str, num_envs: int, split: str = "train", **kwargs: Any) -> TaskVectorEnv:
    """Build many lanes of the centralised view of a multi-agent task as a Gymnasium VectorEnv."""
    return make_vec_env(name, num_envs, split=split, unit_actions=False, pooling=pooling_of(name), **kwargs)


def make_central_env(name: str, split: str = "train", render_mode: str | None = None, **kwargs: Any) -> CentralisedEnv:
    """The centralised view of a multi-agent task; keywords and errors as `make_task_env`."""
    agents = MultiAgentTaskEnv(make(name, split=split, **kwargs), render_mode=render_mode)
    env = CentralisedEnv(agents, pooling_of(name))
    return with_id(env, DROP_IN, name, {"split": split, **kwargs})
