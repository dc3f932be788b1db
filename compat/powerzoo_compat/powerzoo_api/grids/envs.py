"""Grids as environments of their own: dicts of named arrays out, vectors or dicts of devices in."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import gymnasium
import numpy as np

from powerzoo_compat._apart import built_apart
from powerzoo_compat._host import NamedBox, checked_values
from powerzoo_compat._replay import ShowsEpisode
from powerzoo_compat.powerzoo_api.envs.base import BaseEnv, fresh
from powerzoo_compat.powerzoo_api.envs.render import RENDER_MODES
from powerzoo_compat.powerzoo_api.envs.resources import ResourceEnv
from powerzoo_compat.powerzoo_api.envs.single_agent import SingleAgentEnv
from powerzoo_compat.powerzoo_api.grids.build import core_ids, feeder_sim, three_phase_sim, transgrid_sim, unit_order
from powerzoo_compat.powerzoo_api.grids.cases import load_case
from powerzoo_jax.base.errors import unknown
from powerzoo_jax.base.ranges import check_settings
from powerzoo_jax.cases import load_feeder
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.tasks.settings import Voltage

LAST_OF_GRID = "clock"  # block of an observation that ends the grid's part; what devices show of themselves follows
UNIT_MW, UNIT_NORM = "unit_power_mw", "unit_power_norm"


@dataclass(frozen=True)
class ACConfig:
    """Voltage band of an AC grid [pu]; None takes the case's limits."""

    v_min: Voltage | None = 0.95
    v_max: Voltage | None = 1.05

    def __post_init__(self) -> None:
        check_settings("ACConfig: ", self)


class Slot(NamedTuple):
    """Position of a device in an action: its columns, and bounds (U,) of its own space."""

    columns: np.ndarray
    low: np.ndarray
    high: np.ndarray


