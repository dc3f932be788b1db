"""Power flow of split substations: golden values, SciPy's Newton on random assignments, laws, statuses, derivatives."""

from __future__ import annotations

import functools
from dataclasses import fields, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.base.errors import CaseError, SettingsError, SolverError
from powerzoo_jax.cases.library import load_case
from powerzoo_jax.powerflow.busbars.network import TopologyNetwork, node_injection, place, prepare_topology
from powerzoo_jax.powerflow.busbars.solve import TopologyResult, solve_topology
from powerzoo_jax.powerflow.native.library import find_library
from powerzoo_jax.powerflow.result import Status
from tests.references import busbars as reference
from tests.references.test_busbars import GOLDEN, SPLIT_4

FORMS = ("native", "fixed") if find_library() else ("fixed",)
# of flows against Newton's, in pu and of the flow (the demand on the solver), and of voltages
FLOWS, VOLTAGES = {"float32": 1e-5, "float64": 1e-7}, {"float32": 1e-6, "float64": 1e-7}
BOTH = ("float32", "float64")


@functools.cache
def substations(name: str) -> reference.Substations:
    return reference.build_substations(load_case(name))


@functools.cache
def prepared(name: str, dtype: str, form: str = FORMS[0]) -> TopologyNetwork:
    with jax.enable_x64(dtype == "float64"):
        return prepare_topology(load_case(name), dtype=dtype, solver=form)


def solved(
    name: str,
    topology: np.ndarray,
    s: np.ndarray | None = None,
    dtype: str = "float64",
    form: str = FORMS[0],
    **how: str,
) -> TopologyResult:
    """Assignments (B, E) of a case with injections by element (B, E) complex [pu]."""
    sub, network = substations(name), prepared(name, dtype, form)
    s = np.tile(sub.s, (len(topology), 1)) if s is None else s

    def solve(network: TopologyNetwork, p: jax.Array, q: jax.Array, busbar: jax.Array) -> TopologyResult:
        at = node_injection(network, busbar, p, q)
        return solve_topology(network, *at, busbar, solver=form, **how)

    with jax.enable_x64(dtype == "float64"):
        given = (jnp.asarray(s.real, dtype), jnp.asarray(s.imag, dtype), jnp.asarray(topology, jnp.int8))
        return jax.tree.map(np.asarray, jax.jit(jax.vmap(solve, in_axes=(None, 0, 0, 0)))(network, *given))


def voltage(found: TopologyResult) -> np.ndarray:
    return np.asarray(found.v_re, float) + 1j * np.asarray(found.v_im, float)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("name", "splits", "opened", "power", "magnitude"), GOLDEN)
def test_golden_values(name: str, splits: dict, opened: tuple, power: dict, magnitude: dict, form: str) -> None:
    sub = substations(name)
    found = solved(name, reference.moved(sub, splits, opened)[None], form=form)
    assert found.status[0] == Status.CONVERGED
    shown = {"loss": found.p_loss[0], "slack": found.p_slack[0], "first": found.p_from[0, 0]}
    for key, value in power.items():
        assert shown[key] * sub.case.base_mva == pytest.approx(value, abs=5.1e-5)
    for bus, (second, first) in magnitude.items():
        at = int(np.flatnonzero(sub.case.bus.id == bus)[0])
        v = np.abs(voltage(found)[0])
        assert v[at + sub.case.n_bus] == pytest.approx(second, abs=5.1e-7)
        assert first is None or v[at] == pytest.approx(first, abs=5.1e-7)


@pytest.mark.parametrize("form", FORMS)
def test_two_splits_of_case14_have_no_solution(form: str) -> None:
    topology = reference.moved(substations("14"), SPLIT_4 | {6: ((12, 13), True)})
    found = solved("14", topology[None], form=form)
    assert found.status[0] in (Status.OUT_OF_STEPS, Status.SINGULAR)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(found))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", BOTH)
def test_conductance_of_branches_against_scipy(dtype: str, form: str) -> None:
    case = load_case("14")
    iron = np.linspace(0, 0.02, case.n_branch)
    sub = replace(substations("14"), conductance=iron)
    topology = reference.moved(sub, SPLIT_4, (17,))
    with jax.enable_x64(dtype == "float64"):
        network = prepare_topology(case, dtype=dtype, conductance_pu=iron, solver=form)
        s, busbar = (jnp.asarray(x) for x in (sub.s, topology))
        at = node_injection(network, busbar, s.real.astype(dtype), s.imag.astype(dtype))
        found = jax.jit(solve_topology, static_argnames="solver")(network, *at, busbar, solver=form)
        lost = float(jnp.sum(found.p_from + found.p_to))  # what enters the branches
    expected = reference.solve_split(sub, topology)
    np.testing.assert_allclose(voltage(found), expected.v, atol=VOLTAGES[dtype])
    np.testing.assert_allclose(found.p_from, expected.flows.s_from.real, atol=FLOWS[dtype])
    np.testing.assert_allclose(found.p_to, expected.flows.s_to.real, atol=FLOWS[dtype])
    assert float(found.p_loss) == pytest.approx(lost, abs=20 * FLOWS[dtype])


