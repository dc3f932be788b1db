"""Islanded data-centre microgrid: jobs, cooling, battery, sun and a diesel set on one bus, no network to solve.

Its types stand first: series, parameters, state and info of a step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base import EnvState, Info, struct
from powerzoo_jax.base.numerics import safe_divide
from powerzoo_jax.base.spaces import Field
from powerzoo_jax.devices import (
    DataCenterParams,
    DataCenterState,
    RenewableParams,
    StorageParams,
    StorageState,
    ThermalParams,
    ThermalState,
    datacenter,
    jobs,
    renewable,
    storage,
    thermal,
)
from powerzoo_jax.devices.datacenter import DataCenterDelivery, DataCenterExogenous, Order
from powerzoo_jax.devices.facility import QueueSizes
from powerzoo_jax.devices.jobs import Jobs
from powerzoo_jax.envs.constraint import replacement, unserved
from powerzoo_jax.envs.core import EnvParams, GridEnv
from powerzoo_jax.envs.observe import FieldBlock, Scene, block, field_block, name_values, observe, table
from powerzoo_jax.envs.series import Draw, EpisodeStarts
from powerzoo_jax.families.microgrid.names import CARBON_TERMS, COSTS, DROPPED, SETTLED, TERMS
from powerzoo_jax.powerflow import Status

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
    starts: EpisodeStarts


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
    """Info of a step beside the base `Info`; power in MW, all () but the reward vector.

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


ACTIONS = (
    ("train", 0.0, 1.0),
    ("finetune", 0.0, 1.0),
    ("cooling", 0.0, 1.0),
    ("battery", -1.0, 1.0),
    ("diesel", 0.0, 1.0),
)
ZONE_C, OUTDOOR_C = (15.0, 30.0), (-10.0, 50.0)  # (value observed as 0, span to 1)
ZONE_UNIT, OUTDOOR_UNIT = (f"{span:g} degC" for _, span in (ZONE_C, OUTDOOR_C))
COP_RANGE = (0.4, 0.8)  # of the chiller's factor, likewise


def _norm(name: str, value: Callable[[Scene], Array], unit: str = "1") -> Field:
    """Field in [0, 1]."""
    return Field(name, unit, 0, 1, value)


WORK = field_block(
    "load",
    (
        _norm("gpu_util", lambda scene: _gpu_util(scene.state.site, scene.params.site)),
        _norm(
            "infer_util",
            lambda scene: safe_divide(scene.state.site.infer_gpus[0], scene.params.site.infer_gpu_peak[0]),
        ),
        _norm("queue_train_fill", lambda scene: jobs.waiting(scene.state.site.train)[0] / scene.params.queue),
        _norm("queue_ft_fill", lambda scene: jobs.waiting(scene.state.site.finetune)[0] / scene.params.queue),
    ),
)
URGENCY = block(
    "queue_urgency",
    "1",
    -1,
    1,
    lambda scene: datacenter.urgency(scene.state.site, scene.state.t.astype(scene.row.dtype) * (scene.dt_hours * 60)),
)
PLANT = field_block(
    "plant",
    (
        _norm("zone_norm", lambda scene: (scene.state.site.t_zone_c[0] - ZONE_C[0]) / ZONE_C[1], ZONE_UNIT),
        _norm("outdoor_norm", lambda scene: (scene.row[OUTDOOR] - OUTDOOR_C[0]) / OUTDOOR_C[1], OUTDOOR_UNIT),
        _norm(
            "cop_ratio",
            lambda scene: (
                (
                    datacenter.chiller_cop(scene.params.site, scene.row[OUTDOOR, None])[0] / scene.params.site.cop[0]
                    - COP_RANGE[0]
                )
                / COP_RANGE[1]
            ),
        ),
        _norm("solar_cf", lambda scene: scene.row[SUN]),
        _norm("soc", lambda scene: scene.state.storage.soc[0]),
        _norm("diesel_margin", lambda scene: 1 - scene.state.diesel.p_mw[0] / scene.params.diesel.p_max_mw[0]),
    ),
)
LAST_SHARES = ("last_train", "last_finetune", "last_cooling")
FIELDS = table(
    [
        WORK,
        URGENCY,
        PLANT,
        FieldBlock("shares", LAST_SHARES, 0, 1, "1", lambda scene: scene.state.last_action[:3]),
        block("last_battery", "1", -1, 1, lambda scene: (scene.state.last_action[3:4] + 1) / 2),
        block("last_diesel", "1", 0, 1, lambda scene: scene.state.last_action[4:]),
        FieldBlock("clock", ("time_sin", "time_cos"), -1, 1, "1", lambda scene: scene.row[SIN : COS + 1]),
    ]
)
name_values(__name__)


