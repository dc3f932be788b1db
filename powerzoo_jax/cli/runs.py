"""A training run as a folder: `run.json` (resolved settings), `checkpoint.*`, `log.tsv`, `scores.json`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
from jax import Array
from jax.tree_util import Partial

from powerzoo_jax.base.errors import DataMissing, unknown
from powerzoo_jax.envs import Sim
from powerzoo_jax.rl import apg, checkpoint, ppo
from powerzoo_jax.rl.config import ALGORITHMS, Config, load, override
from powerzoo_jax.rl.policies import apg_act, ppo_act
from powerzoo_jax.tasks import make
from powerzoo_jax.tasks.registry import get_spec

RUN_FILE, CHECKPOINT, LOG, SCORES = "run.json", "checkpoint", "log.tsv", "scores.json"
PACKAGE = Path(__file__).resolve().parents[1]
CONFIG_FOLDERS = (PACKAGE / "configs", PACKAGE.parent / "configs")  # inside the wheel, and beside the sources


@dataclass(frozen=True)
class Learner:
    """What the command line needs of an algorithm.

    make_update:  (cfg, sim) -> (init, update)
    policy_of:    state -> what acting needs
    act:          (cfg, sim, policy) -> Act
    batch_steps:  (cfg, sim) -> environment steps of one update
    """

    make_update: Callable[..., tuple[Any, Any]]
    policy_of: Callable[[Any], Any]
    act: Callable[..., Any]
    batch_steps: Callable[[Any, Sim], int]


LEARNERS = {
    "ppo": Learner(ppo.make_update, ppo.policy_of, ppo_act, lambda cfg, sim: cfg.lanes * cfg.steps),
    "apg": Learner(apg.make_update, apg.policy_of, apg_act, lambda cfg, sim: cfg.lanes * sim.spec.horizon),
}


@dataclass(frozen=True)
class Run:
    """A run: where it lives, its resolved settings and its seeds."""

    folder: Path
    config: Any
    seeds: int = 1
    seed: int = 0

    @property
    def learner(self) -> Learner:
        """The algorithm's functions."""
        return LEARNERS[self.config.algorithm]

    @property
    def keys(self) -> Array:
        """One key a seed, (seeds,)."""
        return jax.vmap(jax.random.key)(self.seed + jax.numpy.arange(self.seeds))

    def to_dict(self) -> dict[str, Any]:
        """What `run.json` holds."""
        return {"config": self.config.to_dict(), "seeds": self.seeds, "seed": self.seed}

    def write(self) -> None:
        """Create the folder and store the resolved settings."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / RUN_FILE).write_text(json.dumps(self.to_dict(), indent=2) + "\n", encoding="utf-8")


def is_run(path: Path) -> bool:
    """Does the folder hold a run?"""
    return (path / RUN_FILE).is_file()


def open_run(folder: Path) -> Run:
    """Read a run's settings; raises DataMissing where there is none."""
    if not is_run(folder):
        raise DataMissing(f"{folder} holds no run (no {RUN_FILE}). Train one with `powerzoo-jax train TASK --out DIR`.")
    stored = json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))
    values = dict(stored["config"])
    config = ALGORITHMS[values.pop("algorithm")].from_dict(values)
    return Run(folder, config, stored["seeds"], stored["seed"])


def resolve_config(what: str, algorithm: str | None, settings: Iterable[str]) -> Config:
    """Settings of a TOML file, or of a task: the file shipped for it, else the defaults; `key=value` on top."""
    if algorithm is not None and algorithm not in ALGORITHMS:
        raise ValueError(unknown("algorithm", algorithm, ALGORITHMS))
    path = Path(what) if what.endswith(".toml") else shipped_config(what)
    if path is None:
        config = ALGORITHMS[algorithm or "ppo"].from_dict({"task": get_spec(what).id})
    elif path.is_file():
        config = load(path, algorithm)
    else:
        raise DataMissing(f"There is no settings file {what!r}. Check the path, or give a task id for the defaults.")
    get_spec(config.task)
    return override(config, dict(_pair(text) for text in settings))


def shipped_config(task: str) -> Path | None:
    """The settings tuned for a task, where there are some."""
    candidates = (folder / f"{task}_ppo.toml" for folder in CONFIG_FOLDERS)
    return next((path for path in candidates if path.is_file()), None)


def _pair(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not (name and sign and value):
        raise ValueError(f"--set {text!r} is not of the form KEY=VALUE, such as --set lr=1e-3.")
    return name.strip(), value.strip()


def differing(first: Config, second: Config) -> list[str]:
    """Names of the settings in which two runs differ."""
    a, b = first.to_dict(), second.to_dict()
    return sorted(k for k in a.keys() | b.keys() if a.get(k) != b.get(k))


def has_checkpoint(run: Run) -> bool:
    """Was the run ever saved?"""
    return (run.folder / f"{CHECKPOINT}.msgpack").is_file()


def save_state(run: Run, state: Any, done: int) -> None:
    """Store the learner's state and the number of finished updates."""
    checkpoint.save(run.folder / CHECKPOINT, state, run.config, updates=done)


def load_state(run: Run, sim: Sim) -> tuple[Any, int]:
    """State and finished updates of a run's checkpoint."""
    if not has_checkpoint(run):
        raise DataMissing(f"{run.folder} was stopped before its first checkpoint. Train it again with --overwrite.")
    init, _ = run.learner.make_update(run.config, sim)
    like = jax.jit(jax.vmap(init, (0, None)))(run.keys, sim)
    return checkpoint.restore(run.folder / CHECKPOINT, like), checkpoint.load_config(run.folder / CHECKPOINT)[1]


def policies_of_run(run: Run) -> list[Partial]:
    """The trained policies of a run, one a seed."""
    sim = make(run.config.task, split=run.config.split)
    return policies(run, sim, load_state(run, sim)[0])


def policies(run: Run, sim: Sim, state: Any) -> list[Partial]:
    """Policies out of a state with a leading seed axis; one compile serves all seeds."""
    trained = run.learner.policy_of(state)

    def act(policy: Any, carry: Any, obs: Array, key: Array) -> Any:
        return run.learner.act(run.config, sim, policy)(carry, obs, key)

    return [Partial(act, jax.tree.map(lambda x, i=i: x[i], trained)) for i in range(run.seeds)]


def default_folder(config: Config) -> Path:
    """Where a run goes when nobody says."""
    return Path("results") / f"{config.task}_{config.algorithm}"


def describe(config: Config) -> Sequence[tuple[str, Any]]:
    """Resolved settings as pairs, for printing."""
    return list(config.to_dict().items())
