"""What a device is to the rest of the package, and the one sign rule.

SIGN: positive power is injection into the bus (generation, discharge); consumption is negative.

A device type is a module of pure functions over a unit axis G: parameters and state are pytrees of (G,) leaves,
a step takes what was commanded and returns what was delivered. Rows with `mask` False deliver nothing and cost
nothing. Commands are finite; `fleet.ActionTable` turns what is not into a no-op before it gets here.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import jax.numpy as jnp
from jax import Array


class Delivery(NamedTuple):
    """What a fleet did in one step, unit by unit.

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
    """The functions a device module offers. `outside` is what the step meets: availability, load, clock, arrivals."""

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
