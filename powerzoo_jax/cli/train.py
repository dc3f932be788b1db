"""`train`: run an algorithm update by update, with a bar, a log, checkpoints, and a clean way to stop."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Self

import jax
import numpy as np

from powerzoo_jax.base.errors import DataError
from powerzoo_jax.cli.runs import (
    LOG,
    SCORES,
    Run,
    default_folder,
    describe,
    differing,
    is_run,
    load_state,
    open_run,
    policies,
    resolve_config,
    save_state,
)
from powerzoo_jax.cli.table import Progress, render_pairs
from powerzoo_jax.envs import Sim
from powerzoo_jax.tasks import make

INTERRUPTED = 130


@dataclass(frozen=True)
class Trained:
    """Where a run stands.

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


class Log:
    """A TSV with one row an update; opening it drops rows that the checkpoint does not know of."""

    def __init__(self, path: Path, sim: Sim, done: int) -> None:
        self.path, self.sim = path, sim
        kept = path.read_text(encoding="utf-8").splitlines()[: done + 1] if done and path.is_file() else []
        self.file = path.open("w", encoding="utf-8", buffering=1)  # a row is on disk once written
        self.file.writelines(f"{line}\n" for line in kept)
        self.started = bool(kept)

    def write(self, update: int, steps: int, metrics: dict[str, Any]) -> None:
        """Append the metrics of an update, means over the seeds."""
        row: dict[str, Any] = {"update": update, "env_steps": steps}
        names = {"cost": self.sim.spec.cost_names, "terms": self.sim.spec.term_names}
        # jit returns dicts sorted by name; what people look for comes first
        for key, value in sorted(metrics.items(), key=lambda item: item[0] != "return"):
            values = np.asarray(value, np.float64)
            mean = values.mean(axis=0).reshape(-1)
            labels = [f"{key}.{n}" for n in names[key]] if key in names else [key]
            row |= dict(zip(labels, (f"{x:.6g}" for x in mean), strict=True))
            if key == "return" and len(values) > 1:
                row["return_sd"] = f"{values.std(ddof=1):.6g}"
        if not self.started:
            self.file.write("\t".join(row) + "\n")
            self.started = True
        self.file.write("\t".join(map(str, row.values())) + "\n")

    def close(self) -> None:
        """Close the file."""
        self.file.close()


def train(run: Run, sim: Sim, *, resume: bool = False, every: float = 30.0, stop: StopRequest | None = None) -> Trained:
    """Train until the last update or a stop; the checkpoint holds whatever is reached.

    every:  seconds between checkpoints
    """
    init, update = run.learner.make_update(run.config, sim)
    total, per_update = run.config.updates, run.seeds * run.learner.batch_steps(run.config, sim)
    clock = time.perf_counter()
    state, done = load_state(run, sim) if resume else (jax.jit(jax.vmap(init, (0, None)))(run.keys, sim), 0)
    step: Callable[..., Any] = jax.jit(jax.vmap(update, (0, None))).lower(state, sim).compile()
    jax.block_until_ready(state)
    compile_s = time.perf_counter() - clock

    log, bar = Log(run.folder / LOG, sim, done), Progress(run.config.algorithm, total, done)
    first, clock = done, time.perf_counter()
    saved = clock
    try:
        while done < total and not (stop and stop.raised):
            state, metrics = step(state, sim)
            host = jax.device_get(metrics)  # waits for the update, so that the bar and the times are true
            done += 1
            log.write(done, done * per_update, host)
            bar.show(done, f"return {float(np.mean(host['return'])):+.2f} $")
            if time.perf_counter() - saved > every:
                save_state(run, state, done)
                saved = time.perf_counter()
    finally:
        bar.close()
        log.close()
    train_s = time.perf_counter() - clock
    save_state(run, state, done)
    return Trained(state, done, compile_s, train_s, (done - first) * per_update / max(train_s, 1e-9))


def run(options: argparse.Namespace) -> int:
    """Train, then score on the test split beside the baselines."""
    run, resume = _prepare(options)
    print(render_pairs(describe(run.config)))
    sim = make(run.config.task, split=run.config.split)
    with StopRequest() as stop:
        trained = train(run, sim, resume=resume, every=options.every, stop=stop)
    if trained.done < run.config.updates:
        print(_stopped(run, options, trained), file=sys.stderr)
        return INTERRUPTED
    print(
        f"\n{trained.done} updates, compile {trained.compile_s:.1f} s, training {trained.train_s:.1f} s, "
        f"{trained.steps_per_s:,.0f} env steps/s over {run.seeds} seed(s)\n"
    )
    _score(run, sim, trained)
    return 0


def _prepare(options: argparse.Namespace) -> tuple[Run, bool]:
    """Resolve the settings and see that the folder is free, or holds this very run when resuming."""
    if options.seeds < 1:
        raise ValueError(f"--seeds {options.seeds} must be at least 1.")
    config = resolve_config(options.what, options.algorithm, options.settings)
    run = Run(options.out or default_folder(config), config, options.seeds, options.seed)
    if options.resume:
        stored = open_run(run.folder)
        changed = differing(stored.config, config)
        changed += [k for k in ("seeds", "seed") if getattr(stored, k) != getattr(run, k)]
        if changed:
            raise DataError(
                f"{run.folder} was trained with other settings: {', '.join(changed)}. "
                "Resume with the same command, or give another --out."
            )
        return run, True
    if is_run(run.folder) and not options.overwrite:
        raise DataError(
            f"{run.folder} holds a run. Give --resume to go on, --overwrite to replace it, or another --out."
        )
    run.write()
    return run, False


def _stopped(run: Run, options: argparse.Namespace, trained: Trained) -> str:
    words = ["powerzoo-jax", "train", options.what, "--out", str(run.folder), "--resume"]
    words += ["--algorithm", options.algorithm] if options.algorithm else []
    words += [w for s in options.settings for w in ("--set", s)]
    words += ["--seeds", str(run.seeds)] if run.seeds > 1 else []
    words += ["--seed", str(run.seed)] if run.seed else []
    return f"stopped after update {trained.done} of {run.config.updates}; go on with: {shlex.join(words)}"


def _score(run: Run, sim: Sim, trained: Trained) -> None:
    from powerzoo_jax.cli.evaluate import baseline_scores, score_policies, score_table, write_records

    test = make(run.config.task, split="test")
    scores = baseline_scores(test)
    acts = policies(run, sim, trained.state)
    scores.append(score_policies(test, run.config.algorithm, acts))
    print(f"{test.spec.id}, split test, {scores[0].records[0].n_episodes} episodes\n")
    print(score_table(test, scores))
    write_records(run.folder / SCORES, scores)
    print(f"\nrecords in {run.folder / SCORES}, updates in {run.folder / LOG}")