class MicrogridSetpoints(NamedTuple):
    """An action in physical units: order (1,), battery and diesel power (1,) [MW], and the action itself (5,)."""

    order: Order
    battery_mw: Array
    diesel_mw: Array
    action: Array


class Plant(NamedTuple):
    """States of the devices after a step, and the action (5,) they followed."""

    site: DataCenterState
    storage: StorageState
    diesel: ThermalState
    action: Array


class MicrogridDispatch(NamedTuple):
    """Dispatch of the devices: the site's delivery, power (1,) [MW] each, and money and carbon (1,) of the step."""

    site: DataCenterDelivery
    sun_mw: Array
    battery_mw: Array
    diesel_mw: Array
    fuel_usd: Array
    wear_usd: Array
    carbon_kg: Array


class Balance(NamedTuple):
    """Power balance of the bus: load not served and sun not used, () each [MW]."""

    deficit_mw: Array
    spill_mw: Array


@dataclass(frozen=True)
class MicrogridEnv(GridEnv):
    """A data centre that lives on its own sun, battery and diesel set; one agent.

    Observation (18): FIELDS. Action (1, 5) in [-1, 1]: shares of the free GPUs for training and fine-tuning, cooling
    set-point (-1 lowest, 1 highest), battery (positive = discharge), diesel, each of its rating.
    Reward terms: TERMS, and those of SETTLED that `term_names` has; all in $ but CARBON_TERMS in kg. Backlog,
    settlement and SETTLED fall due in the last step: zone_heat pays for the diesel energy that would bring the room
    back to its initial temperature, stored_carbon for the carbon of that energy and of what the battery lacks.
    Cost channels: sla [jobs], overtemp [degC], power_deficit [MW], and where `cost_names` has it dropped_gpu_h
    [GPU h]: the work of jobs that never start. The episode ends at the horizon only.

    Example:
        sim = powerzoo_jax.make("dc_microgrid")
        state, obs = sim.init(jax.random.key(0))
        state, obs, reward, cost, info = sim.step(state, jnp.zeros((1, 5)))
    """

    sizes: QueueSizes
    price_misses: bool = True
    term_names: tuple[str, ...] = TERMS
    cost_names: tuple[str, ...] = COSTS

    def start(self, key: Array, drawn: Draw, params: MicrogridParams) -> tuple[MicrogridState, Array]:
        """Initial states of a given episode and its first observation."""
        store = storage.init(params.storage, drawn.soc)
        nothing = jnp.zeros((), store.soc.dtype)
        state = MicrogridState(
            t=jnp.zeros((), jnp.int32),
            key=key,
            site=datacenter.init(params.site, self.sizes),
            storage=store,
            diesel=thermal.init(params.diesel),
            soc_start=store.soc,
            last_action=jnp.zeros(self.dims.act, nothing.dtype),
            missed_jobs=nothing,
            weather_row=drawn.load_row,
            work_row=drawn.price_row,
        )
        return state, self._fields(state, params)

    def storage_mw(self, info: MicrogridInfo) -> Array:
        """Terminal power of the battery, either direction, () [MW]."""
        return jnp.abs(info.p_batt_mw)

    def decode(self, action: Array, params: MicrogridParams) -> MicrogridSetpoints:
        """(1, 5) in [-1, 1] -> set-points; a NaN starts nothing, moves nothing."""
        low = jnp.asarray([a[1] for a in ACTIONS], action.dtype)
        real = params.masks.act & jnp.isfinite(action)
        raw = jnp.clip(action, -1, 1).reshape(-1)
        scaled = jnp.where(real.reshape(-1), jnp.where(low < 0, raw, (raw + 1) / 2), 0)
        order = datacenter.command(params.site, 2 * scaled[None, :3] - 1)
        return MicrogridSetpoints(
            order, scaled[3:4] * params.storage.power_mw, scaled[4:] * params.diesel.p_max_mw, scaled
        )

    def limit(
        self, state: MicrogridState, command: MicrogridSetpoints, params: MicrogridParams
    ) -> tuple[Plant, MicrogridDispatch]:
        """Run the jobs, then battery and diesel within their limits; neither ever feeds a spill.

        What would be left over is taken from the diesel set first, then from the discharge.
        A minimum load of the diesel set may still leave a surplus, which is sun not used.
        """
        row = self._weather(state, params)
        site, served = self._run_site(state, command.order, row, params)
        sun = renewable.available(params.pv, row[SUN, None])
        low, high = storage.power_bounds(params.storage, state.storage, self.dt_hours)
        battery = jnp.clip(command.battery_mw, low, high)
        low, high = thermal.power_bounds(params.diesel, state.diesel, self.dt_hours)
        diesel = jnp.clip(thermal.whole(params.diesel, command.diesel_mw), low, high)
        surplus = jnp.maximum(sun + battery + diesel + served.p_mw, 0)
        less_diesel = jnp.minimum(surplus, diesel)
        less_battery = jnp.minimum(surplus - less_diesel, jnp.maximum(battery, 0))
        store, stored = storage.step(params.storage, state.storage, battery - less_battery, self.dt_hours)
        engine, burnt = thermal.step(params.diesel, state.diesel, diesel - less_diesel, self.dt_hours)
        plant = Plant(site, store, engine, command.action)
        return plant, MicrogridDispatch(
            served, sun, stored.p_mw, burnt.p_mw, burnt.cost_usd, stored.cost_usd, burnt.carbon_kg
        )

    def dispatch(self, state: MicrogridState, delivery: MicrogridDispatch, params: MicrogridParams) -> Array:
        """Residual power at the bus, () [MW]: negative where the load is not covered."""
        del state, params
        return jnp.sum(delivery.sun_mw + delivery.battery_mw + delivery.diesel_mw + delivery.site.p_mw)

    def flow(self, injection: Array, params: MicrogridParams) -> Balance:
        """Split the residual; a single bus has nothing to solve."""
        del params
        return Balance(jnp.maximum(-injection, 0), jnp.maximum(injection, 0))

    def account(
        self, state: MicrogridState, devices: Plant, delivery: MicrogridDispatch, flow: Balance, params: MicrogridParams
    ) -> tuple[MicrogridState, Array, Array, MicrogridInfo]:
        """Money, cost channels, clock and flags of the executed step."""
        missed = jnp.sum(delivery.site.missed_jobs)
        new = dataclasses.replace(
            state,
            t=state.t + 1,
            site=devices.site,
            storage=devices.storage,
            diesel=devices.diesel,
            last_action=devices.action,
            missed_jobs=state.missed_jobs + missed,
        )
        backlog = jnp.sum(datacenter.backlog_gpu_h(params.site, new.site, self.dt_hours))
        terms = self._terms(state, new, delivery, flow, backlog, params)
        found = {"sla": missed, "overtemp": jnp.sum(delivery.site.overtemp_c), "power_deficit": flow.deficit_mw}
        if delivery.site.dropped_gpu_h is not None:
            found[DROPPED] = jnp.sum(delivery.site.dropped_gpu_h)
        cost = jnp.stack([found[name] for name in self.cost_names])
        return new, self.weighted(terms).reshape(1), cost, self._info(new, delivery, flow, backlog, terms, params)

    def _weather(self, state: MicrogridState, params: MicrogridParams) -> Array:
        return params.bank.weather_rows[state.weather_row + jnp.minimum(state.t, params.horizon - 1)]

    def _run_site(
        self, state: MicrogridState, order: Order, row: Array, params: MicrogridParams
    ) -> tuple[DataCenterState, DataCenterDelivery]:
        """One step of the data centre with the work of the episode's trace."""
        work = params.bank.work_rows[state.work_row + jnp.minimum(state.t, params.horizon - 1)]
        minute = state.t.astype(row.dtype) * (self.dt_hours * 60)
        weather = DataCenterExogenous(row[CURVE, None] + work[:1], row[OUTDOOR, None])
        return datacenter.step(
            params.site,
            state.site,
            order,
            self.dt_hours,
            minute,
            self._arrivals(work, minute, params),
            weather,
            count_dropped=DROPPED in self.cost_names,
        )

    def _arrivals(self, work: Array, minute: Array, params: MicrogridParams) -> tuple[Jobs, Jobs]:
        """Jobs that arrive in the step of a row of work; a trace knows nothing of deadlines."""
        n_train, n_fine = self.sizes.arrivals
        cuts = np.cumsum([1, n_train, n_train, n_fine])
        train_gpus, train_min, fine_gpus, fine_min = (part[None] for part in jnp.split(work, cuts)[1:])
        site = params.site
        return (
            jobs.due(site.train, train_gpus, train_min, minute, site.slack_factor),
            jobs.due(site.finetune, fine_gpus, fine_min, minute, site.slack_factor),
        )

    def _terms(
        self,
        state: MicrogridState,
        new: MicrogridState,
        delivery: MicrogridDispatch,
        flow: Balance,
        backlog: Array,
        params: MicrogridParams,
    ) -> Array:
        """(K,) in the order of `term_names`."""
        last = state.t + 1 == params.horizon
        fleet = params.storage
        left = replacement(
            new.storage.soc, state.soc_start, fleet.capacity_mwh, params.diesel.mc_c, fleet.eta_discharge
        )
        missed = jnp.sum(delivery.site.missed_jobs)
        terms = {
            "fuel": -jnp.sum(delivery.fuel_usd),
            "degradation": -jnp.sum(delivery.wear_usd),
            "unserved_energy": unserved(params.voll, flow.deficit_mw * self.dt_hours),
            "missed_jobs": -params.sla_usd * missed,
            "backlog": jnp.where(last, -params.backlog_usd_per_gpu_h * backlog, 0),
            "settlement": jnp.where(last, jnp.sum(left), 0),
            "carbon": -jnp.sum(delivery.carbon_kg),
        }
        if set(SETTLED) & set(self.term_names):
            terms |= self._settled(state, new, last, params)
        return jnp.stack([terms[name] for name in self.term_names])

    def _settled(
        self, state: MicrogridState, new: MicrogridState, last: Array, params: MicrogridParams
    ) -> dict[str, Array]:
        """Terms of SETTLED: diesel energy, and its carbon, for what room and battery lack against the start."""
        fleet, one = params.storage, jnp.ones_like(params.diesel.mc_c)
        heat = datacenter.stored_heat_mwh(params.site, new.site.t_zone_c, self._weather(state, params)[OUTDOOR, None])
        stored = replacement(new.storage.soc, state.soc_start, fleet.capacity_mwh, one, fleet.eta_discharge)
        lacking_mwh = jnp.sum(heat) - jnp.sum(stored)
        due = {
            "zone_heat": -params.diesel.mc_c[0] * jnp.sum(heat),
            "stored_carbon": -params.diesel.carbon_kg_per_mwh[0] * lacking_mwh,
        }
        return {name: jnp.where(last, value, 0) for name, value in due.items()}

    def _info(
        self,
        new: MicrogridState,
        delivery: MicrogridDispatch,
        flow: Balance,
        backlog: Array,
        terms: Array,
        params: MicrogridParams,
    ) -> MicrogridInfo:
        row = self._weather(dataclasses.replace(new, t=new.t - 1), params)
        load = -jnp.sum(delivery.site.p_mw)
        unpaid = CARBON_TERMS if self.price_misses else (*CARBON_TERMS, "missed_jobs")
        money = jnp.sum(jnp.where(jnp.asarray([name not in unpaid for name in self.term_names]), terms, 0))
        carbon = jnp.sum(delivery.carbon_kg)
        emitted = -carbon
        if "stored_carbon" in self.term_names:
            emitted = emitted + terms[self.term_names.index("stored_carbon")]
        return MicrogridInfo(
            terminated=jnp.zeros((), bool),
            truncated=new.t >= params.horizon,
            pf_status=jnp.asarray(int(Status.CONVERGED), jnp.int32),
            pf_residual=jnp.zeros_like(load),
            legal=jnp.ones((self.dims.agent, self.dims.choice), bool),
            terms=terms.reshape(1, -1),
            p_load_mw=load,
            p_pv_mw=jnp.sum(delivery.sun_mw),
            p_pv_used_mw=jnp.sum(delivery.sun_mw) - flow.spill_mw,
            p_batt_mw=jnp.sum(delivery.battery_mw),
            p_dg_mw=jnp.sum(delivery.diesel_mw),
            power_deficit_mw=flow.deficit_mw,
            power_spill_mw=flow.spill_mw,
            unserved_energy_mwh=flow.deficit_mw * self.dt_hours,
            fuel_cost=jnp.sum(delivery.fuel_usd),
            battery_deg_cost=jnp.sum(delivery.wear_usd),
            carbon_kg=carbon,
            solar_cf=row[SUN],
            t_outdoor=row[OUTDOOR],
            t_zone=new.site.t_zone_c[0],
            pue=safe_divide(load, jnp.sum(new.site.it_mw)),
            gpu_util=_gpu_util(new.site, params.site),
            soc=new.storage.soc[0],
            sla_violations=new.missed_jobs,
            step_sla_violations=jnp.sum(delivery.site.missed_jobs),
            backlog_gpu_h=backlog,
            reward_vector=jnp.stack([-load * self.dt_hours, money, emitted]),
        )

    def _fields(self, state: MicrogridState, params: MicrogridParams) -> Array:
        """The observation at `state`, (1, O)."""
        scene = Scene(self.dt_hours, params, state, self._weather(state, params))
        return observe(self.fields, scene).reshape(1, -1)


def _gpu_util(state: DataCenterState, site: DataCenterParams) -> Array:
    """Share of the GPUs that serve or run jobs, ()."""
    return (state.infer_gpus[0] + state.job_gpus[0]) / site.n_gpus[0]
