"""The market: bids order as they should, and none can leave load unserved."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.cases import load_case
from powerzoo_jax.envs.episode import run_episodes
from powerzoo_jax.families.market.equilibrium import equilibrium_score, exploitability
from powerzoo_jax.oracle import get_baselines, get_reference
from powerzoo_jax.oracle.registry import Policy, follow, plan_act
from powerzoo_jax.powerflow.dc.network import build_dc_network
from powerzoo_jax.tasks.score import SEED, episode_keys, evaluate, seeded_starts

MARKET = "gencos_bidding"


@pytest.mark.parametrize("split", ["val", "test"])
def test_the_truth_earns_least_and_the_best_joint_markup_most(split):
    """The gain measures collusion, so that honest bids earn less than random ones."""
    record = get_reference(MARKET, split)
    assert record["rule"] < record["random"] < record["best"] <= record["bound"]


@pytest.mark.full
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


@pytest.fixture(scope="module")
def truth():
    """The rule on two days, and what leaving it gains."""
    sim = powerzoo_jax.make(MARKET, split="val")
    days = seeded_starts(sim, 2)
    rule = get_baselines(MARKET).rules["rule"](sim, days, episode_keys(SEED, 2))
    return sim, days, rule, exploitability(sim, rule, days, seed=SEED)


@pytest.mark.full
def test_best_responses_earn_what_playing_them_earns(truth):
    """Bids of one agent put into the plan of all by hand, and played as any policy is."""
    sim, days, rule, found = truth
    stays = list(evaluate(sim, rule.act, draws=days, carry=rule.carry).per_agent.values())
    np.testing.assert_allclose(found.own, stays, rtol=1e-5)
    for agent, bids in enumerate(found.bids):
        plan = np.full((2, sim.spec.horizon, 5, 3), -1.0)
        plan[:, :, agent] = bids
        policy = follow(sim, plan)
        earned = list(evaluate(sim, policy.act, draws=days, carry=policy.carry).per_agent.values())[agent]
        assert found.best[agent] == pytest.approx(earned, rel=1e-5)
    assert found.nash_conv == pytest.approx(sum(found.best - found.own)) and found.nash_conv > 1000


def test_the_climb_finds_the_best_constant_bids_of_a_coarse_grid(truth):
    """Every combination of five bids of the three blocks of each unit."""
    sim, days, _, found = truth
    grid = np.array(list(itertools.product(np.linspace(-1, 1, 5), repeat=3)))
    for agent in range(5):
        plan = np.full((2, len(grid), sim.spec.horizon, 5, 3), -1.0)
        plan[:, :, :, agent] = grid[:, None]
        policy = follow(sim, plan.reshape(-1, sim.spec.horizon, 5, 3))
        many = jax.tree.map(lambda x: np.repeat(x, len(grid), axis=0), days)
        terms = run_episodes(sim, policy.act, episode_keys(SEED, 2 * len(grid)), many, policy.carry).terms
        profit = np.asarray(terms)[:, agent].sum(-1).reshape(2, len(grid)).mean(0)
        assert found.best[agent] >= profit.max() - 0.02 * (profit.max() - found.own[agent]) - 1.0  # of thousands of $


@pytest.mark.parametrize("split", ["val", "test"])
def test_neither_the_truth_nor_the_best_joint_bids_are_an_equilibrium(split):
    told = get_reference(MARKET, split)["nash_conv"]
    assert told["rule"] > told["best"] > 0.1 * told["rule"]
    assert equilibrium_score(told["rule"], told["rule"]) == 0 and equilibrium_score(0.0, told["rule"]) == 1


def test_agents_who_earn_together_have_no_responses_of_their_own():
    sim = powerzoo_jax.make("marl_opf", split="val")
    with pytest.raises(ValueError, match=r"marl_opf.*gencos_bidding"):
        exploitability(sim, Policy(plan_act), seeded_starts(sim, 1), seed=SEED)
