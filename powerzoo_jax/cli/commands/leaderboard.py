"""`leaderboard`: train and score on many tasks, task by task; write the results as one Markdown page."""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import jax

from powerzoo_jax import __version__
from powerzoo_jax.base.errors import RunError, unknown
from powerzoo_jax.base.files.results import file_name, write_text
from powerzoo_jax.base.textfile import read_json
from powerzoo_jax.cli.board import (
    TEST,
    Row,
    gain_on,
    gains_of,
    kept_of,
    key_of,
    latex,
    read_rows,
    require_row,
    write_page,
)
from powerzoo_jax.cli.commands.bench import device_name
from powerzoo_jax.cli.commands.evaluate import baseline_scores, score_trained
from powerzoo_jax.cli.commands.train import INTERRUPTED, StopRequest, train
from powerzoo_jax.cli.lock import hold
from powerzoo_jax.cli.runs import (
    ROW,
    Run,
    drop_results,
    has_checkpoint,
    is_run,
    open_run,
    require_ours,
    resolve_config,
    shipped_config,
)
from powerzoo_jax.cli.selection import chosen_policies, planner_seen
from powerzoo_jax.cli.table import STDOUT, say, write_json
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.episode import Act
from powerzoo_jax.families.market.equilibrium import exploitability
from powerzoo_jax.oracle import get_baselines, get_causal, get_reference, list_baselines
from powerzoo_jax.oracle.baselines import CAUSAL
from powerzoo_jax.oracle.reference import recorded_starts, reference
from powerzoo_jax.oracle.registry import Policy
from powerzoo_jax.rl.training.config import ALGORITHMS
from powerzoo_jax.tasks import list_tasks, make
from powerzoo_jax.tasks.registry import SHIPPED, get_spec
from powerzoo_jax.tasks.score import Evaluation
from powerzoo_jax.tasks.spec import CALENDAR, TaskSpec

DATA = ".json"
REFERENCE = (  # what a row keeps of the record, where it has it
    *("n", "episodes", "random", "rule", "trivial", "causal", "best", "bound", "mean_costs", "feasible"),
    "nash_conv",
)
SPLITS = ("val", TEST)


def run(options: argparse.Namespace) -> int:
    """Train the entries one after another; one already there with the same settings is read, not trained.

    The page keeps the other rows it has, so that it can grow entry by entry. With --refresh there are no entries: the
    rows it has are written beside today's references.
    """
    entries = [_entry(text, options.algorithm) for text in _chosen(options)]
    data = options.page.with_suffix(DATA)
    rows, mine = _written(data), list[Row]()
    own = cache(_own_reference)  # learners of one task share its references, which take longer than some trainings
    with StopRequest() as stop:
        for task, algorithm in entries:
            row = _row(options, task, algorithm, rows, own, stop)
            if row is None:
                print("stopped; the same command goes on from here", file=sys.stderr)
                return INTERRUPTED
            mine.append(row)
            fresh = set(map(key_of, mine))
            # read again: another process may have added its rows to the page
            rows = [*(other for other in _written(data) if key_of(other) not in fresh), *mine]
            say(f"{task}: {_said(row)}")
            _save(options.page, rows)
    if options.refresh:
        _save(options.page, rows)
    if options.latex is not None:
        write_text(options.latex, latex(rows))
    if options.json:
        write_json({"page": str(options.page), "rows": mine}, STDOUT)
    else:
        print(f"written: {options.page}")
    return 0


def _save(path: Path, rows: Sequence[Row]) -> None:
    """Write the page of rows, and the rows beside it."""
    write_text(path.with_suffix(DATA), json.dumps(rows, indent=1) + "\n")
    write_text(path, page(rows))


