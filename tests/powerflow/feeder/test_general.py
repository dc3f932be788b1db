"""Feeders with charging, taps, phase shifts and shunts, against an independent Newton method and pandapower."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.base.errors import CaseError, SolverError
from powerzoo_jax.cases import Case
from powerzoo_jax.cases.library import load_case
from powerzoo_jax.powerflow import nominal_injection, prepare_feeder, simplify_feeder, solve_feeder
from powerzoo_jax.powerflow.feeder.padding import pad_feeder
from tests.references import meshed
from tests.references.recorded_nets import converter, voltages

STATES = 6
VOLTAGE = {"float32": 2e-6, "float64": 5e-9}  # [pu]
POWER = {"float32": 2e-6, "float64": 5e-9}  # [pu] of 10 MVA


def drawn(name: str, *, loops: bool = False) -> Case:
    """A shipped feeder with elements on every branch and bus; ratios would circulate in loops, so only without them."""
    case, rng = load_case(name), np.random.default_rng(7)
    size, n = case.n_branch, case.n_bus
    branch = dataclasses.replace(case.branch, b_pu=rng.uniform(0, 2e-4, size))
    if loops:
        branch = dataclasses.replace(branch, in_service=np.ones(size, bool))
    else:
        turned = {"tap": rng.uniform(0.99, 1.01, size), "shift_deg": rng.uniform(-30, 30, size)}
        branch = dataclasses.replace(branch, **turned)
    bus = dataclasses.replace(case.bus, gs_mw=rng.uniform(0, 0.005, n), bs_mvar=rng.uniform(0, 0.01, n))
    return dataclasses.replace(case, branch=branch, bus=bus)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("name", "loops"), [("33bw", False), ("33bw", True), ("69", False)])
def test_voltages_flows_and_losses_are_those_of_an_independent_newton(name, loops, dtype):
    case = drawn(name, loops=loops)
    net = meshed.build_meshed(case)
    load, rng = nominal_injection(case), np.random.default_rng(3)
    s = load * rng.uniform(0.2, 1.3, (STATES, case.n_bus))
    v_set = np.broadcast_to(meshed.base_state(case).v_set, s.shape)
    rest, y = np.arange(case.n_bus) != net.slack, net.ybus.toarray()
    unloaded = np.full(case.n_bus, v_set[0, net.slack], complex)  # a flat start lies far off behind so many shifts
    unloaded[rest] = np.linalg.solve(y[np.ix_(rest, rest)], -y[rest, net.slack] * unloaded[net.slack])
    known = meshed.solve_states(net, meshed.MeshedStates(s, v_set), unloaded)
    flows = meshed.branch_flows(net, known.v)
    with jax.enable_x64(dtype == "float64"):
        factors = prepare_feeder(case, dtype=dtype)
        p, q = jnp.asarray(s.real, dtype), jnp.asarray(s.imag, dtype)
        out = jax.jit(jax.vmap(solve_feeder, in_axes=(None, 0, 0)))(factors, p, q)
    out = jax.tree.map(np.asarray, out)
    assert known.converged.all() and not np.any(out.status)
    np.testing.assert_allclose(out.v_re + 1j * out.v_im, known.v, rtol=0, atol=VOLTAGE[dtype])
    for found, right in (
        (out.p_from + 1j * out.q_from, flows.s_from),
        (out.p_slack + 1j * out.q_slack, flows.slack),
        (out.p_loss + 1j * out.q_loss, flows.loss),
    ):
        np.testing.assert_allclose(found, right, rtol=0, atol=POWER[dtype])


@pytest.mark.parametrize("name", ["create_cigre_network_mv", "create_kerber_landnetz_kabel_1"])
def test_pandapowers_networks_are_feeders_as_they_are(name, monkeypatch):
    """Cables with charging and transformers with ratios and iron losses; voltages as pandapower found them."""
    case = converter(monkeypatch)(name)
    s = nominal_injection(case)
    with jax.enable_x64(True):
        out = solve_feeder(prepare_feeder(case, dtype="float64"), jnp.asarray(s.real), jnp.asarray(s.imag))
    known = voltages(name)
    known = known * np.exp(-1j * np.angle(known[case.slack_bus[0]]))
    np.testing.assert_allclose(np.asarray(out.v_re) + 1j * np.asarray(out.v_im), known, rtol=0, atol=1e-8)


def test_derivatives_of_the_slacks_power_are_finite_differences():
    case = drawn("33bw")
    s = nominal_injection(case)
    with jax.enable_x64(True):
        factors = prepare_feeder(case, dtype="float64")
        q = jnp.asarray(s.imag)

        def exchange(p):
            out = solve_feeder(factors, p, q)
            return out.p_slack + out.p_loss + out.q_from[3]

        p, move, h = jnp.asarray(s.real), jnp.asarray(np.random.default_rng(1).normal(size=len(s)) * (s != 0)), 1e-5
        slope = float(jax.grad(exchange)(p) @ move)
        central = float((exchange(p + h * move) - exchange(p - h * move)) / (2 * h))
    assert slope == pytest.approx(central, rel=1e-5)


def test_a_padded_feeder_keeps_its_numbers():
    case = drawn("33bw")
    factors = prepare_feeder(case)
    wide = pad_feeder(factors, case.n_bus + 5, case.n_branch + 4, factors.n_active + 5)
    s = nominal_injection(case)
    p, q = (jnp.asarray(part, jnp.float32) for part in (s.real, s.imag))
    own, padded = solve_feeder(factors, p, q), solve_feeder(wide, jnp.pad(p, (0, 5)), jnp.pad(q, (0, 5)))
    for name in ("p_loss", "q_loss", "p_slack", "q_slack"):
        assert float(getattr(padded, name)) == pytest.approx(float(getattr(own, name)), abs=1e-6), name
    np.testing.assert_allclose(padded.q_from[: case.n_branch], own.q_from, atol=1e-6)
    assert not np.any(padded.q_from[case.n_branch :])


def two_supplies() -> Case:
    """case33bw with a second reference at bus 18, which another transformer supplies, and a held voltage at bus 25."""
    case = load_case("33bw")
    kind = case.bus.kind.copy()
    kind[[17, 24]] = 3, 2
    columns = {f.name: getattr(case.unit, f.name) for f in dataclasses.fields(case.unit)}
    units = {name: np.repeat(column[:1], 3, axis=0) for name, column in columns.items()}
    units |= {"bus_id": [1, 18, 25], "p_mw": [0.0, 0.0, 0.4], "q_mvar": [0.0, 0.0, 0.0], "v_set_pu": [1.0, 0.99, 0.985]}
    bus = dataclasses.replace(case.bus, kind=kind)
    return dataclasses.replace(case, bus=bus, unit=type(case.unit)(**units))


def test_a_network_with_held_voltages_becomes_a_feeder_with_the_same_flow():
    case = two_supplies()
    with pytest.raises(SolverError, match=r"reference buses 1, 18.*simplify_feeder"):
        prepare_feeder(case)
    with pytest.raises(CaseError, match=r"1, 18.*Give reference="):
        simplify_feeder(case)
    with pytest.raises(CaseError, match=r"reference = 7 is no reference bus"):
        simplify_feeder(case, reference=7)
    feeder = simplify_feeder(case, reference=1)
    s = nominal_injection(feeder)
    with jax.enable_x64(True):
        out = solve_feeder(prepare_feeder(feeder, dtype="float64"), jnp.asarray(s.real), jnp.asarray(s.imag))
    size = np.hypot(out.v_re, out.v_im)
    assert size[[17, 24]] == pytest.approx([0.99, 0.985], abs=1e-8)
    assert float(out.v_im[17]) == pytest.approx(0.0, abs=1e-8)  # the angle that the second reference held
    moved = float(feeder.notes[-1].rsplit(" ", 2)[1])
    assert "bus 18, 25 delivers the power" in feeder.notes[-1] and 1e-3 < moved < 0.1


def test_what_another_reference_supplies_is_left_out():
    case = two_supplies()
    cut = dataclasses.replace(case.branch, in_service=case.branch.in_service & (case.branch.to_id != 13))
    feeder = simplify_feeder(dataclasses.replace(case, branch=cut), reference=1)
    assert feeder.n_bus == 27 and not np.isin(range(13, 19), feeder.bus.id).any()
    assert feeder.notes[0] == "6 buses that the reference does not supply are left out"
    assert simplify_feeder(load_case("33bw")) is load_case("33bw")
