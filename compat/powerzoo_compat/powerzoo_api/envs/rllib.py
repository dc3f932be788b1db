"""Multi-agent tasks as RLlib's `MultiAgentEnv`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from powerzoo_jax.base.errors import missing_extra

try:
    from ray.rllib.env.multi_agent_env import MultiAgentEnv
except ImportError as err:
    told = missing_extra("framework='rllib'", "ray", "rllib")
    raise ImportError(f"{told} framework='auto' needs nothing more.") from err

from powerzoo_compat.powerzoo_api.envs.multi_agent import Dicts, MultiAgentTaskEnv
from powerzoo_jax.envs.core import Sim


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
