"""Data centres in operation: job scheduling, IT and cooling power, and room temperature, over a unit axis."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from powerzoo_jax.base import Purpose, purpose_key, struct
from powerzoo_jax.base.numerics import safe_divide
from powerzoo_jax.base.spaces import Field
from powerzoo_jax.devices import facility, jobs
from powerzoo_jax.devices.facility import DataCenterParams, QueueSizes, datacenter_params
from powerzoo_jax.devices.jobs import Jobs, Pool
from powerzoo_jax.devices.protocol import TIME, DeviceKind, EpisodeStart, Exogenous, SeenUnits, UnitAccount

INFER, OUTDOOR = "infer_util", "outdoor_c"  # columns of a load table
BACKLOG_USD_PER_GPU_H = 1.0  # of work left at the horizon

SUBSTEP_MIN = 5  # longest step of the temperature's integration
URGENCY_SPAN = 5.0  # durations of slack that count as no urgency at all
HOT_DAY_C = 35.0  # outdoor temperature of the design day that scales cooling power

ACTIONS = (("train", -1.0, 1.0), ("finetune", -1.0, 1.0), ("cooling", -1.0, 1.0))
IDLE = (0.0, 0.0, 0.0)


@struct.dataclass(kw_only=True)
class DataCenterState:
    """State of a fleet of data centres: jobs, temperature and the use of the last step.

    train, finetune:  Pool
    t_zone_c:         (G,)  [degC]
    t_set_c:          (G,)  [degC]  set-point of the last step, the middle of its range at reset
    infer_gpus:       (G,)          serving, and running jobs, in the last step
    job_gpus:         (G,)
    it_mw, cool_mw:   (G,)  [MW]
    """

    train: Pool
    finetune: Pool
    t_zone_c: Array
    t_set_c: Array
    infer_gpus: Array
    job_gpus: Array
    it_mw: Array
    cool_mw: Array


class DataCenterDelivery(NamedTuple):
    """A `protocol.Delivery` (nothing is undelivered, money is the task's) and the constrained quantities.

    missed_jobs:  (G,)  [jobs]  deadlines missed in the step
    overtemp_c:   (G,)  [degC]  above the critical temperature at its end
    dropped_gpu_h: (G,) [GPU h] work of the jobs that were refused, or left the queue without a start; None where it
                                is not counted
    """

    p_mw: Array
    undelivered_mw: Array
    q_mvar: Array
    cost_usd: Array
    missed_jobs: Array
    overtemp_c: Array
    dropped_gpu_h: Array | None = None


class Order(NamedTuple):
    """Command of a step, (G,) each: shares of the free GPUs for training and fine-tuning, and the set-point [degC]."""

    train_share: Array
    finetune_share: Array
    t_set_c: Array


class DataCenterExogenous(NamedTuple):
    """Exogenous inputs of a step, (G,) each: inference utilisation [0, 1] and outdoor temperature [degC]."""

    infer_util: Array
    t_outdoor_c: Array


def init(params: DataCenterParams, sizes: QueueSizes) -> DataCenterState:
    """No jobs, the room at its initial temperature."""
    nothing, n_unit = jnp.zeros_like(params.n_gpus), params.n_gpus.shape[0]
    return DataCenterState(
        train=jobs.empty(n_unit, sizes.queue, sizes.bins[0], nothing.dtype),
        finetune=jobs.empty(n_unit, sizes.queue, sizes.bins[1], nothing.dtype),
        t_zone_c=params.t_initial_c,
        t_set_c=(params.set_low_c + params.set_high_c) / 2,
        infer_gpus=nothing,
        job_gpus=nothing,
        it_mw=nothing,
        cool_mw=nothing,
    )


def draw_arrivals(
    key: Array, params: DataCenterParams, sizes: QueueSizes, dt_hours: float, minute: Array
) -> tuple[Jobs, Jobs]:
    """Draw the jobs (train, fine-tune) that arrive at the start of the step at `minute` () of the episode."""
    keys = jax.random.split(key)
    kinds = (params.train, params.finetune)
    train, finetune = jobs.draw((keys[0], keys[1]), kinds, sizes.arrivals, dt_hours, minute, params.slack_factor)
    return train, finetune


def command(params: DataCenterParams, action: Array) -> Order:
    """Action (G, 3) in [-1, 1] -> shares u = (a + 1) / 2 and the set-point between its limits."""
    u = (action + 1) / 2
    return Order(u[:, 0], u[:, 1], params.set_low_c + u[:, 2] * (params.set_high_c - params.set_low_c))


def step(
    params: DataCenterParams,
    state: DataCenterState,
    order: Order,
    dt_hours: float,
    minute: Array,
    arrivals: tuple[Jobs, Jobs],
    weather: DataCenterExogenous,
    *,
    force_start: bool = False,
    count_dropped: bool = False,
) -> tuple[DataCenterState, DataCenterDelivery]:
    """Queue arrivals, start what the order allows, run one step, cool the room.

    minute:       ()  start of the step on the episode's clock
    force_start:  also start jobs that would otherwise miss their deadline, as far as GPUs are free
    count_dropped: report the work of jobs that never start
    P = -(P_it (1 + aux) + P_cool). A job holds its GPUs, and draws power, to the end of the step it finishes in.
    """
    dt_minutes = dt_hours * 60
    queued = jobs.enqueue((state.train, state.finetune), arrivals)
    (train, refused_train), (finetune, refused_finetune) = queued
    upto = jobs.queued_gpus((train, finetune))
    train_gpus, finetune_gpus = jobs.row_sum(train.held_gpus), jobs.row_sum(finetune.held_gpus)
    running = train_gpus + finetune_gpus
    # running jobs are not pre-empted: inference that exceeds what they leave is not served
    serving = jnp.minimum(
        jnp.round(params.infer_gpu_peak * jnp.clip(weather.infer_util, 0, 1)), params.n_gpus - running
    )
    free = params.n_gpus - serving - running
    late = (minute, dt_minutes) if force_start else None
    from_train, taken = _chosen(train, upto[0], order.train_share, free, late)
    from_finetune, taken_too = _chosen(finetune, upto[1], order.finetune_share, free - taken, late)
    train_gpus, finetune_gpus = train_gpus + taken, finetune_gpus + taken_too
    it_mw = _it_mw(params, serving, train_gpus, finetune_gpus)
    t_set = jnp.clip(order.t_set_c, params.set_low_c, params.set_high_c)
    t_zone, cool_mw = _cool(params, state.t_zone_c, t_set, it_mw, weather.t_outdoor_c, dt_hours)
    dropped = None
    if count_dropped:
        refused = jobs.refused_gpu_h(state.train, arrivals[0]) + jobs.refused_gpu_h(state.finetune, arrivals[1])
        left = jobs.vacate(train, from_train), jobs.vacate(finetune, from_finetune)
        given_up = (jobs.expiring_gpu_h(pool, minute, dt_minutes) for pool in left)
        dropped = jnp.where(params.mask, functools.reduce(jnp.add, given_up, refused), 0)
    train, missed_train = jobs.advance(train, from_train, minute, dt_minutes, repack=force_start)
    finetune, missed_finetune = jobs.advance(finetune, from_finetune, minute, dt_minutes, repack=force_start)
    misses = refused_train + refused_finetune + missed_train + missed_finetune
    new = DataCenterState(
        train=train,
        finetune=finetune,
        t_zone_c=t_zone,
        t_set_c=t_set,
        infer_gpus=serving,
        job_gpus=train_gpus + finetune_gpus,
        it_mw=it_mw,
        cool_mw=cool_mw,
    )
    real, nothing = params.mask, jnp.zeros_like(it_mw)
    return new, DataCenterDelivery(
        p_mw=jnp.where(real, -(it_mw * (1 + params.aux_share) + cool_mw), 0),
        undelivered_mw=nothing,
        q_mvar=nothing,
        cost_usd=nothing,
        missed_jobs=jnp.where(real, misses, 0),
        overtemp_c=jnp.where(real, jnp.maximum(t_zone - params.t_critical_c, 0), 0),
        dropped_gpu_h=dropped,
    )


def _chosen(
    pool: Pool, upto: Array, share: Array, free: Array, late: tuple[Array, float] | None
) -> tuple[Array, Array]:
    """Jobs (G, Q) to start within a share of the free GPUs, and the GPUs (G,) that they take.

    late:  () start of the step and its length, to also start what would miss its deadline; None leaves it
    """
    started = jobs.choose(pool, upto, jnp.clip(share, 0, 1) * free)
    if late is not None:
        room = free - jobs.row_sum(jnp.where(started, pool.gpus, 0))
        started = started | jobs.overdue(pool, started, room, *late)
    return started, jobs.row_sum(jnp.where(started, pool.gpus, 0))


def _it_mw(params: DataCenterParams, serving: Array, train_gpus: Array, finetune_gpus: Array) -> Array:
    """Power of the GPUs and of the base load, (G,) [MW]."""
    span = params.active_w - params.idle_w
    idle = params.n_gpus - serving - train_gpus - finetune_gpus
    watts = serving * params.active_w * params.infer_eta + idle * params.idle_w
    watts = watts + train_gpus * (params.idle_w + span * params.train.eta)
    watts = watts + finetune_gpus * (params.idle_w + span * params.finetune.eta)
    return watts / 1e6 + params.base_mw


def chiller_cop(params: DataCenterParams, t_outdoor_c: Array) -> Array:
    """Heat moved per electricity, (G,): COP clip(1 - decay [T_out - T_ref]+, 0.4, 1.2)."""
    warm = jnp.maximum(t_outdoor_c - params.cop_ref_c, 0)
    return params.cop * jnp.clip(1 - params.cop_decay_per_c * warm, 0.4, 1.2)


def cooling_mw(params: DataCenterParams, heat_kw: Array, t_outdoor_c: Array) -> Array:
    """Electric power that removes heat_kw (G,) from the room, at least that of the fans, (G,) [MW]."""
    return jnp.maximum(heat_kw / (1000 * chiller_cop(params, t_outdoor_c)), params.cool_min_mw)


def _cool(
    params: DataCenterParams, t_zone: Array, t_set: Array, it_mw: Array, t_out: Array, dt_hours: float
) -> tuple[Array, Array]:
    """Temperature at the end of the step (G,) [degC] and mean cooling power (G,) [MW].

    C dT/dt = P_it air - q + h_wall (T_out - T),  q = UA [T - T_set]+, in explicit steps of 5 min at most;
    cooling power is that of the heat removed, so a longer step pays for what it cools.
    """
    count = math.ceil(dt_hours * 60 / SUBSTEP_MIN)
    floor = jnp.minimum(t_out, params.set_low_c)
    warming = 1000 * it_mw * params.air_share
    total = jnp.zeros_like(t_zone)
    for _ in range(count):
        heat = params.ua_kw_per_c * jnp.maximum(t_zone - t_set, 0)
        total = total + cooling_mw(params, heat, t_out)
        rise = (warming - heat + params.wall_kw_per_c * (t_out - t_zone)) / params.heat_kwh_per_c
        t_zone = jnp.maximum(t_zone + rise * (dt_hours / count), floor)
    return t_zone, total / count


def stored_heat_mwh(params: DataCenterParams, t_zone_c: Array, t_outdoor_c: Array) -> Array:
    """Electricity that brings the room back to its initial temperature, (G,) [MWh]; negative where it is colder.

    C (T - T_0) / (1000 COP(T_out)), what the chiller would draw for that heat in the weather of the moment
    """
    heat_mwh = params.heat_kwh_per_c * (t_zone_c - params.t_initial_c) / 1000
    return jnp.where(params.mask, heat_mwh / chiller_cop(params, t_outdoor_c), 0)


def backlog_gpu_h(params: DataCenterParams, state: DataCenterState, dt_hours: float) -> Array:
    """Work that has arrived and is not done, (G,) [GPU h]; at the horizon the task prices it."""
    both = jobs.backlog_gpu_h(state.train, dt_hours * 60) + jobs.backlog_gpu_h(state.finetune, dt_hours * 60)
    return jnp.where(params.mask, both, 0)


def urgency(state: DataCenterState, minute: Array) -> Array:
    """Least slack of a queued job over its duration, a fifth of it kept in [-1, 1]; 1 with empty queues; (G,)."""

    def of(pool: Pool) -> Array:
        slack = pool.deadline_min - minute.astype(pool.gpus.dtype) - pool.duration_min
        span = jnp.clip(safe_divide(slack, pool.duration_min) / URGENCY_SPAN, -1, 1)
        return jnp.min(jnp.where(pool.gpus > 0, span, 1), axis=1)

    return jnp.minimum(of(state.train), of(state.finetune))


def queue_fill(pool: Pool) -> Array:
    """Share of the queue's slots in use, (G,)."""
    return jnp.mean((pool.gpus > 0).astype(pool.gpus.dtype), axis=1)


def full_cooling_mw(params: DataCenterParams) -> Array:
    """Cooling power on the design day with every GPU active, (G,) [MW]: the scale of the observed cooling."""
    it_kw = 1000 * (params.n_gpus * params.active_w / 1e6 + params.base_mw)
    return cooling_mw(params, it_kw * params.air_share, jnp.full_like(it_kw, HOT_DAY_C))


def _begin(params: DataCenterParams, start: EpisodeStart) -> DataCenterState:
    return init(params, start.layout.sizes)


def _advance(
    params: DataCenterParams, state: DataCenterState, own: Array, exogenous: Exogenous
) -> tuple[DataCenterState, DataCenterDelivery, Array]:
    one = jnp.ones_like(params.n_gpus)
    at = exogenous.columns.at
    weather = DataCenterExogenous(exogenous.row[at(INFER)] * one, exogenous.row[at(OUTDOOR)] * one)
    key = jax.random.fold_in(purpose_key(exogenous.key, Purpose.JOBS), exogenous.t)
    arrivals = draw_arrivals(key, params, exogenous.layout.sizes, exogenous.dt_hours, exogenous.minute)
    order = command(params, own)
    new, out = step(params, state, order, exogenous.dt_hours, exogenous.minute, arrivals, weather)
    return new, out, out.p_mw


def _power(params: DataCenterParams, state: DataCenterState, task: Any) -> tuple[Array, Array]:
    del task
    p = -(state.it_mw * (1 + params.aux_share) + state.cool_mw)
    return p, jnp.zeros_like(p)


def rating_mw(params: DataCenterParams) -> Array:
    """Power on the design day with every GPU active, (G,) [MW]."""
    it_mw = params.n_gpus * params.active_w / 1e6 + params.base_mw
    return it_mw * (1 + params.aux_share) + full_cooling_mw(params)


def _set_point(units: SeenUnits) -> Array:
    fleet = units.params
    return (units.state.t_set_c - fleet.set_low_c) / (fleet.set_high_c - fleet.set_low_c)


def _backlog(unit: UnitAccount) -> Array:
    left = backlog_gpu_h(unit.params, unit.after, unit.dt_hours)
    return -jnp.where(unit.last, BACKLOG_USD_PER_GPU_H * left, 0)


def _zone_heat(unit: UnitAccount) -> Array:
    """Heat left in the room against the start at the mean price of the episode, due in its last step, (G,) [$]."""
    outdoor = unit.exogenous.row[unit.exogenous.columns.at(OUTDOOR)]
    left = stored_heat_mwh(unit.params, unit.after.t_zone_c, outdoor)
    return -jnp.where(unit.last, unit.mean_per_mwh * left, 0)


def _pue_bonus(unit: UnitAccount) -> Array:
    """[target - PUE]+ without a unit: the weight of the term turns it into money."""
    it_mw = unit.after.it_mw
    pue = safe_divide(-unit.out.p_mw, it_mw)
    return jnp.where(it_mw > 0, jnp.maximum(unit.task.target_pue - pue, 0), 0)


def _settle(settings: Any, minutes: int, dtype: Any) -> dict[str, Any]:
    prices = {"miss_usd": settings.sla_price, "target_pue": settings.target_pue}
    return {
        "sizes": facility.sizes(minutes),
        "leaves": {name: jnp.asarray(value, dtype) for name, value in prices.items()},
    }


KIND = DeviceKind(
    name="datacenter",
    label="datacenter",
    actions=ACTIONS,
    idle=IDLE,
    make=datacenter_params,
    begin=_begin,
    advance=_advance,
    rating_mw=rating_mw,
    power=_power,
    grid_fields=(
        Field("p_norm", "1", -1, 1, lambda units: _power(units.params, units.state, None)[0] / rating_mw(units.params)),
    ),
    own_fields=(
        Field("cool_ratio", "1", 0, 1, lambda units: units.state.cool_mw / full_cooling_mw(units.params)),
        Field(
            "gpu_util",
            "1",
            0,
            1,
            lambda units: (units.state.infer_gpus + units.state.job_gpus) / units.params.n_gpus,
        ),
        Field("infer_util", "1", 0, 1, lambda units: units.scene.row[units.scene.columns.at(INFER)]),
        Field(
            "outdoor_temp_norm", "1", -1, 2, lambda units: (units.scene.row[units.scene.columns.at(OUTDOOR)] - 10) / 20
        ),
        Field("queue_ft_fill", "1", 0, 1, lambda units: queue_fill(units.state.finetune)),
        Field("queue_train_fill", "1", 0, 1, lambda units: queue_fill(units.state.train)),
        Field("queue_urgency", "1", -1, 1, lambda units: urgency(units.state, units.scene.minute)),
        Field("setpoint_norm", "1", 0, 1, _set_point),
        *TIME,
        Field("zone_temp_norm", "1", 0, 1, lambda units: (units.state.t_zone_c - 15) / 30),
    ),
    terms={
        "site_energy": lambda unit: unit.price_per_mwh * unit.out.p_mw * unit.dt_hours,
        "job_misses": lambda unit: -unit.task.miss_usd * unit.out.missed_jobs,
        "backlog": _backlog,
        "zone_heat": _zone_heat,
        "pue_bonus": _pue_bonus,
    },
    costs={"sla": lambda out: jnp.sum(out.missed_jobs), "overtemp": lambda out: jnp.sum(out.overtemp_c)},
    settle=_settle,
    padding=facility.PADDING,
)
