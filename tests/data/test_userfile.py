"""A user's own files: what runs, and the errors of what does not."""

import re
from pathlib import Path

import numpy as np
import pytest

from powerzoo_jax.base import DataError, DataMissing
from powerzoo_jax.data import build_bank, day_matrix, list_splits, load_dataset, make_series, read_csv, split_days
from powerzoo_jax.data.clock import iso_dates
from powerzoo_jax.data.splits import all_days
from powerzoo_jax.families.feeder.tasks.storage import resolve_settings
from powerzoo_jax.tasks.registry import get_spec

PAGE = Path(__file__).parents[2] / "docs" / "data.md"
HOUR = np.timedelta64(1, "h")

# A feeder of three buses at 12.66 kV with 0.3 MW in all; values made up.
FEEDER = """\
function mpc = my_feeder
mpc.version = '2';
mpc.baseMVA = 10;
mpc.bus = [
  1 3 0.0 0.00 0 0 1 1 0 12.66 1 1.1 0.9;
  2 1 0.2 0.10 0 0 1 1 0 12.66 1 1.1 0.9;
  3 1 0.1 0.05 0 0 1 1 0 12.66 1 1.1 0.9;
];
mpc.gen = [
  1 0 0 10 -10 1 10 1 10 0;
];
mpc.branch = [
  1 2 0.01 0.010 0 0 0 0 0 0 1 -360 360;
  2 3 0.02 0.015 0 0 0 0 0 0 1 -360 360;
];
mpc.gencost = [
  2 0 0 2 20 0;
];
"""


