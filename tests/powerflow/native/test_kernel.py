"""Compiled kernel of meshed power flow: the same bits whatever stands beside a lane, bad lanes, wrong operands, choice.

Accuracy is that of the suites in tests/powerflow/meshed, which run with the kernel where it is installed.
"""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from powerzoo_jax.base.errors import SettingsError, SolverError
from powerzoo_jax.cases import load_case
from powerzoo_jax.powerflow import (
    MeshedFactors,
    MeshedResult,
    Status,
    nominal_injection,
    prepare_meshed,
    solve_meshed,
    stack_meshed,
    with_branches,
)
from powerzoo_jax.powerflow.dc.outages import bridges
from powerzoo_jax.powerflow.meshed.base_case import admittance, unknown_rows
from powerzoo_jax.powerflow.native.library import SWITCH, describe, find_library
from powerzoo_jax.powerflow.native.solve import solve_native
from tests.references.meshed import MeshedStates, base_state, build_meshed, solve_base_state, solve_states
from tests.tolerances import tolerance

CASE = "case14"


def prepared(dtype: str = "float32", **how: object) -> MeshedFactors:
    with jax.enable_x64(dtype == "float64"):
        return prepare_meshed(load_case(CASE), dtype=dtype, **how)


def lanes(count: int, dtype: str = "float32", seed: int = 0) -> tuple[jax.Array, jax.Array]:
    s = np.asarray(nominal_injection(load_case(CASE)))
    share = np.random.default_rng(seed).uniform(0.5, 1.3, (count, len(s)))
    with jax.enable_x64(dtype == "float64"):
        return jnp.asarray(s.real * share, dtype), jnp.asarray(s.imag * share, dtype)


def solved(factors: MeshedFactors, p: jax.Array, q: jax.Array) -> MeshedResult:
    return jax.jit(jax.vmap(solve_meshed, in_axes=(None, 0, 0)))(factors, p, q)


