"""A transmission grid whose units are agents, as a PettingZoo ParallelEnv over the grid itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Box

from powerzoo_compat._replay import ShowsEpisode
from powerzoo_compat.powerzoo_api.envs.multi_agent import SpacesByAgent
from powerzoo_compat.powerzoo_api.envs.parallel import CHECKERS_OPTION, ParallelEnv
from powerzoo_compat.powerzoo_api.grids.envs import UNIT_MW, DistGridEnv, GridEnv, TransGridEnv
from powerzoo_jax.base.errors import unknown

GENERATORS, RESOURCES = "generators", "resources"
OWN_FIELDS = ("p", "p_min", "share_of_capacity", "room_up", "room_down", "first_price")
PRICE_USD_PER_MWH = 100.0  # that the observed price is relative to


class MARLWrapper(ShowsEpisode, SpacesByAgent, ParallelEnv[str, np.ndarray, np.ndarray]):
    """A grid whose units ("generators", actions in MW) or devices ("resources", in their own space) are agents.

    Agents see the grid: units see flows, loads, time and six figures of their own. All are paid the grid's reward.
    np_random is the generator of wrappers that draw. Raises TypeError for what is no grid, ValueError for another
    agent_type or a grid without such agents.
    """

    _runs_on = "grid"
    _moving: ClassVar[tuple[str, ...]] = ("agents", "np_random")

    def __init__(self, grid: GridEnv, agent_type: str = GENERATORS) -> None:
        if not isinstance(grid, GridEnv):
            raise TypeError(f"MARLWrapper needs a grid, got {type(grid).__name__}. Tasks: framework='pettingzoo'.")
        if agent_type not in (GENERATORS, RESOURCES):
            raise ValueError(unknown("agent_type", agent_type, (GENERATORS, RESOURCES)))
        self.grid, self.render_mode = grid, grid.render_mode
        self.metadata = {**grid.metadata, "name": grid.grid_type, "is_parallelizable": True}
        self.agents: list[str] = []
        self.np_random = np.random.default_rng()
        box = grid.obs_space
        if agent_type == GENERATORS:
            if not isinstance(grid, TransGridEnv):
                raise ValueError("a feeder has no generators. Choose agent_type='resources'.")
            low, high = (x.astype(np.float32) for x in grid.unit_limits_mw)
            self._limits = (low, high)
            self.possible_agents = [f"unit_{k}" for k in range(len(low))]
            keys = [block.key for block in grid.sim.env.fields.blocks for _ in block.names]
            self._shared = [k for k, key in enumerate(keys) if key != "unit"]
            more = np.full(len(OWN_FIELDS), 5.0, np.float32)
            seen: Any = Box(np.append(box.low[self._shared], -more), np.append(box.high[self._shared], more))
            spaces = [Box(low[k : k + 1], high[k : k + 1]) for k in range(len(low))]
        else:
            if not isinstance(grid, DistGridEnv) or not grid.resources:
                raise ValueError("the grid has no devices. Register some on a DistGridEnv.")
            self.possible_agents = list(grid.resources)
            seen, spaces = box, [Box(slot.low, slot.high) for slot in grid.slots.values()]
        self._type = agent_type
        self.observation_spaces = {agent: Box(seen.low, seen.high) for agent in self.possible_agents}
        self.action_spaces = dict(zip(self.possible_agents, spaces, strict=True))

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        """Begin an episode."""
        known = {key: value for key, value in (options or {}).items() if key != CHECKERS_OPTION}
        state, info = self.grid.reset(seed=seed, options=known)
        if seed is not None:
            self.np_random = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        return self._seen(state), {agent: dict(info) for agent in self.agents}

    def step(self, actions: Mapping[str, Any]) -> tuple[Any, ...]:  # type: ignore[override]
        """Advance one step. Raises KeyError for an unknown agent, else as `GridEnv.step`."""
        for agent in actions:
            if agent not in self.action_spaces:
                raise KeyError(unknown("agent", agent, self.possible_agents))
        acting = list(self.agents)
        state, reward, terminated, truncated, info = self.grid.step(self._joined(actions))
        if terminated or truncated:
            self.agents = []
        flags = (dict.fromkeys(acting, flag) for flag in (terminated, truncated))
        return self._seen(state), dict.fromkeys(acting, reward), *flags, {agent: dict(info) for agent in acting}

    def state(self) -> np.ndarray:
        """Observation of the grid."""
        return self.grid.obs()

    def render(self) -> Any:
        """See `GridEnv.render`."""
        return self.grid.render()

    def close(self) -> None:
        """Close the grid."""
        self.grid.close()

    def _joined(self, actions: Mapping[str, Any]) -> dict[str, Any]:
        if self._type == RESOURCES:
            return dict(actions)
        low = self._limits[0].copy()  # a unit without an action runs at its minimum
        for k, agent in enumerate(self.possible_agents):
            if agent in actions:
                low[k] = np.asarray(actions[agent], np.float32).reshape(())
        return {UNIT_MW: low}

    def _seen(self, state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        values = self.grid.obs(state)
        if self._type == RESOURCES:
            return {agent: values.copy() for agent in self.possible_agents}
        low, high = self._limits
        top = np.where(high > 0, high, 1)
        p, floor = state["unit"], low / top
        price = np.asarray(self.grid.sim.params.offers.price)[:, 0] / PRICE_USD_PER_MWH
        own = np.stack([p, floor, high / high.sum(), 1 - p, p - floor, price], axis=1).clip(-5, 5)
        shared = values[self._shared]
        return {agent: np.append(shared, own[k]).astype(np.float32) for k, agent in enumerate(self.possible_agents)}
