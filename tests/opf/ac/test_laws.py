"""Laws of the AC-OPF: prices and derivatives are finite differences, nothing infeasible is called optimal."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.base.errors import CaseError
from powerzoo_jax.cases.library import load_case
from powerzoo_jax.cases.readers.matpower import read_matpower
from powerzoo_jax.opf import AcOpfFactors, AcOpfResult, OpfStatus, ac_opf, prepare_ac_opf, split_prices
from tests.references.opf_ac import admittances
from tests.tolerances import tolerance

pytestmark = pytest.mark.property

CASE = load_case("pz_case14")
RATE = 0.45 * CASE.branch.rate_a_mva  # so that branches bind
LANES = 16
STEP = 1e-2  # [MW], [Mvar], [MVA]


@cache
def factors(dtype: str) -> AcOpfFactors:
    with jax.enable_x64(dtype == "float64"):
        return prepare_ac_opf(CASE, dtype=dtype)


@cache
def program(shedding: bool) -> Any:
    one = lambda f, p, q, rate, on: ac_opf(f, p, q, rate_mva=rate, commitment=on, shedding=shedding)  # noqa: E731
    return jax.jit(jax.vmap(one, in_axes=(None, 0, 0, 0, 0)))


def solve(
    p: list[np.ndarray],
    q: list[np.ndarray],
    rate: list[np.ndarray],
    on: np.ndarray | None = None,
    *,
    dtype: str = "float64",
    shedding: bool = False,
    dearer: np.ndarray | None = None,
) -> AcOpfResult:
    """Solve up to LANES states in one program; the rest repeats the last. dearer: (G, 1) on the offers of all."""
    on = np.ones((LANES, CASE.n_unit)) if on is None else on

    def full(rows: list[np.ndarray]) -> np.ndarray:
        return np.stack(rows + [rows[-1]] * (LANES - len(rows)))

    with jax.enable_x64(dtype == "float64"):
        arrays = [jnp.asarray(x, dtype) for x in (full(p), full(q), full(rate), on)]
        given = factors(dtype)
        if dearer is not None:
            offers = dataclasses.replace(given.offers, price=given.offers.price + jnp.asarray(dearer))
            given = dataclasses.replace(given, offers=offers)
        return jax.tree.map(np.asarray, program(shedding)(given, *arrays))


P, Q = 1.1 * CASE.p_load_mw, 1.1 * CASE.q_load_mvar


def unit(size: int, k: int) -> np.ndarray:
    return STEP * (np.arange(size) == k)


@pytest.mark.long
def test_prices_are_what_one_more_mw_or_mvar_costs() -> None:
    buses = (2, 8, 13)
    p = [P + sign * unit(CASE.n_bus, k) for k in buses for sign in (1, -1)]
    q = [Q + sign * unit(CASE.n_bus, k) for k in buses for sign in (1, -1)]
    found = solve([*p, *[P] * len(q), P], [*[Q] * len(p), *q, Q], [RATE] * 13)
    assert found.optimal[:13].all()
    assert max(found.line_price_from[12].max(), found.line_price_to[12].max()) > 1e-3
    slope = (found.objective[0:12:2] - found.objective[1:12:2]) / (2 * STEP)
    prices = np.r_[found.lmp[12][list(buses)], found.lmp_reactive[12][list(buses)]]
    np.testing.assert_allclose(slope, prices, rtol=1e-4, atol=1e-4)


@pytest.mark.full
def test_derivatives_of_cost_and_prices_are_finite_differences() -> None:
    """Along one direction each through loads and ratings at once, and through offers: reverse mode and forward."""
    rng = np.random.default_rng(3)
    dp, dq, dr = rng.uniform(0.5, 1, CASE.n_bus), rng.uniform(-1, 1, CASE.n_bus), rng.uniform(-1, 1, CASE.n_branch)
    dc = rng.uniform(-1, 1, (CASE.n_unit, 1))
    moved = [s * STEP for s in (1, -1)]
    found = solve([P + s * dp for s in moved], [Q + s * dq for s in moved], [RATE + s * dr for s in moved])
    asked = [solve([P], [Q], [RATE], dearer=s * dc) for s in moved]
    assert found.optimal[:2].all() and all(out.optimal[0] for out in asked)
    with jax.enable_x64(True):
        base = factors("float64")
        at, along = ([jnp.asarray(x) for x in rows] for rows in ((P, Q, RATE, base.offers.price), (dp, dq, dr, dc)))

        def told(p: jax.Array, q: jax.Array, rate: jax.Array, price: jax.Array) -> tuple[jax.Array, ...]:
            offers = dataclasses.replace(base.offers, price=price)
            out = ac_opf(base, p, q, rate_mva=rate, offers=offers, shedding=False)
            return tuple(getattr(out, name) for name in FIELDS)

        slopes = jax.jit(jax.grad(lambda *args: told(*args)[0], argnums=(0, 1, 2, 3)))(*at)
        forward = jax.jit(lambda at, along: jax.jvp(told, tuple(at), tuple(along))[1])
        still = [jnp.zeros_like(x) for x in along]
        directions = [[*along[:3], still[3]], [*still[:3], along[3]]]
        got = [forward(at, direction) for direction in directions]
    pairs = [[(getattr(found, name)[0], getattr(found, name)[1]) for name in FIELDS]]
    pairs.append([tuple(getattr(out, name)[0] for out in asked) for name in FIELDS])
    for direction, tangents, ends in zip(directions, got, pairs, strict=True):
        expected = [(high - low) / (2 * STEP) for high, low in ends]
        reverse = sum(float(np.vdot(a, b)) for a, b in zip(slopes, direction, strict=True))
        assert abs(reverse / expected[0] - 1) <= 1e-5
        for tangent, want in zip(tangents, expected, strict=True):
            np.testing.assert_allclose(tangent, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())


FIELDS = ("objective", "lmp", "unit_power_mw")


@pytest.mark.long
def test_gradients_of_a_float32_program_are_the_prices() -> None:
    """Envelope theorem: the cost of one more MW or Mvar is the multiplier of its balance; reverse mode, two lanes."""
    with jax.enable_x64(False):
        base = factors("float32")
        p, q = (jnp.asarray(np.stack([x, 0.9 * x]), jnp.float32) for x in (P, Q))

        def cost(p: jax.Array, q: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
            out = ac_opf(base, p, q)
            return out.objective, (out.lmp, out.lmp_reactive)

        slopes, prices = jax.jit(jax.vmap(jax.grad(cost, argnums=(0, 1), has_aux=True)))(p, q)
    for slope, price in zip(slopes, prices, strict=True):
        assert slope.dtype == price.dtype == np.float32
        np.testing.assert_allclose(slope, price, atol=1e-4 * float(jnp.abs(prices[0]).max()))


VOLL = 10_000.0
SHORT = """function mpc = short
mpc.version = '2';
mpc.baseMVA = 100;
mpc.bus = [
  1 3 0  0  0 0 1 1 0 110 1 1.1 0.9;
  2 1 60 20 0 0 1 1 0 110 1 1.1 0.9;
  3 1 30 10 0 0 1 1 0 110 1 1.1 0.9;
];
mpc.gen = [1 0 0 80 -80 1 100 1 {capacity} 0];
mpc.branch = [
  1 2 0.01 0.06 0.02 {rate} 0 0 0 0 1 -360 360;
  2 3 0.02 0.08 0.02 0      0 0 0 0 1 -360 360;
];
mpc.gencost = [2 0 0 3 0.02 20 0];
"""


@pytest.mark.tiers("full", quick=["200-0"])
@pytest.mark.parametrize(("capacity", "rate"), [(200, 0), (50, 0), (200, 40)])
def test_prices_are_derivatives_of_the_cost_where_load_is_shed(tmp_path, capacity, rate) -> None:
    """What may be shed moves with the load: multipliers alone were 9,993 where a MW costs 9,999.9."""
    path = tmp_path / "short.m"
    path.write_text(SHORT.format(capacity=capacity, rate=rate))
    case, step_mw = read_matpower(path), 1e-3
    moved = np.concatenate([np.zeros((1, 6)), step_mw * np.eye(6), -step_mw * np.eye(6)])
    with jax.enable_x64(True):
        network = prepare_ac_opf(case, dtype=jnp.float64)
        p, q = jnp.asarray(case.p_load_mw + moved[:, :3]), jnp.asarray(case.q_load_mvar + moved[:, 3:])
        found = jax.jit(jax.vmap(lambda p, q: ac_opf(network, p, q, voll=VOLL)))(p, q)
    assert found.optimal.all() and (found.shed_mw[0].max() > 1) == (capacity < 90 or rate > 0)
    cost, prices = np.asarray(found.objective), np.concatenate([found.lmp[0], found.lmp_reactive[0]])
    sides = np.stack([(cost[1:7] - cost[0]) / step_mw, (cost[0] - cost[7:]) / step_mw])
    # nothing else bends within a watt, so that both sides agree to the curvature of the cost
    np.testing.assert_allclose(prices, sides.mean(axis=0), atol=2e-4 * VOLL)
    assert found.lmp[0].max() <= VOLL * (1 + 1e-6)


def test_load_that_is_shed_whole_costs_what_it_is_worth(tmp_path) -> None:
    """No unit can run: one more MW is shed at the value of lost load, whatever the multiplier of the balance."""
    path = tmp_path / "dark.m"
    path.write_text(SHORT.format(capacity=0, rate=0))
    case = read_matpower(path)
    with jax.enable_x64(True):
        network = prepare_ac_opf(case, dtype=jnp.float64)
        found = jax.jit(lambda p, q: ac_opf(network, p, q, voll=VOLL))(case.p_load_mw, case.q_load_mvar)
    np.testing.assert_allclose(found.shed_mw, case.p_load_mw, rtol=1e-4)
    np.testing.assert_allclose(found.lmp, VOLL, rtol=1e-6)
    np.testing.assert_allclose(found.lmp_reactive, 0, atol=1e-2)


@pytest.mark.long
def test_prices_split_into_energy_losses_congestion_and_voltage() -> None:
    """Delivered shares by their definition in NumPy: no move of an angle changes what they weigh injections to."""
    found = solve([P, P], [Q, Q], [RATE, 0 * RATE])
    with jax.enable_x64(True):
        parts = jax.tree.map(np.asarray, jax.jit(jax.vmap(split_prices, (None, 0)))(factors("float64"), found))
    total = parts.energy + parts.loss + parts.congestion + parts.voltage + parts.scarcity
    np.testing.assert_allclose(total, found.lmp, rtol=1e-6)
    slack = CASE.slack_bus[0]
    np.testing.assert_allclose(parts.energy[:2], found.lmp[:2, [slack]] * np.ones(CASE.n_bus), rtol=1e-9)
    assert np.abs(parts.congestion[1]).max() < 1e-5 < 0.1 < np.abs(parts.congestion[0]).max()
    assert np.abs(parts.voltage[1]).max() < 0.02 * found.lmp[1].max()  # reactive power is nearly free here
    y, turn = admittances(CASE)[0], 1e-6
    for lane in (0, 1):
        delivered = (1 + parts.loss / parts.energy)[lane]
        assert 0.01 < np.ptp(delivered) < 0.3
        v = found.v_pu[lane] * np.exp(1j * found.angle_rad[lane])
        for bus in np.setdiff1d(np.arange(CASE.n_bus), slack):
            ends = [v * np.exp(1j * sign * turn * (np.arange(CASE.n_bus) == bus)) for sign in (1, -1)]
            change = np.subtract(*((x * (y @ x).conj()).real for x in ends)) / (2 * turn)
            assert abs(delivered @ change) < 1e-6 * np.abs(change).sum()


@pytest.mark.full
def test_a_load_beyond_the_network_is_infeasible_without_shedding() -> None:
    found = solve([P, 4 * P, P], [Q, 4 * Q, Q], [RATE] * 3)
    assert found.status[1] == OpfStatus.INFEASIBLE
    assert found.optimal[[0, 2]].all()
    for x in jax.tree.leaves(found):
        assert np.isfinite(x).all()
        np.testing.assert_array_equal(x[0], x[2])  # a neighbour that fails does not change a lane


@pytest.mark.full
def test_a_float32_program_sheds_at_voll_stops_idle_units_and_flags_bad_loads() -> None:
    bad = P.copy()
    bad[3] = np.nan
    on = np.ones((LANES, CASE.n_unit))
    on[3, 1] = 0
    free = CASE.branch.rate_a_mva
    found = solve([P, 4 * P, bad, P], [Q, 4 * Q, Q, Q], [free] * 4, on, dtype="float32", shedding=True)
    exact = solve([P], [Q], [free])
    assert found.objective.dtype == np.float32
    assert found.status[:4].tolist() == [OpfStatus.OPTIMAL, OpfStatus.OPTIMAL, OpfStatus.BAD_INPUT, OpfStatus.OPTIMAL]
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(found))
    assert abs(found.objective[0] / exact.objective[0] - 1) <= tolerance("opf_cost_relative", "float32")
    assert found.shed_mw[0].max() < 1e-3
    between = (found.shed_mw[1] > 1) & (found.shed_mw[1] < 4 * P - 1)
    assert between.any()
    ratio = np.where(P > 0, Q / np.where(P > 0, P, 1), 0)
    worth = found.lmp[1] + ratio * found.lmp_reactive[1]  # shed load takes its reactive part with it
    np.testing.assert_allclose(worth[between], 10_000.0, rtol=1e-3)
    assert found.unit_power_mw[3, 1] == 0
    assert found.unit_reactive_mvar[3, 1] == 0


@pytest.mark.full
def test_a_cubic_cost_is_refused_with_the_name_of_its_unit() -> None:
    cost = np.tile([1e-4, 1e-2, 20.0, 0.0], (CASE.n_unit, 1))
    cost[[0, 1, 3, 4], 0] = 0
    table = dataclasses.replace(CASE.unit, cost=cost, cost_terms=np.full(CASE.n_unit, 4))
    with pytest.raises(CaseError, match="unit 3"):
        prepare_ac_opf(dataclasses.replace(CASE, unit=table))
