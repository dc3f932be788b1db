"""Judge a policy: whole episodes from every start of a split (or by seeds), as one JSON-ready record."""

from __future__ import annotations

import dataclasses
import importlib
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base import TaskSpec
from powerzoo_jax.data import get_info, list_datasets, list_splits
from powerzoo_jax.data.bank import STRESS_SET
from powerzoo_jax.envs.batch import is_stacked
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.draw import Draw, draw_episode
from powerzoo_jax.envs.episode import Act, Totals, run_episodes
from powerzoo_jax.envs.feeder.fleet import storing
from powerzoo_jax.tasks.feeder.charging_sessions import SESSIONS
from powerzoo_jax.tasks.metrics import MARKET, SALES, bootstrap_intervals, measure
from powerzoo_jax.tasks.microgrid.series import WEATHER_SET

SEED = 42  # first seed of the evaluation protocol


@dataclass(frozen=True)
class Evaluation:
    """What a policy did on a split; plain numbers, lists and strings only.

    `selected` channels are those with a finite budget; budgets are per episode, averaged over episodes.
    episode_costs sum the selected channels; *_by_constraint hold every channel, thresholds None where unlimited.
    feasible: the mean of every selected channel meets its budget.  ci95: bootstrap of mean_reward over episodes.
    normalized_score is None where no anchors were given.  metrics: figures of the task, see `tasks.metrics`, of an
    episode on average, with their bootstrap intervals metrics_ci95 and their values by episode (None where they have
    none); min_voltage_pu is the lowest of all episodes.
    Rewards are those of the team; of rivals in a market their sum, and per_agent (else None) the mean of each.
    """

    task_id: str
    task_version: int
    split: str
    library_version: str
    dataset_hashes: dict[str, str]
    n_episodes: int
    seeds: list[int]
    mean_reward: float
    std_reward: float
    min_reward: float
    max_reward: float
    ci95: list[float]
    normalized_score: float | None
    mean_ep_length: float
    pf_failure_rate: float
    feasible: bool
    mean_episode_cost: float
    std_episode_cost: float
    cost_violation_rate: float
    constraint_names: list[str]
    cost_thresholds: dict[str, float | None]
    mean_costs_by_constraint: dict[str, float]
    std_costs_by_constraint: dict[str, float]
    cost_violation_rate_by_constraint: dict[str, float]
    metrics: dict[str, float | None]
    metrics_ci95: dict[str, list[float] | None]
    episode_metrics: dict[str, list[float | None]]
    per_agent: dict[str, float] | None
    episode_rewards: list[float]
    episode_costs: list[float]
    episode_costs_by_constraint: dict[str, list[float]]

    def to_dict(self) -> dict[str, Any]:
        """The record as a dict that `json.dumps` accepts."""
        return dataclasses.asdict(self)


def normalized_score(value: float, random: float, oracle: float) -> float:
    """(value - random) / (oracle - random): 0 for the random policy, 1 for the oracle.

    Raises ValueError when the anchors are equal or not finite.
    """
    span = oracle - random
    if not np.isfinite(span) or span == 0:
        raise ValueError(
            f"anchors random = {random} and oracle = {oracle} do not span a scale. "
            "Compute the references of this task and split again."
        )
    return float((value - random) / span)


def all_starts(sim: Sim) -> Draw:
    """Every eligible start day of a split once: Draw with leading axis B.

    A start with several candidate price series takes candidate i mod count, i its place in the calendar,
    so that all of them occur. A drawn state of charge takes the middle of its range.
    Raises ValueError for a stacked Sim.
    """
    _refuse_stacked(sim)
    starts, (low, high) = sim.params.starts, _soc_range(sim)
    row = np.arange(int(starts.n_start))
    pair = row % np.asarray(starts.pair_count)[row]
    soc = (low + high) / 2
    return Draw(
        load_row=starts.load_row[row],
        price_row=starts.price_row[row, pair],
        soc=jnp.broadcast_to(soc, (len(row), *soc.shape)),
    )


def seeded_starts(sim: Sim, n_episodes: int, seed: int = SEED) -> Draw:
    """What `sim.init(jax.random.key(s))` draws for s = seed .. seed + n_episodes - 1: Draw with leading axis B."""
    _refuse_stacked(sim)
    if n_episodes < 1:
        raise ValueError(f"n_episodes = {n_episodes} must be at least 1; None takes every eligible start once.")
    starts, (low, high) = sim.params.starts, _soc_range(sim)
    return jax.vmap(lambda key: draw_episode(key, starts, low, high))(episode_keys(seed, n_episodes))


def _soc_range(sim: Sim) -> tuple[Array, Array]:
    """Ranges (S,), (S,) of initial states of charge, of storage and then of vehicles; the env may know its own."""
    if hasattr(sim.env, "soc_range"):
        low, high = sim.env.soc_range(sim.params)
        return low, high
    stacks = storing(sim.params)
    nothing = jnp.zeros((0,), sim.spaces()[0].low.dtype)  # type: ignore[union-attr]
    low = jnp.concatenate([nothing, *(stack.soc_low for stack in stacks)])
    return low, jnp.concatenate([nothing, *(stack.soc_high for stack in stacks)])


