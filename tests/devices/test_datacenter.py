"""Data centres: hand numbers of cooling and power, the queue's rules, and a job-by-job reference."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.base.tree import pad_axis
from powerzoo_jax.devices import datacenter, jobs
from powerzoo_jax.devices.datacenter import DataCenterExogenous, Order
from powerzoo_jax.devices.facility import TRAIN, JobClass, QueueSizes, datacenter_params, sizes
from powerzoo_jax.devices.jobs import Jobs
from tests.references.datacenter import DataCenter, Job
from tests.tolerances import tolerance

ROUNDING = 1e-12
NOBODY = ((0.0, 0.0, 0.0),)


def one(value: float) -> Any:
    return jnp.full(1, value)


def site(**keywords: Any) -> Any:
    return datacenter_params(1, "float64", **keywords)


def idle_order(t_set: float = 27.0) -> Order:
    return Order(one(0.0), one(0.0), one(t_set))


def batch(*rows: tuple[float, float, float]) -> Jobs:
    """(gpus, duration, deadline) of the jobs that arrive together at one site."""
    return Jobs(*(jnp.asarray(column)[None] for column in zip(*rows, strict=True)))


KERNEL = jax.jit(datacenter.step, static_argnames=("dt_hours", "force_start", "count_dropped"))


def run_step(params, state, order, minute=0.0, train=None, finetune=None, util=0.0, t_out=20.0, dt=0.5):
    """One step of one site; arrivals are padded to five of each class, so that all share one program."""
    arrivals = tuple(
        jax.tree.map(lambda x: pad_axis(x, 5, 1), batch(*NOBODY) if new is None else new) for new in (train, finetune)
    )
    return KERNEL(params, state, order, dt, jnp.asarray(minute), arrivals, DataCenterExogenous(one(util), one(t_out)))


def start_state(params, queue=64, bins=(9, 4)):
    return datacenter.init(params, QueueSizes(queue=queue, arrivals=(1, 1), bins=bins))


@pytest.fixture(autouse=True)
def x64():
    with jax.enable_x64(True):
        yield


def test_the_chiller_needs_a_third_of_the_heat_of_five_hundred_kw_at_thirty_degrees():
    params = site()
    assert datacenter.chiller_cop(params, one(30.0))[0] == pytest.approx(3.0, abs=ROUNDING)
    assert datacenter.cooling_mw(params, one(500.0), one(30.0))[0] == pytest.approx(1 / 6, abs=ROUNDING)


def test_the_cop_keeps_two_fifths_of_its_value_on_the_hottest_day():
    assert datacenter.chiller_cop(site(), one(60.0))[0] == pytest.approx(2.0, abs=ROUNDING)


def test_the_heat_of_a_room_is_worth_what_the_chiller_would_draw_for_it():
    """500 kWh/degC, two degrees above the start, COP 3 at 30 degC: a third of 1 MWh; colder rooms have it in store."""
    params = site()
    for t_zone, worth in ((24.0, 1 / 3), (22.0, 0.0), (19.0, -0.5)):
        found = datacenter.stored_heat_mwh(params, one(t_zone), one(30.0))[0]
        assert float(found) == pytest.approx(worth, abs=ROUNDING)


def test_cooling_later_costs_what_the_heat_left_over_costs():
    """Without walls and least fans, electricity drawn and electricity owed for heat do not depend on the set-point."""
    params = site(wall_kw_per_c=0.0, cool_min_mw=0.0)
    both = []
    for t_set in (18.0, 21.0, 27.0):
        state, out = run_step(params, start_state(params), idle_order(t_set), t_out=31.0)
        drawn = -float(out.p_mw[0]) * 0.5
        both.append(drawn + float(datacenter.stored_heat_mwh(params, state.t_zone_c, one(31.0))[0]))
    assert both[0] == pytest.approx(both[1], abs=1e-9) and both[0] == pytest.approx(both[2], abs=1e-9)


def test_power_adds_idle_serving_and_training_gpus_base_load_auxiliaries_and_fans():
    params = site()
    order = Order(one(1.0), one(0.0), one(27.0))
    _, out = run_step(params, start_state(params), order, train=batch((100.0, 60.0, 600.0)), util=0.5)
    watts = 200 * 550 + 700 * 55 + 100 * (55 + 1045 * 0.9)
    assert -out.p_mw[0] == pytest.approx((watts / 1e6 + 0.5) * 1.05 + 0.05, abs=ROUNDING)


def test_nothing_starts_at_zero_rates_and_everything_that_fits_at_full_ones():
    params = site()
    new = batch((100.0, 60.0, 600.0), (200.0, 60.0, 500.0))
    stopped, _ = run_step(params, start_state(params), idle_order(), train=new, finetune=new)
    going, _ = run_step(params, start_state(params), Order(one(1.0), one(1.0), one(27.0)), train=new, finetune=new)
    assert stopped.job_gpus[0] == 0 and going.job_gpus[0] == 600


def test_a_job_that_does_not_fit_holds_back_all_behind_it():
    """By deadline 300, 500, 100 GPUs; a budget of 600 takes the first, and the last one, which would fit, waits."""
    params = site()
    new = batch((100.0, 60.0, 900.0), (300.0, 60.0, 500.0), (500.0, 60.0, 700.0))
    state, _ = run_step(params, start_state(params), Order(one(0.6), one(0.0), one(27.0)), train=new)
    assert state.job_gpus[0] == 300
    np.testing.assert_array_equal(state.train.gpus[0, -2:], [500, 100])


def test_fine_tuning_shares_what_training_has_left():
    params = site()
    order = Order(one(0.5), one(0.5), one(27.0))
    state, _ = run_step(
        params,
        start_state(params),
        order,
        train=batch((500.0, 60.0, 900.0)),
        finetune=batch((250.0, 60.0, 800.0), (1.0, 60.0, 900.0)),
    )
    assert state.job_gpus[0] == 750


def test_equal_deadlines_are_served_in_order_of_arrival():
    params = site()
    state, _ = run_step(params, start_state(params), idle_order(), train=batch((1.0, 60.0, 500.0), (2.0, 60.0, 500.0)))
    state, _ = run_step(params, state, idle_order(), minute=30.0, train=batch((3.0, 60.0, 500.0)))
    np.testing.assert_array_equal(state.train.gpus[0, -3:], [1, 2, 3])


def test_a_full_queue_refuses_late_comers_even_those_due_first():
    params = site()
    state, out = run_step(
        params,
        start_state(params, queue=2),
        idle_order(),
        train=batch((1.0, 60.0, 500.0), (2.0, 60.0, 400.0), (3.0, 60.0, 300.0)),
    )
    assert out.missed_jobs[0] == 1
    np.testing.assert_array_equal(state.train.gpus[0], [2, 1])


def test_a_queued_job_is_missed_once_and_dropped_at_its_deadline():
    params = site()
    state, first = run_step(params, start_state(params), idle_order(), train=batch((5.0, 40.0, 45.0)))
    state, second = run_step(params, state, idle_order(), minute=30.0)
    state, third = run_step(params, state, idle_order(), minute=60.0)
    assert [int(out.missed_jobs[0]) for out in (first, second, third)] == [0, 1, 0]
    assert jnp.sum(state.train.gpus) == 0


def test_a_job_started_too_late_is_missed_at_its_deadline_and_finishes():
    """Due at 45, started at 30 for 40 minutes: missed in the second step, GPUs held to the end of the third."""
    params, full = site(), Order(one(1.0), one(1.0), one(27.0))
    state, first = run_step(params, start_state(params), idle_order(), train=batch((5.0, 40.0, 45.0)))
    gpus, misses = [], [int(first.missed_jobs[0])]
    for minute in (30.0, 60.0, 90.0):
        state, out = run_step(params, state, full, minute=minute)
        gpus.append(float(state.job_gpus[0]))
        misses.append(int(out.missed_jobs[0]))
    assert gpus == [5, 5, 0] and misses == [0, 1, 0, 0]


@pytest.mark.full
def test_a_job_started_on_arrival_is_never_late_even_without_slack():
    with jax.enable_x64(False):
        params, shape = datacenter_params(64, "float32", slack_factor=0.0, n_gpus=100_000), sizes(5)
        order, weather = (
            Order(jnp.ones(64), jnp.zeros(64), jnp.full(64, 22.0)),
            DataCenterExogenous(jnp.zeros(64), jnp.zeros(64)),
        )

        def play(state, t):
            minute = 5 * t.astype("float32") + 5000
            train, _ = datacenter.draw_arrivals(jax.random.key(t), params, shape, 1 / 12, minute)
            none = Jobs(*(jnp.zeros((64, 1)) for _ in range(3)))
            new, out = datacenter.step(params, state, order, 1 / 12, minute, (train, none), weather)
            return new, (jnp.sum(train.gpus), jnp.sum(out.missed_jobs))

        last, (arrived, missed) = jax.lax.scan(play, datacenter.init(params, shape), jnp.arange(100))
    assert jnp.sum(arrived) > 0 and jnp.sum(missed) == 0 and jnp.sum(last.train.gpus) == 0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_job_of_whole_steps_holds_its_gpus_for_exactly_those(dtype):
    """In float32 a quotient such as 210 / 30 may round up, which would hold the GPUs for one step too many."""
    with jax.enable_x64(dtype == "float64"):
        minutes = jnp.arange(30, 270, 30, dtype=dtype)[None]
        pool = jobs.empty(1, 8, 9, dtype).replace(
            gpus=jnp.ones_like(minutes), duration_min=minutes, deadline_min=minutes + 1000
        )
        after, missed = jobs.advance(pool, pool.gpus > 0, jnp.zeros((), dtype), 30.0)
    # one step later: that of 30 min has ended
    np.testing.assert_array_equal(after.held_gpus, [[1] * 7 + [0, 0]])
    np.testing.assert_array_equal(after.tail_gpu_min, [[30] * 7 + [0, 0]])
    assert missed == 0


def test_inference_takes_only_what_running_jobs_leave():
    params, full = site(), Order(one(1.0), one(1.0), one(27.0))
    state, _ = run_step(
        params, start_state(params), full, train=batch((200.0, 200.0, 900.0), *[(200.0, 200.0, 900.0)] * 4)
    )
    state, _ = run_step(params, state, full, minute=30.0, util=1.0)
    assert state.job_gpus[0] == 1000 and state.infer_gpus[0] == 0


def test_the_room_never_cools_below_set_point_and_weather():
    params = site()
    state = start_state(params).replace(t_zone_c=one(18.0))
    for t in range(20):
        state, _ = run_step(params, state, idle_order(18.0), minute=30.0 * t, t_out=-40.0)
    assert state.t_zone_c[0] >= -40.0
    cold = site(base_mw=0.0, idle_w=0.0, wall_kw_per_c=200.0)
    state, _ = run_step(cold, start_state(cold), idle_order(18.0), t_out=30.0)
    assert state.t_zone_c[0] >= 18.0


@pytest.mark.tiers("long", full=["5-64-False"])
@pytest.mark.parametrize(("dt_minutes", "queue", "force"), [(5, 64, False), (30, 6, False), (60, 64, True)])
def test_the_kernel_equals_the_reference_job_by_job(dt_minutes, queue, force):
    """Random arrivals, orders and weather, with a queue that overflows and jobs that come too late."""
    n_site, steps, rng = 4, 100, np.random.default_rng(dt_minutes)
    params, plain = (
        datacenter_params(n_site, "float64"),
        [DataCenter(dt_minutes, queue, force_start=force) for _ in range(n_site)],
    )
    bins = sizes(dt_minutes).bins
    state = datacenter.init(params, QueueSizes(queue=queue, arrivals=(3, 4), bins=bins))
    totals = np.zeros(3)
    for t in range(steps):
        now = float(t * dt_minutes)
        new = [random_jobs(rng, n_site, kind, now, dt_minutes) for kind in range(2)]
        shares, t_set = rng.uniform(-0.2, 1.2, (2, n_site)).clip(0, 1), rng.uniform(18, 27, n_site)
        util, t_out = rng.uniform(0, 1, n_site), rng.uniform(-10, 45, n_site)
        state, out = KERNEL(
            params,
            state,
            Order(*(jnp.asarray(x) for x in (*shares, t_set))),
            dt_minutes / 60,
            jnp.asarray(now),
            tuple(Jobs(*(jnp.asarray(x) for x in columns)) for columns in new),
            DataCenterExogenous(jnp.asarray(util), jnp.asarray(t_out)),
            force_start=force,
            count_dropped=True,
        )
        left = np.asarray(datacenter.backlog_gpu_h(params, state, dt_minutes / 60))
        for g in range(n_site):
            lists = [[Job(*row) for row in zip(*(x[g] for x in columns), strict=True) if row[0]] for columns in new]
            want = plain[g].step(now, lists, list(shares[:, g]), t_set[g], util[g], t_out[g])
            got = [float(x[g]) for x in (out.missed_jobs, state.job_gpus, state.infer_gpus)]
            assert got == [want.misses, want.job_gpus, want.serving], (t, g)
            assert float(out.p_mw[g]) == pytest.approx(want.p_mw, abs=ROUNDING)
            assert float(state.t_zone_c[g]) == pytest.approx(want.t_zone, abs=1e-10)
            assert left[g] == pytest.approx(want.backlog_gpu_h, abs=1e-9)
            assert float(out.dropped_gpu_h[g]) == pytest.approx(want.dropped_gpu_h, abs=1e-9)
            totals += want.misses, want.job_gpus, want.dropped_gpu_h
    assert (totals > 0).all()


def random_jobs(rng, n_site, kind, now, dt_minutes):
    most = 3 + kind
    low, high, shortest, longest = ((50, 200, 50, 250), (10, 50, 25, 100))[kind]
    real = rng.uniform(size=(n_site, most)) < min(0.02 * dt_minutes, 0.5)
    duration = rng.integers(shortest, longest, (n_site, most)) + 0.5  # no whole number of steps, to the clock's grain
    deadline = now + duration * rng.uniform(1.01, 3.0, (n_site, most))  # never within what the clock resolves
    gpus = rng.integers(low, high + 1, (n_site, most)).astype(float)
    return [np.where(real, x, 0.0) for x in (gpus, duration, deadline)]


@pytest.mark.full
def test_draws_follow_the_rates_and_ranges_of_the_spec():
    """Means over 40,000 half hours, within five standard errors."""
    params, shape, count = datacenter_params(1, "float64"), sizes(30), 40_000
    keys = jax.random.split(jax.random.key(3), count)
    drawn = jax.jit(jax.vmap(lambda k: datacenter.draw_arrivals(k, params, shape, 0.5, jnp.asarray(100.0))))(keys)
    for new, rate, low, high, shortest, longest, factor in (
        (drawn[0], 0.75, 50, 200, 50, 250, 2),
        (drawn[1], 1.5, 10, 50, 25, 100, 3),
    ):
        gpus, duration, deadline = (np.asarray(x) for x in new)
        real = gpus > 0
        assert abs(real.sum() / count - rate) < 5 * np.sqrt(rate / count)
        assert abs(real.sum(axis=(1, 2)).var() - rate) < 0.05 * rate
        assert gpus[real].min() == low and gpus[real].max() == high
        assert abs(gpus[real].mean() - (low + high) / 2) < 5 * (high - low) / np.sqrt(12 * real.sum())
        assert duration[real].min() >= shortest and duration[real].max() <= longest
        assert abs(duration[real].mean() - (shortest + longest) / 2) < 5 * (longest - shortest) / np.sqrt(
            12 * real.sum()
        )
        np.testing.assert_allclose(deadline[real], 100 + factor * duration[real], rtol=1e-12)


@pytest.mark.full
def test_a_key_draws_the_same_jobs_in_float32_and_float64_but_for_the_grain_of_durations():
    drawn = {}
    for dtype in ("float32", "float64"):
        with jax.enable_x64(dtype == "float64"):
            params, keys = datacenter_params(1, dtype), jax.random.split(jax.random.key(4), 2000)
            step = jnp.asarray(100.0, dtype)
            rows = jax.jit(jax.vmap(lambda k: datacenter.draw_arrivals(k, params, sizes(30), 0.5, step)))(keys)  # noqa: B023
            assert {x.dtype.name for x in jax.tree.leaves(rows)} == {dtype}
            drawn[dtype] = jax.tree.map(np.asarray, rows)
    for single, double in zip(drawn["float32"], drawn["float64"], strict=True):
        assert (single.gpus > 0).sum() > 1000
        np.testing.assert_array_equal(single.gpus, double.gpus)
        np.testing.assert_allclose(single.duration_min, double.duration_min, rtol=0, atol=1 / jobs.GRAIN)


def test_room_for_arrivals_is_exceeded_less_than_once_in_ten_million_steps():
    for rate, dt in ((1.5, 1 / 12), (3.0, 1.0), (40.0, 1.0)):
        most = jobs.most_arrivals(rate, dt)
        draws = np.random.default_rng(1).poisson(rate * dt, 1_000_000)
        assert draws.max() <= most


def test_urgency_is_least_slack_over_duration_and_one_without_jobs():
    params = site()
    state = start_state(params)
    assert datacenter.urgency(state, jnp.asarray(0.0))[0] == 1.0
    state, _ = run_step(params, state, idle_order(), train=batch((5.0, 60.0, 600.0), (5.0, 100.0, 300.0)))
    assert datacenter.urgency(state, jnp.asarray(30.0))[0] == pytest.approx((300 - 30 - 100) / 100 / 5)


@pytest.mark.full
def test_a_padded_site_draws_no_power_and_misses_nothing():
    params = datacenter_params(2, "float64").replace(mask=jnp.asarray([True, False]))
    state = datacenter.init(params, QueueSizes(queue=4, arrivals=(2, 2), bins=(9, 4)))
    new = Jobs(*(jnp.full((2, 2), x) for x in (5.0, 60.0, 20.0)))
    order, weather = (
        Order(*(jnp.ones(2) * x for x in (0.0, 0.0, 20.0))),
        DataCenterExogenous(jnp.ones(2), jnp.full(2, 40.0)),
    )
    _, out = datacenter.step(params, state, order, 0.5, jnp.asarray(0.0), (new, new), weather)
    assert all(float(column[1]) == 0.0 for column in jax.tree.leaves(out))
    assert out.missed_jobs[0] == 4 and out.p_mw[0] < 0


@pytest.mark.full
def test_float32_and_float64_agree_over_a_day():
    """Same jobs, orders and weather: counts equal, power and temperature to float32."""
    runs = {}
    for dtype in ("float32", "float64"):
        with jax.enable_x64(dtype == "float64"):
            params, rng = datacenter_params(4, dtype), np.random.default_rng(2)
            state, rows = datacenter.init(params, QueueSizes(queue=8, arrivals=(3, 4), bins=sizes(30).bins)), []
            for t in range(48):
                new = tuple(
                    Jobs(*(jnp.asarray(x, dtype) for x in random_jobs(rng, 4, k, 30.0 * t, 30))) for k in (0, 1)
                )
                order = Order(*(jnp.asarray(rng.uniform(lo, hi, 4), dtype) for lo, hi in ((0, 1), (0, 1), (18, 27))))
                weather = DataCenterExogenous(
                    *(jnp.asarray(rng.uniform(lo, hi, 4), dtype) for lo, hi in ((0, 1), (0, 40)))
                )
                state, out = KERNEL(params, state, order, 0.5, jnp.asarray(30.0 * t, dtype), new, weather)
                rows.append([np.asarray(x) for x in (out.missed_jobs, state.job_gpus, out.p_mw, state.t_zone_c)])
                assert {x.dtype.name for x in jax.tree.leaves((state, out))} == {dtype}
            runs[dtype] = np.asarray(rows, np.float64)
    np.testing.assert_array_equal(runs["float32"][:, :2], runs["float64"][:, :2])
    np.testing.assert_allclose(
        runs["float32"][:, 2:], runs["float64"][:, 2:], rtol=tolerance("device_balance", "float32")
    )


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"n_gpus": 0}, "n_gpus = 0 must be positive"),
        ({"infer_gpu_peak": 2000}, "infer_gpu_peak = 2000 exceeds n_gpus = 1000"),
        ({"set_low_c": 30.0}, "set_low_c < set_high_c"),
        ({"air_share": 1.5}, r"air_share = 1.5 must lie in \(0, 1\]"),
        ({"train": JobClass(1.5, (50, 2000), (50.0, 250.0), 2.0, 0.9)}, "train jobs take"),
        ({"finetune": JobClass(1.5, (50, 200), (50.0, 20.0), 2.0, 0.9)}, "finetune jobs last"),
    ],
)
def test_impossible_sites_are_refused_by_name(keywords, words):
    with pytest.raises(ValueError, match=words):
        datacenter_params(1, "float64", **keywords)


def test_a_class_of_jobs_due_before_they_end_is_refused():
    with pytest.raises(ValueError, match=r"deadline_factor = 0\.5 must be at least 1"):
        JobClass(1.5, (50, 200), (50.0, 250.0), 0.5, 0.9)


def test_sizes_follow_the_step_length():
    assert sizes(5).bins == (50, 20) and sizes(60).bins == (5, 2)
    assert sizes(30, train=TRAIN).arrivals[0] >= 6
