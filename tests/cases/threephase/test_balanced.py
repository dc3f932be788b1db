"""A single-phase feeder as three equal phases: the same voltages, and what only three-phase tables hold."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.base.errors import CaseError
from powerzoo_jax.cases import Case, load_case, to_threephase
from powerzoo_jax.cases.topology import branch_positions, incidence
from powerzoo_jax.powerflow import nominal_phase_load, prepare_threephase, solve_threephase


def solved(case, taps=None):
    with jax.enable_x64(True):
        factors = prepare_threephase(case, dtype="float64")
        s = nominal_phase_load(case)
        return jax.device_get(solve_threephase(factors, jnp.asarray(s.real), jnp.asarray(s.imag), taps))


def of_phase(result, phase: int = 0) -> np.ndarray:
    return (result.v_re + 1j * result.v_im)[phase::3]


def impedance_voltages(case: Case, kvar: dict[int, float]) -> np.ndarray:
    """Voltages with every load a constant impedance and capacitors: one linear system, in per unit."""
    f, t = branch_positions(case)
    ends = incidence(case.n_bus, f, t, case.branch.in_service)
    y = ends.T @ (np.where(case.branch.in_service, 1 / (case.branch.r_pu + 1j * case.branch.x_pu), 0)[:, None] * ends)
    load = (case.p_load_mw - 1j * case.q_load_mvar) / case.base_mva
    for bus, rating in kvar.items():
        load[case.bus_index[bus]] += 1j * rating / 1e3 / case.base_mva
    y = y + np.diag(load)
    slack = int(case.slack_bus[0])
    rest = np.arange(case.n_bus) != slack
    v = np.ones(case.n_bus, complex)
    v[rest] = np.linalg.solve(y[np.ix_(rest, rest)], -y[rest, slack])
    return v


@pytest.fixture(scope="module")
def case() -> Case:
    return load_case("case33bw")


@pytest.mark.full
def test_three_equal_phases_reproduce_the_published_losses(case: Case) -> None:
    result = solved(to_threephase(case))
    assert result.p_loss * case.base_mva * 1e3 == pytest.approx(202.6771, abs=1e-4)
    for phase, turn in enumerate((1, np.exp(-2j * np.pi / 3), np.exp(2j * np.pi / 3))):
        v = of_phase(result, phase)
        assert np.abs(v).min() == pytest.approx(0.913090, abs=1e-6)
        np.testing.assert_allclose(v, of_phase(result) * turn, atol=1e-10)


@pytest.mark.full
def test_impedance_loads_and_capacitors_solve_the_linear_network(case: Case) -> None:
    kvar = {18: 600.0, 33: 300.0}
    result = solved(to_threephase(case, z_share=1.0, capacitors_kvar=kvar))
    np.testing.assert_allclose(of_phase(result), impedance_voltages(case, kvar), atol=1e-9)


@pytest.mark.long
def test_a_tap_raises_an_unloaded_feeder_by_its_ratio(case: Case) -> None:
    nothing = dataclasses.replace(case.load, p_mw=1e-9 * case.load.p_mw, q_mvar=0 * case.load.q_mvar)
    idle = dataclasses.replace(case, load=nothing)
    feeder = to_threephase(idle, regulators=(0,))
    with jax.enable_x64(True):
        result = solved(feeder, jnp.asarray([1.0, 1.05, 0.95]))
    for phase, ratio in enumerate((1.0, 1.05, 0.95)):
        v = np.abs(of_phase(result, phase))
        assert v[0] == pytest.approx(1.0, abs=1e-9)
        np.testing.assert_allclose(v[1:], ratio, atol=1e-7)


@pytest.mark.full
def test_current_loads_lie_between_power_and_impedance(case: Case) -> None:
    shares: list[dict[str, float]] = [{}, {"i_share": 1.0}, {"z_share": 1.0}]
    lowest = [np.abs(of_phase(solved(to_threephase(case, **share)))).min() for share in shares]
    assert lowest[0] < lowest[1] < lowest[2]


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("case14", {}, "PV"),
        ("case33bw", {"regulators": (40,)}, "40"),
        ("case33bw", {"capacitors_kvar": {77: 100.0}}, "77"),
    ],
)
def test_what_the_tables_cannot_hold_is_named(name: str, options: dict, words: str) -> None:
    with pytest.raises(CaseError, match=words):
        to_threephase(load_case(name), **options)
