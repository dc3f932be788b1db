"""Laws that a solved unbalanced feeder obeys, audited in ohms and amperes with equations of their own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.base.errors import CaseError, SolverError
from powerzoo_jax.cases import Case, load_case, load_feeder
from powerzoo_jax.cases.threephase.case import ThreePhaseCase, assemble
from powerzoo_jax.powerflow import Status, nominal_injection, prepare_feeder, solve_feeder
from powerzoo_jax.powerflow.threephase.factors import nominal_phase_load, prepare_threephase
from powerzoo_jax.powerflow.threephase.solve import ThreePhaseResult, solve_threephase, voltage_unbalance
from tests.references.threephase_feeders import States, solve_states
from tests.tolerances import tolerance

pytestmark = pytest.mark.property

F64 = "float64"


class Audit(NamedTuple):
    """A solved state in volts, amperes and watts; y (N + 1, N + 1), v and i (N + 1,) have the ground as last node."""

    case: ThreePhaseCase
    result: ThreePhaseResult
    y: np.ndarray
    v: np.ndarray
    i_load: np.ndarray
    power: np.ndarray  # of every load row


def line_admittance(case: ThreePhaseCase, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes (2n,) of a line and its admittance (2n, 2n) [S] between them."""
    on = case.line.from_node[k] >= 0
    pick = np.ix_(on, on)
    series = np.linalg.inv(case.line.r_ohm[k][pick] + 1j * case.line.x_ohm[k][pick])
    half = 0.5e-6j * case.line.b_us[k][pick]
    nodes = np.r_[case.line.from_node[k, on], case.line.to_node[k, on]]
    return nodes, np.block([[series + half, -series], [-series, series + half]])


def admittance(case: ThreePhaseCase) -> np.ndarray:
    """Nodal admittance (N + 1, N + 1) [S] of lines, transformers and capacitors; the last node is the ground."""
    y = np.zeros((case.n_node + 1, case.n_node + 1), complex)
    for k in np.flatnonzero(case.line.in_service):
        nodes, block = line_admittance(case, k)
        y[np.ix_(nodes, nodes)] += block
    ratio = np.ones(len(case.transformer))
    for units, tap in zip(case.regulator.unit, case.taps, strict=True):
        ratio[units[units >= 0]] = tap
    t = case.transformer
    for k in range(len(t)):
        ends = [t.from_node[k], t.from_end[k], t.to_node[k], t.to_end[k]]
        first, second = t.from_kv[k] * t.from_tap[k], t.to_kv[k] * t.to_tap[k] * ratio[k]
        turns = 1e-3 * np.array([1 / first, -1 / first, -1 / second, 1 / second])
        y[np.ix_(ends, ends)] += np.outer(turns, turns) * t.rating_kva[k] * 1e3 / (t.r_pu[k] + 1j * t.x_pu[k])
    c = case.capacitor
    for node, end, kvar, kv in zip(c.node, c.end, c.q_kvar, c.kv, strict=True):
        y[np.ix_([node, end], [node, end])] += 1j * kvar * 1e-3 / kv**2 * np.array([[1, -1], [-1, 1]])
    return y


def row_power(case: ThreePhaseCase, v: np.ndarray) -> np.ndarray:
    """Consumption [VA] of every load row, as `PhaseLoadTable` words it; v (N + 1,) with the ground last."""
    d = case.load
    u = np.abs(v[d.node] - v[d.end]) / (1e3 * d.kv)

    def share(z: np.ndarray, i: np.ndarray) -> np.ndarray:
        def law(u: np.ndarray) -> np.ndarray:
            return z * u**2 + i * u + 1 - z - i

        above = law(d.v_max_pu) * (u / d.v_max_pu) ** 2
        low, least = d.v_low_pu, law(d.v_min_pu) / d.v_min_pu  # currents where the pieces meet
        between = u * (low + (least - low) * (u - low) / (d.v_min_pu - low))
        return np.select([u > d.v_max_pu, u >= d.v_min_pu, u >= low], [above, law(u), between], u**2)

    return 1e3 * (d.p_kw * share(d.z_p, d.i_p) + 1j * d.q_kvar * share(d.z_q, d.i_q))


