"""Bundled sets: published statistics, known values at known hours, and the errors of the loader."""

from dataclasses import replace

import numpy as np
import pytest

from powerzoo_jax.base import DataError, DataMissing
from powerzoo_jax.data import get_info, library, list_datasets, load_dataset, manifest, price_quantiles, splits
from powerzoo_jax.data.clock import local_days
from powerzoo_jax.data.series import EVENTS, check_unit

CENT = 0.005  # prices are published in whole cents
PROFILE_STEP = 0.426556 / 4095  # 12-bit coding of mv_semiurb


def value_at(name: str, signal: str, stamp: str) -> float:
    data = load_dataset(name)
    row = np.flatnonzero(data.time_utc == np.datetime64(stamp, "ns").astype(np.int64))
    assert len(row) == 1
    return float(data.column(signal)[row[0]])


@pytest.mark.parametrize("name", list_datasets())
def test_clock_is_regular_and_values_are_finite(name):
    data = load_dataset(name)
    assert data.time_utc.dtype == np.int64
    steps = np.diff(data.time_utc)
    assert np.all(steps >= 0 if data.meta.step_minutes == EVENTS else steps == data.meta.step_minutes * 60 * 10**9)
    assert all(v.dtype == np.float32 and np.isfinite(v).all() for v in data.columns.values())
    assert all(v.shape == data.time_utc.shape for v in data.columns.values())


def test_smard_price_has_its_published_statistics():
    price = load_dataset("de_smard_2018").column("price_eur_per_mwh").astype(np.float64)
    assert len(price) == 8760
    found = [price.mean(), price.std(), price.min(), price.max()]
    np.testing.assert_allclose(found, [44.47, 17.77, -76.01, 128.26], atol=CENT)
    assert (price < 0).sum() == 134


@pytest.mark.parametrize(
    ("stamp", "price"),
    [
        ("2017-12-31T23:00", -5.27),  # 1 January 00:00 civil
        ("2018-01-01T01:00", -56.65),
        ("2018-03-25T00:00", 38.01),  # 01:00 civil, the hour before the clock is put forward
        ("2018-03-25T01:00", 37.85),  # 03:00 civil
        ("2018-09-30T21:00", 60.87),  # last hour of the zone with Austria
        ("2018-09-30T22:00", 59.53),
        ("2018-10-28T00:00", 41.62),  # 02:00 civil, first pass
        ("2018-10-28T01:00", 41.59),  # 02:00 civil, second pass
        ("2018-10-28T02:00", 40.12),  # 03:00 civil
        ("2018-12-31T22:00", 30.31),
    ],
)
def test_smard_price_at_known_hours(stamp, price):
    assert value_at("de_smard_2018", "price.day_ahead_per_mwh", stamp) == pytest.approx(price, abs=CENT)


def test_ercot_keeps_the_storm():
    houston = load_dataset("ercot_dam_2021_2022").column("HB_HOUSTON")
    assert len(houston) == 17520
    assert houston.max() == pytest.approx(8995.11, abs=CENT)
    assert houston.mean(dtype=np.float64) == pytest.approx(109.06, abs=CENT)


@pytest.mark.parametrize(
    ("stamp", "price"),
    [
        ("2021-01-01T06:00", 18.30),  # hour ending 01:00 CST
        ("2021-03-14T07:00", 16.25),  # hour ending 02:00 CST
        ("2021-03-14T08:00", 15.07),  # hour ending 04:00 CDT
        ("2021-11-07T06:00", 24.75),  # hour ending 02:00 CDT
        ("2021-11-07T07:00", 28.14),  # the same label, repeated-hour flag Y
        ("2021-11-07T08:00", 28.83),
        ("2021-02-17T06:00", 8995.11),
    ],
)
def test_ercot_price_at_known_hours(stamp, price):
    assert value_at("ercot_dam_2021_2022", "HB_HOUSTON", stamp) == pytest.approx(price, abs=CENT)