def evaluate(
    sim: Sim,
    act: Act,
    *,
    n_episodes: int | None = None,
    seed: int = SEED,
    draws: Draw | None = None,
    carry: Any = (),
    anchors: tuple[float, float] | None = None,
) -> Evaluation:
    """Run a policy for whole episodes and return its record; the same arguments give the same numbers.

    n_episodes:  None plays every eligible start once (`all_starts`); else seeds seed .. seed + n_episodes - 1
    draws:       episodes chosen by the caller instead, leading axis B
    carry:       initial carry of the policy, leading axis B; () where it has none
    anchors:     (random, oracle) mean rewards for the normalised score
    Raises ValueError for a stacked Sim or for n_episodes below 1.

    Example:
        from powerzoo_jax.oracle import idle_act
        record = evaluate(sim, idle_act(sim))
    """
    if draws is None:
        draws = all_starts(sim) if n_episodes is None else seeded_starts(sim, n_episodes, seed)
    _refuse_stacked(sim)
    count = draws.load_row.shape[0]
    totals = run_episodes(sim, act, episode_keys(seed, count), draws, carry)
    return _record(sim, jax.tree.map(lambda x: np.asarray(x, np.float64), totals), seed, anchors)


def _record(sim: Sim, totals: Totals, seed: int, anchors: tuple[float, float] | None) -> Evaluation:
    spec, reward = sim.spec, np.asarray(totals.total)
    per_agent = None
    if spec.family == MARKET:
        own = np.asarray(totals.terms) @ np.asarray(spec.term_weights)
        reward = own.sum(axis=1)
        per_agent = {agent: float(x) for agent, x in zip(spec.agents, own.mean(axis=0), strict=True)}
    names, cost = spec.cost_names, np.asarray(totals.cost)
    budget = np.asarray(spec.cost_budget)
    chosen = np.isfinite(budget)
    over = cost > budget
    scalar = cost[:, chosen].sum(axis=1)
    mean = float(reward.mean())
    measured = measure(sim, totals, seed)
    if anchors is not None and SALES in spec.term_names and anchors[1] > 0:
        measured.mean["share_of_oracle_profit"] = mean / anchors[1]

    def by_name(values: np.ndarray) -> dict[str, float]:
        return {name: float(x) for name, x in zip(names, values, strict=True)}

    return Evaluation(
        task_id=spec.id,
        task_version=spec.version,
        split=spec.split,
        library_version=importlib.import_module(__name__.partition(".")[0]).__version__,
        dataset_hashes=dataset_hashes(spec),
        n_episodes=len(reward),
        seeds=list(range(seed, seed + len(reward))),
        mean_reward=mean,
        std_reward=float(reward.std()),
        min_reward=float(reward.min()),
        max_reward=float(reward.max()),
        ci95=bootstrap_intervals(reward[None], np.ones((1, len(reward))), seed)[0] or [],
        normalized_score=None if anchors is None else normalized_score(mean, *anchors),
        mean_ep_length=float(np.mean(totals.length)),
        pf_failure_rate=float(np.mean(np.asarray(totals.pf_failures) > 0)),
        feasible=bool((cost.mean(axis=0) <= budget).all()),
        mean_episode_cost=float(scalar.mean()),
        std_episode_cost=float(scalar.std()),
        cost_violation_rate=float(over.any(axis=1).mean()),
        constraint_names=[name for name, yes in zip(names, chosen, strict=True) if yes],
        cost_thresholds={n: float(b) if np.isfinite(b) else None for n, b in zip(names, budget, strict=True)},
        mean_costs_by_constraint=by_name(cost.mean(axis=0)),
        std_costs_by_constraint=by_name(cost.std(axis=0)),
        cost_violation_rate_by_constraint=by_name(over.mean(axis=0)),
        metrics=measured.mean,
        metrics_ci95=measured.ci95,
        episode_metrics=measured.by_episode,
        per_agent=per_agent,
        episode_rewards=reward.tolist(),
        episode_costs=scalar.tolist(),
        episode_costs_by_constraint={name: cost[:, i].tolist() for i, name in enumerate(names)},
    )


def dataset_hashes(spec: TaskSpec) -> dict[str, str]:
    """Content hashes of the data sets that a task names in its keywords."""
    keywords = dict(spec.overrides)
    names = [keywords[key] for key in ("load_set", "price_set") if key in keywords]
    if "price_set" in keywords and spec.split == "price_stress" and spec.split not in list_splits(names[-1]):
        names[-1] = STRESS_SET
    if keywords.get("weather") in list_datasets():
        names.append(keywords["weather"])
    elif "weather_site" in keywords and "weather" not in keywords:
        names.append(WEATHER_SET)
    if "ev_bus_ids" in keywords:
        names.append(SESSIONS)
    return {name: get_info(name).sha256 for name in names}


def episode_keys(seed: int, count: int) -> Array:
    """One PRNG key for each episode of the seeds seed .. seed + count - 1, (B,)."""
    return jax.vmap(jax.random.key)(jnp.arange(seed, seed + count))


def _refuse_stacked(sim: Sim) -> None:
    if is_stacked(sim):
        raise ValueError("a stacked Sim holds several tasks; evaluate its members one by one before stacking.")
