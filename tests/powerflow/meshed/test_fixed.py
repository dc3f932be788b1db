"""Meshed power flows in a fixed number of steps, and the products that solve what such a number leaves.

The form for accelerators runs on a CPU too: "fixed" by name, "auto" where the choice between the forms is patched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.cases import load_case
from powerzoo_jax.powerflow import Status, check_meshed, prepare_meshed, slack_share, solve_meshed, with_branches
from powerzoo_jax.powerflow.meshed import blocks
from powerzoo_jax.powerflow.meshed import solve as forms
from tests.references.meshed_cases import Accuracy, accuracy, factors_of, meshed_case
from tests.tolerances import tolerance

pytestmark = pytest.mark.reference

LANES = 200
# case39 and case300 hold states next to collapse, which no number of chord steps solves
SUITE = [
    ("14", "float32", "fixed"),
    ("118", "float32", "fixed"),
    ("14", "float64", "fixed"),
    ("300", "float32", "auto"),
]
LIBRARY = re.compile(r"lu|lapack|cusolver|getrf|cholesky|triangular|custom_call @(?!LayoutConstraint)", re.IGNORECASE)


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The form that "auto" takes where there is no CPU."""
    monkeypatch.setattr(forms, "by_mode", lambda mode, adaptive, fixed, *given: fixed(*given))
    forms.meshed_state.cache_clear()
    yield
    forms.meshed_state.cache_clear()


def solved(name: str, dtype: str, mode: str, count: int = LANES) -> Any:
    """Result of the states of a case."""
    factors, states = factors_of(name, dtype), meshed_case(name, count - 1).states
    with jax.enable_x64(dtype == "float64"):
        given = [jnp.asarray(x, dtype) for x in (states.s.real, states.s.imag, states.v_set)]
        solve = jax.jit(jax.vmap(lambda *given: solve_meshed(factors, *given, solver=mode)))
        return jax.tree.map(np.asarray, solve(*given))


@pytest.fixture(scope="module", params=SUITE, ids="-".join)
def measured(request: pytest.FixtureRequest) -> tuple[str, Accuracy]:
    name, dtype, mode = request.param
    with pytest.MonkeyPatch.context() as patch:
        if mode == "auto":
            patch.setattr(forms, "by_mode", lambda mode, adaptive, fixed, *given: fixed(*given))
            forms.meshed_state.cache_clear()
        result = solved(name, dtype, mode)
    forms.meshed_state.cache_clear()
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(result))
    return dtype, accuracy(meshed_case(name, LANES - 1), result)


def test_states_of_the_reference_are_solved_as_by_the_adaptive_form(measured: tuple[str, Accuracy]) -> None:
    dtype, found = measured
    assert found.solvable >= 100
    assert (found.found, found.elsewhere, found.false) == (found.solvable, 0, 0)
    assert found.mag <= tolerance("v_pu", dtype)
    assert found.angle <= tolerance("angle_rad", dtype)
    assert found.loss <= tolerance("loss_relative", dtype)
    assert found.stiff <= tolerance("flow_stored_v_pu", dtype)


def test_lanes_without_a_solution_say_so_and_stay_finite(elsewhere: None) -> None:
    factors, states = factors_of("14", "float32"), meshed_case("14", 49).states
    p, q, v_set = (x[:6].astype(np.float32) for x in (states.s.real, states.s.imag, states.v_set))
    p[1], q[2], p[3] = np.nan, np.inf, 50 * p[3]
    p[4, factors.slack] = np.nan  # ignored there
    result = jax.jit(jax.vmap(lambda *given: solve_meshed(factors, *given)))(p, q, v_set)
    assert all(bool(jnp.all(jnp.isfinite(x))) for x in jax.tree.leaves(result))
    status = [int(x) for x in result.status]
    assert status[:3] == [Status.CONVERGED, Status.BAD_INPUT, Status.BAD_INPUT]
    assert status[3] in (Status.OUT_OF_STEPS, Status.SINGULAR)
    assert status[4:] == [Status.CONVERGED, Status.CONVERGED]


