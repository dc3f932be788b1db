"""Implicit derivatives of the three-phase solver against central differences in float64, also under vmap."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from powerzoo_jax.cases import load_feeder
from powerzoo_jax.powerflow.threephase.factors import ThreePhaseFactors, nominal_phase_load, prepare_threephase
from powerzoo_jax.powerflow.threephase.solve import ThreePhaseResult, solve_threephase, voltage_unbalance
from tests.tolerances import tolerance

pytestmark = [pytest.mark.property, pytest.mark.full]

STEP = 1e-5
TOL = 1e-14  # the differences would otherwise show where the iteration stops
DERS = ("675.1", ("671.2", "671.3"))

Inputs = tuple[Array, Array, Array]


@pytest.fixture(scope="module", autouse=True)
def x64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def feeder(x64: None) -> tuple[ThreePhaseFactors, Inputs]:
    """Factors of case13 and p, q, taps away from its base state."""
    case, rng = load_feeder(13), np.random.default_rng(3)
    s = np.r_[nominal_phase_load(case) * rng.uniform(0.5, 1.4, len(case.load)), 0.1 + 0.02j, -0.08 + 0.05j]
    factors = prepare_threephase(case, ders=DERS, dtype="float64")
    return factors, (jnp.asarray(s.real), jnp.asarray(s.imag), jnp.asarray(case.taps + np.array((0.0125, -0.02, 0.03))))


def voltages(r: ThreePhaseResult) -> Array:
    return jnp.sum(r.v_pu * jnp.linspace(0.5, 1.5, r.v_re.shape[0], dtype=r.v_re.dtype))


def unbalance(r: ThreePhaseResult) -> Array:
    return 100 * jnp.sum(voltage_unbalance(r.v_re, r.v_im, jnp.asarray(load_feeder(13).three_phase_nodes[1])))


QUANTITIES: dict[str, Callable[[ThreePhaseResult], Array]] = {
    "losses": lambda r: r.p_loss + 0.5 * r.q_loss,
    "voltages": voltages,
    "unbalance": unbalance,
    "source power": lambda r: jnp.sum(r.p_source - 0.3 * r.q_source),
    "flows": lambda r: jnp.sum(r.p_from * r.p_from + r.q_from * r.q_from),
}


def everything(factors: ThreePhaseFactors, p: Array, q: Array, taps: Array) -> Array:
    """All quantities of one solve, so that one compilation serves them."""
    result = solve_threephase(factors, p, q, taps, tol=TOL)
    return jnp.stack([quantity(result) for quantity in QUANTITIES.values()])


def directions(inputs: Inputs, count: int) -> list[Inputs]:
    """Random directions in all inputs together, and one in each of them alone."""
    rng = np.random.default_rng(8)
    free = [tuple(jnp.asarray(rng.normal(size=x.shape)) for x in inputs) for _ in range(count)]
    alone = [tuple(x * float(i == k) for i, x in enumerate(free[0])) for k in range(len(inputs))]
    return [*free, *alone]  # type: ignore[list-item]


def test_gradient_and_jvp_of_every_input_match_central_differences(feeder: tuple[ThreePhaseFactors, Inputs]) -> None:
    factors, inputs = feeder
    f = jax.jit(everything)
    by_input = jax.jit(jax.jacrev(everything, argnums=(1, 2, 3)))(factors, *inputs)
    forward = jax.jit(lambda x, u: jax.jvp(lambda *x: everything(factors, *x), x, u)[1])
    for direction in directions(inputs, 2):
        up, down = (
            f(factors, *(x + sign * STEP * u for x, u in zip(inputs, direction, strict=True))) for sign in (1, -1)
        )
        numeric = np.asarray(up - down) / (2 * STEP)
        reverse = sum(np.asarray(j) @ np.asarray(u) for j, u in zip(by_input, direction, strict=True))
        # a difference of sums of many terms: relative to the largest quantity where one is small by cancellation
        limit = tolerance("gradient_relative", "float64") * np.maximum(np.abs(numeric), 1.0)
        assert (np.abs(reverse - numeric) <= limit).all()
        assert (np.abs(np.asarray(forward(inputs, direction)) - numeric) <= limit).all()


@pytest.mark.long
def test_the_gradient_is_the_same_under_vmap(feeder: tuple[ThreePhaseFactors, Inputs]) -> None:
    factors, (p, q, taps) = feeder
    gradient = jax.grad(lambda p, q, taps: everything(factors, p, q, taps)[0], argnums=(0, 2))
    scale = jnp.asarray([0.6, 1.0, 1.3])
    single, many = jax.jit(gradient), jax.jit(jax.vmap(gradient, in_axes=(0, None, None)))
    together = many(scale[:, None] * p[None], q, taps)
    for k, factor in enumerate(scale):
        for x, y in zip(single(factor * p, q, taps), together, strict=True):
            np.testing.assert_allclose(y[k], x, rtol=0, atol=tolerance("gradient_relative", "float64"))


@pytest.mark.long
def test_a_bad_lane_does_not_poison_the_gradient(feeder: tuple[ThreePhaseFactors, Inputs]) -> None:
    factors, (p, q, taps) = feeder
    ps = jnp.stack([p, p.at[4].set(jnp.nan), 1e4 * p])

    def total(x: Array) -> Array:
        return jnp.sum(jax.vmap(lambda a: solve_threephase(factors, a + x, q, taps).p_loss)(ps))

    assert np.isfinite(jax.jit(jax.grad(total))(jnp.zeros_like(p))).all()


@pytest.mark.long
def test_the_fixed_form_has_the_derivative_of_the_solution(feeder: tuple[ThreePhaseFactors, Inputs]) -> None:
    factors, (p, q, taps) = feeder

    def losses(p: Array, q: Array, taps: Array) -> Array:
        return solve_threephase(factors, p, q, taps, tol=TOL, solver="fixed").p_loss

    value, slopes = jax.jit(losses), jax.jit(jax.grad(losses, argnums=(0, 1, 2)))(p, q, taps)
    direction = directions((p, q, taps), 1)[0]
    up, down = (value(*(x + sign * STEP * u for x, u in zip((p, q, taps), direction, strict=True))) for sign in (1, -1))
    found = sum(float(jnp.vdot(x, u)) for x, u in zip(slopes, direction, strict=True))
    np.testing.assert_allclose(found, float(up - down) / (2 * STEP), rtol=tolerance("gradient_relative", "float64"))
