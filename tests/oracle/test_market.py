"""The market: bids order as they should, and none can leave load unserved."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.cases import load_case
from powerzoo_jax.oracle import get_baselines, get_reference
from powerzoo_jax.powerflow.dc.network import build_dc_network

MARKET = "gencos_bidding"


@pytest.mark.parametrize("split", ["val", "test"])
def test_the_truth_earns_least_and_the_best_joint_markup_most(split):
    """The gain measures collusion, so that honest bids earn less than random ones."""
    record = get_reference(MARKET, split)
    assert record["rule"] < record["random"] < record["best"] <= record["bound"]


def test_no_bids_can_leave_load_unserved():
    """Why the budgets of the market bind nobody, with HiGHS and the case alone.

    The most load that a step can serve is concave in the outputs before it, so the least over all outputs that add up
    to the load before is found where all units but one stand at a limit.
    """
    assert get_baselines(MARKET).idle
    load = np.asarray(powerzoo_jax.make(MARKET).params.bank.load_rows, float)[:, 0]
    before, rise = load[:-1], np.diff(load)
    hard = np.unique(np.concatenate([np.argsort(rise)[-8:], np.argsort(load[1:])[-8:]]))
    assert most_served(UNITS) > load.max()
    for t in hard:
        assert min(most_served(window(p)) for p in corners(before[t])) > load[t + 1] + 50


CASE = load_case("pz_case5")
UNITS = (CASE.unit.p_min_mw, CASE.unit.p_max_mw)


def window(p):
    low, high = UNITS
    return np.maximum(low, p - 0.5 * high), np.minimum(high, p + 0.5 * high)


def corners(load):
    low, high = UNITS
    for unit, full in itertools.product(range(5), itertools.product((False, True), repeat=5)):
        if full[unit]:
            continue
        p = np.where(full, high, low)
        p[unit] += load - p.sum()
        if low[unit] <= p[unit] <= high[unit]:
            yield p


def most_served(limits):
    from scipy.optimize import linprog

    ptdf, rate = build_dc_network(CASE).ptdf, CASE.branch.rate_a_mva
    flows = np.column_stack(
        [ptdf[:, CASE.positions(CASE.unit.bus_id)], -ptdf @ (CASE.p_load_mw / CASE.p_load_mw.sum())]
    )
    rated = flows[rate > 0]
    found = linprog(
        [0.0] * 5 + [-1.0],
        A_ub=np.vstack([rated, -rated]),
        b_ub=np.tile(rate[rate > 0], 2),
        A_eq=[[1.0] * 5 + [-1.0]],
        b_eq=[0.0],
        bounds=[*zip(*limits, strict=True), (0, None)],
    )
    return found.x[-1]
