"""Device protocol: the sign rule, deliveries, checks of ratings, and reactive power of inverters.

SIGN: positive power is injection into the bus (generation, discharge); consumption is negative.

A device type is a module of pure functions over a unit axis G: parameters and state are pytrees of (G,) leaves,
a step takes what was commanded and returns what was delivered. Rows with `mask` False deliver nothing and cost
nothing. Commands are finite; `fleet.ActionTable` turns what is not into a no-op before it gets here.

Ratings are checked on the host, by the range declared beside each, and become one column per name. An inverter keeps
P^2 + Q^2 <= S^2; active power has priority.

What tasks, fleets, observations and rewards need to know of a kind stands in its `DeviceKind`, at the end of its
module; `registry.KINDS` lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple, Protocol

import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base.ranges import (
    FINITE,
    NOT_NEGATIVE,
    POSITIVE,
    POSITIVE_SHARE,
    SHARE,
    Share,
    axes,
    checks_ranges,
    fitted,
    stored,
)
from powerzoo_jax.base.spaces import Field, Observed
from powerzoo_jax.base.struct import brief
from powerzoo_jax.data.bank import LOAD_FIELDS

SIN, COS = LOAD_FIELDS.index("time_sin"), LOAD_FIELDS.index("time_cos")


def reactive_limit(s_mva: Array, p_mw: Array) -> Array:
    """Largest |Q| beside a fixed P, (G,) [MVAr]: sqrt(S^2 - P^2), 0 where P uses the whole rating."""
    room = (s_mva - p_mw) * (s_mva + p_mw)
    inside = room > 0
    # the slope of a root at 0 is infinite, and 0 * inf would put NaN into a gradient
    return jnp.where(inside, jnp.sqrt(jnp.where(inside, room, 1)), 0)


def reactive(s_mva: Array, p_mw: Array, command_mvar: Array) -> Array:
    """Reactive power that an inverter delivers of a command beside a fixed P, (G,) [MVAr]."""
    limit = reactive_limit(s_mva, p_mw)
    return jnp.clip(command_mvar, -limit, limit)


Rating = float | Sequence[float] | np.ndarray  # one value for the whole fleet, or one per unit

Charge = Share | tuple[Share, Share] | tuple[tuple[Share, Share], ...]  # one, a range of all, or a range per unit

PositiveRating = Annotated[Rating, POSITIVE]
SignlessRating = Annotated[Rating, NOT_NEGATIVE]
ShareRating = Annotated[Rating, SHARE]
EfficiencyRating = Annotated[Rating, POSITIVE_SHARE]
TemperatureRating = Annotated[Rating, FINITE]  # [degC]


def positive(device: str, **values: Rating) -> None:
    """Raise SettingsError for a rating that is not positive; the same as `PositiveRating` beside a parameter."""
    for name, value in values.items():
        fitted(f"{device} {name}", value, PositiveRating)


def share(device: str, **values: Rating) -> None:
    """Raise SettingsError for an efficiency outside (0, 1]; the same as `EfficiencyRating` beside a parameter."""
    for name, value in values.items():
        fitted(f"{device} {name}", value, EfficiencyRating)


def charge_range(initial_soc: Charge) -> tuple[Rating, Rating]:
    """Ends (low, high) of the range that the first state of charge is drawn from, one value or (G,) each [-]."""
    low, high = np.asarray(initial_soc if isinstance(initial_soc, tuple) else (initial_soc, initial_soc), np.float64).T
    return low, high


def inverter(device: str, s_mva: Rating, power_mw: Rating, rating: str) -> None:
    """Raise ValueError for an apparent-power rating that cannot carry the active one."""
    if not (np.asarray(s_mva) >= np.asarray(power_mw)).all():
        raise ValueError(f"{device} s_mva = {s_mva} is below {rating} = {power_mw}. Raise s_mva, or lower the power.")


def columns(n_unit: int, dtype: Any, **values: Rating) -> dict[str, Array]:
    """One (G,) column per name, in any unit [MW, MWh, 1/h]; a single value holds for every device.

    Raises ValueError for a list whose length is not n_unit, and for numbers that the dtype cannot hold.
    """
    made = {}
    for name, value in values.items():
        table = np.asarray(value, np.float64)
        if table.shape not in ((), (n_unit,)):
            raise ValueError(f"{name} has {table.size} values for {n_unit} units. Give one value, or one per unit.")
        made[name] = stored(name, np.broadcast_to(table, n_unit), dtype)
    return made


class Delivery(NamedTuple):
    """Delivery of a fleet in one step, unit by unit.

    p_mw:           (G,)  [MW]    delivered power, positive into the bus
    undelivered_mw: (G,)  [MW]    |commanded - delivered|, the `resource` channel
    q_mvar:         (G,)  [MVAr]  delivered reactive power, positive into the bus
    cost_usd:       (G,)  [$]     money the step cost at the device itself, not negative
    """

    p_mw: Array
    undelivered_mw: Array
    q_mvar: Array
    cost_usd: Array

    def __repr__(self) -> str:
        return brief(self)


class Delivered(Protocol):
    """A delivery: the tuple above, or one that reports more beside the same four columns."""

    @property
    def p_mw(self) -> Array: ...

    @property
    def undelivered_mw(self) -> Array: ...

    @property
    def q_mvar(self) -> Array: ...

    @property
    def cost_usd(self) -> Array: ...


class Device(Protocol):
    """Functions that a device module offers. `outside` holds a step's inputs: availability, load, clock, arrivals."""

    def init(self, params: Any, *start: Any) -> Any:
        """State at the start of an episode."""
        ...

    def power_bounds(self, params: Any, state: Any, dt_hours: float, *outside: Any) -> tuple[Array, Array]:
        """Feasible terminal power (low (G,), high (G,)) [MW] of the coming step."""
        ...

    def step(self, params: Any, state: Any, command: Any, dt_hours: float, *outside: Any) -> tuple[Any, Delivered]:
        """Advance one step."""
        ...


