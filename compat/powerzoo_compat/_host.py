"""Host adapter of the views that run in NumPy: one task in one lane, its values transferred once a step.

Programs are compiled once per environment value and shared between views: parameters travel as arguments.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
import weakref
from collections.abc import Mapping
from datetime import date
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.experimental.xla_metadata import set_xla_metadata

from powerzoo_compat._apart import on_device, refuse_forked
from powerzoo_compat._packed import LARGEST, Layout, Packed, leaves_of, opened, opened_apart, pack, packed_apart, unpack
from powerzoo_compat._seeds import checked_seed
from powerzoo_compat._surface import surface_of
from powerzoo_compat._tape import EpisodeTape
from powerzoo_jax.base import Purpose, purpose_key
from powerzoo_jax.base.errors import listing, unknown
from powerzoo_jax.base.solver_mode import FIXED, auto_is
from powerzoo_jax.data.clock import MINUTES_PER_DAY
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.family import family_of
from powerzoo_jax.envs.series import Draw, EpisodeStarts, draw_episode
from powerzoo_jax.envs.surface import calendar
from powerzoo_jax.envs.trace.readings import read_step

RESOURCE = "resource"  # cost channel of power that a device was asked for and could not deliver
RESET_OPTIONS = ("day", "day_id", "soc", "randomize_soc")
RANDOM_SOC = (0.3, 0.7)
ANY_DAY = -1  # an integer in place of None, so that a chosen day and a drawn one share one program
WORD = 32  # bits of a seed that one key takes
# attributes of a Host that resets and steps change
MOVING = ("_key", "_choice", "_state", "_structure", "_before", "reading", "seen", "legal", "tape")
# attributes of a Host that no pickle holds
OF_A_PROCESS = ("live", "_given", "_structure", "_advance")
MINUTES_PER_HOUR = 60
NETWORK_TABLES = ("bus_", "branch_")
# names of XLA: a call that stays one, and is compiled as a single function of a core
KEPT_CALL = {"inlineable": "false", "xla_cpu_small_call": "true"}


class Choice(NamedTuple):
    """Settings of a reset: start day (ANY_DAY draws it) and the range (G,) of the initial state of charge."""

    day: int
    soc_low: np.ndarray
    soc_high: np.ndarray


class Reading(NamedTuple):
    """One transfer from the device: obs (A, O), reward (A,), cost (C,) and the family's info, as NumPy."""

    obs: np.ndarray
    reward: np.ndarray
    cost: np.ndarray
    info: Any


class FlatInfo(NamedTuple):
    """An info whose fields are leaves, those of a reading from `first` on."""

    kind: type[Any]
    names: tuple[str, ...]
    first: int

    def made(self, leaves: tuple[Any, ...]) -> Any:
        """The info, without its constructor, which sets one field after another and takes five times as long."""
        info = object.__new__(self.kind)
        vars(info).update(zip(self.names, leaves[self.first :], strict=True))
        return info


def seed_key(seed: int) -> Array:
    """Random key of a seed, the same in every view: `jax.random.key(seed)` below 2**32.

    Raises ValueError for a negative seed, TypeError for one that is no integer.
    """
    seed = checked_seed(seed)
    key = jax.random.key(seed % 2**WORD)
    rest = seed >> WORD
    while rest:  # longer seeds, or they would repeat the short ones
        key = jax.random.fold_in(key, rest % 2**WORD)
        rest >>= WORD
    return key


def starting_at(starts: EpisodeStarts, day: Array) -> EpisodeStarts:
    """Eligible starts, or `day` as the only one; the shape stays, so that one program serves both."""
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
    """Start an episode: (packed state, packed ((obs, cost, info), first load row)).

    A family without a network has nothing to solve before the first step: its report is blank, all actions legal.
    """
    drawn = draw_episode(key, starting_at(params.starts, day), soc_low, soc_high)
    state, obs = env.begin(key, drawn, params)
    if hasattr(env, "opening"):
        return pack(state, LARGEST), pack((env.opening(state, params), drawn.load_row))
    idle = jnp.zeros((env.dims.agent, env.dims.act), obs.dtype)
    blank = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(env.step, state, idle, params))
    info = dataclasses.replace(blank.info, legal=jnp.ones_like(blank.info.legal))
    return pack(state, LARGEST), pack(((obs, blank.cost, info), drawn.load_row))


