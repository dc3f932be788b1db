"""`evaluate` and `reference`: score baselines and trained runs on whole splits."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from powerzoo_jax.base.errors import DataMissing, SettingsError, listing, unknown
from powerzoo_jax.cli.own import parse_keywords
from powerzoo_jax.cli.runs import Run, is_run, open_run
from powerzoo_jax.cli.selection import policies_of_run
from powerzoo_jax.cli.table import STDOUT, render, say, working, write_json
from powerzoo_jax.cli.traces import chosen_starts, trace_policies, write_traces
from powerzoo_jax.envs import Sim
from powerzoo_jax.envs.constraint import UNITS
from powerzoo_jax.envs.episode import Act
from powerzoo_jax.oracle import (
    BASELINES,
    evaluate_baseline,
    get_baselines,
    get_reference,
    list_baselines,
)
from powerzoo_jax.oracle.reference import recorded_starts
from powerzoo_jax.oracle.registry import gain_ends, shipped_record
from powerzoo_jax.rl.training.config import ALGORITHMS, CloneConfig, Config, Priced
from powerzoo_jax.rl.training.parallel import make_mesh, spread
from powerzoo_jax.rl.zoo import ZOO, load_policy
from powerzoo_jax.tasks import make
from powerzoo_jax.tasks.score import SEED, Evaluation, evaluate, keeps

ROUNDING = 1e-6  # of float32: costs that small are printed as 0


class Score(NamedTuple):
    """One row of a table: the records of one policy, one for each seed it was trained with."""

    name: str
    records: Sequence[Evaluation]


def ends_of(sim: Sim, *, n_episodes: int | None = None, seed: int = SEED) -> tuple[float, float] | None:
    """(rule, best) mean returns that a gain is measured between: the shipped ones of a split, else those of the rule
    and the oracle, which keeps every limit of each episode, played on the same episodes.

    None for a task without reference policies, and where the rule breaks a budget or nothing is better than it.
    """
    if sim.spec.id not in list_baselines():
        return None
    record = shipped_record(sim) if n_episodes is None else None
    if record is not None:
        return gain_ends(record)
    rule, oracle = (evaluate_baseline(sim, n, n_episodes=n_episodes, seed=seed) for n in ("rule", "oracle"))
    played = {"rule": rule.mean_reward, "best": oracle.mean_reward, "feasible": {"rule": rule.feasible}}
    return gain_ends(played)


def shipped_ends(sim: Sim) -> tuple[float, float] | None:
    """(rule, best) mean returns of the shipped table for a split; None where it has none, see `ends_of`."""
    record = shipped_record(sim)
    return None if record is None else gain_ends(record)


def _episodes(sim: Sim, n_episodes: int | None, seed: int) -> dict[str, Any]:
    """Episodes to play: those asked for, else those of the shipped record, which a gain compares with.

    A record holds every start of the split once, or seeded episodes.
    """
    record = shipped_record(sim) if n_episodes is None else None
    if record is None:
        return {"n_episodes": n_episodes, "seed": seed}
    return {"draws": recorded_starts(sim, record), "seed": record["seed"]}


def baseline_scores(
    sim: Sim, names: Sequence[str] = BASELINES, *, n_episodes: int | None = None, seed: int = SEED
) -> list[Score]:
    """Records of the baselines named, and of the zoo's policy; none for a task without reference policies."""
    if sim.spec.id not in list_baselines():
        return []
    ends = ends_of(sim, n_episodes=n_episodes, seed=seed)
    arguments = _episodes(sim, n_episodes, seed)

    def record(name: str) -> Evaluation:
        if name == ZOO:
            return evaluate(sim, load_policy(sim.spec.id, sim), ends=ends, **arguments)
        return evaluate_baseline(sim, name, ends=ends, **arguments)

    return [Score(name, [record(name)]) for name in names]


def score_policies(sim: Sim, name: str, acts: Sequence[Any], **arguments: Any) -> Score:
    """Records of one policy trained with several seeds; the arguments are those of `baseline_scores`."""
    return Score(name, score_trained(sim, acts, ends=ends_of(sim, **arguments), **arguments))


