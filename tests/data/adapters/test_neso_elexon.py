"""NESO and Elexon files: clock changes, providers without trades, revisions, names and dates of every year."""

import json

import numpy as np
import pytest

from powerzoo_jax.base.errors import DataError, DataMissing
from powerzoo_jax.data import load_signals
from powerzoo_jax.data.adapters import list_official, read_official

SHORT_DAY, LONG_DAY = "2019-03-31", "2019-10-27"


def instants(series):
    return series.time_utc.astype("datetime64[ns]")


def at(series, name, stamp):
    return float(series.column(name)[instants(series) == np.datetime64(stamp)][0])


def demand_file(folder, days, name="demanddata_2019.csv", header="SETTLEMENT_DATE,SETTLEMENT_PERIOD,ND,TSD"):
    """ND counts the half-hours from 30,000 MW; days are (date, number of periods)."""
    rows, n = [header], 30_000
    for date, count in days:
        for period in range(1, count + 1):
            rows.append(f"{date},{period},{n},{n + 500}")
            n += 1
    path = folder / name
    path.write_text("\n".join(rows) + "\n")
    return path


def test_a_year_is_half_hourly_in_utc_across_both_clock_changes(tmp_path):
    days = np.arange("2019-03-30", "2019-10-29", dtype="datetime64[D]").astype(str)
    counts = [46 if day == SHORT_DAY else 50 if day == LONG_DAY else 48 for day in days]
    series, report = read_official("neso", demand_file(tmp_path, zip(days, counts, strict=True)))
    assert (report.missing, report.duplicated, report.repaired) == (0, 0, 0)
    assert len(series.time_utc) == sum(counts)
    np.testing.assert_array_equal(series.column("load.actual_mw"), 30_000 + np.arange(sum(counts)))
    # period 1 of a summer day is 00:00 BST, the day before at 23:00 UTC
    assert at(series, "load.actual_mw", "2019-03-31T00:00") == 30_048
    assert at(series, "load.actual_mw", "2019-03-31T23:00") == 30_048 + 46


def test_periods_47_and_49_exist_only_on_their_days(tmp_path):
    for date, count, limit in ((SHORT_DAY, 48, 46), ("2019-06-01", 50, 48)):
        with pytest.raises(DataError, match=rf"line {limit + 2}.*1\.\.{limit}"):
            read_official("neso", demand_file(tmp_path, [(date, count)]))


@pytest.mark.parametrize("date", ["01-JAN-2019", "2019-01-01", "01/01/2019"])
def test_dates_are_read_in_every_format_of_the_years(tmp_path, date):
    series, _ = read_official("neso", demand_file(tmp_path, [(date, 48)]))
    assert instants(series)[0] == np.datetime64("2019-01-01T00:00")


def test_columns_are_found_by_name_and_new_flows_join(tmp_path):
    path = tmp_path / "demanddata_2024.csv"
    path.write_text(
        "Greenlink_Flow,settlement_period,SETTLEMENT_DATE,EMBEDDED_SOLAR_GENERATION,nd,FORECAST_ACTUAL_INDICATOR\n"
        "-5,1,2024-01-01,0,25000,A\n-6,2,2024-01-01,1,25001,A\n9,3,2024-01-01,9,99999,F\n"
    )
    series, report = read_official("neso", path)
    np.testing.assert_array_equal(series.column("flow.greenlink_mw"), [-5, -6])
    np.testing.assert_array_equal(series.column("solar.embedded_mw"), [0, 1])
    assert report.dropped["forecast rows"] == 1 and report.rows == 3


def test_a_flow_that_older_files_lack_is_missing_there(tmp_path):
    demand_file(tmp_path, [("2019-12-31", 48)])
    demand_file(tmp_path, [("2020-01-01", 48)], "demanddata_2020.csv", "SETTLEMENT_DATE,SETTLEMENT_PERIOD,ND,IFA2_FLOW")
    series, report = read_official("neso", tmp_path)
    assert np.isnan(series.column("flow.ifa2_mw")[:48]).all() and not np.isnan(series.column("flow.ifa2_mw")[48:]).any()
    assert report.files == ("demanddata_2019.csv", "demanddata_2020.csv")


