"""A lane's numbers depend on its own injections alone, bit by bit, whatever runs beside it."""

from __future__ import annotations

from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.cases.library import load_case
from powerzoo_jax.powerflow import (
    FeederFactors,
    PowerFlowResult,
    Status,
    nominal_injection,
    prepare_feeder,
    solve_feeder,
    solve_feeder_active,
)

pytestmark = pytest.mark.property

BATCH = 37  # not a multiple of any vector width, so that remainders of the product kernels are covered
FORMS = {"33bw": ("33bw", "adaptive"), "141": ("141", "adaptive"), "fixed": ("33bw", "fixed")}


class Feeder(NamedTuple):
    """Factors, (BATCH, N) complex injections and the mode of the solver."""

    factors: FeederFactors
    s: np.ndarray
    mode: str


@pytest.fixture(scope="module", params=FORMS)
def feeder(request: pytest.FixtureRequest) -> Feeder:
    name, mode = FORMS[request.param]
    case = load_case(name)
    factor = np.random.default_rng(1).uniform(0.2, 2.0, (BATCH, case.n_bus))
    return Feeder(prepare_feeder(case), nominal_injection(case) * factor, mode)


@cache
def batched(mode: str) -> Any:
    return jax.jit(jax.vmap(lambda factors, p, q: solve_feeder(factors, p, q, solver=mode), in_axes=(None, 0, 0)))


def solve(feeder: Feeder, s: np.ndarray) -> PowerFlowResult:
    result = batched(feeder.mode)(feeder.factors, s.real.astype(np.float32), s.imag.astype(np.float32))
    return jax.tree.map(np.asarray, result)


def assert_same_bits(a: Any, b: Any) -> None:
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert x.tobytes() == y.tobytes()


def lane(result: PowerFlowResult, k: int) -> PowerFlowResult:
    return jax.tree.map(lambda x: x[k], result)


@pytest.mark.tiers("long", full=["33bw"])
def test_a_lane_is_bitwise_equal_in_every_position(feeder: Feeder) -> None:
    s = feeder.s
    plain = solve(feeder, s)
    for shift in (1, 5, 16, 36):
        moved = solve(feeder, np.roll(s, shift, axis=0))
        assert_same_bits(jax.tree.map(lambda x, k=shift: np.roll(x, -k, axis=0), moved), plain)


@pytest.mark.tiers("long", full=["33bw"])
def test_a_lane_is_bitwise_equal_beside_other_neighbours(feeder: Feeder) -> None:
    s = feeder.s
    plain = solve(feeder, s)
    others = 0.5 * s[::-1]
    for k in (0, 7, 18, 36):
        mixed = others.copy()
        mixed[k] = s[k]
        assert_same_bits(lane(solve(feeder, mixed), k), lane(plain, k))


@pytest.mark.tiers(
    full=["141-nan", "fixed-slow", "fixed-diverging", "fixed-nan", "fixed-inf"], long=["141-slow", "141-diverging"]
)
@pytest.mark.parametrize("poison", [2.2, 10.0, np.nan, np.inf], ids=["slow", "diverging", "nan", "inf"])
def test_a_lane_is_bitwise_equal_beside_a_slow_or_failing_lane(feeder: Feeder, poison: float) -> None:
    s = feeder.s
    plain = solve(feeder, s)
    bad = s.copy()
    loaded = s[11] != 0  # 0 times inf would put a NaN at buses that may not inject
    bad.real[11, loaded], bad.imag[11, loaded] = poison * s.real[11, loaded], poison * s.imag[11, loaded]
    result = solve(feeder, bad)
    # the slow lane keeps the loop running after the others have stopped, which they must not notice
    assert result.iterations[11] > plain.iterations.max() if poison == 2.2 else result.status[11] != Status.CONVERGED
    rest = np.arange(BATCH) != 11
    assert_same_bits(jax.tree.map(lambda x: x[rest], result), jax.tree.map(lambda x: x[rest], plain))


@pytest.mark.tiers(
    "full", long=["adaptive-p-nan", "adaptive-p-inf", "fixed-p-nan", "fixed-p-inf", "fixed-p--inf", "fixed-q--inf"]
)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("part", ["p", "q"])
@pytest.mark.parametrize("mode", ["adaptive", "fixed"])
def test_an_injection_that_is_not_finite_is_bad_input_with_finite_outputs(value: float, part: str, mode: str) -> None:
    case = load_case("33bw")
    factors, s = prepare_feeder(case), nominal_injection(case)
    p, q = s.real.astype(np.float32), s.imag.astype(np.float32)
    (p if part == "p" else q)[5] = value
    for function, args in (
        (solve_feeder, (p, q)),
        (solve_feeder_active, (p[np.asarray(factors.active)], q[np.asarray(factors.active)])),
    ):
        result = jax.jit(partial(function, solver=mode))(factors, *args)
        assert int(result.status) == Status.BAD_INPUT
        assert all(np.isfinite(np.asarray(x)).all() for x in jax.tree.leaves(result))


@pytest.mark.long
def test_an_injection_at_a_bus_that_was_not_prepared_is_bad_input() -> None:
    case = load_case("69")
    factors, s = prepare_feeder(case), nominal_injection(case)
    stray = int(np.flatnonzero(np.asarray(factors.idle))[0])
    p = jnp.asarray(s.real, jnp.float32)
    q = jnp.asarray(s.imag, jnp.float32)
    assert int(solve_feeder(factors, p, q).status) == Status.CONVERGED
    assert int(solve_feeder(factors, p.at[stray].set(0.01), q).status) == Status.BAD_INPUT
    named = prepare_feeder(case, active_bus_ids=[int(case.bus.id[stray])])
    assert int(solve_feeder(named, p.at[stray].set(0.01), q).status) == Status.CONVERGED


@pytest.mark.full
def test_factors_may_differ_between_lanes() -> None:
    case = load_case("33bw")
    s = nominal_injection(case)
    p, q = jnp.asarray(s.real, jnp.float32), jnp.asarray(s.imag, jnp.float32)
    grids = [prepare_feeder(case, v_slack=v) for v in (1.0, 1.02, 1.05)]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *grids)
    together = jax.jit(jax.vmap(solve_feeder, in_axes=(0, None, None)))(stacked, p, q)
    for k, factors in enumerate(grids):
        alone = jax.jit(solve_feeder)(factors, p, q)
        # the batched product sums in another order than the single one
        np.testing.assert_allclose(together.v_re[k], alone.v_re, rtol=0, atol=5e-7)
