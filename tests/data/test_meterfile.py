"""Files as meters and spreadsheets give them: read as they are, or refused with lines and the keyword to add."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import openpyxl
import pytest

import powerzoo_jax as pz
from powerzoo_jax.base import DataError
from powerzoo_jax.data import Series, list_splits, read_csv

BERLIN = ZoneInfo("Europe/Berlin")
GERMAN = {"Zeitstempel": "time", "Wirkarbeit [kWh]": "load_kwh"}


def walls(zone: str, first: str, last: str, minutes: int) -> list[datetime]:
    """Readings of a clock on the wall, from midnight to midnight, as a logger there writes them."""
    local = ZoneInfo(zone)
    now, end = (datetime.fromisoformat(x).replace(tzinfo=local).astimezone(UTC) for x in (first, last))
    found = []
    while now < end:
        found.append(now.astimezone(local).replace(tzinfo=None))
        now += timedelta(minutes=minutes)
    return found


def kwh(quarter: int) -> float:
    return 25 + 5 * float(np.sin(2 * np.pi * quarter / 96))


@pytest.fixture(scope="module")
def german_rows() -> list[str]:
    """A year of quarter-hours of a German meter: energy with commas, the civil clock, a line above the header."""
    rows = [
        f"{t:%d.%m.%Y %H:%M};{f'{kwh(i):.3f}'.replace('.', ',')};W"
        for i, t in enumerate(walls("Europe/Berlin", "2023-01-01", "2024-01-01", 15))
    ]
    return ["Lastgang DE0001;;", "Zeitstempel;Wirkarbeit [kWh];Status", *rows]


def put(folder: Path, rows: list[str], name: str = "meter.csv") -> Path:
    path = folder / name
    path.write_text("\n".join(rows), encoding="utf-8")
    return path


def test_a_year_of_a_german_meter_is_a_task(tmp_path, german_rows):
    series = read_csv(put(tmp_path, german_rows), columns=GERMAN, zone="Europe/Berlin")
    assert len(series.time_utc) == 365 * 96 and not len(series.repaired)
    assert series.time_utc[0] == np.datetime64("2022-12-31T23:00", "ns").astype(np.int64)
    # 25 kWh in a quarter of an hour are 100 kW
    np.testing.assert_allclose(series.column("load_kwh")[:96], [kwh(i) * 4e-3 for i in range(96)], atol=3e-6)
    assert list_splits(series) == ("train", "val", "test")
    assert pz.make("battery_arbitrage", data_source=series).spec.id == "battery_arbitrage"


def test_a_civil_clock_read_as_utc_is_told_its_zone(tmp_path, german_rows):
    doubled = (
        r"time goes backwards at 2023-10-29 02:00 UTC \(line 28907\)\..*give its zone, such as zone='Europe/Berlin'"
    )
    with pytest.raises(DataError, match=doubled):
        read_csv(put(tmp_path, german_rows), columns=GERMAN)
    lost = r"lacks 4 of .* 1 h from 2023-03-26 02:00 UTC \(line 8075\)\..*such as zone='Europe/Berlin'"
    with pytest.raises(DataError, match=lost):
        read_csv(put(tmp_path, german_rows[:20000]), columns=GERMAN)
    with pytest.warns(UserWarning, match="give its zone, such as zone='Europe/Berlin'"):
        read_csv(put(tmp_path, german_rows[:20000]), columns=GERMAN, fill="previous")


@pytest.mark.parametrize(
    ("zone", "stamp", "first", "last"),
    [
        ("Europe/London", "%d/%m/%Y %H:%M", "2023-09-01", "2023-12-01"),
        ("America/Los_Angeles", "%m/%d/%Y %I:%M %p", "2023-03-01", "2023-04-01"),
        ("Australia/Sydney", "%Y-%m-%d %H:%M:%S", "2023-03-15", "2023-04-15"),
    ],
)
def test_the_order_of_day_and_month_and_the_clock_are_those_of_the_country(tmp_path, zone, stamp, first, last):
    clock = walls(zone, first, last, 30)
    path = put(tmp_path, ["time,load_kw", *(f"{t.strftime(stamp)},{i}" for i, t in enumerate(clock))])
    series = read_csv(path, zone=zone)
    begin = datetime.fromisoformat(first).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1e9
    np.testing.assert_array_equal(series.time_utc, int(begin) + 1800 * 10**9 * np.arange(len(clock)))
    with pytest.raises(DataError, match="give its zone"):
        read_csv(path)


@pytest.mark.parametrize(
    "rows",
    [
        [f"{day:02d}.01.2023 {h:02d}:00,{h + 24 * (day - 1)}" for day in (1, 2) for h in range(1, 25)],
        [f"2023-01-0{1 + h // 24}T{h % 24:02d}:00+01:00,{h}" for h in range(1, 49)],
        [f"0{1 + h // 24}.01.2023,{h % 24}:00,{h}" for h in range(1, 49)],
    ],
)
def test_stamps_of_ends_are_moved_to_the_start_of_their_interval(tmp_path, rows):
    """What ended at 01:00 of the first, one hour east of Greenwich, began at 23:00 UTC of the day before."""
    head = "date,time,load_kw" if rows[0].count(",") == 2 else "time,load_kw"
    series = read_csv(put(tmp_path, [head, *rows]), zone="Etc/GMT-1", stamps="end")
    begin = np.datetime64("2022-12-31T23:00", "ns").astype(np.int64)
    np.testing.assert_array_equal(series.time_utc, begin + 3600 * 10**9 * np.arange(48))
    np.testing.assert_allclose(series.column("load_kw"), np.arange(1, 49) * 1e-3, atol=1e-7)


@pytest.mark.parametrize("new_clock", [True, False])
@pytest.mark.parametrize("day", ["2023-03-26", "2023-10-29"])
def test_intervals_end_by_the_new_clock_or_the_old_one_where_it_changes(tmp_path, day, new_clock):
    """The interval from 01:45 ends at 03:00 in spring, or at 02:00; that from 02:45 in autumn at 02:00, or at 03:00."""
    zone, after = ZoneInfo("Europe/Berlin"), str(date.fromisoformat(day) + timedelta(days=1))
    quarter, clock = timedelta(minutes=15), walls("Europe/Berlin", day, after, 15)
    first = datetime.fromisoformat(day).replace(tzinfo=zone).astimezone(UTC)
    by_new = [(first + (i + 1) * quarter).astimezone(zone).replace(tzinfo=None) for i in range(len(clock))]
    ends = by_new if new_clock else [start.replace(tzinfo=None) + quarter for start in clock]
    assert len(ends) == (92 if "03" in day[5:7] else 100) and (ends == by_new) is new_clock
    rows = [f"{end:%Y-%m-%d %H:%M},{i}" for i, end in enumerate(ends)]
    series = read_csv(put(tmp_path, ["time,load_kw", *rows]), zone="Europe/Berlin", stamps="end")
    begin = np.datetime64(first.replace(tzinfo=None), "ns").astype(np.int64)
    np.testing.assert_array_equal(series.time_utc, begin + 900 * 10**9 * np.arange(len(ends)))


def test_day_and_hour_may_stand_in_two_columns_below_an_address(tmp_path):
    rows = [f"Electric usage,{t:%m/%d/%Y},{t:%H:%M},0.5,$0.1," for t in walls("UTC", "2023-01-10", "2023-01-20", 15)]
    head = ["Name,X Y", 'Address,"1 Road, City"', "", "TYPE,DATE,START TIME,USAGE (kWh),COST,NOTES"]
    names = {"DATE": "date", "START TIME": "time", "USAGE (kWh)": "load_kwh"}
    series = read_csv(put(tmp_path, [*head, *rows]), columns=names)
    assert len(series.time_utc) == 960 and series.column("load_kwh")[5] == pytest.approx(0.002)


def broken(rows: list[str]) -> list[str]:
    """Four hours without rows, and one blank cell: what falls out of a meter in a year."""
    kept = rows[:2000] + rows[2016:]
    kept[5000] = kept[5000].split(";")[0] + ";;W"
    return kept


def test_gaps_are_counted_and_named_by_line(tmp_path, german_rows):
    expected = (
        r"load_kwh lacks 17 of 35040 values, in 2 gaps: 4 h from 2023-01-21 18:30 UTC \(line 2001\), "
        r"0\.25 h from 2023-02-22 04:30 UTC \(line 5001\)\. Complete the file, or let read_csv fill it"
    )
    with pytest.raises(DataError, match=expected):
        read_csv(put(tmp_path, broken(german_rows)), columns=GERMAN, zone="Europe/Berlin")


@pytest.mark.parametrize("fill", ["interpolate", "previous"])
def test_gaps_are_filled_on_request_and_reported(tmp_path, german_rows, fill):
    path = put(tmp_path, broken(german_rows))
    with pytest.warns(UserWarning, match=r"lacks 17 of 35040 values.*\. Filled (by interpol|with the value before)"):
        series = read_csv(path, columns=GERMAN, zone="Europe/Berlin", fill=fill)
    assert len(series.repaired) == 17 and series.repaired[0] == 1998
    before, after = kwh(1997) * 4e-3, kwh(2014) * 4e-3
    wanted = np.interp(np.arange(1, 17), [0, 17], [before, after]) if fill == "interpolate" else np.full(16, before)
    np.testing.assert_allclose(series.column("load_kwh")[1998:2014], wanted, atol=3e-6)


def test_a_price_holds_and_is_never_interpolated(tmp_path):
    rows = ["time,load_kw,price_eur_per_mwh", "2023-01-01 00:00,1,10", "2023-01-01 01:00,,", "2023-01-01 02:00,3,30"]
    with pytest.warns(UserWarning, match="Filled"):
        series = read_csv(put(tmp_path, rows), fill="interpolate")
    assert series.column("load_kw")[1] == np.float32(0.002) and series.column("price_eur_per_mwh")[1] == 10


def test_what_has_no_value_on_one_side_is_not_filled(tmp_path):
    rows = ["time,load_kw", "2023-01-01 00:00,", "2023-01-01 01:00,2", "2023-01-01 02:00,3"]
    with pytest.raises(DataError, match=r"\(line 2\)\. At the ends of the file there is no value on one side"):
        read_csv(put(tmp_path, rows), fill="previous")


def day_of_change(third: str) -> list[str]:
    hours = [f"2023-03-{d}T{h:02d}:00,{h}" for d in (25, 26, 27) for h in range(24)]
    return ["time,load_kw", *[f"2023-03-26T02:00,{third}" if x.startswith("2023-03-26T02") else x for x in hours]]


def test_an_hour_that_is_no_time_may_stand_there_blank(tmp_path):
    assert len(read_csv(put(tmp_path, day_of_change("")), zone="Europe/Madrid").time_utc) == 71
    with pytest.raises(DataError, match=r"line 28 \(2023-03-26 02:00\) does not exist in Europe/Madrid.*Remove these"):
        read_csv(put(tmp_path, day_of_change("0")), zone="Europe/Madrid")


def test_half_of_the_doubled_hour_keeps_its_second_pass(tmp_path):
    clock = walls("Europe/Berlin", "2023-10-29", "2023-10-30", 15)
    rows = [f"{t.isoformat()},{i}" for i, t in enumerate(clock) if i != 10]  # without the first 02:30
    with pytest.warns(UserWarning, match="lacks 1 of 100 values"):
        series = read_csv(put(tmp_path, ["time,load_kw", *rows]), zone="Europe/Berlin", fill="previous")
    np.testing.assert_allclose(np.delete(series.column("load_kw"), 10), np.delete(np.arange(100) * 1e-3, 10), atol=1e-7)


@pytest.mark.parametrize(
    "rows",
    [
        ["sep=;", "time;load_kw;", "2023-01-13 00:00;1,25;", "2023-01-13 01:00;1,334;"],
        ['"time","load_kw"', '"2023-01-13 00:00","1,25"', '"2023-01-13 01:00","1,334"'],
        ["time\tload_kw", "13.01.2023 00:00\t1,25", "13.01.2023 01:00\t1,334"],
        ["time;load_kw", "2023-01-13 00:00;1.25", "2023-01-13 01:00;1.334"],
    ],
)
def test_the_decimal_sign_is_read_where_it_is_clear(tmp_path, rows):
    series = read_csv(put(tmp_path, rows))
    np.testing.assert_allclose(series.column("load_kw"), [1.25e-3, 1.334e-3], rtol=1e-6)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["time,load_kw", '2023-01-13 00:00,"1,234"', '2023-01-13 01:00,"1,334"'], r"\(line 2 '1,234'\)"),
        (["time;load_kw", "2023-01-13 00:00;934,5", "2023-01-13 01:00;1.234"], r"line 2 '934,5', line 3 '1\.234'"),
        (["time,load_kw", "01/02/2023 00:00,1", "01/02/2023 01:00,2"], "line 2 '01/02/2023 00:00'.*no ISO 8601 time"),
        (["time,load_kw", "13.01.2023 23:00,1", "13.01.2023 24:00,2"], "line 3 .*for ends give stamps='end'"),
        (
            ["Ort;;", "Zeit;Leistung kW", "1.1.2023 0:00;1"],
            "header is zeit, leistung kw.*columns=",
        ),
    ],
)
def test_what_may_mean_two_things_is_refused_with_its_line(tmp_path, rows, message):
    with pytest.raises(DataError, match=message):
        read_csv(put(tmp_path, rows))


def workbook(folder: Path) -> Path:
    book = openpyxl.Workbook()
    book.active.append(["Meter 12"])
    book.active.append(["time", "load_kw"])
    for i, t in enumerate(walls("Europe/Berlin", "2023-03-20", "2023-03-30", 15)):
        book.active.append([t, None if i == 7 else 4 * kwh(i)])
    book.save(folder / "meter.xlsx")
    return folder / "meter.xlsx"


def test_a_workbook_is_read_like_a_csv_file(tmp_path):
    path = workbook(tmp_path)
    with pytest.raises(DataError, match=r"meter\.xlsx: load_kw lacks 1 of 956 values.*\(line 10\)"):
        read_csv(path, zone="Europe/Berlin")
    with pytest.warns(UserWarning, match="Filled by interpolation"):
        series = read_csv(path, zone="Europe/Berlin", fill="interpolate")
    assert isinstance(series, Series) and len(series.time_utc) == 956
    assert series.column("load_kw")[6] == pytest.approx(kwh(6) * 4e-3)
    assert path.stat().st_size < 0.03e6
    with pytest.raises(DataError, match=r"the limit is 0\.03"):  # [MB]: what it holds unpacked
        read_csv(path, max_mb=0.03)
    path.write_bytes(b"PK\x03\x04" + bytes(50))
    with pytest.raises(DataError, match=r"no workbook of Excel.*export the sheet as CSV"):
        read_csv(path)


def test_a_workbook_without_its_library_names_the_extra(tmp_path, monkeypatch):
    path = workbook(tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "openpyxl", None)
    with pytest.raises(ImportError, match=r"powerzoo-jax\[excel\]"):
        read_csv(path)