def test_conductance_needs_a_number_a_branch() -> None:
    with pytest.raises(CaseError, match="one number a branch"):
        prepare_topology(load_case("14"), conductance_pu=[0.0])


def left_over(sub: reference.Substations, topology: np.ndarray, s: np.ndarray, v: np.ndarray) -> float:
    """Largest mismatch [pu] of a solution, with the doubled admittance matrix of the reference."""
    net = reference.build_split(sub, topology).net
    left = reference.node_sums(sub, topology, s) - v * np.conj(net.ybus @ v)
    return max(np.abs(left.real[net.angle]).max(), np.abs(left.imag[net.mag]).max())


@pytest.mark.full
@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize(("name", "least"), [("14", 2), ("14", 1), ("118", 2), ("118", 1)])
def test_random_assignments_as_newton_on_the_doubled_network(name: str, least: int, dtype: str) -> None:
    """200 assignments with up to three splits and three open branches; `least` 1: line ends alone on a busbar too."""
    sub = substations(name)
    drawn = reference.draw_topologies(sub, 200, splits=3, opened=3, least=least)
    found = solved(name, *drawn, dtype=dtype)
    v, s_from = voltage(found), found.p_from + 1j * found.q_from
    differing = []
    for k, (topology, s) in enumerate(zip(*drawn, strict=True)):
        expected = reference.solve_split(sub, topology, s)
        if expected.converged != (found.status[k] == Status.CONVERGED):
            # what continuation from the unloaded grid says is right; the solver missed nothing that there is
            differing.append(k)
            assert reference.continue_split(sub, topology, s) is None
        elif expected.converged:
            assert np.abs(v[k] - expected.v).max() < VOLTAGES[dtype]
            flow = expected.flows.s_from
            assert np.all(np.abs(s_from[k] - flow) < FLOWS[dtype] * (1 + np.abs(flow)))
            assert dtype == "float32" or left_over(sub, topology, s, v[k]) < 1.01e-8
            assert found.p_loss[k] == pytest.approx(expected.flows.loss.real, abs=FLOWS[dtype], rel=FLOWS[dtype])
            assert found.in_use[k].tolist() == (expected.v != 0).tolist()
    assert len(differing) <= 1


@pytest.mark.parametrize("dtype", BOTH)
def test_a_line_end_alone_on_a_busbar_and_one_with_a_load(dtype: str) -> None:
    sub = substations("14")
    topologies = np.stack([reference.moved(sub, {5: ((2,), False)}), reference.moved(sub, {5: ((2,), True)})])
    found = solved("14", topologies, dtype=dtype)
    for k, topology in enumerate(topologies):
        expected = reference.solve_split(sub, topology)
        assert expected.converged
        assert np.abs(voltage(found)[k] - expected.v).max() < VOLTAGES[dtype]


@pytest.mark.parametrize("dtype", BOTH)
def test_a_mirror_image_is_the_same_grid(dtype: str) -> None:
    sub = substations("118")
    drawn = reference.draw_topologies(sub, 24, splits=3, opened=3, seed=3)
    images = np.stack([reference.mirror_image(sub, topology) for topology in drawn.topology])
    found, mirrored = solved("118", *drawn, dtype=dtype), solved("118", images, drawn.s, dtype=dtype)
    fine = found.status == Status.CONVERGED
    assert fine.sum() >= 20
    assert np.array_equal(found.status, mirrored.status)
    swapped = np.roll(voltage(mirrored), sub.case.n_bus, axis=1)
    assert np.abs(swapped - voltage(found))[fine].max() < (1e-6 if dtype == "float32" else 1e-8)
    assert np.abs(found.q_to - mirrored.q_to)[fine].max() < (1e-5 if dtype == "float32" else 1e-7)


