"""Vehicles: trips and sessions, what an absent vehicle ignores, departures short of charge, and the builder."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.devices import trips as schedule
from powerzoo_jax.devices import vehicle
from powerzoo_jax.devices.trips import CommuteTrip, Session, daily_trips, jittered, session_trips
from powerzoo_jax.devices.vehicle import vehicle_params

ROUNDING = 1e-12
WORK = CommuteTrip(8.0, 18.0, 15.0)


@pytest.fixture(autouse=True)
def x64():
    with jax.enable_x64(True):
        yield


def fleet(*schedules, dt_minutes=60, **keywords):
    return vehicle_params(daily_trips(schedules or [[WORK]], dt_minutes, "float64"), "float64", **keywords)


def at(hour):
    return jnp.asarray(round(hour * 60), jnp.int32)


def start(params, soc=0.8):
    return vehicle.init(params, jnp.full(params.mask.shape, soc), params.trips)


def play(params, state, action, hours, dt_hours=1.0):
    """Steps with one constant action from hour to hour: the last state and the outputs per step."""
    outs = []
    command = vehicle.command(params, jnp.full((params.mask.shape[0], 1), action))
    for hour in hours:
        state, out = vehicle.step(params, state, command, dt_hours, at(hour % 24))
        outs.append(jax.tree.map(np.asarray, out))
    return state, outs


def test_an_absent_vehicle_ignores_actions_and_reports_the_whole_command():
    params = fleet()
    left, [out] = play(params, start(params), 1.0, [12])
    assert out.p_mw[0] == 0.0 and out.undelivered_mw[0] == pytest.approx(0.007, abs=ROUNDING)
    same, _ = play(params, start(params), -1.0, [12])
    assert left.soc[0] == same.soc[0] == 0.8


def test_it_is_away_from_the_step_of_departure_to_that_before_arrival():
    params = fleet()
    _, outs = play(params, start(params), 0.0, range(24))
    assert [bool(out.home[0]) for out in outs] == [not 8 <= hour < 18 for hour in range(24)]


def test_a_return_in_the_last_minute_of_a_step_makes_it_a_step_at_home():
    params = fleet([CommuteTrip(8.0, 17 + 59 / 60, 15.0)])
    state, [before, out] = play(params, start(params), 0.0, [16, 17])
    assert not before.home[0] and out.home[0]
    assert state.soc[0] == pytest.approx(0.55, abs=ROUNDING)


def test_the_trip_is_paid_from_the_battery_on_arrival():
    params = fleet()
    state, _ = play(params, start(params), 0.0, range(8, 18))
    assert state.soc[0] == pytest.approx(0.8, abs=ROUNDING)
    state, [out] = play(params, state, 0.0, [18])
    assert state.soc[0] == pytest.approx(0.8 - 15 / 60, abs=ROUNDING) and out.unmet_mwh[0] == 0.0


def test_energy_that_was_not_in_the_battery_is_charged_en_route_and_priced():
    """0.2 of 60 kWh less 15 kWh would be -0.05: the band ends at 0.1, 9 kWh are missing, 18 $."""
    params = fleet()
    state, outs = play(params, start(params, 0.2), 0.0, [17, 18])
    assert state.soc[0] == pytest.approx(0.1, abs=ROUNDING)
    assert outs[1].unmet_mwh[0] == pytest.approx(0.009, abs=ROUNDING)
    assert outs[1].cost_usd[0] == pytest.approx(18.0, abs=1e-9) and outs[0].unmet_mwh[0] == 0.0


def test_a_departure_below_the_required_level_is_short_once():
    params = fleet(soc_departure_min=0.8)
    _, outs = play(params, start(params, 0.65), 0.0, [7, 8, 9])
    assert [float(out.shortfall_mwh[0]) for out in outs] == pytest.approx([0.0, 0.009, 0.0], abs=ROUNDING)


def test_an_arrival_and_the_next_departure_in_one_step_are_handled_in_order():
    """Back at 9:10 having driven 6 kWh, gone again at 9:40: short by the trip's energy, and away for the step."""
    params = fleet([CommuteTrip(8.0, 9 + 1 / 6, 6.0), CommuteTrip(9 + 2 / 3, 12.0, 1.0)], soc_departure_min=0.8)
    state, [out] = play(params, start(params), -1.0, [9])
    assert not out.home[0] and out.p_mw[0] == 0.0
    assert state.soc[0] == pytest.approx(0.7, abs=ROUNDING)
    assert out.shortfall_mwh[0] == pytest.approx(0.006, abs=ROUNDING)


def test_a_trip_over_midnight_is_one_trip():
    params = fleet([CommuteTrip(22.0, 6.0, 6.0)])
    state, outs = play(params, start(params), 0.0, range(20, 32))
    assert [bool(out.home[0]) for out in outs] == [True] * 2 + [False] * 8 + [True] * 2
    assert state.soc[0] == pytest.approx(0.7, abs=ROUNDING)


def test_an_episode_that_begins_during_a_trip_begins_away_and_pays_on_arrival():
    params = fleet()
    state, outs = play(params, start(params), 0.0, [17, 18])
    assert not outs[0].home[0] and outs[0].shortfall_mwh[0] == 0.0
    assert state.soc[0] == pytest.approx(0.55, abs=ROUNDING)


