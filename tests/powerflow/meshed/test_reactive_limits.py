"""Q limits of PV buses against pandapower's recorded ends, and against the law that they obey on random states."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.base.errors import SolverError
from powerzoo_jax.base.npz import read_npz
from powerzoo_jax.cases import Case
from powerzoo_jax.cases.library import load_case
from powerzoo_jax.powerflow import (
    MeshedFactors,
    ReactiveLimits,
    ReactiveResult,
    Status,
    prepare_meshed,
    prepare_reactive,
    solve_within_reactive_limits,
    split_reactive,
)
from tests.recorders.record_reactive import DATA, ReactiveStates, pv_positions, q_range, reactive_states
from tests.references.meshed import (
    MeshedNetwork,
    MeshedStates,
    base_state,
    branch_flows,
    build_meshed,
    draw_states,
    solve_base_state,
    solve_states,
)
from tests.tolerances import tolerance

pytestmark = [pytest.mark.reference, pytest.mark.full]

# A program costs seconds to compile: every case once, both dtypes on a small and on a large case.
SUITE = (("14", "float64"), ("30", "float32"), ("57", "float64"), ("118", "float32"))
ROUNDS = 30
EXPECTED = read_npz(DATA / "expected.npz")


class Prepared(NamedTuple):
    """A case in one dtype, the reference's view of it, PV positions and limits (m,) [pu], and the recorded inputs."""

    case: Case
    dtype: str
    factors: MeshedFactors
    limits: ReactiveLimits
    net: MeshedNetwork
    v_base: np.ndarray
    at: np.ndarray
    low: np.ndarray
    high: np.ndarray
    states: ReactiveStates

    def solve(self, states: ReactiveStates, rounds: int = ROUNDS) -> ReactiveResult:
        with jax.enable_x64(self.dtype == "float64"):
            given = (x.astype(self.dtype) for x in states)
            return jax.tree.map(np.asarray, _program()(self.factors, self.limits, *given, np.int32(rounds)))


class Recorded(NamedTuple):
    """What pandapower ended with, and the states (B,) whose voltages all lie on the side of their limit."""

    v: np.ndarray
    q: np.ndarray
    at_limit: np.ndarray
    lawful: np.ndarray


@cache
def _program() -> Callable[..., Any]:
    def solve(factors: Any, limits: Any, p: Any, q: Any, v: Any, rounds: Any) -> ReactiveResult:
        return solve_within_reactive_limits(factors, limits, p, q, v, rounds=rounds)

    return jax.jit(jax.vmap(solve, in_axes=(None, None, 0, 0, 0, None)))


@cache
def prepared(name: str, dtype: str) -> Prepared:
    case = load_case(name)
    net = build_meshed(case)
    with jax.enable_x64(dtype == "float64"):
        factors = prepare_meshed(case, dtype=dtype)
        limits = prepare_reactive(case, factors)
    inputs = (net, solve_base_state(case, net), pv_positions(case), *q_range(case), reactive_states(case))
    return Prepared(case, dtype, factors, limits, *inputs)


@cache
def solved(name: str, dtype: str) -> ReactiveResult:
    known = prepared(name, dtype)
    return known.solve(known.states)


@pytest.fixture(params=SUITE, ids=lambda key: f"{key[0]}-{key[1]}")
def known(request: pytest.FixtureRequest) -> Prepared:
    return prepared(*request.param)


def recorded(known: Prepared) -> Recorded:
    v, q, at_limit = (EXPECTED[f"{known.case.name}.{key}"] for key in ("v_pu", "q_unit_pu", "at_limit"))
    beyond = at_limit * (v[:, known.at] - known.states.v_set[:, known.at])
    return Recorded(v, q, at_limit, ~(beyond > 0).any(1))


def result_of(known: Prepared) -> ReactiveResult:
    return solved(known.case.name.removeprefix("case"), known.dtype)


def magnitudes(result: ReactiveResult) -> np.ndarray:
    return np.hypot(np.asarray(result.flow.v_re, float), result.flow.v_im)


