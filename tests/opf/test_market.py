"""Clearing, elastic demand, reserve and settlement, against hand numbers and HiGHS."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.cases import Case
from powerzoo_jax.cases.library import load_case
from powerzoo_jax.opf import (
    Bids,
    DcOpfFactors,
    OpfStatus,
    capped_offers,
    case_offers,
    clear_market,
    dc_opf,
    make_cost_segments,
    prepare_dc_opf,
    ramp_window,
)
from tests.references.opf_dc import clear_with_highs

clear = jax.jit(clear_market)
dispatch = jax.jit(dc_opf)

FIRST_ROW = np.array([0.0, 300, 300, 400, 0])
TRUTHFUL = 603.495 * np.array([0.0, 0.3, 0.3, 0.4, 0])


@pytest.fixture
def case5() -> Iterator[DcOpfFactors]:
    with jax.enable_x64(True):
        yield prepare_dc_opf(load_case("pz_case5"), dtype="float64")


def test_truthful_offers_are_paid_as_published(case5: DcOpfFactors) -> None:
    """Spec 07 section 4, third row: must-run output below the price loses money."""
    out = clear(case5, make_cost_segments(load_case("pz_case5"), 3, "float64"), jnp.asarray(TRUTHFUL))
    np.testing.assert_allclose(0.5 * out.settlement.unit_profit, [-10, -25, -200, -150, 0], atol=1e-6)
    np.testing.assert_allclose(out.dispatch.lmp, 10, atol=1e-7)
    assert float(out.true_cost) == pytest.approx(6804.95, rel=1e-9)
    assert float(out.mean_price) == pytest.approx(10)
    assert abs(float(out.settlement.congestion_rent)) < 1e-5


def test_the_congestion_rent_is_the_rating_times_its_price(case5: DcOpfFactors) -> None:
    out = clear(case5, case5.offers, jnp.asarray(FIRST_ROW))
    by_lines = float(jnp.sum(out.dispatch.line_price * jnp.abs(out.dispatch.line_flow_mw)))
    assert by_lines > 1000
    assert float(out.settlement.congestion_rent) == pytest.approx(by_lines, rel=1e-9)


@pytest.mark.full
def test_a_price_is_the_cost_of_one_more_megawatt_at_its_bus(case5: DcOpfFactors) -> None:
    load, solve = jnp.asarray(FIRST_ROW), jax.jit(lambda d: dc_opf(case5, d))
    base = solve(load)
    for bus in range(5):
        more = solve(load.at[bus].add(0.1))
        assert float((more.objective - base.objective) / 0.1) == pytest.approx(float(base.lmp[bus]), rel=1e-6)


@pytest.mark.full
def test_five_segments_with_markups_clear_as_in_highs(case5: DcOpfFactors) -> None:
    case, rng = load_case("pz_case5"), np.random.default_rng(4)
    offers = capped_offers(make_cost_segments(case, 5, "float64"), jnp.asarray(rng.uniform(0, 2, (5, 5))))
    assert (np.diff(np.asarray(offers.price), axis=1) >= 0).all()
    previous = jnp.array([30.0, 100, 300, 60, 500])
    low, high = ramp_window(previous, 0.3 * case5.p_max_mw, 0.1 * case5.p_max_mw, case5.p_min_mw, case5.p_max_mw)
    out = clear(case5, offers, jnp.asarray(FIRST_ROW), p_min_mw=low, p_max_mw=high)
    # HiGHS sees every block as a unit of its own: cut from below and above in offer order
    width, start = np.asarray(offers.width_mw), np.asarray(offers.base_mw)[:, None]
    edges = start + np.c_[np.zeros(5), np.cumsum(width, 1)]
    cut = np.clip(edges, np.asarray(low)[:, None], np.asarray(high)[:, None])
    price = np.asarray(offers.price)
    cheapest = np.sum(price * (np.clip(edges, None, np.asarray(low)[:, None])[:, 1:] - edges[:, :-1]).clip(0), 1)
    expected = _blocks_in_highs(case, FIRST_ROW, np.asarray(low), np.diff(cut, axis=1), price)
    fixed = float(np.sum(np.asarray(offers.base_cost) + cheapest))
    assert out.dispatch.status == OpfStatus.OPTIMAL
    assert float(out.dispatch.objective) == pytest.approx(expected + fixed, rel=1e-8)
    assert (np.asarray(out.dispatch.unit_power_mw) >= np.asarray(low) - 1e-6).all()
    assert float(out.ramp_binding) > 0


def _blocks_in_highs(case: Case, load: np.ndarray, low: np.ndarray, width: np.ndarray, price: np.ndarray) -> float:
    blocks = width.shape[1]
    rows = {f.name: np.repeat(getattr(case.unit, f.name), blocks, axis=0) for f in dataclasses.fields(case.unit)}
    split = dataclasses.replace(case, unit=type(case.unit)(**rows))
    rest = load.copy()
    np.add.at(rest, case.positions(case.unit.bus_id), -low)
    zero = np.zeros(width.size)
    # the must-run part stands in the load, so loads are shed up to what they were: nothing is shed here
    return clear_with_highs(split, rest, price.ravel(), low=zero, high=width.ravel(), voll=1000.0).cost


@pytest.mark.full
def test_elastic_demand_buys_below_its_value_and_sets_the_price_at_the_margin(case5: DcOpfFactors) -> None:
    """Bus 3 pays 30: of blocks worth 35 and 20 the first is bought whole, the second not at all."""
    bids = Bids(bus=jnp.array([2], jnp.int32), width_mw=jnp.array([[50.0, 50.0]]), price=jnp.array([[35.0, 20.0]]))
    out = clear(case5, case5.offers, jnp.asarray(FIRST_ROW), bids=bids)
    inelastic = dispatch(case5, jnp.asarray(FIRST_ROW).at[2].add(50))
    np.testing.assert_allclose(out.dispatch.bid_mw, [[50, 0]], atol=1e-6)
    np.testing.assert_allclose(out.dispatch.unit_power_mw, inelastic.unit_power_mw, atol=1e-5)
    # welfare: what the buyer values is taken off the objective
    assert float(out.dispatch.objective) == pytest.approx(float(inelastic.objective) - 35 * 50, rel=1e-9)
    marginal = Bids(bus=jnp.array([2], jnp.int32), width_mw=jnp.array([[1000.0]]), price=jnp.array([[31.0]]))
    at_margin = clear(case5, case5.offers, jnp.asarray(FIRST_ROW), bids=marginal)
    assert float(at_margin.dispatch.lmp[2]) == pytest.approx(31, rel=1e-6)


def test_scarcity_is_priced_at_the_cap_where_load_is_shed(case5: DcOpfFactors) -> None:
    out = clear(case5, case5.offers, jnp.asarray(1600 * np.array([0.0, 0.3, 0.3, 0.4, 0])))
    short = np.asarray(out.dispatch.shed_mw) > 1e-3
    assert short.tolist() == [False, False, False, True, False]
    np.testing.assert_allclose(np.asarray(out.dispatch.lmp)[short], 1000, rtol=1e-6)
    np.testing.assert_allclose(out.dispatch.unit_power_mw, [40, 170, 520, 200, 542.5297], atol=1e-3)


@pytest.mark.full
def test_required_reserve_moves_dispatch_and_missing_reserve_is_priced() -> None:
    """Two units of 520 and 600 MW carry 900 MW: 220 MW of headroom, whatever the dispatch."""
    case = load_case("pz_case5")
    with jax.enable_x64(True):
        factors = prepare_dc_opf(case, rate_mva=np.zeros(6), dtype="float64")
        on = jnp.array([False, False, True, False, True])
        load = jnp.asarray(900 * np.array([0.0, 0.3, 0.3, 0.4, 0]))
        solve = jax.jit(lambda need: dc_opf(factors, load, commitment=on, reserve_mw=need, reserve_price=7.0))
        enough, short = solve(jnp.asarray(200.0)), solve(jnp.asarray(250.0))
        assert float(enough.reserve_short_mw) == pytest.approx(0, abs=1e-6)
        assert float(short.reserve_short_mw) == pytest.approx(30, abs=1e-6)
        assert float(short.reserve_price) == pytest.approx(7, rel=1e-6)
        assert float(short.objective - enough.objective) == pytest.approx(210, rel=1e-6)
        assert float(enough.reserve_price) == pytest.approx(0, abs=1e-6)


@pytest.mark.full
def test_off_units_are_removed_entirely() -> None:
    case = load_case("pz_case5")
    with jax.enable_x64(True):
        factors = prepare_dc_opf(case, dtype="float64")
        out = dispatch(factors, jnp.asarray(FIRST_ROW), commitment=jnp.array([1, 0, 1, 0, 1]))
    assert np.asarray(out.unit_power_mw)[[1, 3]].tolist() == [0.0, 0.0]
    high = np.where([1, 0, 1, 0, 1], case.unit.p_max_mw, 0)
    low = np.where([1, 0, 1, 0, 1], case.unit.p_min_mw, 0)
    expected = clear_with_highs(case, FIRST_ROW, case.unit.cost[:, 0], low=low, high=high)
    assert float(out.objective) == pytest.approx(expected.cost, rel=1e-8)
    np.testing.assert_allclose(out.lmp, expected.lmp, rtol=1e-6)


def test_surplus_of_must_run_output_is_spilled_and_priced(case5: DcOpfFactors) -> None:
    out = dispatch(case5, jnp.asarray([0.0, 10, 10, 20, 0]))
    assert float(out.spill_mw.sum()) == pytest.approx(25, abs=1e-6)
    np.testing.assert_allclose(out.lmp, -500, rtol=1e-6)
    assert float(out.objective) == pytest.approx(float(out.generation_cost) + 500 * 25, rel=1e-9)


@pytest.mark.full
def test_case_offers_cost_what_the_case_says() -> None:
    case = load_case("case9")
    with jax.enable_x64(True):
        offers = case_offers(case, "float64")
        factors = prepare_dc_opf(case, dtype="float64")
        out = dispatch(factors, jnp.asarray(case.p_load_mw))
        p = np.asarray(out.unit_power_mw)
    expected = sum(np.polyval(case.unit.cost[g, :3], p[g]) for g in range(3))
    assert float(out.generation_cost) == pytest.approx(expected, rel=1e-12)
    assert offers.width_mw.shape == (3, 1)
