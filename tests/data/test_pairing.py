"""Pairing of days by hand, and between the splits of the bundled sets."""

import numpy as np
import pytest

from powerzoo_jax.data import list_datasets, list_splits, pair_days, split_days


def days(*dates: str) -> np.ndarray:
    return np.array(dates, "datetime64[D]")


def partners(start: str, candidates: np.ndarray) -> list[str]:
    pairs, count = pair_days(days(start), candidates)
    return candidates[pairs[0, : count[0]]].astype(str).tolist()


def test_the_same_month_and_day_comes_first():
    assert partners("2016-05-03", days("2018-05-01", "2018-05-03", "2018-06-03")) == ["2018-05-03"]


def test_the_same_date_of_every_year_is_a_partner():
    assert partners("2016-05-03", days("2018-05-03", "2019-05-03")) == ["2018-05-03", "2019-05-03"]


def test_without_the_date_any_day_of_the_month_serves():
    assert partners("2016-02-29", days("2018-02-01", "2018-02-02", "2018-03-01")) == ["2018-02-01", "2018-02-02"]


def test_without_the_month_the_nearest_around_the_year_serves():
    assert partners("2016-12-31", days("2021-02-10", "2021-07-10")) == ["2021-02-10"]
    assert partners("2016-09-05", days("2021-02-10", "2021-07-10")) == ["2021-07-10"]


def test_more_than_a_month_of_partners_is_thinned_over_all_of_it():
    pool = np.concatenate([np.arange(f"{y}-05-01", f"{y}-06-01", dtype="datetime64[D]") for y in (2018, 2019)])
    pairs, count = pair_days(days("2016-04-30"), pool)
    assert count[0] == 31 and len(np.unique(pairs)) == 31
    assert {str(d)[:4] for d in pool[pairs[0]]} == {"2018", "2019"}


def test_unused_places_repeat_the_first_partner():
    pairs, count = pair_days(days("2016-05-03"), days("2018-05-01", "2018-05-03"))
    assert count.tolist() == [1] and np.all(pairs == 1)


@pytest.mark.parametrize("primary", ["simbench_2016", "fr_2017_2019"])
@pytest.mark.parametrize("secondary", [n for n in list_datasets() if n != "acn_sessions"])
@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_partners_are_of_their_own_split_and_never_a_month_away(primary, secondary, split):
    starts, pool = split_days(primary, split), split_days(secondary, split)
    pairs, count = pair_days(starts, pool)
    assert np.all(count >= 1) and pairs.max() < len(pool)
    assert split in list_splits(secondary)
    away = np.abs(
        pool[pairs].astype("datetime64[M]").astype(int) % 12 - starts.astype("datetime64[M]").astype(int)[:, None] % 12
    )
    nearest = 6 if secondary == "ercot_dam_2021_2022" else 0  # its validation and test are halves of a year
    assert np.minimum(away, 12 - away).max() <= nearest