def test_short_gaps_are_filled_and_long_ones_stay(tmp_path):
    path = demand_file(tmp_path, [("2019-06-01", 48)])
    lines = path.read_text().splitlines()
    path.write_text("\n".join(line for i, line in enumerate(lines) if i not in {10, 11, *range(20, 26)}))
    series, report = read_official("neso", path)
    assert (report.missing, report.repaired) == (8, 2)
    assert at(series, "load.actual_mw", "2019-06-01T03:30") == 30_009  # 04:30 BST, period 10
    np.testing.assert_array_equal(series.repaired, [9, 10])
    assert np.isnan(series.column("load.actual_mw")).sum() == 6
    assert "8 steps lacked a value, 2 had one filled" in str(report) and "2019-06-01 08:30" in str(report)


def test_doubled_and_unordered_rows_are_counted_and_the_last_one_stays(tmp_path):
    path = demand_file(tmp_path, [("2019-06-01", 4)])
    path.write_text(path.read_text() + "2019-06-01,2,31111,31611\n2019-06-01,4,30003,30503\n")
    series, report = read_official("neso", path)
    np.testing.assert_array_equal(series.column("load.actual_mw"), [30_000, 31_111, 30_002, 30_003])
    assert (report.duplicated, report.superseded, report.unordered) == (2, 1, 1)


def test_every_bad_demand_file_is_refused_with_its_place(tmp_path):
    good = demand_file(tmp_path, [("2019-06-01", 48)]).read_text()
    path = tmp_path / "bad.csv"
    for text, message in (
        ("", "is empty"),
        (good.splitlines()[0], "header and no row"),
        (good.replace("ND", "DEMAND"), "no column 'ND'"),
        (good.replace("30005", "many"), "line 7: nd is 'many'"),
        (good.replace("2019-06-01,9,", "2019-13-01,9,"), "line 10: '2019-13-01'"),
        (good.replace("2019-06-01,9,", "2109-06-01,9,"), "wrong date"),
        (good.replace(",300", ",0.300"), r"median of ND \[MW\]"),
        ("\n".join(good.splitlines()[:2] + good.splitlines()[1:2]), "1 usable instant"),
        (good.rsplit(",", 1)[0], "line 49 has 3 cells, the header 4"),
        ("\n".join([good.splitlines()[0], *(f"2019-06-01,{p},," for p in range(1, 5))]), "holds no number"),
    ):
        path.write_text(text)
        with pytest.raises(DataError, match=message):
            read_official("neso", path)
    path.write_bytes(b"\x1f\x8b\x08\x00\xff\xfe")
    with pytest.raises(DataError, match="compressed by gzip, not text"):
        read_official("neso", path)


def test_missing_files_and_unknown_sources_are_named(tmp_path):
    with pytest.raises(DataMissing, match=r"no file or folder.*Download"):
        read_official("neso", tmp_path / "absent.csv")
    with pytest.raises(DataMissing, match=r"holds no \*\.csv"):
        read_official("neso", tmp_path)
    with pytest.raises(ValueError, match="Did you mean 'neso'"):
        read_official("nseo", tmp_path)
    assert {"aemo", "alibaba", "ausgrid", "azure", "elexon_mid", "google", "neso", "smard"} <= set(list_official())


def test_a_source_and_a_path_name_a_data_set_by_their_canonical_signals(tmp_path):
    path = demand_file(tmp_path, [("2019-01-01", 48), ("2019-01-02", 48)])
    day = load_signals("load.actual_mw", source=f"neso:{path}", start_date="2019-01-02", end_date="2019-01-02")
    np.testing.assert_array_equal(day.column("load.actual_mw"), 30_048 + np.arange(48))


def record(start, period, fuel, value, published="2019-06-01T00:00:00Z", date="2019-06-01"):
    return {
        "dataset": "FUELHH", "publishTime": published, "startTime": start, "settlementDate": date,
        "settlementPeriod": period, "fuelType": fuel, "generation": value,
    }  # fmt: skip


RECORDS = [
    record("2019-06-01T10:00:00Z", 23, "CCGT", 9000),
    record("2019-06-01T10:00:00Z", 23, "INTFR", -200),
    record("2019-06-01T10:30:00Z", 24, "CCGT", 9100, "2019-06-01T12:00:00Z"),
    record("2019-06-01T10:30:00Z", 24, "CCGT", 9050, "2019-06-01T11:00:00Z"),  # older, but further down
    record("2019-06-01T10:30:00Z", 24, "INTFR", -210),
]