def advance(env: Any, params: Packed, state: Packed, action: Array) -> tuple[Packed, Packed]:
    """One step, inside a program: (packed state, packed (obs, reward, cost, info)).

    Parameters and state have a hundred leaves, which as arguments of their own cost ten times the arithmetic.
    """
    out = env.step(opened(state), action, opened(params))
    return pack(out.state, LARGEST), pack((out.obs, out.reward, out.cost, out.info))


def flat_info(told: Layout) -> FlatInfo | None:
    """The info of (obs, reward, cost, info) where all of these are leaves, else None."""
    count = len(told.pieces)
    *arrays, info = jax.tree.unflatten(told.structure, range(count))
    if [*arrays, *vars(info).values()] != list(range(count)):
        return None
    return FlatInfo(type(info), tuple(vars(info)), len(arrays))


class StepProgram:
    """One step of an environment from arrays to arrays: a call that looks at no structure takes a fifth less time.

    env:            as it is, a part of the program
    params, state:  structures of the packed parameters and state, whose arrays the program takes
    one_kernel:     a core runs the step as one kernel
    told:           layout of what a step tells, known once it is traced
    """

    told: Layout

    def __init__(self, env: Any, params: Any, state: Any, one_kernel: bool) -> None:
        self._env, self._params, self._state = env, params, state
        self._flat: FlatInfo | None = None
        self._single = jax.default_backend() == "cpu" and one_kernel
        self._run = jax.jit(self._as_one if self._single else self._step)

    def __call__(
        self, params: tuple[Array, ...], state: tuple[Array, ...], action: np.ndarray
    ) -> tuple[tuple[Array, ...], Array]:
        """(Arrays of the next state, words of (obs, reward, cost, info))."""
        found: tuple[tuple[Array, ...], Array]
        try:
            found = self._run(params, state, action)
        except jax.errors.JaxRuntimeError:
            if not self._single:
                raise
            # not every operation of XLA can stand in a single kernel
            self._single, self._run = False, jax.jit(self._step)
            found = self._run(params, state, action)
        return found

    def __deepcopy__(self, memo: dict[int, Any]) -> StepProgram:
        """Itself: copies of an environment share its program."""
        return self

    def _step(self, params: tuple[Array, ...], state: tuple[Array, ...], action: Array) -> Any:
        packed = (jax.tree.unflatten(self._params, params), jax.tree.unflatten(self._state, state))
        following, told = advance(self._env, *packed, action)
        self.told = told.layout
        self._flat = flat_info(told.layout)
        return tuple(jax.tree.leaves(following)), told.words

    def read(self, words: Array) -> Reading:
        """The reading that the words of a step hold."""
        leaves = leaves_of(words, self.told)
        if self._flat is None:
            return Reading(*jax.tree.unflatten(self.told.structure, leaves))
        obs, reward, cost = leaves[: self._flat.first]
        return Reading(obs, reward, cost, self._flat.made(leaves))

    def _as_one(self, *arguments: Any) -> Any:
        """The step as one kernel: launching a hundred takes a core longer than their arithmetic."""
        # such a kernel takes no scattered additions, which only the adaptive form has
        with auto_is(FIXED), set_xla_metadata(**KEPT_CALL):
            return jax.jit(self._step)(*arguments)


# one program an environment value, which all its views share
step_program = functools.lru_cache(maxsize=128)(StepProgram)


