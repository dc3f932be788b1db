"""Networks of PyPSA against its own recorded power flow."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import powerzoo_jax as pz
from powerzoo_jax.base.errors import CaseError
from powerzoo_jax.base.npz import read_npz
from powerzoo_jax.cases import from_pypsa, read_pypsa_series
from powerzoo_jax.data import series_from_arrays
from tests.references.recorded_nets import Frame

RECORDED = json.loads(read_npz(Path(__file__).parents[2] / "recorded" / "pypsa" / "expected.npz")["networks"].tobytes())


class Rows:
    """A table of series: columns by name, one row a snapshot."""

    def __init__(self, content: dict[str, Any]):
        self.columns, self._rows = content["columns"], content["rows"]

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.array(self._rows, dtype)


class Component:
    """Tables of one kind of components."""

    def __init__(self, content: dict[str, Any]):
        self.static = Frame(content["static"])
        self.dynamic = {name: Rows(rows) for name, rows in content["dynamic"].items()}


class RecordedNetwork:
    """A network as far as the conversion looks at it, with what PyPSA has worked out already."""

    def __init__(self, content: dict[str, Any]):
        self.name, self.snapshots = content["name"], content["snapshots"]
        self.c = {kind: Component(table) for kind, table in content["tables"].items()}

    def copy(self) -> RecordedNetwork:
        return self

    def calculate_dependent_values(self) -> None:
        pass


def changed(name: str, kind: str, column: str, values: list[Any]) -> RecordedNetwork:
    """A recorded network with one column of one static table replaced."""
    content = copy.deepcopy(RECORDED[name])
    content["tables"][kind]["static"][column] = values
    return RecordedNetwork(content)


@pytest.mark.reference
@pytest.mark.parametrize("moment", [0, 1])
@pytest.mark.parametrize("name", RECORDED)
def test_voltages_are_those_that_pypsa_finds(name, moment):
    """Standard types, ratios on both sides, phase shifts, T models, storage, links, islands: 1e-9 pu."""
    content = RECORDED[name]
    case = from_pypsa(RecordedNetwork(content), content["snapshots"][moment])
    labels = [content["tables"]["buses"]["static"]["index"][k - 1] for k in case.bus.id]
    v = np.array(content["v"][0])[moment] + 1j * np.array(content["v"][1])[moment]
    known = v[[content["buses"].index(label) for label in labels]]
    np.testing.assert_allclose(pz.run_power_flow(case).v, known, atol=1e-9)


def test_the_first_snapshot_is_meant_when_none_is_named():
    network = RecordedNetwork(RECORDED["ring"])
    first, second = (from_pypsa(network, moment) for moment in (None, 1))
    assert first.p_load_mw.sum() - second.p_load_mw.sum() == pytest.approx(14.0 - 9.0)
    assert (first.unit.p_mw[2], second.unit.p_mw[2]) == (3.0, 5.0)


def test_ratings_limits_and_costs_are_those_of_the_network():
    case = from_pypsa(RecordedNetwork(RECORDED["ring"]))
    assert case.branch.rate_a_mva.tolist() == pytest.approx([56.0, 15.0, 15.0, 40.0, 40.0])
    assert case.unit.p_min_mw.tolist() == [6.0, 0.0, 0.0] and case.unit.p_max_mw.tolist() == [30.0, 100.0, 6.0]
    assert case.unit.cost.tolist() == [[0.0, 20.0, 0.0], [0.01, 35.0, 0.0], [0.0, 0.0, 0.0]]


def test_what_a_case_does_not_hold_is_noted():
    notes = " ".join(from_pypsa(RecordedNetwork(RECORDED["links"])).notes)
    for words in ("another carrier than AC", "storage_units draw or feed p_set", "links are loads at their ends"):
        assert words in notes


def test_what_has_no_counterpart_is_refused_by_name():
    with pytest.raises(CaseError, match=r"'ring' has no snapshot 7\. It has 0, 1"):
        from_pypsa(RecordedNetwork(RECORDED["ring"]), 7)
    with pytest.raises(CaseError, match=r"no bus of the carrier AC"):
        from_pypsa(changed("ring", "buses", "carrier", ["DC"] * 5))
    with pytest.raises(CaseError, match=r"lines at buses that are not AC: cd"):
        from_pypsa(changed("ring", "buses", "carrier", ["AC", "AC", "DC", "AC", "AC"]))
    several = RecordedNetwork(RECORDED["ring"])
    several.has_scenarios = True  # type: ignore[attr-defined]
    with pytest.raises(CaseError, match=r"several scenarios"):
        from_pypsa(several)


@pytest.mark.reference
def test_series_are_what_pypsa_serves_and_what_its_plants_can_give():
    content = RECORDED["morning"]
    found = read_pypsa_series(RecordedNetwork(content))
    assert (found.name, found.start, found.step_minutes) == ("morning", "2023-07-01T06:00", 30)
    assert found.columns.keys() == {"load_mw", "solar_mw", "wind_mw"}
    for key, values in content["available"].items():
        np.testing.assert_allclose(found.columns[f"{key}_mw"], values, rtol=1e-12)
    series = series_from_arrays(found.name, found.columns, start=found.start, step_minutes=found.step_minutes)
    assert (
        series.meta.default == "load.actual_mw" and str(series.time_utc[1].astype("datetime64[ns]"))[11:16] == "06:30"
    )


@pytest.mark.parametrize(
    "snapshots", [[0, 1], ["now"], ["2023-01-01"], ["2023-01-01", "2023-01-02", "2023-01-04"], [("2030", "2023-01-01")]]
)
def test_snapshots_that_are_no_series_are_refused(snapshots):
    content = copy.deepcopy(RECORDED["ring"])
    content["snapshots"] = snapshots
    with pytest.raises(CaseError, match=r"'ring' has the snapshots .* evenly spaced in whole minutes"):
        read_pypsa_series(RecordedNetwork(content))
