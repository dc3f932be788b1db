"""Offline data: whole episodes of a policy as arrays with names and units, for learners that see no simulator."""

from __future__ import annotations

import dataclasses
import importlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax.tree_util import Partial

from powerzoo_jax.base import Purpose, purpose_key
from powerzoo_jax.base.errors import DataError, excerpt, missing_extra
from powerzoo_jax.base.files.forms import require_form
from powerzoo_jax.base.npz import read_npz, require_array, write_npz
from powerzoo_jax.base.ranges import Count, Whole, checks_ranges
from powerzoo_jax.base.textfile import parse_json
from powerzoo_jax.envs.constraint import UNITS
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.episode import Act, first_carry
from powerzoo_jax.envs.family import family_name, get_family
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.envs.trace.names import action_ids
from powerzoo_jax.tasks.score import (
    SEED,
    all_starts,
    dataset_hashes,
    episode_hash,
    episode_keys,
    seeded_starts,
)

ABOUT = "about"  # array of a file that holds everything but numbers, as JSON text
SIDE_BY_SIDE = 64  # episodes in one call of the program: what a task records of more would not fit some machines
FORM = {
    **dict.fromkeys(("task", "split", "policy", "family"), str),
    **{"version": int, "seed": int, "drawn": bool, "dt_hours": float, "keywords": {str: object}},
}  # of what describes the data
DAMAGED = "Write them again: powerzoo-jax dataset TASK"
LISTS = ("agents", "observation_names", "observation_units", "action_names", "reward_terms", "cost_names", "cost_units")


@dataclass(frozen=True, eq=False)
class OfflineData:
    """Episodes of a policy one after another: N steps in E episodes.

    observations:        (N, A, O)        before the action, in the units of `observation_units`
    actions:             (N, A, U)        [-1, 1] as the environment clips them
    rewards:             (N, A)           in `reward_unit`
    terms:               (N, A, K)        reward terms before weighting
    costs:               (N, C)           of the channels, in `cost_units`
    terminated:          (N,)       bool  the episode ended because a solve failed
    truncated:           (N,)       bool  it ended because its time was up
    final_observations:  (E, A, O)        after the last step of each episode
    lengths:             (E,)       int32 steps of each episode
    low, high:           (A, O)           declared bounds of observations
    about:               task, version, split, policy, keywords; agents and names of all columns, units; budgets of the
                         costs of an episode (None = unlimited); dt_hours; first seed, and whether the starts are those
                         of seeds (`drawn`) or listed ones; `episodes`, the fingerprint that scores carry
                         (`tasks.score.episode_hash`), and the hashes of the series behind them
    """

    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    terms: np.ndarray
    costs: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    final_observations: np.ndarray
    lengths: np.ndarray
    low: np.ndarray
    high: np.ndarray
    about: dict[str, Any]

    def __repr__(self) -> str:
        told = self.about
        return (
            f"OfflineData({told['task']!r}, version={told['version']}, split={told['split']!r}, "
            f"policy={told['policy']!r}, {len(self.lengths)} episodes, {len(self.rewards)} steps)"
        )

    @cached_property
    def ends(self) -> np.ndarray:
        """Row behind the last step of each episode, (E,)."""
        ends: np.ndarray = np.cumsum(self.lengths)
        return ends

    @property
    def episodes(self) -> Iterator[slice]:
        """Rows of each episode."""
        return (slice(end - length, end) for end, length in zip(self.ends.tolist(), self.lengths.tolist(), strict=True))

    @property
    def next_observations(self) -> np.ndarray:
        """Observations after each step, (N, A, O): the true last one where an episode ends."""
        following = np.roll(self.observations, -1, axis=0)
        following[self.ends - 1] = self.final_observations
        return following

    @property
    def returns(self) -> np.ndarray:
        """Return of each episode, (E,) [unit of the reward]: the mean over a team, the sum over rivals in a market."""
        pool = np.sum if get_family(self.about["family"]).rivals else np.mean
        return np.array([pool(self.rewards[rows], axis=1, dtype=float).sum() for rows in self.episodes])


