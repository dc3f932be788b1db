"""The shipped references of the transmission tasks and the market: order, bounds, and budgets that bind."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import powerzoo_jax
from powerzoo_jax.cases import load_case
from powerzoo_jax.oracle import get_baselines, get_reference
from powerzoo_jax.oracle.registry import load_table
from powerzoo_jax.powerflow.dc.network import build_dc_network
from powerzoo_jax.tasks import get_spec
from tools.tasks.calibrate import examine, verdict

OPERATOR = "comparison_tso_centralized"
TASKS = ("marl_opf", "marl_uc", "opf_118", "opf_118_7d", OPERATOR, "joint_trans_dist")
STRESSED = ("marl_opf", "marl_uc", "opf_118", OPERATOR)
MARKET = "gencos_bidding"
SEVERAL = 3.0  # standard errors of the paired difference
EVERY = 8  # episodes, all of which one policy wins by chance in one of 256 tables
ROUNDED = 1e-5  # of a record with six digits


def shipped(task):
    return sorted(load_table().get(task, {}).get(f"v{get_spec(task).version}", {}))


RECORDS = [(task, split) for task in TASKS for split in shipped(task)]


@pytest.mark.parametrize("task", (*TASKS, MARKET))
def test_val_and_test_are_shipped_and_no_split_that_the_task_does_not_have(task):
    assert {"val", "test"} <= set(shipped(task)) <= set(get_baselines(task).splits)


@pytest.mark.parametrize("task", STRESSED)
def test_every_shifted_split_is_shipped(task):
    assert {"load_stress", "line_tightening"} <= set(shipped(task))


@pytest.mark.parametrize(("task", "split"), RECORDS)
def test_random_is_below_the_rule_and_the_rule_below_the_oracle_by_several_standard_errors(task, split):
    record = get_reference(task, split)
    # the operator's days differ by a factor of ten in load, and plans of them are dear: its records hold few days
    several = 2.5 if task == OPERATOR else SEVERAL
    for high, low in (("rule", "random"), ("oracle", "rule")):
        pair = f"{high}_over_{low}"
        gain, error = record[high] - record[low], record["standard_error"][pair]
        # random switching sheds load on some days more than a hundredfold: a standard error of that says little
        won = record["n"] >= EVERY and record.get("share_of_episodes", {}).get(pair) == 1.0
        assert error > 0 and gain > 0 and (gain > several * error or won), pair


@pytest.mark.parametrize(("task", "split"), RECORDS)
def test_the_oracle_keeps_the_budgets_below_its_bounds(task, split):
    record = get_reference(task, split)
    assert record["feasible"]["oracle"]
    assert record["oracle"] <= record["kept_bound"] + ROUNDED <= record["bound"] + 2 * ROUNDED
    assert record["gap"] >= -ROUNDED


@pytest.mark.parametrize(("task", "split"), RECORDS)
def test_plans_return_what_they_promise(task, split):
    """Planners keep books of their own in NumPy: sharing by score, ramps, batteries, money of every dispatch."""
    record = get_reference(task, split)
    assert record["oracle"] == pytest.approx(record["kept_bound"] - record["gap"], rel=1e-6)


@pytest.mark.parametrize(("task", "split"), RECORDS)
def test_nobody_wins_by_a_trick(task, split):
    """Equal scores, everything on, cheapest first: each returns less than the rule or breaks a budget."""
    record = get_reference(task, split)
    for name in set(get_baselines(task).rules) - {"rule", get_baselines(task).safe}:
        assert record[name] < record["rule"] or not record["feasible"][name]


@pytest.mark.parametrize("task", TASKS)
def test_budgets_bind_and_can_be_met(task):
    findings = examine(task, get_reference(task, "val"))
    assert findings and verdict(findings) == "holds"


@pytest.mark.parametrize("split", shipped(MARKET))
def test_the_truth_earns_least_and_the_best_joint_markup_most(split):
    """The score measures collusion, so that honest bids score below random ones."""
    record = get_reference(MARKET, split)
    assert record["rule"] < record["no_control"] < record["random"] < record["max_markup"] <= record["oracle"]
    assert record["oracle"] <= record["bound"]
    index = record["competition_index"]
    assert index["rule"] == 0 and index["oracle"] == 1 and 0 < index["random"] < 1
    for name, own in record["per_agent"].items():
        assert sum(own.values()) == pytest.approx(record[name], rel=1e-6)


def test_no_bids_can_leave_load_unserved():
    """Why the budgets of the market bind nobody, with HiGHS and the case alone.

    The most load that a step can serve is concave in the outputs before it, so the least over all outputs that add up
    to the load before is found where all units but one stand at a limit.
    """
    book = get_baselines(MARKET)
    assert verdict(examine(MARKET, get_reference(MARKET, "val")), book.idle).startswith("holds, idle: ")
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