class GridEnv(ShowsEpisode, BaseEnv):
    """A grid: five values a step whose first is a dict of named arrays; `obs(state)` makes a vector of it.

    case:      number, name or path of a MATPOWER file
    split:     train, val or test of the load series
    keywords:  those of the grid in the core

    `GymnasiumWrapper(grid)` is a standard environment. Errors and reset options are those of tasks.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": list(RENDER_MODES), "render_fps": 2}  # type: ignore[misc]
    _runs_on = "_env"
    grid_type: ClassVar[str]
    default_case: ClassVar[str]

    def __init__(
        self, case: Any = None, *, split: str = "train", render_mode: str | None = None, **keywords: Any
    ) -> None:
        self.case_id, self.split, self.keywords = self.default_case if case is None else case, split, keywords
        self.resources: dict[str, ResourceEnv] = {}
        self._mode = render_mode
        self._prepared: SingleAgentEnv | None = None
        super().__init__(self._env.delta_t_minutes, render_mode)

    def build(self) -> Sim:
        """The grid with its devices, as the core simulates it."""
        raise NotImplementedError

    @property
    def _env(self) -> SingleAgentEnv:
        """Environment that simulates the grid; built anew once devices have changed."""
        if self._prepared is None:
            self._prepared = SingleAgentEnv(built_apart(self.build), render_mode=self._mode)
        return self._prepared

    @property
    def sim(self) -> Sim:
        """Simulation of the core."""
        return self._env._host.sim

    @property
    def grid(self) -> GridEnv:
        """This grid."""
        return self

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.case_id!r}, split={self.split!r}, devices={list(self.resources)})"

    def episode_limit(self) -> int:
        """Steps of an episode."""
        return self._env.episode_limit()

    @property
    def started(self) -> bool:
        """True once an episode has begun."""
        return self._prepared is not None and self._prepared._host.started

    @property
    def network(self) -> Any:
        """The case: tables of buses, branches and units."""
        return load_case(self.case_id)

    @property
    def nodes(self) -> Any:
        """Table of the buses."""
        return self.network.bus

    @property
    def lines(self) -> Any:
        """Table of the branches."""
        return self.network.branch

    @property
    def observation_space(self) -> gymnasium.spaces.Dict:  # type: ignore[override]
        """Arrays by name, as `reset` and `step` return them; `obs_space` is the box of `obs()`."""
        low, high = (self.state_of(side) for side in (self.obs_space.low, self.obs_space.high))
        return gymnasium.spaces.Dict({name: gymnasium.spaces.Box(low[name], high[name]) for name in low})

    @property
    def obs_space(self) -> NamedBox:
        """Box of `obs()`."""
        box, names = self._env._host.observation_box(), self.get_observation_fields()
        return NamedBox(box.low[: len(names)], box.high[: len(names)], names)

    @property
    def action_space(self) -> gymnasium.spaces.Box:  # type: ignore[override]
        """Box of an action that is a vector."""
        one = np.ones(self.sim.env.dims.act, np.float32)
        return gymnasium.spaces.Box(-one, one)

    @property
    def obs_size(self) -> int:
        """Entries of `obs()`."""
        return len(self.get_observation_fields())

    @property
    def obs_names(self) -> tuple[str, ...]:
        """The same as `get_observation_fields`."""
        return self.get_observation_fields()

    @property
    def action_names(self) -> tuple[str, ...]:
        """Names of the entries of an action."""
        raise NotImplementedError

    def get_observation_fields(self) -> tuple[str, ...]:
        """Names of the entries of `obs()`."""
        names: list[str] = []
        for block in self.sim.env.fields.blocks:
            names += block.names
            if block.key == LAST_OF_GRID:
                break
        return self.renamed(tuple(names))

    def renamed(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Field names of the core with the ids of the registered devices."""
        return names

    def constraint_names(self) -> tuple[str, ...]:
        """Names of the cost channels, in the order of info["constraint_costs"]."""
        return self._env.constraint_names()

    def selected_constraint_names(self) -> tuple[str, ...]:
        """A grid of its own has no budgets."""
        return self._env.selected_constraint_names()

    @property
    def cost_thresholds(self) -> tuple[float, ...]:
        """A grid of its own has no budgets."""
        return self._env.cost_thresholds

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode: (state, info of the initial solve)."""
        super().reset(seed=seed)
        values, info = self._env.reset(seed=seed, options=options)
        return self.state_of(values), self.told(info)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Advance one step: (state, reward, terminated, truncated, info).

        action:  a vector inside `action_space`, a dict, or None, which leaves everything alone
        Raises RuntimeError before the first reset, ValueError for an unknown key, a wrong shape or a NaN.
        """
        kernel = np.full((1, self.sim.env.dims.act), np.nan, np.float32)
        if isinstance(action, Mapping):
            self.write(kernel[0], action)
        elif action is not None:
            kernel = self._env._host.kernel_action({0: action})
        values, reward, terminated, truncated, info = self._env.play(kernel)
        self.time_step = self._env.time_step
        return self.state_of(values), reward, terminated, truncated, self.told(info)

    def told(self, info: dict[str, Any]) -> dict[str, Any]:
        """An info with the devices' values under their ids."""
        return info

    def write(self, kernel: np.ndarray, action: Mapping[str, Any]) -> None:
        """Write an action by name into the core's (U,) in [-1, 1], whose NaN entries change nothing."""
        raise NotImplementedError

    def state_of(self, values: np.ndarray) -> dict[str, np.ndarray]:
        """The grid's part of an observation as arrays by name."""
        state, first = {}, 0
        for block in self.sim.env.fields.blocks:
            state[block.key] = fresh(values[first : first + len(block.names)])
            first += len(block.names)
            if block.key == LAST_OF_GRID:
                break
        return state

    def obs(self, state: Mapping[str, np.ndarray] | None = None) -> np.ndarray:
        """A state as one vector (None: the last one)."""
        return self._env.obs()[: self.obs_size] if state is None else np.concatenate(list(state.values()))

    def reward(self) -> float:
        """Reward of the last step, 0.0 after a reset."""
        return self._env.reward()

    def cost(self) -> float:
        """Sum of the channels that have a budget; a grid of its own has none."""
        return self._env.cost()

    def render(self) -> Any:
        """See `SingleAgentEnv.render`."""
        return self._env.render()

    def close(self) -> None:
        """See `SingleAgentEnv.close`."""
        if self._prepared is not None:
            self._prepared.close()

    def register_resource(self, resource: ResourceEnv, bus_id: Any, name: str | None = None) -> str:
        """Put a device at a bus; returns its id, by default `<type>_<k>`. Raises ValueError where it cannot stand."""
        raise ValueError(f"a {self.grid_type} grid takes no devices. Use DistGridEnv, or CostBasedMarketEnv.")