@jax.jit
def _play(sim: Sim, act: Partial, carry: Any, keys: Array, draws: Draw) -> Any:
    """Observations, actions and outcomes of whole episodes, (B, T, ...), and the observations after them."""

    def one(carry: Any, key: Array, drawn: Draw) -> Any:
        state, obs = sim.env.begin(key, drawn, sim.params)

        def advance(loop: tuple[Any, Array, Any], key: Array) -> Any:
            state, obs, carry = loop
            carry, action = act(carry, obs, key)
            out = sim.step(state, action)
            info = out.info
            told = (obs, action, out.reward, info.terms, out.cost, info.terminated, info.truncated)
            return (out.state, out.obs, carry), told

        keys = jax.random.split(purpose_key(key, Purpose.POLICY), sim.spec.horizon)
        (_, last, _), told = lax.scan(advance, (state, obs, carry), keys)
        return told, last

    return jax.vmap(one)(carry, keys, draws)


@checks_ranges("record_offline")
def record_offline(
    sim: Sim,
    act: Act,
    *,
    n_episodes: Count | None = None,
    seed: Whole = SEED,
    draws: Draw | None = None,
    carry: Any = (),
    policy: str = "",
) -> OfflineData:
    """Record every step of whole episodes of a policy; the episodes are those of `tasks.score.evaluate`.

    act:         (carry, obs (A, O), key) -> (carry, action (A, U) in [-1, 1])
    n_episodes:  None plays every eligible start once; else seeds seed .. seed + n_episodes - 1
    draws:       episodes chosen by the caller instead, leading axis B
    carry:       initial carry of the policy, leading axis B; () where it has none, or brings its own
    policy:      its name, kept beside the numbers
    Raises ValueError for a stacked Sim or for n_episodes below 1.

    Example:
        from powerzoo_jax.oracle import random_act
        data = record_offline(sim, random_act(sim), n_episodes=2, policy="random")
        pairs = data.observations, data.next_observations
    """
    drawn = draws is None and n_episodes is not None
    if draws is None:
        draws = all_starts(sim) if n_episodes is None else seeded_starts(sim, n_episodes, seed)
    count = draws.load_row.shape[0]
    keys, carry = episode_keys(seed, count), first_carry(act, carry, count)
    act = act if isinstance(act, Partial) else Partial(act)
    parts = []
    for first in range(0, count, SIDE_BY_SIDE):
        # the last call repeats an episode, so that all calls share one program
        rows = np.minimum(np.arange(first, first + min(SIDE_BY_SIDE, count)), count - 1)
        own = jax.tree.map(lambda x, rows=rows: x[rows], (carry, keys, draws))
        played = jax.tree.map(np.asarray, _play(sim, act, *own))
        parts += [jax.tree.map(lambda x, k=k: x[k], played) for k in range(min(len(rows), count - first))]
    told = {"policy": policy, "seed": seed, "drawn": drawn, "episodes": episode_hash(draws, seed)}
    return _joined(sim, parts, told)


def _joined(sim: Sim, parts: list[Any], told: dict[str, Any]) -> OfflineData:
    """Episodes one after another, each cut at its end."""
    horizon, cut, finals = sim.spec.horizon, [], []
    for columns, last in parts:
        over = np.flatnonzero(columns[5] | columns[6])
        length = int(over[0]) + 1 if len(over) else horizon
        cut.append([column[:length] for column in columns])
        finals.append(columns[0][length] if length < horizon else last)
    obs, actions, rewards, terms, costs, terminated, truncated = map(np.concatenate, zip(*cut, strict=True))
    box = sim.spaces()[0]
    return OfflineData(
        observations=obs,
        actions=np.clip(actions, -1, 1) if np.issubdtype(actions.dtype, np.floating) else actions,
        rewards=rewards,
        terms=terms,
        costs=costs,
        terminated=terminated,
        truncated=truncated,
        final_observations=np.stack(finals),
        lengths=np.array([len(columns[0]) for columns in cut], np.int32),
        low=np.asarray(box.low),
        high=np.asarray(box.high),
        about=_about(sim) | told,
    )


