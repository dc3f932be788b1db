"""The base state of a meshed network: transformers that turn, buses that nothing supplies, singular starts."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from powerzoo_jax.base.errors import BaseLoadError, CaseError, SolverError
from powerzoo_jax.cases import Case, assert_valid, isolate_unsupplied, load_case, validate
from powerzoo_jax.powerflow import nominal_injection, prepare_meshed
from powerzoo_jax.powerflow.meshed import base_case as base_state
from powerzoo_jax.powerflow.meshed import factors
from tests.references.recorded_nets import converter, voltages

V_PU = 1e-9  # the recorded voltages stop at 1e-9 MVA
TURNING = (
    "create_kerber_vorstadtnetz_kabel_1",
    "create_kerber_landnetz_kabel_1",
    "example_multivoltage",
    "example_simple",
    "create_synthetic_voltage_control_lv_network",
)


def solved(case: Case) -> np.ndarray:
    return base_state.solve_base(case, nominal_injection(case), base_state.voltage_setpoints(case))


def changed(case: Case, table: str, at: int, **columns: Any) -> Case:
    part = getattr(case, table)
    new = {}
    for name, value in columns.items():
        new[name] = getattr(part, name).copy()
        new[name][at] = value
    return dataclasses.replace(case, **{table: dataclasses.replace(part, **new)})


@pytest.mark.parametrize("name", TURNING)
def test_networks_behind_transformers_that_turn_are_solved(name, monkeypatch):
    """150 degrees; from a flat start four find nothing and example_simple ends on the low-voltage branch."""
    case = converter(monkeypatch)(name)
    assert np.abs(base_state.no_load_angles(case)).max() > np.deg2rad(140)
    np.testing.assert_allclose(solved(case), voltages(name), atol=V_PU, rtol=0)


def test_no_load_angles_are_the_state_of_a_network_without_load():
    """A tree of two transformers in a row; the case file gives the slack an angle of its own."""
    case = load_case("case33bw")
    shift = np.zeros(case.n_branch)
    shift[[0, 4]] = 150.0, -30.0
    case = dataclasses.replace(
        case,
        branch=dataclasses.replace(case.branch, shift_deg=shift),
        load=dataclasses.replace(case.load, p_mw=0 * case.load.p_mw, q_mvar=0 * case.load.q_mvar),
    )
    case = changed(case, "bus", 0, angle_init_deg=10.0)
    v = solved(case)
    expected = np.r_[10.0, np.full(32, 10.0 - 150.0)]
    expected[[*range(5, 18), *range(25, 33)]] += 30.0
    np.testing.assert_allclose(v, np.exp(1j * np.deg2rad(expected)), atol=1e-9)


def test_of_two_solutions_the_one_that_a_grid_is_run_on_is_taken(monkeypatch):
    """A start that ends below half the voltage is not the last word (case2848rte: 0.02 pu from a flat start)."""
    case = load_case("case33bw")
    good, newton = solved(case), base_state._newton
    calls = []

    def first_goes_low(y: Any, s: Any, v: Any, *rows: Any) -> Any:
        calls.append(v)
        return 0.3 * good if len(calls) == 1 else newton(y, s, v, *rows)

    monkeypatch.setattr(base_state, "_newton", first_goes_low)
    np.testing.assert_allclose(solved(case), good, atol=1e-9)
    assert len(calls) == 2


def test_an_isolated_bus_takes_no_part():
    """A stub of case14, bus 8: without its branch it has a unit, gets a shunt and a load, and changes nothing."""
    case = load_case("case14")
    stub = case.bus_index[8]
    off = case.branch.in_service & (case.branch.from_id != 8) & (case.branch.to_id != 8)
    case = dataclasses.replace(case, branch=dataclasses.replace(case.branch, in_service=off))
    case = changed(case, "bus", stub, kind=4, gs_mw=3.0, bs_mvar=2.0)
    assert_valid(case)
    v = solved(case)
    assert v[stub] == 1.0
    rest = np.arange(14) != stub
    left = v * np.conj(base_state.admittance(case) @ v) - nominal_injection(case)
    p_rows, q_rows = base_state.unknown_rows(case)
    assert stub not in p_rows and stub not in q_rows and len(p_rows) == 12
    assert max(np.abs(left.real[p_rows]).max(), np.abs(left.imag[q_rows]).max()) < 1e-10
    assert np.abs(v[rest]).min() > 0.9


def test_islands_that_nothing_supplies_are_taken_out_in_one_step():
    """Buses 12 and 13 of case14 and the branch between them."""
    case = load_case("case14")
    inside = np.isin(case.branch.from_id, (12, 13)) & np.isin(case.branch.to_id, (12, 13))
    touches = np.isin(case.branch.from_id, (12, 13)) | np.isin(case.branch.to_id, (12, 13))
    on = case.branch.in_service & (inside | ~touches)
    case = dataclasses.replace(case, branch=dataclasses.replace(case.branch, in_service=on))
    with pytest.raises(CaseError, match=r"not connected[\s\S]*isolate_unsupplied"):
        assert_valid(case)
    island = isolate_unsupplied(case)
    assert_valid(island)
    assert island.bus.id[island.bus.kind == 4].tolist() == [12, 13]
    assert not island.branch.in_service[inside].any() and isolate_unsupplied(island) is island
    assert np.abs(solved(island)[[11, 12]] - 1).max() == 0.0
    assert not [p for p in validate(island) if p.severity == "error"]


def test_no_error_of_scipy_reaches_a_user():
    """Two equal reactances of opposite sign cancel: the Jacobian is exactly singular."""
    case = load_case("case14")
    rows = np.flatnonzero(case.branch.to_id == 8)
    branch = {
        f.name: np.append(getattr(case.branch, f.name), getattr(case.branch, f.name)[rows])
        for f in dataclasses.fields(case.branch)
    }
    branch["x_pu"][-1] *= -1
    singular = dataclasses.replace(case, branch=type(case.branch)(**branch))
    with pytest.raises(BaseLoadError, match="no power-flow solution"):
        prepare_meshed(singular)
    with pytest.raises(SolverError, match=r"case14: the Jacobian at the base state is singular.*load_factor"):
        base_state.factored(case, sp.csc_matrix((2, 2)))


def test_a_network_whose_inverse_would_not_fit_is_refused_before_it_is_made(monkeypatch):
    case = load_case("case14")
    monkeypatch.setattr(factors, "_core", lambda *_: pytest.fail("made"))
    monkeypatch.setattr(factors, "MOST_GB", 1e-6)
    with pytest.raises(SolverError, match=r"inverse of 14 buses has \d.*GB, the limit is 1e-06\. .*run_power_flow"):
        prepare_meshed(case, solver="adaptive")