def _chosen(options: argparse.Namespace) -> list[str]:
    """Entries asked for, none for --refresh.

    Raises ValueError where neither tasks nor --all are given, for all of them take hours, and for a page to refresh
    that is not there.
    """
    if bool(options.tasks) + options.all + options.refresh > 1:
        raise ValueError("Give one of tasks, --all and --refresh.")
    if options.refresh:
        data = options.page.with_suffix(DATA)
        if not data.is_file():
            raise ValueError(f"--refresh: there are no rows at {str(data)!r}; name the page that has some with --page.")
        return []
    if options.all:
        return public_tasks()
    if not options.tasks:
        raise ValueError(
            f"leaderboard: no task is named. Give some (such as battery_arbitrage dso:apg), --refresh to write the "
            f"rows of the page beside today's references, or --all to train {len(public_tasks())} tasks with "
            f"{options.seeds} seeds each, which takes hours."
        )
    return list(options.tasks)


def public_tasks() -> list[str]:
    """Tasks with references on the test split and settings of their own."""
    return [task for task in list_tasks() if _reference(task) is not None and shipped_config(task) is not None]


def _entry(text: str, algorithm: str | None) -> tuple[str, str | None]:
    """Task and learner of TASK or TASK:ALGORITHM."""
    task, _, own = text.partition(":")
    return get_spec(task).id, own or algorithm


def _written(data: Path) -> list[Row]:
    """Rows of an earlier page that are of today's tasks, beside today's references where these are of its episodes."""
    rows = read_rows(data) if data.exists() else []
    kept = [
        row
        for row in rows
        if "run" in row and (_is_own(row["task"]) or row["version"] == get_spec(row["task"]).version)
    ]
    return [_anchored(row) or row for row in kept]


def _is_own(task: str) -> bool:
    """True for a task that a user's module registers; this process knows it only if it was given the module."""
    return all(task != spec.id for spec in (task.spec for task in SHIPPED))


def settings_of(texts: Sequence[str], algorithm: str) -> list[str]:
    """Settings KEY=VALUE of one learner: those of all learners, and its own, written ALGORITHM.KEY=VALUE.

    Raises ValueError for a prefix that is no algorithm.
    """
    found = []
    for text in texts:
        learner = text.partition("=")[0].rpartition(".")[0]
        if learner not in ("", *ALGORITHMS):
            raise ValueError(unknown("algorithm", learner, ALGORITHMS))
        if learner in ("", algorithm):
            found.append(text.removeprefix(f"{learner}."))
    return found


def _row(
    options: argparse.Namespace,
    task: str,
    algorithm: str | None,
    rows: Sequence[Row],
    own: Callable[..., Row | None],
    stop: StopRequest,
) -> Row | None:
    """Train and score one entry, or read what is there; None where training was stopped.

    own:  references of a user's task, (task, split) -> part of a row
    """
    try:
        if algorithm == CAUSAL:
            return _planned(task, _planned_splits(task, options.split, rows))
        learner = algorithm or resolve_config(task, None, ()).algorithm
        config = resolve_config(task, learner, settings_of(options.settings, learner))
        run = Run(options.runs / file_name(task, config.algorithm), config, options.seeds, modules=options.module)
        require_ours(run.folder)
        with hold(run.folder, "powerzoo-jax leaderboard"):
            splits = named_splits(task) if options.split is None else tuple(options.split)
            stored = _stored(run, rows)
            if stored is None:
                return _fresh(run, splits, options.every, own, stop)
            known = tuple(stored.get("named", {}))
            missing = set(splits) - set(known)
            # what was not asked for by name is worth a replay of the checkpoint, and no training
            if missing and (options.split is not None or has_checkpoint(run)):
                return _fresh(run, (*known, *missing), options.every, own, stop)
            return stored
    except RunError:  # a broken folder, or one in use, says nothing of the learner
        raise
    except ValueError as err:  # a learner that cannot act there says so; the other tasks go on
        spec = get_spec(task)
        return {"task": task, "version": spec.version, "error": str(err)}


def _stored(run: Run, known: Sequence[Row]) -> Row | None:
    """The row of the same settings, in the run's folder or on the page."""
    here = [row] if (row := _in_folder(run)) else []
    now = run.to_dict(), get_spec(run.config.task).version
    same = (row for row in (*here, *known) if "run" in row and (completed(row["run"]), row["version"]) == now)
    return next((today for old in same if (today := _anchored(old)) is not None), None)


