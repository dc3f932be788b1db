"""Synthetic load, price and plant noise: mean, spread and lag-1 correlation against the stated parameters."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.data import load_dataset
from powerzoo_jax.data.synthetic import (
    PRICE_DE_2018,
    SOLAR_NOISE,
    WIND_NOISE,
    draw_ar1,
    draw_price,
    draw_price_noise,
    perturb_plants,
)
from powerzoo_jax.data.synthetic_load import (
    JOBS,
    UTILISATION,
    ServerModel,
    cooling_power,
    daily_curve,
    draw_jobs,
    draw_utilisation,
    server_power,
)
from tools.data import synthetic_fit

KEY = jax.random.key(20180101)
LANES, DAYS = 16, 60
DRAW_JOBS = jax.jit(draw_jobs, static_argnums=(2, 3))


def lag1(x):
    """Lag-1 correlation of columns (T, L), pooled, about each column's mean over all of them."""
    x = np.asarray(x, np.float64) - np.mean(x)
    return float((x[1:] * x[:-1]).mean() / (x * x).mean())


def clock(days, steps_per_day):
    """Hour (T,) and weekend flag (T,) of days that start on a Monday."""
    step = np.arange(days * steps_per_day)
    day = step // steps_per_day
    return jnp.asarray(step % steps_per_day * 24.0 / steps_per_day), jnp.asarray((day % 7 >= 5) * 1.0)


@pytest.mark.parametrize(("phi", "sigma"), [(0.0, 1.0), (0.9, 0.3), (0.99, 0.05)])
def test_ar1_noise_has_its_spread_and_correlation_from_the_first_step(phi, sigma):
    x = np.asarray(draw_ar1(KEY, (400, 512), phi, sigma))
    assert abs(x.mean()) < 4 * sigma / np.sqrt(512 * 400 * (1 - phi) / (1 + phi))
    np.testing.assert_allclose(x.std(axis=1)[[0, 5, -1]], sigma, rtol=0.12)
    np.testing.assert_allclose([x.std(), lag1(x)], [sigma, phi], rtol=0.03, atol=0.005)


# mean, swing, spread, lag-1 correlation at 5 min of the three kinds of data centre
PRESETS = {
    "hyperscale": (0.47, 0.09, 0.036, 0.91),
    "online_batch": (0.40, 0.37, 0.077, 0.73),
    "vm_cloud": (0.79, 0.08, 0.046, 0.984),
}


@pytest.mark.parametrize("name", PRESETS)
def test_processor_use_has_the_published_mean_swing_spread_and_correlation(name):
    mean, swing, sigma, phi = PRESETS[name]
    hour, weekend = clock(DAYS, 288)
    draw = partial(draw_utilisation, model=UTILISATION[name])
    keys = jax.random.split(KEY, LANES)
    u = np.asarray(jax.jit(jax.vmap(draw, (0, None, None), 1))(keys, hour, weekend))
    assert u.min() >= 0 and u.max() <= 1
    work = np.asarray(weekend) == 0
    by_step = u[work].reshape(-1, 288, LANES).mean(axis=(0, 2))
    assert by_step.mean() == pytest.approx(mean, abs=0.004)
    assert np.argmax(np.convolve(by_step, np.ones(25) / 25, "same")) / 12 == pytest.approx(14.0, abs=1.5)
    wave = 2 * np.mean(by_step * np.cos(2 * np.pi * (np.arange(288) / 12 - 14) / 24))
    assert wave == pytest.approx(mean * swing, abs=0.004)
    assert u[~work].mean() - u[work].mean() == pytest.approx(-0.05 * mean, abs=0.006)
    # what is left is the noise; the clip at 1 trims the highest preset by less than the tolerance
    noise = u - mean * np.asarray(daily_curve(hour, weekend, UTILISATION[name]))[:, None]
    assert noise.std() == pytest.approx(sigma, rel=0.04)
    assert lag1(noise) == pytest.approx(phi, abs=0.01)