class TransGridEnv(GridEnv):
    """A transmission grid under one operator, see `powerzoo_jax.families.transmission.operator`.

    keywords:  those of `powerzoo_jax.families.transmission.tasks.operator.TransGridSettings` (physics, solver_mode,
               difficulty, enforce_q_lim, ...), `ac_config` and `data_source`
    Action: place of each unit in its range [-1, 1]; as a dict `unit_power_mw` [MW] or `unit_power_norm`. None leaves
    the dispatch to the optimum (solver_mode "opf"), or puts all units at the same place ("pf").
    info["q_limited_bus_ids"] holds an entry a bus: its id if it gave up its voltage at a reactive limit, else -1 (AC
    power flow; in DC it is empty).
    """

    grid_type, default_case = "transmission", "Case5"

    def __init__(self, case: Any = None, *, ac_config: ACConfig | None = None, **keywords: Any) -> None:
        if ac_config is not None:
            keywords = {k: v for k, v in dataclasses.asdict(ac_config).items() if v is not None} | keywords
        super().__init__(case, **keywords)

    def build(self) -> Sim:
        return transgrid_sim(split=self.split, case=self.case_id, **self.keywords)

    @property
    def unit_limits_mw(self) -> tuple[np.ndarray, np.ndarray]:
        """Least and most output of every unit [MW]."""
        rules = self.sim.params.rules
        return np.asarray(rules.p_min_mw), np.asarray(rules.p_max_mw)

    @property
    def action_names(self) -> tuple[str, ...]:
        units = len(self.unit_limits_mw[0])
        switches = self.sim.env.dims.act - units
        return tuple(f"unit_{k + 1}_p" for k in range(units)) + tuple(f"switch_{k}" for k in range(switches))

    def write(self, kernel: np.ndarray, action: Mapping[str, Any]) -> None:
        low, high = self.unit_limits_mw
        for key, value in action.items():
            if key not in (UNIT_MW, UNIT_NORM):
                raise ValueError(unknown("key of an action", key, (UNIT_MW, UNIT_NORM)))
            given = np.asarray(value, np.float32)
            if given.shape != low.shape:
                raise ValueError(f"{key} has the wrong shape: expected {low.shape}, got {given.shape}.")
            if np.isnan(given).any():
                raise ValueError(f"{key} = {given.tolist()} holds NaN. Leave the key out for the optimum.")
            if key == UNIT_MW:
                room = np.where(high > low, high - low, 1)
                given = 2 * (given - low) / room - 1
            kernel[: len(low)] = np.clip(given, -1, 1)


