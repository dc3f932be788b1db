"""Native AEC environment, which is its own `unwrapped`: wrappers that write into the environment work on it."""

from __future__ import annotations

from typing import Any, ClassVar

from pettingzoo import AECEnv, ParallelEnv

from powerzoo_compat._replay import ShowsEpisode


class TaskAECEnv(ShowsEpisode, AECEnv[str, Any, Any]):
    """Agent-environment cycle over a ParallelEnv: agents act in its order, the step follows the last live one.

    env:  the task; agents may end before the others
    """

    _runs_on = "_env"
    _moving: ClassVar[tuple[str, ...]] = (
        *("agents", "agent_selection", "_skip_agent_selection", "rewards", "_cumulative_rewards", "infos"),
        *("terminations", "truncations", "_observations", "_actions"),
    )

    def __init__(self, env: ParallelEnv[str, Any, Any]) -> None:
        super().__init__()
        self._env = env
        self.metadata = {**env.metadata, "is_parallelizable": True}
        self.render_mode = getattr(env, "render_mode", None)
        self.possible_agents = list(env.possible_agents)
        if hasattr(env, "state_space"):
            self.state_space = env.state_space
        self.agents: list[str] = []

    @property
    def observation_spaces(self) -> dict[str, Any]:  # type: ignore[override]
        """Observation space of every agent."""
        return {agent: self._env.observation_space(agent) for agent in self.possible_agents}

    @property
    def action_spaces(self) -> dict[str, Any]:  # type: ignore[override]
        """Action space of every agent."""
        return {agent: self._env.action_space(agent) for agent in self.possible_agents}

    def observation_space(self, agent: str) -> Any:
        """The same object at every call."""
        return self._env.observation_space(agent)

    def action_space(self, agent: str) -> Any:
        """The same object at every call."""
        return self._env.action_space(agent)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._env!r})"

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Begin an episode."""
        self._observations, self.infos = self._env.reset(seed=seed, options=options)
        self.agents = list(self._env.agents)
        self.rewards: dict[str, float] = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations, self.truncations = (dict.fromkeys(self.agents, False) for _ in range(2))
        self._actions: dict[str, Any] = {}
        self._skip_agent_selection = None
        self.agent_selection = self.agents[0]

    def step(self, action: Any) -> None:
        """Keep the action of the selected agent; None, and only None, for one that has ended."""
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[agent] = 0.0
        self._actions[agent] = action
        following = self.agents.index(agent) + 1
        if following < len(self.agents):
            self._clear_rewards()
            self.agent_selection = self.agents[following]
            return
        self._observations, self.rewards, self.terminations, self.truncations, self.infos = self._env.step(
            self._actions
        )
        self._actions = {}
        self._accumulate_rewards()
        self.agent_selection = next(iter(self._env.agents), self.agents[0])
        self._deads_step_first()

    def observe(self, agent: str) -> Any:
        """Observation of an agent, as a copy."""
        return self._observations[agent].copy()

    def state(self) -> Any:
        """Joint observation of all agents."""
        return self._env.state()

    def render(self) -> Any:
        """See the ParallelEnv."""
        return self._env.render()

    def close(self) -> None:
        """Close the parallel environment."""
        self._env.close()