def _about(sim: Sim) -> dict[str, Any]:
    spec, blocks = sim.spec, sim.env.fields.blocks
    units = [(b.unit,) * len(b.names) if isinstance(b.unit, str) else b.unit for b in blocks]
    return {
        "task": spec.id,
        "version": spec.version,
        "split": spec.split,
        "family": spec.family,
        "keywords": json.loads(json.dumps(dict(spec.overrides), default=str)),
        "dt_hours": spec.dt_hours,
        "agents": list(spec.agents),
        "observation_names": list(sim.env.fields.names),
        "observation_units": [unit for own in units for unit in own],
        "action_names": list(action_ids(sim)),
        "reward_unit": "USD" if set(spec.term_weights) == {1.0} else "-",
        "reward_terms": list(spec.term_names),
        "reward_weights": list(map(float, spec.term_weights)),
        "cost_names": list(spec.cost_names),
        "cost_units": [UNITS.get(name, "-") for name in spec.cost_names],
        "cost_budgets": [float(x) if np.isfinite(x) else None for x in spec.cost_budget],
        "library_version": importlib.import_module(__name__.partition(".")[0]).__version__,
        "dataset_hashes": dataset_hashes(spec),
    }


ARRAYS = tuple(field.name for field in dataclasses.fields(OfflineData) if field.name != ABOUT)


def save_offline(path: str | Path, data: OfflineData) -> Path:
    """Write the data as one compressed npz file, and return its path.

    Its arrays are those of `OfflineData`; the lists of names and units are arrays of text, and `about` is JSON text.
    """
    target = Path(path)
    names = {name: np.array(data.about[name], np.str_) for name in LISTS}
    rest = {key: value for key, value in data.about.items() if key not in LISTS}
    write_npz(target, {name: getattr(data, name) for name in ARRAYS} | names | {ABOUT: np.array(json.dumps(rest))})
    return target


def load_offline(path: str | Path) -> OfflineData:
    """Read the data of a file that `save_offline` wrote.

    Raises DataError for a file that holds none.
    """
    arrays = read_npz(path, max_mb=None)
    missing = [name for name in (*ARRAYS, *LISTS, ABOUT) if name not in arrays]
    if missing:
        raise DataError(
            f"{path} holds no recorded episodes: {missing[0]} is missing. Write them: powerzoo-jax dataset TASK"
        )
    about = parse_json(str(arrays[ABOUT]), f"the description in {path}", DataError, DAMAGED)
    require_form(about, FORM, f"the description in {path}", DataError, DAMAGED)
    about["family"] = family_name(about["family"])
    try:
        about |= {name: require_array(arrays, name, "U", (None,)).tolist() for name in LISTS}
        _require_whole(arrays, len(about["agents"]), len(about["cost_names"]))
    except ValueError as err:
        raise DataError(f"{path} is damaged: {excerpt(err)}. {DAMAGED}") from err
    return OfflineData(**{name: arrays[name] for name in ARRAYS}, about=about)


def _require_whole(arrays: Mapping[str, np.ndarray], n_agent: int, n_cost: int) -> None:
    """Check of dtypes and shapes, those of `OfflineData`. Raises ValueError."""
    lengths = require_array(arrays, "lengths", "iu", (None,))
    episodes, seen = len(lengths), require_array(arrays, "low", "f", (n_agent, None)).shape[1]
    require_array(arrays, "observations", "f", (None, n_agent, seen))
    n = len(arrays["observations"])
    wanted: dict[str, tuple[str, tuple[int | None, ...]]] = {
        "high": ("f", (n_agent, seen)),
        "final_observations": ("f", (episodes, n_agent, seen)),
        "actions": ("fiu", (n, n_agent, None)),
        "rewards": ("f", (n, n_agent)),
        "terms": ("f", (n, n_agent, None)),
        "costs": ("f", (n, n_cost)),
        **dict.fromkeys(("terminated", "truncated"), ("b", (n,))),
    }
    for name, (kinds, shape) in wanted.items():
        require_array(arrays, name, kinds, shape)
    if not episodes or lengths.min() < 1 or lengths.max() > n or lengths.sum(dtype=np.int64) != n:
        raise ValueError(f"{episodes} episodes do not make up its {n} steps")


