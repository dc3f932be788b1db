"""`view`: one episode under one policy or several as a page for a browser."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from powerzoo_jax.base.errors import SettingsError
from powerzoo_jax.base.files.results import file_name, write_text
from powerzoo_jax.base.tree import take
from powerzoo_jax.cli.commands.evaluate import refuse_folder
from powerzoo_jax.cli.own import parse_keywords
from powerzoo_jax.cli.runs import is_run, open_run
from powerzoo_jax.cli.selection import policies_of_run
from powerzoo_jax.cli.table import STDOUT, say, working, write_json
from powerzoo_jax.cli.traces import trace_policies
from powerzoo_jax.envs import Trace, load_traces
from powerzoo_jax.envs.episode import Act
from powerzoo_jax.oracle import list_baselines
from powerzoo_jax.oracle.baselines import ORACLE, RULE, policy_names
from powerzoo_jax.plot import episode_html
from powerzoo_jax.rl.zoo import ZOO, load_policy
from powerzoo_jax.tasks import make
from powerzoo_jax.tasks.score import SEED, all_starts

BESIDE = (RULE, ORACLE)  # between them lies the gain


def run(options: argparse.Namespace) -> int:
    """Play the episode, or read its traces, and write the page."""
    if options.what.endswith(".npz"):
        traces = _read(options)
    else:
        with working(f"playing {options.what}, split {options.split}"):
            traces = _played(options)
    target = options.out or Path("results") / f"{file_name(traces[0].task)}_episode.html"
    page = episode_html(traces)
    write_text(target, page)
    policies = [trace.policy for trace in traces]
    if options.json:
        first = traces[0]
        where = {"task": first.task, "split": first.split, "episode": first.episode + 1}
        write_json({**where, "policies": policies, "file": str(target)}, STDOUT)
    else:
        say(f"{', '.join(policies)}: {target}, {len(page) / 1e3:.0f} kB. Open it in a browser.")
    return 0


def _read(options: argparse.Namespace) -> Sequence[Trace]:
    """Traces of a file: those of the policies asked for, of the first episode in it."""
    found = list(load_traces(options.what).values())
    names = options.policy or [trace.policy for trace in found]
    chosen = [trace for trace in found if trace.episode == found[0].episode and trace.policy in names]
    missing = [name for name in names if name not in {trace.policy for trace in chosen}]
    if missing:
        known = ", ".join(dict.fromkeys(trace.policy for trace in found))
        raise ValueError(f"{options.what} holds no trace of {missing[0]!r}. It has {known}.")
    return chosen


def _played(options: argparse.Namespace) -> Sequence[Trace]:
    """Traces of a task's baselines, or of a trained run beside them."""
    path = Path(options.what)
    trained: dict[str, Act] = {}
    if is_run(path):
        if options.keywords:
            raise SettingsError(f"--keyword: the run {path} keeps the keywords that it was trained with.")
        run = open_run(path)
        sim = run.make(options.split)
        trained = {run.config.algorithm: policies_of_run(run)[0]}
        default = BESIDE if sim.spec.id in list_baselines() else []
    else:
        refuse_folder(path)
        sim = make(options.what, split=options.split, **parse_keywords(options.keywords))
        default = BESIDE
    starts = all_starts(sim)
    count, place = starts.load_row.shape[0], options.episode - 1
    if place >= count:
        raise ValueError(f"--episode {options.episode}: split {sim.spec.split!r} has {count}. Choose 1 to {count}.")
    asked = options.policy or [name for name in default if name in policy_names(sim.spec.id)]
    if ZOO in asked:
        trained |= {ZOO: load_policy(sim.spec.id, sim)}
    # an algorithm's own name shows the run alone, as in `evaluate`
    names = [name for name in asked if name not in trained]
    traces = trace_policies(sim, names, trained, take(starts, slice(place, place + 1)), SEED, place)
    return [rows[0] for rows in traces.values()]
