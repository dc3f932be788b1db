"""Data-centre traces: overlap with steps, quoted int64, machine events, abnormal readings, absolute sums."""

import json

import numpy as np
import pytest

from powerzoo_jax.base.errors import DataError, DataMissing
from powerzoo_jax.data.adapters import read_official

USE = "workload.cpu_share"
MINUTE = 60_000_000  # [us]
TRACE = 600_000_000  # the trace starts at 600 s


def google_files(folder, windows, events, quoted=True):
    text = str if quoted else int
    usage = [
        {"start_time": text(TRACE + a * MINUTE), "end_time": text(TRACE + b * MINUTE), "collection_id": "384609507731",
         "average_usage": {"cpus": c, "memory": 0.1}}
        for a, b, c in windows
    ]  # fmt: skip
    machines = [
        {"time": text(t), "machine_id": text(m), "type": kind, "capacity": {"cpus": c}} for t, m, kind, c in events
    ]
    for name, rows in (("instance_usage-000.json", usage), ("machine_events-000.json", machines)):
        (folder / name).write_text("\n".join(json.dumps(row) for row in rows))
    return folder


@pytest.mark.parametrize("quoted", [True, False])
def test_use_is_spread_by_overlap_over_the_capacity_of_the_machines(tmp_path, quoted):
    windows = [(0, 5, 0.3), (0, 10, 0.2), (4, 9, 0.5)]
    # the second machine comes after 5 min and leaves after 10; the third step has no use at all, the fourth has
    events = [(0, 1, "ADD", 1.0), (TRACE + 5 * MINUTE, 2, 1, 1.0), (TRACE + 10 * MINUTE, 2, "REMOVE", 1.0)]
    series, _ = read_official(
        "google", google_files(tmp_path, [*windows, (15, 20, 0.25)], events, quoted), fill_minutes=0
    )
    np.testing.assert_allclose(
        series.column(USE), [0.3 + 0.2 + 0.5 / 5, (0.2 + 0.5 * 4 / 5) / 2, np.nan, 0.25], rtol=1e-6
    )
    assert str(series.time_utc[0].astype("datetime64[ns]"))[:16] == "2019-05-01T07:00"


def test_flattened_csv_reads_like_json(tmp_path):
    (tmp_path / "instance_usage.csv").write_text(
        'Start_Time,end_time,average_usage.cpus\n"600000000","900000000",0.5\n900000000,1200000000,0.25\n'
    )
    (tmp_path / "machine_events.csv").write_text("time,machine_id,type,capacity.cpus\n0,7,1,0.5\n0,8,1,0.5\n")
    np.testing.assert_allclose(read_official("google", tmp_path)[0].column(USE), [0.5, 0.25])


def test_bad_google_exports_are_refused(tmp_path):
    add = [(0, 1, "ADD", 1.0)]
    for windows, events, message in (
        ([(0, 5, 1.5)] * 2, add, "3 times the capacity"),
        ([(5, 5, 0.5)], add, "no usable window"),
        ([(0, 5, 0.5)], [(0, 1, "SOLD", 1.0)], "event 'SOLD'"),
    ):
        with pytest.raises(DataError, match=message):
            read_official("google", google_files(tmp_path, windows, events))
    usage = tmp_path / "instance_usage-000.json"
    usage.write_text('{"start_time": 6.0e8, "end_time": "900000000", "average_usage": {"cpus": 0.5}}')
    with pytest.raises(DataError, match=r"line 1: '600000000\.0' is not a whole number"):
        read_official("google", tmp_path)
    usage.write_text('{"start_time": ')
    with pytest.raises(DataError, match="line 1 is not a JSON object"):
        read_official("google", tmp_path)
    (tmp_path / "machine_events-000.json").unlink()
    with pytest.raises(DataMissing, match="machine_events"):
        read_official("google", tmp_path)


def alibaba(folder, readings):
    path = folder / "machine_usage.csv"
    path.write_text("\n".join(f"m_{m},{t},{cpu},80,,,40.1,30.2,5" for m, t, cpu in readings) + "\n")
    return path


def test_abnormal_readings_of_alibaba_are_left_out_and_counted(tmp_path):
    readings = [(1, 0, 30), (2, 10, 50), (1, 20, -1), (2, 290, 101), (1, 300, 0), (2, 310, 100), (1, 600, 7)]
    series, report = read_official("alibaba", alibaba(tmp_path, readings))
    np.testing.assert_allclose(series.column(USE), [0.4, 0.5, 0.07], rtol=1e-6)
    assert report.dropped == {"readings outside 0..100 %": 2} and report.rows == 7


def test_bad_machine_usage_is_refused(tmp_path):
    for readings, message in (
        ([(1, 0, -1), (1, 300, 101)], "no utilisation from 0 to 100"),
        ([(1, 0, 0.4), (1, 300, 0.5)], "Convert shares to per cent"),
        ([(1, 0, 40), (1, "noon", 50)], "line 2: 'noon' is not a number"),
        ([(1, -300, 40), (1, 300, 50)], "count seconds from 0"),
    ):
        with pytest.raises(DataError, match=message):
            read_official("alibaba", alibaba(tmp_path, readings))
    (tmp_path / "machine_usage.csv").write_text("m_1,0,40\n")
    with pytest.raises(DataError, match="line 1 has 3 cells"):
        read_official("alibaba", tmp_path)


def test_absolute_sums_of_azure_are_divided_by_one_reference(tmp_path):
    path = tmp_path / "vm_cpu_readings-file-1-of-195.csv"
    rows = [(0, "a", 60), (0, "b", 20), (300, "a", 60), (300, "b", 20), (300, "c", 80), (300, "d", 40), (600, "a", 50)]
    path.write_text("\n".join(f"{t},{vm},0,100,{avg}" for t, vm, avg in rows))
    series, report = read_official("azure", tmp_path)
    # a mean over the machines that report would be 0.4, 0.5, 0.5
    np.testing.assert_allclose(series.column(USE), [0.8 / 4, 2.0 / 4, 0.5 / 4], rtol=1e-6)
    assert "Busy machines over 4." in str(report)
    np.testing.assert_allclose(read_official("azure", tmp_path, reference=8.0)[0].column(USE)[1], 0.25)
    with pytest.raises(DataError, match="Give a positive number"):
        read_official("azure", tmp_path, reference=0.0)