def to_minari(data: OfflineData, dataset_id: str, *, env: Any = None, **described: Any) -> Any:
    """Write the data into Minari's local store, and return the MinariDataset.

    dataset_id:  of the form "namespace/task/policy-v0"; Minari refuses one that it already has
    env:         `gymnasium.envs.registration.EnvSpec` or id of an environment of this task, which the data set
                 recovers; None keeps the spaces alone
    described:   further keywords of `minari.create_dataset_from_buffers`, such as author and code_permalink

    Observations and actions of several agents are dicts by agent, and the reward is the one of `OfflineData.returns`.
    infos["cost"] holds the cost channels by name, infos["reward"] the reward of each of several agents; everything of
    `about` is in the metadata under "powerzoo_jax". Raises ImportError, naming the extra, without Minari.
    """
    try:
        import minari
        from minari.data_collector import EpisodeBuffer
    except ImportError as err:
        raise ImportError(missing_extra("A data set for Minari", "minari", "minari")) from err
    seen, moves = _spaces(data)
    buffers = [EpisodeBuffer(id=k, **_buffer(data, k, rows)) for k, rows in enumerate(data.episodes)]
    told = {"algorithm_name": data.about["policy"] or None, "description": repr(data)} | described
    made = minari.create_dataset_from_buffers(
        dataset_id, buffers, env=env, observation_space=seen, action_space=moves, **told
    )
    made.storage.update_metadata({"powerzoo_jax": json.dumps(data.about)})
    return made


def _by_agent(data: OfflineData, values: Any) -> Any:
    """Values of the one agent, or a dict by agent of several."""
    agents = data.about["agents"]
    return values[0] if len(agents) == 1 else dict(zip(agents, values, strict=True))


def _spaces(data: OfflineData) -> tuple[Any, Any]:
    """Observation and action space in Gymnasium's terms."""
    from gymnasium.spaces import Box, Dict

    one = np.ones(data.actions.shape[2], data.actions.dtype)
    seen = [Box(low, high, dtype=low.dtype) for low, high in zip(data.low, data.high, strict=True)]
    moves = [Box(-one, one, dtype=one.dtype) for _ in seen]
    if len(seen) == 1:
        return seen[0], moves[0]
    return Dict(_by_agent(data, seen)), Dict(_by_agent(data, moves))


def _buffer(data: OfflineData, k: int, rows: slice) -> dict[str, Any]:
    """Episode k in Minari's terms: T + 1 observations, T of everything else."""
    seen = np.concatenate([data.observations[rows], data.final_observations[k : k + 1]])
    pool = np.sum if get_family(data.about["family"]).rivals else np.mean
    agents = data.about["agents"]
    infos = {"cost": {name: data.costs[rows, c] for c, name in enumerate(data.about["cost_names"])}}
    if len(agents) > 1:
        infos["reward"] = {agent: data.rewards[rows, a] for a, agent in enumerate(agents)}
    return {
        "seed": data.about["seed"] + k if data.about["drawn"] else None,
        "observations": _by_agent(data, np.moveaxis(seen, 1, 0)),
        "actions": _by_agent(data, np.moveaxis(data.actions[rows], 1, 0)),
        "rewards": pool(data.rewards[rows], axis=1),
        "terminations": data.terminated[rows],
        "truncations": data.truncated[rows],
        "infos": infos,
    }
