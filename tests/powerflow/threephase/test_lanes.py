"""A lane's numbers depend on its own inputs alone, bit by bit, whatever runs beside it."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.cases import load_feeder
from powerzoo_jax.powerflow import Status
from powerzoo_jax.powerflow.threephase.factors import ThreePhaseFactors, nominal_phase_load, prepare_threephase
from powerzoo_jax.powerflow.threephase.solve import ThreePhaseResult, solve_threephase

pytestmark = [pytest.mark.property, pytest.mark.full]

BATCH = 37  # not a multiple of any vector width, so that remainders of the product kernels are covered


@cache
def batched(mode: str) -> Any:
    return jax.jit(jax.vmap(partial(solve_threephase, solver=mode), in_axes=(None, 0, 0, 0)))


class Feeder:
    """case13 with its taps as inputs, random loads s (BATCH, D) and taps (BATCH, R), and the mode of the solver."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        case, rng = load_feeder(13), np.random.default_rng(1)
        self.factors: ThreePhaseFactors = prepare_threephase(case)
        self.s = nominal_phase_load(case) * rng.uniform(0.2, 1.6, (BATCH, len(case.load)))
        self.taps = (1 + case.regulator.step * rng.integers(0, 12, (BATCH, 3))).astype(np.float32)

    def solve(self, s: np.ndarray, taps: np.ndarray | None = None) -> ThreePhaseResult:
        ratios = self.taps if taps is None else taps
        out = batched(self.mode)(self.factors, s.real.astype(np.float32), s.imag.astype(np.float32), ratios)
        return jax.tree.map(np.asarray, out)


@pytest.fixture(scope="module", params=["adaptive", "fixed"])
def feeder(request: pytest.FixtureRequest) -> Feeder:
    return Feeder(request.param)


def assert_same_bits(a: Any, b: Any) -> None:
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert x.tobytes() == y.tobytes()


@pytest.mark.tiers(long=["adaptive"])
def test_a_lane_is_bitwise_equal_in_every_position(feeder: Feeder) -> None:
    plain = feeder.solve(feeder.s)
    assert (plain.status == Status.CONVERGED).all()
    for shift in (1, 16, 36):
        moved = feeder.solve(np.roll(feeder.s, shift, axis=0), np.roll(feeder.taps, shift, axis=0))
        assert_same_bits(jax.tree.map(lambda x, k=shift: np.roll(x, -k, axis=0), moved), plain)


@pytest.mark.parametrize("poison", [4.0, 1e5, np.nan, np.inf], ids=["slow", "no solution", "nan", "inf"])
def test_a_lane_is_bitwise_equal_beside_a_slow_or_failing_lane(feeder: Feeder, poison: float) -> None:
    plain = feeder.solve(feeder.s)
    bad = feeder.s.copy()
    bad.real[11], bad.imag[11] = poison * feeder.s.real[11], poison * feeder.s.imag[11]
    result = feeder.solve(bad)
    # the slow lane keeps the loop running after the others have stopped, which they must not notice
    assert result.iterations[11] > plain.iterations.max() if poison == 4.0 else result.status[11] != Status.CONVERGED
    rest = np.arange(BATCH) != 11
    assert_same_bits(jax.tree.map(lambda x: x[rest], result), jax.tree.map(lambda x: x[rest], plain))
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(result))


@pytest.mark.parametrize("what", ["p", "q", "taps"])
def test_an_input_that_is_not_finite_is_bad_input_with_finite_outputs(feeder: Feeder, what: str) -> None:
    s, taps = feeder.s.copy(), feeder.taps.copy()
    {"p": s.real, "q": s.imag, "taps": taps}[what][3, 1] = np.nan
    result = feeder.solve(s, taps)
    assert result.status[3] == Status.BAD_INPUT and (np.delete(result.status, 3) == Status.CONVERGED).all()
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(result))


@pytest.mark.long
def test_factors_may_differ_between_lanes(feeder: Feeder) -> None:
    case = load_feeder(13)
    grids = [prepare_threephase(case, load_factor=k) for k in (0.7, 1.0)]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *grids)
    p, q = (jnp.asarray(x, jnp.float32) for x in (feeder.s.real[0], feeder.s.imag[0]))
    together = jax.jit(jax.vmap(solve_threephase, in_axes=(0, None, None)))(stacked, p, q)
    # two bases, one state
    np.testing.assert_allclose(together.v_re[0], together.v_re[1], rtol=0, atol=1e-6)
    assert (np.asarray(together.status) == Status.CONVERGED).all()
