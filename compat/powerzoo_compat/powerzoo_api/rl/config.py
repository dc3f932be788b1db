"""Settings of a training run: a task, its wrappers, a reward and a learner, from keywords, a dict or a file."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Self

from powerzoo_compat._textfile import read_file
from powerzoo_compat.powerzoo_api.tasks.catalog import FRAMEWORKS
from powerzoo_compat.powerzoo_api.tasks.factory import get_task_class
from powerzoo_compat.powerzoo_api.tasks.rewards import get_reward_function
from powerzoo_compat.powerzoo_api.tasks.splits import splits_of
from powerzoo_jax.base.errors import unknown
from powerzoo_jax.base.ranges import Budget, Count, NotNegative, Positive, Range, Share, Whole, check_settings, fitted
from powerzoo_jax.rl.training.config import Samples
from powerzoo_jax.tasks import get_spec
from powerzoo_jax.tasks import list_tasks as list_core_tasks

ALGORITHMS = ("SAC", "PPO", "TD3", "PPO_LAG", "IPPO", "MAPPO")
GRID = "grid"  # the key that makes a config one of a grid
SECTIONS = ("task", "wrappers", "reward", "trainer")
HYPERPARAMETERS = {
    **dict.fromkeys(("gamma", "gae_lambda", "learning_rate"), Share),
    **dict.fromkeys(("tau", "exploration_fraction"), Share),
    **dict.fromkeys(("batch_size", "buffer_size", "n_steps", "n_epochs"), Count),
    **dict.fromkeys(("clip_range", "max_grad_norm"), Positive),
    **dict.fromkeys(("ent_coef", "vf_coef", "learning_starts"), NotNegative),
}  # ranges of what the learners of Stable-Baselines3 are given; those of the JAX learners stand in their settings
RENAMED = {"name": "task_name", "kwargs": "task_kwargs"}  # in section task


@dataclass
class RLConfig:
    """Settings of a training run, which `validate` checks.

    task_name:        id of a task;  task_config: its settings as a dict with the key "name" instead
    normalize:        observations in [-1, 1];  forecast_horizon: steps of load forecast to append
    safe_rl:          steps of six values, with the cost;  cost_threshold: limit of its sum, 1 unless given
    reward:           {"type": ..., parameters};  custom_reward_fn: a function of (observation, info) instead
    algorithm, policy, hyperparams, total_timesteps:  of the learner
    """

    task_name: str | None = None
    task_config: dict[str, Any] | None = None
    normalize: bool = False
    flatten: bool = True
    forecast_horizon: Whole = 0
    safe_rl: bool = False
    cost_threshold: Budget | None = None
    reward: dict[str, Any] | None = None
    custom_reward_fn: Any = None
    algorithm: str = "SAC"
    total_timesteps: Samples = 100_000
    policy: str = "MlpPolicy"
    hyperparams: dict[str, Any] = field(default_factory=dict)
    eval_episodes: Count = 10
    save_path: str | None = None
    framework: str = "auto"
    split: str = "train"
    obs_mode: str | None = None
    task_kwargs: dict[str, Any] = field(default_factory=dict)
    seed: Annotated[int, Range(0, 2**63 - 1)] | None = None

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Read a flat dict, or one of sections task, wrappers, reward and trainer.

        Raises ValueError for an unknown key, naming the nearest.
        """
        names = [f.name for f in dataclasses.fields(cls)]
        flat = _flat(values, names)
        for name in flat:
            if name not in names:
                raise ValueError(unknown("setting", name, names))
        return cls(**flat)

    @classmethod
    def from_yaml(cls, path: str | Path) -> Self:
        """Read a YAML or a TOML file; YAML needs PyYAML (extra `dropin`)."""
        return cls.from_dict(read_file(path))

    def to_dict(self) -> dict[str, Any]:
        """All settings as plain values, the function apart."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "custom_reward_fn"}

    @property
    def task(self) -> Any:
        """Full id of the task, or the config of a grid.

        Raises ValueError unless exactly one of task_name and task_config is given.
        """
        if (self.task_name is None) == (self.task_config is None):
            raise ValueError("give exactly one of task_name and task_config.")
        if self.task_config is not None and GRID in self.task_config:
            return get_task_class(self.task_config).config  # type: ignore[attr-defined]
        return get_task_class(str(self.task_name or self.task_config.get("name"))).name  # type: ignore[union-attr]

    def validate(self) -> None:
        """Raise ValueError for what cannot be run: both or no task, an unknown name, or a number out of range."""
        known = self.task in list_core_tasks()
        splits = splits_of(get_spec(self.task)) if known else (self.split,)  # a task of one's own checks its splits
        for kind, value, valid in (
            ("algorithm", self.algorithm, ALGORITHMS),
            ("framework", self.framework, FRAMEWORKS),
            (f"split of {self.task}", self.split, splits),
        ):
            if value not in valid:
                raise ValueError(unknown(kind, value, valid))
        check_settings("", self)
        for name, value in self.hyperparams.items():
            # Stable-Baselines3 also takes schedules and names such as "auto"; its other parameters it checks itself
            if name in HYPERPARAMETERS and not callable(value) and not isinstance(value, str):
                fitted(f"hyperparams: {name}", value, HYPERPARAMETERS[name])
        if self.reward is not None:
            get_reward_function(self.reward)


def _flat(values: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
    if not any(isinstance(values.get(section), Mapping) and section != "reward" for section in SECTIONS):
        return dict(values)
    flat: dict[str, Any] = {}
    for section, content in values.items():
        if section not in SECTIONS:
            raise ValueError(unknown("section", section, SECTIONS))
        if not isinstance(content, Mapping):
            raise ValueError(f"section {section!r} must hold keys and values, got {type(content).__name__}.")
        if section == "reward":
            flat["reward"] = dict(content)
        else:
            for key, value in content.items():
                flat[RENAMED.get(str(key), str(key)) if section == "task" else str(key)] = value
    return flat