@pytest.mark.parametrize("wrapped", [False, True])
def test_the_record_published_last_wins_in_both_json_bodies(tmp_path, wrapped):
    path = tmp_path / "fuelhh.json"
    path.write_text(json.dumps({"data": RECORDS} if wrapped else RECORDS))
    series, report = read_official("elexon_fuelhh", path)
    np.testing.assert_array_equal(series.column("generation.ccgt_metered_mw"), [9000, 9100])
    np.testing.assert_array_equal(series.column("generation.intfr_metered_mw"), [-200, -210])
    assert sum(report.dropped.values()) == 1


def test_pascal_case_csv_without_start_times_reads_like_json(tmp_path):
    path = tmp_path / "fuelhh.csv"
    rows = [f"{r['settlementDate']},{r['settlementPeriod']},{r['fuelType']},{r['generation']}" for r in RECORDS[:3]]
    path.write_text("SettlementDate,SettlementPeriod,FuelType,Generation\n" + "\n".join(rows))
    series, _ = read_official("elexon_fuelhh", path)
    assert at(series, "generation.ccgt_metered_mw", "2019-06-01T10:30") == 9100


def test_the_endpoint_per_type_is_unnested(tmp_path):
    path = tmp_path / "types.json"
    nested = [
        {"startTime": f"2019-06-01T10:{m}0:00Z", "settlementPeriod": 23 + k, "settlementDate": "2019-06-01",
         "data": [{"psrType": "Wind Onshore", "quantity": 500 + k}, {"psrType": "Solar", "quantity": 7}]}
        for k, m in enumerate("03")
    ]  # fmt: skip
    path.write_text(json.dumps({"data": nested}))
    series, _ = read_official("elexon_fuelhh", path)
    np.testing.assert_array_equal(series.column("generation.wind_onshore_metered_mw"), [500, 501])


def test_contradictory_or_broken_generation_is_refused(tmp_path):
    path = tmp_path / "fuelhh.json"
    for body, message in (
        ("[", "not JSON"),
        ('{"message": "no"}', "neither a list"),
        ("[]", "holds no record"),
        (json.dumps([record("2019-06-01T10:00:00", 25, "CCGT", 1)]), "startTime is not the start"),
        (json.dumps([record("2019-06-01T10:00:00Z", 23, "CCGT", -9000)]), "Only PS and INT"),
        (json.dumps([record("2019-06-01T10:00:00Z", 23, None, 9000)]), "line 1 names no fuel"),
        (json.dumps([record("noon", 23, "CCGT", 9000)]), "startTime is 'noon'"),
    ):
        path.write_text(body)
        with pytest.raises(DataError, match=message):
            read_official("elexon_fuelhh", path)


def test_index_prices_are_weighted_with_volume_and_never_averaged_with_idle_providers(tmp_path):
    path = tmp_path / "mid.csv"
    rows = [
        ("2019-10-27T00:00:00Z", 3, "APXMIDP", 40.0, 1000), ("2019-10-27T00:00:00Z", 3, "N2EXMIDP", 0.0, 0),
        ("2019-10-27T00:30:00Z", 4, "APXMIDP", 30.0, 300), ("2019-10-27T00:30:00Z", 4, "N2EXMIDP", 60.0, 100),
        ("2019-10-27T01:00:00Z", 5, "APXMIDP", -12.5, 50), ("2019-10-27T01:00:00Z", 5, "N2EXMIDP", 0.0, 0),
        ("2019-10-27T01:30:00Z", 6, "APXMIDP", 0.0, 0), ("2019-10-27T01:30:00Z", 6, "N2EXMIDP", 0.0, 0),
        ("2019-10-27T02:00:00Z", 7, "APXMIDP", 20.0, 10), ("2019-10-27T02:00:00Z", 7, "N2EXMIDP", 0.0, 0),
    ]  # fmt: skip
    lines = [f"MID,{t},{who},2019-10-27,{p},{price},{volume}" for t, p, who, price, volume in rows]
    path.write_text("Dataset,StartTime,DataProvider,SettlementDate,SettlementPeriod,Price,Volume\n" + "\n".join(lines))
    series, report = read_official("elexon_mid", path)
    # 01:30 had no trade at all: its price is held and counted, not read as zero
    np.testing.assert_allclose(series.column("price.market_index_per_mwh"), [40.0, 37.5, -12.5, -12.5, 20.0])
    assert (report.missing, report.repaired) == (1, 1)
    assert report.dropped["records without volume"] == 5
