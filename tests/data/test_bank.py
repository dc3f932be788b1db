"""Bank: one shape for all splits, true forecasts, paired days."""

import numpy as np
import pytest

from powerzoo_jax.data import Bank, build_bank, day_matrix, load_dataset, resample, splits

SPLITS = ("train", "val", "test", "price_stress")
HOUR_NS = 3600 * 10**9
FLOAT32 = 1e-6  # relative rounding of a float32 table
RECOMPUTED = 1e-5  # the same after a difference or a mean of float32 prices of both signs


def battery(split: str = "train", **changes) -> Bank:
    settings = {
        "load_set": "simbench_2016",
        "load_column": "mv_semiurb",
        "price_set": "de_smard_2018",
        "price_column": "price_eur_per_mwh",
        "step_minutes": 30,
        "split": split,
        "horizon_steps": 48,
    }
    return build_bank(**(settings | changes))


def price_column(bank: Bank, field: str) -> np.ndarray:
    return bank.price_rows[:, bank.price_fields.index(field)]


def load_column(bank: Bank, field: str) -> np.ndarray:
    return bank.load_rows[:, bank.load_fields.index(field)]


def price_day(bank: Bank, row: int) -> np.datetime64:
    return splits.all_days("de_smard_2018")[row // bank.steps_per_day]


def test_shapes_and_dtypes_do_not_depend_on_the_split():
    names = ("load_rows", "price_rows", "start_load_row", "pair_price_row", "pair_count")
    shapes = {tuple((getattr(battery(s), n).shape, getattr(battery(s), n).dtype) for n in names) for s in SPLITS}
    assert len(shapes) == 1
    assert battery().load_rows.shape == (366 * 48 + 1, 5)
    assert battery().price_rows.shape == (366 * 48 + 1, 27)
    assert battery().pair_price_row.shape == (366, 31)


def test_custom_window_has_the_shape_of_a_split():
    window = battery(start_date="2016-06-01", end_date="2016-06-10")
    assert window.split == "custom"
    assert window.n_start == 10 and window.start_day[0] == "2016-06-01"
    assert window.price_rows.shape == battery().price_rows.shape


def test_load_and_price_tables_are_the_same_in_all_calendar_splits():
    train, test = battery("train"), battery("test")
    np.testing.assert_array_equal(train.load_rows, test.load_rows)
    np.testing.assert_array_equal(train.price_rows, test.price_rows)


def test_load_factor_is_the_mean_of_the_two_quarter_hours_and_reaches_one():
    profile = load_dataset("simbench_2016").column("mv_semiurb").astype(np.float64)
    expected = profile.reshape(-1, 2).mean(axis=1)
    expected /= expected.max()
    np.testing.assert_allclose(load_column(battery(), "load_factor")[:-1], expected, rtol=FLOAT32)


def test_load_ahead_differences_are_exact_sums():
    bank = battery()
    factor = load_column(bank, "load_factor").astype(np.float64)
    high, low = load_column(bank, "load_ahead_hi"), load_column(bank, "load_ahead_lo")
    start = np.arange(bank.n_start) * 48
    found = (high[start + 48] - high[start]) + (low[start + 48] - low[start])
    expected = [factor[s : s + 48].sum() for s in start]
    np.testing.assert_allclose(found, expected, rtol=FLOAT32)


def test_extra_last_row_repeats_features_and_closes_the_sum():
    bank = battery()
    np.testing.assert_array_equal(bank.load_rows[-1, :3], bank.load_rows[-2, :3])
    total = load_column(bank, "load_ahead_hi")[-1]
    assert total == pytest.approx(load_column(bank, "load_factor")[:-1].sum(dtype=np.float64), rel=FLOAT32)


def test_time_features_start_each_day_at_local_midnight():
    bank = battery()
    day = np.stack([load_column(bank, "time_sin"), load_column(bank, "time_cos")], axis=1)[5 * 48 : 6 * 48]
    np.testing.assert_allclose(day[[0, 12, 24]], [[0, 1], [1, 0], [0, -1]], atol=FLOAT32)


def test_prices_are_held_within_the_hour():
    price = price_column(battery(), "price_per_mwh")[: 365 * 48].reshape(-1, 2)
    np.testing.assert_array_equal(price[:, 0], price[:, 1])
    np.testing.assert_array_equal(price[:, 0], load_dataset("de_smard_2018").column("price_eur_per_mwh"))


def test_price_signal_is_normalised_and_clipped():
    bank, stress = battery(), battery("price_stress")
    raw = (price_column(bank, "price_per_mwh") - bank.price_p05) / (bank.price_p95 - bank.price_p05)
    np.testing.assert_allclose(price_column(bank, "price_signal"), np.clip(raw, -1, 3), rtol=RECOMPUTED, atol=FLOAT32)
    assert price_column(bank, "price_signal").min() == -1.0
    assert price_column(stress, "price_signal").max() == 3.0


@pytest.mark.parametrize("split", ["train", "val", "test"])
@pytest.mark.parametrize("hours", [1, 7, 24])
def test_forecast_is_the_future_price_and_repeats_the_last_of_its_run(split, hours):
    bank = battery(split)
    signal, forecast = price_column(bank, "price_signal"), price_column(bank, f"price_forecast_{hours}")
    first = splits.all_days("de_smard_2018")[0]
    for run in splits.runs(splits.split_days("de_smard_2018", split)):
        begin = int((run[0] - first).astype(int)) * 48
        rows = np.arange(begin, begin + len(run) * 48)
        np.testing.assert_array_equal(forecast[rows], signal[np.minimum(rows + 2 * hours, rows[-1])])


def test_forecast_of_a_window_ends_with_the_window():
    bank = battery(start_date="2016-06-01", end_date="2016-06-02")
    signal, forecast = price_column(bank, "price_signal"), price_column(bank, "price_forecast_24")
    first = int((np.datetime64("2018-06-01") - splits.all_days("de_smard_2018")[0]).astype(int)) * 48
    np.testing.assert_array_equal(forecast[first : first + 48], signal[first + 48 : first + 96])
    assert np.all(forecast[first + 48 : first + 96] == signal[first + 95])


def test_mean_price_ahead_is_the_mean_over_the_episode():
    bank = battery()
    price, mean = price_column(bank, "price_per_mwh"), price_column(bank, "mean_price_ahead")
    rows = bank.pair_price_row[: bank.n_start, 0]
    expected = [price[r : r + 48].mean(dtype=np.float64) for r in rows]
    np.testing.assert_allclose(mean[rows], expected, rtol=RECOMPUTED)


def test_episodes_start_at_local_midnight_of_split_days():
    for split in ("train", "val", "test"):
        bank = battery(split)
        assert np.all(bank.start_load_row % 48 == 0)
        assert set(bank.start_day) == set(splits.split_days("simbench_2016", split).astype(str).tolist())
        found = splits.all_days("simbench_2016")[bank.start_load_row[: bank.n_start] // 48]
        assert found.astype(str).tolist() == list(bank.start_day)


def test_same_month_and_day_is_the_only_partner():
    bank = battery("test")
    for i, day in enumerate(bank.start_day):
        if day == "2016-02-29":
            continue
        assert bank.pair_count[i] == 1
        assert str(price_day(bank, bank.pair_price_row[i, 0]))[5:] == day[5:]


def test_leap_day_is_paired_with_the_february_test_days():
    bank = battery("test")
    i = bank.start_day.index("2016-02-29")
    partners = [str(price_day(bank, row)) for row in bank.pair_price_row[i, : bank.pair_count[i]]]
    assert partners == ["2018-02-26", "2018-02-27", "2018-02-28"]


def test_stress_days_are_the_ercot_storm_for_every_test_day():
    bank = battery("price_stress")
    assert bank.start_day == battery("test").start_day
    assert np.all(bank.pair_count == 11)
    assert price_column(bank, "price_per_mwh").max() == pytest.approx(8995.11, rel=FLOAT32)
    assert bank.sources[1][:2] == ("ercot_dam_2021_2022", "price.day_ahead_hb_houston_per_mwh")
    storm = load_dataset("ercot_dam_2021_2022").column("HB_HOUSTON")
    first = 40 * 24  # 10 February is day 40 of the year
    np.testing.assert_array_equal(price_column(bank, "price_per_mwh")[: 11 * 48 : 2], storm[first : first + 264])


def test_week_long_episodes_stay_in_their_weeks():
    for split in ("train", "val", "test"):
        bank = battery(split, step_minutes=60, horizon_steps=168)
        days = splits.split_days("de_smard_2018", split, 7)
        for row in np.unique(bank.pair_price_row[: bank.n_start]):
            week = price_day(bank, row) + np.arange(7)
            assert np.isin(week, days).all()


def test_week_without_a_same_date_partner_takes_its_month():
    bank = battery("val", step_minutes=60, horizon_steps=168)
    assert bank.n_start > 0 and np.all(bank.pair_count >= 1)
    for i, day in enumerate(bank.start_day):
        partner = str(price_day(bank, bank.pair_price_row[i, 0]))
        away = abs(int(partner[5:7]) - int(day[5:7]))
        assert min(away, 12 - away) <= 1


def test_nearest_month_is_counted_around_the_year():
    # ERCOT validates on January to June: December is one month from January, six from June
    bank = battery("val", price_set="ercot_dam_2021_2022", price_column="HB_HOUSTON")
    days = splits.split_days("ercot_dam_2021_2022", "val")
    i = bank.start_day.index("2016-12-21")
    partners = days[bank.pair_price_row[i, : bank.pair_count[i]] // 48]
    assert [str(d) for d in partners] == [f"2022-01-{d:02d}" for d in range(1, 32)]


def test_padding_points_at_real_rows():
    bank = battery("val")
    assert np.all(bank.start_load_row[bank.n_start :] == bank.start_load_row[0])
    assert np.all(bank.pair_count >= 1)
    assert bank.pair_price_row.max() + 48 < len(bank.price_rows)


def test_two_year_price_set_serves_its_own_splits():
    banks = [battery(s, price_set="ercot_dam_2021_2022", price_column="HB_NORTH") for s in SPLITS]
    assert len({b.price_rows.shape for b in banks}) == 1
    assert banks[3].sources[1][1] == "price.day_ahead_hb_north_per_mwh"


@pytest.mark.parametrize(("minutes", "spd"), [(5, 288), (15, 96), (30, 48), (60, 24)])
def test_every_supported_step_gives_whole_local_days(minutes, spd):
    load_days, load = day_matrix(load_dataset("simbench_2016"), "mv_semiurb", minutes)
    price_days, price = day_matrix(load_dataset("de_smard_2018"), "price_eur_per_mwh", minutes)
    assert load.shape == (366, spd) and price.shape == (365, spd)
    np.testing.assert_array_equal(load_days, splits.all_days("simbench_2016"))
    np.testing.assert_array_equal(price_days, splits.all_days("de_smard_2018"))


def test_incomplete_edge_days_are_dropped_and_partial_hours_not_averaged():
    time_utc = np.arange(7, dtype=np.int64) * (HOUR_NS // 2) + HOUR_NS // 2
    stamps, values = resample(time_utc, np.arange(7.0), 60, "mean")
    assert stamps.tolist() == [HOUR_NS, 2 * HOUR_NS, 3 * HOUR_NS]
    assert values.tolist() == [1.5, 3.5, 5.5]


def test_finer_steps_hold_or_interpolate():
    time_utc = np.arange(3, dtype=np.int64) * HOUR_NS
    assert resample(time_utc, np.array([0.0, 2.0, 4.0]), 30, "hold")[1].tolist() == [0, 0, 2, 2, 4, 4]
    assert resample(time_utc, np.array([0.0, 2.0, 4.0]), 30, "linear")[1].tolist() == [0, 1, 2, 3, 4, 4]


@pytest.mark.parametrize(("minutes", "how"), [(45, "hold"), (30, "mean"), (90, "mean"), (120, "hold")])
def test_resampling_that_makes_no_sense_is_refused(minutes, how):
    with pytest.raises(ValueError, match=f"60 min to {minutes} min"):
        resample(np.arange(4, dtype=np.int64) * HOUR_NS, np.arange(4.0), minutes, how)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"split": "validation"}, ValueError, "Unknown split"),
        ({"load_set": "simbench"}, ValueError, "'simbench_2016'"),
        ({"load_column": "mv_semiurban"}, KeyError, "mv_semiurb_pu"),
        ({"price_column": "HB_HOUSTON"}, KeyError, "price.day_ahead_per_mwh"),
        ({"start_date": "2016-03-01"}, ValueError, "both dates"),
        ({"start_date": "2016-03-01", "end_date": "2017-03-01"}, ValueError, "leaves simbench_2016"),
        ({"start_date": "2016-03-01", "end_date": "2016-03-01", "horizon_steps": 96}, ValueError, "needs 2"),
        ({"horizon_steps": 0}, ValueError, "at least 1"),
        ({"horizon_steps": 48 * 30}, ValueError, "Shorten the horizon"),
        ({"step_minutes": 7}, ValueError, "does not divide"),
    ],
)
def test_unusable_request_is_refused(changes, error, message):
    with pytest.raises(error, match=message):
        battery(**changes)
