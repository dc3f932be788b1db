"""Bundled sets: published statistics, known values at known hours, and the errors of the loader."""

from dataclasses import replace

import numpy as np
import pytest

from powerzoo_jax.base import DataError, DataMissing
from powerzoo_jax.data import get_info, library, list_datasets, load_dataset, price_quantiles

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
    assert np.all(np.diff(data.time_utc) == data.meta.step_minutes * 60 * 10**9)
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
    assert data.d_ref("mv_semiurb") == pytest.approx(0.426556, abs=1e-6)


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
    assert sum(f.stat().st_size for f in files) < 2e6
    page = (library.BUNDLED / "PROVENANCE.md").read_text(encoding="utf-8")
    notices = (library.BUNDLED.parent.parent / "DATA_LICENSES.md").read_text(encoding="utf-8")
    for name in list_datasets():
        assert get_info(name).sha256 in page
        assert f"{name}.npz" in notices
