"""Distributed slack against pandapower's recorded states, the laws, and central differences of the reference."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.base.errors import CaseError
from powerzoo_jax.base.npz import read_npz
from powerzoo_jax.cases.library import load_case
from powerzoo_jax.powerflow import MeshedResult, Status, check_meshed, slack_share, solve_meshed
from tests.recorders.record_slack import DATA, bus_weights, slack_states
from tests.references.meshed import MeshedStates, branch_flows, build_meshed, solve_base_state, solve_states
from tests.references.meshed_cases import factors_of, lane
from tests.tolerances import tolerance

pytestmark = pytest.mark.reference

# A program costs seconds to compile: both dtypes, a small case and the one with the most marginal losses.
SUITE = (("14", "float64"), ("118", "float32"), ("300", "float64"))
EXPECTED = read_npz(DATA / "expected.npz")
STEP = 1e-4


@cache
def _program() -> Any:
    def solve(factors: Any, p: Any, q: Any, v: Any, share: Any, max_steps: int) -> MeshedResult:
        return solve_meshed(factors, p, q, v, slack_share=share, max_steps=max_steps)

    return jax.jit(
        lambda factors, *given, max_steps=30: jax.vmap(
            lambda *one: solve(factors, *one, max_steps),
        )(*given),
        static_argnames="max_steps",
    )


def solve(name: str, dtype: str, states: MeshedStates, share: np.ndarray, **options: int) -> MeshedResult:
    with jax.enable_x64(dtype == "float64"):
        given = (states.s.real, states.s.imag, states.v_set, np.broadcast_to(share, states.v_set.shape))
        result = _program()(factors_of(name, dtype), *(x.astype(dtype) for x in given), **options)
        return jax.tree.map(np.asarray, result)


@cache
def solved(name: str, dtype: str) -> MeshedResult:
    case = load_case(name)
    return solve(name, dtype, slack_states(case), bus_weights(case))


def recorded(name: str, key: str) -> np.ndarray:
    return EXPECTED[f"case{name}.{key}"]


@pytest.mark.tiers("long", full=["14-float64"])
@pytest.mark.parametrize(("name", "dtype"), SUITE)
def test_a_distributed_slack_ends_where_pandapower_does(name: str, dtype: str) -> None:
    result = solved(name, dtype)
    assert np.all(result.status == Status.CONVERGED)
    assert np.abs(np.hypot(result.v_re, result.v_im) - recorded(name, "v_pu")).max() <= tolerance("v_pu", dtype)
    turn = np.arctan2(result.v_im, result.v_re) - recorded(name, "angle_rad")
    assert np.abs(turn).max() <= tolerance("angle_rad", dtype)
    added = np.abs(result.p_added - recorded(name, "p_added")).max()
    assert added <= tolerance("meshed_kcl_pu", dtype)
    # what is shared is worth the name: a tenth of the load and more
    assert np.abs(recorded(name, "p_added").sum(1)).max() > 0.1


@pytest.mark.tiers("full", long=["118-float32"])
@pytest.mark.parametrize(("name", "dtype"), SUITE[:2])
def test_the_laws_hold_with_the_power_that_buses_add(name: str, dtype: str) -> None:
    case, result = load_case(name), solved(name, dtype)
    for k, s in enumerate(slack_states(case).s):
        one = lane(result, k)
        found = check_meshed(case, s.real + one.p_added, s.imag, one)
        assert max(found) <= tolerance("meshed_kcl_pu", dtype)
        assert one.p_slack == pytest.approx((s.real + one.p_added)[case.slack_bus[0]], abs=1e-6)


@pytest.mark.long
def test_newton_shares_the_slack_as_the_chord_does() -> None:
    case = load_case("14")
    plain = solved("14", "float64")
    other = solve("14", "float64", slack_states(case), bus_weights(case), max_steps=1)
    assert np.all(other.status == Status.CONVERGED)
    for name in ("v_re", "v_im", "p_added"):
        np.testing.assert_allclose(getattr(other, name), getattr(plain, name), rtol=0, atol=1e-8)


@pytest.mark.long
def test_weights_need_no_norm_and_none_at_all_means_the_slack_alone() -> None:
    case = load_case("14")
    states, share = slack_states(case), bus_weights(case)
    rows = np.stack([share, 7 * share, 0 * share, np.where(share > 0, np.nan, share)])
    result = solve("14", "float64", MeshedStates(*(np.repeat(x[3:], 4, 0) for x in states)), rows)
    for name in ("v_re", "v_im", "p_added"):
        np.testing.assert_allclose(getattr(result, name)[1], getattr(result, name)[0], rtol=0, atol=1e-12)
    alone = np.delete(result.p_added[2], case.slack_bus[0])
    assert np.all(alone == 0) and result.p_added[2, case.slack_bus[0]] != 0
    assert result.status[3] == Status.BAD_INPUT
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(result))


def of_reference(name: str, given: np.ndarray) -> np.ndarray:
    """Shared power, losses, and weighted flows and voltages, from single-slack solves until the slack has its share."""
    case = load_case(name)
    net = build_meshed(case)
    p, q, v_set, share = given
    share, start, power = share / share.sum(), solve_base_state(case, net), 0.0
    for _ in range(30):
        s = p + share * power + 1j * q
        found = solve_states(net, MeshedStates(s[None], v_set[None]), start, tol=1e-13)
        flow = branch_flows(net, found.v)
        lack = flow.slack[0].real - s[net.slack].real
        start, power = found.v[0], power + lack
        if abs(lack) < 1e-13:
            break
    v, lines = found.v[0], np.linspace(0.5, 1.5, flow.s_from.shape[1])
    buses = np.linspace(0.5, 1.5, v.size)
    flows = np.sum(lines * (flow.s_from[0].real + 0.7 * flow.s_from[0].imag))
    return np.array([power, flow.loss[0].real, flows, np.sum(buses * (v.real + 0.5 * v.imag))])


def of_result(r: MeshedResult) -> jax.Array:
    lines, buses = (jnp.linspace(0.5, 1.5, x.size) for x in (r.p_from, r.v_re))
    flows = jnp.sum(lines * (r.p_from + 0.7 * r.q_from))
    return jnp.stack([jnp.sum(r.p_added), r.p_loss, flows, jnp.sum(buses * (r.v_re + 0.5 * r.v_im))])


@pytest.mark.long
def test_derivatives_with_a_shared_slack_match_central_differences() -> None:
    """Of a second lane near collapse the sweeps stall and the fresh factorisation of the bordered system takes over."""
    states, share = slack_states(load_case("14")), bus_weights(load_case("14"))
    s, v_set = states.s[3], states.v_set[3]
    at = np.stack([np.stack([load * s.real, load * s.imag, v_set, share]) for load in (1.0, 3.6)])
    along = np.random.default_rng(4).normal(size=at.shape) * np.array([0.1, 0.1, 0.1, 0.05])[:, None]
    along[:, 3] *= share > 0
    with jax.enable_x64(True):
        factors = factors_of("14", "float64")

        def quantities(given: jax.Array) -> jax.Array:
            p, q, v_set, share = given
            return of_result(solve_meshed(factors, p, q, v_set, slack_share=share))

        def derivatives(given: jax.Array, by: jax.Array) -> Any:
            return jax.jvp(quantities, (given,), (by,)), jax.jacrev(quantities)(given)

        found = jax.jit(jax.vmap(derivatives))(at, along)
        (value, slope), rows = jax.tree.map(np.asarray, found)
    for k, (given, by) in enumerate(zip(at, along, strict=True)):
        numeric = (of_reference("14", given + STEP * by) - of_reference("14", given - STEP * by)) / (2 * STEP)
        limit = tolerance("gradient_relative", "float64") * np.abs(numeric).max()
        np.testing.assert_allclose(value[k], of_reference("14", given), rtol=0, atol=1e-8)
        assert np.abs(slope[k] - numeric).max() <= limit
        assert np.abs(np.sum(rows[k] * by, (1, 2)) - numeric).max() <= limit


def test_participation_follows_capacity_headroom_or_given_weights() -> None:
    case = load_case("9")  # units of 250, 300 and 270 MW that give 0, 163 and 85 MW (72.3 at the slack of some files)
    at = case.positions(case.unit.bus_id)
    capacity = slack_share(case)
    np.testing.assert_allclose(capacity[at], np.array([250, 300, 270]) / 820)
    room = np.array([250, 300, 270]) - case.unit.p_mw
    np.testing.assert_allclose(slack_share(case, "headroom")[at], room / room.sum())
    unit = dataclasses.replace(case.unit, in_service=np.array([True, False, True]))
    np.testing.assert_allclose(slack_share(dataclasses.replace(case, unit=unit), np.ones(3))[at], [0.5, 0, 0.5])


def test_weights_that_cannot_be_are_refused_by_name() -> None:
    case = load_case("9")
    with pytest.raises(CaseError, match="shape"):
        slack_share(case, np.ones(2))
    with pytest.raises(CaseError, match="unit 1"):
        slack_share(case, np.array([1.0, -1.0, 1.0]))
    with pytest.raises(CaseError, match="no unit"):
        slack_share(case, np.zeros(3))
