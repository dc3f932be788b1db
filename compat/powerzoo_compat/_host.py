"""The host adapter that every host view shares: one task, one lane, NumPy values out.

Programs are compiled once per environment value and shared between views: parameters travel as arguments.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from datetime import date
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base import Purpose, purpose_key
from powerzoo_jax.base.errors import listing, unknown
from powerzoo_jax.data import day_matrix, load_dataset
from powerzoo_jax.data.clock import MINUTES_PER_DAY, iso_dates
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.draw import Starts, draw_episode
from powerzoo_jax.tasks.build import MINUTES_PER_HOUR, FeederStorageSettings, resolve_settings

RESET_OPTIONS = ("day", "day_id", "soc", "randomize_soc")
RANDOM_SOC = (0.3, 0.7)
ANY_DAY = -1
WORD = 32  # bits of a seed that one key takes


class Choice(NamedTuple):
    """What a reset fixes: start day (ANY_DAY draws it) and the range (G,) of the initial state of charge."""

    day: int
    soc_low: np.ndarray
    soc_high: np.ndarray


class Reading(NamedTuple):
    """One transfer from the device: obs (A, O), reward (A,), cost (C,) and the family's info, as NumPy."""

    obs: np.ndarray
    reward: np.ndarray
    cost: np.ndarray
    info: Any


def seed_key(seed: int) -> Array:
    """Return the key of a seed; the same one in every view, `jax.random.key(seed)` below 2**32."""
    key = jax.random.key(seed % 2**WORD)
    rest = seed >> WORD
    while rest:  # longer seeds, or they would repeat the short ones
        key = jax.random.fold_in(key, rest % 2**WORD)
        rest >>= WORD
    return key


def _starting_at(starts: Starts, day: Array) -> Starts:
    """The list of starts, or `day` as its only entry; the shape stays, so one program serves both."""
    shift = -jnp.maximum(day, 0)
    return dataclasses.replace(
        starts,
        load_row=jnp.roll(starts.load_row, shift),
        n_start=jnp.where(day < 0, starts.n_start, 1),
        price_row=jnp.roll(starts.price_row, shift, axis=0),
        pair_count=jnp.roll(starts.pair_count, shift),
    )


@functools.partial(jax.jit, static_argnums=0)
def open_episode(env: Any, params: Any, key: Array, day: Array, soc_low: Array, soc_high: Array) -> Any:
    """Start an episode: (state, ((obs, cost, info), first load row))."""
    drawn = draw_episode(key, _starting_at(params.starts, day), soc_low, soc_high)
    state, _ = env.begin(key, drawn, params)
    return state, (env.opening(state, params), state.load_row)


@functools.partial(jax.jit, static_argnums=0)
def advance(env: Any, params: Any, state: Any, action: Array) -> Any:
    """One step: (state, (obs, reward, cost, info))."""
    out = env.step(state, action, params)
    return out.state, (out.obs, out.reward, out.cost, out.info)


@functools.lru_cache(maxsize=32)
def _days_of(dataset: str, column: str, minutes: int) -> tuple[str, ...]:
    return iso_dates(day_matrix(load_dataset(dataset), column, minutes)[0])


