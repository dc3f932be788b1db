"""A training run as a folder: `run.json` (resolved settings), `checkpoint/`, `selected/`, logs, `scores.json`."""

from __future__ import annotations

import itertools
import json
import math
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
from jax import Array
from jax.sharding import Sharding
from jax.tree_util import Partial

from powerzoo_jax.base.errors import DataMissing, RunError, excerpt, listing, unknown
from powerzoo_jax.base.files.forms import misfit, require_form
from powerzoo_jax.base.files.results import file_name, write_text
from powerzoo_jax.base.ranges import Range, Seeds, Whole, fitted
from powerzoo_jax.base.textfile import MAX_SETTINGS_MB, read_json, require_file
from powerzoo_jax.cli.lock import HOLDER, LOCK
from powerzoo_jax.cli.own import parse_keywords
from powerzoo_jax.cli.table import say
from powerzoo_jax.envs import Sim
from powerzoo_jax.envs.episode import MEMORY, first_carry
from powerzoo_jax.rl.training import checkpoint
from powerzoo_jax.rl.training.config import ALGORITHMS, CONFIG_FOLDERS, Config, load, override
from powerzoo_jax.rl.training.learners import LEARNERS, Learner
from powerzoo_jax.tasks import make
from powerzoo_jax.tasks.registry import get_spec, relatives

RUN_FILE, CHECKPOINT, SELECTED, LOG, SCORES = "run.json", "checkpoint", "selected", "log.tsv", "scores.json"
VAL_LOG = "val.tsv"  # returns on split val, of the updates that a selection looks at
ROW = "row.json"  # of a run on the leaderboard
FOLDERS, FILES = (CHECKPOINT, SELECTED), (LOG, VAL_LOG, SCORES, ROW)  # that training again replaces
MOST_ROWS = 2**16  # policies of a run
UNTOUCHED = "It is no run of ours, and nothing there was changed: choose another folder, or an empty one."
RESTORE = "Restore the file, or choose another folder."
REPAIR = "Restore the file, train with --overwrite, or choose another folder."
RECORD = {"config": {"algorithm": str, "task": str}}  # what makes a folder ours
WHOLE_RECORD = {
    **{"config": {str: object}, "seeds": int, "seed": int},
    **{"grid?": {str: [float]}, "keywords?": [str], "modules?": [str]},
}
PREFERRED = ("ppo", "dagger", "clone", "apg_lagrangian")  # whose settings a task's name alone stands for


@dataclass(frozen=True)
class Run:
    """A run: where it lives, its resolved settings, its seeds, and the settings it varies.

    grid:      (name, values) of each float setting varied; every combination is a point, trained with every seed
    keywords:  NAME=VALUE of `make`, see `cli.own`
    modules:   Python files that registered the task, told for whoever opens the run; they are never run from here
    """

    folder: Path
    config: Any
    seeds: int = 1
    seed: int = 0
    grid: tuple[tuple[str, tuple[float, ...]], ...] = ()
    keywords: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise SettingsError for more policies than a program can hold, or none."""
        fitted("seeds", self.seeds, Seeds)
        fitted("seed", self.seed, Whole)
        fitted("points times seeds", self.rows, Annotated[int, Range(1, MOST_ROWS)])

    def make(self, split: str | None = None) -> Sim:
        """The task with the run's keywords; None takes what is trained on, with the days that settings add to it."""
        added = self.config.keywords if split is None else {}
        return make(self.config.task, split=split or self.config.split, **parse_keywords(self.keywords) | added)

    @property
    def learner(self) -> Learner:
        """The algorithm's functions."""
        return LEARNERS[self.config.algorithm]

    @property
    def points(self) -> list[tuple[float, ...]]:
        """Values of the settings varied, one tuple a point; without a grid, the one point that varies nothing."""
        return list(itertools.product(*(values for _, values in self.grid)))

    @property
    def labels(self) -> list[str]:
        """Label of each point."""
        names = [name for name, _ in self.grid]
        return [" ".join(f"{n}={x:g}" for n, x in zip(names, point, strict=True)) for point in self.points]

    @property
    def rows(self) -> int:
        """Policies trained side by side: points times seeds, the seeds of a point together."""
        return math.prod(len(values) for _, values in self.grid) * self.seeds

    @property
    def keys(self) -> Array:
        """One key a row, the same seeds for every point, (rows,)."""
        seeds = self.seed + np.tile(np.arange(self.seeds), len(self.points))
        return jax.vmap(jax.random.key)(jax.numpy.asarray(seeds))

    def varied(self, sim: Sim) -> tuple[Array, ...]:
        """Value of each setting varied by row, (rows,) each, in the dtype of the task."""
        dtype = sim.spaces()[0].low.dtype
        columns = np.repeat(np.array(self.points, dtype), self.seeds, axis=0).T
        return tuple(jax.numpy.asarray(column) for column in columns)

    def programs(self, sim: Sim) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """(init(keys, varied, sim), update(states, varied, sim)) over all rows; pure, to be compiled by the caller."""

        def learner(varied: tuple[Array, ...]) -> tuple[Any, Any]:
            names = (name for name, _ in self.grid)
            config = replace(self.config, **dict(zip(names, varied, strict=True)))
            return self.learner.make_update(config, sim)

        def init(key: Array, varied: tuple[Array, ...], sim: Sim) -> Any:
            return learner(varied)[0](key, sim)

        def update(state: Any, varied: tuple[Array, ...], sim: Sim) -> Any:
            return learner(varied)[1](state, sim)

        return jax.vmap(init, (0, 0, None)), jax.vmap(update, (0, 0, None))

    def to_dict(self) -> dict[str, Any]:
        """Content of `run.json`."""
        plain = {"config": self.config.to_dict(), "seeds": self.seeds, "seed": self.seed}
        grid = {name: list(values) for name, values in self.grid}
        more = {"grid": grid, "keywords": list(self.keywords), "modules": list(self.modules)}
        return plain | {name: value for name, value in more.items() if value}

    def write(self) -> None:
        """Create the folder and store the resolved settings."""
        write_text(self.folder / RUN_FILE, json.dumps(self.to_dict(), indent=2) + "\n")


