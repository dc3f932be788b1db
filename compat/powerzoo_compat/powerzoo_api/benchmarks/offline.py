"""Offline data sets: transitions of a policy in one .npz file, and the reader that learners take."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from powerzoo_compat.powerzoo_api.benchmarks.evaluation import spec_of
from powerzoo_compat.powerzoo_api.benchmarks.policies import RandomPolicy
from powerzoo_jax.base.errors import DataError, listing
from powerzoo_jax.base.files.forms import require_form
from powerzoo_jax.base.npz import read_npz, write_npz
from powerzoo_jax.base.textfile import parse_json, require_file

SUFFIX, META, INFOS = ".npz", "metadata", "infos/"
ARRAYS = ("observations", "actions", "rewards", "costs", "next_observations", "terminals", "truncations")


class DatasetGenerator:
    """Recorder of whole episodes of a single-agent environment.

    policy:     None plays at random
    info_keys:  scalars of the info to record
    """

    def __init__(self, env: Any, policy: Any = None, info_keys: Sequence[str] = ("cost_sum", "is_safe")) -> None:
        self.env, self.policy, self.info_keys = env, policy, tuple(info_keys)

    def collect(self, n_episodes: int, save_path: str | Path, seed: int = 0, verbose: bool = False) -> Path:
        """Play episodes of seeds seed, seed + 1, ...; returns the path of the .npz file that holds them.

        The next observation of an episode's last step is the true last one, never the first of the next episode.
        """
        policy = RandomPolicy(self.env.action_space, seed) if self.policy is None else self.policy
        rows: dict[str, list[Any]] = {name: [] for name in (*ARRAYS, *(INFOS + key for key in self.info_keys))}
        for k in range(n_episodes):
            self._episode(policy, seed + k, rows)
            if verbose:
                print(f"episode {k + 1}/{n_episodes}")
        spec = spec_of(self.env)
        meta = {"task_id": spec.id, "version": spec.version, "split": spec.split, "seed": seed, "episodes": n_episodes}
        path = Path(save_path).with_suffix(SUFFIX)
        arrays: dict[str, Any] = {name: np.array(values) for name, values in rows.items()}
        arrays[META] = np.array(json.dumps(meta))
        write_npz(path, arrays)
        return path

    def _episode(self, policy: Any, seed: int, rows: dict[str, list[Any]]) -> None:
        obs, info = self.env.reset(seed=seed)
        if hasattr(policy, "reset"):
            policy.reset()
        done = False
        while not done:
            action = policy.act(obs, info)
            following, reward, terminated, truncated, info = self.env.step(action)
            values = (obs, action, reward, info["cost"], following, terminated, truncated)
            for name, value in zip(ARRAYS, values, strict=True):
                rows[name].append(value)
            for key in self.info_keys:
                rows[INFOS + key].append(info[key])
            obs, done = following, terminated or truncated


class DatasetLoader:
    """Reader of the data sets that `DatasetGenerator` writes."""

    def __init__(self, path: str | Path) -> None:
        self._arrays = read_npz(require_file(path, "data set"))
        if not {META, *ARRAYS} <= self._arrays.keys():
            raise DataError(f"{path} is not what DatasetGenerator writes: its arrays are {listing(self._arrays)}.")
        remedy = "Record them again: DatasetGenerator(env, policy).collect(n_episodes, path)"
        self._meta = parse_json(str(self._arrays.pop(META)), f"the description in {path}", DataError, remedy)
        require_form(self._meta, {str: object}, f"the description in {path}", DataError, remedy)
        count = {len(values) if values.ndim else -1 for values in self._arrays.values()}
        flat = all(self._arrays[name].ndim == 1 for name in ("rewards", "terminals", "truncations"))
        booleans = all(self._arrays[name].dtype == bool for name in ("terminals", "truncations"))
        if len(count) > 1 or not flat or not booleans or any(x.dtype.kind not in "fiub" for x in self._arrays.values()):
            raise DataError(f"{path}: its arrays do not belong together. {remedy}")

    def get_dataset(self, load_infos: bool = False) -> dict[str, np.ndarray]:
        """Transitions as arrays; `timeouts` are the truncations, which `terminals` never include."""
        chosen = {k: v.copy() for k, v in self._arrays.items() if load_infos or not k.startswith(INFOS)}
        return chosen | {"timeouts": self._arrays["truncations"].copy()}

    def metadata(self) -> dict[str, Any]:
        """Task, version, split and seeds."""
        return dict(self._meta)

    def filter(self, min_return: float = -np.inf, max_return: float = np.inf) -> dict[str, np.ndarray]:
        """Transitions of the episodes whose return lies within bounds."""
        ends = self._arrays["terminals"] | self._arrays["truncations"]
        episode = np.concatenate([[0], np.cumsum(ends)[:-1]]).astype(int)
        returns = np.bincount(episode, self._arrays["rewards"])
        kept = ((returns >= min_return) & (returns <= max_return))[episode]
        return {name: values[kept] for name, values in self.get_dataset(load_infos=True).items()}
