"""Economic dispatch against linear programs of its own, and the laws of equal incremental cost."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog

import powerzoo_jax
from powerzoo_jax.families.transmission.plan import economic as economic_module
from powerzoo_jax.families.transmission.plan import policies
from powerzoo_jax.families.transmission.plan.dispatch import LEAST, MOST, host_system
from powerzoo_jax.families.transmission.plan.economic import economic_curve, equal_incremental
from powerzoo_jax.families.transmission.plan.policies import KEPT_MW
from powerzoo_jax.oracle import evaluate_baseline, get_baselines
from powerzoo_jax.tasks.score import seeded_starts

pytestmark = pytest.mark.reference

PIECES = 60  # of a unit's cost in the programs
CLOSE = 1e-3  # relative: of a cost in so many straight pieces
PAIRS = 0.06  # relative: what relief by pairs of units may cost beyond the optimum of the same level of scores
SCORES = 0.08  # relative: the same beyond dispatches that no scores reach
BALANCED_MW = 0.05  # float32, of 54 units and some 4,000 MW
EQUAL_USD = 1e-2  # per MWh, between marginal costs of units off their limits
SHARES = (0.2, 0.35, 0.5, 0.62, 0.7)  # of all upper limits


@pytest.fixture(scope="module")
def sim():
    return powerzoo_jax.make("opf_118", split="val")


@pytest.fixture(scope="module")
def step():
    """Equal incremental cost, compiled."""
    return jax.jit(equal_incremental)


def least_cost(system, load, low, high, lines):
    """Cost [USD/h] of the best dispatch of a load, by HiGHS on straight pieces; `lines` keeps the ratings."""
    edges = np.linspace(low, high, PIECES + 1, axis=1) - system.costs.base_mw[:, None]
    money = system.costs.base_cost[:, None] + (system.costs.price + 0.5 * system.costs.slope * edges) * edges
    width = np.diff(edges, axis=1)
    price = np.where(width > 0, np.diff(money, axis=1) / np.where(width > 0, width, 1), 0)
    of_piece = np.repeat(system.of_unit, PIECES, axis=1)
    still = system.of_unit @ low - system.of_load * (load - system.shunt_mw) + system.fixed_mw
    rated = system.rate_mw > 0
    rows = np.concatenate([of_piece[rated], -of_piece[rated]]) if lines else None
    most = np.concatenate([(system.rate_mw - still)[rated], (system.rate_mw + still)[rated]]) if lines else None
    found = linprog(
        price.ravel(),
        A_ub=rows,
        b_ub=most,
        A_eq=np.ones((1, price.size)),
        b_eq=[load - low.sum()],
        bounds=np.column_stack([np.zeros(price.size), width.ravel()]),
        method="highs",
    )
    assert found.status == 0, found.message
    return found.fun + money[:, 0].sum()


def played(step, sim, load, low, high):
    dtype = sim.params.voll.dtype
    p, cost = step(sim.params, *(jnp.asarray(x, dtype) for x in (load, low, high)))
    return np.asarray(p, np.float64), float(cost)


@pytest.mark.parametrize("share", SHARES)
def test_units_off_their_limits_share_one_incremental_cost_and_no_dispatch_costs_less(sim, step, share):
    system = host_system(sim)
    low, high = 0.1 * system.high_mw, 0.9 * system.high_mw
    load = share * system.high_mw.sum()
    p, cost = played(step, sim, load, low, high)
    assert abs(p.sum() - load) < BALANCED_MW and (p >= low - 1e-3).all() and (p <= high + 1e-3).all()
    marginal = system.costs.price[:, 0] + system.costs.slope[:, 0] * (p - system.costs.base_mw)
    lowest, highest = p < low + 1e-2, p > high - 1e-2
    free = marginal[~lowest & ~highest]
    assert len(free) and np.ptp(free) < EQUAL_USD
    # one that costs less is full, one that costs more stands at its lower limit
    assert (marginal[lowest] > free.min() - EQUAL_USD).all() and (marginal[highest] < free.max() + EQUAL_USD).all()
    assert cost == pytest.approx(least_cost(system, load, low, high, lines=False), rel=CLOSE)


def test_units_at_one_flat_price_share_what_the_cheaper_ones_leave(sim, step):
    """Prices 20, 30 and 40 without slopes, by hand: the second kind is marginal."""
    offers = sim.params.offers
    n = offers.base_mw.shape[0]
    price = jnp.asarray(np.resize([20.0, 30.0, 40.0], n)[:, None], offers.price.dtype)
    flat = sim.params.replace(offers=offers.replace(price=price, slope=jnp.zeros_like(offers.slope)))
    high = np.asarray(offers.width_mw[:, 0], np.float64)
    cheap, middle = high[0::3].sum(), high[1::3].sum()
    p, _ = step(flat, jnp.float32(cheap + 0.5 * middle), jnp.zeros(n), jnp.asarray(high, jnp.float32))
    np.testing.assert_allclose(p[0::3], high[0::3], rtol=1e-5)
    np.testing.assert_allclose(p[1::3], 0.5 * high[1::3], rtol=1e-3)
    np.testing.assert_allclose(p[2::3], 0.0, atol=1e-3)


def test_a_load_beyond_all_limits_leaves_units_at_them_and_is_priced(sim, step):
    system = host_system(sim)
    low, high = 0.2 * system.high_mw, 0.8 * system.high_mw
    for load, limit, price in ((high.sum() + 10, high, system.voll), (low.sum() - 10, low, system.surplus_price)):
        p, cost = played(step, sim, load, low, high)
        np.testing.assert_allclose(p, limit, rtol=1e-5)
        money = system.cost(np.ones(len(p), bool), limit, limit.sum())
        assert cost - money == pytest.approx(10 * price, rel=0.01)


@pytest.mark.full
def test_where_lines_bind_the_rule_keeps_them_at_little_more_than_the_least_cost(sim):
    system, on = host_system(sim), np.ones(sim.env.dims.unit, bool)
    grid = np.linspace(0.25, 0.6, 6) * system.high_mw.sum()
    secure, blind = (economic_curve(sim, grid, secure=which) for which in (True, False))
    room = system.high_mw - system.low_mw
    bind = system.overload(blind.p_mw, grid) > 1.0
    assert bind.sum() >= 2 and (~bind).any()
    np.testing.assert_allclose(secure.p_mw[~bind], blind.p_mw[~bind], atol=0.5)
    np.testing.assert_array_less(system.overload(secure.p_mw, grid), KEPT_MW + 1e-6)
    for load, p, level, binds in zip(grid, secure.p_mw, secure.level_mw, bind, strict=True):
        box = system.low_mw + np.minimum(room, LEAST * level), system.low_mw + np.minimum(room, MOST * level)
        cost = float(system.cost(on, p, np.array(load)))
        for limits, most in ((box, PAIRS), ((system.low_mw, system.high_mw), SCORES)):
            least = least_cost(system, load, *limits, lines=True)
            assert least * (1 - CLOSE) < cost < least * (1 + most), (load, binds)


@pytest.mark.full
def test_scores_reach_the_table_and_its_dispatches_keep_the_ratings_between_its_loads(sim):
    system = host_system(sim)
    grid = np.linspace(0.3, 0.6, 9) * system.high_mw.sum()
    curve, load = economic_curve(sim, grid), np.linspace(grid[0], grid[-1], 50)
    p, level = curve.at(load)
    np.testing.assert_allclose(p.sum(axis=1), load, atol=BALANCED_MW)
    assert (system.overload(p, load) < 0.1).all()
    assert (p - system.low_mw <= MOST * level[:, None] * (1 + 1e-6)).all()
    least = np.minimum(LEAST * level[:, None], system.high_mw - system.low_mw)
    assert (p - system.low_mw >= least - 0.05).all()
    blind = economic_curve(sim, grid, secure=False)
    assert system.overload(blind.p_mw, grid).max() > 10


@pytest.mark.full
def test_the_rule_stands_between_merit_order_under_the_lines_and_the_oracle_far_within_the_budgets(sim, monkeypatch):
    for module in (policies, economic_module):
        monkeypatch.setattr(module, "GRID", 33)
    draws = seeded_starts(sim, 1)
    names = (*get_baselines("opf_118").rules, "oracle")
    found = {name: evaluate_baseline(sim, name, draws=draws) for name in names}
    mean = {name: record.mean_reward for name, record in found.items()}
    assert mean["no_control"] < mean["secure_merit"] < mean["rule"] < mean["oracle"]
    over = {name: record.mean_costs_by_constraint["thermal_overload"] for name, record in found.items()}
    budget = sim.spec.cost_budget[0]
    assert max(over["rule"], over["secure_merit"]) < 0.01 * budget and min(over["merit"], over["economic"]) > budget
    assert found["rule"].mean_costs_by_constraint["unserved_energy"] == 0