@pytest.mark.parametrize("mode", ["fixed", "auto"])
def test_a_distributed_slack_keeps_the_laws(mode: str, elsewhere: None) -> None:
    case = load_case("case14")
    factors, share = prepare_meshed(case), jnp.asarray(slack_share(case), jnp.float32)
    states = meshed_case("14", 49).states
    p, q, v_set = (x[:4].astype(np.float32) for x in (states.s.real, states.s.imag, states.v_set))
    p[:, factors.slack] = 0.5
    solve = jax.jit(jax.vmap(lambda *given: solve_meshed(factors, *given, slack_share=share, solver=mode)))
    result = jax.tree.map(np.asarray, solve(p, q, v_set))
    assert (result.status == Status.CONVERGED).all()
    for k in range(4):
        lane = jax.tree.map(lambda x, k=k: x[k], result)
        law = check_meshed(case, p[k] + lane.p_added, q[k], lane)
        assert law.kcl_pu < tolerance("meshed_kcl_pu", "float32")
        assert law.kvl_pu < tolerance("meshed_kvl_pu", "float32")
        np.testing.assert_allclose(lane.p_added, share * lane.p_added.sum(), atol=1e-6)


def lowered(platform: str, mode: str) -> str:
    """Program of flows and of a gradient, lowered for a platform that need not be here."""
    factors = factors_of("14", "float32")

    def program(p: jax.Array, q: jax.Array) -> Any:
        solve = jax.vmap(lambda p, q: solve_meshed(factors, p, q, solver=mode))
        return solve(p, q), jax.grad(lambda p: jnp.sum(solve(p, q).p_loss))(p)

    given = [jax.ShapeDtypeStruct((4, 14), jnp.float32)] * 2
    return jax.jit(program).trace(*given).lower(lowering_platforms=(platform,)).as_text()


@pytest.mark.parametrize("mode", ["fixed", "auto"])
@pytest.mark.parametrize("platform", ["tpu", "cuda"])
def test_accelerators_get_no_factorisation_and_no_wide_type(platform: str, mode: str) -> None:
    text = lowered(platform, mode)
    assert "f64" not in text
    assert not LIBRARY.search(text)


@pytest.mark.parametrize("platform", ["tpu", "cuda"])
def test_changed_branches_need_no_factorisation_of_a_library(platform: str) -> None:
    factors = factors_of("14", "float32")
    program = jax.jit(jax.vmap(lambda on: with_branches(factors, in_service=on)))
    given = jax.ShapeDtypeStruct((4, factors.branch.r_pu.shape[0]), jnp.float32)
    assert not LIBRARY.search(program.trace(given).lower(lowering_platforms=(platform,)).as_text())


def test_changed_branches_have_the_inverse_of_lapack_on_accelerators(monkeypatch: pytest.MonkeyPatch) -> None:
    factors = factors_of("30", "float32")  # in several blocks, with a core between them
    on = jnp.ones_like(factors.branch.r_pu).at[4].set(0)
    here = with_branches(factors, in_service=on).core.blocks
    monkeypatch.setattr(blocks, "by_mode", lambda mode, core, elsewhere, *given: elsewhere(*given))
    there = with_branches(factors, in_service=on).core.blocks
    assert here.core.size > 0
    for a, b in zip(jax.tree.leaves(here), jax.tree.leaves(there), strict=True):
        np.testing.assert_allclose(b, a, rtol=0, atol=2.0**-23 * float(np.abs(a).max()))


def test_a_cpu_gets_the_adaptive_form_of_auto() -> None:
    text = lowered("cpu", "auto")
    assert "f64" in text and LIBRARY.search(text)


def test_a_solver_that_there_is_not_is_named() -> None:
    x = jnp.zeros(14, jnp.float32)
    with pytest.raises(ValueError, match="adaptive"):
        solve_meshed(factors_of("14", "float32"), x, x, solver="adaptiv")