def test_a_longer_step_forgets_more_and_spreads_alike():
    hour, weekend = clock(DAYS * 6, 48)
    flat = replace(UTILISATION["hyperscale"], swing=0.0, weekend=0.0)
    u = np.asarray(draw_utilisation(KEY, hour, weekend, flat, 30.0))
    assert u.std() == pytest.approx(0.036, rel=0.03) and lag1(u) == pytest.approx(0.91**6, abs=0.02)


def test_a_key_gives_one_series_and_another_key_another():
    hour, weekend = clock(1, 288)
    one, same, other = (draw_utilisation(jax.random.key(k), hour, weekend, UTILISATION["vm_cloud"]) for k in (1, 1, 2))
    assert np.array_equal(one, same) and not np.array_equal(one, other)


@pytest.mark.full
def test_batch_jobs_have_the_sample_s_median_mean_and_arrivals():
    curve = jnp.ones(20_000)
    table = DRAW_JOBS(KEY, curve, 20, JOBS)
    valid = np.asarray(table.valid)
    count = valid.sum(axis=1)
    # Poisson of 5 in 5 min: variance equals mean, one step says nothing about the next
    assert count.mean() == pytest.approx(5.0, rel=0.01) and count.var() == pytest.approx(5.0, rel=0.03)
    assert abs(lag1(count[:, None])) < 0.02 and int(table.lost.sum()) == 0
    duration, instances, cores = (np.asarray(x)[valid] for x in (table.duration_s, table.instances, table.cores))
    assert np.median(duration) == pytest.approx(10.0, rel=0.05) and np.median(instances) == 1.0
    # heavy tails: the mean of 100,000 draws still moves by some per cent
    assert duration.mean() == pytest.approx(64.0, rel=0.08) and instances.mean() == pytest.approx(45.0, rel=0.12)
    assert duration.max() <= 24_954 * (1 + 1e-5) and instances.max() <= 25_152
    assert set(np.unique(cores)) == {0.5, 1.0}
    assert not np.asarray(table.duration_s)[~valid].any()


@pytest.mark.full
def test_arrivals_follow_the_curve_and_full_slots_are_counted():
    curve = jnp.where(jnp.arange(4000) < 2000, 0.5, 1.5)
    table = DRAW_JOBS(KEY, curve, 4, JOBS)
    arrived = np.asarray(table.valid).sum(axis=1) + np.asarray(table.lost)
    assert arrived[:2000].mean() == pytest.approx(2.5, rel=0.05) and arrived[2000:].mean() == pytest.approx(
        7.5, rel=0.03
    )


def test_server_power_runs_from_idle_to_full_and_saves_least_in_the_middle():
    model = ServerModel()
    power = np.asarray(server_power(jnp.linspace(0.0, 1.0, 101), model))
    np.testing.assert_allclose(power[[0, 50, 100]], [0.4, 0.4 + 0.6 * (1.0 - 0.5**1.4), 1.0], rtol=1e-6)
    assert np.all(np.diff(power) > 0) and power[50] > 0.7
    # COP 5 up to 20 degC, 3 at 30, never below 2
    cooling = cooling_power(jnp.asarray([10.0, 10.0, 10.0]), jnp.asarray([5.0, 30.0, 50.0]), model)
    np.testing.assert_allclose(cooling, [2.0, 10 / 3, 5.0], rtol=1e-6)


@pytest.fixture(scope="module")
def germany():
    prices = load_dataset("de_smard_2018")
    residual = synthetic_fit.residual_load(load_dataset("de_2018"))
    inputs = [jnp.asarray(x) for x in (*synthetic_fit.calendar(prices), residual)]
    return inputs, prices.column("price.day_ahead_per_mwh").astype(np.float64)