def test_simbench_covers_the_leap_year():
    data = load_dataset("simbench_2016")
    assert len(data.time_utc) == 35136 == 366 * 96
    assert data.time_utc[0] == np.datetime64("2015-12-31T23:00", "ns").astype(np.int64)
    for profile in ("mv_semiurb", "mv_rural", "mv_urban", "mv_comm", "lv_rural1", "lv_urban6"):
        assert data.column(f"load.{profile}_pu").min() >= 0
    assert data.column("mv_semiurb").max() == pytest.approx(0.426556, abs=1e-6)


@pytest.mark.parametrize("profile", ["mv_semiurb", "mv_rural", "mv_urban", "mv_comm", "lv_rural1", "lv_urban6", "PV3"])
def test_simbench_profiles_reach_their_reference_in_half_hours_and_pass_it_in_quarters(profile):
    data = load_dataset("simbench_2016")
    quarters = data.column(profile).astype(np.float64)
    assert data.d_ref(profile) == pytest.approx(quarters.reshape(-1, 2).mean(axis=1).max(), rel=1e-7)
    assert data.d_ref(profile) < quarters.max()


@pytest.mark.parametrize(
    ("stamp", "load"),
    [
        ("2015-12-31T23:00", 0.174978),  # 1 January 00:00 civil
        ("2016-03-27T00:45", 0.089433),  # 01:45 civil
        ("2016-03-27T01:00", 0.082820),  # 03:00 civil
        ("2016-07-01T10:00", 0.221324),  # 12:00 civil, summer time
        ("2016-10-30T00:00", 0.094179),  # 02:00 civil, first pass
        ("2016-10-30T01:00", 0.081920),  # 02:00 civil, second pass
        ("2016-12-31T22:45", 0.123410),
    ],
)
def test_simbench_load_at_known_quarter_hours(stamp, load):
    assert value_at("simbench_2016", "mv_semiurb", stamp) == pytest.approx(load, abs=PROFILE_STEP)


def test_french_demand_covers_three_years_of_local_days():
    data = load_dataset("fr_2017_2019")
    assert len(data.time_utc) == 1095 * 24
    assert data.time_utc[0] == np.datetime64("2016-12-31T23:00", "ns").astype(np.int64)
    assert data.d_ref("load.actual_mw") == data.column("demand_mw").max() == 95_400


@pytest.mark.parametrize(
    ("stamp", "mw"),
    [
        ("2018-03-25T00:00", 58600),  # 01:00 civil; the file repeats it at 02:00, which does not exist
        ("2018-03-25T01:00", 57800),  # 03:00 civil
        ("2018-10-27T23:00", 50100),  # 01:00 civil, summer time
        ("2018-10-28T00:00", 50100 - 5100 / 3),  # 02:00 civil twice: between 01:00 and 03:00
        ("2018-10-28T01:00", 50100 - 2 * 5100 / 3),
        ("2018-10-28T02:00", 45000),  # 03:00 civil, winter time
    ],
)
def test_french_demand_at_the_clock_changes(stamp, mw):
    assert value_at("fr_2017_2019", "load.actual_mw", stamp) == mw


def test_demand_and_generation_of_france_move_on_one_clock():
    # nuclear and gas follow the demand: a shift of an hour either way agrees less, in winter and in summer
    data = load_dataset("fr_2017_2019")
    month = data.time_utc.astype("datetime64[ns]").astype("datetime64[M]").astype(int) % 12
    demand = np.diff(data.column("load.actual_mw"))
    supply = np.diff(sum(data.column(f"generation.{kind}_mw") for kind in ("nuclear", "gas")))
    for season in ((10, 11, 0, 1), (4, 5, 6, 7)):
        rows = np.flatnonzero(np.isin(month[2:-2], season)) + 1
        fit = [np.corrcoef(demand[rows], supply[rows + lag])[0, 1] for lag in (-1, 0, 1)]
        assert fit[1] == max(fit)


