"""What a transmission grid with feeders below it holds: parameters of a lane, state of an episode, report of a step."""

from __future__ import annotations

from flax import struct
from jax import Array

from powerzoo_jax.base import EnvState, Info
from powerzoo_jax.envs.core import EnvParams
from powerzoo_jax.envs.draw import Starts
from powerzoo_jax.envs.feeder.types import DistributionParams, DistributionState
from powerzoo_jax.envs.transmission.units_types import TransmissionFlow, TransmissionParams, TransmissionState
from powerzoo_jax.opf.dc.factors import DcOpfFactors
from powerzoo_jax.powerflow import FeederFactors


@struct.dataclass(kw_only=True)
class JointFactors:
    """What the solvers of both levels prepared.

    flow:      TransmissionFlow of units and of the load as scheduled
    of_bus:    (L, K)  [-]  flow per MW of load at each boundary bus
    feeder:    FeederFactors, the same for all feeders
    market:    DcOpfFactors of the prices
    """

    flow: TransmissionFlow
    of_bus: Array
    feeder: FeederFactors
    market: DcOpfFactors


@struct.dataclass(kw_only=True)
class JointParams(EnvParams):
    """One transmission grid with F equal feeders at K of its buses; `factors` is a JointFactors.

    transmission:   TransmissionParams  without bank and factors, which stand here
    feeder:         DistributionParams  likewise, one for all feeders
    load_share:     (N,)  [-]     of the scheduled load
    boundary_bus:   (K,)  int32   positions of the buses with feeders
    feeder_bus:     (F,)  int32   which of them each feeder hangs from
    feeder_scale:   ()    [-]     alike feeders that each stands for
    agent_bus:      (A,)  int32   bus whose price an agent sees
    voll, price_scale: () [USD/MWh]
    starts:         Starts
    """

    transmission: TransmissionParams
    feeder: DistributionParams
    load_share: Array
    boundary_bus: Array
    feeder_bus: Array
    feeder_scale: Array
    agent_bus: Array
    voll: Array
    price_scale: Array
    starts: Starts


@struct.dataclass(kw_only=True)
class Seen:
    """The last valid state of both networks.

    line_flow_mw:  (L,)            lmp:        (N,)    [USD/MWh]
    exchange_mw:   (K,)            local_v_pu: (F, S)  at the batteries
    """

    line_flow_mw: Array
    lmp: Array
    exchange_mw: Array
    local_v_pu: Array


@struct.dataclass(kw_only=True)
class JointState(EnvState):
    """State of an episode.

    transmission:  TransmissionState
    feeder:        DistributionState, every leaf (F, ...)
    seen:          Seen
    failed:        ()  bool  a feeder has failed: the episode is over
    """

    transmission: TransmissionState
    feeder: DistributionState
    seen: Seen
    failed: Array


@struct.dataclass(kw_only=True)
class JointInfo(Info):
    """What a joint step reports beside the base `Info`; of alike feeders, one.

    unit_power_mw: (G,)     line_flow_mw: (L,)     lmp: (N,) [USD/MWh] of the optimal dispatch of this load
    load_mw: ()             of the transmission grid, feeders as they drew
    exchange_mw: (K,)       drawn by all feeders of a boundary bus
    boundary_mismatch_pu: () largest difference of that and load, losses and batteries below, on the base power above
    unserved_mw, surplus_mw, overload_mw: ()       gen_cost_usd: () [USD] of the step
    p_loss_mw: (F,)         v_min_pu, v_max_pu: () extreme voltages of all feeders
    battery_mw: (F, S)      soc: (F, S) after the step
    collapsed: () bool      opf_status: () int32 `OpfStatus` of the prices
    """

    unit_power_mw: Array
    line_flow_mw: Array
    lmp: Array
    load_mw: Array
    exchange_mw: Array
    boundary_mismatch_pu: Array
    unserved_mw: Array
    surplus_mw: Array
    overload_mw: Array
    gen_cost_usd: Array
    p_loss_mw: Array
    v_min_pu: Array
    v_max_pu: Array
    battery_mw: Array
    soc: Array
    collapsed: Array
    opf_status: Array
