"""What pages show was played on the tasks as they are today: their versions, budgets, references and agents."""

from __future__ import annotations

import csv
import json
import math
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import powerzoo_jax as pz
from powerzoo_jax.base import TaskSpec
from powerzoo_jax.base.tree import take
from powerzoo_jax.envs import load_traces, trace_episode
from powerzoo_jax.oracle import follow, get_reference
from powerzoo_jax.oracle.registry import load_table, version_key
from powerzoo_jax.rl.zoo import list_policies, read_card
from powerzoo_jax.tasks.score import SEED, all_starts, episode_keys

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
FORMATS = {".npz", ".json", ".svg", ".png", ".gif", ".webp", ".html", ".mp4"}
TRACES = sorted(DOCS.rglob("*.npz"))
BOARDS = sorted(DOCS.rglob("*.json"))
# by test_animation of its traces; of a network, not of a task
MADE = {"actions.png", "animation.svg", "picture.png", "look/icon.svg", "look/logo.svg", "measurements/published.png"}
REFERENCES = ("random", "trivial", "rule", "causal", "best", "bound", "feasible", "mean_costs", "n")
QUOTES = ("rule", "causal", "best")
QUOTED = re.compile(r"rule (-?\d+\.\d+),\s+causal\s+planner (-?\d+\.\d+),\s+best (-?\d+\.\d+)")
TABLES = [ROOT / "benchmarks" / "results" / name for name in ("margins.tsv", "attacks.tsv")]


@cache
def spec_of(task: str, split: str) -> TaskSpec:
    return pz.make(task, split=split).spec


def budgets(task: str, split: str) -> dict[str, float]:
    spec = spec_of(task, split)
    return dict(zip(spec.cost_names, spec.cost_budget, strict=True))


def recorded(limits: dict[str, float | None]) -> dict[str, float]:
    """Budgets as a specification has them: no number is no limit."""
    return {name: math.inf if value is None else value for name, value in limits.items()}


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader((line for line in file if not line.startswith("#")), delimiter="\t"))


def test_every_file_that_a_page_shows_is_looked_at_here():
    shown = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*") if path.suffix in FORMATS}
    assert shown == MADE | {path.relative_to(DOCS).as_posix() for path in (*TRACES, *BOARDS)}


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_a_trace_is_of_the_task_as_it_is(path):
    for trace in load_traces(path).values():
        spec = spec_of(trace.task, trace.split)
        assert (trace.version, trace.agents, trace.dt_hours) == (spec.version, spec.agents, spec.dt_hours)
        assert dict(zip(trace["cost"].ids, trace.budgets, strict=True)) == budgets(trace.task, trace.split)
        assert len(trace) == spec.horizon


@pytest.mark.full
@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_the_actions_of_a_trace_earn_and_cost_today_what_it_shows(path):
    """Also a change that raised no version is seen."""
    found = load_traces(path)
    first = next(iter(found.values()))
    sim = pz.make(first.task, split=first.split)
    shape = sim.spaces()[1].low.shape
    draws, keys = take(all_starts(sim), slice(first.episode, first.episode + 1)), episode_keys(SEED, 1)
    for name, trace in found.items():
        policy = follow(sim, np.reshape(trace["action"].values, (1, len(trace), *shape)))
        again = trace_episode(sim, policy.act, keys[0], take(draws, 0), take(policy.carry, 0), policy=name)
        for table in ("reward", "cost", "bus_voltage_pu", "soc"):
            np.testing.assert_allclose(again[table].values, trace[table].values, rtol=1e-4, atol=1e-5, err_msg=table)


@pytest.mark.full
@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_a_board_is_of_the_tasks_and_references_as_they_are(path):
    for row in json.loads(path.read_text(encoding="utf-8")):
        task = row["task"]
        assert row["version"] == spec_of(task, "test").version and recorded(row["budgets"]) == budgets(task, "test")
        named = {name: part["known"] for name, part in row["named"].items()}
        for split, known in {"test": row["known"], **named}.items():
            record = get_reference(task, split)
            changed = [name for name in REFERENCES if name in known and known[name] != record[name]]
            assert changed == [] and known["episodes"] == record["episodes"], (task, split)


@pytest.mark.parametrize("task", list_policies())
def test_a_policy_of_the_zoo_is_of_the_task_as_it_is(task):
    card = read_card(task)
    assert card["version"] == spec_of(task, "test").version
    for split, score in card["scores"].items():
        known = get_reference(task, split)
        assert recorded(score["budgets"]) == budgets(task, split)
        if score["ends"] is not None:
            assert score["ends"] == [known["rule"], known["best"]]


@pytest.mark.full
@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_a_table_of_policies_is_of_the_tasks_as_they_are(path):
    for row in rows(path):
        assert int(row["version"]) == spec_of(row["task"], row["split"]).version, row
        if "channel" in row:
            limit = budgets(row["task"], row["split"])[row["channel"]]
            assert float(row["budget"]) == pytest.approx(limit, rel=1e-4), row


def test_returns_that_a_page_names_beside_the_best_are_those_of_the_table():
    """Prose such as "rule 3.32, causal planner 6.22, best 7.57", also over a line's end."""
    tables = load_table()
    known = [record for task in tables for record in tables[task].get(version_key(task), {}).values()]
    quoted = [
        (path.name, *found)
        for path in sorted(DOCS.rglob("*.md"))
        for found in QUOTED.findall(path.read_text(encoding="utf-8"))
    ]
    assert len(quoted) > 2
    for page, *numbers in quoted:
        forms = [f".{len(number.partition('.')[2])}f" for number in numbers]
        told = [[format(r.get(name, math.nan), f) for name, f in zip(QUOTES, forms, strict=True)] for r in known]
        assert numbers in told, (page, numbers)
