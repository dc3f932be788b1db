"""Types of the operation of a grid: rules, series, parameters, actions, state and information of a step.

Shapes: L line, S substation, G unit, D load, B storage, E element with a busbar, in the order from ends (L), to ends
(L), units, loads, storages; R rows of all episodes, M actions of the table. What the worlds of Grid2Op keep in float32
is float32 here in programs of either float type, so that thresholds are met in the same step.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from powerzoo_jax.base import EnvState, Info, struct
from powerzoo_jax.envs.core import EnvParams
from powerzoo_jax.envs.series import EpisodeStarts

RUNNING, DATA, ISLAND, DIVERGENCE, REDISPATCH = range(5)  # how an episode ended
ENDS = ("running", "data", "island", "divergence", "redispatch")


@struct.dataclass(kw_only=True)
class GridAction:
    """One action on every element of a grid.

    set_line:     (L,) int8  -1 out, 1 in, 0 as it is      switch_line: (L,) bool
    set_busbar:   (E,) int8  -1 out, 1, 2, 0 as it is      change_busbar: (E,) bool
    redispatch:   (G,) [MW]  change of the target          curtail: (G,) [-] share of Pmax, -1 as it is
    storage:      (B,) [MW]  charging is positive
    """

    set_line: Array
    switch_line: Array
    set_busbar: Array
    change_busbar: Array
    redispatch: Array
    curtail: Array
    storage: Array


@struct.dataclass(kw_only=True)
class Rules:
    """Rules of a world, () each unless a shape is given.

    hard, soft:       [-]  current over limit beyond which a line opens at once, and beyond which steps are counted
    allowed_steps:    int32  steps beyond `soft` that a line stands; it opens in the next one
    protected:        bool   lines open by overload at all
    reconnection, cooldown_line, cooldown_sub: int32  steps that a line or substation is locked after a trip, an action
    max_lines, max_subs: int32  lines and substations that an action may touch in each area
    area:             (A, S) bool  substations of each area; a line belongs to the area of its from end
    unchecked:        bool   every action is legal
    storage_loss:     bool   storages lose energy at rest and by their efficiencies
    storage_start:    [-]    state of charge at reset
    """

    hard: Array
    soft: Array
    allowed_steps: Array
    protected: Array
    reconnection: Array
    cooldown_line: Array
    cooldown_sub: Array
    max_lines: Array
    max_subs: Array
    area: Array
    unchecked: Array
    storage_loss: Array
    storage_start: Array


@struct.dataclass(kw_only=True)
class Fleet:
    """Characteristics of units and storages, float32.

    p_max_mw, p_min_mw, ramp_up_mw, ramp_down_mw: (G,) [MW], ramps a step     cost: (G,) [$/MWh]
    redispatchable, renewable: (G,) bool      known: () bool, whether the world says all this of its units
    e_max_mwh, e_min_mwh: (B,) [MWh]          produced_mw, absorbed_mw: (B,) [MW] largest power of both directions
    loss_mw: (B,) [MW] at rest                charging, discharging: (B,) [-] efficiencies
    """

    p_max_mw: Array
    p_min_mw: Array
    ramp_up_mw: Array
    ramp_down_mw: Array
    cost: Array
    redispatchable: Array
    renewable: Array
    known: Array
    e_max_mwh: Array
    e_min_mwh: Array
    produced_mw: Array
    absorbed_mw: Array
    loss_mw: Array
    charging: Array
    discharging: Array


@struct.dataclass(kw_only=True)
class EpisodeRows:
    """EpisodeRows of all episodes one after another; an episode of n rows has n - 1 steps, its row 0 is met at reset.

    p_unit, p_load, q_load: (R, G), (R, D), (R, D) [MW, Mvar] float32, no NaN
    v_set:        (R, S) or (1, S) [pu]  magnitudes that the units of a substation hold
    out:          (R, L) bool    maintenance or hazard; None where no episode has any
    to_next, left: (R, L) int32  steps to the next maintenance (-1 none, 0 while it lasts) and its remaining duration
    hazard_left:  (R, L) int32   steps that a hazard still lasts; None where no episode has any
    forecast:     the same p_unit, p_load, q_load (and v_set) with K rows for each row, (R K, ..), of horizons 1 to K;
                  None without forecasts
    clock:        (R, 2) [-]     sine and cosine of the time of day
    load_left:    (R,) [MW]      sum of all loads over this and the later rows up to the last step of its episode
    """

    p_unit: Array
    p_load: Array
    q_load: Array
    v_set: Array
    clock: Array
    load_left: Array
    out: Array | None = None
    to_next: Array | None = None
    left: Array | None = None
    hazard_left: Array | None = None
    forecast: Forecast | None = None


@struct.dataclass(kw_only=True)
class Forecast:
    """Forecast rows (R K, ..) as in `EpisodeRows`; what is None is forecast to stay as it is."""

    p_unit: Array | None = None
    p_load: Array | None = None
    q_load: Array | None = None
    v_set: Array | None = None


class Row(NamedTuple):
    """Row that a step meets, one of `EpisodeRows`; what is None the world has not."""

    p_unit: Array
    p_load: Array
    q_load: Array
    v_set: Array
    out: Array | None
    to_next: Array | None
    left: Array | None
    hazard_left: Array | None


class Attack(NamedTuple):
    """Lines (L,) bool that an opponent holds open in a step, and the steps () int32 that it goes on."""

    lines: Array
    duration: Array


@struct.dataclass(kw_only=True)
class OperationParams(EnvParams):
    """Parameters of a world; `factors` is its `TopologyNetwork`, `bank` has `EpisodeRows`, `horizon` is the longest.

    limit_a:      (L,) [A] float32       amps: (L,) [A] of a current of 1 pu at the from end
    sub:          (E,) int32  position of the substation of each element
    place:        (E,) int32  position of each element in the topology vector of Grid2Op
    kv:           (S,) [kV]   nominal voltage
    q_storage:    (B,) [Mvar] fixed reactive power of storages, consumption
    p_fixed, q_fixed: (F,) [MW, Mvar] consumption of loads without topology, which follow the loads in `factors`
    table:        GridAction with a leading axis M: the actions that there are; row 0 does nothing
    first_row, n_step: (Q,) int32  of each episode; n_step = rows - 1, or fewer where max_steps cuts it
    reach:        `topology.reach` of the table
    foreseen:     `TopologyNetwork` of `simulate`; None where it is `factors`
    opponent:     parameters of `operation.opponent`; None without one
    """

    rules: Rules
    fleet: Fleet
    limit_a: Array
    amps: Array
    sub: Array
    place: Array
    kv: Array
    q_storage: Array
    p_fixed: Array
    q_fixed: Array
    table: GridAction
    first_row: Array
    n_step: Array
    reach: Any
    foreseen: Any = None
    opponent: Any = None

    @property
    def starts(self) -> EpisodeStarts:
        """Numbers of the episodes, which `Draw.load_row` is one of."""
        n = self.n_step.shape[0]
        one = jnp.ones(n, jnp.int32)
        number, count = jnp.arange(n, dtype=jnp.int32), jnp.asarray(n, jnp.int32)
        return EpisodeStarts(load_row=number, n_start=count, price_row=jnp.zeros((n, 1), jnp.int32), pair_count=one)


@struct.dataclass(kw_only=True)
class DispatchState:
    """State of redispatch, curtailment and storages, float32 but for flags.

    target, actual: (G,) [MW] dispatch asked for and reached      ordered: (G,) bool, ever
    scheduled:      (G,) [MW] last set-points with dispatch
    limit:          (G,) [-]  limit of curtailment as share of Pmax, 1 without
    charge, storage: (B,) [MWh, MW]
    curtailed_sum, stored_sum: () [MW] sums of the last step, whose change the units balance
    """

    target: Array
    actual: Array
    ordered: Array
    scheduled: Array
    limit: Array
    charge: Array
    storage: Array
    curtailed_sum: Array
    stored_sum: Array


@struct.dataclass(kw_only=True)
class LineFlows:
    """Results of the last power flow, by line and unit; 0 out of service.

    on:           (L,) bool
    p_or, q_or, v_or, a_or: (L,) [MW, Mvar, kV, A] at from ends
    gen_p:        (G,) [MW]    as solved
    """

    on: Array
    p_or: Array
    q_or: Array
    v_or: Array
    a_or: Array
    gen_p: Array


@struct.dataclass(kw_only=True)
class OperationState(EnvState):
    """State of an episode; t counts the steps taken, and the row last met is first_row + t.

    busbar, last:   (E,) int8   busbar of each element, 0 out, and the last one that it stood on
    cooldown_line, overflow, engaged: (L,) int32  steps locked, above the limit, above that of the protection
    cooldown_sub:   (S,) int32
    p_unit, p_load, q_load: (G,), (D,), (D,) [MW, Mvar] float32 injections last solved, dispatch included
    dispatch:       DispatchState
    flow:           LineFlows
    episode:        () int32    number of the episode           end: () int32, one of ENDS
    opponent:       state of `operation.opponent`; None without one
    """

    busbar: Array
    last: Array
    cooldown_line: Array
    cooldown_sub: Array
    overflow: Array
    engaged: Array
    p_unit: Array
    p_load: Array
    q_load: Array
    dispatch: DispatchState
    flow: LineFlows
    episode: Array
    end: Array
    opponent: Any = None


@struct.dataclass(kw_only=True)
class OperationInfo(Info):
    """Info of a step beside the base `Info`.

    rho:           (L,) [-]     current at the from end over the limit, float32
    line_status:   (L,) bool    busbar: (E,) int8
    tripped:       (L,) int32   round of the protection that opened a line, -1 none
    attacked:      (L,) bool
    illegal, ambiguous, refused_dispatch: () bool
    end:           () int32     one of ENDS
    """

    rho: Array
    line_status: Array
    busbar: Array
    tripped: Array
    attacked: Array
    illegal: Array
    ambiguous: Array
    refused_dispatch: Array
    end: Array