def switched(known: Prepared, states: ReactiveStates, at_limit: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Voltages (B, N) of the reference with limited buses as PQ buses that inject their limit, one state at a time."""
    v = np.zeros(states.p.shape, complex)
    for k, limit in enumerate(at_limit):
        mag, s = known.net.mag.copy(), states.p[k] + 1j * states.q[k]
        mag[known.at] = limit != 0
        s[known.at] += 1j * np.select([limit > 0, limit < 0], [known.high, known.low])
        net = dataclasses.replace(known.net, mag=mag)
        found = solve_states(net, MeshedStates(s[None], states.v_set[k : k + 1]), start[k])
        assert found.converged[0]
        v[k] = found.v[0]
    return v


def assert_lawful(known: Prepared, states: ReactiveStates, result: ReactiveResult) -> None:
    """The reference, told which buses are at a limit, finds the same state, and in it every bus obeys the law."""
    start = np.asarray(result.flow.v_re, float) + 1j * np.asarray(result.flow.v_im, float)
    v = switched(known, states, result.at_limit, start)
    assert np.abs(np.abs(v) - magnitudes(result)).max() <= tolerance("v_pu", known.dtype)
    q = (v * np.conj((known.net.ybus @ v.T).T)).imag[:, known.at] - states.q[:, known.at]
    held = result.at_limit == 0
    slack = tolerance("meshed_kcl_pu", known.dtype)
    assert np.all((q <= known.high + slack) & (q >= known.low - slack) | ~held)
    beyond = result.at_limit * (np.abs(v[:, known.at]) - states.v_set[:, known.at])
    assert beyond.max() <= tolerance("v_pu", known.dtype)
    assert np.abs(q - result.q_pv).max() <= slack


@pytest.mark.long
def test_limits_end_in_the_sets_of_pandapower(known: Prepared) -> None:
    theirs, ours = recorded(known), result_of(known)
    assert theirs.lawful.sum() >= 10
    assert np.all(ours.flow.status == Status.CONVERGED)
    np.testing.assert_array_equal(ours.at_limit[theirs.lawful], theirs.at_limit[theirs.lawful])


@pytest.mark.tiers("long", full=["30-float32"])
def test_voltages_and_reactive_power_within_limits_match_pandapower(known: Prepared) -> None:
    theirs, ours = recorded(known), result_of(known)
    rows = theirs.lawful
    assert np.abs(magnitudes(ours) - theirs.v)[rows].max() <= tolerance("v_pu", known.dtype)
    assert np.abs(ours.q_pv - theirs.q)[rows].max() <= tolerance("meshed_kcl_pu", known.dtype)


@pytest.mark.long
def test_a_bus_whose_voltage_passed_its_set_point_comes_back() -> None:
    """pandapower keeps a limit once met; where that ends on the wrong side, ours must differ and obey the law."""
    known = prepared("118", "float32")
    theirs, ours = recorded(known), result_of(known)
    rows = np.flatnonzero(~theirs.lawful)
    came_back = (theirs.at_limit != 0) & (ours.at_limit == 0)
    assert came_back[rows].any(1).sum() >= 10
    assert (theirs.at_limit != ours.at_limit)[rows].any(1).all()
    states = ReactiveStates(*(x[rows] for x in known.states))
    assert_lawful(known, states, jax.tree.map(lambda x: x[rows], ours))


@pytest.mark.long
@pytest.mark.parametrize("key", [("57", "float64"), ("118", "float32")], ids=lambda key: key[0])
def test_random_states_obey_the_law_of_limits(key: tuple[str, str]) -> None:
    """Loads 0.5 to 1.5 times nominal and set-points off base, each on its own."""
    known = prepared(*key)
    count = len(known.states.p)
    drawn = draw_states(known.case, count, seed=5)
    q = drawn.s.imag.copy()
    units = base_state(known.case).s[0].imag + known.case.q_load_mvar / known.case.base_mva
    q[:, known.at] -= units[known.at]  # the units that hold a voltage are not part of it
    states = ReactiveStates(*(x.astype(np.float32).astype(float) for x in (drawn.s.real, q, drawn.v_set)))
    result = known.solve(states)
    assert np.all(result.flow.status == Status.CONVERGED)
    assert (result.at_limit > 0).any() and (result.at_limit < 0).any()
    assert_lawful(known, states, result)


@pytest.mark.long
def test_a_lane_without_rounds_left_is_not_converged() -> None:
    known = prepared("57", "float64")
    short, whole = known.solve(known.states, rounds=1), result_of(known)
    asked = np.any(whole.at_limit != 0, 1)
    assert 0 < asked.sum() < len(asked)
    np.testing.assert_array_equal(short.flow.status, np.where(asked, Status.OUT_OF_STEPS, Status.CONVERGED))
    assert short.solved.all()


@pytest.mark.long
def test_lanes_within_limits_do_not_see_their_neighbours() -> None:
    known = prepared("57", "float64")
    alone = result_of(known)
    p, q, v_set = (x.copy() for x in known.states)
    p[3], q[5], v_set[7] = np.nan, np.inf, np.nan
    p[11], q[11] = 40 * p[11], 40 * q[11]  # far beyond collapse
    bad = [3, 5, 7, 11]
    beside = known.solve(ReactiveStates(p, q, v_set))
    assert np.all(beside.flow.status[bad] != Status.CONVERGED) and not beside.solved[bad].any()
    good = np.setdiff1d(np.arange(len(p)), bad)
    for x, y in zip(jax.tree.leaves(alone), jax.tree.leaves(beside), strict=True):
        np.testing.assert_array_equal(x[good], y[good])
    assert np.isfinite(beside.q_pv).all() and np.isfinite(beside.flow.v_re).all()


def test_the_reactive_slope_is_a_central_difference() -> None:
    known, h = prepared("57", "float64"), 1e-5
    s, v_set = base_state(known.case)
    m = len(known.at)
    change = np.zeros((2 * m, known.case.n_bus))
    change[np.arange(m), known.at], change[m + np.arange(m), known.at] = h, -h
    states = MeshedStates(np.repeat(s, 2 * m, 0), v_set * np.exp(change))
    v = solve_states(known.net, states, known.v_base, 1e-11).v
    q = (v * np.conj((known.net.ybus @ v.T).T)).imag[:, known.at]
    slope = (q[:m] - q[m:]).T / (2 * h)
    assert (
        np.abs(np.asarray(known.limits.slope) - slope).max()
        <= tolerance("gradient_relative", "float64") * np.abs(slope).max()
    )


def of_reference(
    known: Prepared, given: np.ndarray, high: np.ndarray, at_limit: np.ndarray, v: np.ndarray
) -> np.ndarray:
    """Losses, slack power, weighted magnitudes and weighted reactive power of the PV buses, sets given."""
    states = ReactiveStates(*given[:, None])
    v = switched(known._replace(high=high), states, at_limit[None], v[None])
    flow = branch_flows(known.net, v)
    q = flow.injection[0].imag[known.at] - given[1][known.at]
    buses, units = np.linspace(0.5, 1.5, v.size), np.linspace(0.5, 1.5, q.size)
    return np.array([flow.loss[0].real, flow.slack[0].real, np.sum(buses * np.abs(v[0])), np.sum(units * q)])


@pytest.mark.long
def test_derivatives_within_limits_match_central_differences() -> None:
    """By injections, set-points and upper limits, forward and reverse, on lanes with buses at either limit and none."""
    known, whole, h = prepared("14", "float64"), solved("14", "float64"), 1e-4
    held = whole.at_limit
    rows = [int(np.flatnonzero(x)[0]) for x in ((held > 0).any(1), (held < 0).any(1), (held == 0).all(1))]
    at = np.stack([x[rows] for x in known.states], 1)
    rng = np.random.default_rng(9)
    along, by_high = 0.1 * rng.normal(size=at.shape), 0.1 * rng.normal(size=(len(rows), known.high.size))
    with jax.enable_x64(True):

        def quantities(given: Any, high: Any) -> Any:
            limits = dataclasses.replace(known.limits, q_max=high)
            r = solve_within_reactive_limits(known.factors, limits, *given)
            buses, units = (jnp.linspace(0.5, 1.5, x.size) for x in (r.flow.v_re, r.q_pv))
            return jnp.stack([r.flow.p_loss, r.flow.p_slack, jnp.sum(buses * r.flow.v_pu), jnp.sum(units * r.q_pv)])

        def derivatives(given: Any, high: Any, by: Any, up: Any) -> Any:
            return jax.jvp(quantities, (given, high), (by, up))[1], jax.jacrev(quantities, (0, 1))(given, high)

        high = np.broadcast_to(known.high, by_high.shape)
        slope, turned = jax.tree.map(np.asarray, jax.jit(jax.vmap(derivatives))(at, high, along, by_high))
    for k, row in enumerate(rows):
        v = whole.flow.v_re[row] + 1j * whole.flow.v_im[row]
        up, down = (
            of_reference(known, at[k] + x * along[k], known.high + x * by_high[k], held[row], v) for x in (h, -h)
        )
        numeric = (up - down) / (2 * h)
        limit = tolerance("gradient_relative", "float64") * np.abs(numeric).max()
        assert np.abs(slope[k] - numeric).max() <= limit
        reverse = np.sum(turned[0][k] * along[k], (1, 2)) + np.sum(turned[1][k] * by_high[k], 1)
        assert np.abs(reverse - numeric).max() <= limit


def test_limits_sum_the_units_of_a_bus_and_split_back() -> None:
    """Bus 1 of the RTS has two units of 0 to 10 Mvar and two of -25 to 30."""
    case = load_case("24_ieee_rts")
    limits = prepare_reactive(case, prepare_meshed(case))
    first = int(np.flatnonzero(np.asarray(limits.bus) == case.positions(np.array([1]))[0])[0])
    assert limits.q_min[first] == pytest.approx(-0.5)
    assert limits.q_max[first] == pytest.approx(0.8)
    for share in (0.0, 0.3, 1.0):
        q = limits.q_min + np.float32(share) * (limits.q_max - limits.q_min)
        unit = np.asarray(split_reactive(limits, q))
        assert np.bincount(limits.at, unit) == pytest.approx(np.asarray(q), abs=1e-6)
        mine = sorted(unit[np.asarray(limits.at) == first])
        assert mine == pytest.approx(sorted([0.1 * share] * 2 + [-0.25 + 0.55 * share] * 2), abs=1e-6)


def test_limits_of_another_case_are_refused() -> None:
    with pytest.raises(SolverError, match="PV buses among 57"):
        prepare_reactive(load_case("14"), prepared("57", "float64").factors)
