"""Types of a transmission environment: parameters of a lane, state of an episode, info of a step."""

from __future__ import annotations

from jax import Array

from powerzoo_jax.base import EnvState, Info, struct
from powerzoo_jax.envs.core import EnvParams
from powerzoo_jax.envs.series import EpisodeStarts
from powerzoo_jax.opf.commit import CommitmentRules, CommitmentState
from powerzoo_jax.opf.offers import Offers


@struct.dataclass(kw_only=True)
class TransmissionBank:
    """Exogenous series shared by all lanes.

    load_rows:  (R, 1 + H)  [-]  load over its full value, and the same 1 to H steps ahead
    """

    load_rows: Array


@struct.dataclass(kw_only=True)
class TransmissionFlow:
    """DC flows as an affine function of unit output and total load; flows in MW.

    of_unit:  (L, G)  [-]   flow per MW of a unit
    of_load:  (L,)    [-]   flow per MW of the load, which keeps its shares of the buses
    fixed:    (L,)    [MW]  that phase shifts and shunts cause
    move:     (L, L)  [-]   as in `security.outage_excess`; None where outages are not screened
    """

    of_unit: Array
    of_load: Array
    fixed: Array
    move: Array | None = None


@struct.dataclass(kw_only=True)
class TransmissionParams(EnvParams):
    """One network with its units; `factors` is a TransmissionFlow.

    rate_mw:        (L,)    [MW]   0 = unlimited
    rules:          CommitmentRules (G,)
    offers:         Offers (G,)    true costs
    slack:          (G,)    bool   units that cover what a schedule misses
    full_load_mw:   ()      [MW]   load of a row of 1
    shunt_mw:       ()      [MW]   consumption of the shunts, beside the load
    peak_load_mw:   ()      [MW]   what observed loads are relative to; the same on every split
    unit_share:     (G,)    [-]    load of the unit's bus over the largest of any bus
    adjacent:       (G, L)  [-]    1 where a line touches the unit's bus
    voll, surplus_price: () [USD/MWh]
    starts:         Starts
    reserve_share:  ()      [-]    of the load that running units keep as reserve; None is opf.commit.RESERVE_SHARE
    """

    rate_mw: Array
    rules: CommitmentRules
    offers: Offers
    slack: Array
    full_load_mw: Array
    shunt_mw: Array
    peak_load_mw: Array
    unit_share: Array
    adjacent: Array
    voll: Array
    surplus_price: Array
    starts: EpisodeStarts
    reserve_share: Array | None = None


@struct.dataclass(kw_only=True)
class TransmissionState(EnvState):
    """State of an episode.

    units:     CommitmentState (G,)
    load_row:  ()  int32  first row of the episode in bank.load_rows
    """

    units: CommitmentState
    load_row: Array


@struct.dataclass(kw_only=True)
class TransmissionInfo(Info):
    """Info of a transmission step beside the base `Info`.

    unit_power_mw: (G,)           committed: (G,) bool
    line_flow_mw: (L,)            load_mw: () scheduled load
    unserved_mw, surplus_mw: ()   load not served, output beyond the load
    gen_cost_usd, no_load_cost_usd, startup_cost_usd, shutdown_cost_usd: ()  [USD] of the step
    overload_mw: ()               sum over branches beyond their ratings
    reserve_shortfall_mw: ()      of the capacity on the bars
    uc_overrides: () int32        intents that the rules did not allow
    """

    unit_power_mw: Array
    committed: Array
    line_flow_mw: Array
    load_mw: Array
    unserved_mw: Array
    surplus_mw: Array
    gen_cost_usd: Array
    no_load_cost_usd: Array
    startup_cost_usd: Array
    shutdown_cost_usd: Array
    overload_mw: Array
    reserve_shortfall_mw: Array
    uc_overrides: Array
