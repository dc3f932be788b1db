"""Unit commitment in the graph: what may be switched, between which limits it then runs, and what that costs.

Nothing here optimises. A policy states an intent; the rules keep what is legal of it, so that no sequence of actions
can break a minimum time, a ramp or a limit. A step is

    on' = project_commitment(intent)  ->  output_window(on')  ->  a dispatch inside it  ->  advance_commitment
"""

from __future__ import annotations

from typing import Annotated, Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base import struct
from powerzoo_jax.base.errors import CaseError, listing
from powerzoo_jax.base.numerics import resolve_dtype
from powerzoo_jax.base.ranges import (
    BOOL,
    BUDGET,
    FINITE,
    MOST,
    NOT_NEGATIVE,
    UPPER,
    WHOLE,
    Positive,
    Range,
    axes,
    checks_ranges,
    stored,
    unchecked,
)
from powerzoo_jax.cases.commitment import CommitmentTable

STEPS = Range(1, MOST)
Numbers = Annotated[Any, axes("G"), axes()]  # of units, or one for all of them
RESERVE_SHARE = 0.05  # [-] of the load that the running units must be able to deliver beyond it


@struct.dataclass(kw_only=True)
class CommitmentRules:
    """Requirements and costs of switching a unit; a step is that of the environment.

    p_min_mw, p_max_mw:    (G,)  [MW]      range while on; off means 0
    ramp_mw:               (G,)  [MW]      largest change in a step while on, both directions
    start_mw:              (G,)  [MW]      most in the first step on, at least p_min
    stop_mw:               (G,)  [MW]      most in the last step on; infinite = may stop from any output
    min_up, min_down:      (G,)  int32     steps, at least 1
    startup_usd:           (G,)  [USD]     each start
    shutdown_usd:          (G,)  [USD]     each stop
    no_load_usd_per_hour:  (G,)  [USD/h]   while on, beside the cost of the output
    available:             (G,)  bool      False is off whatever else holds: out of service, or padding
    """

    p_min_mw: Annotated[Array, FINITE, axes("G")]
    p_max_mw: Annotated[Array, FINITE, axes("G")]
    ramp_mw: Annotated[Array, BUDGET, axes("G")]
    start_mw: Annotated[Array, UPPER, axes("G")]
    stop_mw: Annotated[Array, UPPER, axes("G")]
    min_up: Annotated[Array, STEPS, axes("G", kind=WHOLE)]
    min_down: Annotated[Array, STEPS, axes("G", kind=WHOLE)]
    startup_usd: Annotated[Array, NOT_NEGATIVE, axes("G")]
    shutdown_usd: Annotated[Array, NOT_NEGATIVE, axes("G")]
    no_load_usd_per_hour: Annotated[Array, NOT_NEGATIVE, axes("G")]
    available: Annotated[Array, axes("G", kind=BOOL)]


@struct.dataclass(kw_only=True)
class CommitmentState:
    """State of the units between two steps.

    on:     (G,)  bool
    steps:  (G,)  int32  for which they have been on, or off; 1 after the step of a change
    p_mw:   (G,)  [MW]   output of the last step
    """

    on: Annotated[Array, axes("G", kind=BOOL)]
    steps: Annotated[Array, STEPS, axes("G", kind=WHOLE)]
    p_mw: Annotated[Array, FINITE, axes("G")]


