"""Outages, open switches and reactive limits in the form for accelerators: the adaptive form's results, by products."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax import powerflow as pf
from powerzoo_jax.cases import load_case
from powerzoo_jax.cases.topology import branch_positions
from powerzoo_jax.powerflow import Status
from powerzoo_jax.powerflow.contingency import batch, switching
from powerzoo_jax.powerflow.feeder.factors import nominal_injection
from tests.tolerances import tolerance

pytestmark = [pytest.mark.property, pytest.mark.full]

LIBRARY = re.compile(
    r"lapack|cusolver|getrf|cholesky|triangular|custom_call @(?!LayoutConstraint|Sharding)", re.IGNORECASE
)


def program(name: str, solver: str) -> tuple[Any, tuple[jax.Array, ...]]:
    """Batched solve and its injections, around the nominal ones."""
    case = load_case("case33bw" if name == "switched" else "case14")
    s = nominal_injection(case)
    scale = np.array([0.7, 0.9, 1.0, 1.1])[:, None]
    given = tuple(jnp.asarray(scale * x, jnp.float32) for x in (s.real, s.imag))
    if name == "outages":
        solve: Any = partial(pf.n_minus_1, pf.prepare_outages(case), solver=solver)
    elif name == "switched":
        opened = jnp.asarray([32, 33, 34, 35, 36], jnp.int32)
        solve = partial(pf.solve_switched, pf.prepare_switching(case), opened, solver=solver)
    else:
        factors = pf.prepare_meshed(case)
        solve = partial(pf.solve_within_reactive_limits, factors, pf.prepare_reactive(case, factors), solver=solver)
    return jax.vmap(solve), given


# Outages on "auto" keep the form not taken in their text, as a branch of a constant, which a compiler drops.
@pytest.mark.tiers("long", full=["reactive-fixed"])
@pytest.mark.parametrize(
    ("name", "mode"),
    [("outages", "fixed"), ("switched", "fixed"), ("switched", "auto"), ("reactive", "fixed"), ("reactive", "auto")],
)
def test_a_tpu_gets_no_factorisation_and_no_wide_type(name: str, mode: str) -> None:
    solve, given = program(name, mode)
    text = jax.jit(solve).trace(*given).lower(lowering_platforms=("tpu",)).as_text()
    assert "f64" not in text
    assert not LIBRARY.search(text)


@pytest.mark.long
def test_outages_end_as_in_the_adaptive_form() -> None:
    """Those that a chord solves in the number of steps taken: what needs more says so."""
    plain, fixed = (jax.jit(solve)(*given) for solve, given in (program("outages", m) for m in ("adaptive", "fixed")))
    plain, fixed = (jax.tree.map(np.asarray, x) for x in (plain, fixed))
    near = (plain.iterations <= fixed.iterations) & (plain.status == Status.CONVERGED)
    assert near.mean() > 0.9
    assert (fixed.status[near] == Status.CONVERGED).all()
    assert np.isin(fixed.status[~near], [Status.CONVERGED, Status.OUT_OF_STEPS, Status.ISLANDED]).all()
    for name in ("v_min", "v_max"):
        assert np.abs(getattr(fixed, name) - getattr(plain, name))[near].max() <= tolerance("v_pu", "float32")


@pytest.mark.long
def test_open_switches_end_as_in_the_adaptive_form() -> None:
    plain, fixed = (jax.jit(solve)(*given) for solve, given in (program("switched", m) for m in ("adaptive", "fixed")))
    assert (np.asarray(plain.status) == Status.CONVERGED).all() and (np.asarray(fixed.status) == Status.CONVERGED).all()
    np.testing.assert_allclose(fixed.v_pu, plain.v_pu, rtol=0, atol=tolerance("v_pu", "float32"))
    np.testing.assert_allclose(fixed.p_loss, plain.p_loss, rtol=tolerance("loss_relative", "float32"))


@pytest.mark.long
def test_reactive_limits_bind_as_in_the_adaptive_form() -> None:
    plain, fixed = (jax.jit(solve)(*given) for solve, given in (program("reactive", m) for m in ("adaptive", "fixed")))
    np.testing.assert_array_equal(fixed.flow.status, plain.flow.status)
    np.testing.assert_array_equal(fixed.at_limit, plain.at_limit)
    np.testing.assert_allclose(fixed.flow.v_pu, plain.flow.v_pu, rtol=0, atol=2 * tolerance("v_pu", "float32"))


def elsewhere(mode: str, adaptive: Any, fixed: Any, *given: Any) -> Any:
    """Form that "auto" takes where there is no CPU, with the Newton method for lanes that a chord does not solve."""
    return adaptive(*given) if mode == "adaptive" else fixed(*given)


@pytest.mark.long
def test_lanes_next_to_collapse_after_an_outage_are_as_exact_as_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against float64 solved to 1e-12 pu: a residual in plain float32 would be amplified there."""
    monkeypatch.setattr(batch, "by_mode", elsewhere)
    case = load_case("case14")
    s = nominal_injection(case) * np.linspace(0.6, 1.35, 16)[:, None]
    given = s.real.astype(np.float32), s.imag.astype(np.float32)

    def solve(dtype: str, mode: str, tol: float | None) -> Any:
        with jax.enable_x64(dtype == "float64"):
            outages = pf.prepare_outages(case, dtype=dtype)
            one = partial(pf.n_minus_1, outages, states=True, solver=mode, tol=tol)
            return jax.tree.map(np.asarray, jax.jit(jax.vmap(one))(*(jnp.asarray(x, dtype) for x in given)))

    (known, truth), (found, states) = solve("float64", "adaptive", 1e-12), solve("float32", "auto", None)
    np.testing.assert_array_equal(found.status, known.status)
    solved = known.status == Status.CONVERGED
    assert (found.iterations[solved] > pf.prepare_outages(case).steps).sum() >= 3
    off = np.hypot(states.v_re - truth.v_re, states.v_im - truth.v_im).max(-1)
    assert off[solved].max() <= tolerance("v_pu", "float32")


def radial_sets(count: int) -> np.ndarray:
    """Random sets of five open switches (count, 5) that leave case33bw radial."""
    case, rng = load_case("case33bw"), np.random.default_rng(0)
    ends, found = list(zip(*branch_positions(case), strict=True)), []
    for _ in range(count):
        label, opened = np.arange(case.n_bus), []
        for k in rng.permutation(len(ends)):
            a, b = (label[x] for x in ends[k])
            if a == b:
                opened.append(k)
            label[label == b] = a
        found.append(opened)
    return np.array(found, np.int32)


@pytest.mark.long
def test_switches_next_to_collapse_are_solved_wherever_the_adaptive_form_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switching, "by_mode", elsewhere)
    switching._shell.cache_clear()
    case = load_case("case33bw")
    factors, s, opened = pf.prepare_switching(case), nominal_injection(case), radial_sets(64)
    p, q = (jnp.asarray(x, jnp.float32) for x in (s.real, s.imag))
    plain, fixed = (
        jax.tree.map(
            np.asarray, jax.jit(jax.vmap(lambda o, m=mode: pf.solve_switched(factors, o, p, q, solver=m)))(opened)
        )
        for mode in ("adaptive", "auto")
    )
    switching._shell.cache_clear()
    np.testing.assert_array_equal(fixed.status == Status.CONVERGED, plain.status == Status.CONVERGED)
    solved = plain.status == Status.CONVERGED
    assert 40 <= solved.sum() < 64
    v = np.hypot(fixed.v_re - plain.v_re, fixed.v_im - plain.v_im)
    assert v[solved].max() <= 2 * tolerance("v_pu", "float32")
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(fixed))
