"""The reference itself, against pandapower's recorded results and stage by stage off the flat start."""

from __future__ import annotations

import tomllib

import numpy as np
import pytest

from powerzoo_jax.base.npz import read_npz
from powerzoo_jax.cases.library import load_case
from powerzoo_jax.powerflow import nominal_injection
from tests.recorders.record_pandapower import DATA, injections
from tests.references.feeders import CASES
from tests.references.newton import branch_flows, build_network, jacobian_values, mismatch, solve_states

pytestmark = pytest.mark.reference


@pytest.mark.parametrize("name", CASES)
def test_the_reference_agrees_with_the_recorded_pandapower_results(name: str) -> None:
    case = load_case(name)
    folder = DATA / case.name
    expected = read_npz(folder / "expected.npz")
    atol = tomllib.loads((folder / "params.toml").read_text())["atol"]
    net = build_network(case)
    solution = solve_states(net, injections(case))
    flows = branch_flows(net, solution.v)
    on, base = case.branch.in_service, case.base_mva
    assert solution.converged.all()
    assert np.abs(np.abs(solution.v) - expected["v_pu"]).max() <= atol
    assert np.abs(np.angle(solution.v) - np.deg2rad(expected["angle_deg"])).max() <= atol
    flow = (expected["p_from_mw"] + 1j * expected["q_from_mvar"]) / base
    assert np.abs(flows.s_from[:, on] - flow).max() <= 10 * atol  # currents over 1e-7 pu lose two digits in Y V
    loss = expected["loss_mva"] @ np.array([1, 1j]) / base
    assert np.abs(flows.loss - loss).max() <= atol


def test_the_mismatch_of_a_two_bus_line_is_its_formula() -> None:
    case = load_case("33bw")
    net = build_network(case)
    rng = np.random.default_rng(3)
    v = rng.uniform(0.9, 1.0, case.n_bus) * np.exp(1j * rng.uniform(-0.1, 0.1, case.n_bus))
    leaving = np.zeros(case.n_bus, complex)
    for f, t, y in zip(net.f, net.t, net.y, strict=True):
        leaving[f] += v[f] * np.conj((v[f] - v[t]) * y)
        leaving[t] += v[t] * np.conj((v[t] - v[f]) * y)
    s = nominal_injection(case)
    rest = np.arange(case.n_bus) != net.slack
    # one term at a time sums in another order than the sparse product
    np.testing.assert_allclose(mismatch(net, v[None], s[None])[0][rest], (leaving - s)[rest], rtol=1e-12, atol=1e-12)


def test_the_jacobian_is_the_derivative_of_the_mismatch() -> None:
    case = load_case("33bw")
    net = build_network(case)
    rng = np.random.default_rng(4)
    angle, mag = rng.uniform(-0.1, 0.1, case.n_bus), rng.uniform(0.9, 1.0, case.n_bus)
    rows, cols = net.ybus.tocoo().row, net.ybus.tocoo().col
    d_theta, d_mag = jacobian_values(net, (mag * np.exp(1j * angle))[None])
    zero = np.zeros((1, case.n_bus), complex)
    h = 1e-6
    for bus in (1, 5, 17):
        unit = h * (np.arange(case.n_bus) == bus)
        for values, up, down in (
            (d_theta, mag * np.exp(1j * (angle + unit)), mag * np.exp(1j * (angle - unit))),
            (d_mag, (mag + unit) * np.exp(1j * angle), (mag - unit) * np.exp(1j * angle)),
        ):
            numeric = (mismatch(net, up[None], zero) - mismatch(net, down[None], zero))[0] / (2 * h)
            exact = np.zeros(case.n_bus, complex)
            exact[rows[cols == bus]] = values[0][cols == bus]
            exact[net.slack] = 0
            assert np.abs(numeric - exact).max() <= 1e-7 * np.abs(exact).max()  # h^2 and rounding over h
