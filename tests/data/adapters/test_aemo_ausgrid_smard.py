"""AEMO, Ausgrid and SMARD files: interval-end stamps, 24:00, NEM time, doubled hours told apart by their order."""

from datetime import datetime, timedelta

import numpy as np
import pytest

from powerzoo_jax.base.errors import DataError
from powerzoo_jax.data.adapters import read_official

NEM_HEADER = "REGION,SETTLEMENTDATE,TOTALDEMAND,RRP,PERIODTYPE"


def instants(series):
    return series.time_utc.astype("datetime64[ns]")


def at(series, name, stamp):
    return float(series.column(name)[instants(series) == np.datetime64(stamp)][0])


def write(path, *lines):
    path.write_text("\n".join(lines) + "\n", encoding="utf-8-sig")
    return path


def nem_rows(first_end, step, count, start=0, stamp="{:%Y/%m/%d %H:%M:%S}", region="NSW1"):
    end = datetime.fromisoformat(first_end)
    return [
        f"{region},{stamp.format(end + timedelta(minutes=step * i))},{7000 + start + i},{50 + start + i},TRADE"
        for i in range(count)
    ]


@pytest.mark.parametrize(
    "stamp", ["{:%Y/%m/%d %H:%M:%S}", '"{:%Y/%m/%d %H:%M}"', "{0.day}/{0.month}/{0.year} {0:%H:%M}"]
)
def test_nem_stamps_end_their_interval_ten_hours_east_of_utc(tmp_path, stamp):
    path = write(tmp_path / "nem.csv", NEM_HEADER, *nem_rows("2021-01-01T00:30", 30, 48, stamp=stamp))
    series, _ = read_official("aemo", path)
    assert instants(series)[0] == np.datetime64("2020-12-31T14:00")
    assert series.meta.offset_minutes == 600 and series.meta.step_minutes == 30
    np.testing.assert_array_equal(series.column("load.actual_mw"), 7000 + np.arange(48))


def test_nem_time_knows_no_summer(tmp_path):
    rows = nem_rows("2021-10-02T12:05", 5, 600)  # Sydney puts its clock forward on 3 October
    series, report = read_official("aemo", write(tmp_path / "nem.csv", NEM_HEADER, *rows))
    assert len(series.time_utc) == 600 and report.missing == 0 and series.meta.step_minutes == 5


def test_the_two_resolutions_of_october_2021_meet_at_half_hours(tmp_path):
    write(tmp_path / "a_202109.csv", NEM_HEADER, *nem_rows("2021-09-30T23:30", 30, 2))
    write(tmp_path / "b_202110.csv", NEM_HEADER, *nem_rows("2021-10-01T00:05", 5, 14))
    series, report = read_official("aemo", tmp_path)
    assert series.meta.step_minutes == 30
    # 50..55 and 56..61: means of six; the last two rows make no half-hour
    np.testing.assert_allclose(series.column("price.spot_per_mwh"), [50, 51, 52.5, 58.5])
    assert instants(series)[-1] == np.datetime64("2021-09-30T14:30")
    assert report.dropped["five-minute rows doubled or of incomplete half-hours"] == 2


def test_only_trade_rows_of_one_region_count_and_negative_prices_are_legal(tmp_path):
    rows = nem_rows("2021-01-01T00:30", 30, 3)
    rows[1] = "NSW1,2021/01/01 01:00:00,-20,-1000,TRADE"
    path = write(tmp_path / "nem.csv", NEM_HEADER, *rows, rows[2].replace("TRADE", "PREDISPATCH").replace("7002", "1"))
    series, report = read_official("aemo", path)
    np.testing.assert_array_equal(series.column("price.spot_per_mwh"), [50, -1000, 52])
    assert at(series, "load.actual_mw", "2020-12-31T15:00") == 7002
    assert report.dropped["rows other than TRADE"] == 1
    both = write(tmp_path / "two.csv", NEM_HEADER, *rows, *nem_rows("2021-01-01T00:30", 30, 3, region="SA1"))
    with pytest.raises(DataError, match=r"2 regions \(NSW1, SA1\)"):
        read_official("aemo", both)
    assert len(read_official("aemo", both, region="sa1")[0].time_utc) == 3
    with pytest.raises(DataError, match="Did you mean 'SA1'"):
        read_official("aemo", both, region="SA")