@pytest.fixture(scope="module", params=["case13", "case34", "case123"])
def audit(request: pytest.FixtureRequest) -> Audit:
    case = load_feeder(request.param)
    factor = np.random.default_rng(5).uniform(0.5, 1.6, len(case.load))
    case = replace(case, load=replace(case.load, p_kw=case.load.p_kw * factor, q_kvar=case.load.q_kvar * factor))
    s = nominal_phase_load(case)[None]
    result = solve_states(case, States(s.real, s.imag, case.regulator.tap[None]), F64, movable_taps=False)
    result = jax.tree.map(lambda x: x[0], result)
    assert result.status == Status.CONVERGED
    v = np.r_[(result.v_re + 1j * result.v_im) * 1e3 * case.node.base_kv, 0]
    d, power, i = case.load, row_power(case, v), np.zeros(case.n_node + 1, complex)
    for node, end, current in zip(d.node, d.end, np.conj(power / (v[d.node] - v[d.end])), strict=True):
        i[node] -= current
        i[end] += current
    return Audit(case, result, admittance(case), v, i, power)


@pytest.mark.tiers("long", full=["case13"])
def test_the_currents_of_every_node_add_up_to_nothing(audit: Audit) -> None:
    case, source = audit.case, audit.case.source
    z = source.r_ohm + 1j * source.x_ohm
    behind = source.v_pu * 1e3 * case.node.base_kv[source.node] * np.exp(1j * np.deg2rad(source.angle_deg))
    left = audit.i_load - audit.y @ audit.v
    left[source.node] += np.linalg.solve(z, behind - audit.v[source.node])
    # what rounding the voltages alone does to the product: a switch of 1e-7 ohm makes it 0.01 kVA
    noise = 4 * np.finfo(float).eps * (np.abs(audit.y) @ np.abs(audit.v))
    assert (np.abs(left) <= noise + tolerance("audit_amp", F64))[:-1].all()


@pytest.mark.tiers(full=["case123"], long=["case34"])
def test_source_power_is_load_and_losses(audit: Audit) -> None:
    case, result = audit.case, audit.result
    mva = 1e6 * case.base_mva
    shunt = sum_of_shunts(case, audit.v)
    supply = complex(result.p_source.sum(), result.q_source.sum()) * mva
    losses = complex(result.p_loss, result.q_loss) * mva
    assert abs(supply - audit.power.sum() - losses - shunt) <= tolerance("audit_va", F64)


def sum_of_shunts(case: ThreePhaseCase, v: np.ndarray) -> complex:
    """What charging and capacitors consume [VA], negative imaginary."""
    total = 0j
    for k in np.flatnonzero(case.line.in_service):
        b = 0.5e-6j * case.line.b_us[k]
        total += sum(v[n] @ np.conj(b @ v[n]) for n in (case.line.from_node[k], case.line.to_node[k]))
    c = case.capacitor
    return total - 1j * np.sum(c.q_kvar * 1e-3 * np.abs(v[c.node] - v[c.end]) ** 2 / c.kv**2)


@pytest.mark.tiers("long", quick=["case13"])
def test_line_currents_and_powers_are_those_of_the_voltages(audit: Audit) -> None:
    case, result = audit.case, audit.result
    for k in np.flatnonzero(case.line.in_service):
        nodes, block = line_admittance(case, k)
        n = nodes.size // 2
        near = audit.v[nodes[:n]]
        expected = (block @ audit.v[nodes])[:n]
        noise = 4 * np.finfo(float).eps * (np.abs(block) @ np.abs(audit.v[nodes]))[:n] + tolerance("audit_amp", F64)
        base_amp = case.base_mva * 1e3 / 3 / case.node.base_kv[nodes[:n]]
        current = (result.i_re[k] + 1j * result.i_im[k])[:n] * base_amp
        assert (np.abs(current - expected) <= noise).all()
        power = (result.p_from[k] + 1j * result.q_from[k])[:n] * 1e6 * case.base_mva
        assert (np.abs(power - near * np.conj(expected)) <= noise * np.abs(near)).all()


def as_three_phase(case: Case, delta: bool) -> ThreePhaseCase:
    """A single-phase feeder as three equal phases without coupling, its loads in wye or delta."""
    kv, ohm = float(case.bus.base_kv[0]), float(case.bus.base_kv[0]) ** 2 / case.base_mva
    phases = (1, 2, 3)
    lines = [
        {
            "name": f"l{k}",
            "from_node": [f"{case.branch.from_id[k]}.{p}" for p in phases],
            "to_node": [f"{case.branch.to_id[k]}.{p}" for p in phases],
            "r_ohm": np.eye(3) * case.branch.r_pu[k] * ohm,
            "x_ohm": np.eye(3) * case.branch.x_pu[k] * ohm,
            "b_us": np.zeros((3, 3)),
            "in_service": True,
            "switch": False,
        }
        for k in np.flatnonzero(case.branch.in_service)
    ]
    law: dict[str, Any] = {
        "z_p": 0.0,
        "i_p": 0.0,
        "z_q": 0.0,
        "i_q": 0.0,
        "v_min_pu": 0.5,
        "v_max_pu": 1.5,
        "v_low_pu": 0.4,
    }
    loads = [
        {
            "name": f"d{bus}",
            "node": f"{bus}.{p}",
            "end": f"{bus}.{p % 3 + 1}" if delta else None,
            "kv": kv if delta else kv / np.sqrt(3),
            "p_kw": 1e3 * p_mw / 3,
            "q_kvar": 1e3 * q_mvar / 3,
            **law,
        }
        for bus, p_mw, q_mvar in zip(case.load.bus_id, case.load.p_mw, case.load.q_mvar, strict=True)
        for p in phases
    ]
    nothing = {"r_ohm": np.zeros(3), "x_ohm": np.zeros(3)}
    slack = case.bus.id[case.slack_bus[0]]
    source = [
        {"node": f"{slack}.{p}", "kv": kv / np.sqrt(3), "line_kv": kv, "angle_deg": -120.0 * (p - 1), **nothing}
        for p in phases
    ]
    rows = {"source": source, "line": lines, "load": loads, "transformer": [], "regulator": [], "capacitor": []}
    return assemble("balanced", "", rows, (kv,))