@pytest.mark.full
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", BOTH)
def test_the_order_of_the_buses_means_nothing(dtype: str, form: str) -> None:
    sub = substations("14")
    order = np.random.default_rng(2).permutation(sub.case.n_bus)
    bus = type(sub.case.bus)(**{x.name: getattr(sub.case.bus, x.name)[order] for x in fields(sub.case.bus)})
    drawn = reference.draw_topologies(sub, 16, splits=3, seed=9)
    found = solved("14", *drawn, dtype=dtype, form=form)
    with jax.enable_x64(dtype == "float64"):
        network = prepare_topology(replace(sub.case, bus=bus), dtype=dtype, solver=form)

        def solve(p: jax.Array, q: jax.Array, busbar: jax.Array) -> TopologyResult:
            return solve_topology(network, *node_injection(network, busbar, p, q), busbar, solver=form)

        given = (jnp.asarray(drawn.s.real, dtype), jnp.asarray(drawn.s.imag, dtype), jnp.asarray(drawn.topology))
        other = jax.jit(jax.vmap(solve))(*given)
    fine = found.status == Status.CONVERGED
    assert np.array_equal(found.status, other.status)
    v = voltage(found)[:, np.r_[order, order + sub.case.n_bus]]
    assert np.abs(v - voltage(other))[fine].max() < VOLTAGES[dtype]
    assert np.abs(found.q_from - np.asarray(other.q_from))[fine].max() < FLOWS[dtype]


@pytest.mark.parametrize("form", FORMS)
def test_a_start_from_dc_angles_reaches_the_same_state(form: str) -> None:
    sub = substations("118")
    drawn = reference.draw_topologies(sub, 24, seed=5)
    base, dc = (solved("118", *drawn, form=form, start=start) for start in ("base", "dc"))
    both = (base.status == Status.CONVERGED) & (dc.status == Status.CONVERGED)
    assert both.sum() >= 23
    assert np.abs(voltage(base) - voltage(dc))[both].max() < 1e-7


def outages() -> dict[str, np.ndarray]:
    sub = substations("14")
    base = reference.base_topology(sub)
    reached = reference.moved(sub, {}, (1, 2))  # both branches of the reference bus
    no_unit = base.copy()
    no_unit[sub.units.start] = 0
    island = base.copy()
    island[sub.loads.start] = 2  # a load alone on a busbar
    shunt = base.copy()
    shunt[sub.shunts] = 2
    return {
        "no way to the reference": reached,
        "no unit at it": no_unit,
        "a load alone": island,
        "a shunt alone": shunt,
    }


@pytest.mark.parametrize("form", FORMS)
def test_what_is_cut_off_is_told_before_a_solve(form: str) -> None:
    cut = outages()
    found = solved("14", np.stack(list(cut.values())), form=form)
    assert dict(zip(cut, found.status.tolist(), strict=True)) == dict.fromkeys(cut, Status.ISLANDED)
    assert found.iterations.tolist() == [0] * len(cut)
    network = prepared("14", "float64", form)
    with jax.enable_x64(True):
        assert not any(bool(place(network, jnp.asarray(topology)).connected) for topology in cut.values())


@pytest.mark.parametrize("form", FORMS)
def test_bad_numbers_count_where_they_are_read(form: str) -> None:
    sub, network = substations("14"), prepared("14", "float64", form)
    n = sub.case.n_bus
    with jax.enable_x64(True):
        s = reference.node_sums(sub, reference.base_topology(sub), sub.s)
        p, q = np.tile(s.real, (5, 1)), np.tile(s.imag, (5, 1))
        busbars = np.tile(np.asarray(network.base), (5, 1))
        p[0, 3], q[1, 0], q[2, n + 4] = np.nan, np.inf, np.nan  # at a load; at the reference; where nothing stands
        busbars[3, sub.loads.start] = 7
        run = jax.jit(jax.vmap(lambda *given: solve_topology(network, *given, solver=form)))
        found = run(jnp.asarray(p), jnp.asarray(q), jnp.asarray(busbars, jnp.int8))
    assert found.status.tolist() == [Status.BAD_INPUT, 0, 0, Status.BAD_INPUT, 0]
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(found))


def test_neighbours_leave_the_bits_of_a_lane_alone() -> None:
    drawn = reference.draw_topologies(substations("14"), 40, seed=11)
    whole = solved("14", *drawn)
    for pick in (slice(0, 1), slice(5, 22), slice(39, None, -1)):
        part = solved("14", drawn.topology[pick], drawn.s[pick])
        for name in ("v_re", "v_im", "p_to", "i_im", "residual", "iterations", "status"):
            assert getattr(part, name).tobytes() == np.ascontiguousarray(getattr(whole, name)[pick]).tobytes()