def write(folder: Path, text: str, name: str = "my_load.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def year_of_hours(folder: Path, header: str = "time,load_mw", first: str = "2023-01-01", days: int = 365) -> Path:
    times = np.datetime64(first, "m") + HOUR * np.arange(24 * days)
    load = 100 + 40 * np.sin(np.arange(24 * days) * 2 * np.pi / 24)
    lines = [f"{t},{v:.3f}" for t, v in zip(times, load, strict=True)]
    return write(folder, "\n".join([header, *lines]) + "\n")


@pytest.mark.full
def test_the_snippet_of_the_page_runs_a_users_grid_with_a_users_load(tmp_path, monkeypatch):
    write(tmp_path, FEEDER, "my_feeder.m")
    year_of_hours(tmp_path)
    monkeypatch.chdir(tmp_path)
    snippet = next(s for s in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "my_feeder" in s)
    assert len([line for line in snippet.splitlines() if line]) == 5
    found: dict = {}
    exec(snippet, found)
    out, sim = found["out"], found["sim"]
    assert sim.spec.case == "my_feeder"
    assert np.isfinite(out.reward).all() and np.isfinite(out.obs).all()
    assert int(out.info.pf_status) == 0
    # 0.85 of the nominal 0.3 MW times D / D_ref, at midnight: 100 / 140
    names = sim.env.fields.names
    demand = sum(float(found["obs"][0, names.index(f"node_{bus}_p_load_norm")]) for bus in (1, 2, 3)) * 10
    assert demand == pytest.approx(0.85 * 0.3 * 100 / 140, rel=1e-4)


def test_a_users_series_takes_its_place_in_the_bank(tmp_path):
    bank = build_bank(year_of_hours(tmp_path), "load_mw", "de_smard_2018", "price_eur_per_mwh", 30, "train", 48)
    assert bank.d_ref == pytest.approx(140, abs=1e-3)
    assert bank.n_start == 240 and bank.start_day[0] == "2023-01-01"
    assert bank.sources[0][0] == "my_load.csv" and len(bank.sources[0][2]) == 64
    assert np.all(bank.pair_count[: bank.n_start] == 1)  # 2018 has the same month and day


def test_a_users_days_are_split_like_a_single_year(tmp_path):
    series = read_csv(year_of_hours(tmp_path))
    assert list_splits(series) == ("train", "val", "test")
    assert {int(day[-2:]) for day in iso_dates(split_days(series, "val"))} == {21, 22, 23, 24}


def test_a_users_price_is_normalised_by_its_own_training_days(tmp_path):
    price = read_csv(year_of_hours(tmp_path, "time,price_eur_per_mwh", "2018-01-01"))
    bank = build_bank("simbench_2016", "mv_semiurb", price, "price_eur_per_mwh", 30, "test", 48)
    values = price.column("price.day_ahead_per_mwh").reshape(-1, 24)[0]  # every day is the same
    np.testing.assert_allclose((bank.price_p05, bank.price_p95), np.percentile(np.tile(values, 240), (5, 95)))


@pytest.mark.parametrize(
    ("header", "signal"),
    [("load_kw", "load.actual_mw"), ("solar_kw", "solar.available_mw"), ("wind_kw", "wind.available_mw")],
)
def test_kilowatts_become_megawatts(tmp_path, header, signal):
    power = read_csv(year_of_hours(tmp_path, f"time,{header}")).column(signal)
    assert power.max() == pytest.approx(0.14, abs=1e-6)


def test_civil_stamps_are_read_through_both_clock_changes(tmp_path):
    text = "time,load_mw\n"
    for hours, day in (((0, 1, 3, 4), "2023-03-26"), ((0, 1, 2, 2, 3), "2023-10-29")):
        rows = "".join(f"{day}T{hour:02d}:00,{i}\n" for i, hour in enumerate(hours))
        series = read_csv(write(tmp_path, text + rows), zone="Europe/Madrid")
        assert np.all(np.diff(series.time_utc) == 3600 * 10**9)
        assert series.meta.offset_minutes == 60


def test_days_of_a_short_and_a_long_civil_day_are_whole(tmp_path):
    # 25, 26 and 27 March on the civil clock: 24, 23 and 24 hours; on the standard clock the 27th ends at 23:00
    stamps = [f"2023-03-{d}T{h:02d}:00" for d in (25, 26, 27) for h in range(24) if (d, h) != (26, 2)]
    rows = "".join(f"{s},1\n" for s in stamps)
    series = read_csv(write(tmp_path, "time,load_mw\n" + rows), zone="Europe/Madrid")
    assert iso_dates(all_days(series)) == ("2023-03-25", "2023-03-26")


def test_offsets_in_the_stamps_are_obeyed(tmp_path):
    series = read_csv(write(tmp_path, "time,load_mw\n2023-01-01T00:00+01:00,1\n2023-01-01T01:00+01:00,2\n"))
    assert series.time_utc[0] == np.datetime64("2022-12-31T23:00", "ns").astype(np.int64)


HEADER = "time,load_mw\n"
FIRST, SECOND, THIRD = (f"2023-01-01T0{h}:00,1{h}\n" for h in range(3))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stamp,load_mw\n" + FIRST, "no column 'time'"),
        ("time,demand\n" + FIRST + SECOND, "Unknown column 'demand'"),
        ("time,load_mwh\n" + FIRST + SECOND, "Did you mean 'load_mw'"),
        ("time\n2023-01-01T00:00\n2023-01-01T01:00\n", "no column beside 'time'"),
        ("time,load_mw,load_kw\n2023-01-01T00:00,1,2\n2023-01-01T01:00,1,2\n", "twice"),
        (HEADER + SECOND + FIRST, "time goes backwards at 2023-01-01 00:00 UTC"),
        (HEADER + FIRST + SECOND + SECOND + THIRD, "duplicated time stamps: 2023-01-01 01:00 UTC (line 4)"),
        (
            HEADER + FIRST + SECOND + THIRD + "2023-01-01T05:00,1\n",
            "1 gap: 2 h from 2023-01-01 03:00 UTC (line 5)",
        ),
        (HEADER + FIRST + SECOND + THIRD + "2023-01-01T02:30,1\n", "steps are shorter"),
        (HEADER + FIRST.replace("10", "1_000") + SECOND, "load_mw is '1_000', not a number"),
        (HEADER + FIRST.replace("10", "1+2j") + SECOND, "not a number"),
        (HEADER + FIRST.replace("10", "inf") + SECOND, "not a number"),
        (HEADER + FIRST.replace("10", "\uff11\uff10") + SECOND, "not a number"),
        (HEADER + FIRST.replace("10", "") + SECOND.replace("11", ""), "holds no number at all"),
        (HEADER + FIRST + SECOND.replace("11", "") + THIRD, "lacks 1 of 3 values"),
        (HEADER + FIRST + SECOND.replace("11", "eleven"), "not a number"),
        (HEADER + FIRST + "1 January 2023,3\n", "no ISO 8601 time"),
        (HEADER + FIRST + "2023-01-01T01:00+01:00,3\n", "Use one kind"),
        (HEADER + FIRST, "at least two"),
        (HEADER, "header and no row"),
        ("", "empty"),
        (HEADER + FIRST + "2023-01-01T01:00\n", "cells"),
    ],
)
def test_a_bad_file_is_refused_with_the_place_and_the_remedy(tmp_path, text, message):
    with pytest.raises(DataError, match=re.escape(message)):
        read_csv(write(tmp_path, text))


def test_a_skipped_civil_hour_is_refused(tmp_path):
    rows = "".join(f"2023-03-26T0{h}:00,1\n" for h in range(4))
    with pytest.raises(DataError, match="does not exist"):
        read_csv(write(tmp_path, HEADER + rows), zone="Europe/Madrid")


