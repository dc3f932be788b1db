"""Training logs of a run: always a TSV, TensorBoard and Weights & Biases where asked, a line for the bar."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from powerzoo_jax.base.errors import RunError, missing_extra, unknown
from powerzoo_jax.base.files.results import not_written, write_text
from powerzoo_jax.base.textfile import read_text
from powerzoo_jax.envs import Sim
from powerzoo_jax.tasks.score import gain

Row = dict[str, float]


class Sink(Protocol):
    """Additional destination of log rows, beside the TSV."""

    def write(self, update: int, row: Row) -> None:
        """Take the numbers of an update."""

    def close(self) -> None:
        """Send what is held back."""


class Log:
    """A TSV with a row an update, or one for some of them; opening it drops rows later than the checkpoint."""

    def __init__(self, path: Path, done: int) -> None:
        kept = read_text(path, RunError).splitlines()[: done + 1] if done and path.is_file() else []
        kept = [line for line in kept if not (number := line.partition("\t")[0]).isdecimal() or float(number) <= done]
        # by way of another file: a process killed here must not take the rows along
        write_text(path, "".join(f"{line}\n" for line in kept))
        self.path, self.file = path, path.open("a", encoding="utf-8", buffering=1)  # a row is on disk once written
        self.started = bool(kept)

    def write(self, update: int, steps: int, row: Row) -> None:
        """Append the numbers of an update."""
        lines = [] if self.started else ["\t".join(("update", "env_steps", *row))]
        lines.append("\t".join((str(update), str(steps), *(f"{x:.6g}" for x in row.values()))))
        try:
            for line in lines:
                self.file.write(f"{line}\n")
        except OSError as err:
            raise not_written(self.path, err) from err
        self.started = True

    def close(self) -> None:
        """Close the file."""
        self.file.close()


def row_of(metrics: Mapping[str, Any], sim: Sim, labels: Sequence[str] = ("",)) -> Row:
    """Name every number of an update's metrics, means over the seeds of each point; the return comes first.

    Of several seeds each has its return too: "return.0", "return.1", ...

    metrics:  arrays (points * seeds, ...), as `Run.programs` returns them
    labels:   one for each point of a sweep, in front of the names
    """
    row: Row = {}
    # jit returns dicts sorted by name
    for key, value in sorted(metrics.items(), key=lambda item: item[0] != "return"):
        values = np.asarray(value, np.float64)
        parts = values.reshape(len(labels), len(values) // len(labels), -1)
        for label, part in zip(labels, parts, strict=True):
            front = f"{label} " if label else ""
            names = (front + name for name in _columns(key, part.shape[1], sim))
            row |= dict(zip(names, part.mean(axis=0).tolist(), strict=True))
            if key == "return" and len(part) > 1:
                row[f"{front}return_sd"] = float(part.std(ddof=1))
                row |= {f"{front}return.{k}": value for k, value in enumerate(part[:, 0].tolist())}
    return row


def _columns(key: str, size: int, sim: Sim) -> list[str]:
    """Names of the numbers under a key: by cost channel or reward term where their count says so."""
    if key == "terms":
        return [f"terms.{name}" for name in sim.spec.term_names]
    if key == "cost" or (size > 1 and size == len(sim.spec.cost_names)):
        return [f"{key}.{name}" for name in sim.spec.cost_names]
    return [key] if size == 1 else [f"{key}.{i}" for i in range(size)]


def headline(row: Row, sim: Sim, ends: tuple[float, float] | None, steps_per_s: float) -> str:
    """Headline of the bar: return, gain, budgets overrun and speed; means of the exploring policy, over its seeds."""
    words = [f"return {row['return']:+.2f}"]
    over = sum(row[f"cost.{n}"] > b for n, b in zip(sim.spec.cost_names, sim.spec.cost_budget, strict=True))
    # one that breaks a budget gains nothing
    share = gain(row["return"], *ends, feasible=not over) if ends is not None else None
    words += [] if share is None else [f"gain {share:.2f}"]
    words.append(f"{over} of {len(sim.spec.cost_names)} budgets violated")
    words.append(f"{steps_per_s:,.0f} steps/s")
    return ", ".join(words)


def check_sinks(names: Sequence[str]) -> None:
    """Raise before anything is trained: ValueError for an unknown log, ImportError naming the extra of a package."""
    for name in names:
        if name not in SINKS:
            raise ValueError(unknown("log", name, SINKS))
        _package(SINKS[name].package)


def open_sink(name: str, folder: Path, settings: Mapping[str, Any], done: int) -> Sink:
    """Open one of the logs that `check_sinks` passes."""
    return SINKS[name](folder, settings, done)


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as err:
        raise ImportError(missing_extra("This log", name, "log")) from err


class TensorBoard:
    """Event files under `tensorboard/` of the run's folder."""

    package = "tensorboardX"

    def __init__(self, folder: Path, settings: Mapping[str, Any], done: int) -> None:
        # rows after the checkpoint are written again
        self.writer = _package(self.package).SummaryWriter(str(folder / "tensorboard"), purge_step=done + 1)
        self.writer.add_text("settings", "\n".join(f"{k} = {v}" for k, v in settings.items()), done)

    def write(self, update: int, row: Row) -> None:
        """One scalar a name."""
        for name, value in row.items():
            self.writer.add_scalar(name, value, update)

    def close(self) -> None:
        """Flush and close."""
        self.writer.close()


class WandB:
    """A Weights & Biases run; project and mode come from the environment (WANDB_PROJECT, WANDB_MODE)."""

    package = "wandb"

    def __init__(self, folder: Path, settings: Mapping[str, Any], done: int) -> None:
        about = {"name": folder.name, "dir": str(folder), "config": {**settings, "updates_done": done}}
        self.run = _package(self.package).init(project=os.environ.get("WANDB_PROJECT", "powerzoo-jax"), **about)

    def write(self, update: int, row: Row) -> None:
        """All numbers of an update at once."""
        self.run.log(row, step=update)

    def close(self) -> None:
        """Finish the run."""
        self.run.finish()


SINKS: dict[str, Any] = {"tensorboard": TensorBoard, "wandb": WandB}
