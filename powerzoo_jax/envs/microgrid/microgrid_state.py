"""What a data-centre microgrid is made of: its series, parameters, state and report."""

from __future__ import annotations

from flax import struct
from jax import Array

from powerzoo_jax.base import EnvState, Info
from powerzoo_jax.devices import (
    DataCenterParams,
    DataCenterState,
    RenewableParams,
    StorageParams,
    StorageState,
    ThermalParams,
    ThermalState,
)
from powerzoo_jax.envs.core import EnvParams
from powerzoo_jax.envs.draw import Starts

WEATHER_FIELDS = ("solar_cf", "t_outdoor_c", "time_sin", "time_cos", "infer_curve")
SUN, OUTDOOR, SIN, COS, CURVE = range(len(WEATHER_FIELDS))


@struct.dataclass(kw_only=True)
class MicrogridBank:
    """Exogenous series shared by all lanes; an episode reads as many rows from its start as it has steps.

    weather_rows:  (R_w, 5)  sun, weather, clock and the expected use of the inference GPUs: WEATHER_FIELDS
    work_rows:     (R_t, 1 + 2 M_t + 2 M_f)  traces of work: use of the inference GPUs beside the expected one, then
                             GPUs and durations [min] of arriving jobs to train, and of jobs to fine-tune
    """

    weather_rows: Array
    work_rows: Array


@struct.dataclass(kw_only=True)
class MicrogridParams(EnvParams):
    """One plant and where its episodes start; every fleet has one unit, G = 1.

    site:      DataCenterParams    storage: StorageParams    pv: RenewableParams    diesel: ThermalParams
    voll:      ()  [$/MWh]         sla_usd: ()  [$/job]      backlog_usd_per_gpu_h: ()
    queue:     ()  jobs that a full queue holds, which scales the observed filling
    starts:    Starts, `load_row` in the weather, `price_row` in the traces of work
    """

    site: DataCenterParams
    storage: StorageParams
    pv: RenewableParams
    diesel: ThermalParams
    voll: Array
    sla_usd: Array
    backlog_usd_per_gpu_h: Array
    queue: Array
    starts: Starts


@struct.dataclass(kw_only=True)
class MicrogridState(EnvState):
    """State of an episode.

    site, storage, diesel:  states of the devices, (1,)
    soc_start:     (1,)  [-]     state of charge at reset, for the settlement
    last_action:   (5,)          what was ordered last, in the units of ACTIONS
    missed_jobs:   ()    [jobs]  since reset
    weather_row, work_row: () int32  first rows of the episode in the bank
    """

    site: DataCenterState
    storage: StorageState
    diesel: ThermalState
    soc_start: Array
    last_action: Array
    missed_jobs: Array
    weather_row: Array
    work_row: Array


@struct.dataclass(kw_only=True)
class MicrogridInfo(Info):
    """What a step reports beside the base `Info`; power in MW, all () but the reward vector.

    p_load_mw, p_pv_mw (offered), p_pv_used_mw, p_batt_mw, p_dg_mw, power_deficit_mw, power_spill_mw
    unserved_energy_mwh, fuel_cost [$], battery_deg_cost [$], carbon_kg
    solar_cf, t_outdoor, t_zone [degC], pue, gpu_util, soc
    sla_violations, step_sla_violations [jobs] since reset and in the step; backlog_gpu_h [GPU h]
    reward_vector: (3,)  minus energy used [MWh], minus money [$], minus carbon [kg]
    """

    p_load_mw: Array
    p_pv_mw: Array
    p_pv_used_mw: Array
    p_batt_mw: Array
    p_dg_mw: Array
    power_deficit_mw: Array
    power_spill_mw: Array
    unserved_energy_mwh: Array
    fuel_cost: Array
    battery_deg_cost: Array
    carbon_kg: Array
    solar_cf: Array
    t_outdoor: Array
    t_zone: Array
    pue: Array
    gpu_util: Array
    soc: Array
    sla_violations: Array
    step_sla_violations: Array
    backlog_gpu_h: Array
    reward_vector: Array
