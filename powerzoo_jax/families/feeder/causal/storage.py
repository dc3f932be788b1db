"""Causal planners of batteries that trade energy: prices seen are remembered, later ones are forecast."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import isfinite
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.tree_util import Partial

from powerzoo_jax.base import struct
from powerzoo_jax.data.bank import SIGNAL_LIMITS
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.series import FACTOR, PRICE, SIGNAL, Draw
from powerzoo_jax.families.feeder.causal.voltage import needed_support
from powerzoo_jax.oracle.forecast import (
    DailyForecast,
    day_values,
    fit_forecast,
    period_steps,
    remember,
    train_days,
    train_sim,
)
from powerzoo_jax.oracle.registry import Policy
from powerzoo_jax.oracle.storage_value import Outlook, TradedStore, command_mw, settled_slope, value_slope

NEED_PER_MWH = 2000.0  # [$/MWh] of energy that keeps a voltage in its band
AHEAD_DAYS = 2  # of a plan at most: prices further ahead are the daily mean, and change nothing today


class StorageMemory(NamedTuple):
    """Memory of an episode.

    t: ();  price: (P,) signals seen;  load: (T,) load factors seen;  start_mwh: (G,)
    """

    t: Array
    price: Array
    load: Array
    start_mwh: Array


@struct.dataclass(kw_only=True)
class StorageModel:
    """Constants of a planner.

    store:         TradedStore (G,);  capacity_mwh: (G,)
    price, load:   DailyForecast; load is None where the network does not limit the batteries
    low, span:     () [$/MWh]  price = low + span * signal
    at, least:     (K,)        share of the ratings that the network needs of the batteries, by load factor
    per_load:      ()          load factor of an observed load of 1
    """

    store: TradedStore
    capacity_mwh: Array
    price: DailyForecast
    load: DailyForecast | None
    low: Array
    span: Array
    at: Array
    least: Array
    per_load: Array


@dataclass(frozen=True)
class StorageSight:
    """Fields of an observation that batteries plan by; static.

    soc:          (row, column) of each battery
    price, load:  (column, steps ahead) of each field
    price_steps:  for which a price holds
    """

    soc: tuple[tuple[int, int], ...]
    price: tuple[tuple[int, int], ...]
    load: tuple[tuple[int, int], ...]
    price_steps: int
    horizon: int
    per_day: int
    dt_hours: float


def plan_storage(sim: Sim, draws: Draw, keys: Array) -> Policy:
    """Rolling plan of every battery by `storage_value`, on prices and loads seen so far and their forecasts.

    Where the task limits voltages, the batteries charge no more, and discharge at least as much, as keeps all buses
    within the band at the coming load.
    """
    del keys
    limited = isfinite(sim.spec.cost_budget[sim.spec.cost_names.index("voltage_violation")])
    model, sight = storage_model(sim, _charge_fields(sim), limited=limited)
    shape = sim.env.dims.agent, sim.env.dims.act
    return Policy(Partial(partial(_act, sight, shape), model), first_memory(sight, model, draws.load_row.shape[0]))


def first_memory(sight: StorageSight, model: StorageModel, count: int) -> StorageMemory:
    """Memory before the first step of as many episodes, leading axis B."""
    dtype = model.low.dtype
    return StorageMemory(
        jnp.zeros(count, jnp.int32),
        jnp.zeros((count, sight.horizon // sight.price_steps), dtype),
        jnp.zeros((count, sight.horizon), dtype),
        jnp.zeros((count, *model.capacity_mwh.shape), dtype),
    )


def _act(
    sight: StorageSight,
    shape: tuple[int, int],
    model: StorageModel,
    memory: StorageMemory,
    obs: Array,
    key: Array,
) -> tuple[StorageMemory, Array]:
    del key
    memory, power = planned_power(sight, model, memory, obs)
    return memory, (power / model.store.power_mw).reshape(shape)


def planned_power(
    sight: StorageSight, model: StorageModel, memory: StorageMemory, obs: Array
) -> tuple[StorageMemory, Array]:
    """Memory after an observation (A, O), and the power (G,) [MW] of the coming step."""
    t = memory.t
    rows, columns = zip(*sight.soc, strict=True)
    energy = obs[jnp.asarray(rows), jnp.asarray(columns)] * model.capacity_mwh
    start = jnp.where(t == 0, energy, memory.start_mwh)
    price_seen = seen_fields(memory.price, t, obs, sight.price, sight.price_steps)
    price = model.low + model.span * model.price.path(price_seen, known_periods(t, sight.price, sight.price_steps))
    load_seen, least = memory.load, -jnp.ones(sight.horizon, price.dtype)
    if model.load is not None:
        load_seen = seen_fields(load_seen, t, obs * model.per_load, sight.load, 1)
        # no field shows the load of the first step
        first = obs[0, sight.load[0][0]] * model.per_load
        load_seen = jnp.where(t == 0, load_seen.at[0].set(first), load_seen)
        least = jnp.interp(model.load.path(load_seen, known_periods(t, sight.load, 1)), model.at, model.least)
    ahead = _window(sight, t, jnp.repeat(price, sight.price_steps), least)

    def one(store: TradedStore, energy: Array, start: Array) -> Array:
        last = settled_slope(store, start, jnp.mean(price))
        later = jax.tree.map(lambda x: x[1:], ahead)
        after = value_slope(store, last, later, sight.dt_hours, NEED_PER_MWH)
        now = jax.tree.map(lambda x: x[0], ahead)
        return command_mw(store, energy, after, now, sight.dt_hours)

    power = jax.vmap(one)(model.store, energy, start)
    return StorageMemory(t + 1, price_seen, load_seen, start), power


def seen_fields(memory: Array, t: Array, obs: Array, fields: tuple[tuple[int, int], ...], steps: int) -> Array:
    """Memory (P,) with what the fields, (column, steps ahead) each, show of a series that holds for `steps`."""
    columns, leads = zip(*fields, strict=True)
    return remember(memory, t, obs[0, jnp.asarray(columns)], leads, steps)


def known_periods(t: Array, fields: tuple[tuple[int, int], ...], steps: int) -> Array:
    """Number of periods of a series that have been shown by step t."""
    return (t + max(lead for _, lead in fields)) // steps + 1


def _window(sight: StorageSight, t: Array, price: Array, least: Array) -> Outlook:
    """Outlook (W,) on the coming steps at forecast prices; steps beyond the end of the episode allow no power."""
    width = min(sight.horizon, AHEAD_DAYS * sight.per_day)
    alive = jnp.arange(width, dtype=jnp.int32) < sight.horizon - t

    def coming(series: Array) -> Array:
        part = lax.dynamic_slice(jnp.pad(series[: sight.horizon], (0, width)), (t,), (width,))
        return jnp.where(alive, part, 0)

    share = coming(least)
    return Outlook(coming(price), jnp.clip(-share, 0, 1), alive.astype(price.dtype), jnp.clip(share, 0, 1))


def storage_model(sim: Sim, soc: tuple[tuple[int, int], ...], *, limited: bool) -> tuple[StorageModel, StorageSight]:
    """Read what does not depend on the episode: ratings, fields, and the days of training.

    soc:      (row, column) of each battery's state of charge in an observation
    limited:  the batteries hold the voltages in their band
    """
    fleet, params = sim.params.storage, sim.params
    dtype, per_day = fleet.power_mw.dtype, round(24 / sim.spec.dt_hours)
    back = int(sim.spec.horizon > per_day)
    train = train_sim(sim)
    price, steps = price_forecast(sim)
    low, span = signal_scale(sim)
    load, at, least = None, jnp.zeros(2, dtype), -jnp.ones(2, dtype)
    if limited:
        rows, joined = train_days(train, "load_row")
        load = fit_forecast(
            day_values(train.params.bank.load_rows[:, FACTOR], rows, per_day), joined, back, back, dtype
        )
        at, least = (jnp.asarray(x, dtype) for x in needed_support(sim))
    store = TradedStore(
        low_mwh=fleet.soc_min * fleet.capacity_mwh,
        high_mwh=fleet.soc_max * fleet.capacity_mwh,
        power_mw=fleet.power_mw,
        eta_charge=fleet.eta_charge,
        eta_discharge=fleet.eta_discharge,
        wear_per_mwh=fleet.degradation_per_mwh,
    )
    model = StorageModel(
        store=store,
        capacity_mwh=fleet.capacity_mwh,
        price=price,
        load=load,
        low=jnp.asarray(low, dtype),
        span=jnp.asarray(span, dtype),
        at=at,
        least=least,
        per_load=jnp.asarray(params.peak_mw / (params.load_ratio * params.load_mw) if limited else 1.0, dtype),
    )
    sight = StorageSight(
        soc=soc,
        price=price_fields(sim),
        load=load_fields(sim) if limited else (),
        price_steps=steps,
        horizon=sim.spec.horizon,
        per_day=per_day,
        dt_hours=sim.spec.dt_hours,
    )
    return model, sight


def price_forecast(sim: Sim) -> tuple[DailyForecast, int]:
    """Forecast of the price signal, by days of training, and the steps for which a price holds."""
    per_day, dtype = round(24 / sim.spec.dt_hours), sim.params.load_ratio.dtype
    train, days = train_sim(sim), int(sim.spec.horizon * sim.spec.dt_hours > 24)
    rows, joined = train_days(train, "price_row")
    signals = day_values(train.params.bank.price_rows[:, SIGNAL], rows, per_day)
    steps = period_steps(signals)
    return fit_forecast(signals[:, ::steps], joined, days, days, dtype), steps


def signal_scale(sim: Sim) -> tuple[float, float]:
    """Price at an observed signal of 0 and rise up to one of 1 [$/MWh]: the units in which prices are shown."""
    rows = np.asarray(sim.params.bank.price_rows, np.float64)
    signal, price = rows[:, SIGNAL], rows[:, PRICE]
    inside = (signal > signal.min()) & (signal < signal.max())
    if len(np.unique(signal[inside])) < 2:  # few prices: all of them but those cut
        inside = (signal > SIGNAL_LIMITS[0]) & (signal < SIGNAL_LIMITS[1])
    if len(np.unique(signal[inside])) < 2:
        return float(price.mean()), 0.0
    span, low = np.polyfit(signal[inside], price[inside], 1)
    return float(low), float(span)


def price_fields(sim: Sim) -> tuple[tuple[int, int], ...]:
    """Fields of price signals, and the steps ahead that each lies: hours, or steps where agents have their own."""
    names, per_hour = sim.env.fields.names, round(1 / sim.spec.dt_hours)
    found = [(names.index("price_signal"), 0)]
    for column, name in enumerate(names):
        if name.startswith("price_forecast_t+"):
            found.append((column, int(name.removeprefix("price_forecast_t+"))))
        elif name.startswith("price_forecast_"):
            found.append((column, int(name.removeprefix("price_forecast_")) * per_hour))
    return tuple(found)


def load_fields(sim: Sim) -> tuple[tuple[int, int], ...]:
    """Fields of load forecasts, and the steps ahead that each lies."""
    prefix, names = "load_forecast_t+", sim.env.fields.names
    return tuple((k, int(name.removeprefix(prefix))) for k, name in enumerate(names) if name.startswith(prefix))


def _charge_fields(sim: Sim) -> tuple[tuple[int, int], ...]:
    """Row and column of each battery's state of charge."""
    names = sim.env.fields.names
    if sim.env.layout.per_device:
        return tuple((unit, names.index("soc")) for unit in range(sim.env.dims.unit))
    own = [column for column, name in enumerate(names) if name.endswith("/soc")]
    return tuple((0, column) for column in own)