def test_at_home_it_charges_and_discharges_like_a_battery():
    params = fleet(soc_max=0.95)
    state, [out] = play(params, start(params, 0.5), 1.0, [20])
    assert out.p_mw[0] == pytest.approx(0.007) and state.soc[0] == pytest.approx(0.5 - 0.007 / 0.95 / 0.06)
    state, [out] = play(params, start(params, 0.94), -1.0, [20])
    assert out.p_mw[0] == pytest.approx(-0.01 * 0.06 / 0.95) and state.soc[0] == pytest.approx(0.95)
    assert out.undelivered_mw[0] == pytest.approx(0.007 - 0.01 * 0.06 / 0.95)


def test_each_direction_has_its_own_rating():
    params = fleet(charge_kw=11.0, discharge_kw=5.0)
    _, [out] = play(params, start(params, 0.5), 1.0, [20])
    assert out.p_mw[0] == pytest.approx(0.005)
    _, [out] = play(params, start(params, 0.5), -1.0, [20])
    assert out.p_mw[0] == pytest.approx(-0.011)


@pytest.mark.parametrize("hour", [7, 8, 12, 18, 20])
def test_bounds_are_what_the_coming_step_delivers(hour):
    params = fleet()
    state = start(params, 0.4)
    low, high = vehicle.power_bounds(params, state, 1.0, at(hour))
    _, [full] = play(params, state, 1.0, [hour])
    _, [empty] = play(params, state, -1.0, [hour])
    assert (float(low[0]), float(high[0])) == (empty.p_mw[0], full.p_mw[0])


def test_hours_to_events_count_down_to_departure_at_home_and_to_arrival_away():
    trips = fleet().trips
    seen = [schedule.hours_to_events(trips, at(h), 60, "float64") for h in (6, 8, 9, 17, 18, 19)]
    assert [(float(d[0]), float(a[0])) for d, a in seen] == [(2, 0), (0, 0), (0, 9), (0, 1), (0, 0), (13, 0)]


def test_a_session_vehicle_is_away_outside_its_sessions():
    """Plugged in 2-5 and 9-12 of a day: it arrives with 6 and then with 3 kWh less."""
    stays = [[Session(2.0, 5.0, 6.0), Session(9.0, 12.0, 3.0)]]
    trips = session_trips(stays, 24.0, 60, "float64")
    params = vehicle_params(trips, "float64")
    state, outs = play(params, start(params), 0.0, range(24))
    assert [bool(out.home[0]) for out in outs] == [2 <= h < 5 or 9 <= h < 12 for h in range(24)]
    assert state.soc[0] == pytest.approx(0.8 - 9 / 60, abs=ROUNDING)


def test_jitter_keeps_durations_order_and_the_clock():
    dense = [CommuteTrip(8, 9, 5.0), CommuteTrip(9, 10, 3.0), CommuteTrip(12, 13, 3.0), CommuteTrip(23, 24, 5.0)]
    trips = daily_trips([dense, [WORK]], 60, "float64")
    moved = jax.vmap(lambda k: jittered(k, trips, 1, 60, jnp.full((2, 4), 0.5)))(
        jax.random.split(jax.random.key(1), 200)
    )
    shift = np.asarray(moved.depart_min - trips.depart_min[None])
    shift = (shift + 720) % 1440 - 720
    assert set(np.unique(shift[:, 1, 0])) == {-60, 0, 60}
    assert set(np.unique(shift[:, 0, 2])) == {-60, 0, 60}
    assert set(np.unique(shift[:, 0, 0])) == {-60, 0}  # the next one departs as this one returns
    begin = np.asarray(trips.depart_min)[0] + shift[:, 0]
    assert (begin[:, 1:] >= (begin + 60)[:, :-1]).all() and (begin[:, 0] + 1440 >= begin[:, -1] + 60).all()
    np.testing.assert_allclose(moved.energy_mwh[:, 1, 0], 0.0075)


def test_a_padded_vehicle_is_inert():
    params = fleet([WORK], [WORK]).replace(mask=jnp.asarray([True, False]))
    for hour in (7, 8, 18, 20):
        _, [out] = play(params, start(params, 0.15), 1.0, [hour])
        assert all(column[1] == 0.0 for column in out)


@pytest.mark.parametrize(
    ("schedules", "words"),
    [
        ([[CommuteTrip(8.0, 8.5, 1.0)]], "trip 0 lasts 30 min, a step 60 min"),
        ([[CommuteTrip(8.0, 12.0, 1.0), CommuteTrip(11.0, 13.0, 1.0)]], "the next departs at 660"),
        ([[CommuteTrip(25.0, 26.0, 1.0)]], "24 hours of the clock"),
        ([[CommuteTrip(8.0, 9.0, -1.0)]], "must not be negative"),
    ],
)
def test_impossible_trips_are_refused_by_vehicle_and_trip(schedules, words):
    with pytest.raises(ValueError, match=words):
        fleet(*schedules)


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"capacity_kwh": 0.0}, "capacity_kwh = 0.0 must be positive"),
        ({"soc_min": 0.9, "soc_max": 0.2}, "soc_min < soc_max"),
        ({"soc_departure_min": 0.99}, "soc_departure_min = 0.99 must lie inside"),
        ({"initial_soc": (0.8, 0.5)}, "reversed"),
    ],
)
def test_impossible_batteries_are_refused_by_name(keywords, words):
    with pytest.raises(ValueError, match=words):
        fleet(**keywords)


def test_a_vehicle_without_sessions_is_refused():
    with pytest.raises(ValueError, match="vehicle 0 has no session"):
        session_trips([[]], 24.0, 60, "float64")
