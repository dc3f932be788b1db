"""The shipped references of the transmission tasks and the market: order, bounds, and budgets that bind."""

from __future__ import annotations

import pytest

from powerzoo_jax.oracle import get_playbook, get_reference
from powerzoo_jax.oracle.calibrate import examine, verdict
from powerzoo_jax.oracle.table import load_table
from powerzoo_jax.tasks import get_spec

TASKS = ("marl_opf", "marl_uc", "opf_118", "opf_118_7d")
MARKET = "gencos_bidding"
SEVERAL = 3.0  # standard errors of the paired difference
ROUNDED = 1e-5  # of a record with six digits


def shipped(task):
    return sorted(load_table()[task][f"v{get_spec(task).version}"])


RECORDS = [(task, split) for task in TASKS for split in shipped(task)]


@pytest.mark.parametrize("task", (*TASKS, MARKET))
def test_val_and_test_are_shipped_and_no_split_that_the_task_does_not_have(task):
    assert {"val", "test"} <= set(shipped(task)) <= set(get_playbook(task).splits)


@pytest.mark.parametrize(("task", "split"), RECORDS)
def test_random_is_below_the_rule_and_the_rule_below_the_oracle_by_several_standard_errors(task, split):
    record = get_reference(task, split)
    error = record["standard_error"]
    assert record["rule"] - record["random"] > SEVERAL * error["rule_over_random"] > 0
    assert record["oracle"] - record["rule"] > SEVERAL * error["oracle_over_rule"] > 0


@pytest.mark.parametrize(("task", "split"), RECORDS)
def test_the_oracle_keeps_the_budgets_below_its_bounds(task, split):
    record = get_reference(task, split)
    assert record["feasible"]["oracle"]
    assert record["oracle"] <= record["kept_bound"] + ROUNDED <= record["bound"] + 2 * ROUNDED
    assert record["gap"] >= -ROUNDED


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
