"""Implicit derivatives against central differences in float64, also under vmap, nested vmap and scan."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, lax

from powerzoo_jax.cases.library import load_case
from powerzoo_jax.powerflow import FeederFactors, PowerFlowResult, nominal_injection, prepare_feeder, solve_feeder
from tests.tolerances import tolerance

pytestmark = [pytest.mark.property, pytest.mark.full]

STEP = 1e-5
TOL = 1e-14  # the differences would otherwise show where the iteration stops

QUANTITIES: dict[str, Callable[[PowerFlowResult], Array]] = {
    "losses": lambda r: r.p_loss + 0.5 * r.q_loss,
    "voltages": lambda r: jnp.sum(r.v_pu * jnp.linspace(0.5, 1.5, r.v_re.shape[0], dtype=r.v_re.dtype)),
    "slack power": lambda r: r.p_slack - 0.3 * r.q_slack,
    "flows": lambda r: jnp.sum(r.p_from * r.p_from + r.q_from * r.q_from),
}


@pytest.fixture(scope="module", autouse=True)
def x64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def feeder(x64: None) -> tuple[FeederFactors, Array, Array]:
    """Factors of case33bw and a state away from its base load."""
    case = load_case("33bw")
    factor = np.random.default_rng(3).uniform(0.5, 1.8, case.n_bus)
    s = nominal_injection(case) * factor
    return prepare_feeder(case, dtype="float64"), jnp.asarray(s.real), jnp.asarray(s.imag)


def objective(quantity: str, mode: str = "adaptive") -> Callable[[FeederFactors, Array, Array], Array]:
    return lambda factors, p, q: QUANTITIES[quantity](solve_feeder(factors, p, q, tol=TOL, solver=mode))


def directions(like: Array, count: int = 3) -> list[Array]:
    rng = np.random.default_rng(8)
    # the slack entry is ignored and stays 0
    return [jnp.asarray(np.where(np.arange(like.size) == 0, 0.0, rng.normal(size=like.size))) for _ in range(count)]


def assert_close(exact: Array, numeric: Array) -> None:
    np.testing.assert_allclose(exact, numeric, rtol=tolerance("gradient_relative", "float64"))


@pytest.mark.tiers("long", full=["losses"])
@pytest.mark.parametrize("quantity", QUANTITIES)
def test_gradient_and_jvp_match_central_differences(feeder: tuple[FeederFactors, Array, Array], quantity: str) -> None:
    factors, p, q = feeder
    f = jax.jit(lambda p, q: objective(quantity)(factors, p, q))
    by_p, by_q = jax.jit(jax.grad(f, argnums=(0, 1)))(p, q)
    forward = jax.jit(lambda p, q, u, w: jax.jvp(f, (p, q), (u, w))[1])
    for u, w in zip(directions(p), reversed(directions(q)), strict=True):
        u, w = u * STEP, w * STEP
        numeric = f(p + u, q + w) - f(p - u, q - w)
        assert_close(2 * (jnp.vdot(by_p, u) + jnp.vdot(by_q, w)), numeric)
        assert_close(2 * forward(p, q, u, w), numeric)


@pytest.mark.long
def test_gradient_by_a_factors_leaf_matches_central_differences(
    feeder: tuple[FeederFactors, Array, Array],
) -> None:
    factors, p, q = feeder

    def f(m: Array) -> Array:
        core = dataclasses.replace(factors.core, m=m)
        return objective("losses")(dataclasses.replace(factors, core=core), p, q)

    m = factors.core.m
    u = 0.1 * STEP * jnp.asarray(np.random.default_rng(9).normal(size=m.shape))
    f = jax.jit(f)
    assert_close(2 * jnp.vdot(jax.jit(jax.grad(f))(m), u) / STEP, (f(m + u) - f(m - u)) / STEP)


@pytest.mark.long
def test_the_gradient_is_the_same_under_vmap_nested_vmap_and_scan(
    feeder: tuple[FeederFactors, Array, Array],
) -> None:
    factors, p, q = feeder
    gradient = jax.grad(objective("losses"), argnums=1)
    scale = jnp.asarray([0.6, 0.8, 1.0, 1.1, 1.2, 1.3])
    ps, qs = scale[:, None] * p[None], scale[:, None] * q[None]
    single = jax.jit(gradient)
    alone = jnp.stack([single(factors, a, b) for a, b in zip(ps, qs, strict=True)])
    flat = jax.jit(jax.vmap(gradient, in_axes=(None, 0, 0)))(factors, ps, qs)
    nested = jax.jit(jax.vmap(jax.vmap(gradient, in_axes=(None, 0, 0)), in_axes=(None, 0, 0)))(
        factors, ps.reshape(2, 3, -1), qs.reshape(2, 3, -1)
    )
    _, scanned = jax.jit(lambda a, b: lax.scan(lambda c, x: (c, gradient(factors, *x)), None, (a, b)))(ps, qs)
    for other in (flat, nested.reshape(6, -1), scanned):
        np.testing.assert_allclose(other, alone, rtol=0, atol=tolerance("gradient_relative", "float64"))


@pytest.mark.long
def test_a_batch_that_shares_one_setpoint_sums_its_lanes(feeder: tuple[FeederFactors, Array, Array]) -> None:
    factors, p, q = feeder
    scale = jnp.asarray([0.7, 1.0, 1.3])

    def total(x: Array) -> Array:
        losses = jax.vmap(lambda k: objective("losses")(factors, p * k + x, q * k))(scale)
        return jnp.sum(losses)

    total = jax.jit(total)
    x = jnp.zeros_like(p)
    exact = jax.jit(jax.grad(total))(x)
    u = directions(p)[0] * STEP
    assert_close(2 * jnp.vdot(exact, u), total(u) - total(-u))


def test_a_bad_lane_does_not_poison_the_gradient(feeder: tuple[FeederFactors, Array, Array]) -> None:
    factors, p, q = feeder
    ps = jnp.stack([p, p.at[4].set(jnp.nan)])
    total = jax.jit(jax.grad(lambda x: jnp.sum(jax.vmap(lambda a: objective("losses")(factors, a + x, q))(ps))))
    assert np.isfinite(total(jnp.zeros_like(p))).all()


@pytest.mark.long
@pytest.mark.parametrize("load", [1.0, 3.3], ids=["within the fixed steps", "left to Newton and elimination"])
def test_the_fixed_form_has_the_derivative_of_the_solution(
    feeder: tuple[FeederFactors, Array, Array], load: float
) -> None:
    factors = feeder[0]
    s = load * nominal_injection(load_case("33bw"))
    p, q = jnp.asarray(s.real), jnp.asarray(s.imag)

    # two lanes, so that a batch with a hard lane is what is differentiated
    def f(p: Array, q: Array) -> Array:
        scale = jnp.asarray([1.0, 0.5])
        return jnp.sum(jax.vmap(lambda k: objective("losses", "fixed")(factors, k * p, k * q))(scale))

    value = jax.jit(f)
    by_p, by_q = jax.jit(jax.grad(f, argnums=(0, 1)))(p, q)
    u, w = (x * STEP / load for x in (directions(p)[0], directions(q)[1]))
    numeric = value(p + u, q + w) - value(p - u, q - w)
    assert_close(2 * (jnp.vdot(by_p, u) + jnp.vdot(by_q, w)), numeric)
    assert_close(2 * jax.jit(lambda p, q, u, w: jax.jvp(f, (p, q), (u, w))[1])(p, q, u, w), numeric)
