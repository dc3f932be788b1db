"""Security-constrained DC-OPF against HiGHS with a network of its own for every outage: no outage factors there."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog

from powerzoo_jax.base.errors import SolverError
from powerzoo_jax.cases import Case
from powerzoo_jax.cases.library import load_case
from powerzoo_jax.opf import (
    OpfStatus,
    SecureFactors,
    dual_bound,
    infeasibility,
    prepare_secure_dc_opf,
    secure_dc_opf,
    secure_programme,
)
from tests.tolerances import tolerance

pytestmark = [pytest.mark.reference, pytest.mark.full]

VOLL, SURPLUS = 10_000.0, 500.0
# case, loads of the sample over nominal: each has outages that bind, and the last of pz_case14 sheds
SAMPLES = {"pz_case14": (0.8, 1.0, 2.2), "pz_case118": (1.0, 1.3)}
solve = jax.jit(secure_dc_opf, static_argnames="shedding")


def linear_case(name: str) -> Case:
    """The case without quadratic costs, so that a linear programme is exact."""
    case = load_case(name)
    cost = np.zeros_like(case.unit.cost)
    cost[:, :] = case.unit.cost
    cost[np.arange(case.n_unit), case.unit.cost_terms - 3] = 0.0
    return replace(case, unit=replace(case.unit, cost=cost))


class Outages(NamedTuple):
    """Distribution factors (K, L, N) and fixed flows (K, L) of the intact network and of each survivable outage."""

    lost: list[int]
    ptdf: np.ndarray
    fixed: np.ndarray


@cache
def networks(name: str) -> Outages:
    case = linear_case(name)
    f, t = case.positions(case.branch.from_id), case.positions(case.branch.to_id)
    ends = np.zeros((case.n_branch, case.n_bus))
    ends[np.arange(case.n_branch), f] += 1
    ends[np.arange(case.n_branch), t] -= 1
    lost, factors, fixed = [], [], []
    for k in range(-1, case.n_branch):
        on = case.branch.in_service & (np.arange(case.n_branch) != k)
        b = case.base_mva * on / (case.branch.x_pu * case.branch.tap)
        laplacian = ends.T @ (b[:, None] * ends)
        if np.linalg.matrix_rank(laplacian, tol=1e-6 * np.abs(laplacian).max()) < case.n_bus - 1:
            continue
        ptdf = b[:, None] * ends @ np.linalg.pinv(laplacian)
        shift = -b * np.deg2rad(case.branch.shift_deg)
        lost.append(k)
        factors.append(ptdf)
        fixed.append(shift - ptdf @ (ends.T @ shift))
    return Outages(lost, np.stack(factors), np.stack(fixed))


def highs_with_all_rows(name: str, load: np.ndarray, scale: float = 1.0, voll: float | None = VOLL) -> Any:
    """Least cost [USD/h] under the limits of every branch in every network; rows enter once violated.

    It ends when the solution violates none of the K L rows, so it is the optimum under all of them.
    """
    case, nets = linear_case(name), networks(name)
    n, g = case.n_bus, case.n_unit
    at = np.zeros((n, g))
    at[case.positions(case.unit.bus_id), np.arange(g)] = 1
    into = np.hstack([at, np.eye(n), -np.eye(n)])
    linear = case.unit.cost[np.arange(g), case.unit.cost_terms - 2]
    constant = case.unit.cost[np.arange(g), case.unit.cost_terms - 1].sum()
    low, high = case.unit.p_min_mw, case.unit.p_max_mw
    sheds = 0.0 if voll is None else 1.0
    bounds = np.r_[
        np.c_[low, high], np.c_[np.zeros(n), sheds * np.maximum(load, 0)], np.c_[np.zeros(n), sheds * (at @ low)]
    ]
    take = load + case.bus.gs_mw
    rate = case.branch.rate_a_mva * scale
    rows: list[tuple[int, int]] = []
    for _ in range(40):
        a = np.array([nets.ptdf[k, l] @ into for k, l in rows]).reshape(-1, into.shape[1])
        rest = np.array([nets.fixed[k, l] - nets.ptdf[k, l] @ take for k, l in rows])
        limit = np.array([rate[l] for _, l in rows])
        found = linprog(
            np.r_[linear, np.full(n, voll or 0.0), np.full(n, SURPLUS)],
            A_ub=np.vstack([a, -a]) if rows else None,
            b_ub=np.r_[limit - rest, limit + rest] if rows else None,
            A_eq=np.r_[np.ones(g + n), -np.ones(n)][None],
            b_eq=[take.sum()],
            bounds=bounds,
            method="highs",
            options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
        )
        if found.status != 0:
            return found.status, np.nan
        flow = nets.ptdf @ (into @ found.x - take) + nets.fixed
        excess = np.where(rate > 0, np.abs(flow) - rate, -np.inf)
        worst = excess.argmax(0)
        new = [(int(worst[l]), l) for l in np.flatnonzero(excess.max(0) > 1e-7).tolist()]
        if not new:
            return 0, found.fun + constant
        rows += new
    raise AssertionError("rows keep coming")


@cache
def prepared(name: str) -> tuple[SecureFactors, np.ndarray]:
    """Factors in float64 and the loads (S, N) of the sample."""
    case = linear_case(name)
    loads = np.array(SAMPLES[name])[:, None] * case.p_load_mw
    with jax.enable_x64(True):
        return prepare_secure_dc_opf(case, loads, dtype="float64"), loads


@pytest.mark.tiers(long=["pz_case118"])
@pytest.mark.parametrize("name", SAMPLES)
def test_secure_costs_equal_highs_with_every_outage_as_a_network(name):
    secure, loads = prepared(name)
    with jax.enable_x64(True):
        results = [solve(secure, jnp.asarray(load)) for load in loads]
    for out, load in zip(results, loads, strict=True):
        assert int(out.status) == OpfStatus.OPTIMAL
        expected = highs_with_all_rows(name, load)[1]
        assert float(out.dispatch.objective) == pytest.approx(expected, rel=tolerance("opf_cost_relative", "float64"))
        assert float(out.worst_overload_mw) < 1e-4  # 1e-6 pu
    assert max(float(np.asarray(out.contingency_price).max()) for out in results) > 1e-3  # outages do bind


@pytest.mark.tiers(long=["pz_case118"])
@pytest.mark.parametrize("name", SAMPLES)
def test_no_outage_overloads_a_branch_of_the_network_that_is_left(name):
    secure, loads = prepared(name)
    case, nets = linear_case(name), networks(name)
    with jax.enable_x64(True):
        out = solve(secure, jnp.asarray(loads[-1]))
    injection = np.asarray(out.dispatch.injection_mw) - case.bus.gs_mw
    flow = nets.ptdf @ injection + nets.fixed
    rate = np.where(case.branch.rate_a_mva > 0, case.branch.rate_a_mva, np.inf)
    assert (np.abs(flow) - rate).max() < 1e-4
    np.testing.assert_allclose(flow[0], out.dispatch.line_flow_mw, atol=1e-6)
    unscreened = np.asarray(secure.outages.in_service & ~secure.outages.islanding)
    assert sorted(nets.lost[1:]) == np.flatnonzero(unscreened).tolist()


@pytest.mark.long
def test_security_costs_and_its_prices_prove_it():
    """The certificate is that of the programme alone: weak duality in NumPy."""
    secure, loads = prepared("pz_case118")
    with jax.enable_x64(True):
        load = jnp.asarray(loads[0])
        out = solve(secure, load)
        prices = np.asarray(out.dispatch.multipliers) * 100.0  # per unit of 100 MVA
        bound = dual_bound(secure_programme(secure, load), prices)
        plain = solve(replace(secure, factors=replace(secure.factors, rows=secure.factors.rows[:0])), load)
    bound += float(np.asarray(secure.factors.offers.base_cost).sum())  # of output that no variable moves
    assert bound == pytest.approx(float(out.dispatch.objective), rel=1e-6)
    assert int(plain.status) == OpfStatus.ROW_MISSING
    assert float(plain.worst_overload_mw) > 1
    assert float(plain.dispatch.objective) < float(out.dispatch.objective) * (1 - 1e-5)


def test_a_load_that_no_secure_dispatch_serves_is_flagged_with_a_proof():
    """pz_case14 at 2.2 of its load: HiGHS finds nothing either; with shedding it is priced."""
    secure, loads = prepared("pz_case14")
    with jax.enable_x64(True):
        load = jnp.asarray(loads[2])
        out = solve(secure, load, shedding=False)
        qp = secure_programme(secure, load, shedding=False)
    assert highs_with_all_rows("pz_case14", loads[2], voll=None)[0] == 2
    assert int(out.status) == OpfStatus.INFEASIBLE
    assert infeasibility(qp, out.dispatch.multipliers) > 0


def test_ratings_scale_with_and_without_outages_and_in_single_precision():
    case = linear_case("pz_case14")
    loads = np.array([0.8, 0.85, 0.9])[:, None] * case.p_load_mw
    secure = prepare_secure_dc_opf(case, loads, rating_scale=0.85)
    for load in loads:
        out = solve(secure, jnp.asarray(load, "float32"), rating_scale=0.85)
        expected = highs_with_all_rows("pz_case14", load, scale=0.85)[1]
        assert float(out.dispatch.objective) == pytest.approx(expected, rel=tolerance("opf_cost_relative", "float32"))
        assert out.dispatch.objective.dtype == "float32"


def test_an_unusable_sample_is_named():
    case = linear_case("pz_case14")
    with pytest.raises(SolverError, match="a sample load was not solved"):
        prepare_secure_dc_opf(case, np.full((3, case.n_bus), np.nan))
