"""Clocks: fixed local offsets and civil settlement days."""

from datetime import datetime

import numpy as np
import pytest

from powerzoo_jax.data import clock

BERLIN, LONDON = "Europe/Berlin", "Europe/London"


def ns(stamp: str) -> int:
    return int(np.datetime64(stamp, "ns").astype(np.int64))


def test_local_standard_midnight_is_the_day_boundary():
    before, after = ns("2017-12-31T22:30"), ns("2017-12-31T23:00")
    days = clock.local_days(np.array([before, after]), 60)
    assert clock.iso_dates(days) == ("2017-12-31", "2018-01-01")
    assert clock.minute_of_day(np.array([before, after]), 60).tolist() == [1410, 0]


def test_west_of_greenwich_the_day_starts_later_in_utc():
    assert clock.iso_dates(clock.local_days(np.array([ns("2021-01-01T05:59"), ns("2021-01-01T06:00")]), -360)) == (
        "2020-12-31",
        "2021-01-01",
    )


def test_civil_hour_is_read_on_both_passes_of_the_october_change():
    wall = datetime(2018, 10, 28, 2)
    assert clock.civil_to_utc(wall, BERLIN) == ns("2018-10-28T00:00")
    assert clock.civil_to_utc(wall, BERLIN, repeated=True) == ns("2018-10-28T01:00")


def test_hour_skipped_in_march_is_refused():
    with pytest.raises(ValueError, match="does not exist"):
        clock.civil_to_utc(datetime(2018, 3, 25, 2), BERLIN)


@pytest.mark.parametrize(("date", "count"), [("2019-03-31", 46), ("2019-10-27", 50), ("2019-06-01", 48)])
def test_settlement_days_have_46_48_or_50_half_hours(date, count):
    starts = clock.settlement_periods(date, LONDON)
    assert len(starts) == count
    assert np.all(np.diff(starts) == 30 * clock.MINUTE_NS)


def test_settlement_period_one_starts_at_civil_midnight():
    assert clock.settlement_periods("2019-07-01", LONDON)[0] == ns("2019-06-30T23:00")
    assert clock.settlement_periods("2019-03-31", LONDON)[2] == ns("2019-03-31T01:00")


@pytest.mark.parametrize("minutes", [0, -30, 7])
def test_step_that_does_not_divide_a_day_is_refused(minutes):
    with pytest.raises(ValueError, match="does not divide a day"):
        clock.steps_per_day(minutes)