def is_run(path: Path) -> bool:
    """True where the folder holds a run."""
    return (path / RUN_FILE).is_file()


def require_ours(folder: Path) -> None:
    """See that a folder may be trained in: it is empty, missing, or its record says that a run of ours is there.

    Raises RunError, before anything is touched, for another one, and for a run of which a part is a link, which may
    lead anywhere.
    """
    if not folder.is_dir():
        return
    there = [path for path in sorted(folder.iterdir()) if path.name not in (LOCK, HOLDER)]
    record = folder / RUN_FILE
    if there and not record.exists():
        raise RunError(f"{folder} holds {listing(path.name for path in there)} and no {RUN_FILE}. {UNTOUCHED}")
    if there:
        require_form(
            read_json(record, RunError, UNTOUCHED, max_mb=MAX_SETTINGS_MB), RECORD, str(record), RunError, UNTOUCHED
        )
    links = [path.name for path in there if path.is_symlink()]
    if links:
        raise RunError(f"{folder}: {listing(links)} is a link, and a run writes to its own folder alone. Remove it.")


def open_run(folder: Path) -> Run:
    """Read a run's settings; raises DataMissing where there is none, RunError where they cannot be read.

    Nothing that a run names is executed: a task of one's own has to be registered by whoever opens the run.
    """
    if not is_run(folder):
        raise DataMissing(f"{folder} holds no run (no {RUN_FILE}). Train one with `powerzoo-jax train TASK --out DIR`.")
    path = folder / RUN_FILE
    stored = read_json(path, RunError, RESTORE, max_mb=MAX_SETTINGS_MB)
    try:
        run = _run_of(folder, stored)
    except ValueError as err:
        raise RunError(f"{path} does not hold the settings of a run: {str(err).rstrip('.')}. {REPAIR}") from err
    if run.modules:
        try:
            get_spec(run.config.task)
        except ValueError as err:
            raise RunError(
                f"{path}: the task {excerpt(repr(run.config.task))} is registered by {listing(run.modules)}, which is "
                "not run unasked. If you trust it, name it on the command line: --module FILE; in Python, import it."
            ) from err
    return run


def _run_of(folder: Path, stored: Any) -> Run:
    """The run that `to_dict` has told. Raises ValueError for anything else."""
    if wrong := misfit(stored, RECORD) or misfit(stored, WHOLE_RECORD):
        raise ValueError(wrong)
    values = dict(stored["config"])
    algorithm = values.pop("algorithm")
    if algorithm not in ALGORITHMS:
        raise ValueError(unknown("algorithm", algorithm, ALGORITHMS))
    config, grid = ALGORITHMS[algorithm].from_dict(values), stored.get("grid", {})
    floats = varying(config)
    for name, points in grid.items():
        if name not in floats:
            raise ValueError(unknown("setting that varies", name, floats))
        for point in points:
            replace(config, **{name: point})  # which looks at its range
    points = tuple((name, tuple(map(float, values))) for name, values in grid.items())
    plain = (tuple(stored.get(name, ())) for name in ("keywords", "modules"))
    return Run(folder, config, stored["seeds"], stored["seed"], points, *plain)


def resolve_config(what: str, algorithm: str | None, settings: Iterable[str]) -> Config:
    """Settings of a TOML file, or of a task: those shipped for it, or for the task it is a variant of, else the
    defaults; `key=value` on top.
    """
    if algorithm is not None and algorithm not in ALGORITHMS:
        raise ValueError(unknown("algorithm", algorithm, ALGORITHMS))
    path = Path(what) if what.endswith(".toml") else shipped_config(what, algorithm)
    if path is None:
        config = _inherited(what, algorithm)
    else:
        require_file(path, "settings file", "Check the path, or give a task id for the defaults.")
        config = load(path, algorithm)
    get_spec(config.task)
    return override(config, dict(_pair(text) for text in settings))


