"""Results of a power flow: the state, its proof, and a status with prose.

Here too is the excess of a solved state over its operating limits: never negative, 0 when satisfied.
"""

from __future__ import annotations

from enum import IntEnum

import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base import struct

COLLAPSE_PU = 0.5  # a solved voltage below this is a collapse of the task, not of the solver


def range_excess(x: Array, low: Array, high: Array) -> Array:
    """Distance of each value outside its range, in the unit of the values; an infinite limit is none."""
    return jnp.maximum(low - x, 0) + jnp.maximum(x - high, 0)


def loading_excess(s_pu: Array, rate_pu: Array) -> Array:
    """Apparent power beyond the rating: (L,) (L,) [pu] -> (L,) [pu]; a rating of 0 means no limit."""
    return jnp.where(rate_pu > 0, jnp.maximum(s_pu - rate_pu, 0), 0)


class Status(IntEnum):
    """Outcome of one solve."""

    CONVERGED = 0
    OUT_OF_STEPS = 1
    SINGULAR = 2
    BAD_INPUT = 3
    ISLANDED = 4


EXPLAIN = {
    Status.CONVERGED: "The power mismatch fell below the tolerance; `residual` holds a bound on what is left.",
    Status.OUT_OF_STEPS: (
        "The mismatch did not fall below the tolerance within the step budget, also not with the full Newton method "
        "in float64. Usually the load lies beyond the voltage-collapse point: scale it down, or look for a wrong unit "
        "(kW read as MW) in the case."
    ),
    Status.SINGULAR: (
        "The Jacobian lost rank and the iterate left the finite numbers: the load lies far beyond the "
        "voltage-collapse point, or an injection is orders of magnitude too large."
    ),
    Status.BAD_INPUT: (
        "An injection was not finite before the first step, or power was injected at a bus that the factors were not "
        "prepared for. The solver did not cause this: check the profiles, or name the bus in `active_bus_ids` of "
        "`prepare_feeder`."
    ),
    Status.ISLANDED: (
        "The outage cuts buses off from the slack bus, or takes the last unit of that bus, so no power flow of the "
        "whole network exists. The numbers are those of the network before the outage: mask them with the status, or "
        "shed the buses that are cut off."
    ),
}


@struct.dataclass(kw_only=True)
class PowerFlowResult:
    """Solved state of one network in per unit on its base power. Injection into the bus is positive.

    v_re, v_im:    (N,)  [pu]  rectangular bus voltages
    i_re, i_im:    (L,)  [pu]  branch currents, from -> to; 0 for a branch out of service
    p_from, q_from:(L,)  [pu]  power entering the branch at its from end
    p_loss, q_loss: ()   [pu]  sum of r |i|^2 and x |i|^2
    p_slack, q_slack: () [pu]  injection of the slack bus
    residual:      ()    [pu]  bound on the largest power mismatch over the buses
    iterations:    ()    int32
    status:        ()    int32 `Status`
    """

    v_re: Array
    v_im: Array
    i_re: Array
    i_im: Array
    p_from: Array
    q_from: Array
    p_loss: Array
    q_loss: Array
    p_slack: Array
    q_slack: Array
    residual: Array
    iterations: Array
    status: Array

    @property
    def v_pu(self) -> Array:
        """(N,) voltage magnitudes."""
        return jnp.sqrt(self.v_re * self.v_re + self.v_im * self.v_im)

    @property
    def angle_rad(self) -> Array:
        """(N,) voltage angles."""
        return jnp.arctan2(self.v_im, self.v_re)

    @property
    def converged(self) -> Array:
        """() bool."""
        return self.status == Status.CONVERGED


def explain(result: PowerFlowResult) -> str:
    """Say in prose how a solve ended, lane by lane counts when it was batched (host only)."""
    status = np.asarray(result.status)
    residual = np.asarray(result.residual)
    if status.ndim == 0:
        kind = Status(int(status))
        steps = int(np.asarray(result.iterations))
        return f"{kind.name}: residual {float(residual):.1e} pu after {steps} iterations. {EXPLAIN[kind]}"
    lines = []
    for kind in Status:
        mask = status == kind
        if mask.any():
            lines.append(f"{kind.name} in {mask.sum()} of {status.size} lanes: {EXPLAIN[kind]}")
    return "\n".join(lines)