class DistGridEnv(GridEnv):
    """A balanced feeder with the devices that `register_resource` puts on it.

    keywords:  those of `powerzoo_jax.families.feeder.tasks.settings.FeederSettings`, `max_episode_steps`, `loss_price`
               and `difficulty`, a voltage band
    Action: the devices' own entries in the order of registration; as a dict by id, a device's own dict is physical.
    The reward is the money of losses, devices and unserved energy [$].
    """

    grid_type, default_case = "distribution", "Case33bw"

    def build(self) -> Sim:
        return feeder_sim(list(self.resources.values()), split=self.split, case=self.case_id, **self.keywords)

    def register_resource(self, resource: ResourceEnv, bus_id: Any, name: str | None = None) -> str:
        if not isinstance(resource, ResourceEnv):
            raise TypeError(f"{resource!r} is no device. Give BatteryEnv, SolarEnv, WindEnv, VehicleEnv or FlexLoad.")
        if self.started:
            raise RuntimeError("devices are registered before the first reset. Make another grid.")
        if resource.kind == "thermal":
            raise ValueError("a feeder takes no diesel generator. Use DCMicrogridEnv.")
        count = sum(device.stem == resource.stem for device in self.resources.values())
        chosen = f"{resource.stem}_{count}" if name is None else name
        if chosen in self.resources:
            raise ValueError(f"a device is called {chosen!r} already. Choose another name.")
        resource.attach(self, bus_id, chosen)
        before, self._prepared = self._prepared, None
        self.resources[chosen] = resource
        try:
            _ = self._env
        except Exception:  # what does not build leaves the grid as it was
            del self.resources[chosen]
            self._prepared = before
            resource.detach()
            raise
        return chosen

    def unregister_resource(self, name: str) -> None:
        """Take a device away. Raises ValueError for an unknown id, RuntimeError after the first reset."""
        if self.started:
            raise RuntimeError("devices are registered before the first reset. Make another grid.")
        if name not in self.resources:
            raise ValueError(unknown("device", name, self.resources))
        self.resources.pop(name).detach()
        self._prepared = None

    @property
    def slots(self) -> dict[str, Slot]:
        """Position of each device in an action of the core, in the order of registration."""
        units = unit_order(list(self.resources.values()))
        names = list(self.resources)
        found = {}
        for block in self.sim.env.layout.table.blocks:
            low, high = (np.array(x, np.float32) for x in (block.low, block.high))
            for unit, first in zip(block.units, block.first, strict=True):
                found[names[units[unit]]] = Slot(np.arange(first, first + len(low)), low, high)
        return {name: found[name] for name in names}

    @property
    def action_space(self) -> gymnasium.spaces.Box:  # type: ignore[override]
        slots = self.slots.values()
        empty = np.zeros(0, np.float32)
        low, high = (np.concatenate([empty, *(getattr(s, side) for s in slots)]) for side in ("low", "high"))
        return gymnasium.spaces.Box(low, high)

    @property
    def action_names(self) -> tuple[str, ...]:
        names = {b.kind: b.names for b in self.sim.env.layout.table.blocks}
        return tuple(f"{name}/{x}" for name, device in self.resources.items() for x in names[device.kind])

    def renamed(self, names: tuple[str, ...]) -> tuple[str, ...]:
        known = dict(zip(core_ids(list(self.resources.values())), self.resources, strict=True))

        def ours(name: str) -> str:
            whose = [core for core in known if name.startswith((f"{core}_", f"{core}/"))]
            return known[whose[0]] + name[len(whose[0]) :] if whose else name

        return tuple(map(ours, names))

    def told(self, info: dict[str, Any]) -> dict[str, Any]:
        columns = {"current_p_mw": "power", "requested_p_mw": "requested_p_mw", "local_v": "local_voltage"}
        found = {key: np.atleast_1d(info[name]) for key, name in columns.items()}
        status = {}
        for unit, k in enumerate(unit_order(list(self.resources.values()))):
            name, device = list(self.resources.items())[k]
            own = {key: float(values[unit]) for key, values in found.items()}
            status[name] = own | {"bus_id": device.bus_id, "time_step": info["episode_step"]}
        return info | {"resources": {name: status[name] for name in self.resources}}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if action is not None and not isinstance(action, Mapping):
            values = checked_values(action, self.action_space)
            cuts = np.cumsum([len(slot.low) for slot in self.slots.values()])[:-1]
            action = dict(zip(self.resources, np.split(values, cuts), strict=True)) if self.resources else {}
        return super().step(action)

    def write(self, kernel: np.ndarray, action: Mapping[str, Any]) -> None:
        slots = self.slots
        for name, value in action.items():
            if name not in slots:
                raise ValueError(unknown("device in an action", name, slots))
            columns, low, high = slots[name]
            own = self.resources[name].own_action(value, low, high)
            kernel[columns] = (own - (high + low) / 2) / ((high - low) / 2)


class DistGrid3PhaseEnv(DistGridEnv):
    """A three-phase feeder; a device connects to its `phase`. Keywords also `vuf_max` [%], no `loss_price`."""

    grid_type, default_case = "distribution_3phase", "ieee13"

    def build(self) -> Sim:
        return three_phase_sim(list(self.resources.values()), split=self.split, case=self.case_id, **self.keywords)

    @property
    def network(self) -> Any:
        return load_feeder(self.case_id)

    @property
    def nodes(self) -> Any:
        return self.network.node

    @property
    def lines(self) -> Any:
        return self.network.line


GRID_TYPES: dict[str, type[GridEnv]] = {cls.grid_type: cls for cls in (TransGridEnv, DistGridEnv, DistGrid3PhaseEnv)}
