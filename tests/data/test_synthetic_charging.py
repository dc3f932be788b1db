"""Charging sessions: resampled whole at work, drawn from published distributions at home."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.data import load_dataset
from powerzoo_jax.data.clock import minute_of_day
from powerzoo_jax.data.synthetic import HOME_ELAAD, Sessions, draw_home_sessions, resample_sessions

KEY = jax.random.key(7)


@pytest.fixture(scope="module")
def recorded():
    data = load_dataset("acn_sessions")
    arrival = minute_of_day(data.time_utc, data.meta.offset_minutes)
    return Sessions(
        *(jnp.asarray(x, float) for x in (arrival, data.column("ev.stay_min"), data.column("ev.delivered_kwh")))
    )


RESAMPLE = jax.jit(resample_sessions, static_argnums=(2, 3))
DRAW_HOME = jax.jit(draw_home_sessions, static_argnums=2)


def lag1(x):
    return float(np.corrcoef(x[1:], x[:-1])[0, 1])


def test_resampled_sessions_have_the_moments_of_the_recorded_ones(recorded):
    drawn = RESAMPLE(KEY, recorded, 40_000, 0.0)
    for ours, theirs in zip(drawn, recorded, strict=True):
        error = 4 * float(theirs.std()) / 200
        assert float(ours.mean()) == pytest.approx(float(theirs.mean()), abs=error)
        assert float(ours.std()) == pytest.approx(float(theirs.std()), rel=0.05)
        assert abs(lag1(np.asarray(ours))) < 0.02  # draws are independent, whatever the order of the record
    assert float(drawn.stay_min.mean()) / 60 == pytest.approx(6.35, abs=0.1)
    assert float(drawn.energy_kwh.mean()) == pytest.approx(12.5, abs=0.3)


def test_a_resampled_session_stays_whole(recorded):
    drawn = RESAMPLE(KEY, recorded, 500, 0.0)
    rows = {tuple(row) for row in np.stack([np.asarray(x) for x in recorded], axis=1).tolist()}
    assert all(tuple(row) in rows for row in np.stack([np.asarray(x) for x in drawn], axis=1).tolist())
    moved = RESAMPLE(KEY, recorded, 500, 15.0)
    shift = np.asarray(moved.arrival_min - drawn.arrival_min)
    assert 14 < np.abs(shift).max() <= 15.001 and np.array_equal(moved.stay_min, drawn.stay_min)


def test_home_sessions_have_the_typed_shares_and_quantiles():
    free = replace(HOME_ELAAD, charger_kw=1e6)
    weekend = jnp.asarray(np.arange(60_000) % 2, float)
    drawn = DRAW_HOME(KEY, weekend, free)
    hour = np.asarray(drawn.arrival_min) / 60
    for flag, share, peak in ((0, 17.0, 18), (1, 10.2, 17)):
        found = np.histogram(hour[np.asarray(weekend) == flag], 24, (0, 24))[0] / 300
        assert found[peak] == pytest.approx(share, abs=0.8) and np.argmax(found) == peak
    stay, energy = np.asarray(drawn.stay_min) / 60, np.asarray(drawn.energy_kwh)
    np.testing.assert_allclose(np.quantile(stay, [0.1, 0.5, 0.9]), [1.5, 11.0, 20.3], rtol=0.03)
    np.testing.assert_allclose(np.quantile(energy, [0.1, 0.5, 0.9]), [3.3, 19.4, 51.4], rtol=0.03)
    # the published curves, integrated over all their percentiles
    np.testing.assert_allclose([stay.mean(), stay.std()], [11.76, 10.05], rtol=0.03)
    np.testing.assert_allclose([energy.mean(), energy.std()], [23.86, 18.78], rtol=0.03)
    assert max(abs(lag1(x)) for x in (hour[::2], stay, energy)) < 0.02


def test_energy_fits_into_the_stay():
    drawn = DRAW_HOME(KEY, jnp.zeros(60_000), HOME_ELAAD)
    energy, limit = np.asarray(drawn.energy_kwh), np.asarray(drawn.stay_min) / 60 * HOME_ELAAD.charger_kw
    assert np.all(energy <= limit * (1 + 1e-5)) and (energy > 0.999 * limit).mean() > 0.01
