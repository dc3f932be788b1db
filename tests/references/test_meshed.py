"""The meshed reference itself: against pandapower's recorded results, its formulas and its derivative."""

from __future__ import annotations

import tomllib

import numpy as np
import pytest

from powerzoo_jax.base.npz import read_npz
from powerzoo_jax.cases.library import load_case
from tests.recorders.record_meshed import CASES, DATA, recorded_states
from tests.references.meshed import (
    base_state,
    branch_flows,
    build_meshed,
    jacobian_values,
    mismatch,
    solve_base_state,
    solve_states,
)

pytestmark = pytest.mark.reference


@pytest.mark.parametrize("name", CASES)
def test_the_meshed_reference_agrees_with_the_recorded_pandapower_results(name: str) -> None:
    case = load_case(name)
    folder = DATA / case.name
    expected = read_npz(folder / "expected.npz")
    atol = tomllib.loads((folder / "params.toml").read_text())["atol"]
    net = build_meshed(case)
    solution = solve_states(net, recorded_states(case), solve_base_state(case, net))
    flows = branch_flows(net, solution.v)
    assert solution.converged.all()
    assert np.abs(np.abs(solution.v) - expected["v_pu"]).max() <= atol
    assert np.abs(np.angle(solution.v) - expected["angle_rad"]).max() <= atol
    for found, recorded in ((flows.s_from, "s_from_pu"), (flows.s_to, "s_to_pu"), (flows.slack, "s_slack_pu")):
        size = np.abs(expected[recorded]).max()  # up to 285 pu in case2383wp
        assert np.abs(found - expected[recorded]).max() <= atol * max(size, 1.0)


def test_a_transformer_obeys_its_two_port_equations() -> None:
    case = load_case("1354pegase")  # taps, shifts, charging and shunts
    net = build_meshed(case)
    rng = np.random.default_rng(3)
    v = rng.uniform(0.9, 1.1, case.n_bus) * np.exp(1j * rng.uniform(-0.3, 0.3, case.n_bus))
    flows, b = branch_flows(net, v[None]), case.branch
    leaving = np.zeros(case.n_bus, complex)
    for k in range(case.n_branch):
        y = 1 / complex(b.r_pu[k], b.x_pu[k])
        inside = v[net.f[k]] / (b.tap[k] * np.exp(1j * np.deg2rad(b.shift_deg[k])))
        i = y * (inside - v[net.t[k]])
        s_from = inside * np.conj(i + 0.5j * b.b_pu[k] * inside)
        s_to = v[net.t[k]] * np.conj(0.5j * b.b_pu[k] * v[net.t[k]] - i)
        np.testing.assert_allclose([flows.s_from[0, k], flows.s_to[0, k]], [s_from, s_to], rtol=1e-10)
        leaving[net.f[k]] += s_from
        leaving[net.t[k]] += s_to
    leaving += np.abs(v) ** 2 * np.conj(case.bus.gs_mw + 1j * case.bus.bs_mvar) / case.base_mva
    # one term at a time sums in another order than the sparse product, over admittances of 1e4 pu
    np.testing.assert_allclose(flows.injection[0], leaving, rtol=1e-10, atol=1e-10)


def test_the_derivative_of_the_meshed_injections_is_what_newton_uses() -> None:
    case = load_case("14")
    net = build_meshed(case)
    rng = np.random.default_rng(4)
    angle, mag = rng.uniform(-0.3, 0.3, case.n_bus), rng.uniform(0.9, 1.1, case.n_bus)
    rows, cols = net.ybus.tocoo().row, net.ybus.tocoo().col
    d_theta, d_mag = jacobian_values(net, (mag * np.exp(1j * angle))[None])
    h = 1e-6
    for bus in (0, 2, 6, 13):
        unit = h * (np.arange(case.n_bus) == bus)
        for values, up, down in (
            (d_theta, mag * np.exp(1j * (angle + unit)), mag * np.exp(1j * (angle - unit))),
            (d_mag, (mag + unit) * np.exp(1j * angle), (mag - unit) * np.exp(1j * angle)),
        ):
            numeric = (branch_flows(net, up[None]).injection - branch_flows(net, down[None]).injection)[0] / (2 * h)
            exact = np.zeros(case.n_bus, complex)
            exact[rows[cols == bus]] = values[0][cols == bus]
            assert np.abs(numeric - exact).max() <= 1e-7 * np.abs(exact).max()  # h^2 and rounding over h


def test_only_what_is_given_counts_as_mismatch() -> None:
    case = load_case("14")
    net = build_meshed(case)
    off = mismatch(net, np.ones((1, case.n_bus), complex), base_state(case).s + 1 + 1j)[0]
    assert (np.flatnonzero(off.real == 0) == [0]).all()  # the slack bus
    assert (np.flatnonzero(off.imag == 0) == [0, 1, 2, 5, 7]).all()  # buses 1, 2, 3, 6, 8 hold their magnitude