@pytest.mark.parametrize(
    ("name", "signal", "noon"),
    # true solar noon in UTC near the middle of the country; the equation of time and the east-west spread move it
    [("fr_2017_2019", "solar.available_mw", 11.85), ("de_2018", "solar.available_mw", 11.3)],
)
def test_the_sun_of_every_month_stands_where_utc_says(name, signal, noon):
    data = load_dataset(name)
    time, power = data.time_utc.astype("datetime64[ns]"), data.column(signal).astype(np.float64)
    hour = (data.time_utc % (24 * 3600 * 10**9)) / (3600 * 10**9) + data.meta.step_minutes / 120
    month = time.astype("datetime64[M]").astype(int) % 12
    centre = [(power * hour)[month == m].sum() / power[month == m].sum() for m in range(12)]
    np.testing.assert_allclose(centre, noon, atol=0.5)


def test_generation_of_germany_2018_is_the_published_one():
    # Fraunhofer ISE / ENTSO-E, 2018: solar about 41 TWh, wind about 109 TWh
    data = load_dataset("de_2018")
    energy = {name: data.column(name).sum(dtype=np.float64) / 4e6 for name in data.columns}
    assert energy["solar.available_mw"] == pytest.approx(41.2, abs=0.5)
    wind = energy["wind.onshore_available_mw"] + energy["wind.offshore_available_mw"]
    assert wind == pytest.approx(109, abs=1)


def test_british_gaps_are_gone():
    data = load_dataset("gb_2018_2020")
    assert len(data.time_utc) == 52608
    total = data.column("generation.total_mw")
    assert total.min() >= 15_000
    assert len(data.repaired) == 123 + 238 + 1939
    hole = np.flatnonzero(data.time_utc == np.datetime64("2018-11-17T23:30", "ns").astype(np.int64))[0]
    assert hole in data.repaired
    onshore = data.column("generation.wind_onshore_metered_mw")
    assert onshore[hole] == pytest.approx((onshore[hole - 1] + onshore[hole + 1]) / 2, abs=1)


def test_british_wind_shares_are_the_metered_ones():
    data = load_dataset("gb_2018_2020")
    for where, low, high in (("onshore", 0.22, 0.26), ("offshore", 0.24, 0.32)):
        share = data.column(f"generation.wind_{where}_metered_mw") / data.column(f"capacity.wind_{where}_mw")
        year = data.time_utc.astype("datetime64[ns]").astype("datetime64[Y]")
        assert all(low < share[year == y].mean() < high for y in np.unique(year))


def test_charging_sessions_have_their_published_counts_and_means():
    data = load_dataset("acn_sessions")
    assert len(data.time_utc) == 27407
    assert data.column("ev.stay_min").mean(dtype=np.float64) / 60 == pytest.approx(6.35, abs=CENT)
    assert data.column("ev.delivered_kwh").mean(dtype=np.float64) == pytest.approx(12.5, abs=CENT)
    site, station = data.column("ev.site_code"), data.column("ev.station_code")
    assert [len(np.unique(station[site == s])) for s in (0, 1)] == [55, 52]
    assert set(np.unique(data.column("ev.claimed_code"))) == {0.0, 1.0}


def test_first_charging_session_is_on_its_civil_clock():
    data = load_dataset("acn_sessions")
    row = np.flatnonzero(data.time_utc == np.datetime64("2019-05-01T08:18:45", "ns").astype(np.int64))
    assert len(row) == 1  # 01:18:45 Pacific summer time
    assert data.column("stay_min")[row[0]] == pytest.approx(14 * 60 + 33 + 51 / 60, abs=0.25)
    assert data.column("delivered_kwh")[row[0]] == pytest.approx(44.07, abs=CENT)


def test_emission_rate_is_the_mean_of_six_readings():
    data = load_dataset("caiso_moer")
    assert len(data.time_utc) == 41088
    assert data.time_utc[-1] == np.datetime64("2021-09-01T23:30", "ns").astype(np.int64)
    rate = data.column("carbon.marginal_kg_per_kwh")
    assert rate.min() >= 0 and rate.max() < 0.7
    assert rate.mean(dtype=np.float64) == pytest.approx(0.2432, abs=1e-4)