@pytest.mark.full
def test_drawn_prices_have_the_mean_spread_and_correlation_of_2018(germany):
    inputs, price = germany
    draw = jax.jit(jax.vmap(lambda key: draw_price(key, *inputs, PRICE_DE_2018, 60.0), out_axes=1))
    drawn = np.asarray(draw(jax.random.split(KEY, 8)))
    assert drawn.mean() == pytest.approx(44.47, abs=0.5)
    assert drawn.std() == pytest.approx(17.77, rel=0.06)
    assert lag1(drawn) == pytest.approx(lag1(price[:, None]), abs=0.01)
    # the same hours are dear: the levels, not only the totals, follow the market
    assert np.corrcoef(drawn.mean(axis=1), price)[0, 1] > 0.85
    assert (drawn < 0).any() and drawn.min() > -PRICE_DE_2018.shift_per_mwh


@pytest.mark.tiers("full", long=["30.0"])
@pytest.mark.parametrize("minutes", [30.0, 60.0])
def test_price_noise_keeps_its_spread_at_another_step(minutes):
    model = PRICE_DE_2018
    noise = jax.vmap(lambda key: draw_price_noise(key, 2000, model, minutes), out_axes=1)(jax.random.split(KEY, 64))
    jumps = model.jumps_per_hour * (model.jump_mean**2 + model.jump_std**2) / (1 - model.phi**2)
    x = np.asarray(noise)
    assert abs(x.mean()) < 0.003
    assert x.std() == pytest.approx(np.sqrt(model.sigma**2 + jumps), rel=0.03)
    assert lag1(x) == pytest.approx(model.phi ** (minutes / 60), abs=0.005)


@pytest.mark.full
def test_jumps_that_all_go_up_leave_the_mean_at_zero():
    model = replace(PRICE_DE_2018, jumps_per_hour=0.5, jump_mean=0.3)
    noise = np.asarray(draw_price_noise(KEY, 40_000, model, 60.0))
    # uncentred, the mean would be 0.5 * 0.3 / (1 - phi) = 1.6
    assert abs(noise.mean()) < 4 * noise.std() / np.sqrt(40_000 * (1 - model.phi) / (1 + model.phi))


@pytest.mark.full
def test_jumps_make_tails_that_a_gaussian_has_not():
    shocks = np.diff(np.asarray(draw_price_noise(KEY, 40_000, PRICE_DE_2018, 60.0)))
    calm = np.diff(np.asarray(draw_price_noise(KEY, 40_000, replace(PRICE_DE_2018, jumps_per_hour=0.0), 60.0)))
    # a Gaussian puts 0.02 of 40,000 steps there
    assert (np.abs(calm) > 5 * calm.std()).sum() <= 2
    assert (np.abs(shocks) > 5 * calm.std()).sum() > 100


def test_the_committed_price_constants_are_what_the_fit_gives():
    assert synthetic_fit.differences(synthetic_fit.fit_price(), PRICE_DE_2018) == []


@pytest.mark.tiers("full", long=["noise0"])
@pytest.mark.parametrize("noise", [WIND_NOISE, SOLAR_NOISE])
def test_plant_noise_has_mean_one_its_own_sites_and_quiet_nights(noise):
    available = jnp.full((4000, 64), 0.25).at[::4].set(0.0)
    out = np.asarray(perturb_plants(KEY, available, noise))
    assert np.all(out[::4] == 0) and out.min() >= 0 and out.max() <= 1
    factor = np.log(np.delete(out, np.s_[::4], axis=0) / 0.25) + 0.5 * noise.sigma**2
    assert np.exp(factor - 0.5 * noise.sigma**2).mean() == pytest.approx(1.0, abs=0.01)
    assert factor.std() == pytest.approx(noise.sigma, rel=0.02)
    apart = factor.reshape(-1, 3, 64)
    assert (apart[:, 0] * apart[:, 1]).mean() / factor.var() == pytest.approx(noise.phi, abs=0.02)
    between = np.corrcoef(factor.T) - np.eye(64)
    assert abs(between.mean()) < 0.01
    full = perturb_plants(KEY, jnp.ones((100, 3)), noise)
    assert float(full.max()) == 1.0
