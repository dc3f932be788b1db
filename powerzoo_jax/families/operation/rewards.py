"""Rewards of Grid2Op, in float32: redispatch, margin of lines, capacity of lines and duration of an episode."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from powerzoo_jax.base.numerics import FLOAT, safe_divide
from powerzoo_jax.families.operation.redispatch import HOURS
from powerzoo_jax.families.operation.types import DATA, RUNNING, OperationParams, OperationState

LOSSES, PREMIUM = FLOAT.type(0.05), FLOAT.type(5)  # most losses a MW of capacity, and price of redispatch over the cost
MARGIN_A = FLOAT.type(0.1)  # added to limits
OVER = -10.0  # redispatch at a game over


def terms(state: OperationState, bad: Array, params: OperationParams) -> Array:
    """Rewards (4,) of a step in the order of `names.TERMS`, from the state after it.

        redispatch  (5.05 sum Pmax c' - (sum P - sum load + 5 sum |dispatch| + sum |storage|) c) dt / sum load
        margin      sum over lines of 1 - min(I / (limit + 0.1), 1)^2
        capacity    1 - mean of rho over the lines in service
        duration    share of its steps that an episode lasted, once it is over

    with c the cost of the dearest unit that runs and c' that of the dearest there is [$/MWh].

    bad:  () whether the action was illegal, ambiguous or a refused dispatch
    """
    fleet, flow = params.fleet, state.flow
    done, failed = state.end != RUNNING, (state.end != RUNNING) & (state.end != DATA)
    gen, load = flow.gen_p.astype(FLOAT), jnp.sum(state.p_load)
    cost = jnp.max(jnp.where(gen > 0, fleet.cost, -jnp.inf), initial=-jnp.inf)
    most = (LOSSES + PREMIUM) * jnp.sum(fleet.p_max_mw) * jnp.max(fleet.cost, initial=0) * HOURS
    moved, stored = jnp.sum(jnp.abs(state.dispatch.actual)), jnp.sum(jnp.abs(state.dispatch.storage))
    paid = (jnp.sum(gen) - load + PREMIUM * moved + stored) * jnp.where(jnp.isfinite(cost), cost, 0) * HOURS
    redispatch = jnp.where(bad, 0, safe_divide(most - paid, load))
    redispatch = jnp.where(failed | (done & bad), OVER, redispatch)
    current = flow.a_or.astype(FLOAT)
    use = jnp.minimum(current / (params.limit_a + MARGIN_A), 1)
    margin = jnp.where(done, 0, jnp.sum(1 - use * use))
    lines = jnp.sum(flow.on.astype(FLOAT))
    used = jnp.clip(jnp.sum(jnp.where(flow.on, current / params.limit_a, 0)), 0, lines)
    capacity = jnp.where(bad | failed, 0, safe_divide(lines - used, lines))
    steps = params.n_step[state.episode].astype(FLOAT)
    duration = jnp.where(done, safe_divide(state.t.astype(FLOAT), steps), 0)
    return jnp.stack([jnp.where(fleet.known, redispatch, 0), margin, capacity, duration])
