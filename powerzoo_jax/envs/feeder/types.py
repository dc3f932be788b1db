"""Parameters, state and info of the environment of a balanced feeder with devices."""

from __future__ import annotations

from flax import struct
from jax import Array

from powerzoo_jax.base import EnvState, Info
from powerzoo_jax.devices import (
    DataCenterParams,
    DataCenterState,
    FlexLoadParams,
    FlexLoadState,
    RenewableParams,
    RenewableState,
    StorageParams,
    StorageState,
    VehicleParams,
    VehicleState,
)
from powerzoo_jax.devices.datacenter import DataCenterDelivery
from powerzoo_jax.devices.flexload import FlexLoadDelivery
from powerzoo_jax.devices.renewable import RenewableDelivery
from powerzoo_jax.devices.vehicle import VehicleDelivery
from powerzoo_jax.envs.core import EnvParams
from powerzoo_jax.envs.series import EpisodeStarts


@struct.dataclass(kw_only=True)
class DeviceStacks:
    """Devices of a grid by kind, each stack over its own units, and what goes with them; None where there are none.

    flex_p_mw, flex_q_mvar: (F,)  nominal load at the bus of each flexible load
    flex_shape:  (Z, F)  load shapes that it follows; None with one shape
    trip_factor: (Q,)    [-]  quantiles of the factor on a trip's energy
    """

    storage: StorageParams | None = None
    renewable: RenewableParams | None = None
    flexload: FlexLoadParams | None = None
    vehicle: VehicleParams | None = None
    datacenter: DataCenterParams | None = None
    flex_p_mw: Array | None = None
    flex_q_mvar: Array | None = None
    flex_shape: Array | None = None
    trip_factor: Array | None = None


@struct.dataclass(kw_only=True)
class DeviceStates:
    """States of the stacks of `DeviceStacks`; None where there are none."""

    storage: StorageState | None = None
    renewable: RenewableState | None = None
    flexload: FlexLoadState | None = None
    vehicle: VehicleState | None = None
    datacenter: DataCenterState | None = None


@struct.dataclass(kw_only=True)
class DistributionParams(DeviceStacks, EnvParams):
    """One feeder, its devices and where its episodes start.

    place_bus:     (G, N)  device-bus incidence, all units in the order of the roster
    place_active:  (G, a)  the same on the buses that inject
    p_load, q_load:(a,)    [pu] nominal load of the buses that inject
    load_ratio:    ()      [-]  scales the load factors of the bank
    load_mw:       ()      [MW] nominal load of the feeder
    peak_mw:       ()      [MW] what observed loads are divided by: the same on every split of a task
    voll:          ()      [$/MWh]
    starts:        Starts
    shape_bus, shape_active: (Z, N), (Z, a)  share of the load that follows each load shape; None with one shape
    shape_mw:      (Z,)    [MW] nominal load that follows each shape; None with one shape
    miss_usd:      ()      [$]  of a job that misses its deadline; None without data centres
    target_pue:    ()      [-]  below which the bonus on the power usage effectiveness starts; None without data centres
    target_soc:    ()      [-]  state of charge that shaping asks for; None without shaping
    """

    place_bus: Array
    place_active: Array
    p_load: Array
    q_load: Array
    load_ratio: Array
    load_mw: Array
    peak_mw: Array
    voll: Array
    starts: EpisodeStarts
    shape_bus: Array | None = None
    shape_active: Array | None = None
    shape_mw: Array | None = None
    miss_usd: Array | None = None
    target_pue: Array | None = None
    target_soc: Array | None = None


@struct.dataclass(kw_only=True)
class DistributionState(DeviceStates, EnvState):
    """State of an episode; the stacks are those of the parameters.

    soc_start:  (S,)  [-]   state of charge at reset of storage, then of vehicles, for the settlement
    load_row:   ()    int32 first row of the episode in bank.load_rows
    price_row:  ()    int32 the same in bank.price_rows
    failed:     ()    bool  a power flow has failed: the episode is over
    """

    soc_start: Array
    load_row: Array
    price_row: Array
    failed: Array


@struct.dataclass(kw_only=True)
class DistributionInfo(Info):
    """Info of a feeder step beside the base `Info`; power in MW.

    pf_iterations: () int32       p_slack_mw, q_slack_mvar: () feeder-head exchange
    p_loss_mw: ()                 v_min_pu, v_max_pu: ()     extreme solved voltages
    collapsed: () bool            a solved voltage below 0.5 pu
    price_per_mwh: () [$/MWh]     price of the executed step
    soc: (S,)                     state of charge after the step, storage and then vehicles
    p_mw, command_mw: (G,)        delivered and commanded power
    local_v_pu: (G,)              voltage at the device's bus
    q_mvar: (G,)                  delivered reactive power; None where no unit has any
    vuf_percent: ()               largest voltage unbalance; None on a balanced feeder
    renewable, flexload, vehicle, datacenter: what each stack reports of the step; None where there is none
    """

    pf_iterations: Array
    p_slack_mw: Array
    q_slack_mvar: Array
    p_loss_mw: Array
    v_min_pu: Array
    v_max_pu: Array
    collapsed: Array
    price_per_mwh: Array
    soc: Array
    p_mw: Array
    command_mw: Array
    local_v_pu: Array
    q_mvar: Array | None = None
    vuf_percent: Array | None = None
    renewable: RenewableDelivery | None = None
    flexload: FlexLoadDelivery | None = None
    vehicle: VehicleDelivery | None = None
    datacenter: DataCenterDelivery | None = None
