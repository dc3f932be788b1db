"""PettingZoo's utility wrappers for parallel environments: upstream has them for AEC environments only.

Trajectories and texts are those of `aec_to_parallel(Wrapper(raw_env(...)))`, without the detour.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Box
from pettingzoo import ParallelEnv
from pettingzoo.utils.capture_stdout import capture_stdout
from pettingzoo.utils.env_logger import EnvLogger
from pettingzoo.utils.wrappers import BaseParallelWrapper

from powerzoo_compat._replay import Restorable

MASK = "action_mask"


class ParallelAssertOutOfBounds(BaseParallelWrapper[str, Any, Any]):
    """Assertion that every action lies in its agent's space."""

    def step(self, actions: Mapping[str, Any]) -> Any:
        """Advance one step; AssertionError for an action outside its space."""
        for agent, action in actions.items():
            assert self.action_space(agent).contains(action), "action is not in action space"
        return self.env.step(dict(actions))


class ParallelClipOutOfBounds(BaseParallelWrapper[str, Any, Any]):
    """Clipping of actions into their boxes, with a warning."""

    def __init__(self, env: ParallelEnv[str, Any, Any]) -> None:
        super().__init__(env)
        boxes = all(isinstance(env.action_space(agent), Box) for agent in env.possible_agents)
        assert boxes, "should only use ClipOutOfBoundsWrapper for Box spaces"

    def step(self, actions: Mapping[str, Any]) -> Any:
        """Advance one step; AssertionError for a NaN or a wrong shape."""
        return self.env.step({agent: self._inside(agent, action) for agent, action in actions.items()})

    def _inside(self, agent: str, action: Any) -> Any:
        space = self.action_space(agent)
        assert isinstance(space, Box)
        if space.contains(action):
            return action
        if np.isnan(action).any():
            EnvLogger.error_nan_action()
        assert space.shape == action.shape, f"action should have shape {space.shape}, has shape {action.shape}"
        EnvLogger.warn_action_out_of_bound(action=action, action_space=space, backup_policy="clipping to space")
        return np.clip(action, space.low, space.high)


class ParallelOrderEnforcing(BaseParallelWrapper[str, Any, Any]):
    """Check of the order of calls: an error for calls before the first reset, a warning for steps without agents."""

    def __init__(self, env: ParallelEnv[str, Any, Any]) -> None:
        self._has_reset = False
        super().__init__(env)

    def __getattr__(self, name: str) -> Any:
        if name in ("agents", "num_agents") and not self._has_reset:
            raise AttributeError(f"{name} cannot be accessed before reset")
        return super().__getattr__(name)

    @property
    def num_agents(self) -> int:
        """Agents that still act."""
        return len(self.agents)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begin an episode."""
        self._has_reset = True
        return self.env.reset(seed=seed, options=options)

    def step(self, actions: Mapping[str, Any]) -> Any:
        """Advance one step."""
        if not self._has_reset:
            EnvLogger.error_step_before_reset()
        if not self.env.agents:
            EnvLogger.warn_step_after_terminated_truncated()
            return {}, {}, {}, {}, {}
        return self.env.step(dict(actions))

    def render(self) -> Any:
        """See the wrapped environment."""
        if not self._has_reset:
            EnvLogger.error_render_before_reset()
        return self.env.render()

    def state(self) -> np.ndarray:
        """Joint observation of all agents."""
        if not self._has_reset:
            EnvLogger.error_state_before_reset()
        return self.env.state()


class ParallelTerminateIllegal(Restorable, BaseParallelWrapper[str, Any, Any]):
    """Episodes that end for everyone when an agent does what its `action_mask` forbids.

    illegal_reward:  what the first offender gets; the others get 0
    """

    _runs_on = "env"
    _moving: ClassVar[tuple[str, ...]] = ("_over", "_seen")

    def __init__(self, env: ParallelEnv[str, Any, Any], illegal_reward: float) -> None:
        super().__init__(env)
        self._illegal_reward = float(illegal_reward)
        self._over = False
        self._seen: tuple[dict[str, Any], dict[str, Any]] = {}, {}

    @property
    def agents(self) -> list[str]:  # type: ignore[override]
        """Agents that still act: none after an illegal action."""
        return [] if self._over else self.env.agents

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begin an episode."""
        self._over = False
        self._seen = self.env.reset(seed=seed, options=options)
        return self._seen

    def step(self, actions: Mapping[str, Any]) -> Any:
        """Advance one step, unless an action is illegal: that ends the episode before it."""
        if self._over:
            return {}, {}, {}, {}, {}
        offender = next((agent for agent in self.agents if self._forbidden(agent, actions)), None)
        if offender is None:
            out = self.env.step(dict(actions))
            self._seen = out[0], out[4]
            return out
        EnvLogger.warn_on_illegal_move()
        everyone = list(self.agents)
        self._over = True
        rewards = dict.fromkeys(everyone, 0.0) | {offender: self._illegal_reward}
        obs, infos = ({agent: each[agent] for agent in everyone} for each in self._seen)
        return obs, rewards, dict.fromkeys(everyone, True), dict.fromkeys(everyone, True), infos

    def _forbidden(self, agent: str, actions: Mapping[str, Any]) -> bool:
        obs, info = (each[agent] for each in self._seen)
        source = obs if isinstance(obs, dict) else info
        assert MASK in source, f"`{MASK}` not found in the observation or the info of {agent}."
        return agent in actions and not source[MASK][actions[agent]]


class ParallelCaptureStdout(BaseParallelWrapper[str, Any, Any]):
    """Rendering as text: the lines that a "human" environment prints."""

    def __init__(self, env: ParallelEnv[str, Any, Any]) -> None:
        mode = getattr(env, "render_mode", None)
        assert mode == "human", f"CaptureStdoutWrapper works only with human rendering mode, but found {mode} instead."
        super().__init__(env)
        self.render_mode = "ansi"

    def render(self) -> str:
        """Text that the environment prints."""
        with capture_stdout() as stdout:
            self.env.render()
            return stdout.getvalue()
