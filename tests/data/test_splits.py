"""Split calendars: no overlap, every season, whole horizons, windows."""

import numpy as np
import pytest

from powerzoo_jax.data import list_datasets, load_dataset, splits

SETS = tuple(splits.CALENDARS)
SINGLE_YEAR = ("simbench_2016", "de_smard_2018", "de_2018", "tmy", "caiso_moer", "activsg200_load")
ALL_SEASONS = (*SINGLE_YEAR, "fr_2017_2019", "gb_2018_2020")
SEASONS = {(12, 1, 2), (3, 4, 5), (6, 7, 8), (9, 10, 11)}


def months(days: np.ndarray) -> set[int]:
    return {day.month for day in days.tolist()}


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("horizon", [1, 7])
def test_no_day_is_in_two_splits(name, horizon):
    groups = [splits.split_days(name, split, horizon) for split in splits.list_splits(name)]
    assert splits.find_overlap(groups).size == 0
    assert all(len(g) for g in groups)


@pytest.mark.parametrize("name", SETS)
def test_no_date_stands_in_two_rows_of_a_calendar(name):
    # labels alone could not tell: a day in two rows would carry the last one
    rows = [splits.span(first, last) for _, first, last in splits.get_calendar(name).ranges]
    assert not rows or splits.find_overlap(rows).size == 0


def test_overlap_check_sees_a_shared_day():
    shared = splits.find_overlap([splits.span("2018-01-01", "2018-01-05"), splits.span("2018-01-05", "2018-01-09")])
    assert shared.tolist() == [np.datetime64("2018-01-05").item()]


@pytest.mark.parametrize("name", ALL_SEASONS)
@pytest.mark.parametrize("split", ["train", "val", "test"])
@pytest.mark.parametrize("horizon", [1, 7])
def test_every_season_is_in_every_split(name, split, horizon):
    found = months(splits.split_days(name, split, horizon))
    assert all(found & set(season) for season in SEASONS)


def test_monthly_table_counts_days_of_2018():
    counts = [len(splits.split_days("de_smard_2018", split)) for split in ("train", "val", "test")]
    assert counts == [240, 48, 365 - 12 - 240 - 48]


def test_day_25_is_unused_and_leap_day_is_a_test_day():
    days = splits.all_days("simbench_2016")
    labels = dict(zip(days.astype(str).tolist(), splits.label_days("simbench_2016").tolist(), strict=True))
    assert labels["2016-03-25"] == splits.UNUSED
    assert labels["2016-02-29"] == "test"
    assert labels["2016-03-20"] == "train" and labels["2016-03-21"] == "val"


def test_every_data_set_has_a_calendar():
    assert set(SETS) == set(list_datasets())


@pytest.mark.parametrize(("name", "last"), [("fr_2017_2019", 2019), ("gb_2018_2020", 2020)])
def test_last_year_is_halved_month_by_month(name, last):
    days, labels = splits.all_days(name), splits.label_days(name)
    for day, label in zip(days.tolist(), labels.tolist(), strict=True):
        assert label == ("train" if day.year < last else "val" if day.day <= 15 else "test")


def test_charging_calendar_is_the_published_one():
    found = {s: splits.split_days("acn_sessions", s).astype(str) for s in ("train", "val", "test")}
    assert (found["train"][0][:4], found["train"][-1][:4], found["test"][0][:4]) == ("2019", "2019", "2021")
    assert (found["val"][0], found["val"][-1], len(found["val"])) == ("2020-02-01", "2020-03-10", 39)


def test_sessions_of_each_split_are_counted():
    data = load_dataset("acn_sessions")
    found = [int(splits.split_rows(data, split).sum()) for split in ("train", "val", "test")]
    assert found == [18534, 3045, 4915]


def test_rows_of_the_splits_are_disjoint_and_whole_days():
    data = load_dataset("gb_2018_2020")
    rows = np.stack([splits.split_rows(data, split) for split in ("train", "val", "test")])
    assert np.all(rows.sum(axis=0) == 1) and np.all(rows.sum(axis=1) % 48 == 0)


@pytest.mark.parametrize("name", [n for n in SETS if n != "acn_sessions"])
@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_weeks_fit_into_every_split(name, split):
    days = splits.split_days(name, split, 7)
    starts = splits.eligible_start_days(days, 7)
    assert len(starts) >= 10
    assert all(np.isin(start + np.arange(7), days).all() for start in starts)


def test_long_horizons_use_iso_weeks():
    monday = splits.all_days("de_smard_2018")[0]
    labels = splits.label_days("de_smard_2018", 7)
    assert monday == np.datetime64("2018-01-01")
    assert [labels[7 * w] for w in range(6)] == ["train", "train", "train", "val", "test", "train"]
    assert all(len(set(labels[7 * w : 7 * w + 7])) == 1 for w in range(52))


def test_ercot_storm_is_in_price_stress_only():
    stress = splits.split_days("ercot_dam_2021_2022", "price_stress")
    assert (str(stress[0]), str(stress[-1]), len(stress)) == ("2021-02-10", "2021-02-20", 11)
    assert len(splits.split_days("ercot_dam_2021_2022", "train")) == 365 - 11


def test_runs_cut_at_gaps():
    days = np.array(["2018-01-01", "2018-01-02", "2018-01-05"], "datetime64[D]")
    assert [len(run) for run in splits.runs(days)] == [2, 1]
    assert splits.runs(days[:0]) == []


def test_start_days_keep_the_whole_horizon_in_one_run():
    days = np.array(["2018-01-01", "2018-01-02", "2018-01-03", "2018-01-05"], "datetime64[D]")
    assert splits.eligible_start_days(days, 2).astype(str).tolist() == ["2018-01-01", "2018-01-02"]
    assert len(splits.eligible_start_days(days, 4)) == 0
    assert len(splits.eligible_start_days(days, 1)) == 4


def test_week_long_validation_episodes_start_on_mondays():
    starts = splits.eligible_start_days(splits.split_days("de_smard_2018", "val", 7), 7)
    assert len(starts) == 10
    assert {day.weekday() for day in starts.tolist()} == {0}


def test_window_includes_both_ends():
    days = splits.window_days("de_smard_2018", "2018-03-24", "2018-03-26")
    assert days.astype(str).tolist() == ["2018-03-24", "2018-03-25", "2018-03-26"]


@pytest.mark.parametrize(
    ("first", "last", "horizon", "message"),
    [
        ("2018-03-01", None, 1, "both dates or neither"),
        (None, "2018-03-01", 1, "both dates or neither"),
        ("2017-12-31", "2018-01-05", 1, "leaves de_smard_2018"),
        ("2018-12-30", "2019-01-01", 1, "leaves de_smard_2018"),
        ("2018-03-01", "2018-03-06", 7, "an episode needs 7"),
        ("2018-03-02", "2018-03-01", 1, "ends before it starts"),
        ("1 March 2018", "2018-03-01", 1, "YYYY-MM-DD"),
    ],
)
def test_unusable_window_is_refused_with_a_remedy(first, last, horizon, message):
    with pytest.raises(ValueError, match=message):
        splits.window_days("de_smard_2018", first, last, horizon)


def test_unknown_names_are_answered_with_the_nearest():
    with pytest.raises(ValueError, match="'de_smard_2018'"):
        splits.split_days("de_smard_2019", "train")
    with pytest.raises(ValueError, match="'train'"):
        splits.split_days("de_smard_2018", "trains")