@checks_ranges("idle")
def idle(like: Annotated[Array, axes("G")]) -> Delivery:
    """The delivery of a fleet that does nothing; `like` (G,) [MW] gives size and dtype."""
    nothing = jnp.zeros_like(like)
    return Delivery(nothing, nothing, nothing, nothing)


class Exogenous(NamedTuple):
    """Exogenous inputs of a step.

    row:      (F,)  bank row of the step;  columns: names of its entries, an `envs.series.LoadColumns`
    t:        ()    int32  step of the episode
    key:      of the episode
    dt_hours, layout: static, the latter a `fleet.Layout`
    task:     parameters of the environment: load at flexible units, prices that the task sets
    """

    row: Array
    columns: Any
    t: Array
    key: Array
    dt_hours: float
    layout: Any
    task: Any

    @property
    def minute(self) -> Array:
        """Start of the step on the episode's clock, () int32."""
        return self.t * round(self.dt_hours * 60)


class EpisodeStart(NamedTuple):
    """Start of an episode, from which the first state of a kind follows.

    soc:   (G,)  drawn state of charge; (0,) for a kind without any
    key:   of the episode
    dt_hours, layout, task: as in `Exogenous`
    """

    soc: Array
    key: Array
    dt_hours: float
    layout: Any
    task: Any


class UnitAccount(NamedTuple):
    """Account of an executed step of the units of one kind, from which their reward terms follow.

    params, before, after, out: the stack, its states around the step, and its delivery
    soc_start:                  (G,)  state of charge at reset; (0,) for a kind without any
    price_per_mwh, mean_per_mwh: ()   of the step, and mean over the episode
    last:                       ()    bool  the step ends the episode
    exogenous:                  what the units met in the step
    dt_hours, task:             as in `Exogenous`
    """

    params: Any
    before: Any
    after: Any
    out: Any
    soc_start: Array
    price_per_mwh: Array
    mean_per_mwh: Array
    last: Array
    exogenous: Exogenous
    dt_hours: float
    task: Any


@dataclass(frozen=True, eq=False)
class SeenUnits(Observed):
    """Units of one kind as their observation fields see them, before the coming step.

    params, state:  stack of the kind
    scene:          what the environment shows beside them: row, columns, price, minute, dt_hours, layout
    """

    params: Any
    state: Any
    scene: Any


TIME = (
    Field("time_cos", "1", -1, 1, lambda units: units.scene.row[COS]),
    Field("time_sin", "1", -1, 1, lambda units: units.scene.row[SIN]),
)
"""Clock that every unit shows among its own fields."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DeviceKind:
    """Registration of a kind of device: all that the rest of the package asks of it.

    name:          of the kind, and of its stack in parameters and states
    label:         of a unit, numbered from 0 in names of fields
    actions, idle: entries (name, low, high) of its own action space, and the values that leave a unit alone
    make:          (n_unit, dtype, **ratings) -> params
    begin:         (params, EpisodeStart) -> state
    advance:       (params, state, own action (G, n), Exogenous) -> (state, delivery, commanded power (G,) [MW])
    rating_mw:     params -> (G,) what its power is divided by where agents see it
    power:         (params, state, task) -> what it delivered last, ((G,) [MW], (G,) [MVAr]); None where the state says
    grid_fields, own_fields: what the grid's part of an observation shows of a unit, and what the unit shows of itself
    unit_state:    SeenUnits -> (G, 5), what agents of a mixed fleet see of a unit; None where no task shows it
    terms:         reward term -> UnitAccount -> (G,) [$], positive when earned
    costs:         cost channel -> delivery -> ()
    stack:         (n_unit, minutes of a step, dtype, ratings) -> params, where rows of a task hold more than ratings
    settle:        (settings, minutes, dtype) -> what the kind asks of `FeederFleet` beside its stack, by name
    padding:       values of padded rows other than 0
    stores:        has a state of charge: `state.soc`, `params.capacity_mwh`, `soc_low`, `soc_high`
    reactive:      always carries reactive power;  q_optional: its last action entry, reactive, exists when asked for
    """

    name: str
    label: str
    actions: tuple[tuple[str, float, float], ...]
    idle: tuple[float, ...]
    make: Callable[..., Any]
    begin: Callable[[Any, EpisodeStart], Any]
    advance: Callable[[Any, Any, Array, Exogenous], tuple[Any, Delivered, Array]]
    rating_mw: Callable[[Any], Array]
    power: Callable[[Any, Any, Any], tuple[Array, Array]] | None = None
    grid_fields: tuple[Field, ...] = ()
    own_fields: tuple[Field, ...] = ()
    unit_state: Callable[[SeenUnits], Array] | None = None
    terms: Mapping[str, Callable[[UnitAccount], Array]] = field(default_factory=dict)
    costs: Mapping[str, Callable[[Any], Array]] = field(default_factory=dict)
    stack: Callable[..., Any] | None = None
    settle: Callable[[Any, int, Any], dict[str, Any]] | None = None
    padding: Mapping[str, float] = field(default_factory=dict)
    stores: bool = False
    reactive: bool = False
    q_optional: bool = False