def completed(run: Mapping[str, Any]) -> dict[str, Any]:
    """The record of a run with the settings that it does not name because they came later, at their defaults."""
    settings = dict(run["config"])
    algorithm = settings.pop("algorithm")
    try:
        return {**run, "config": ALGORITHMS[algorithm].from_dict(settings).to_dict()}
    except (KeyError, ValueError):  # of a learner or a setting that is no more: the run of no settings of today
        return dict(run)


def _in_folder(run: Run) -> Row:
    """The row that the run left in its folder; nothing where it was not scored yet."""
    path = run.folder / ROW
    if not path.exists():
        return {}
    return require_row(read_json(path, RunError, "Remove the file, and the run is scored again."), str(path))


def _anchored(row: Row) -> Row | None:
    """The row beside today's references; None where these are of other episodes, which the run has to play then.

    A named split whose references are of other episodes is left out, and played again where the run is still there.
    """
    if _is_own(row["task"]):  # its references were computed with the row
        return row
    known = _reference(row["task"])
    if known != row["known"]:
        if known is None or known["episodes"] != row["episodes"]:
            return None
        row = {**row, "known": known, "seeds": _rescored(row["seeds"], known)}
    if "named" not in row:
        return row
    named = {}
    for split, result in row["named"].items():
        today = _reference(row["task"], split)
        if today == result["known"]:
            named[split] = result
        elif today is not None and today["episodes"] == result["episodes"]:
            named[split] = {**result, "known": today, "seeds": _rescored(result["seeds"], today)}
    return {**row, "named": named}


def _rescored(seeds: Sequence[Row], known: Row) -> list[Row]:
    """The seeds with their gains beside other references."""
    return [{**seed, "gain": gain_on(seed["return"], seed["kept"][-1], known)} for seed in seeds]


def _fresh(
    run: Run, named: Sequence[str], every: float, own: Callable[..., Row | None], stop: StopRequest
) -> Row | None:
    """Train, going on where the same run was stopped or has ended, and score every seed on the splits.

    named:  splits beside val and test
    own:    references of a user's task, (task, split) -> part of a row
    """
    scored = {split: run.make(split) for split in (*SPLITS, *named)}  # first: a wrong name costs no training
    begun = is_run(run.folder) and open_run(run.folder).to_dict() == run.to_dict() and has_checkpoint(run)
    if not begun:
        drop_results(run)
        run.write()
    sim = run.make()
    clock, cpu = time.perf_counter(), time.process_time()
    trained = train(run, sim, resume=begun, every=every, stop=stop)
    if trained.done < run.config.updates:
        return None
    acts = chosen_policies(run, sim, trained.state)
    played = {split: score_trained(task, acts) for split, task in scored.items()}
    reference_on = own if _is_own(run.config.task) else _reference
    row = {
        "run": run.to_dict(),
        "planner": planner_seen(run.config),
        "steps": trained.done * run.learner.batch_steps(run.config, sim),
        "seconds": [trained.compile_s, trained.train_s, time.perf_counter() - clock],
        "cpu_s": time.process_time() - cpu,
        **_results(sim.spec, played, reference_on),
    }
    if (row["known"] or {}).get("nash_conv"):
        for seed, act in zip(row["seeds"], acts, strict=True):
            seed["nash_conv"] = _nash_conv(scored[TEST], act)
    if begun:  # only the last part was timed here; a run that is only played again knows the whole
        row |= {key: _in_folder(run).get(key) for key in ("seconds", "cpu_s")}
    write_text(run.folder / ROW, json.dumps(row, indent=1) + "\n")
    return row


def _nash_conv(sim: Sim, act: Act) -> float:
    """Gain of the agents of a market by leaving a joint policy, on the episodes of the shipped record [$]."""
    record = get_reference(sim.spec.id, sim.spec.split)
    return exploitability(sim, Policy(act), recorded_starts(sim, record), seed=record["seed"]).nash_conv


def _planned_splits(task: str, asked: Sequence[str] | None, rows: Sequence[Row]) -> tuple[str, ...]:
    """Named splits that the planner of a task plays: all, or those asked for and those that its row has already."""
    if asked is None:
        return named_splits(task)
    before: Row = next((row.get("named", {}) for row in rows if key_of(row) == (task, CAUSAL)), {})
    return tuple(dict.fromkeys((*before, *asked)))


