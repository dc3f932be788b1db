"""Which outages matter: screening before the exact solve, and the worst of its results."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array, lax

from powerzoo_jax.powerflow.contingency.factors import OutageFactors
from powerzoo_jax.powerflow.contingency.result import OutageResult
from powerzoo_jax.powerflow.dc.outages import DcOutages, worst_outage_loading, worst_unit_outage_loading
from powerzoo_jax.powerflow.result import Status


def screen_outages(
    outages: OutageFactors, dc: DcOutages, flow_pu: Array, count: int, p_unit_pu: Array | None = None
) -> Array:
    """Rows of the `count` outages that load a branch most under the DC approximation, worst first, (count,) int32.

    outages:    from `prepare_outages`; its ratings count      dc: from `prepare_dc_outages` of the same case
    flow_pu:    (L,) [pu] flows before any outage: of `solve_dc`, or active flows of an AC solve, which rank better
    p_unit_pu:  (G,) [pu] output of every unit; None takes the schedule of the case

    For `n_minus_1(..., only=rows)`. Voltages are not screened: keep the outages that you know to depress them.
    """
    loading, _ = worst_outage_loading(dc, flow_pu, outages.rate_pu)
    of_unit, _ = worst_unit_outage_loading(dc, flow_pu, outages.rate_pu, p_unit_pu)
    first = outages.n_outage - outages.n_unit_outage
    both = jnp.concatenate([loading[outages.branch[:first]], of_unit[outages.unit[first:]]])
    return lax.top_k(both, count)[1].astype(jnp.int32)


def worst_outages(result: OutageResult, count: int) -> Array:
    """Positions of the `count` worst outages of a result, worst first, (count,) int32.

    Outages without a solution come first (the state after them collapses), then those of the highest loading; outages
    that cut buses off come last: they are worst for known buses in every state, which `islanding` tells beforehand.
    """
    collapsed = (result.status != Status.CONVERGED) & (result.status != Status.ISLANDED)
    severity = jnp.where(collapsed, jnp.inf, result.loading)
    severity = jnp.where(result.status == Status.ISLANDED, -1.0, severity)
    return lax.top_k(severity, count)[1].astype(jnp.int32)