def test_an_absent_file_and_an_unknown_zone_are_named(tmp_path):
    with pytest.raises(DataMissing, match=r"my_load\.csv"):
        load_dataset(tmp_path / "my_load.csv")
    with pytest.raises(ValueError, match="Europe/London"):
        read_csv(write(tmp_path, HEADER + FIRST + SECOND), zone="Europe/Lundon")


def test_half_a_day_holds_no_day(tmp_path):
    with pytest.raises(DataError, match="no whole day"):
        all_days(read_csv(write(tmp_path, HEADER + FIRST + SECOND)))


def test_stamps_that_end_off_the_clock_are_refused(tmp_path):
    path = year_of_hours(tmp_path, first="2023-01-01T00:10", days=3)
    with pytest.raises(DataError, match="after local midnight"):
        all_days(read_csv(path))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"columns": {}}, "no column"),
        ({"columns": {"load.actual_mw": np.ones(3)}}, "shape"),
        ({"columns": {"load.actual_mw": np.array([1.0, np.inf])}}, "infinite"),
        ({"units": {"load.actual_mw": "kW"}}, "Convert it to MW"),
        ({"columns": {"load.actual": np.ones(2)}, "units": {"load.actual": "MW"}}, "does not end in a unit"),
        ({"time_utc": np.array([0, 90 * 10**9 // 60])}, "whole minutes"),
    ],
)
def test_a_series_with_a_mistake_is_refused(changes, message):
    good = {
        "time_utc": np.array([0, 3600 * 10**9]),
        "columns": {"load.actual_mw": np.ones(2)},
        "units": {"load.actual_mw": "MW"},
    }
    with pytest.raises(DataError, match=message):
        make_series("mine", **(good | changes), offset_minutes=0)


def test_missing_values_never_reach_a_bank():
    values = np.ones(48)
    values[5] = np.nan
    hours = np.arange(48) * 3600 * 10**9
    series = make_series("mine", hours, {"load.actual_mw": values}, {"load.actual_mw": "MW"}, offset_minutes=0)
    with pytest.raises(DataError, match="lacks 1 of 48 values"):
        build_bank(series, "load.actual_mw", "de_smard_2018", "price_eur_per_mwh", 30, "train", 48)


def test_official_files_are_named_by_source_and_path(tmp_path):
    # 26 and 27 March 2023: the clock is put forward on the 26th, which has 46 periods
    rows = [f"2023-03-{26 + (p >= 46)},{p % 46 + 1 if p < 46 else p - 45},{20000 + p}" for p in range(46 + 48)]
    path = write(tmp_path, "\n".join(["SETTLEMENT_DATE,SETTLEMENT_PERIOD,ND", *rows]) + "\n", "demanddata_2023.csv")
    data = load_dataset(f"neso:{path}")
    assert data.meta.name == "neso" and len(data.time_utc) == 94
    assert data.column("load.actual_mw")[[0, 93]].tolist() == [20000, 20093]
    assert iso_dates(all_days(data)) == ("2023-03-26",)  # the civil 27th ends at 23:00 of the standard clock
    with pytest.raises(DataMissing):
        load_dataset(f"neso:{tmp_path / 'nowhere.csv'}")


@pytest.mark.parametrize("keyword", ["load_set", "data_source"])
def test_a_task_takes_a_path_under_either_keyword(tmp_path, keyword):
    path = year_of_hours(tmp_path)
    settings = resolve_settings(get_spec("battery_arbitrage"), {keyword: str(path), "load_column": "load_mw"})
    assert settings.load_set.meta.name == "my_load.csv" and settings.load_column == "load_mw"


def test_a_task_refuses_two_names_for_its_load():
    with pytest.raises(ValueError, match="Give one of them"):
        resolve_settings(get_spec("battery_arbitrage"), {"load_set": "simbench_2016", "data_source": "fr_2017_2019"})


def test_a_named_data_source_brings_its_default_signal():
    settings = resolve_settings(get_spec("battery_arbitrage"), {"data_source": "fr_2017_2019"})
    assert (settings.load_set, settings.load_column) == ("fr_2017_2019", "load.actual_mw")


def test_the_first_snippet_of_the_page_prints_the_reference(capsys):
    exec(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[0], {})
    assert capsys.readouterr().out.split()[-1] == "95400.0"


def test_hours_of_a_half_hour_zone_start_on_its_own_clock(tmp_path):
    stamps = np.datetime64("2023-01-01", "m") + np.timedelta64(30, "m") * np.arange(96)
    text = HEADER + "".join(f"{t},{i}\n" for i, t in enumerate(stamps))
    series = read_csv(write(tmp_path, text), zone="Asia/Kolkata")  # UTC+5:30
    days, hourly = day_matrix(series, "load_mw", 60)
    assert iso_dates(days) == ("2023-01-01", "2023-01-02")
    np.testing.assert_array_equal(hourly.ravel(), np.arange(48) * 2 + 0.5)
