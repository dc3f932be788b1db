"""Simulation of actions on forecasts, as Grid2Op's `obs.simulate` has it: one step of the rules that nothing keeps."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from powerzoo_jax.envs.core import Sim
from powerzoo_jax.families.operation.env import StepReport, advance
from powerzoo_jax.families.operation.rewards import terms
from powerzoo_jax.families.operation.types import GridAction, OperationParams, OperationState, Row


class Simulated(NamedTuple):
    """State after a simulated action, rho (L,) [-], terms (4,) of the reward in the order of `names.TERMS`, and flags.

    `state.end` is RUNNING but for a game over, whose rho is 0; the clock of the state is the present one.
    """

    state: OperationState
    rho: Array
    terms: Array
    report: StepReport


def simulate(sim: Sim, state: Any, action: Any, horizon: int = 1) -> Simulated:
    """Step of the rules on a forecast: what an action would do, while the episode stays where it is.

    action:   number () of the table, or a `GridAction`; under `vmap` any number of them from one state
    horizon:  row of the forecast, 0 is the present one; without forecasts the present values stay

    Maintenance that is announced opens its lines before the action, hazards and opponents are not foreseen, and the
    episode does not end. Raises ValueError where the world has no forecast as far ahead.
    """
    params: OperationParams = sim.params
    given = action if isinstance(action, GridAction) else sim.env.decode(jnp.asarray(action), params)
    row, opened = _foreseen(state, params, horizon)
    new, report = advance(
        _waited(state, params, horizon - 1), given, row, params, opened=opened, network=params.foreseen
    )
    bad = report.illegal | report.ambiguous | report.refused_dispatch
    return Simulated(new, new.flow.a_or / params.limit_a, terms(new, bad, params), report)


def _waited(state: OperationState, params: OperationParams, steps: int) -> OperationState:
    """State whose counters have moved on by some steps."""
    if steps < 1:
        return state
    more = jnp.where(state.flow.a_or > params.limit_a, steps, 0)
    return dataclasses.replace(
        state,
        cooldown_line=jnp.maximum(state.cooldown_line - steps, 0),
        cooldown_sub=jnp.maximum(state.cooldown_sub - steps, 0),
        overflow=state.overflow + more,
        engaged=state.engaged + more,
    )


def _foreseen(state: OperationState, params: OperationParams, horizon: int) -> tuple[Row, Array | None]:
    """Forecast row, and lines (L,) that maintenance has opened by then."""
    bank, forecast = params.bank, params.bank.forecast
    at = params.first_row[state.episode] + state.t
    known = {} if forecast is None else {key: x for key, x in vars(forecast).items() if x is not None}
    rows = {len(x) // len(bank.p_load) for x in known.values()} or {max(horizon, 1)}
    if not 0 <= horizon <= min(rows):
        raise ValueError(f"horizon {horizon} is beyond the forecasts of this world. Valid: 0 to {min(rows)}.")
    ahead = {key: x[min(rows) * at + horizon - 1] for key, x in known.items()} if horizon else {}
    now = {"p_unit": state.flow.gen_p, "p_load": state.p_load, "q_load": state.q_load}
    now["v_set"] = bank.v_set[0] if len(bank.v_set) == 1 else bank.v_set[at]
    none = dict.fromkeys(("out", "to_next", "left", "hazard_left"))
    if bank.to_next is None or bank.left is None or not horizon:
        return Row(**{**none, **now, **ahead}), None
    time, length = bank.to_next[at], bank.left[at]
    begins, over = time == horizon, (time != -1) & (time + length <= horizon)
    lasts = (time != -1) & (time <= horizon) & ~over & ~begins
    to_next = jnp.where(over, -1, jnp.where(lasts | begins, 0, jnp.maximum(time - horizon, -1)))
    left = jnp.where(over, 0, length - jnp.where(lasts, horizon - time, 0))
    # one that lasts hides those that begin, as Grid2Op has it
    opened = jnp.where(jnp.any(lasts), lasts, begins)
    return Row(**{**none, **now, **ahead, "to_next": to_next, "left": left}), opened