@pytest.mark.full
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("splits", [SPLIT_4, {5: ((2, 10), True)}])
def test_derivatives_as_differences(splits: dict, form: str) -> None:
    sub, network = substations("14"), prepared("14", "float64", form)
    with jax.enable_x64(True):
        topology = jnp.asarray(reference.moved(sub, splits))
        weights = iter(np.random.default_rng(0).normal(size=(8, 2 * sub.case.n_bus)))

        def value(p: jax.Array, q: jax.Array, v_set: jax.Array) -> jax.Array:
            found = solve_topology(network, *node_injection(network, topology, p, q), topology, v_set, solver=form)
            parts = (found.v_re, found.v_im, found.q_node, found.p_from, found.q_to, found.i_re)
            return (
                found.p_loss
                + found.p_slack
                + sum(x @ jnp.asarray(w[: len(x)]) for x, w in zip(parts, rows, strict=True))
            )

        rows = [next(weights) for _ in range(6)]
        point = (jnp.asarray(sub.s.real), jnp.asarray(sub.s.imag), network.v_set)
        rng = np.random.default_rng(1)
        along = tuple(jnp.asarray(rng.normal(size=x.shape) * (np.asarray(x) != 0)) for x in point)
        step = 1e-2  # the state stops at a mismatch of 1e-8

        def at(part: float) -> float:
            return float(value(*(x + part * step * d for x, d in zip(point, along, strict=True))))

        expected = (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * step)
        forward = jax.jvp(value, point, along)[1]
        backward = sum(jnp.vdot(g, d) for g, d in zip(jax.grad(value, (0, 1, 2))(*point), along, strict=True))
    assert float(forward) == pytest.approx(expected, rel=1e-6)
    assert float(backward) == pytest.approx(float(forward), rel=1e-10)


@pytest.mark.full
def test_an_exported_program_holds_the_jax_form() -> None:
    network, sub = prepare_topology(load_case("14")), substations("14")
    s = reference.node_sums(sub, reference.base_topology(sub), sub.s)
    given = (jnp.asarray(s.real, jnp.float32), jnp.asarray(s.imag, jnp.float32))
    run = jax.jit(lambda p, q, busbar: solve_topology(network, p, q, busbar))
    stored = jax.export.export(run)(*given, network.base)
    assert "powerzoo_jax_native" not in stored.mlir_module()
    loss = (float(solve(*given, network.base).p_loss) for solve in (stored.call, run))
    assert next(loss) == pytest.approx(next(loss), rel=1e-5)


@pytest.mark.full
@pytest.mark.parametrize("form", FORMS)
def test_what_has_no_solution_has_derivative_zero(form: str) -> None:
    network = prepared("14", "float64", form)
    with jax.enable_x64(True):
        topology = jnp.asarray(outages()["a load alone"])
        p = jnp.zeros(28)
        slope = jax.grad(lambda p: jnp.sum(solve_topology(network, p, p, topology, solver=form).v_re))(p)
    assert np.array_equal(slope, np.zeros(28))


@pytest.mark.full
def test_magnitudes_and_angles_are_those_of_the_voltages_and_have_derivatives() -> None:
    sub, network = substations("14"), prepared("14", "float64")
    topology = reference.moved(sub, SPLIT_4)
    found = solved("14", topology[None])
    v = reference.solve_split(sub, topology).v
    with jax.enable_x64(True):
        assert np.abs(np.asarray(found.v_pu[0]) - np.abs(v)).max() < 1e-7
        assert np.abs(np.asarray(found.angle_rad[0]) - np.angle(v)).max() < 1e-7
        s = jnp.asarray(reference.node_sums(sub, topology, sub.s))

        def total(p: jax.Array) -> jax.Array:
            found = solve_topology(network, p, s.imag, jnp.asarray(topology))
            return jnp.sum(found.v_pu) + jnp.sum(found.angle_rad)

        slope = jax.grad(total)(s.real)
    assert np.isfinite(slope).all()
    assert np.any(slope != 0)


def test_plants_and_storages_hold_a_busbar_but_no_voltage() -> None:
    case = load_case("14")
    network = prepare_topology(case, plants=[3, 13], storages=[9], solver=FORMS[0])
    assert network.counts == (20, 5, 2, 11, 1, 1)
    topology = np.asarray(network.base).copy()
    plant = 2 * 20 + 5
    placed = place(network, jnp.asarray(topology))
    assert bool(placed.connected)
    topology[plant] = 2  # alone
    placed = place(network, jnp.asarray(topology))
    assert not bool(placed.connected)
    assert bool(placed.in_use[case.n_bus + 2])
    assert not bool(placed.holds[case.n_bus + 2])


def test_refusals() -> None:
    network = prepared("14", "float32")
    zero = jnp.zeros(28, jnp.float32)
    with pytest.raises(CaseError, match="plants name the unknown buses 99"):
        prepare_topology(load_case("14"), plants=[99])
    with pytest.raises(ValueError, match="'flat'"):
        solve_topology(network, zero, zero, network.base, start="flat")
    with pytest.raises(SettingsError, match="topology"):
        solve_topology(network, zero, zero, network.base[:-1])
    with pytest.raises(SettingsError, match=r"topology.* at most 2"):
        solve_topology(network, zero, zero, network.base.at[4].set(3))
    with pytest.raises(SolverError, match="not what this network was prepared for"):
        solve_topology(prepare_topology(load_case("14"), solver="fixed"), zero, zero, network.base, solver="native")
