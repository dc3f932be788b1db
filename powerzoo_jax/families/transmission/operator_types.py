"""Types of a transmission grid under one operator: parameters of a lane, state of an episode, info of a step."""

from __future__ import annotations

from typing import NamedTuple

from jax import Array

from powerzoo_jax.base import EnvState, Info, struct
from powerzoo_jax.envs.core import EnvParams
from powerzoo_jax.envs.series import EpisodeStarts
from powerzoo_jax.opf.ac.factors import AcOpfFactors
from powerzoo_jax.opf.commit import CommitmentRules
from powerzoo_jax.opf.dc.factors import DcOpfFactors
from powerzoo_jax.opf.offers import Offers
from powerzoo_jax.powerflow import MeshedFactors, ReactiveLimits, SwitchLoops


@struct.dataclass(kw_only=True)
class GridBank:
    """Exogenous series shared by all lanes.

    load_rows:  (R, 5)  load over its full value, time_sin, time_cos, its running sum as two floats
    """

    load_rows: Array


@struct.dataclass(kw_only=True)
class Switches:
    """Branches that the operator opens and closes, S of them.

    loops:   SwitchLoops
    across:  (L, S)  [-]  flow per power that enters at one end of a switch and leaves at the other
    """

    loops: SwitchLoops
    across: Array


@struct.dataclass(kw_only=True)
class ReactiveRanges:
    """Reactive limits of the buses that hold their voltage, summed over the units in service of each.

    pv:                        ReactiveLimits  kept by the power flow
    slack_q_min, slack_q_max:  () [pu]         of the reference bus, which is left to hold its voltage beyond them
    """

    pv: ReactiveLimits
    slack_q_min: Array
    slack_q_max: Array


@struct.dataclass(kw_only=True)
class GridFactors:
    """Factors that the solvers of a mode prepared; None where the mode has no use for it.

    dc:        DcOpfFactors  also the flows of DC modes
    meshed:    MeshedFactors
    reactive:  ReactiveRanges  where the power flow keeps them
    ac:        AcOpfFactors
    switches:  Switches
    move:      (L, L)  [-]   as in `security.outage_excess`
    """

    dc: DcOpfFactors
    meshed: MeshedFactors | None = None
    reactive: ReactiveRanges | None = None
    ac: AcOpfFactors | None = None
    switches: Switches | None = None
    move: Array | None = None


@struct.dataclass(kw_only=True)
class TransGridParams(EnvParams):
    """One network with its units; `factors` is a GridFactors; `bank.load_rows` has the columns above.

    rules:          CommitmentRules (G,)  limits and who is in service
    offers:         Offers (G,)    true costs
    slack:          (G,)    bool   units at the reference bus, which cover what is missing
    slack_bus:      ()      int32  position of that bus
    bus_id:         (N,)    int32  external ids
    load_share:     (N,)    [-]    of the load
    reactive_share: (N,)    [-]    reactive load of a bus per MW of the whole load
    full_load_mw, shunt_mw, peak_load_mw: () [MW]
    voll, surplus_price: () [USD/MWh]
    starts:         Starts
    """

    rules: CommitmentRules
    offers: Offers
    slack: Array
    slack_bus: Array
    bus_id: Array
    load_share: Array
    reactive_share: Array
    full_load_mw: Array
    shunt_mw: Array
    peak_load_mw: Array
    voll: Array
    surplus_price: Array
    starts: EpisodeStarts


class Electrical(NamedTuple):
    """Electrical state that an observation shows: use of the lines (L,) [-] and output of the units (G,) [MW]."""

    line_use: Array
    p_mw: Array


@struct.dataclass(kw_only=True)
class TransGridState(EnvState):
    """State of an episode.

    load_row:  ()    int32  first row of the episode
    closed:    (S,)  bool   switches
    seen:      Electrical   of the last valid step
    failed:    ()    bool   a solve has failed: the episode is over
    """

    load_row: Array
    closed: Array
    seen: Electrical
    failed: Array


@struct.dataclass(kw_only=True)
class TransGridInfo(Info):
    """Info of a step beside the base `Info`.

    unit_power_mw: (G,)         with what the slack units cover
    line_flow_mw: (L,)          entering at the from end;  line_loading_mva: (L,) the larger end, MW in DC
    vm_pu, va_rad: (N,)         1 and 0 in DC modes, which solve for flows alone
    lmp: (N,) [USD/MWh]         0 where `lmp_available` is False
    load_mw, p_loss_mw, unserved_mw, surplus_mw, overload_mw: ()
    gen_cost_usd: ()            of the step
    p_slack_mw, q_slack_mvar: () net injection of the reference bus
    at_q_limit: (N,) int32      -1 and 1 at buses that gave up their voltage at the lower and upper reactive limit of
                                their units, 0 at the others and where limits are not enforced; (0,) in DC modes
    closed: (S,) bool           switches;  switch_overrides: () int32 requests that would have cut buses off
    pf_iterations: () int32     opf_status: () int32 `OpfStatus`, OPTIMAL without an OPF
    """

    unit_power_mw: Array
    line_flow_mw: Array
    line_loading_mva: Array
    vm_pu: Array
    va_rad: Array
    lmp: Array
    lmp_available: Array
    load_mw: Array
    p_loss_mw: Array
    unserved_mw: Array
    surplus_mw: Array
    overload_mw: Array
    gen_cost_usd: Array
    p_slack_mw: Array
    q_slack_mvar: Array
    at_q_limit: Array
    closed: Array
    switch_overrides: Array
    pf_iterations: Array
    opf_status: Array