@checks_ranges("commitment_rules")
def commitment_rules(
    p_min_mw: Annotated[Any, axes("G")],
    p_max_mw: Annotated[Any, axes("G")],
    *,
    ramp_mw: Numbers | None = None,
    start_mw: Numbers | None = None,
    stop_mw: Numbers = np.inf,
    min_up: Numbers = 1,
    min_down: Numbers = 1,
    startup_usd: Numbers = 0.0,
    shutdown_usd: Numbers = 0.0,
    no_load_usd_per_hour: Numbers = 0.0,
    available: Annotated[Any, axes("G", kind=BOOL), axes(kind=BOOL)] = True,
    dtype: Any = None,
) -> CommitmentRules:
    """Rules of G units; numbers stand for all units alike.

    p_min_mw, p_max_mw:  (G,) [MW]
    ramp_mw:             [MW] in a step; None limits nothing
    start_mw:            None takes what the ramp allows, at least p_min
    dtype:               float32 (None) or float64

    Raises CaseError naming units whose limits cannot be kept: p_min outside [0, p_max], a ramp or a cost below 0, a
    start or stop below p_min, a minimum time below one step.
    """
    low, high = np.asarray(p_min_mw, np.float64), np.asarray(p_max_mw, np.float64)

    def spread(value: Any) -> np.ndarray:
        return np.broadcast_to(np.asarray(value, np.float64), low.shape)

    ramp = high if ramp_mw is None else spread(ramp_mw)
    start = np.maximum(low, ramp) if start_mw is None else spread(start_mw)
    stop, up, down = spread(stop_mw), spread(min_up), spread(min_down)
    costs = {"startup_usd": startup_usd, "shutdown_usd": shutdown_usd, "no_load_usd_per_hour": no_load_usd_per_hour}
    wide = {name: spread(value) for name, value in costs.items()}
    on = np.broadcast_to(np.asarray(available, bool), low.shape)
    _refuse("limits that are no finite numbers", ~(np.isfinite(low) & np.isfinite(high)))
    _refuse("p_min_mw outside 0..p_max_mw", ~((low >= 0) & (low <= high)) & on)
    _refuse("ramp_mw below 0", ~(ramp >= 0))
    _refuse("start_mw or stop_mw that is no number", np.isnan(start) | np.isnan(stop))
    _refuse("start_mw or stop_mw below p_min_mw", ~((start >= low) & (stop >= low)) & on)
    _refuse("min_up or min_down that is no whole number of at least 1 step", ~(_whole(up) & _whole(down)))
    for name, value in wide.items():
        _refuse(f"{name} below 0 or not finite", ~((value >= 0) & np.isfinite(value)))
    dtype = resolve_dtype(dtype)
    return CommitmentRules(
        p_min_mw=stored("p_min_mw", low, dtype),
        p_max_mw=stored("p_max_mw", high, dtype),
        ramp_mw=stored("ramp_mw", ramp, dtype),
        start_mw=stored("start_mw", start, dtype),
        stop_mw=stored("stop_mw", stop, dtype),
        min_up=jnp.asarray(up, jnp.int32),
        min_down=jnp.asarray(down, jnp.int32),
        **{name: stored(name, value, dtype) for name, value in wide.items()},
        available=jnp.asarray(on),
    )


@checks_ranges("table_rules")
def table_rules(
    table: CommitmentTable,
    dt_hours: Positive,
    *,
    available: Annotated[Any, axes("...", kind=BOOL)] = True,
    dtype: Any = None,
) -> CommitmentRules:
    """Rules of a table in hours, as `cases.commitment_table` gives it, for steps of dt_hours; times round up."""
    return commitment_rules(
        table.p_min_mw,
        table.p_max_mw,
        ramp_mw=table.ramp_mw_per_hour * dt_hours,
        min_up=_whole_steps(table.min_up_hours, dt_hours),
        min_down=_whole_steps(table.min_down_hours, dt_hours),
        startup_usd=table.startup_usd,
        no_load_usd_per_hour=table.no_load_usd_per_hour,
        available=available,
        dtype=dtype,
    )


def _whole_steps(hours: np.ndarray, dt_hours: float) -> np.ndarray:
    # 0.1 h is no whole number of binary 0.1 h: without the slack one step too many
    return np.maximum(np.ceil(hours / dt_hours - 1e-9), 1)


def _whole(steps: np.ndarray) -> np.ndarray:
    """Whole numbers of steps that int32 holds; NaN is none."""
    with np.errstate(invalid="ignore"):
        return np.asarray((steps >= 1) & (steps <= MOST) & (steps % 1 == 0))


def _refuse(what: str, bad: np.ndarray) -> None:
    if bad.any():
        raise CaseError(f"unit {listing(np.flatnonzero(bad) + 1)} with {what}. Give limits that can be kept.")


@checks_ranges("initial_commitment")
def initial_commitment(
    rules: CommitmentRules,
    p_mw: Annotated[Array, FINITE, axes("G")],
    on: Annotated[Array, axes("G", kind=BOOL)] | None = None,
) -> CommitmentState:
    """Units that may be switched at once: minimum times are over.

    p_mw:  (G,) [MW] output before the first step, brought inside the limits
    on:    (G,) bool; None runs every available unit
    """
    running = rules.available if on is None else on & rules.available
    return CommitmentState(
        on=running,
        steps=jnp.maximum(rules.min_up, rules.min_down),
        p_mw=jnp.where(running, jnp.clip(p_mw, rules.p_min_mw, rules.p_max_mw), 0),
    )


