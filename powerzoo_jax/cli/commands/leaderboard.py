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
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy.stats import trim_mean

from powerzoo_jax import __version__
from powerzoo_jax.base.errors import RunError, unknown
from powerzoo_jax.base.textfile import read_json
from powerzoo_jax.cli.commands.bench import device_name
from powerzoo_jax.cli.commands.evaluate import baseline_scores, score_trained, unit_of
from powerzoo_jax.cli.commands.train import INTERRUPTED, StopRequest, train
from powerzoo_jax.cli.lock import clear, hold
from powerzoo_jax.cli.log import replace_text
from powerzoo_jax.cli.runs import Run, has_checkpoint, is_run, open_run, resolve_config, shipped_config
from powerzoo_jax.cli.selection import chosen_policies, planner_seen
from powerzoo_jax.cli.table import STDOUT, write_json
from powerzoo_jax.oracle import get_baselines, get_causal, get_reference, list_baselines
from powerzoo_jax.oracle.baselines import CAUSAL
from powerzoo_jax.oracle.reference import reference
from powerzoo_jax.rl.training.config import ALGORITHMS
from powerzoo_jax.tasks import list_tasks, make
from powerzoo_jax.tasks.catalog import CATALOG
from powerzoo_jax.tasks.registry import get_spec
from powerzoo_jax.tasks.score import Evaluation, gain, keeps
from powerzoo_jax.tasks.spec import CALENDAR, TaskSpec

ROW, DATA = "row.json", ".json"
REFERENCE = (  # what a row keeps of the record, where it has it
    *("n", "episodes", "random", "rule", "trivial", "causal", "best", "bound", "mean_costs", "feasible"),
)
ANCHORS = ("random", "trivial", "rule", "causal", "best")  # from the least to the most that is usually earned
TEST, SPLITS = "test", ("val", "test")
RESAMPLES = 2000  # of the bootstrap: 50 of them lie beyond either end of a 95 % interval

Row = dict[str, Any]


class Result(NamedTuple):
    """Results of a row on one split: the references there, None without any, and those of every seed."""

    known: Row | None
    seeds: Sequence[Row]


class Interval(NamedTuple):
    """Interquartile mean over seeds, and its 95 % bootstrap interval; None with a single seed."""

    mean: float
    low: float | None
    high: float | None


def interquartile_mean(values: Sequence[float]) -> Interval:
    """Mean of the middle half of the seeds, resampled over seeds (Agarwal et al. 2021)."""
    x = np.asarray(values, np.float64)
    mean = float(trim_mean(x, 0.25))
    if len(x) == 1:
        return Interval(mean, None, None)
    draws = np.random.default_rng(0).integers(0, len(x), (RESAMPLES, len(x)))
    low, high = np.quantile(trim_mean(x[draws], 0.25, axis=1), [0.025, 0.975])
    return Interval(mean, float(low), float(high))