def test_bad_price_files_are_refused(tmp_path):
    rows = nem_rows("2021-01-01T00:30", 30, 4)
    for bad, message in (
        (nem_rows("2021-01-01T00:30", 17, 4), "steps of 17 min"),
        ([row.replace(",51,", ",-5100,") for row in rows], "market|floor"),
        ([row.replace(",2021/01/01", ",2021-01-01T") for row in rows], "line 2"),
        ([row.rsplit(",", 2)[0] + ",,TRADE" for row in rows], "price.spot_per_mwh holds no number"),
    ):
        with pytest.raises(DataError, match=message):
            read_official("aemo", write(tmp_path / "nem.csv", NEM_HEADER, *bad))


def test_operational_demand_reads_d_rows_under_their_i_row(tmp_path):
    path = write(
        tmp_path / "actual.csv",
        "C,NEMP.WORLD,ACTUAL_OPERATIONAL_DEMAND_HH,AEMO,PUBLIC",
        "I,OPERATIONAL_DEMAND,ACTUAL,3,REGIONID,INTERVAL_DATETIME,OPERATIONAL_DEMAND,OPERATIONAL_DEMAND_ADJUSTMENT",
        'D,OPERATIONAL_DEMAND,ACTUAL,3,SA1,"2023/10/01 13:30:00",-26,0',
        'D,OPERATIONAL_DEMAND,ACTUAL,3,VIC1,"2023/10/01 13:30:00",2600,0',
        'D,OPERATIONAL_DEMAND,ACTUAL,3,SA1,"2023/10/01 14:00:00",21,5',
        "C,END OF REPORT,6",
    )
    series, report = read_official("aemo_nemweb", path, region="SA1")
    assert instants(series)[0] == np.datetime64("2023-10-01T03:00")
    np.testing.assert_array_equal(series.column("load.actual_mw"), [-26, 21])
    assert report.dropped["rows of other regions"] == 1
    with pytest.raises(DataError, match="not with C, I or D"):
        read_official("aemo_nemweb", write(tmp_path / "actual.csv", NEM_HEADER, *nem_rows("2021-01-01T00:30", 30, 4)))


def test_forecasts_keep_the_age_of_their_last_issue(tmp_path):
    head = "I,OPERATIONAL_DEMAND,FORECAST,1,REGIONID,FORECAST_DATETIME,LOAD_DATE,OPERATIONAL_DEMAND_POE10,"
    path = write(
        tmp_path / "forecast.csv",
        head + "OPERATIONAL_DEMAND_POE50,OPERATIONAL_DEMAND_POE90",
        "D,OPERATIONAL_DEMAND,FORECAST,1,QLD1,2023/10/01 13:30:00,2023/10/01 12:30:00,6200,6100,6000",
        "D,OPERATIONAL_DEMAND,FORECAST,1,QLD1,2023/10/01 13:30:00,2023/10/01 09:30:00,6290,6190,6090",
        "D,OPERATIONAL_DEMAND,FORECAST,1,QLD1,2023/10/01 14:00:00,2023/10/01 09:30:00,6300,6200,6100",
    )
    series, _ = read_official("aemo_nemweb", path)
    np.testing.assert_array_equal(series.column("load.forecast_poe50_mw"), [6100, 6200])
    np.testing.assert_array_equal(series.column("load.forecast_lead_min"), [30, 240])


QUARTERS = [f"{m // 60:02d}:{m % 60:02d}" for m in range(15, 1441, 15)]