def score_trained(
    sim: Sim,
    acts: Sequence[Any],
    *,
    ends: tuple[float, float] | None = None,
    n_episodes: int | None = None,
    seed: int = SEED,
) -> list[Evaluation]:
    """Records of trained policies, their episodes spread over this process's devices; ends as shipped by default."""
    ends = shipped_ends(sim) if ends is None else ends
    arguments = _episodes(sim, n_episodes, seed)
    sim = spread(sim, make_mesh(jax.local_devices()))
    return [evaluate(sim, act, ends=ends, **arguments) for act in acts]


def score_table(
    sim: Sim,
    scores: Sequence[Score],
    extra: Mapping[str, Mapping[str, str]] | None = None,
) -> str:
    """One table: return a day, gain, every cost channel a day, budgets.

    No share of the best return: returns are negative in most tasks, where the worse policy has the larger share.
    Several records of a policy show as mean +- standard deviation over its seeds, the gain over the feasible ones.
    extra:  further columns, header -> policy name -> cell
    """
    per_day = 24.0 / (sim.spec.horizon * sim.spec.dt_hours)
    costs, extra = sim.spec.cost_names, extra or {}
    rows = [
        (
            score.name,
            _spread([r.mean_reward * per_day for r in score.records], "+.2f"),
            _gain(score.records),
            *(_spread([r.mean_costs_by_constraint[c] * per_day for r in score.records], ".3g") for c in costs),
            _feasible(score.records),
            *(column.get(score.name, "-") for column in extra.values()),
        )
        for score in scores
    ]
    units = (f"{name} [{unit}]" for name, unit in zip(costs, cost_units(sim), strict=True))
    money = "money/day [$]" if set(sim.spec.term_weights) == {1.0} else "return/day"
    return render(("policy", money, "gain", *units, "in budget", *extra), rows)


def budget_advice(score: Score, config: Config) -> str:
    """Line that says what to set where a trained policy breaks budgets: the worst of its seeds; "" where all keep them.

    score:  of a run with these settings
    """
    broken = [record for record in score.records if not record.feasible]
    if not broken:
        return ""
    budgets = {name: budget for name, budget in broken[0].cost_thresholds.items() if budget is not None}
    spent = {name: max(record.mean_costs_by_constraint[name] for record in broken) for name in budgets}
    over = [name for name in budgets if not keeps(np.array(spent[name]), np.array(budgets[name]))]
    told = listing(f"{name} {spent[name]:.3g} of {budgets[name]:g} {unit_of(name)}" for name in over)
    names = list(broken[0].mean_costs_by_constraint)
    before = dict(zip(names, config.cost_weights or (0.0,) * len(names), strict=True))
    priced = (f"{(2 * price or 1.0) if name in over else price:g}" for name, price in before.items())
    if isinstance(config, CloneConfig):
        remedy = "give its teacher tighter limits with --set teacher_keywords=NAME=VALUE"
    elif isinstance(config, Priced):
        remedy = f"aim lower with --set budget_share={config.budget_share / 2:g}"
    else:
        remedy = f"price it with --set cost_weights={','.join(priced)}"
        safe = f"{config.algorithm}_lagrangian"
        remedy += f", or train with --algorithm {safe}" if safe in ALGORITHMS else ""
    return f"{score.name} breaks a budget: {told} in an episode. To keep it, {remedy}."


def say_advice(score: Score, config: Config) -> None:
    """Print `budget_advice` below a table, where there is any."""
    if text := budget_advice(score, config):
        say(f"\n{text}")


def _feasible(records: Sequence[Evaluation]) -> str:
    """Feasibility as text: yes or no; the number of feasible seeds where there are several."""
    good = sum(r.feasible for r in records)
    return f"{good} of {len(records)}" if len(records) > 1 else ("yes" if good else "no")


def _gain(records: Sequence[Evaluation]) -> str:
    """Gain as text; that of the feasible seeds where there are several, a dash where there is none."""
    known = [r.gain for r in records if r.gain is not None]
    return _spread(known, ".3f") if known else "-"


def cost_units(sim: Sim) -> tuple[str, ...]:
    """Units of the cost channels a day, by name."""
    return tuple(map(unit_of, sim.spec.cost_names))


def unit_of(channel: str) -> str:
    """Unit of a cost channel; one of another family shows none."""
    return UNITS.get(channel, "-")


def _spread(values: Sequence[float], form: str) -> str:
    if not np.isfinite(values).all():
        return "-"
    # roundings of float32 are no cost
    mean = format(float(np.mean(values)) if np.max(np.abs(values)) > ROUNDING else 0.0, form)
    return mean if len(values) == 1 else f"{mean} +- {format(float(np.std(values, ddof=1)), form.lstrip('+'))}"