@functools.partial(jax.jit, static_argnums=(0, 1))
def measure(env: Any, spec: Any, packed_params: Packed, packed_state: Packed, action: Array) -> Any:
    """Packed measurements of the networks in one step, which are those of a trace."""
    params, state = opened(packed_params), opened(packed_state)
    sim = Sim(params=params, env=env, spec=spec)
    found = read_step(sim, state, action, env.step(state, action, params))
    return pack({name: value for name, value in found.items() if name.rpartition(".")[2].startswith(NETWORK_TABLES)})


def undelivered(env: Any, channel: int, state: Any, actions: Array, params: Any) -> Array:
    """Cost (N,) [MW] in the channel of undelivered power that each of several actions (N, A, U) would have next."""

    def missed(action: Array) -> Array:
        if hasattr(env, "undelivered"):  # a feeder's devices are known before its network is solved
            found: Array = env.undelivered(state, action, params)
            return found
        return env.step(state, action, params).cost[channel]  # type: ignore[no-any-return]

    return jax.vmap(missed)(actions)


@functools.partial(jax.jit, static_argnums=(0, 1))
def cost_of_trials(env: Any, channel: int, packed_params: Packed, packed_state: Packed, actions: Array) -> Array:
    """`undelivered` of packed parameters and state."""
    return undelivered(env, channel, opened(packed_state), actions, opened(packed_params))


class NamedBox(gymnasium.spaces.Box):
    """A Box of named entries.

    names:  of its entries, in order
    """

    def __init__(self, low: np.ndarray, high: np.ndarray, names: tuple[str, ...]) -> None:
        super().__init__(low, high, dtype=np.float32)
        self.names = names


class Given:
    """Parameters as programs take them.

    params:  as they are, so that their id stays theirs
    packed:  in few arrays
    arrays:  the arrays of `packed`
    """

    def __init__(self, params: Any) -> None:
        self.params, self.packed = params, packed_apart(params)
        self.arrays: tuple[Array, ...] = tuple(jax.tree.leaves(self.packed))


# of the parameters that views hold now: another view of the same simulation packs no copy of its own
_held: weakref.WeakValueDictionary[int, Given] = weakref.WeakValueDictionary()