@pytest.mark.tiers("full", long=["wye"])
@pytest.mark.parametrize("delta", [False, True], ids=["wye", "delta"])
def test_a_balanced_feeder_is_the_single_phase_one(delta: bool) -> None:
    single = load_case("33bw")
    case = as_three_phase(single, delta)
    s, rows = nominal_injection(single), nominal_phase_load(case)
    with jax.enable_x64(True):
        one = jax.jit(solve_feeder)(prepare_feeder(single, dtype=F64), s.real, s.imag)
        three = jax.jit(solve_threephase)(prepare_threephase(case, dtype=F64), rows.real, rows.imag)
        one, three = jax.tree.map(np.asarray, (one, three))
        unbalance = np.asarray(voltage_unbalance(three.v_re, three.v_im, case.three_phase_nodes[1]))
    order = [case.node_index[f"{bus}.1"] for bus in single.bus.id]
    for part in ("v_re", "v_im"):
        found, expected = getattr(three, part)[order], getattr(one, part)
        np.testing.assert_allclose(found, expected, rtol=0, atol=2 * tolerance("v_pu", F64))
    mva = (case.base_mva, single.base_mva)
    np.testing.assert_allclose(three.p_loss * mva[0], one.p_loss * mva[1], rtol=tolerance("loss_relative", F64))
    np.testing.assert_allclose(three.p_source.sum() * mva[0], one.p_slack * mva[1], rtol=1e-8)
    assert unbalance.max() < 1e-12


@pytest.mark.full
def test_taps_as_an_input_are_taps_of_the_case() -> None:
    case = load_feeder(123)
    moved = replace(case, regulator=replace(case.regulator, tap=np.array([2, 5, -3, 8, -10, 12, 0])))
    s = nominal_phase_load(case)[None]
    there = solve_states(moved, States(s.real, s.imag, moved.regulator.tap[None]), F64, movable_taps=False)
    by_input = solve_states(case, States(s.real, s.imag, moved.regulator.tap[None]), F64)
    np.testing.assert_allclose(by_input.v_re, there.v_re, rtol=0, atol=2 * tolerance("v_pu", F64))
    np.testing.assert_allclose(by_input.p_loss, there.p_loss, rtol=tolerance("loss_relative", F64))
    np.testing.assert_allclose(by_input.q_source, there.q_source, rtol=0, atol=1e-7)


def test_unbalance_is_negative_over_positive_sequence() -> None:
    turn = np.exp(2j * np.pi / 3)
    zero, positive, negative = 0.01j, 0.98 * np.exp(0.4j), 0.02 * np.exp(-1j)
    v = np.array([zero + positive * turn**-k + negative * turn**k for k in range(3)])
    buses = jnp.asarray([[0, 1, 2]])
    found = voltage_unbalance(jnp.asarray(v.real, jnp.float32), jnp.asarray(v.imag, jnp.float32), buses)
    np.testing.assert_allclose(found, [0.02 / 0.98], rtol=2e-6)


def test_what_cannot_be_prepared_is_refused_by_name() -> None:
    case = load_feeder(13)
    with pytest.raises(CaseError, match="Unknown node"):
        prepare_threephase(case, ders=["675.4"])
    opened = replace(case, line=replace(case.line, in_service=case.line.name != "671692"))
    with pytest.raises(SolverError, match=r"does not reach 692\.1, 692\.2"):
        prepare_threephase(opened)
    small = np.full(len(case.load), 0.01)
    heavy = replace(case, load=replace(case.load, p_kw=30 * case.load.p_kw, v_min_pu=small, v_low_pu=small))
    with pytest.raises(SolverError, match="no power-flow solution"):
        prepare_threephase(heavy)