def ausgrid_file(path, days, station="Mascot", unit="MW", values=None):
    lines = ["year,ZONE Substation,Date,unit," + ",".join(QUARTERS)]
    for k, day in enumerate(days):
        cells = values or [str(10 + k + i / 100) for i in range(96)]
        lines.append(f"2019,{station},{day},{unit}," + ",".join(cells))
    return write(path, *lines)


@pytest.mark.parametrize("days", [("2019-06-01", "2019-06-02"), ("1/06/2019", "2/06/2019")])
def test_24_00_ends_the_same_day(tmp_path, days):
    series, report = read_official("ausgrid", ausgrid_file(tmp_path / "zone.csv", days))
    assert len(series.time_utc) == 192 and report.missing == 0
    assert instants(series)[0] == np.datetime64("2019-05-31T14:00")  # 00:00 of 1 June at UTC+10
    assert at(series, "load.actual_mw", "2019-06-01T13:45") == pytest.approx(10.95)  # 23:45 to 24:00 of 1 June
    assert at(series, "load.actual_mw", "2019-06-01T14:00") == pytest.approx(11.0)


def test_the_spring_change_skips_four_quarters_and_autumn_doubles_four(tmp_path):
    spring = ausgrid_file(tmp_path / "spring.csv", ("2019-10-05", "2019-10-06", "2019-10-07"))
    series, report = read_official("ausgrid", spring)
    assert len(series.time_utc) == 3 * 96 - 4 and report.missing == 0
    assert report.dropped["cells of the hour that the spring clock change skips"] == 4
    autumn = ausgrid_file(tmp_path / "autumn.csv", ("2019-04-06", "2019-04-07", "2019-04-08"))
    series, report = read_official("ausgrid", autumn)
    assert len(series.time_utc) == 3 * 96 + 4 and (report.missing, report.repaired) == (4, 4)
    assert at(series, "load.actual_mw", "2019-04-06T17:00") == pytest.approx(11 + 12 / 100)  # 03:00 AEST of 7 April


def test_blank_cells_are_missing_and_the_sum_lacks_what_one_substation_lacks(tmp_path):
    ausgrid_file(tmp_path / "a.csv", ("2019-06-01",))
    ausgrid_file(tmp_path / "b.csv", ("2019-06-01",), "Bondi Junction", values=["-1"] * 50 + [""] * 46)
    series, report = read_official("ausgrid", tmp_path)
    assert set(series.columns) == {"load.actual_mw", "load.mascot_mw", "load.bondi_junction_mw"}
    assert at(series, "load.actual_mw", "2019-05-31T14:00") == pytest.approx(9.0)
    assert report.missing == 46 and np.isnan(series.column("load.actual_mw")[50:]).all()
    alone, _ = read_official("ausgrid", tmp_path, stations=["mascot"])
    assert set(alone.columns) == {"load.actual_mw"} and not np.isnan(alone.column("load.actual_mw")).any()
    with pytest.raises(DataError, match="Did you mean 'Mascot'"):
        read_official("ausgrid", tmp_path, stations=["Mascott"])


def test_only_megawatts_are_read(tmp_path):
    reactive = ausgrid_file(tmp_path / "q.csv", ("2019-06-01",), unit="MVAr")
    with pytest.raises(DataError, match="no row in MW; its units are MVAr"):
        read_official("ausgrid", reactive)
    mixed = write(reactive, *ausgrid_file(tmp_path / "p.csv", ("2019-06-01",)).read_text("utf-8-sig").splitlines(),
                  "2019,Mascot,2019-06-01,MVAr," + ",".join(["3"] * 96))  # fmt: skip
    series, report = read_official("ausgrid", mixed)
    assert report.dropped["rows in another unit than MW"] == 1 and float(series.column("load.actual_mw")[0]) == 10
    with pytest.raises(DataError, match="median of Mascot"):
        read_official("ausgrid", ausgrid_file(tmp_path / "kw.csv", ("2019-06-01",), values=["10000"] * 96))
    with pytest.raises(DataError, match="no column '24:00'"):
        read_official(
            "ausgrid", write(tmp_path / "kw.csv", *mixed.read_text("utf-8-sig").replace("24:00", "00:00").splitlines())
        )


