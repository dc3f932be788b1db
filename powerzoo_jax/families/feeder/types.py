"""Parameters, state and info of the environment of a balanced feeder with devices.

Each has a field for every kind of the registry, called as the kind: `params.storage`, `state.storage`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jax import Array

from powerzoo_jax.base import EnvState, Info, struct
from powerzoo_jax.devices.registry import final_kinds
from powerzoo_jax.envs.core import EnvParams
from powerzoo_jax.envs.series import EpisodeStarts


class OfKinds:
    """Base of dataclasses with one more field for every registered kind of device, None where there is none of it.

    The fields follow from the registry when a subclass is made, so that a new kind needs no line here.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for kind in final_kinds():
            if not hasattr(cls, kind):
                cls.__annotations__[kind] = "Any"
                setattr(cls, kind, None)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


@struct.dataclass(kw_only=True)
class DistributionParams(EnvParams, OfKinds):
    """One feeder, its devices and where its episodes start.

    storage, renewable, ...: stack of each kind over its own units, None where the feeder lacks the kind
    place_bus:     (G, N)  device-bus incidence, all units in their order
    place_active:  (G, a)  the same on the buses that inject
    p_load, q_load:(a,)    [pu] nominal load of the buses that inject
    load_ratio:    ()      [-]  scales the load factors of the bank
    load_mw:       ()      [MW] nominal load of the feeder
    peak_mw:       ()      [MW] what observed loads are divided by: the same on every split of a task
    voll:          ()      [$/MWh]
    starts:        Starts
    unit_p, unit_q: (a,) [pu]                what the case's own units deliver, at all times; None without any
    shape_bus, shape_active: (Z, N), (Z, a)  share of the load that follows each load shape; None with one shape
    shape_mw:      (Z,)    [MW] nominal load that follows each shape; None with one shape
    flex_p_mw, flex_q_mvar: (F,)  nominal load at the bus of each flexible load; None without any
    flex_shape:    (Z, F)  the shapes that it follows; None with one shape
    trip_factor:   (Q,)    [-]  quantiles of the factor on a trip's energy; None without vehicles
    miss_usd:      ()      [$]  of a job that misses its deadline; None without data centres
    target_pue:    ()      [-]  below which the bonus on the power usage effectiveness starts; None without data centres
    target_soc:    ()      [-]  state of charge that shaping asks for; None without shaping
    median_per_mwh: ()     [$/MWh]  median price of the days of training; None where no observation is relative to it
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
    unit_p: Array | None = None
    unit_q: Array | None = None
    shape_bus: Array | None = None
    shape_active: Array | None = None
    shape_mw: Array | None = None
    flex_p_mw: Array | None = None
    flex_q_mvar: Array | None = None
    flex_shape: Array | None = None
    trip_factor: Array | None = None
    miss_usd: Array | None = None
    target_pue: Array | None = None
    target_soc: Array | None = None
    median_per_mwh: Array | None = None


@struct.dataclass(kw_only=True)
class DistributionState(EnvState, OfKinds):
    """State of an episode; the stacks are those of the parameters.

    soc_start:  (S,)  [-]   state of charge at reset, kind after kind as `fleet.charge_of`, for the settlement
    load_row:   ()    int32 first row of the episode in bank.load_rows
    price_row:  ()    int32 the same in bank.price_rows
    failed:     ()    bool  a power flow has failed: the episode is over
    """

    soc_start: Array
    load_row: Array
    price_row: Array
    failed: Array


@struct.dataclass(kw_only=True)
class DistributionInfo(Info, OfKinds):
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
    renewable, flexload, ...: what each stack reports beside power; None where there is none
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
