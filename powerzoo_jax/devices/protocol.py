"""What a device is to the rest of the package, and the one sign rule.

SIGN: positive power is injection into the bus (generation, discharge); consumption is negative.

A device type is a module of pure functions over a unit axis G: parameters and state are pytrees of (G,) leaves,
a step takes commanded power and returns what was delivered. Rows with `mask` False deliver nothing and cost nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from jax import Array


class Delivery(NamedTuple):
    """What a fleet did in one step, unit by unit.

    p_mw:           (G,)  [MW]   delivered power, positive into the bus
    undelivered_mw: (G,)  [MW]   |commanded - delivered|, the `resource` channel
    """

    p_mw: Array
    undelivered_mw: Array


class Device(Protocol):
    """The functions a device module offers."""

    def init(self, params: Any, soc: Array) -> Any:
        """State at the start of an episode."""
        ...

    def power_bounds(self, params: Any, state: Any, dt_hours: float) -> tuple[Array, Array]:
        """Feasible terminal power (low (G,), high (G,)) [MW] of the coming step."""
        ...

    def step(self, params: Any, state: Any, command_mw: Array, dt_hours: float) -> tuple[Any, Delivery]:
        """Advance one step."""
        ...