def run(options: argparse.Namespace) -> int:
    """Train the entries one after another; one already there with the same settings is read, not trained.

    The page keeps the other rows it has, so that it can grow entry by entry.
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
            fresh = set(map(_key, mine))
            # read again: another process may have added its rows to the page
            rows = [*(other for other in _written(data) if _key(other) not in fresh), *mine]
            print(f"{task}: {_said(row)}", flush=True)
            options.page.parent.mkdir(parents=True, exist_ok=True)
            replace_text(data, json.dumps(rows, indent=1) + "\n")
            replace_text(options.page, page(rows))
    if options.latex is not None:
        options.latex.parent.mkdir(parents=True, exist_ok=True)
        replace_text(options.latex, latex(rows))
    if options.json:
        write_json({"page": str(options.page), "rows": mine}, STDOUT)
    else:
        print(f"written: {options.page}")
    return 0


def _chosen(options: argparse.Namespace) -> list[str]:
    """Entries asked for. Raises ValueError where neither tasks nor --all are given: all of them take hours."""
    if options.tasks and options.all:
        raise ValueError("Give tasks or --all, not both.")
    if options.all:
        return public_tasks()
    if not options.tasks:
        raise ValueError(
            f"leaderboard: no task is named. Give some (such as battery_arbitrage dso:apg), or --all to train "
            f"{len(public_tasks())} tasks with {options.seeds} seeds each, which takes hours."
        )
    return list(options.tasks)


def public_tasks() -> list[str]:
    """Tasks with references on the test split and settings of their own."""
    return [task for task in list_tasks() if _reference(task) is not None and shipped_config(task) is not None]


def _entry(text: str, algorithm: str | None) -> tuple[str, str | None]:
    """Task and learner of TASK or TASK:ALGORITHM."""
    task, _, own = text.partition(":")
    return get_spec(task).id, own or algorithm


def _key(row: Row) -> tuple[str, str]:
    """Identity of a row on the page."""
    return row["task"], row["run"]["config"]["algorithm"] if "run" in row else ""


def _written(data: Path) -> list[Row]:
    """Rows of an earlier page that are of today's tasks, beside today's references where these are of its episodes."""
    rows: list[Row] = read_json(data, RunError, "Restore the file, or remove it.") if data.is_file() else []
    kept = [
        row
        for row in rows
        if "run" in row and (_is_own(row["task"]) or row["version"] == get_spec(row["task"]).version)
    ]
    return [_anchored(row) or row for row in kept]


def _is_own(task: str) -> bool:
    """True for a task that a user's module registers; this process knows it only if it was given the module."""
    return all(task != spec.id for spec, _ in CATALOG)


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
            return _planned(task, named_splits(task) if options.split is None else tuple(options.split))
        learner = algorithm or resolve_config(task, None, ()).algorithm
        config = resolve_config(task, learner, settings_of(options.settings, learner))
        run = Run(options.runs / f"{task}_{config.algorithm}", config, options.seeds, modules=options.module)
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
    return read_json(path, RunError, "Remove the file, and the run is scored again.") if path.is_file() else {}


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
    return [{**seed, "gain": _gain(seed["return"], seed["kept"][-1], known)} for seed in seeds]


def _gain(value: float, feasible: bool, known: Row | None) -> float | None:
    """Gain of a mean return; None where it breaks a budget, and where the rule does or nothing is better than it."""
    if known is None or not known["feasible"]["rule"] or known["best"] <= known["rule"]:
        return None
    return gain(value, known["rule"], known["best"], feasible=feasible)


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
        clear(run.folder)
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
    if begun:  # only the last part was timed here; a run that is only played again knows the whole
        row |= {key: _in_folder(run).get(key) for key in ("seconds", "cpu_s")}
    replace_text(run.folder / ROW, json.dumps(row, indent=1) + "\n")
    return row


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
        "gain": _gain(test.mean_reward, test.feasible, known),
        "costs": test.mean_costs_by_constraint,
        "kept": [record.feasible for record in (*others, test)],
    }


def _named(played: Sequence[Evaluation], known: Row | None) -> Row:
    """Part of a row for one named split: its references, episodes and seeds."""
    return {"known": known, "episodes": played[0].episodes, "seeds": [_seed(record, known) for record in played]}


def result_on(row: Row, split: str) -> Result | None:
    """Results of a row on a split; None where it was not scored there."""
    if split == TEST:
        return Result(row["known"], row["seeds"])
    found = row.get("named", {}).get(split)
    return None if found is None else Result(found["known"], found["seeds"])


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
    return f"gain {_gains(row['seeds'])}, budgets kept by {_kept(row['seeds'])}"


def page(rows: Sequence[Row]) -> str:
    """The Markdown page: conditions, a line for each task, named split and cost channel, what could not be trained."""
    done = sorted((row for row in rows if "error" not in row), key=_rank)
    left = [row for row in rows if "error" in row]
    parts = [HEAD, _conditions(done), _returns(done), *_shifted(done), COSTS, _costs(done)]
    if left:
        parts += ["## Not trained\n", *(f"- `{row['task']}-v{row['version']}`: {row['error']}" for row in left)]
    return "\n".join(parts) + "\n"


