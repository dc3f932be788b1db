"""100,000 random and adversarial steps of every device in one vmap: energy in, energy out, energy stored.

Half the lanes act at random, the others hold one extreme or jump between both. Sums run in float64 on the host, over
what float32 kernels report, so a kernel that makes energy from nothing shows up.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from powerzoo_jax.devices import datacenter, flexload, renewable, storage, thermal, vehicle
from powerzoo_jax.devices.datacenter import DataCenterExogenous
from powerzoo_jax.devices.facility import JobClass, QueueSizes, datacenter_params
from powerzoo_jax.devices.flexload import flexload_params
from powerzoo_jax.devices.renewable import renewable_params
from powerzoo_jax.devices.storage import storage_params
from powerzoo_jax.devices.thermal import thermal_params
from powerzoo_jax.devices.trips import CommuteTrip, daily_trips, jittered
from powerzoo_jax.devices.vehicle import vehicle_params
from tests.tolerances import tolerance

pytestmark = pytest.mark.property

LANES, STEPS, DT = 1024, 100, 0.5
TOL = tolerance("device_balance", "float32")


def actions(key: Array, lane: Array, size: int, low: float) -> Array:
    """(STEPS, size) in [low, 1]: random, all high, all low, or alternating, by lane."""
    random = jax.random.uniform(key, (STEPS, size), minval=low, maxval=1.0)
    flip = jnp.where(jnp.arange(STEPS) % 2 == 0, 1.0, low)[:, None]
    fixed = [jnp.ones_like(random), jnp.full_like(random, low), jnp.broadcast_to(flip, random.shape)]
    return jnp.select([lane % 8 == k for k in range(3)], fixed, random)


def play(
    begin: Callable[[Array], Any],
    step: Callable[..., Any],
    size: int,
    low: float = -1.0,
    keep: Callable[[Any], Any] = lambda state: state,
) -> Any:
    """(first states, every state, every output) of LANES episodes, float64 on the host: (LANES,), (LANES, STEPS).

    keep:  what to record of a state
    """

    def episode(key: Array, lane: Array) -> Any:
        first = begin(key)

        def body(state: Any, at: Any) -> Any:
            new, out = step(state, *at)
            return new, (keep(new), out)

        keys = jax.random.split(jax.random.fold_in(key, 1), STEPS)
        return keep(first), *jax.lax.scan(body, first, (actions(key, lane, size, low), jnp.arange(STEPS), keys))[1]

    done = jax.jit(jax.vmap(episode))(jax.random.split(jax.random.key(7), LANES), jnp.arange(LANES))
    for leaf in jax.tree.leaves(done):
        assert np.isfinite(np.asarray(leaf)).all()
    return jax.tree.map(lambda x: np.asarray(x, np.float64), done)


def before(first: np.ndarray, every: np.ndarray) -> np.ndarray:
    """What a step started from, (LANES, STEPS, ...)."""
    return np.concatenate([first[:, None], every[:, :-1]], axis=1)


@cache
def batteries() -> Any:
    params = storage_params(2, "float32", capacity_mwh=[0.5, 0.05], power_mw=[0.2, 0.3], s_mva=0.3, eta_roundtrip=0.9)

    def step(state: Any, action: Array, t: Array, key: Array) -> Any:
        p, q = storage.command(params, action.reshape(2, 2) * 1.5)
        return storage.step(params, state, p, DT, q)

    return params, play(lambda key: storage.init(params, jax.random.uniform(key, (2,))), step, 4)


@pytest.mark.full
def test_a_battery_stores_what_its_terminals_took_less_losses():
    params, (first, states, out) = batteries()
    eta, capacity = np.sqrt(0.9), np.asarray(params.capacity_mwh, np.float64)
    flow = np.where(out.p_mw > 0, out.p_mw / eta, out.p_mw * eta) * DT
    change = (states.soc - before(first.soc, states.soc)) * capacity
    assert np.abs(change + flow).max() <= TOL * capacity.min()
    total = (states.soc[:, -1] - first.soc) * capacity + flow.sum(axis=1)
    assert np.abs(total).max() <= TOL * np.abs(flow).sum(axis=1).max()


@pytest.mark.full
def test_a_battery_stays_in_its_band_and_its_inverter_in_its_circle():
    _, (_, states, out) = batteries()
    assert states.soc.min() >= np.float32(0.1) and states.soc.max() <= np.float32(0.9)
    apparent = np.hypot(out.p_mw, out.q_mvar)
    assert apparent.max() <= 0.3 * (1 + TOL) and np.abs(out.p_mw).max() <= 0.3


def test_a_battery_never_returns_more_than_it_took_and_held():
    _, (first, _, out) = batteries()
    taken = np.where(out.p_mw < 0, -out.p_mw, 0).sum(axis=1) * DT
    given = np.where(out.p_mw > 0, out.p_mw, 0).sum(axis=1) * DT
    held = (first.soc - 0.1) * np.asarray([0.5, 0.05])
    assert (given <= taken * 0.9 + held * np.sqrt(0.9) + TOL).all()


@cache
def vehicles() -> Any:
    plans = [
        [CommuteTrip(8, 9, 8.0), CommuteTrip(18, 19, 8.0)],
        [CommuteTrip(22, 5, 50.0)],
        [CommuteTrip(7.2, 17.8, 10.0)],
    ]
    params = vehicle_params(daily_trips(plans, 30, "float32"), "float32", degradation_per_mwh=10.0)

    def begin(key: Array) -> Any:
        moved = jittered(key, params.trips, 1, 30, jax.random.uniform(key, (3, 2), minval=0.5, maxval=2.0))
        return vehicle.init(params, jax.random.uniform(key, (3,)), moved)

    def step(state: Any, action: Array, t: Array, key: Array) -> Any:
        return vehicle.step(params, state, vehicle.command(params, action[:, None]), DT, (t * 30) % 1440)

    return params, play(begin, step, 3)


@pytest.mark.full
def test_a_vehicle_stores_what_it_charged_less_what_it_drove():
    """What the battery gained is what was charged, less trips but for what was charged en route."""
    _, (first, states, out) = vehicles()
    arrived = _arrivals(first)
    flow = np.where(out.p_mw > 0, out.p_mw / 0.95, out.p_mw * 0.95) * DT
    driven = np.einsum("ltgk,lgk->ltg", arrived, first.trip_mwh)
    change = (states.soc - before(first.soc, states.soc)) * 0.06
    assert np.abs(change + flow + driven - out.unmet_mwh).max() <= TOL * 0.06
    assert driven.sum() > 0 and out.unmet_mwh.sum() > 0


def _arrivals(first: Any) -> np.ndarray:
    """(LANES, STEPS, G, K): whether a trip ends in a step, from the schedule alone."""
    params, _ = vehicles()
    ends = first.depart_min + np.asarray(params.trips.duration_min)
    minute = (np.arange(STEPS) * 30) % 1440
    within = (ends[:, None] - minute[None, :, None, None]) % 1440 < 30
    return (within & np.asarray(params.trips.mask)).astype(float)


@pytest.mark.full
def test_an_absent_vehicle_delivers_nothing_whatever_it_is_told():
    _, (_, states, out) = vehicles()
    away = out.home == 0
    assert (out.p_mw[away] == 0).all() and 0.2 < away.mean() < 0.8
    assert states.soc.min() >= np.float32(0.1) and states.soc.max() <= np.float32(0.95)


@cache
def loads() -> Any:
    params = flexload_params(2, "float32", curtail_cap_mw=0.1, shift_cap_mw=[0.1, 0.5], both_usd_per_mwh=3.0)

    def step(state: Any, action: Array, t: Array, key: Array) -> Any:
        load = jax.random.uniform(key, (2,), maxval=0.3)
        new, out = flexload.step(params, state, flexload.command(params, action.reshape(2, 2)), DT, load, 0.5 * load)
        return new, (out, load)

    return play(lambda key: flexload.init(params, 5), step, 4, low=0.0)


@pytest.mark.full
def test_deferred_energy_comes_back_to_the_last_kilowatt_hour():
    _, states, _ = loads()
    deferred, returned, left = (
        states.shift_mw.sum(axis=1),
        states.return_mw.sum(axis=1),
        states.due_mw[:, -1].sum(axis=-1),
    )
    assert np.abs(deferred - returned - left).max() <= TOL * deferred.max()
    assert deferred.max() > 5 and left.max() > 0.1


@pytest.mark.full
def test_the_load_is_only_moved_or_shed_never_turned_into_generation():
    _, states, (out, load) = loads()
    assert np.abs(out.p_mw - (states.curtail_mw + states.shift_mw - states.return_mw)).max() <= TOL
    assert (states.curtail_mw + states.shift_mw <= load * (1 + TOL)).all() and states.due_mw.min() >= 0
    np.testing.assert_allclose(out.q_mvar, 0.5 * out.p_mw, atol=TOL)


@pytest.mark.full
def test_a_plant_delivers_and_curtails_exactly_what_is_available():
    params = renewable_params(2, "float32", capacity_mw=0.2, s_mva=[0.2, 0.22], curtail_usd_per_mwh=30.0)

    def step(state: Any, action: Array, t: Array, key: Array) -> Any:
        cf = jax.random.uniform(key, (2,))
        new, out = renewable.step(params, state, renewable.command(params, action.reshape(2, 2)), DT, cf)
        return new, (out, cf)

    _, _, (out, cf) = play(lambda key: renewable.init(params), step, 4)
    assert np.abs(out.p_mw * DT + out.curtailed_mwh - cf * 0.2 * DT).max() <= TOL * 0.2
    assert (np.hypot(out.p_mw, out.q_mvar) <= np.asarray([0.2, 0.22]) * (1 + TOL)).all()
    assert out.p_mw.min() >= 0 and np.abs(out.cost_usd - 30 * out.curtailed_mwh).max() <= TOL


def test_a_diesel_pays_for_every_megawatt_hour_and_keeps_to_what_it_can_run_at():
    params = thermal_params(1, "float32", p_min_norm=0.3, start_usd=5.0, ramp_mw_per_h=0.5)

    def step(state: Any, action: Array, t: Array, key: Array) -> Any:
        return thermal.step(params, state, thermal.command(params, action[:, None]), DT)

    first, states, out = play(lambda key: thermal.init(params), step, 1, low=0.0)
    starts = ((before(first.p_mw, states.p_mw) == 0) & (out.p_mw > 0)).sum(axis=1)
    paid = out.p_mw.sum(axis=1) * DT * 300 + 5 * starts
    np.testing.assert_allclose(out.cost_usd.sum(axis=1), paid, rtol=TOL)
    assert ((out.p_mw == 0) | ((out.p_mw >= np.float32(0.18)) & (out.p_mw <= np.float32(0.6)))).all()
    assert starts.max() > 10


@cache
def sites() -> Any:
    """Durations are whole steps and deadlines far away, so that work done is GPUs times time and nothing is dropped."""
    classes = {"train": JobClass(1.0, (50, 200), (60.0, 240.0), 200.0, 0.9)}
    classes["finetune"] = JobClass(1.5, (10, 50), (30.0, 120.0), 200.0, 0.75)
    params = datacenter_params(1, "float32", **classes)
    shape = QueueSizes(queue=128, arrivals=(6, 9), bins=(8, 4))

    def step(state: Any, action: Array, t: Array, key: Array) -> Any:
        minute = 30 * t.astype("float32")
        drawn = datacenter.draw_arrivals(key, params, shape, DT, minute)
        drawn = tuple(new._replace(duration_min=jnp.ceil(new.duration_min / 30) * 30) for new in drawn)
        u = jax.random.uniform(key, (2, 1))
        weather = DataCenterExogenous(u[0], 50 * u[1] - 10)
        order = datacenter.command(params, action[None])
        new, out = datacenter.step(params, state, order, DT, minute, drawn, weather)
        work = sum(jnp.sum(jobs.gpus * jobs.duration_min) / 60 for jobs in drawn)
        left = datacenter.backlog_gpu_h(params, new, DT)[0]
        return new, (out, work, left, weather, order.t_set_c, jnp.stack([orderly(new.train), orderly(new.finetune)]))

    return play(lambda key: datacenter.init(params, shape), step, 3, keep=lambda s: s.replace(train=0.0, finetune=0.0))


def orderly(pool: Any) -> Array:
    """Whether free slots come first, then jobs by deadline, and the calendar holds no negative work."""
    taken = pool.gpus > 0
    by_deadline = jnp.all(jnp.diff(pool.deadline_min, axis=-1) >= 0) & jnp.all(jnp.diff(taken.astype("int32")) >= 0)
    return by_deadline & jnp.all(taken == (pool.deadline_min > 0)) & jnp.all(pool.held_gpus >= 0)


@pytest.mark.full
def test_work_that_arrives_is_done_or_still_waits():
    _, states, (out, work, left, *_) = sites()
    done = states.job_gpus[..., 0] * DT
    assert out.missed_jobs.max() == 0
    assert np.abs(np.cumsum(work - done, axis=1) - left).max() <= TOL * np.cumsum(work, axis=1).max()
    assert done.sum() > 0.1 * work.sum() and left.max() > 1000


@pytest.mark.full
def test_no_gpu_works_twice_and_the_queue_keeps_deadline_order():
    _, states, (*_, kept) = sites()
    assert (states.job_gpus + states.infer_gpus).max() <= 1000 and states.infer_gpus.min() >= 0
    assert kept.all()


@pytest.mark.full
def test_heat_of_a_site_leaves_through_the_chiller_and_the_walls_or_warms_it():
    """The chiller's electricity, where it is above that of the fans, times its COP is the heat it removed."""
    first, states, (out, _, _, weather, t_set, _) = sites()
    t_zone, t_out = before(first.t_zone_c, states.t_zone_c), weather.t_outdoor_c
    hours, cool = DT / 6, np.zeros_like(t_zone)
    cop = 5 * np.clip(1 - 0.04 * np.maximum(t_out - 20, 0), 0.4, 1.2)
    for _ in range(6):
        heat = 200 * np.maximum(t_zone - t_set, 0)
        cool += np.maximum(heat / 1000 / cop, 0.05) / 6
        t_zone = np.maximum(
            t_zone + hours * (1000 * states.it_mw - heat + 5 * (t_out - t_zone)) / 500, np.minimum(t_out, 18)
        )
    assert np.abs(states.t_zone_c - t_zone).max() <= TOL * 50
    assert np.abs(out.p_mw + 1.05 * states.it_mw + cool).max() <= TOL * 5
    assert (-out.p_mw > 0.5).all() and states.t_zone_c.max() > 33


@pytest.mark.tiers("full", quick=["batteries"])
@pytest.mark.parametrize("make", [batteries, vehicles, loads, sites])
def test_what_a_device_costs_or_misses_is_never_negative(make):
    made = make()
    _, _, out = made if make in (loads, sites) else made[1]
    delivery = out[0] if make in (loads, sites) else out
    for name in ("undelivered_mw", "cost_usd", "unmet_mwh", "shortfall_mwh", "missed_jobs", "overtemp_c"):
        assert np.min(getattr(delivery, name, 0)) >= 0