def _inherited(task: str, algorithm: str | None) -> Config:
    """Settings of the nearest task that one is a variant of, with its prices of cost channels by their names."""
    spec = get_spec(task)
    for other in relatives(task):
        path = shipped_config(other.id, algorithm)
        if path is not None:
            say(f"{task}: settings of {other.id}, which it is a variant of")
            config = load(path, algorithm)
            prices = dict(zip(other.cost_names, config.cost_weights, strict=bool(config.cost_weights)))
            weights = tuple(prices.get(name, 0.0) for name in spec.cost_names) if prices else ()
            return replace(config, task=spec.id, cost_weights=weights)
    return ALGORITHMS[algorithm or "ppo"].from_dict({"task": spec.id})


def shipped_config(task: str, algorithm: str | None = None) -> Path | None:
    """The settings shipped for a task: of the algorithm, else of the first there is, as `PREFERRED` has them."""
    order = dict.fromkeys(((algorithm,) if algorithm else ()) + (*PREFERRED, *ALGORITHMS))
    names = [f"{task}_{name}.toml" for name in order]
    candidates = (folder / name for name in names for folder in CONFIG_FOLDERS)
    return next((path for path in candidates if path.is_file()), None)


def _pair(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not (name and sign and value):
        raise ValueError(f"{text!r} is not of the form KEY=VALUE, such as lr=1e-3.")
    return name.strip(), value.strip()


def parse_grid(config: Config, texts: Iterable[str]) -> tuple[tuple[str, tuple[float, ...]], ...]:
    """Settings to vary, out of NAME=VALUE,VALUE,...; raises ValueError where one is no single float.

    All points are one program, so what shapes it (sizes, counts, switches, names) cannot vary.
    """
    grid: dict[str, tuple[float, ...]] = {}
    floats = varying(config)
    for name, text in map(_pair, texts):
        values = [getattr(override(config, {name: part}), name) for part in text.split(",")]
        if name not in floats:
            raise ValueError(f"--over {name}: only single numbers vary in one program: {', '.join(floats)}.")
        grid[name] = tuple(dict.fromkeys(values))
    return tuple(grid.items())


def varying(config: Config) -> list[str]:
    """Names of the settings that may vary in one program: single numbers."""
    return [name for name, value in config.to_dict().items() if isinstance(value, float)]


def differing(first: Config, second: Config) -> list[str]:
    """Names of the settings in which two runs differ."""
    a, b = first.to_dict(), second.to_dict()
    return sorted(k for k in a.keys() | b.keys() if a.get(k) != b.get(k))


def has_checkpoint(run: Run) -> bool:
    """True where the run's folder holds a checkpoint."""
    return checkpoint.exists(run.folder / CHECKPOINT)


def drop_results(run: Run) -> None:
    """Delete what training has left in the folder of a run: checkpoints, log and scores, and nothing of others."""
    for name in FOLDERS:
        shutil.rmtree(run.folder / name, ignore_errors=True)
    for name in FILES:
        (run.folder / name).unlink(missing_ok=True)


def save_state(run: Run, state: Any, done: int) -> None:
    """Store the learner's state and the number of finished updates."""
    checkpoint.save(run.folder / CHECKPOINT, state, run.config, updates=done)


def load_state(run: Run, sim: Sim, sharding: Sharding | None = None) -> tuple[Any, int]:
    """State and finished updates of a run's checkpoint; every array goes to `sharding`, by default the first device."""
    if not has_checkpoint(run):
        raise DataMissing(f"{run.folder} was stopped before its first checkpoint. Train it with --resume.")
    like = jax.eval_shape(run.programs(sim)[0], run.keys, run.varied(sim), sim)
    state = checkpoint.restore(run.folder / CHECKPOINT, like, sharding)
    return state, checkpoint.load_config(run.folder / CHECKPOINT)[1]


def as_acts(run: Run, sim: Sim, trained: Any) -> list[Partial]:
    """Acts out of the policies of a learner with a leading row axis; one compile serves them all."""

    def act(policy: Any, carry: Any, obs: Array, key: Array, **memory: Any) -> Any:
        del memory  # for whoever plays the act, see `first_carry`
        return run.learner.act(run.config, sim, policy)(carry, obs, key)

    def one(policy: Any) -> Partial:
        memory = first_carry(run.learner.act(run.config, sim, policy), ())
        return Partial(act, policy, **({MEMORY: memory} if jax.tree.leaves(memory) else {}))

    return [one(jax.tree.map(lambda x, i=i: x[i], trained)) for i in range(run.rows)]


def default_folder(config: Config, sweep: bool = False) -> Path:
    """Default folder of a run."""
    return Path("results") / (file_name(config.task, config.algorithm) + ("_sweep" if sweep else ""))


def describe(config: Config) -> Sequence[tuple[str, Any]]:
    """Resolved settings as pairs, for printing."""
    return list(config.to_dict().items())