class Host:
    """Runs one task on the host.

    sim:            the task
    settings:       its resolved keywords
    minutes:        length of a step
    steps_per_day:  steps in a day
    start_days:     ISO dates an episode may start on, in the order of `day_id`
    device_ids:     one id a device, in the order of the action
    """

    def __init__(self, sim: Sim) -> None:
        self.sim = sim
        self.settings: FeederStorageSettings = resolve_settings(sim.spec, {})
        self.minutes = round(sim.spec.dt_hours * MINUTES_PER_HOUR)
        self.steps_per_day = MINUTES_PER_DAY // self.minutes
        self._days = _days_of(self.settings.load_set, self.settings.load_column, self.minutes)
        starts = sim.params.starts
        self._start_rows = np.array(starts.load_row)[: int(starts.n_start)]
        self.start_days = tuple(self._days[row // self.steps_per_day] for row in self._start_rows.tolist())
        self.device_ids = tuple(f"battery_{k}" for k in range(sim.env.dims.unit))
        self.fleet: Any = jax.device_get(sim.params.storage)
        self._key: Array | None = None
        self._state: Any = None

    @property
    def started(self) -> bool:
        """Whether an episode has begun."""
        return self._state is not None

    def observation_box(self) -> gymnasium.spaces.Box:
        """Flat observation space of the single agent, float32."""
        box = self.sim.spaces()[0]
        return gymnasium.spaces.Box(box.low[0].astype(np.float32), box.high[0].astype(np.float32))

    def power_box(self) -> gymnasium.spaces.Box:
        """Action space in MW, one entry a device."""
        rating = self.fleet.power_mw.astype(np.float32)
        return gymnasium.spaces.Box(-rating, rating)

    def unit_box(self) -> gymnasium.spaces.Box:
        """Action space of the kernel, [-1, 1]."""
        one = np.ones(len(self.device_ids), np.float32)
        return gymnasium.spaces.Box(-one, one)

    def date_at(self, start_row: int, step: int) -> str:
        """ISO date of a step of an episode."""
        return self._days[min((start_row + step) // self.steps_per_day, len(self._days) - 1)]

    def day_id(self, start_row: int) -> int:
        """Position of an episode's first day among the eligible ones."""
        return int(np.searchsorted(self._start_rows, start_row))

    def reset(self, seed: int | None, choice: Choice) -> tuple[Reading, int]:
        """Begin an episode: (its opening, first load row). Without a seed the stream of keys goes on.

        Raises RuntimeError when the first reset has no seed: the view draws one.
        """
        if seed is not None:
            key = seed_key(int(seed))
        elif self._key is not None:
            key = purpose_key(self._key, Purpose.NEXT_EPISODE)
        else:
            raise RuntimeError("the first reset of a host needs a seed.")
        env, params = self.sim.env, self.sim.params
        state, out = open_episode(env, params, key, np.int32(choice.day), choice.soc_low, choice.soc_high)
        (obs, cost, info), row = jax.device_get(out)
        self._key, self._state = key, state
        return Reading(obs, np.zeros(len(obs), obs.dtype), cost, info), int(row)

    def step(self, action: np.ndarray) -> Reading:
        """Advance by a checked action (G,) in [-1, 1]; one transfer from the device."""
        self._state, out = advance(self.sim.env, self.sim.params, self._state, action[None])
        return Reading(*jax.device_get(out))

    def choice(self, options: Mapping[str, Any] | None) -> Choice:
        """Read reset options; ValueError for an unknown one, a day outside the split or a bad state of charge."""
        options = dict(options or {})
        for name in options:
            if name not in RESET_OPTIONS:
                raise ValueError(unknown("reset option", name, RESET_OPTIONS))
        for one, other in (("day", "day_id"), ("soc", "randomize_soc")):
            # by identity: day_id 0 equals False
            if options.get(one) is not None and options.get(other) is not None and options[other] is not False:
                raise ValueError(f"reset options {one!r} and {other!r} exclude each other. Give one of them.")
        return Choice(self._day(options), *self._soc(options))

    def _day(self, options: dict[str, Any]) -> int:
        wanted, day_id, count = options.get("day"), options.get("day_id"), len(self.start_days)
        if wanted is not None:
            iso = wanted.isoformat() if isinstance(wanted, date) else str(wanted)
            if iso not in self.start_days:
                raise ValueError(
                    f"day {iso!r} is no start day of split {self.sim.spec.split!r}, which has {count} days "
                    f"({listing(self.start_days)}). Write dates as YYYY-MM-DD."
                )
            return self.start_days.index(iso)
        if day_id is None:
            return ANY_DAY
        if isinstance(day_id, bool) or not isinstance(day_id, int | np.integer) or not 0 <= day_id < count:
            raise ValueError(f"day_id {day_id!r} must be an integer from 0 to {count - 1}.")
        return int(day_id)

    def _soc(self, options: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
        low, high = self.fleet.soc_low.copy(), self.fleet.soc_high.copy()
        soc, spread = options.get("soc"), options.get("randomize_soc")
        if soc is not None:
            given = soc if isinstance(soc, Mapping) else dict.fromkeys(self.device_ids, soc)
            for name, value in given.items():
                if name not in self.device_ids:
                    raise ValueError(unknown("device in reset option 'soc'", name, self.device_ids))
                low[self.device_ids.index(name)] = high[self.device_ids.index(name)] = value
        elif spread is not None and spread is not False:
            low[:], high[:] = RANDOM_SOC if spread is True else spread
        bounds = self.fleet.soc_min, self.fleet.soc_max
        if not np.all((bounds[0] <= low) & (low <= high) & (high <= bounds[1])):
            raise ValueError(
                f"initial state of charge {low.tolist()} to {high.tolist()} must lie in the band "
                f"{bounds[0].tolist()} to {bounds[1].tolist()} of {listing(self.device_ids)}."
            )
        return low, high


def checked_action(action: Any, box: gymnasium.spaces.Box) -> np.ndarray:
    """Clip an action into its box and scale it to [-1, 1].

    Raises TypeError for what is no array of numbers, ValueError for a wrong shape (naming both) or a NaN.
    """
    try:
        values = np.asarray(action, np.float32)
    except (TypeError, ValueError) as err:
        raise TypeError(f"action must be an array of shape {box.shape}, got {type(action).__name__}.") from err
    if values.shape != box.shape:
        raise ValueError(f"action has the wrong shape: expected {box.shape}, got {values.shape}.")
    if np.isnan(values).any():
        raise ValueError(f"action {values.tolist()} holds NaN. Check the policy that produced it; 0 means idle.")
    return np.clip(values, box.low, box.high) / box.high
