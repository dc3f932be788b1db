"""A lane of a meshed solve depends on its own numbers alone, bit by bit, however the batch is put together."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from powerzoo_jax.powerflow import MeshedResult, Status, solve_meshed
from tests.references.meshed import MeshedStates
from tests.references.meshed_cases import LANES, TRACED, factors_of, lane, meshed_case, solve_all, voltages
from tests.tolerances import tolerance

pytestmark = [pytest.mark.property, pytest.mark.full]

BAD = 11  # the lane that is spoilt
every_case = pytest.mark.parametrize("name", ["14", "118", "300"])


def states(name: str) -> MeshedStates:
    return meshed_case(name, LANES - 1).states


def assert_same_bits(a: Any, b: Any) -> None:
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert x.tobytes() == y.tobytes()


def without(result: MeshedResult, k: int) -> MeshedResult:
    return jax.tree.map(lambda x: np.delete(x, k, axis=0), result)


@pytest.mark.tiers("long", full=["14"])
@every_case
def test_a_meshed_lane_is_bitwise_equal_in_every_position(name: str) -> None:
    factors, given = factors_of(name, "float32"), states(name)
    plain = solve_all(factors, given)
    for shift in (1, 7, 32):
        moved = solve_all(factors, MeshedStates(*(np.roll(x, shift, axis=0) for x in given)))
        assert_same_bits(jax.tree.map(lambda x, k=shift: np.roll(x, -k, axis=0), moved), plain)


@pytest.mark.tiers("long", full=["diverging-14", "nan-14", "inf-14"])
@every_case
@pytest.mark.parametrize("poison", [10.0, np.nan, np.inf], ids=["diverging", "nan", "inf"])
def test_a_meshed_lane_is_bitwise_equal_beside_a_failing_lane(name: str, poison: float) -> None:
    factors, given = factors_of(name, "float32"), states(name)
    plain = solve_all(factors, given)
    s = given.s.copy()
    loaded = s[BAD] != 0
    s.real[BAD, loaded] = s.real[BAD, loaded] * poison if poison == 10.0 else poison
    result = solve_all(factors, MeshedStates(s, given.v_set))
    assert result.status[BAD] == (Status.OUT_OF_STEPS if poison == 10.0 else Status.BAD_INPUT)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(result))
    assert_same_bits(without(result, BAD), without(plain, BAD))


def test_what_is_ignored_may_be_anything() -> None:
    """Reactive power of buses that hold their magnitude, both powers of the slack, set-points of the others."""
    known, factors = meshed_case("14", LANES - 1), factors_of("14", "float32")
    s, v_set = known.states.s.copy(), known.states.v_set.copy()
    s.imag[:, ~known.net.mag], s.real[:, known.net.slack], v_set[:, known.net.mag] = 7.0, -3.0, 9.0
    plain, other = solve_all(factors, known.states), solve_all(factors, MeshedStates(s, v_set))
    limit = 2 * tolerance("v_pu", "float32")
    assert np.abs(voltages(other) - voltages(plain)).max() <= limit
    np.testing.assert_allclose(other.q_bus, plain.q_bus, rtol=0, atol=tolerance("meshed_kcl_pu", "float32"))
    np.testing.assert_allclose(other.p_slack, plain.p_slack, rtol=0, atol=tolerance("meshed_kcl_pu", "float32"))


@pytest.mark.long
def test_one_scenario_a_batch_and_nested_batches_agree() -> None:
    factors, given = factors_of("14", "float32"), MeshedStates(*(x[:6] for x in states("14")))
    together = voltages(solve_all(factors, given))
    p, q, v_set = (x.astype(np.float32) for x in (given.s.real, given.s.imag, given.v_set))
    single = jax.jit(solve_meshed)
    alone = np.stack([voltages(single(factors, *row)) for row in zip(p, q, v_set, strict=True)])
    inner = jax.vmap(solve_meshed, in_axes=(None, 0, 0, 0))
    nested = jax.jit(jax.vmap(inner, in_axes=(None, 0, 0, 0)))
    folded = voltages(nested(factors, *(x.reshape(2, 3, -1) for x in (p, q, v_set)))).reshape(6, -1)
    for other in (alone, folded):
        assert np.abs(other - together).max() <= tolerance("v_pu", "float32")


@pytest.mark.long
def test_fixed_steps_tell_who_is_done_without_a_fallback() -> None:
    """A number of steps that suffices gives the self-stopping solution; bad lanes are told apart without a fallback."""
    known, factors = meshed_case("14", LANES - 1), factors_of("14", "float32")
    plain = solve_all(factors, known.states)
    enough = int(plain.iterations.max())
    p, q, v_set = (x.astype(np.float32) for x in (known.states.s.real, known.states.s.imag, known.states.v_set))
    p[3], q[5], p[BAD] = np.nan, np.inf, 50 * p[BAD]
    bad = {3: Status.BAD_INPUT, 5: Status.BAD_INPUT, BAD: Status.OUT_OF_STEPS}
    solve = jax.jit(jax.vmap(lambda *one: solve_meshed(factors, *one, fixed_steps=enough)))
    found = jax.tree.map(np.asarray, solve(p, q, v_set))
    np.testing.assert_array_equal(found.status, [bad.get(k, Status.CONVERGED) for k in range(LANES)])
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(found))
    good = np.setdiff1d(np.arange(LANES), list(bad))
    assert np.abs(voltages(found) - voltages(plain))[good].max() <= tolerance("v_pu", "float32")


def test_other_values_of_a_meshed_network_compile_nothing_new() -> None:
    factors, given = factors_of("14", "float32"), states("14")
    first = lane(solve_all(factors, given), 0)
    before = len(TRACED)
    assert before > 0
    second = lane(solve_all(factors, MeshedStates(1.01 * given.s, given.v_set)), 0)
    assert len(TRACED) == before
    assert first.p_loss != second.p_loss