def bits(found: MeshedResult, pick: object = ...) -> list[bytes]:
    return [np.asarray(x)[pick].tobytes() for x in jax.tree.leaves(found)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_lane_has_the_same_bits_alone_among_others_and_in_another_order(dtype: str) -> None:
    factors, (p, q) = prepared(dtype), lanes(37, dtype)
    with jax.enable_x64(dtype == "float64"):
        p = p.at[5].set(jnp.nan).at[9].multiply(100)  # one that is refused, one beyond collapse
        whole, order = solved(factors, p, q), np.random.default_rng(1).permutation(37)
        assert (np.asarray(whole.status)[[5, 9]] != Status.CONVERGED).all()
        assert np.sum(np.asarray(whole.status) == Status.CONVERGED) == 35
        assert bits(whole, order) == bits(solved(factors, p[order], q[order]))
        for lane in (0, 5, 9, 36):
            alone = jax.jit(solve_meshed)(factors, p[lane], q[lane])
            assert bits(alone) == bits(whole, lane)
        nested = jax.vmap(jax.vmap(solve_meshed, in_axes=(None, 0, 0)), in_axes=(None, 0, 0))
        grid = jax.jit(nested)(factors, p[:36].reshape(4, 9, -1), q[:36].reshape(4, 9, -1))
        assert bits(grid) == bits(whole, slice(36))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_power_balance_holds_at_every_bus_of_every_lane_that_is_solved(dtype: str) -> None:
    """KCL in NumPy from the voltages; in float32 to the rounding of voltages, 6e-8 times the admittances of a bus."""
    case = load_case("pz_case118")
    s = np.asarray(nominal_injection(case)) * np.random.default_rng(0).uniform(0.6, 1.4, (100, case.n_bus))
    with jax.enable_x64(dtype == "float64"):
        found = solved(prepare_meshed(case, dtype=dtype), jnp.asarray(s.real, dtype), jnp.asarray(s.imag, dtype))
    y, (p_rows, q_rows) = admittance(case), unknown_rows(case)
    v = np.asarray(found.v_re, float) + 1j * np.asarray(found.v_im, float)
    left = s - v * np.conj((y @ v.T).T)
    allowed = 1e-8 if dtype == "float64" else 4 * np.finfo(np.float32).eps * abs(y).sum(1).max()
    assert (np.asarray(found.status) == Status.CONVERGED).all()
    assert max(np.abs(left.real[:, p_rows]).max(), np.abs(left.imag[:, q_rows]).max()) <= allowed
    f = {field.name: np.asarray(getattr(found, field.name), float) for field in dataclasses.fields(found)}
    fed = (s.real + f["p_added"]).sum(1), f["q_bus"].sum(1)
    taken = f["p_loss"] + f["p_shunt"], f["q_loss"] + f["q_shunt"]
    assert np.abs(np.subtract(fed, taken)).max() <= (1e-8 if dtype == "float64" else 2e-5)
    assert np.abs(f["p_from"].sum(1) + f["p_to"].sum(1) - f["p_loss"]).max() <= (1e-10 if dtype == "float64" else 2e-5)


@pytest.mark.parametrize("name", [CASE, pytest.param("case118", marks=pytest.mark.full)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_open_lines_and_freed_buses_differ_by_lane(name: str, dtype: str) -> None:
    """Against the reference's Newton method of SciPy, on the case with these lines open and these buses PQ."""
    case, rng = load_case(name), np.random.default_rng(4)
    intact, nominal, branch, bus = build_meshed(case), base_state(case), case.branch, case.bus
    start, load = solve_base_state(case, intact), (case.p_load_mw + 1j * case.q_load_mvar) / case.base_mva
    cut = bridges(case.n_bus, intact.f, intact.t, branch.in_service)
    pv = np.flatnonzero(intact.angle & ~intact.mag)
    s, on, holds = [], [], []
    expected = []
    for count in (0, 1, 2, 2, 1, 0, 2):
        opened = rng.choice(np.flatnonzero(branch.in_service & ~cut), count, replace=False)
        in_service = branch.in_service & ~np.isin(np.arange(case.n_branch), opened)
        freed = rng.choice(pv, count % 2, replace=False)
        changed = dataclasses.replace(
            case,
            branch=dataclasses.replace(branch, in_service=in_service),
            bus=dataclasses.replace(bus, kind=np.where(np.isin(np.arange(case.n_bus), freed), 1, bus.kind)),
        )
        given = nominal.s - load * rng.uniform(-0.2, 0.2, (1, case.n_bus))
        found = solve_states(build_meshed(changed), MeshedStates(given, nominal.v_set), start)
        expected.append((bool(found.converged[0]), found.v[0]))
        s.append(given[0]), on.append(in_service), holds.append(~intact.mag & ~np.isin(np.arange(case.n_bus), freed))
    with jax.enable_x64(dtype == "float64"):
        factors = prepare_meshed(case, dtype=dtype, solver="native")
        assert factors.native is not None
        p, q = (jnp.asarray(x, dtype) for x in (np.real(s), np.imag(s)))
        lines = jnp.asarray(np.array(on), dtype)
        found = solve_native(factors.native, (p, q), in_service=lines, holds=jnp.asarray(np.array(holds)))
        wide = [np.asarray(x, float) for x in (found.e_re, found.e_im)]
    base = np.asarray(factors.v_base, float) @ np.array([1, 1j])
    got = base * (1 + wide[0] + 1j * wide[1])
    for lane, (solvable, v) in enumerate(expected):
        assert (found.status[lane] == Status.CONVERGED) == solvable
        assert not solvable or np.abs(got[lane] - v).max() <= tolerance("v_pu", dtype)
    assert sum(solvable for solvable, _ in expected) >= 5


@pytest.mark.parametrize(
    "count", [pytest.param(20_000, marks=pytest.mark.full), pytest.param(1_000_000, marks=pytest.mark.long)]
)
def test_abused_lanes_return_finite_numbers_and_a_status(count: int) -> None:
    factors, rng = prepared(), np.random.default_rng(2)
    p, q = (np.array(x) for x in lanes(count))
    for x in (p, q):
        at = rng.integers(0, x.shape[1], len(x))
        x[np.arange(len(x)), at] = rng.choice([np.nan, np.inf, -np.inf, 1e38, -1e38, 1e6, -50, 0, 3], len(x))
    v_set = jnp.asarray(rng.choice([0.0, 1e-30, 0.5, 1.0, 1.05, 1e30], (len(p), 1)) * np.ones(p.shape), jnp.float32)
    solve = jax.jit(jax.vmap(lambda p, q, v: solve_meshed(factors, p, q, v)))
    found = solve(jnp.asarray(p), jnp.asarray(q), v_set)
    status = np.asarray(found.status)
    assert {Status.CONVERGED, Status.BAD_INPUT} < set(np.unique(status))
    assert np.isfinite(found.v_re).all() and np.isfinite(found.v_im).all() and np.isfinite(found.residual).all()
    # a flow at 1e30 pu is beyond float32, but none is NaN
    assert not any(np.isnan(x).any() for x in jax.tree.leaves(found))
    bad = ~(np.isfinite(p[:, 1:]).all(1))  # bus 1 is the slack, where p is ignored
    assert (status[bad] == Status.BAD_INPUT).all()


def test_gradients_equal_finite_differences() -> None:
    with jax.enable_x64(True):
        factors, (p, q) = prepared("float64"), lanes(1, "float64")

        def loss(p: jax.Array) -> jax.Array:
            found = solve_meshed(factors, p, q[0])
            return found.p_loss + jnp.sum(found.v_pu**2) + found.q_to[3]

        slope, step = jax.grad(loss)(p[0]), 1e-5
        for bus in (3, 8, 13):
            move = jnp.zeros_like(p[0]).at[bus].set(step)
            between = float(loss(p[0] + move) - loss(p[0] - move)) / (2 * step)
            assert float(slope[bus]) == pytest.approx(between, rel=1e-5)
        forward = jax.jvp(loss, (p[0],), (p[0],))[1]
        assert float(forward) == pytest.approx(float(slope @ p[0]), rel=1e-10)


def test_a_place_out_of_range_is_an_error_of_the_call() -> None:
    factors, (p, q) = prepared(solver="native"), lanes(3)
    assert factors.native is not None
    for k, wrong in ((3, 99), (5, 14), (7, 0), (8, -1), (0, 14)):
        tables = list(factors.native.tables)
        tables[k] = tables[k].at[(0,) * tables[k].ndim].set(wrong)
        broken = dataclasses.replace(factors, native=dataclasses.replace(factors.native, tables=tuple(tables)))
        with pytest.raises(jax.errors.JaxRuntimeError, match=r"powerzoo_jax_native: .* out of range"):
            jax.block_until_ready(solved(broken, p, q))


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_a_program_for_another_platform_holds_no_call_of_the_kernel(platform: str) -> None:
    given = prepared(), *(x[0] for x in lanes(1))
    text = jax.jit(solve_meshed).trace(*given).lower(lowering_platforms=(platform,)).as_text()
    assert "powerzoo_jax_native" not in text
    assert "powerzoo_jax_native" in jax.jit(solve_meshed).trace(*given).lower().as_text()


def test_the_numbers_of_a_network_are_those_of_the_jax_form() -> None:
    """Derivatives read them: phase shifts, a line out of service, a shunt, an isolated bus."""
    case, rng = load_case(CASE), np.random.default_rng(3)
    branch = dataclasses.replace(
        case.branch,
        shift_deg=rng.uniform(-5, 5, case.n_branch),
        tap=rng.uniform(0.95, 1.05, case.n_branch),
        in_service=np.arange(case.n_branch) != 13,  # the only line of bus 8
    )
    kind = np.where(case.bus.id == 8, 4, case.bus.kind)
    bus = dataclasses.replace(case.bus, kind=kind, gs_mw=rng.uniform(0, 3, case.n_bus))
    case = dataclasses.replace(case, branch=branch, bus=bus)
    with jax.enable_x64(True):
        alone, both = (prepare_meshed(case, dtype="float64", solver=form) for form in ("native", "adaptive"))
    for given, expected in zip(*(jax.tree.leaves((x.core.main, x.flow)) for x in (alone, both)), strict=True):
        assert given.dtype == expected.dtype
        np.testing.assert_allclose(given, expected, rtol=1e-11, atol=1e-11)


def test_an_exported_program_is_the_jax_form() -> None:
    factors, (p, q) = prepared(), lanes(5)

    def solve(p: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jax.value_and_grad(lambda p: jnp.sum(jax.vmap(solve_meshed, (None, 0, 0))(factors, p, q).p_loss))(p)

    stored = export.deserialize(export.export(jax.jit(solve))(p).serialize())
    assert "powerzoo_jax_native" not in stored.mlir_module()
    for given, expected in zip(stored.call(p), jax.jit(solve)(p), strict=True):
        np.testing.assert_allclose(given, expected, rtol=1e-5, atol=1e-6)
    alone = prepared(solver="native")
    with pytest.raises(SolverError, match="exported"):
        export.export(jax.jit(lambda p, q: solve_meshed(alone, p, q).v_re))(p[0], q[0])


def test_what_the_kernel_does_not_do_takes_the_jax_form_or_says_so() -> None:
    both, alone, (p, q) = prepared(), prepared(solver="native"), lanes(2)
    share = jnp.full(14, 1 / 14, jnp.float32)
    plain = prepared(solver="adaptive")
    assert plain.native is None and alone.core.blocks is None
    expected = solve_meshed(plain, p[0], q[0], slack_share=share).v_re
    np.testing.assert_array_equal(solve_meshed(both, p[0], q[0], slack_share=share).v_re, expected)
    np.testing.assert_array_equal(
        solve_meshed(both, p[0], q[0], solver="adaptive").v_re, solve_meshed(plain, p[0], q[0]).v_re
    )
    off = jnp.ones(20, jnp.float32).at[3].set(0)
    assert solve_meshed(with_branches(both, in_service=off), p[0], q[0]).p_from[3] == 0
    remedy = 'solver="adaptive"'
    for refused in (
        lambda: solve_meshed(alone, p[0], q[0], slack_share=share),
        lambda: solve_meshed(alone, p[0], q[0], solver="adaptive"),
        lambda: solve_meshed(alone, p[0], q[0], fixed_steps=4),
        lambda: with_branches(alone, in_service=off),
        lambda: stack_meshed([alone, alone]),
        lambda: jax.vmap(solve_meshed)(jax.tree.map(lambda x: jnp.stack([x, x]), alone), p, q),
    ):
        with pytest.raises(SolverError, match=remedy):
            refused()
    with pytest.raises(SolverError, match="not what these factors were prepared for"):
        solve_meshed(plain, p[0], q[0], solver="native")
    with pytest.raises(ValueError, match="nativ"):
        solve_meshed(both, p[0], q[0], solver="nativ")


def test_the_environment_variable_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "compiled kernel" in describe()
    monkeypatch.setenv(SWITCH, "0")
    assert find_library() is None and prepared().native is None and f"{SWITCH}=0" in describe()
    with pytest.raises(SolverError, match=f"{SWITCH}=0"):
        prepared(solver="native")
    monkeypatch.setenv(SWITCH, "yes")
    with pytest.raises(SettingsError, match="give 0"):
        prepared()


THREADS = """
import os, sys
os.sched_setaffinity(0, set(list(os.sched_getaffinity(0))[: int(sys.argv[1])]))
import hashlib, jax, jax.numpy as jnp, numpy as np
from powerzoo_jax.cases import load_case
from powerzoo_jax.powerflow import nominal_injection, prepare_meshed, solve_meshed
case = load_case("case14")
s = np.asarray(nominal_injection(case)) * np.random.default_rng(0).uniform(0.5, 1.3, (1000, 14))
solve = jax.jit(jax.vmap(solve_meshed, in_axes=(None, 0, 0)))
found = solve(prepare_meshed(case, solver="native"), jnp.float32(s.real), jnp.float32(s.imag))
print(hashlib.sha256(b"".join(np.asarray(x).tobytes() for x in jax.tree.leaves(found))).hexdigest())
"""


@pytest.mark.full
def test_one_thread_and_two_give_the_same_bits() -> None:
    printed = [subprocess.check_output([sys.executable, "-c", THREADS, count], text=True) for count in ("1", "2")]
    assert printed[0] == printed[1]


@pytest.mark.long
def test_memory_stays_flat_over_ten_thousand_calls() -> None:
    import resource

    factors, (p, q) = prepared(), lanes(64)
    run = jax.jit(jax.vmap(solve_meshed, in_axes=(None, 0, 0)))
    sizes = []
    for _ in range(3):
        for _ in range(5_000):
            jax.block_until_ready(run(factors, p, q))
        sizes.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    assert sizes[2] - sizes[1] <= 2_000  # [kB]
