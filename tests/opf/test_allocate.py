"""Shares by score, merit order and slack against plain loops and hand numbers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from powerzoo_jax.opf.allocate import (
    allocate_by_merit,
    allocate_by_weight,
    balance_by_slack,
    score_weights,
    shed_by_load,
)

EXACT = {"float32": 2e-6, "float64": 1e-9}  # of the load: spec 05 section 3
BATCH = 400
both_precisions = pytest.mark.parametrize("dtype", EXACT)


def drawn(n_unit: int) -> tuple[np.ndarray, ...]:
    """Weights, lower and upper limits (B, G) and loads (B,): below, between and above the limits; units off."""
    rng = np.random.default_rng(n_unit)
    high = rng.uniform(20, 600, (BATCH, n_unit))
    low = high * rng.uniform(0, 0.6, (BATCH, n_unit))
    score = rng.uniform(-0.5, 1.5, (BATCH, n_unit))
    high = np.where(rng.random((BATCH, n_unit)) < 0.1, low, high)
    off = rng.random((BATCH, n_unit)) < 0.15
    low, high = np.where(off, 0, low), np.where(off, 0, high)
    share = rng.uniform(-0.2, 1.2, BATCH)
    load = low.sum(1) + share * (high - low).sum(1)
    return score, low, high, load


def in_rounds(score: np.ndarray, low: np.ndarray, high: np.ndarray, load: float) -> np.ndarray:
    """The words of the rule: share what is left among units with headroom until nothing is left."""
    weight = np.exp(3 * np.clip(score, 0.01, 1.0))
    p, left = low.copy(), load - low.sum()
    for _ in range(10 * len(low)):
        free = high - p > 0
        if left <= 1e-13 * load or not free.any():
            break
        give = np.where(free, np.minimum(left * weight / weight[free].sum(), high - p), 0)
        p, left = p + give, left - give.sum()
    return p


@both_precisions
@pytest.mark.parametrize("n_unit", [5, 54])
def test_shares_by_score_equal_the_rounds_that_define_them(n_unit, dtype):
    score, low, high, load = drawn(n_unit)
    with jax.enable_x64(dtype == "float64"):
        inputs = [jnp.asarray(x, dtype) for x in (score, low, high, load)]
        out = jax.jit(jax.vmap(lambda s, a, b, d: allocate_by_weight(score_weights(s), a, b, d)))(*inputs)
        score, low, high, load = (np.asarray(x, np.float64) for x in inputs)
    expected = np.stack([in_rounds(*row) for row in zip(score, low, high, load, strict=True)])
    scale = np.maximum(load, 1.0)[:, None]
    p, unserved, surplus = (np.asarray(x, np.float64) for x in (out.p_mw, out.unserved_mw, out.surplus_mw))
    np.testing.assert_array_less(np.abs(p - expected) / scale, EXACT[dtype])
    np.testing.assert_array_less(np.abs(p.sum(1) + unserved - surplus - load) / scale[:, 0], EXACT[dtype])
    assert (unserved > 0).any() and (surplus > 0).any()


def test_equal_scores_give_the_dispatch_of_the_published_anchor():
    """Spec 07 section 4: pz_case5 at 1377 MW with equal scores costs 30 450 USD/h."""
    low, high = jnp.asarray([5.0, 10, 20, 10, 20]), jnp.asarray([40.0, 170, 520, 200, 600])
    out = allocate_by_weight(jnp.ones(5), low, high, jnp.float32(1377.0))
    cost = float(np.asarray([14.0, 15, 30, 40, 10]) @ np.asarray(out.p_mw))
    assert cost == pytest.approx(30_450, rel=5e-4)  # printed to three digits
    assert np.asarray(out.p_mw)[[0, 1, 3]] == pytest.approx([40, 170, 200])


def test_merit_order_gives_the_dispatch_of_the_published_anchor():
    """Spec 07 section 4: network-blind merit order at 1377 MW costs 26 590 USD/h."""
    low, high = jnp.asarray([5.0, 10, 20, 10, 20]), jnp.asarray([40.0, 170, 520, 200, 600])
    price = jnp.asarray([14.0, 15, 30, 40, 10])
    out = allocate_by_merit(price, low, high, jnp.float32(1377.0))
    assert np.asarray(out.p_mw).tolist() == [40, 170, 520, 47, 600]
    assert float(jnp.sum(out.p_mw * price)) == pytest.approx(26_590)


def test_merit_order_fills_equal_prices_in_the_order_of_the_row():
    out = allocate_by_merit(jnp.asarray([2.0, 1, 2, 1]), jnp.zeros(4), jnp.full(4, 10.0), jnp.float32(25.0))
    assert out.p_mw.tolist() == [5, 10, 0, 10]


@pytest.mark.parametrize(
    ("load", "p", "unserved", "surplus"),
    [
        (130.0, [56.25, 50, 23.75], 0, 0),  # 10 short, shared as their headroom of 50 and 30 MW
        (60.0, [10, 50, 10], 0, 10),  # 60 to spare, of which the slack units can drop 40 and 10
        (300.0, [100, 50, 50], 100, 0),
    ],
)
def test_slack_units_cover_an_imbalance_up_to_their_limits(load, p, unserved, surplus):
    low, high = jnp.asarray([10.0, 0, 10]), jnp.asarray([100.0, 60, 50])
    out = balance_by_slack(jnp.asarray([50.0, 50, 20]), low, high, jnp.asarray([True, False, True]), jnp.float32(load))
    np.testing.assert_allclose(out.p_mw, p, rtol=1e-6)
    assert (float(out.unserved_mw), float(out.surplus_mw)) == pytest.approx((unserved, surplus))


def test_load_is_shed_in_proportion_and_never_at_a_bus_that_injects():
    shed = shed_by_load(jnp.asarray([100.0, -20, 300]), jnp.float32(40.0))
    assert shed.tolist() == [10, 0, 30]