@checks_ranges("legal_commitment")
def legal_commitment(rules: CommitmentRules, state: CommitmentState) -> Array:
    """Legal states of a unit, off and on, in the next step: (G, 2) bool; one of the two always holds."""
    may_stop = (state.steps >= rules.min_up) & (state.p_mw <= rules.stop_mw)
    may_start = state.steps >= rules.min_down
    off = ~state.on | may_stop | ~rules.available
    on = (state.on | may_start) & rules.available
    return jnp.stack([off, on], axis=-1)


@checks_ranges("project_commitment")
def project_commitment(
    rules: CommitmentRules, state: CommitmentState, intent: Annotated[Array, axes("G", kind=BOOL)]
) -> tuple[Array, Array]:
    """Legal part of an intent (G,) bool: on (G,) bool, and where the intent was overridden (G,) bool.

    An illegal switch leaves the unit as it is.
    """
    legal = unchecked(legal_commitment)(rules, state)
    allowed = jnp.where(intent, legal[:, 1], legal[:, 0])
    on = jnp.where(allowed, intent, state.on & rules.available)
    return on, on != intent


@checks_ranges("output_window")
def output_window(
    rules: CommitmentRules, state: CommitmentState, on: Annotated[Array, axes("G", kind=BOOL)]
) -> tuple[Array, Array]:
    """Lower and upper limit (G,) [MW] of the step's output, given who is on (G,) bool.

    Staying on: [max(p_min, p - ramp), min(p_max, p + ramp)];  starting: [p_min, start];  off: 0.
    """
    stays = state.on & on
    low = jnp.where(stays, jnp.clip(state.p_mw - rules.ramp_mw, rules.p_min_mw, rules.p_max_mw), rules.p_min_mw)
    climbed = jnp.clip(state.p_mw + rules.ramp_mw, rules.p_min_mw, rules.p_max_mw)
    high = jnp.where(stays, climbed, jnp.minimum(rules.start_mw, rules.p_max_mw))
    return jnp.where(on, low, 0), jnp.where(on, high, 0)


@checks_ranges("advance_commitment")
def advance_commitment(
    rules: CommitmentRules,
    state: CommitmentState,
    on: Annotated[Array, axes("G", kind=BOOL)],
    p_mw: Annotated[Array, FINITE, axes("G")],
) -> CommitmentState:
    """State after a step in which the units `on` (G,) ran at p_mw (G,)."""
    del rules
    same = on == state.on
    return CommitmentState(on=on, steps=jnp.where(same, state.steps + 1, 1), p_mw=jnp.where(on, p_mw, 0))


@checks_ranges("switching_cost")
def switching_cost(
    rules: CommitmentRules, state: CommitmentState, on: Annotated[Array, axes("G", kind=BOOL)]
) -> tuple[Array, Array]:
    """Cost of the step's starts and of its stops, (G,) [USD] each."""
    starts = jnp.where(on & ~state.on, rules.startup_usd, 0)
    return starts, jnp.where(state.on & ~on, rules.shutdown_usd, 0)


@checks_ranges("no_load_cost")
def no_load_cost(rules: CommitmentRules, on: Annotated[Array, axes("G", kind=BOOL)]) -> Array:
    """Cost of running at all, (G,) [USD/h]."""
    return jnp.where(on, rules.no_load_usd_per_hour, 0)


@checks_ranges("reserve_shortfall")
def reserve_shortfall(
    rules: CommitmentRules,
    on: Annotated[Array, axes("G", kind=BOOL)],
    load_mw: Annotated[Array, FINITE, axes()],
    share: Annotated[float | Array, NOT_NEGATIVE, axes()] = RESERVE_SHARE,
) -> Array:
    """Shortfall of the capacity on the bars against the load and its reserve, () [MW]: [(1 + s) load - sum p_max]+."""
    capacity = jnp.sum(jnp.where(on, rules.p_max_mw, 0))
    return jnp.maximum((1 + jnp.asarray(share, load_mw.dtype)) * load_mw - capacity, 0)
