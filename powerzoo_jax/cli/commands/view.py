"""`view`: one episode under one policy or several as a page for a browser, or a grid as a picture."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from powerzoo_jax.base.errors import SettingsError, SolverError
from powerzoo_jax.base.files.results import file_name, write_text
from powerzoo_jax.base.tree import take
from powerzoo_jax.cases import Case, ThreePhaseCase, list_cases, read_grid
from powerzoo_jax.cases.threephase.library import is_feeder
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
from powerzoo_jax.plot import episode_html, plot_feeder, plot_network, save_figure
from powerzoo_jax.powerflow.threephase.host import solve_threephase_on_host
from powerzoo_jax.rl.zoo import ZOO, load_policy
from powerzoo_jax.study import run_power_flow
from powerzoo_jax.tasks import make
from powerzoo_jax.tasks.score import SEED, all_starts

GRIDS = (".m", ".json")
BESIDE = (RULE, ORACLE)  # between them lies the gain


def run(options: argparse.Namespace) -> int:
    """Play the episode, or read its traces, and write the page; of a grid draw its power flow."""
    if is_grid(options.what):
        return _run_grid(options)
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


def is_grid(what: str) -> bool:
    """Whether the name or the file of a grid is meant; folders of runs and tasks are none."""
    name = what.lower()
    return is_feeder(what) or name.endswith(GRIDS) or not {name, f"case{name}"}.isdisjoint(list_cases())


def _run_grid(options: argparse.Namespace) -> int:
    """Draw a grid with the voltages at the loads of its tables; bare, with the reason, where there is no power flow."""
    if options.policy or options.keywords:
        raise SettingsError("--policy and --keyword are of tasks: a grid is drawn at the loads of its tables.")
    grid, told = read_grid(options.what), ""
    try:
        figure = _draw(grid)
    except SolverError as err:
        told = f" without voltages: {err}"
        figure = plot_feeder(grid) if isinstance(grid, ThreePhaseCase) else plot_network(grid)
    target = save_figure(figure, options.out or Path("results") / f"{file_name(grid.name)}.svg")
    if options.json:
        write_json({"case": grid.name, "solved": not told, "file": str(target)}, STDOUT)
    else:
        say(f"{grid.name}: {target}{told}")
    return 0


def _draw(grid: Case | ThreePhaseCase) -> Any:
    if isinstance(grid, ThreePhaseCase):
        return plot_feeder(grid, v_pu=np.abs(solve_threephase_on_host(grid)))
    study = run_power_flow(grid)
    loading = study.branch["loading"] / 100
    return plot_network(study.case, v_pu=np.where(study.v == 0, np.nan, np.abs(study.v)), loading=loading)


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
