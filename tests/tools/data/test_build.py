"""Builders on made-up rows: gaps, duplicates, clocks, reporting gaps, and a changed file that is noticed."""

from datetime import datetime, timedelta

import numpy as np
import pytest

from powerzoo_jax.base import DataError
from powerzoo_jax.base.npz import read_npz
from powerzoo_jax.data import get_info, library
from tools.data import build_bundle, common, generation, weather

HOUR_NS = 3600 * 10**9


def test_rows_take_their_place_and_duplicates_are_counted():
    clock = common.clock_between("2019-01-01T00:00", "2019-01-01T03:00", 60)
    times = clock[0] + HOUR_NS * np.array([-1, 0, 2, 2, 4])
    table, twice = common.place(times, np.array([[9.0, 1.0, 3.0, 4.0, 9.0]]), clock)
    np.testing.assert_array_equal(table, [[1.0, np.nan, 4.0, np.nan]])
    assert twice == 1


def test_a_clock_reaches_its_last_stamp_over_years():
    # the length of a float range would fall short by one
    assert len(common.clock_between("2017-01-01T06:00", "2018-01-01T05:00", 60)) == 8760


def test_gaps_are_filled_up_to_the_limit_and_refused_beyond():
    values, bad = np.array([[0.0, np.nan, np.nan, 3.0]]), np.array([False, True, True, False])
    np.testing.assert_array_equal(common.fill_gaps(values, bad, 2), [[0.0, 1.0, 2.0, 3.0]])
    with pytest.raises(DataError, match="2 steps is longer than the 1"):
        common.fill_gaps(values, bad, 1)


def test_values_that_are_missing_are_never_coded():
    with pytest.raises(DataError, match="missing"):
        common.encode(np.array([0, HOUR_NS]), ["a"], np.array([[1.0, np.nan]]), np.ones(1))


def wind_with_gaps(gaps: list[int]) -> list[int]:
    on, off = np.full(40, 4000.0), np.full(40, 2000.0)
    on[gaps], off[gaps] = 1200.0, 500.0
    on[5] = 1000.0  # one alone: a real change
    return np.flatnonzero(generation._wind_drops(on, off, np.zeros(40, bool))).tolist()


def test_both_winds_must_fall_together_to_be_a_gap():
    assert wind_with_gaps([30]) == [30]
    assert wind_with_gaps([20, 21, 22]) == [20, 21, 22]


def test_gaps_hidden_by_their_neighbours_are_found_in_a_later_round():
    # at 21 and 23 four of seven values are gaps: only without 20 and 24 is their median a good one
    assert wind_with_gaps([20, 21, 23, 24]) == [20, 21, 23, 24]


def test_the_running_median_leaves_gaps_out():
    values = np.array([1.0, np.nan, 3.0, 10.0, 4.0, np.nan, 2.0])
    assert generation._median(values)[3] == np.median([1.0, 3.0, 10.0, 4.0, 2.0])
    assert generation._median(values)[0] == np.median([1.0, 3.0, 10.0])


def test_french_demand_drops_the_hour_that_does_not_exist_and_the_doubled_one(tmp_path, monkeypatch):
    days = (datetime(2017, 3, 26), datetime(2017, 10, 29))
    walls = [day + timedelta(hours=h) for day in days for h in range(24)]
    text = "Date,Spot,conso\n" + "".join(f"{wall},1.0,{1000 + i}\n" for i, wall in enumerate(walls))
    packed = generation.gzip.compress(text.encode())
    monkeypatch.setattr(generation, "read_member", lambda path, member: packed)
    times, demand, ghosts = generation._french_demand(tmp_path, "Europe/Paris")
    assert ghosts == (1, 1) and len(times) == 46
    utc = {str(t)[:13]: int(mw) for t, mw in zip(times.astype("datetime64[ns]"), demand, strict=True)}
    assert utc["2017-03-26T00"] == 1001 and utc["2017-03-26T01"] == 1003  # 01:00 and 03:00 civil
    assert utc["2017-10-28T23"] == 1025 and utc["2017-10-29T02"] == 1027  # 01:00 and 03:00 civil
    assert "2017-10-29T00" not in utc and "2017-10-29T01" not in utc


def test_weather_of_another_zone_or_with_a_leap_day_is_refused():
    days = np.arange(np.datetime64("2018-01-01"), np.datetime64("2019-01-01")).tolist()
    hours = [(day.month, day.day, hour) for day in days for hour in range(1, 25)]
    weather._check_clock(-5.0, hours, "site")
    for offset, stamps in ((-6.0, hours), (-5.0, [*hours, (2, 29, 1)])):
        with pytest.raises(DataError, match="UTC-5"):
            weather._check_clock(offset, stamps, "site")


def test_a_changed_value_a_changed_dtype_and_a_lost_array_are_differences():
    name = "tmy"
    arrays = read_npz(library.BUNDLED / f"{name}.npz")
    built = common.Built(arrays, (), "")
    assert build_bundle.compare({name: built}) == []
    codes = arrays["codes"].copy()
    codes[0, 0] += 1
    changes = ({"codes": codes}, {"codes": arrays["codes"].astype(np.int32)}, {"scale": arrays["scale"] * 2})
    for change in changes:
        lines = build_bundle.compare({name: common.Built(arrays | change, (), "")})
        assert len(lines) == 2 and "sha256" in lines[1]
    assert len(build_bundle.compare({name: common.Built({"codes": codes}, (), "")})) > 2


def test_every_bundled_set_has_a_builder_with_pins():
    pins = build_bundle.read_pins()
    assert set(build_bundle.BUILDERS) == set(build_bundle.DATASETS)
    for name, (packages, _) in build_bundle.BUILDERS.items():
        assert all(len(pins[package].sha256) == 64 for package in packages)
        assert get_info(name).licence
