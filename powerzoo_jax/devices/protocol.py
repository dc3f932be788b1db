"""Device protocol: the sign rule, deliveries, checks of ratings, and reactive power of inverters.

SIGN: positive power is injection into the bus (generation, discharge); consumption is negative.

A device type is a module of pure functions over a unit axis G: parameters and state are pytrees of (G,) leaves,
a step takes what was commanded and returns what was delivered. Rows with `mask` False deliver nothing and cost
nothing. Commands are finite; `fleet.ActionTable` turns what is not into a no-op before it gets here.

Ratings are checked on the host and become one column per name. An inverter keeps P^2 + Q^2 <= S^2; active power has
priority.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import jax.numpy as jnp
import numpy as np
from jax import Array


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


def positive(device: str, **values: Rating) -> None:
    """Raise ValueError for a rating that is not positive."""
    for name, value in values.items():
        if not (np.asarray(value) > 0).all():
            raise ValueError(f"{device} {name} = {value} must be positive.")


def not_negative(device: str, **values: Rating) -> None:
    """Raise ValueError for a rating below zero."""
    for name, value in values.items():
        if not (np.asarray(value) >= 0).all():
            raise ValueError(f"{device} {name} = {value} must not be negative.")


def share(device: str, **values: Rating) -> None:
    """Raise ValueError for an efficiency or share outside (0, 1]."""
    for name, value in values.items():
        if not ((np.asarray(value) > 0) & (np.asarray(value) <= 1)).all():
            raise ValueError(f"{device} {name} = {value} must lie in (0, 1].")


def inverter(device: str, s_mva: Rating, power_mw: Rating, rating: str) -> None:
    """Raise ValueError for an apparent-power rating that cannot carry the active one."""
    if not (np.asarray(s_mva) >= np.asarray(power_mw)).all():
        raise ValueError(f"{device} s_mva = {s_mva} is below {rating} = {power_mw}. Raise s_mva, or lower the power.")


def columns(n_unit: int, dtype: Any, **values: Rating) -> dict[str, Array]:
    """One (G,) column per name; a single value holds for every unit.

    Raises ValueError for a list whose length is not n_unit.
    """
    made = {}
    for name, value in values.items():
        table = np.asarray(value, np.float64)
        if table.shape not in ((), (n_unit,)):
            raise ValueError(f"{name} has {table.size} values for {n_unit} units. Give one value, or one per unit.")
        made[name] = jnp.asarray(np.broadcast_to(table, n_unit), dtype)
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


def idle(like: Array) -> Delivery:
    """The delivery of a fleet that does nothing; `like` (G,) [MW] gives size and dtype."""
    nothing = jnp.zeros_like(like)
    return Delivery(nothing, nothing, nothing, nothing)
