"""`train`: run an algorithm update by update, with a bar, a log, checkpoints, and a clean way to stop."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import FrameType
from typing import Any, NamedTuple, Self

import jax
from jax.sharding import Mesh

from powerzoo_jax.base.errors import DataError, printable
from powerzoo_jax.cli.commands.evaluate import (
    Score,
    baseline_scores,
    records_of,
    say_advice,
    score_policies,
    score_table,
    score_trained,
    shipped_ends,
    write_records,
)
from powerzoo_jax.cli.lock import hold
from powerzoo_jax.cli.log import Log, Sink, check_sinks, headline, open_sink, row_of
from powerzoo_jax.cli.runs import (
    LOG,
    SCORES,
    Run,
    default_folder,
    describe,
    differing,
    drop_results,
    has_checkpoint,
    is_run,
    load_state,
    open_run,
    parse_grid,
    require_ours,
    resolve_config,
    save_state,
)
from powerzoo_jax.cli.selection import Selector, begun_state, chosen_policies
from powerzoo_jax.cli.table import STDOUT, ProgressBar, render_pairs, say, working, write_json
from powerzoo_jax.envs import Sim
from powerzoo_jax.rl.training.parallel import agree, compile_on, everywhere, make_mesh, place, spread, whole
from powerzoo_jax.rl.training.processes import join, watch

INTERRUPTED = 130  # exit status after Ctrl-C, 128 + SIGINT, as shells have it
ROWS = 1  # leading axes of a run's state: policies trained side by side
CARRIED = ("algorithm", "seeds", "seed", "every", "split", "coordinator", "processes", "process")


@dataclass(frozen=True)
class Trained:
    """Progress of a training run.

    state:      learner state, leading axis one row a seed
    done:       updates finished, of config.updates
    compile_s:  seconds until the compiled programs were ready
    train_s:    seconds of updates in this process;  steps_per_s: environment steps over that time, all seeds
    """

    state: Any
    done: int
    compile_s: float
    train_s: float
    steps_per_s: float


class RunScores(NamedTuple):
    """Scores of what was trained.

    sim:    the task on the split that was played
    about:  how many seeds a row has and in which order they stand, "" for the usual ones
    """

    sim: Sim
    scores: Sequence[Score]
    about: str = ""


class StopRequest:
    """Turns the first Ctrl-C into a flag, so that the update in progress ends; a second one stops at once."""

    def __init__(self) -> None:
        self.raised = False

    def __enter__(self) -> Self:
        self.before = signal.signal(signal.SIGINT, self._catch)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self.before)

    def _catch(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self.raised:
            raise KeyboardInterrupt
        self.raised = True


class Reporter:
    """Tells where a run stands: log, other sinks, bar. Of several processes the first one speaks."""

    def __init__(self, run: Run, sim: Sim, done: int, sinks: Sequence[str]) -> None:
        self.run, self.sim, self.done = run, sim, done
        self.speaks = jax.process_index() == 0
        self.per_update = run.rows * run.learner.batch_steps(run.config, sim)
        self.bar = ProgressBar(run.config.algorithm, run.config.updates, done)
        self.log: Log | None = None
        self.sinks: list[Sink] = []
        self.ends, self.started, self.first = shipped_ends(sim), time.perf_counter(), done
        if self.speaks:
            self.sinks = [open_sink(name, run.folder, run.to_dict()["config"], done) for name in sinks]
            self.log = Log(run.folder / LOG, done)

    def tell(self, metrics: dict[str, Any]) -> None:
        """Take the metrics of the next update."""
        self.done += 1
        if self.log is None:
            return
        row = row_of(metrics, self.sim, self.run.labels)
        self.log.write(self.done, self.done * self.per_update, row)
        for sink in self.sinks:
            sink.write(self.done, row)
        if self.bar.visible:
            whole = row if len(self.run.labels) == 1 else row_of(metrics, self.sim)
            self.bar.show(self.done, headline(whole, self.sim, self.ends, self.steps_per_s))

    @property
    def steps_per_s(self) -> float:
        """Environment steps a second so far, all rows together."""
        return (self.done - self.first) * self.per_update / max(time.perf_counter() - self.started, 1e-9)

    def close(self) -> None:
        """Close the files and clear the bar."""
        self.bar.close()
        for part in (self.log, *self.sinks):
            if part is not None:
                part.close()


def train(
    run: Run,
    sim: Sim,
    *,
    resume: bool = False,
    every: float = 30.0,
    stop: StopRequest | None = None,
    mesh: Mesh | None = None,
    sinks: Sequence[str] = (),
) -> Trained:
    """Train until the last update or a stop; the checkpoint holds whatever is reached.

    resume:  go on from the checkpoint, or begin where the run was stopped before the first one
    every:   seconds between checkpoints
    mesh:    devices that share the lanes; None = all devices of all processes
    sinks:   names of further logs, see `log.SINKS`
    """
    mesh = make_mesh() if mesh is None else mesh
    spread_sim, total = spread(sim, mesh), run.config.updates
    clock = time.perf_counter()
    init, update = run.programs(spread_sim)
    # arrays go in as arguments: closed over, they would become text of the program
    varied, shared = everywhere((run.varied(sim), spread_sim), mesh)
    with working(f"compiling {run.config.algorithm} on {run.config.task}"):
        if resume and has_checkpoint(run):
            state, done = load_state(run, sim, whole(mesh))
            state = place(state, mesh, ROWS)
        else:
            if jax.process_index() == 0:
                drop_results(run)
            keys = everywhere(run.keys, mesh)
            state, done = compile_on(mesh, init, keys, varied, shared, lead=ROWS)(keys, varied, shared), 0
            if run.config.start_from:
                state = place(everywhere(begun_state(run, state), mesh), mesh, ROWS)
        # the state before an update is read no more once the next one is there: it takes its memory
        step = compile_on(mesh, update, state, varied, shared, donate=(0,), lead=ROWS)
        jax.block_until_ready(state)
    compile_s = time.perf_counter() - clock

    selector = Selector(run, sim, score_trained)
    report, saved, clock, finish = Reporter(run, sim, done, sinks), done, time.perf_counter(), False
    last = clock
    try:
        while done < total and not finish:
            state, metrics = step(state, varied, shared)
            report.tell(jax.device_get(metrics))  # waits for the update, so that bar and times are true
            done += 1
            selector.look(state, done)
            due, finish = agree(time.perf_counter() - last >= every, bool(stop and stop.raised))
            if due:
                save_state(run, state, done)
                saved, last = done, time.perf_counter()
    finally:
        report.close()
        selector.close()
    train_s = time.perf_counter() - clock
    if saved < done:
        save_state(run, state, done)
    return Trained(state, done, compile_s, train_s, (done - report.first) * report.per_update / max(train_s, 1e-9))


def run(options: argparse.Namespace) -> int:
    """Train, then score on the test split beside the baselines."""
    return train_and_tell(options, "train", _score)


def train_and_tell(options: argparse.Namespace, command: str, score: Callable[[Run, Sim, Trained], RunScores]) -> int:
    """Train a run and report on it, or say how to go on with one that was stopped; nobody else writes meanwhile."""
    run = plan(options)
    with ExitStack() as held:
        if jax.process_index() == 0:
            require_ours(run.folder)  # before the lock, which is a file there too
            held.enter_context(hold(run.folder, f"powerzoo-jax {command}"))
        return _train_and_tell(run, claim(run, options), options, score)


def _train_and_tell(
    run: Run, resume: bool, options: argparse.Namespace, score: Callable[[Run, Sim, Trained], RunScores]
) -> int:
    speaks = jax.process_index() == 0
    if speaks:
        print(render_pairs(describe(run.config)))
    sim = run.make()
    remedy = f"Start all processes again: {shlex.join(resume_command(run, options))}"
    with StopRequest() as stop, watch(remedy=remedy):
        trained = train(run, sim, resume=resume, every=options.every, stop=stop, sinks=options.log)
    if trained.done < run.config.updates:
        if speaks:
            words = shlex.join(resume_command(run, options))
            told = f"stopped after update {trained.done} of {run.config.updates}; go on with: {words}"
            print(printable(told), file=sys.stderr)
        return INTERRUPTED
    if speaks:
        print(
            f"\n{trained.done} updates, compile {trained.compile_s:.1f} s, training {trained.train_s:.1f} s, "
            f"{trained.steps_per_s:,.0f} env steps/s over {run.rows} run(s) on {jax.device_count()} device(s)\n"
        )
        report = score(run, sim, trained)
        # shown before they are written, which a full disk may prevent
        if options.json:
            write_json(_document(run, trained, report), STDOUT)
        else:
            spec, episodes = report.sim.spec, report.scores[0].records[0].n_episodes
            say(f"{spec.id}, split {spec.split}, {episodes} episodes{report.about}\n")
            print(score_table(report.sim, report.scores))
            if not run.grid:  # a sweep lists its points
                say_advice(report.scores[-1], run.config)
        write_records(run.folder / SCORES, report.scores)
        say(f"\nrecords in {run.folder / SCORES}, updates in {run.folder / LOG}")
    return 0


def _document(run: Run, trained: Trained, report: RunScores) -> dict[str, Any]:
    return {
        "run": str(run.folder),
        "task": report.sim.spec.id,
        "split": report.sim.spec.split,
        "updates": trained.done,
        "compile_s": trained.compile_s,
        "train_s": trained.train_s,
        "steps_per_s": trained.steps_per_s,
        "scores": records_of(report.scores),
    }


def plan(options: argparse.Namespace) -> Run:
    """Resolve the settings of a run and join the other processes; nothing is written."""
    check_sinks(options.log)
    config = resolve_config(options.what, options.algorithm, options.settings)
    grid = parse_grid(config, getattr(options, "over", ()))
    folder = options.out or default_folder(config, bool(grid))
    run = Run(folder, config, options.seeds, options.seed, grid, tuple(options.keywords), options.module)
    _join(options)
    return run


def claim(run: Run, options: argparse.Namespace) -> bool:
    """Take a folder for a run and write its settings there; returns whether the run in it is resumed.

    Raises DataError where it holds another run, or one that was neither to be resumed nor overwritten.

    The folder is one that `require_ours` passes.
    """
    if options.resume:
        stored = open_run(run.folder)
        changed = differing(stored.config, run.config)
        changed += [k for k in ("seeds", "seed", "grid", "keywords") if getattr(stored, k) != getattr(run, k)]
        if changed:
            raise DataError(
                f"{run.folder} was trained with other settings: {', '.join(changed)}. "
                "Resume with the same command, or give another --out."
            )
        return True
    if jax.process_index() == 0:
        if is_run(run.folder) and not options.overwrite:
            raise DataError(
                f"{run.folder} holds a run. Give --resume to go on, --overwrite to replace it, or another --out."
            )
        drop_results(run)  # first: a checkpoint must never lie beside the settings of another run
        run.write()
    return False


def _join(options: argparse.Namespace) -> None:
    """Make one of several processes, before anything asks for a device."""
    given = (options.coordinator, options.processes, options.process)
    if options.cluster:
        join()
    elif any(x is not None for x in given):
        if any(x is None for x in given):
            raise ValueError("Give --coordinator, --processes and --process together, or --cluster alone.")
        join(*given)


def resume_command(run: Run, options: argparse.Namespace) -> list[str]:
    """Words of the command that goes on with a stopped run, with every option that it was started with."""
    words = ["powerzoo-jax", "sweep" if run.grid else "train", options.what, "--out", str(run.folder), "--resume"]
    words += [w for s in options.settings for w in ("--set", s)]
    words += [w for name, values in run.grid for w in ("--over", f"{name}={','.join(map(str, values))}")]
    words += [w for name in options.log for w in ("--log", name)]
    words += [w for text in run.keywords for w in ("--keyword", text)]
    words += [w for path in run.modules for w in ("--module", path)]
    words += ["--cluster"] if options.cluster else []
    for name in CARRIED:
        value = getattr(options, name, None)
        words += [f"--{name}", str(value)] if value is not None else []
    return words


def _score(run: Run, sim: Sim, trained: Trained) -> RunScores:
    """Scores on the test split beside the baselines."""
    test = run.make("test")
    scores = baseline_scores(test)
    acts = chosen_policies(run, sim, trained.state)
    return RunScores(test, [*scores, score_policies(test, run.config.algorithm, acts)])