def _planned(task: str, named: Sequence[str]) -> Row:
    """Row of the causal planner of a task; raises ValueError where there is none.

    Nothing is trained and no seed drawn: its forecasts come from the days of training.
    """
    get_causal(task)
    sims = {split: make(task, split=split) for split in (*SPLITS, *named)}
    played = {split: baseline_scores(sim, (CAUSAL,))[0].records for split, sim in sims.items()}
    run = {"config": {"algorithm": CAUSAL, "task": task}, "seeds": 1}
    cost = {"steps": 0, "seconds": None, "cpu_s": None}
    return {"run": run, "planner": CAUSAL, **cost, **_results(sims[TEST].spec, played, _reference)}


def _results(spec: TaskSpec, played: Mapping[str, Sequence[Evaluation]], known: Callable[..., Row | None]) -> Row:
    """Part of a row that scores fill: played holds the records of every seed by split, known gives their references."""
    here = known(spec.id, TEST)
    return {
        "task": spec.id,
        "version": spec.version,
        "known": here,
        "budgets": {
            name: None if math.isinf(budget) else budget
            for name, budget in zip(spec.cost_names, spec.cost_budget, strict=True)
        },
        "date": datetime.now(UTC).date().isoformat(),
        "where": f"{jax.device_count()} x {device_name()}, jax {jax.__version__}, powerzoo_jax {__version__}",
        "episodes": played[TEST][0].episodes,
        "seeds": [_seed(test, here, val) for val, test in zip(played["val"], played[TEST], strict=True)],
        "named": {
            split: _named(records, known(spec.id, split)) for split, records in played.items() if split not in SPLITS
        },
    }


def _seed(test: Evaluation, known: Row | None, *others: Evaluation) -> Row:
    """Result of a seed on one split; others: splits whose budgets it must keep as well."""
    return {
        "return": test.mean_reward,
        "gain": gain_on(test.mean_reward, test.feasible, known),
        "costs": test.mean_costs_by_constraint,
        "kept": [record.feasible for record in (*others, test)],
    }


def _named(played: Sequence[Evaluation], known: Row | None) -> Row:
    """Part of a row for one named split: its references, episodes and seeds."""
    return {"known": known, "episodes": played[0].episodes, "seeds": [_seed(record, known) for record in played]}


def named_splits(task: str) -> tuple[str, ...]:
    """Named splits of a task that the shipped table has references for; none for a user's task."""
    if _is_own(task) or task not in list_baselines():
        return ()
    named = (split for split in get_baselines(task).splits if split not in CALENDAR)
    return tuple(split for split in named if _reference(task, split) is not None)


def _reference(task: str, split: str = TEST) -> Row | None:
    """Reference part of a row, from the shipped record of a split; it stays in the row, whose gain uses it."""
    try:
        record = get_reference(task, split)
    except KeyError:
        return None
    return {key: record[key] for key in REFERENCE if key in record}


def _own_reference(task: str, split: str) -> Row | None:
    """Reference part of a row of a user's task, computed on a split; None where no policies are known for it."""
    if task not in list_baselines():
        return None
    record = reference(task, split)
    return {key: record[key] for key in REFERENCE if key in record}


def _said(row: Row) -> str:
    if "error" in row:
        return f"not trained: {row['error']}"
    return f"gain {gains_of(row['seeds'])}, budgets kept by {kept_of(row['seeds'])}"


def page(rows: Sequence[Row]) -> str:
    """The Markdown page of rows, which also names the splits that a row was not played on."""
    return write_page([row if "error" in row else _with_every_split(row) for row in rows])


def _with_every_split(row: Row) -> Row:
    """The row with the references of named splits that it was not played on, in the order of the task's splits."""
    played = row.get("named", {})
    missing = (split for split in named_splits(row["task"]) if split not in played)
    named: dict[str, Row] = {split: {"known": _reference(row["task"], split), "seeds": []} for split in missing}
    order = dict.fromkeys((*named_splits(row["task"]), *played))
    return {**row, "named": {split: (played | named)[split] for split in order}}
