"""The shipped references of feeders and data centres: order, bounds, and budgets that bind and can be met."""

from __future__ import annotations

import json

import pytest

from powerzoo_jax.base import SettingsError
from powerzoo_jax.cli.commands.evaluate import require_same_episodes
from powerzoo_jax.oracle import get_baselines, get_reference, idle_act, registry
from powerzoo_jax.oracle.registry import load_table, withdrawn
from powerzoo_jax.tasks import get_spec, make
from powerzoo_jax.tasks.score import all_starts, episode_hash, evaluate, normalized_score, seeded_starts
from powerzoo_jax.tasks.spec import CALENDAR
from tools.tasks.calibrate import Finding, examine, main, verdict

FAMILIES = ("distribution", "microgrid")
TASKS = ("battery_arbitrage", "marl_der_arbitrage", "dso", "marl_ders_benchmark", "marl_ev_v2g")
SITES = ("dc_scheduling", "dc_microgrid")
CLOSE = 0.02  # of the span from random to the oracle, that the oracle may miss of its bound
SEVERAL = 3.0  # standard errors of the paired difference
ROUNDED = 1e-5  # of a record with six digits


def shipped(task):
    return sorted(load_table()[task][f"v{get_spec(task).version}"])


# a task whose record on val or test was taken back has nothing to be held to until it is computed again
TAKEN_BACK = {task for task in load_table() for split in ("val", "test") if withdrawn(task, split)}
RECORDED = sorted(task for task in load_table() if get_spec(task).family in FAMILIES and task not in TAKEN_BACK)
RECORDS = [(task, split) for task in RECORDED for split in shipped(task)]


@pytest.mark.parametrize("task", RECORDED)
def test_val_and_test_are_shipped_and_no_split_that_the_task_does_not_have(task):
    assert {"val", "test"} <= set(shipped(task)) <= set(get_baselines(task).splits)


@pytest.mark.parametrize("task", [task for task in (*TASKS, *SITES) if task not in TAKEN_BACK])
def test_every_split_but_that_of_training_is_shipped(task):
    assert set(get_baselines(task).splits) - {"train"} <= set(shipped(task))


@pytest.mark.parametrize(("task", "split"), RECORDS)
def test_random_is_below_the_rule_and_the_rule_below_the_oracle_by_several_standard_errors(task, split):
    record = get_reference(task, split)
    error = record["standard_error"]
    assert record["rule"] - record["random"] > SEVERAL * error["rule_over_random"] > 0
    assert record["oracle"] - record["rule"] > SEVERAL * error["oracle_over_rule"] > 0


@pytest.mark.parametrize(("task", "split"), RECORDS)
def test_the_oracle_is_below_its_bounds(task, split):
    record = get_reference(task, split)
    assert record["oracle"] <= record["bound"] + ROUNDED
    if record["feasible"]["oracle"]:  # the other bound speaks of policies that keep the budgets
        assert record["oracle"] <= record["kept_bound"] + ROUNDED and record["gap"] >= -ROUNDED


@pytest.mark.parametrize(("task", "split"), [(t, s) for t, s in RECORDS if not t.startswith("dc_")])
def test_where_limits_can_be_kept_the_oracle_is_close_to_its_bound(task, split):
    record = get_reference(task, split)
    # where no plan keeps the band, the gap is one of priced violations and dwarfs the money
    close = CLOSE * (record["oracle"] - record["random"]) if record["feasible"]["oracle"] else float("inf")
    assert record["gap"] <= close


@pytest.mark.parametrize(("task", "split"), [(t, s) for t, s in RECORDS if s in CALENDAR])
def test_the_oracle_keeps_every_budget_without_stress(task, split):
    assert get_reference(task, split)["feasible"]["oracle"]


@pytest.mark.parametrize(("task", "split"), RECORDS)
def test_every_baseline_has_a_score(task, split):
    record = get_reference(task, split)
    scores = {name: normalized_score(record[name], record["random"], record["oracle"]) for name in record["feasible"]}
    assert scores["random"] == 0.0 and scores["oracle"] == 1.0 and 0 < scores["rule"] < 1
    assert set(scores) == set(get_baselines(task).names)


@pytest.mark.parametrize("task", RECORDED)
def test_budgets_bind_and_can_be_met(task):
    findings = examine(task, get_reference(task, "val"))
    assert findings and verdict(findings) == "holds"


def test_the_verdict_names_what_does_not_hold():
    idle = Finding("voltage_violation", budget=0.1, violating=0.05, safe=0.09, oracle=0.0)
    assert verdict([idle]) == (
        "no budget is broken by the violating reference; voltage_violation is not met with a margin"
    )
    zero = Finding("unserved_energy", budget=0.0, violating=1.0, safe=5e-4, oracle=0.0)
    assert verdict([zero]) == "holds" and verdict([zero._replace(safe=2e-3)]) != "holds"


@pytest.mark.parametrize(("task", "split"), [("battery_arbitrage", "test"), ("marl_uc", "val"), ("dso", "val")])
def test_a_record_names_the_episodes_that_learners_play(task, split):
    record, sim = get_reference(task, split), make(task, split=split)
    every = record["n"] == int(sim.params.starts.n_start)
    draws = all_starts(sim) if every else seeded_starts(sim, record["n"], record["seed"])
    assert record["episodes"] == episode_hash(draws, record["seed"])


def test_a_score_of_other_episodes_than_those_of_the_reference_is_refused():
    sim = make("battery_arbitrage", split="test")
    record = evaluate(sim, idle_act(sim), n_episodes=2)
    with pytest.raises(SettingsError, match=rf"{record.episodes}.*'battery_arbitrage'.*{'0' * 16}"):
        require_same_episodes({"episodes": "0" * 16}, [record])


def test_a_record_that_was_taken_back_says_why_and_has_no_numbers(monkeypatch):
    why = "Withdrawn: recorded on days that nobody plays."
    table = {"dso": {"v0": {"test": {registry.WITHDRAWN: why}, "val": {"oracle": 1.0}}}}
    monkeypatch.setattr(registry, "_read", lambda: table)
    monkeypatch.setattr(registry, "load_table", registry.load_table.__wrapped__)  # what was read before is kept
    with pytest.raises(KeyError, match=rf"{why} Compute it: .*oracle\.reference dso --split test"):
        get_reference("dso", "test")
    assert get_reference("dso", "val") == {"oracle": 1.0}
    assert withdrawn("dso", "test") == why and withdrawn("dso", "val") is None


def test_beside_the_reason_a_record_that_was_taken_back_holds_nothing():
    table = json.loads(registry.FILE.read_text(encoding="utf-8"))
    records = [record for versions in table.values() for splits in versions.values() for record in splits.values()]
    taken = [record for record in records if registry.WITHDRAWN in record]
    assert all(set(record) == {registry.WITHDRAWN} and len(record[registry.WITHDRAWN]) > 20 for record in taken)
    assert len(taken) < len(records)


def test_the_command_prints_the_evidence(capsys):
    assert main(["dso"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert rows[0].startswith("task\tchannel\tbudget") and rows[1].startswith("dso\tvoltage_violation\t0.1\t")
    assert rows[-1] == "dso: holds"
