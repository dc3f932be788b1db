"""RLlib's new API stack: multi-agent tasks as its `MultiAgentEnv`.

Example:
    from powerzoo_compat import rllib_view
    from ray.rllib.algorithms.ppo import PPOConfig
    rllib_view.register_all()
    config = PPOConfig().environment("powerzoo/marl_der_arbitrage", env_config={"split": "train"})
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

try:
    from ray.rllib.env.multi_agent_env import MultiAgentEnv
    from ray.tune.registry import register_env
except ImportError as err:
    raise ImportError(
        "RLlib is not installed. Run `pip install 'powerzoo-jax[rllib]'`, or use framework='auto'."
    ) from err

from powerzoo_compat._agents import task_agents
from powerzoo_compat.powerzoo_api.tasks.factory import list_tasks
from powerzoo_compat.powerzoo_api.tasks.multi_agent import Dicts, MultiAgentTaskEnv
from powerzoo_jax.envs.core import Sim

PREFIX = "powerzoo/"
TASK = "task"


class RLlibTaskEnv(MultiAgentTaskEnv, MultiAgentEnv):  # type: ignore[misc]
    """A multi-agent task as RLlib's MultiAgentEnv: as `MultiAgentTaskEnv`, and `agents` stays full to the end.

    sim:     the task, from `powerzoo_jax.make`
    kwargs:  those of `MultiAgentTaskEnv`
    """

    def __init__(self, sim: Sim, **kwargs: Any) -> None:
        MultiAgentEnv.__init__(self)
        MultiAgentTaskEnv.__init__(self, sim, **kwargs)
        self.agents = list(self.possible_agents)
        self._agent_ids = set(self.possible_agents)  # RLlib's own check looks for it
        # Gymnasium's Dict sorts unit_10 before unit_2; RLlib is given one order everywhere
        self.observation_spaces, self.action_spaces = (  # type: ignore[assignment]
            {agent: spaces[agent] for agent in self.possible_agents}
            for spaces in (self.observation_space, self.action_space)
        )

    def step(self, actions: Mapping[str, Any]) -> Dicts:
        """Advance one step; see `MultiAgentTaskEnv.step`."""
        told = MultiAgentTaskEnv.step(self, actions)
        self.agents = list(self.possible_agents)  # RLlib reads from it who acted in the last step
        return told

    def get_observation_space(self, agent_id: str) -> Any:
        """Observation space of an agent."""
        return self.observation_spaces[agent_id]

    def get_action_space(self, agent_id: str) -> Any:
        """Action space of an agent."""
        return self.action_spaces[agent_id]


def parallel_env(task: str, *, split: str | None = None, **kwargs: Any) -> RLlibTaskEnv:
    """A multi-agent task as RLlib's MultiAgentEnv.

    split:   None takes the task's default
    kwargs:  task keywords, and `render_mode`
    Raises ValueError for a task with one agent, else as `powerzoo.make_task_env`.
    """
    return task_agents(task, split, framework="rllib", **kwargs)  # type: ignore[return-value]


def env_creator(config: Mapping[str, Any]) -> RLlibTaskEnv:
    """Build the environment that an `env_config` describes: {"task": ..., "split": ..., task keywords}.

    Raises KeyError without a task, else as `parallel_env`.
    """
    given = dict(config)
    if TASK not in given:
        raise KeyError(f"env_config names no {TASK!r}. Give one of {', '.join(list_tasks(agent_mode='multi'))}.")
    return parallel_env(given.pop(TASK), **given)


def _task_creator(config: Mapping[str, Any], *, task: str) -> RLlibTaskEnv:
    return env_creator({**config, TASK: task})


def register_all() -> tuple[str, ...]:
    """Register every multi-agent task as "powerzoo/<task>" with RLlib, and return the names."""
    names = []
    for task in list_tasks(agent_mode="multi"):
        register_env(PREFIX + task, functools.partial(_task_creator, task=task))
        names.append(PREFIX + task)
    return tuple(names)