HEAD = """# Leaderboard

Written by `powerzoo-jax leaderboard`. Each task trains its default learner with several seeds in one program, by the
settings in `configs/`, and plays the episodes of the references: every start of the test split once, or some of them,
drawn with a seed, where plans take long (`n` in docs/tasks.md).

- **Gain** is (return - rule) / (best - rule): 0 is the operator's rule, 1 the best plans known that foresee everything
  and keep the same budgets. It is that of the seeds that keep every budget on the split; a learner none of whose seeds
  does is listed last, without a gain.
- **Returns** are those of an episode, in the unit of the task's reward. The learner's columns are interquartile means
  over seeds, with the 95 % interval of their bootstrap (Agarwal et al. 2021).
- **trivial** is the better of the best constant action and the best clock plan, **causal** a planner that knows no more
  than learners do, **best** the best feasible plans known, and the **bound** is a return that no policy within the
  budgets exceeds. A star: that policy breaks a budget. All play the same episodes.
- **Budgets kept**: seeds whose mean costs meet every budget on val and on test, and the channels that others break.
- **Planner seen**: the planner whose plans the policy, or the run that it began with, was trained on. A dash: it has
  learnt from the reward alone.
- **Times** are those of the clock, of all seeds together. CPU counts compiling, training and scoring, and tells more
  where the machine was shared.
- A learner `causal` is none: nothing is trained for it.
"""
NAMED = """
## Named splits

The same policies where days differ from training on purpose, beside their gain on the test split; the references play
the same days. A gain is a dash where the learner breaks a budget there, or the rule does (a star). A dash in the
learner's columns: the recorded run was not played there. New runs play every named split of their task;
`powerzoo-jax leaderboard TASK --split NAME` trains a recorded one again and fills its line.
"""
COSTS = """
## Costs

Mean of each channel that has a budget over the episodes of the test split; the learner's as mean over seeds, and how
many seeds keep the budget.
"""


def _conditions(rows: Sequence[Row]) -> str:
    where = sorted({f"- {row['where']}, {row['date']}" for row in rows})
    return "Conditions:\n\n" + "\n".join(where) + "\n"


def _rank(row: Row) -> tuple[Any, ...]:
    """Order on the page: by task, then by gain, those without any last."""
    known = [s["gain"] for s in row["seeds"] if s["gain"] is not None]
    return row["task"], not known, -interquartile_mean(known).mean if known else 0.0, _key(row)


def _returns(rows: Sequence[Row]) -> str:
    who = ("task", "learner", "seeds", "steps a seed")
    numbers = ("gain", "learner's return", *ANCHORS, "bound", "unit", "budgets kept")
    times = ("compile [s]", "training [s]", "CPU [s]")
    return _markdown((*who, *numbers, *times, "planner seen"), [_line(row) for row in rows])


def _line(row: Row) -> tuple[str, ...]:
    known, seeds = row["known"], row["seeds"]
    known_times = row["seconds"] is not None
    times = tuple(f"{x:.0f}" for x in (*row["seconds"][:2], row["cpu_s"])) if known_times else ("-",) * 3
    head = (
        f"`{row['task']}-v{row['version']}`",
        row["run"]["config"]["algorithm"],
        str(len(seeds)),
        f"{row['steps']:,}",
    )
    earned = (_gains(seeds), _return(Result(known, seeds)))
    anchors = tuple(_anchor(known, name) for name in (*ANCHORS, "bound"))
    kept = ", ".join((_kept(seeds), *_broken(row)))
    return (*head, *earned, *anchors, _unit(row["task"]), kept, *times, row.get("planner") or "-")


def _unit(task: str) -> str:
    """Unit of a return; a dash for a task that this process does not know."""
    try:
        return "$" if set(get_spec(task).term_weights) == {1.0} else "reward"
    except ValueError:
        return "-"


def _anchor(known: Row | None, name: str) -> str:
    """Return of a reference; starred where it breaks a budget."""
    if known is None or name not in known:
        return "-"
    return f"{known[name]:.4g}{'' if known['feasible'].get(name, True) else '*'}"


def _kept(seeds: Sequence[Row]) -> str:
    return f"{sum(all(s['kept']) for s in seeds)} of {len(seeds)}"


def _broken(row: Row) -> list[str]:
    """Channels whose budget some seed breaks on the test split."""
    limits = {name: budget for name, budget in budgets_of(row).items() if budget is not None}
    return [
        n for n, b in limits.items() if not all(keeps(np.asarray(s["costs"][n]), np.asarray(b)) for s in row["seeds"])
    ]


def _gains(seeds: Sequence[Row]) -> str:
    """Gain of the seeds that have one, as text."""
    known = [s["gain"] for s in seeds if s["gain"] is not None]
    return _spell(interquartile_mean(known), ".3f") if known else "-"


def _shifted(rows: Sequence[Row]) -> list[str]:
    """The section of named splits; nothing where no task has any."""
    header = ("task", "learner", "split", "gain", "gain on test", "learner's return", *ANCHORS, "bound")
    lines = [line for row in rows for line in _shifts(row)]
    return [NAMED, _markdown((*header, "budgets kept"), lines)] if lines else []


