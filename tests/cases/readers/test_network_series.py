"""Series of network files beside the engine that solves them, and through the bank into a task."""

from __future__ import annotations

import numpy as np
import pytest

import powerzoo_jax as pz
from powerzoo_jax.base.errors import CaseError, DataError
from powerzoo_jax.base.npz import read_npz
from powerzoo_jax.cases import NetworkSeries, read_opendss_series
from powerzoo_jax.cases.readers.opendss.rules import LOADSHAPE, REFUSED
from powerzoo_jax.data import build_bank, load_dataset, series_from_arrays
from tests.recorders.record_opendss_elements import DATA
from tests.references.opendss_shapes import FILES, LINES, SHAPES, STEPS, loads

SHAPE = "New LoadShape.a npts=3 interval=1 mult=(0.2 0.6 1)\n"


def read(text: str, **options: object) -> NetworkSeries:
    return read_opendss_series("feeder.dss", read=lambda name: text if name == "feeder.dss" else FILES[name], **options)


def refusal(text: str, **options: object) -> str:
    with pytest.raises(CaseError) as caught:
        read(text, **options)
    return str(caught.value)


@pytest.mark.reference
@pytest.mark.parametrize("name", SHAPES)
def test_the_power_of_the_loads_is_that_of_the_engine_in_time(name: str) -> None:
    text, mode, hours = SHAPES[name]
    found = read(text, mode=mode, hours=STEPS * hours)
    assert found.step_minutes == 60 * hours
    # the engine's loads have their power to the tolerance of its voltages
    np.testing.assert_allclose(1e3 * found.columns["load_mw"], read_npz(DATA / "series.npz")[name], rtol=1e-8)


def test_the_length_is_that_of_the_longest_shape_and_the_mode_that_of_the_loads() -> None:
    found = read(SHAPES["steps of two shapes"][0])
    assert (found.name, found.start, found.step_minutes) == ("feeder", "", 30)
    assert list(found.columns) == ["load_mw", "load.slow_pu", "load.fast_pu"]
    assert {len(values) for values in found.columns.values()} == {12}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LINES + loads("kw=3"), "no load names a shape. Give mode= one of yearly, daily, duty"),
        (SHAPE + LINES + loads("daily=a yearly=a"), "loads name shapes of yearly and of daily. Give mode="),
        (LINES + loads("daily=b"), "line 3: load.d0: the load shape 'b' is not defined"),
        ("New LoadShape.a mult=(1 2)\n" + LINES + loads("daily=a"), "line 1: loadshape.a: mult=(1 2): the number of"),
        ("New LoadShape.a npts=2\n" + LINES + loads("daily=a"), "line 1: loadshape.a: it has no values"),
        ("New LoadShape.a 2 mult=(1 x)\n" + LINES + loads("daily=a"), "mult=(1 x): 'x' is not a number"),
        ("New LoadShape.a 2 mult=(1 nan)\n" + LINES + loads("daily=a"), "'nan' is not a finite number"),
        ("New LoadShape.a 4 mult=(1 2)\n" + LINES + loads("daily=a"), "mult=(1 2): it has 2 values for 4 points"),
        (SHAPE + "~ npts=9\n" + LINES + loads("daily=a"), "line 2: loadshape.a: npts=9: it stands after the values"),
        (SHAPE + "~ ntps=9\n" + LINES + loads("daily=a"), "line 2: Unknown property of loadshape.a 'ntps'"),
        ("New LoadShape.a 3 csvfile=table.csv\n" + LINES + loads("daily=a"), "row 1, 'hour, homes, shops', has no"),
        (
            "New LoadShape.a 3 mult=(file=table.csv col=9 header=y)\n" + LINES + loads("daily=a"),
            "no number in column 9",
        ),
        (
            SHAPE + LINES + loads("daily=a") + "LoadShape.a.useactual=y\n",
            "line 1: loadshape.a: it holds kW (UseActual)",
        ),
        (SHAPE + "~ useactual=y\n" + LINES + loads("daily=a"), "OpenDSS gives the load the maximum of the shape"),
        (SHAPE + "~ sinterval=30\n" + LINES + loads("daily=a"), "a step of 0.5 min. Give whole minutes"),
        (SHAPE + "~ interval=1e-300\n" + LINES + loads("daily=a"), "1e-300 is beyond the numbers"),
        (SHAPE + "~ interval=1e-5\n" + LINES + loads("daily=a"), "loadshape.a: its interval is 1e-05 h"),
        (SHAPE + LINES + loads("daily=a useless=1"), "line 4: Unknown property of load.d0 'useless'"),
        (
            "New LoadShape.a 1 mult=(0.5)\n" + LINES + loads("daily=a"),
            "1 hours are no 2 to 1,000,000 steps of 1 h. Give hours=",
        ),
    ],
)
def test_what_is_no_series_is_refused_with_a_remedy(text: str, message: str) -> None:
    assert message in refusal(text)