class Host:
    """One task, stepped from the host.

    sim:            the task, whose leaves may be of NumPy
    live:           the same with its leaves on the device, which starts JAX
    surface:        boxes of its agents, its calendar and its stores
    tape:           start and actions of the running episode
    minutes:        length of a step
    steps_per_day:  steps in a day
    start_days:     ISO dates an episode may start on, in the order of `day_id`
    boxes:          action space of each agent, in the units of the contract, in [-1, 1] with `unit_actions`
    reading:        what the last step or reset told; None before the first reset
    seen:           (A, O)  last observations
    legal:          (A, M)  legality of the next discrete actions
    pad:            the same spaces for all agents: actions in [-1, 1], the widest bounds of observations
    """

    def __init__(self, sim: Sim, *, unit_actions: bool = False, pad: bool = False) -> None:
        self.sim = sim
        self.surface = surface_of(sim)
        self.tape = EpisodeTape(sim.spec.horizon)
        self.minutes = round(sim.spec.dt_hours * MINUTES_PER_HOUR)
        self.steps_per_day = MINUTES_PER_DAY // self.minutes
        self._days = calendar(*self.surface.series, self.minutes)
        starts = sim.params.starts
        self._start_rows = np.array(starts.load_row)[: int(starts.n_start)]
        self.start_days = tuple(self.date_at(row, 0) for row in self._start_rows.tolist())
        bounds = zip(self.surface.low, self.surface.high, strict=True)
        if unit_actions:
            bounds = zip(*([sign * np.ones_like(x) for x in self.surface.high] for sign in (-1, 1)), strict=True)
        if pad:
            wide = np.ones(sim.env.dims.act, np.float32)
            bounds = ((-wide, wide) for _ in self.surface.low)  # type: ignore[assignment]
        self.boxes = tuple(gymnasium.spaces.Box(low, high) for low, high in bounds)
        self._ranges = tuple(range_of(box) for box in self.boxes)
        self._pad, self._dtype = pad, sim.spaces()[0].low.dtype
        self.seen = np.zeros((sim.env.dims.agent, sim.env.dims.obs), np.float32)
        self.legal = np.ones((sim.env.dims.agent, sim.env.dims.choice), bool)
        self._key: Array | None = None
        self._choice: Choice | None = None
        self._state: tuple[Array, ...] | None = None  # arrays of the packed state
        self._structure: Any = None  # of the packed state
        self._advance: StepProgram | None = None
        self._before: Any = None  # state and action of the last step, for its measurements
        self.reading: Any = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Host:
        """A copy that goes its own way on the same arrays and programs, which nobody changes."""
        other = copy.copy(self)
        other.tape = copy.deepcopy(self.tape)
        return other

    def go_back(self, earlier: Host) -> None:
        """Take over the moving state of a copy of this host, or of a host of the same task."""
        vars(self).update({name: vars(earlier)[name] for name in MOVING})

    def __getstate__(self) -> dict[str, Any]:
        """Everything but programs and what is packed for them, which belongs to this process."""
        kept = {name: value for name, value in vars(self).items() if name not in OF_A_PROCESS}
        executed = None if self._before is None else (opened_apart(self._packed(self._before[0])), self._before[1])
        return kept | {"_state": self.state, "_before": executed}

    def __setstate__(self, kept: dict[str, Any]) -> None:
        vars(self).update(kept, _structure=None, _advance=None)
        if kept["_state"] is not None:
            self._state, self._before = (
                self._arrays(kept["_state"]),
                (self._arrays(kept["_before"][0]), kept["_before"][1]),
            )

    def _arrays(self, state: Any) -> tuple[Array, ...]:
        """Arrays of a packed state, whose structure is kept beside them."""
        arrays, self._structure = jax.tree.flatten(packed_apart(state))
        return tuple(arrays)

    @functools.cached_property
    def live(self) -> Sim:
        """The task with its leaves on the device."""
        return on_device(self.sim)

    @functools.cached_property
    def _given(self) -> Given:
        params = self.live.params
        found = _held.get(id(params))
        if found is None:
            found = _held[id(params)] = Given(params)
        return found

    def _packed(self, arrays: tuple[Array, ...]) -> Packed:
        packed: Packed = jax.tree.unflatten(self._structure, arrays)
        return packed

    def _program(self) -> StepProgram:
        single = family_of(self.sim).one_kernel
        return step_program(self.sim.env, jax.tree.structure(self._given.packed), self._structure, single)

    @property
    def started(self) -> bool:
        """True once an episode has begun."""
        return self._state is not None

    @property
    def state(self) -> Any:
        """State of the running episode, on the device; None before the first reset."""
        return None if self._state is None else opened_apart(self._packed(self._state))

    def observation_box(self, agent: int = 0) -> NamedBox:
        """Flat observation space of an agent, float32, with the names of its entries."""
        box = self.sim.spaces()[0]
        low, high = (box.low.min(axis=0), box.high.max(axis=0)) if self._pad else (box.low[agent], box.high[agent])
        return NamedBox(low.astype(np.float32), high.astype(np.float32), self.sim.env.fields.names)

    @property
    def summary(self) -> str:
        """The task in a line, as the representation of every view shows it."""
        spec = self.sim.spec
        agents = f"{len(spec.agents)} agent{'s' * (len(spec.agents) > 1)}"
        return f"{spec.id!r}, split={spec.split!r}, {agents}, {spec.horizon} steps of {self.minutes} min"

    def kernel_action(self, given: Mapping[int, Any]) -> np.ndarray:
        """Actions by agent -> (A, U) in [-1, 1]; absent agents and padding are NaN, which leaves their units alone."""
        dims = self.sim.env.dims
        if dims.agent == len(given) == 1:
            ((agent, value),) = given.items()
            values = scaled(checked_values(value, self.boxes[agent]), *self._ranges[agent])
            if values.size == dims.act:
                return values.astype(self._dtype, copy=False)[None]
        action = np.full((dims.agent, dims.act), np.nan, self._dtype)
        for agent, value in given.items():
            values = checked_values(value, self.boxes[agent])
            action[agent, : values.size] = scaled(values, *self._ranges[agent])
        return action

    def date_at(self, start_row: int, step: int) -> str:
        """ISO date of a step of an episode."""
        return self._days[min((start_row + step) // self.steps_per_day, len(self._days) - 1)]

    def day_id(self, start_row: int) -> int:
        """Position of an episode's first day among the eligible ones."""
        return int(np.searchsorted(self._start_rows, start_row))

    def reset(self, seed: int | None, choice: Choice) -> tuple[Reading, int]:
        """Begin an episode: (its opening, first load row). Without a seed the stream of keys goes on.

        Raises RuntimeError when the first reset has no seed, which the view draws, or JAX ran before a fork.
        """
        refuse_forked()
        if seed is not None:
            key = seed_key(seed)
        elif self._key is not None:
            key = purpose_key(self._key, Purpose.NEXT_EPISODE)
        else:
            raise RuntimeError("the first reset of a host needs a seed.")
        self.tape.begin(key, choice)
        env, params = self.sim.env, self.live.params
        state, out = open_episode(env, params, key, np.int32(choice.day), choice.soc_low, choice.soc_high)
        (obs, cost, info), row = unpack(out.words, out.layout)
        arrays, self._structure = jax.tree.flatten(state)
        self._advance = self._advance or self._program()
        self._key, self._state, self._choice, self.seen, self.legal = key, tuple(arrays), choice, obs, info.legal
        # nobody acts before the first step: what a picture shows then is the network at rest
        self._before = self._state, self.kernel_action({})
        self.reading = Reading(obs, np.zeros(len(obs), obs.dtype), cost, info)
        return self.reading, int(row)

    def step(self, action: np.ndarray) -> Reading:
        """Advance by a checked action (A, U) in [-1, 1]; one transfer from the device."""
        self.tape.keep(action)
        refuse_forked()
        self._before = self._state, action
        assert self._state is not None  # as for the tape
        if self._advance is None:  # of an environment out of a pickle
            self._advance = self._program()
        self._state, words = self._advance(self._given.arrays, self._state, action)
        self.reading = reading = self._advance.read(words)
        self.seen, self.legal = reading.obs, reading.info.legal
        return reading

    def network_readings(self) -> dict[str, np.ndarray]:
        """Voltages, prices, injections and flows of the networks in the last step, by the names of a trace's tables.

        After a reset they are those of a first step in which nobody acts.
        Raises RuntimeError before the first reset.
        """
        if self._before is None:
            raise RuntimeError("no episode has begun. Reset the environment before its networks are measured.")
        state, action = self._before
        packed = measure(self.sim.env, self.sim.spec, self._given.packed, self._packed(state), action)
        found: dict[str, np.ndarray] = unpack(packed.words, packed.layout)
        return found

    def trial_costs(self, actions: np.ndarray) -> np.ndarray:
        """Power (N,) [MW] that each of several actions (N, A, U) in [-1, 1] would ask for in vain in the next step.

        Raises RuntimeError before the first reset.
        """
        if self._state is None:
            raise RuntimeError("no episode has begun. Reset the environment before its actions are tried.")
        place = self.sim.spec.cost_names.index(RESOURCE)
        return np.asarray(cost_of_trials(self.sim.env, place, self._given.packed, self._packed(self._state), actions))

    def drawn(self) -> tuple[Draw, Array]:
        """Draw of the running episode and its key, with a leading axis of 1, as input to a planner with foresight.

        Raises RuntimeError before the first reset.
        """
        if self._key is None or self._choice is None:
            raise RuntimeError("no episode has begun. Reset the environment before its policy.")
        starts = starting_at(self.live.params.starts, jnp.int32(self._choice.day))
        draw = draw_episode(self._key, starts, *map(jnp.asarray, self._choice[1:]))
        return jax.tree.map(lambda x: x[None], draw), self._key[None]

    def public_action(self, action: np.ndarray) -> list[np.ndarray]:
        """(A, U) in [-1, 1] -> each agent's action in its box."""
        out = []
        for (low, high, middle, half), row in zip(self._ranges, np.asarray(action, np.float32), strict=True):
            out.append(np.clip(middle + half * row[: low.shape[0]], low, high))
        return out

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
        stores = self.surface.stores
        low, high = stores.soc_low.copy(), stores.soc_high.copy()
        soc, spread = options.get("soc"), options.get("randomize_soc")
        if soc is not None:
            given = soc if isinstance(soc, Mapping) else dict.fromkeys(stores.ids, soc)
            for name, value in given.items():
                if name not in stores.ids:
                    raise ValueError(unknown("device in reset option 'soc'", name, stores.ids))
                low[stores.ids.index(name)] = high[stores.ids.index(name)] = value
        elif spread is not None and spread is not False:
            low[:], high[:] = RANDOM_SOC if spread is True else spread
        if not np.all((stores.soc_min <= low) & (low <= high) & (high <= stores.soc_max)):
            raise ValueError(
                f"initial state of charge {low.tolist()} to {high.tolist()} must lie in the band "
                f"{stores.soc_min.tolist()} to {stores.soc_max.tolist()} of {listing(stores.ids)}."
            )
        return low, high


def of_one_agent(sim: Sim) -> Sim:
    """The task itself; ValueError where it has several agents, of which a view for one would move the first alone."""
    count, task = len(sim.spec.agents), sim.spec.id
    if count > 1:
        raise ValueError(
            f"{task} has {count} agents, and this view acts for one. Use powerzoo.make_task_env({task!r}, "
            f"framework='pettingzoo'), in batches powerzoo_compat.jaxmarl_view.parallel_env({task!r}), or join them: "
            f"powerzoo_compat.discrete_view.make_discrete_env({task!r}), gymnasium.make of its id in PowerZoo/."
        )
    return sim


def checked_values(action: Any, space: gymnasium.Space[Any]) -> np.ndarray:
    """Action of the shape of a space as float32: arrays of any real numbers, NumPy scalars, and lists of them.

    Raises TypeError for what is no array of real numbers (text, booleans, complex), ValueError for a wrong shape
    (naming both) or a NaN.
    """
    try:
        values = np.asarray(action)
    except (TypeError, ValueError) as err:  # lists of different lengths
        raise TypeError(f"action must be an array of shape {space.shape}, got {type(action).__name__}.") from err
    if values.dtype.kind not in "fiu" and not jnp.issubdtype(values.dtype, jnp.floating):  # bfloat16 has another kind
        raise TypeError(f"action must be an array of real numbers, got {type(action).__name__} of {values.dtype}.")
    if values.shape != space.shape:
        raise ValueError(f"action has the wrong shape: expected {space.shape}, got {values.shape}.")
    if values.dtype != np.float32:
        with np.errstate(over="ignore"):  # what is beyond float32 is clipped as infinity is
            values = values.astype(np.float32)
    if math.isnan(np.vdot(values, values)):  # a third of the time of a look at every entry
        raise ValueError(f"action {values.tolist()} holds NaN. Check the policy that produced it; 0 means idle.")
    return values


def to_unit(values: np.ndarray, box: gymnasium.spaces.Box) -> np.ndarray:
    """Values clipped into a box and scaled to [-1, 1]."""
    return scaled(values, *range_of(box))


def range_of(box: gymnasium.spaces.Box) -> tuple[np.ndarray, ...]:
    """Low, high, middle and half width of a box."""
    return box.low, box.high, (box.high + box.low) / 2, (box.high - box.low) / 2


def scaled(values: np.ndarray, low: np.ndarray, high: np.ndarray, middle: np.ndarray, half: np.ndarray) -> np.ndarray:
    """Values clipped into a range and scaled to [-1, 1]."""
    # half the time of np.clip, for values that are no NaN
    return (np.minimum(np.maximum(values, low), high) - middle) / half