def _shifts(row: Row) -> list[tuple[str, ...]]:
    lines: list[tuple[str, ...]] = []
    for split in dict.fromkeys((*named_splits(row["task"]), *row.get("named", {}))):
        result = result_on(row, split) or Result(_reference(row["task"], split), ())
        anchors = (_anchor(result.known, name) for name in (*ANCHORS, "bound"))
        kept = _kept(result.seeds) if result.seeds else "-"
        cells = (_gains(result.seeds), _gains(row["seeds"]), _return(result), *anchors, kept)
        lines.append((f"`{row['task']}`", row["run"]["config"]["algorithm"], split, *cells))
    return lines


def _return(result: Result, form: str = ".4g") -> str:
    return _spell(interquartile_mean([s["return"] for s in result.seeds]), form) if result.seeds else "-"


def latex(rows: Sequence[Row]) -> str:
    """The results as a LaTeX table: learners between the references of their task, split by split; needs booktabs."""
    lines = []
    done = [row for row in rows if "error" not in row]
    for task in dict.fromkeys(row["task"] for row in done):
        mine = [row for row in done if row["task"] == task]
        for split in dict.fromkeys((TEST, *(split for row in mine for split in row.get("named", {})))):
            lines += [r"\midrule", *_latex_block(mine, task, split)]
    head = ("task", "split", "policy", "return", "gain", "budgets kept")
    body = [r"\begin{tabular}{lllrrr}", r"\toprule", _latex_line(head), *lines, r"\bottomrule", r"\end{tabular}"]
    return "\n".join(body) + "\n"


def _latex_block(rows: Sequence[Row], task: str, split: str) -> list[str]:
    """Lines of one task on one split: the references without foresight, the learners, the best."""
    results = {row["run"]["config"]["algorithm"]: found for row in rows if (found := result_on(row, split)) is not None}
    known = next((result.known for result in results.values()), None)
    anchors = {} if known is None else {name: known[name] for name in ANCHORS if name in known}
    lines = {}
    for name, value in anchors.items():
        share = _gain(value, known["feasible"].get(name, False), known) if known is not None else None
        lines[name] = (name, f"{value:.2f}", "-" if share is None else f"{share:.3f}", "")
    for name, result in results.items():
        lines[name] = (name, _return(result, ".2f"), _gains(result.seeds), _kept(result.seeds))
    order = [name for name in dict.fromkeys((*ANCHORS[:-1], *results, ANCHORS[-1])) if name in lines]
    return [_latex_line((*((task, split) if k == 0 else ("", "")), *lines[name])) for k, name in enumerate(order)]


def _latex_line(cells: Sequence[str]) -> str:
    return " & ".join(cell.replace("_", r"\_") for cell in cells) + r" \\"


def _costs(rows: Sequence[Row]) -> str:
    header = ("task", "learner", "channel", "budget", "random", "rule", "learner", "best", "seeds within")
    return _markdown(header, [line for row in rows for line in _channels(row)])


def _channels(row: Row) -> list[tuple[str, ...]]:
    known = (row["known"] or {}).get("mean_costs", {})
    lines: list[tuple[str, ...]] = []
    for name, budget in budgets_of(row).items():
        if budget is None:
            continue
        mine = [s["costs"][name] for s in row["seeds"]]
        theirs = {k: f"{known[k][name]:.3g}" if name in known.get(k, ()) else "-" for k in ("random", "rule", "best")}
        within = f"{sum(bool(keeps(np.asarray(x), np.asarray(budget))) for x in mine)} of {len(mine)}"
        cells = (f"{budget:g}", theirs["random"], theirs["rule"], f"{np.mean(mine):.3g}", theirs["best"], within)
        lines.append((f"`{row['task']}`", row["run"]["config"]["algorithm"], f"{name} [{unit_of(name)}]", *cells))
    return lines


def budgets_of(row: Row) -> dict[str, float | None]:
    """Budget of each cost channel, None without one; rows written before they held it are of shipped tasks."""
    if "budgets" in row:
        return dict(row["budgets"])
    spec = get_spec(row["task"])
    return {n: None if math.isinf(b) else b for n, b in zip(spec.cost_names, spec.cost_budget, strict=True)}


def _spell(x: Interval, form: str) -> str:
    return (
        f"{x.mean:{form}}" if x.low is None or x.high is None else f"{x.mean:{form}} [{x.low:{form}}, {x.high:{form}}]"
    )


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["-"] * len(header), *rows]
    return "\n".join("|" + "|".join(line) + "|" for line in lines)
