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
from powerzoo_jax.powerflow import Status
from powerzoo_jax.powerflow.feeder.factors import nominal_injection
from tests.tolerances import tolerance

pytestmark = pytest.mark.property

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
@pytest.mark.parametrize(
    ("name", "mode"),
    [("outages", "fixed"), ("switched", "fixed"), ("switched", "auto"), ("reactive", "fixed"), ("reactive", "auto")],
)
def test_a_tpu_gets_no_factorisation_and_no_wide_type(name: str, mode: str) -> None:
    solve, given = program(name, mode)
    text = jax.jit(solve).trace(*given).lower(lowering_platforms=("tpu",)).as_text()
    assert "f64" not in text
    assert not LIBRARY.search(text)


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


def test_open_switches_end_as_in_the_adaptive_form() -> None:
    plain, fixed = (jax.jit(solve)(*given) for solve, given in (program("switched", m) for m in ("adaptive", "fixed")))
    assert (np.asarray(plain.status) == Status.CONVERGED).all() and (np.asarray(fixed.status) == Status.CONVERGED).all()
    np.testing.assert_allclose(fixed.v_pu, plain.v_pu, rtol=0, atol=tolerance("v_pu", "float32"))
    np.testing.assert_allclose(fixed.p_loss, plain.p_loss, rtol=tolerance("loss_relative", "float32"))


def test_reactive_limits_bind_as_in_the_adaptive_form() -> None:
    plain, fixed = (jax.jit(solve)(*given) for solve, given in (program("reactive", m) for m in ("adaptive", "fixed")))
    np.testing.assert_array_equal(fixed.flow.status, plain.flow.status)
    np.testing.assert_array_equal(fixed.at_limit, plain.at_limit)
    np.testing.assert_allclose(fixed.flow.v_pu, plain.flow.v_pu, rtol=0, atol=2 * tolerance("v_pu", "float32"))