ZONES = "Germany/Austria/Luxembourg[€/MWh];Germany/Luxembourg[€/MWh]"


def smard_rows(first, hours, zone=0, start=0.0):
    """Rows of the civil clock of Berlin: skipped and doubled hours as the publisher writes them."""
    from zoneinfo import ZoneInfo

    rows = []
    for i in range(hours):
        wall = (datetime.fromisoformat(first) + timedelta(hours=i)).astimezone(ZoneInfo("Europe/Berlin"))
        price = f"{start + i:.2f}"
        cells = (price, "-") if zone == 0 else ("-", price)
        rows.append(f"{wall:%b} {wall.day}, {wall.year};{wall.hour % 12 or 12}:{wall:%M %p};" + ";".join(cells))
    return rows


@pytest.mark.parametrize("first", ["2018-03-24T23:00+00:00", "2018-10-27T22:00+00:00"])
def test_both_clock_changes_of_berlin_leave_an_hourly_utc_clock(tmp_path, first):
    rows = smard_rows(first, 48)
    series, report = read_official("smard", write(tmp_path / "smard.csv", f"Date;Time of day;{ZONES}", *rows))
    assert instants(series)[0] == np.datetime64(first[:16])
    np.testing.assert_array_equal(series.column("price.day_ahead_per_mwh"), np.arange(48))
    assert (report.missing, report.duplicated) == (0, 0)


def test_the_zones_before_and_after_october_2018_are_joined(tmp_path):
    rows = smard_rows("2018-09-30T20:00+00:00", 2) + smard_rows("2018-09-30T22:00+00:00", 2, zone=1, start=-76.0)
    path = write(tmp_path / "smard.csv", f"Date;Time of day;{ZONES}", *rows)
    np.testing.assert_array_equal(read_official("smard", path)[0].column("price.day_ahead_per_mwh"), [0, 1, -76, -75])
    alone, report = read_official("smard", path, zone="Germany/Luxembourg", fill_minutes=0)
    assert report.missing == 2 and np.isnan(alone.column("price.day_ahead_per_mwh")[:2]).all()


def test_newer_exports_with_start_and_end_are_read(tmp_path):
    path = write(
        tmp_path / "smard.csv",
        "Start date;End date;Germany/Luxembourg [€/MWh] Original resolutions",
        "Oct 1, 2025 12:00 AM;Oct 1, 2025 12:15 AM;1,012.50",
        "Oct 1, 2025 12:15 AM;Oct 1, 2025 12:30 AM;-3.25",
    )
    series, _ = read_official("smard", path)
    assert series.meta.step_minutes == 15 and instants(series)[0] == np.datetime64("2025-09-30T22:00")
    np.testing.assert_array_equal(series.column("price.day_ahead_per_mwh"), [1012.5, -3.25])


def test_bad_price_exports_are_refused(tmp_path):
    rows = smard_rows("2018-10-27T22:00+00:00", 6)
    for header, lines, message in (
        (ZONES, rows[::-1], "time goes backwards"),
        (ZONES, [row.replace(";-", ";7.00") for row in rows], "two zones"),
        (ZONES.replace("€/MWh", "MWh"), rows, "is in 'mwh'"),
        ("France[€/MWh];Poland[€/MWh]", rows, "Unknown bidding zone"),
        (ZONES, [row.replace(".00", ",00") for row in rows], "not a number"),
        (ZONES, ["Mar 25, 2018;2:00 AM;1.00;-", *rows], "does not exist"),
    ):
        with pytest.raises(DataError, match=message):
            read_official("smard", write(tmp_path / "smard.csv", f"Date;Time of day;{header}", *lines))
    german = write(tmp_path / "smard.csv", "Datum;Anfang;Deutschland/Luxemburg [€/MWh]", "01.01.2018;00:00;1,50")
    with pytest.raises(DataError, match="no column 'Date'"):
        read_official("smard", german)