def run(options: argparse.Namespace) -> int:
    """Score a task's baselines, or a trained run beside them."""
    with working(f"playing {options.what}, split {options.split}"):
        sim, scores = _play(options)
    # what was played is shown before a file of it is written: a full disk must not take it along
    if options.json == STDOUT:
        write_json(records_of(scores), STDOUT)
    else:
        print(f"{sim.spec.id}, split {sim.spec.split}, {scores[0].records[0].n_episodes} episodes\n")
        print(score_table(sim, scores), flush=True)
        if is_run(Path(options.what)):
            say_advice(scores[-1], open_run(Path(options.what)).config)
    if options.json not in (None, STDOUT):
        write_records(options.json, scores)
        print(f"\nrecords in {options.json}")
    if options.trace is not None:
        with working(f"playing {options.what} step by step"):
            _write_steps(options, sim, [score.name for score in scores])
        print(f"\nevery step in {options.trace}")
    return 0


def _write_steps(options: argparse.Namespace, sim: Sim, names: Sequence[str]) -> None:
    """Write the traces of the policies that were scored; of a trained one, the first seed."""
    trained: dict[str, Act] = {ZOO: load_policy(sim.spec.id, sim)} if ZOO in names else {}
    if is_run(Path(options.what)):
        run = open_run(Path(options.what))
        trained |= {run.config.algorithm: policies_of_run(run)[0]}
    draws = chosen_starts(sim, options.episodes, options.seed)
    baselines = [name for name in names if name not in trained]
    write_traces(options.trace, trace_policies(sim, baselines, trained, draws, options.seed))


def _play(options: argparse.Namespace) -> tuple[Sim, list[Score]]:
    """Task, and scores of the policies asked for."""
    path = Path(options.what)
    arguments = {"n_episodes": options.episodes, "seed": options.seed}
    if is_run(path):
        if options.keywords:
            raise SettingsError(f"--keyword: the run {path} keeps the keywords that it was trained with.")
        run = open_run(path)
        sim = run.make(options.split)
        scores = baseline_scores(sim, _beside(run, options.policy), **arguments)
        scores.append(score_policies(sim, run.config.algorithm, policies_of_run(run), **arguments))
    else:
        refuse_folder(path)
        sim = make(options.what, split=options.split, **parse_keywords(options.keywords))
        names = (options.policy,) if options.policy else get_baselines(sim.spec.id).names
        scores = baseline_scores(sim, names, **arguments)
    return sim, scores


def _beside(run: Run, policy: str | None) -> Sequence[str]:
    """Names of the baselines that a run is shown beside: the one asked for, none for the run's own algorithm.

    Raises ValueError for a name that the task does not have, before anything is played.
    """
    if policy is None:
        return BASELINES
    known = (*get_baselines(run.config.task).names, ZOO) if run.config.task in list_baselines() else ()
    if policy not in (*known, run.config.algorithm):
        raise ValueError(unknown("policy", policy, (*known, run.config.algorithm)))
    return (policy,) if policy in known else ()


def refuse_folder(path: Path) -> None:
    """Refuse the path of a folder that holds no run."""
    if path.is_dir() or len(path.parts) > 1:
        what = "holds no run" if path.is_dir() else "does not exist"
        raise DataMissing(f"{str(path)!r} {what}. Train one: powerzoo-jax train TASK --out {path}")


def run_reference(options: argparse.Namespace) -> int:
    """Print the reference returns of a task as JSON: the shipped record, or a fresh one."""
    if options.compute:
        from powerzoo_jax.oracle.reference import reference

        record = reference(options.task, options.split, **parse_keywords(options.keywords))
    elif options.keywords:
        raise SettingsError("--keyword: the shipped record is of the task without keywords; add --compute.")
    else:
        record = get_reference(options.task, options.split)
    write_json(record, STDOUT)
    return 0


def write_records(target: Path, scores: Sequence[Score]) -> None:
    """Write `records_of` the scores as JSON."""
    write_json(records_of(scores), target)


def records_of(scores: Sequence[Score]) -> dict[str, list[dict[str, Any]]]:
    """Full records as JSON holds them: policy -> list of records, one a seed."""
    return {s.name: [r.to_dict() for r in s.records] for s in scores}
