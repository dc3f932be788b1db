"""Security of a DC flow against the loss of one branch, as a cost."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array, lax

N_MINUS_1 = "n_minus_1"
"""Name of the cost channel."""


def outage_excess(move: Array, rate_mw: Array, flow_mw: Array) -> Array:
    """Largest total overload of the network with all branches and after the loss of any one, () [MW].

    max_k sum_l [|f_l + move_kl f_k| - rate_l]+,   move_kl = LODF_lk, and 0 for an outage that is not screened

    move:     (L, L)  [-]   row k: what each flow takes over of the flow of the lost branch k
    rate_mw:  (L,)    [MW]  0 = unlimited
    flow_mw:  (L,)    [MW]
    """
    limit = jnp.where(rate_mw > 0, rate_mw, jnp.inf)

    # line by line, for all outages at once: the sums then lie side by side, and nothing of size L^2 is stored
    def add(excess: Array, line: tuple[Array, Array, Array]) -> tuple[Array, None]:
        flow, moved, most = line
        return excess + jnp.maximum(jnp.abs(flow + moved * flow_mw) - most, 0), None

    worst, _ = lax.scan(add, jnp.zeros_like(flow_mw), (flow_mw, move.T, limit))
    return jnp.maximum(jnp.max(worst, initial=0), jnp.sum(jnp.maximum(jnp.abs(flow_mw) - limit, 0)))
