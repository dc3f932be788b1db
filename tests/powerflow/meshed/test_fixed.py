"""Meshed power flows in a fixed number of steps, and the products that solve what such a number leaves.

The form for accelerators runs on a CPU too: "fixed" by name, "auto" where the choice between the forms is patched.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.base.solver_mode import AUTO, auto_is
from powerzoo_jax.cases import load_case
from powerzoo_jax.powerflow import Status, check_meshed, prepare_meshed, slack_share, solve_meshed, with_branches
from powerzoo_jax.powerflow.meshed import blocks
from powerzoo_jax.powerflow.meshed import factors as numbers
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


@pytest.mark.long
def test_states_of_the_reference_are_solved_as_by_the_adaptive_form(measured: tuple[str, Accuracy]) -> None:
    dtype, found = measured
    assert found.solvable >= 100
    assert (found.found, found.elsewhere, found.false) == (found.solvable, 0, 0)
    assert found.mag <= tolerance("v_pu", dtype)
    assert found.angle <= tolerance("angle_rad", dtype)
    assert found.loss <= tolerance("loss_relative", dtype)
    assert found.stiff <= tolerance("flow_stored_v_pu", dtype)


@pytest.mark.full
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


@pytest.mark.long
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


@pytest.mark.tiers("long", full=["cuda-fixed"])
@pytest.mark.parametrize("mode", ["fixed", "auto"])
@pytest.mark.parametrize("platform", ["tpu", "cuda"])
def test_accelerators_get_no_factorisation_and_no_wide_type(platform: str, mode: str) -> None:
    text = lowered(platform, mode)
    assert "f64" not in text
    assert not LIBRARY.search(text)


@pytest.mark.tiers("full", long=["cuda"])
@pytest.mark.parametrize("platform", ["tpu", "cuda"])
def test_changed_branches_need_no_factorisation_and_no_wide_type(platform: str) -> None:
    factors = factors_of("14", "float32")

    def resistance(r: jax.Array) -> jax.Array:
        own = with_branches(factors, r_pu=r)
        return jnp.sum(own.core.main.s_base) + jnp.sum(own.core.blocks.inner)

    program = jax.jit(jax.vmap(jax.value_and_grad(resistance)))
    given = jax.ShapeDtypeStruct((4, factors.branch.r_pu.shape[0]), jnp.float32)
    text = program.trace(given).lower(lowering_platforms=(platform,)).as_text()
    assert "f64" not in text
    assert not LIBRARY.search(text)


@pytest.mark.tiers("full", long=["float64-powerzoo_jax.powerflow.meshed.blocks"])
@pytest.mark.parametrize(("dtype", "where"), [("float32", numbers), ("float64", blocks)])
def test_changed_branches_are_those_of_float64_and_lapack_on_accelerators(
    dtype: str, where: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With taps, shifts and an outage."""
    factors = factors_of("30", dtype)  # in several blocks, with a core between them
    count = factors.branch.r_pu.shape[0]
    changes = {
        "in_service": jnp.ones(count).at[4].set(0),
        "tap": jnp.linspace(0.93, 1.07, count),
        "shift_rad": jnp.linspace(-2.0, 2.0, count),
    }

    def found() -> tuple[Any, Any]:
        own = jax.jit(lambda changes: with_branches(factors, **changes))(changes)
        flow = own.flow
        parts = (own.core.main, flow.i_base, flow.slope), (own.core.rest, flow.i_rest, flow.slope_rest)
        whole = jax.tree.map(lambda a, b: np.float64(a) + np.float64(b), *parts)
        return whole, (own.core.blocks, flow.ratio, flow.half_charging, flow.r, flow.x)

    with jax.enable_x64(dtype == "float64"):
        here = found()
        monkeypatch.setattr(where, "by_mode", lambda mode, core, elsewhere, *given: elsewhere(*given))
        there = found()
    assert here[1][0].core.size > 0
    # injections and currents are small differences of admittances, the largest numbers there are
    largest = max(float(np.abs(x).max()) for x in jax.tree.leaves(here[0]))
    for x, y in zip(jax.tree.leaves(here[0]), jax.tree.leaves(there[0]), strict=True):
        np.testing.assert_allclose(y, x, rtol=0, atol=2.0**-44 * largest)
    for x, y in zip(jax.tree.leaves(here[1]), jax.tree.leaves(there[1]), strict=True):
        np.testing.assert_allclose(y, x, rtol=0, atol=2.0**-23 * float(np.abs(x).max()))


@pytest.mark.full
def test_derivatives_by_changed_branches_lose_little_in_float32() -> None:
    """Accelerators find them in float32; the largest of each kind is the measure."""
    factors = factors_of("30", "float32")
    names = tuple(field.name for field in dataclasses.fields(factors.branch))
    slopes = jax.jit(functools.partial(numbers._slopes, names))
    given = factors.branch, factors.v_base
    narrow = slopes(factors.layout, *given)
    with jax.enable_x64(True):
        wide = slopes(factors.layout, *jax.tree.map(lambda x: x.astype("float64"), given))
        wide = jax.tree.map(np.asarray, wide)
    for x, y in zip(jax.tree.leaves(wide), jax.tree.leaves(narrow), strict=True):
        assert y.dtype == np.float32
        np.testing.assert_allclose(y, x, rtol=0, atol=1e-6 * np.abs(x).max())


@pytest.mark.full
def test_a_cpu_gets_the_adaptive_form_of_auto() -> None:
    with auto_is(AUTO):  # whatever the run takes it as
        text = lowered("cpu", "auto")
    assert "f64" in text and LIBRARY.search(text)


def test_a_solver_that_there_is_not_is_named() -> None:
    x = jnp.zeros(14, jnp.float32)
    with pytest.raises(ValueError, match="adaptive"):
        solve_meshed(factors_of("14", "float32"), x, x, solver="adaptiv")