def test_weather_follows_the_climate_and_the_sun():
    data = load_dataset("tmy")
    mean = {s: data.column(f"weather.{s}_temperature_c").mean(dtype=np.float64) for s in manifest.TMY_SITES}
    # normals of the stations: about 22.8, 14.9 and 9.1 degC
    np.testing.assert_allclose(list(mean.values()), [22.8, 14.9, 9.1], atol=1.0)
    hour = (data.time_utc // (3600 * 10**9) - 5) % 24 + 0.5
    for site in manifest.TMY_SITES:
        sun = data.column(f"weather.{site}_ghi_w_per_m2").astype(np.float64)
        assert (sun * hour).sum() / sun.sum() == pytest.approx(12.3, abs=0.4)  # 3 to 7 degrees west of the meridian


def test_area_loads_start_with_the_first_row_of_the_change_table():
    data = load_dataset("activsg200_load")
    first = [float(data.column(f"area_{area}_mw")[0]) for area in range(2, 8)]
    np.testing.assert_allclose(first, [412.8, 144.2, 204.5, 208.2, 64.2, 228.5], rtol=1e-6)


@pytest.mark.parametrize("name", list_datasets())
def test_days_of_the_file_are_the_days_of_the_calendar(name):
    data = load_dataset(name)
    days = np.unique(local_days(data.time_utc, data.meta.offset_minutes))
    calendar = splits.all_days(name)
    if data.meta.step_minutes == EVENTS:
        assert np.isin(days[[0, -1]], calendar).all()
        return
    counts = np.unique(local_days(data.time_utc, data.meta.offset_minutes), return_counts=True)[1]
    np.testing.assert_array_equal(days[counts == 1440 // data.meta.step_minutes], calendar)


@pytest.mark.parametrize("name", list_datasets())
def test_names_of_signals_end_in_their_units(name):
    for signal in get_info(name).signals:
        check_unit(name, signal)


def test_price_normalisation_is_frozen():
    smard = price_quantiles("de_smard_2018", "price.day_ahead_per_mwh")
    ercot = price_quantiles("ercot_dam_2021_2022", "price.day_ahead_hb_houston_per_mwh")
    np.testing.assert_allclose(smard, (15.2475, 72.9305), atol=CENT)
    np.testing.assert_allclose(ercot, (15.5275, 75.0025), atol=CENT)


def test_signal_is_found_by_canonical_column_and_profile_name():
    data = load_dataset("simbench_2016")
    for name in ("load.mv_semiurb_pu", "mv_semiurb_pload", "mv_semiurb"):
        assert data.resolve(name) == "load.mv_semiurb_pu"


@pytest.mark.parametrize("name", list_datasets())
def test_default_signal_and_names_are_consistent(name):
    info = get_info(name)
    names = [signal.name for signal in info.signals]
    assert info.default in names
    assert len(set(names)) == len(names)
    assert info.currency_note or not any(n.startswith("price.") for n in names)


def test_loaded_arrays_are_read_only():
    with pytest.raises(ValueError, match="read-only"):
        load_dataset("de_smard_2018").time_utc[0] = 0


def test_unknown_set_and_signal_name_the_nearest():
    with pytest.raises(ValueError, match="'simbench_2016'"):
        load_dataset("simbench_2017")
    with pytest.raises(KeyError, match=r"'load\.mv_semiurb_pu'"):
        load_dataset("simbench_2016").column("load.mv_semiurban_pu")


def test_absent_file_names_the_remedy(tmp_path):
    with pytest.raises(DataMissing, match="build_bundle --write"):
        library.read_bundle(get_info("de_smard_2018"), tmp_path / "de_smard_2018.npz")


def test_changed_content_is_refused():
    info = replace(get_info("de_smard_2018"), sha256="0" * 64)
    with pytest.raises(DataError, match="Restore the file"):
        library.read_bundle(info, library.BUNDLED / "de_smard_2018.npz")


def test_bundle_stays_small_and_documented():
    files = sorted(library.BUNDLED.glob("*.npz"))
    assert [f.stem for f in files] == list(list_datasets())
    assert sum(f.stat().st_size for f in files) < 5e6
    page = (library.BUNDLED / "PROVENANCE.md").read_text(encoding="utf-8")
    notices = (library.BUNDLED.parent.parent / "DATA_LICENSES.md").read_text(encoding="utf-8")
    for name in list_datasets():
        assert get_info(name).sha256 in page
        assert f"{name}.npz" in notices