def test_every_property_that_a_shape_cannot_have_is_refused_by_name() -> None:
    for key, rule in LOADSHAPE.items():
        if rule.effect == REFUSED:
            message = refusal(SHAPE + f"~ {key}=7\n" + LINES + loads("daily=a"))
            assert f"line 2: loadshape.a: {key}=7 is not in the subset" in message and rule.text in message


def test_what_a_shape_has_besides_is_noted() -> None:
    found = read(SHAPE + "~ qmult=(1 2 3) mean=2\n" + LINES + loads("daily=a"))
    assert found.notes == (
        "reactive power follows the active power (loadshape.qmult)",
        "statistics of load shapes are not represented (loadshape.mean)",
    )


def test_an_unknown_mode_names_the_nearest_one() -> None:
    assert "Did you mean 'yearly'" in refusal(SHAPE + LINES, mode="year")


def test_shapes_that_no_load_follows_stay_unread() -> None:
    broken = "New LoadShape.b npts=2 sngfile=b.sng\n"
    np.testing.assert_allclose(
        read(SHAPE + broken + LINES + loads("kw=5 daily=a")).columns["load_mw"], [1e-3, 3e-3, 5e-3]
    )


def year(hours: int = 365 * 24) -> np.ndarray:
    return 1 + np.sin(np.arange(hours) * 2 * np.pi / 24)


def test_arrays_become_the_bank_that_a_csv_file_of_the_same_numbers_becomes(tmp_path) -> None:
    stamps = np.datetime64("2023-01-01", "m") + np.timedelta64(1, "h") * np.arange(365 * 24)
    load = year().round(4)
    (tmp_path / "load.csv").write_text(
        "time,load_kw\n" + "\n".join(f"{t},{v}" for t, v in zip(stamps, load, strict=True))
    )
    ours = series_from_arrays("load.csv", {"load_kw": load}, start="2023-01-01", step_minutes=60)
    theirs = load_dataset(tmp_path / "load.csv")
    assert ours.meta.sha256 == theirs.meta.sha256 and ours.meta.default == theirs.meta.default
    banks = [
        build_bank(s, "load.actual_mw", "ercot_dam_2021_2022", "HB_HOUSTON", 60, "test", 24) for s in (ours, theirs)
    ]
    np.testing.assert_array_equal(banks[0].load_rows, banks[1].load_rows)
    assert banks[0].start_day == banks[1].start_day


def test_a_clock_of_a_zone_begins_at_its_midnight() -> None:
    found = series_from_arrays(
        "mine", {"load.homes_pu": year()}, start="2023-01-01", step_minutes=60, zone="Europe/Madrid"
    )
    assert (
        str(found.time_utc[0].astype("datetime64[ns]"))[:16] == "2022-12-31T23:00" and found.meta.offset_minutes == 60
    )
    assert found.meta.default == "load.homes_pu"


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"load_gw": year()}, {}, "Unknown column 'load_gw'. Did you mean 'load_mw'"),
        ({"load_mw": year(), "load_kw": year()}, {}, "gives load.actual_mw twice"),
        ({"load_mw": year()}, {"start": "today"}, "start = 'today'"),
        ({"load_mw": year()}, {"step_minutes": 0.5}, "step_minutes = 0.5 is no whole number"),
        ({"load_mw": np.full(48, np.nan)}, {}, "holds no number at all"),
        ({"load_mw": year() + 1j}, {}, "load_mw holds complex128. Give real numbers: s.real or s.imag."),
        ({"load_mw": np.full(48, "5")}, {}, "Give real numbers"),
        ({"load_mw": year(), "load.a_pu": year(5)}, {}, "load.a_pu has shape"),
        ({}, {}, "has 0 row(s)"),
    ],
)
def test_arrays_that_are_no_series_are_refused(columns: dict, options: dict, message: str) -> None:
    with pytest.raises(DataError) as caught:
        series_from_arrays("mine", columns, **{"start": "2023-01-01", "step_minutes": 60} | options)
    assert message in str(caught.value)


def test_shapes_of_a_feeder_are_the_load_of_a_task() -> None:
    day = " ".join(f"{0.5 + 0.02 * hour:g}" for hour in range(24))
    text = f"New LoadShape.homes npts=24 interval=1 mult=({day})\n" + LINES + loads("kw=40 daily=homes")
    shapes = read(text, hours=8760)
    load = series_from_arrays(shapes.name, shapes.columns, start="2023-01-01", step_minutes=shapes.step_minutes)
    sim = pz.make("battery_arbitrage", data_source=load, split="test")
    rows = np.asarray(sim.params.bank.load_rows)[:48:2, 0]  # the task has half-hours
    np.testing.assert_allclose(rows, (0.5 + 0.02 * np.arange(24)) / 0.96, rtol=1e-6)
    assert int(sim.params.starts.n_start) > 60
