"""Evaluation of a policy: whole episodes from every start of a split (or by seeds), as one JSON-ready record.

Beside returns and costs it holds figures of the episodes: a mean or a ratio each, with an interval.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base import TaskSpec
from powerzoo_jax.base.exports import load_object
from powerzoo_jax.base.ranges import Count, Finite, Whole, checks_ranges
from powerzoo_jax.data import Series, get_info, list_datasets, list_splits, load_dataset
from powerzoo_jax.data.bank import STRESS_SET
from powerzoo_jax.devices.fleet import storing
from powerzoo_jax.envs.batch import is_stacked
from powerzoo_jax.envs.constraint import OUTAGE, SHAPING
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.episode import Act, Totals, run_episodes
from powerzoo_jax.envs.family import family_of, get_family
from powerzoo_jax.envs.series import Draw, draw_episode
from powerzoo_jax.tasks.site import WEATHER_SET

RESAMPLES = 2000  # of the bootstrap; its own error on a 95 % interval is then about 1 % of the width
SALES = "energy_sales"  # term of tasks that trade energy
RATES = {
    "departure_success_rate": ("ready_departures", "departures"),
    "mean_pue": ("site_mwh", "it_mwh"),
    "mean_power_deficit": ("deficit_mwh", "hours"),
    "commitment_rate": ("committed_units", "units"),
}  # figure -> what is counted, and among what


class Figure(NamedTuple):
    """Ratio of the sum of `part` over episodes to the sum of `of`; (B,) each, in any unit. A mean has `of` = 1."""

    part: np.ndarray
    of: np.ndarray

    def value(self) -> float | None:
        whole = float(self.of.sum())
        return float(self.part.sum() / whole) if whole > 0 else None

    def by_episode(self) -> list[float | None]:
        return [float(a / b) if b > 0 else None for a, b in zip(self.part, self.of, strict=True)]


def figures(sim: Sim, totals: Totals) -> dict[str, Figure]:
    """Every figure of a task but those without a mean; totals (B, ...) in NumPy."""
    one = np.ones(len(totals.total))
    sums = {name: np.asarray(x) for name, x in totals.tally.items()}
    used = {name for pair in RATES.values() for name in pair}
    found = {name: Figure(x, one) for name, x in sums.items() if name not in used}
    found |= {name: Figure(sums[a], sums[b]) for name, (a, b) in RATES.items() if a in sums}
    capacity = sum(float(np.sum(np.where(stack.mask, stack.capacity_mwh, 0.0))) for stack in storing(sim.params))
    if capacity:  # an equivalent full cycle charges and discharges the rated capacity once
        found["cycles"] = Figure(np.asarray(totals.throughput_mwh) / (2 * capacity), one)
    if "sla" in sim.spec.cost_names:
        found["mean_sla_violations"] = Figure(np.asarray(totals.cost)[:, sim.spec.cost_names.index("sla")], one)
    return found | _money(sim, totals, one)


def _money(sim: Sim, totals: Totals, one: np.ndarray) -> dict[str, Figure]:
    """Reward terms before weighting, averaged over agents, and what families make of them."""
    names, mean = sim.spec.term_names, np.asarray(totals.terms).mean(axis=1)
    found = {name: Figure(mean[:, k], one) for k, name in enumerate(names)}
    if SALES in names:
        earned = [k for k, name in enumerate(names) if name not in (OUTAGE, *SHAPING)]
        found["profit_usd"] = Figure(mean[:, earned].sum(axis=1), one)
    own = family_of(sim).figures(sim, totals)
    found |= {name: Figure(part, of) for name, (part, of) in own.items()}
    return found


def bootstrap_intervals(parts: np.ndarray, wholes: np.ndarray, seed: int) -> list[list[float] | None]:
    """95 % intervals of ratios of sums of parts (M, B) to sums of wholes (M, B), in any unit, by resampling episodes.

    None where a resample has nothing to divide by.
    """
    n_episode = parts.shape[1]
    drawn = np.random.default_rng(seed).integers(0, n_episode, (RESAMPLES, n_episode))
    rows = n_episode * np.arange(RESAMPLES)[:, None]
    count = np.bincount((rows + drawn).ravel(), minlength=drawn.size).reshape(drawn.shape).astype(float)
    top, bottom = parts @ count.T, wholes @ count.T
    spread = np.quantile(top / np.where(bottom > 0, bottom, 1.0), [0.025, 0.975], axis=1).T
    fine = (bottom > 0).all(axis=1)
    return [[float(low), float(high)] if good else None for (low, high), good in zip(spread, fine, strict=True)]


class Metrics(NamedTuple):
    """Figures of a record's episodes, by name."""

    mean: dict[str, float | None]
    ci95: dict[str, list[float] | None]
    by_episode: dict[str, list[float | None]]


def measure(sim: Sim, totals: Totals, seed: int) -> Metrics:
    """Mean, interval and list of every figure, and the lowest voltage of all episodes, which has no interval."""
    found = figures(sim, totals)
    lowest = np.asarray(totals.v_min_pu)
    solved = bool(np.isfinite(lowest).all())
    mean: dict[str, float | None] = {"min_voltage_pu": float(lowest.min()) if solved else None, "cycles": None}
    mean |= {name: figure.value() for name, figure in found.items()}
    parts, wholes = (np.stack([figure[k] for figure in found.values()]) for k in range(2))
    intervals = dict(zip(found, bootstrap_intervals(parts, wholes, seed), strict=True))
    by_episode = {name: figure.by_episode() for name, figure in found.items()}
    if solved:
        by_episode["min_voltage_pu"] = [float(x) for x in lowest]
    return Metrics(mean, intervals, by_episode)


SEED = 42  # first seed of the evaluation protocol
WORST = 0.1  # share of episodes in the tail that a record tells of


@dataclass(frozen=True)
class Evaluation:
    """Evaluation record of a policy on a split; plain numbers, lists and strings only.

    episodes: fingerprint of what was played, see `episode_hash`; scores compare records with the same one only.
    `selected` channels are those with a finite budget; budgets are per episode, averaged over episodes.
    episode_costs sum the selected channels; *_by_constraint hold every channel, thresholds None where unlimited.
    feasible: the mean of every selected channel meets its budget, see `keeps`.  ci95: bootstrap of mean_reward over
    episodes.  median_reward, iqm_reward (of the middle half of episodes), worst_decile_by_constraint (mean of the tenth
    of episodes in which a channel is highest): what a mean hides.
    gain is None where its ends are not known, or where the policy is not feasible.
    metrics: figures of the task, see `tasks.metrics`, of an episode on average, with their bootstrap intervals
    metrics_ci95 and their values by episode (None where they have none); min_voltage_pu is the lowest of all.
    Rewards are those of the team; of rivals in a market their sum, and per_agent (else None) the mean of each.
    """

    task_id: str
    task_version: int
    split: str
    library_version: str
    dataset_hashes: dict[str, str]
    episodes: str
    n_episodes: int
    seeds: list[int]
    mean_reward: float
    std_reward: float
    min_reward: float
    max_reward: float
    median_reward: float
    iqm_reward: float
    ci95: list[float]
    gain: float | None
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
    worst_decile_by_constraint: dict[str, float]
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

    def with_gain(self, rule: float, best: float) -> Evaluation:
        """The same record with its gain between two mean returns on its own episodes, see `gain`."""
        return dataclasses.replace(self, gain=gain(self.mean_reward, rule, best, feasible=self.feasible))


def gain(value: float, rule: float, best: float, *, feasible: bool = True) -> float | None:
    """Share (value - rule) / (best - rule) of what foresight gains on the rule within the same budgets.

    0 for the rule, 1 for the best feasible plans known; None for a policy that is not feasible.
    Raises ValueError when the best is no better than the rule, or an end is not finite.
    """
    room = best - rule
    if not np.isfinite(room) or room <= 0:
        raise ValueError(
            f"rule = {rule} and best = {best} leave nothing to gain. "
            "Compute the references of this task and split again."
        )
    return float((value - rule) / room) if feasible else None


def all_starts(sim: Sim) -> Draw:
    """Every eligible start day of a split once: Draw with leading axis B.

    A start with several candidate price series takes candidate i mod count, i its place in the calendar,
    so that all of them occur. A drawn state of charge takes the middle of its range.
    Raises ValueError for a stacked Sim.
    """
    _refuse_stacked(sim)
    starts, (low, high) = sim.params.starts, sim.env.soc_range(sim.params)
    row = np.arange(int(starts.n_start))
    pair = row % np.asarray(starts.pair_count)[row]
    soc = (low + high) / 2
    return Draw(
        load_row=starts.load_row[row],
        price_row=starts.price_row[row, pair],
        soc=jnp.broadcast_to(soc, (len(row), *soc.shape)),
    )


@checks_ranges("evaluate")
def seeded_starts(sim: Sim, n_episodes: Count, seed: Whole = SEED) -> Draw:
    """Draws of `sim.init(jax.random.key(s))` for s = seed .. seed + n_episodes - 1: Draw with leading axis B."""
    _refuse_stacked(sim)
    starts, (low, high) = sim.params.starts, sim.env.soc_range(sim.params)
    return jax.vmap(lambda key: draw_episode(key, starts, low, high))(episode_keys(seed, n_episodes))


@checks_ranges("evaluate")
def evaluate(
    sim: Sim,
    act: Act,
    *,
    n_episodes: Count | None = None,
    seed: Whole = SEED,
    draws: Draw | None = None,
    carry: Any = (),
    ends: tuple[Finite, Finite] | None = None,
) -> Evaluation:
    """Run a policy for whole episodes and return its record; the same arguments give the same numbers.

    n_episodes:  None plays every eligible start once (`all_starts`); else seeds seed .. seed + n_episodes - 1
    draws:       episodes chosen by the caller instead, leading axis B
    carry:       initial carry of the policy, leading axis B; () where it has none, or brings its own
    ends:        (rule, best) mean rewards on the same episodes, for the gain and figures relative to the best; None
                 takes those of the shipped table where it has played these episodes of this task, see `get_reference`
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
    played = episode_hash(draws, seed)
    if ends is None:  # oracles stand above scores, and are found when asked for
        ends = load_object("powerzoo_jax.oracle.registry:ends_of_episodes")(sim, played)
    return _record(sim, jax.tree.map(lambda x: np.asarray(x, np.float64), totals), played, seed, ends)


def episode_hash(draws: Draw, seed: int) -> str:
    """Fingerprint of episodes: first days, price days, drawn states of charge, and the seeds of all else that is drawn.

    The same whatever the float type: draws are made in float32.
    """
    digest = hashlib.sha256(str((seed, draws.load_row.shape[0])).encode())
    for leaf, dtype in ((draws.load_row, "<i4"), (draws.price_row, "<i4"), (draws.soc, "<f4")):
        digest.update(np.ascontiguousarray(leaf).astype(dtype).tobytes())
    return digest.hexdigest()[:16]


def _record(sim: Sim, totals: Totals, played: str, seed: int, ends: tuple[float, float] | None) -> Evaluation:
    spec, reward = sim.spec, np.asarray(totals.total)
    per_agent = None
    family = family_of(sim)
    if family.rivals:
        own = np.asarray(totals.terms) @ np.asarray(spec.term_weights)
        reward = own.sum(axis=1)
        per_agent = {agent: float(x) for agent, x in zip(spec.agents, own.mean(axis=0), strict=True)}
    cost = np.asarray(totals.cost)
    measured = measure(sim, totals, seed)
    mean, told = float(reward.mean()), summary(reward, cost, spec.cost_names, spec.cost_budget, seed=seed)
    if ends is not None and SALES in spec.term_names and ends[1] > 0:
        measured.mean["share_of_oracle_profit"] = mean / ends[1]
    if ends is not None:
        measured.mean.update(family.beside_best(mean, ends[1]))
    return Evaluation(
        task_id=spec.id,
        task_version=spec.version,
        split=spec.split,
        library_version=importlib.import_module(__name__.partition(".")[0]).__version__,
        dataset_hashes=dataset_hashes(spec),
        episodes=played,
        n_episodes=len(reward),
        seeds=list(range(seed, seed + len(reward))),
        gain=None if ends is None else gain(mean, *ends, feasible=told["feasible"]),
        mean_ep_length=float(np.mean(totals.length)),
        pf_failure_rate=float(np.mean(np.asarray(totals.pf_failures) > 0)),
        metrics=measured.mean,
        metrics_ci95=measured.ci95,
        episode_metrics=measured.by_episode,
        per_agent=per_agent,
        **told,
    )


SLACK = (1.001, 1e-6)  # of a budget, relative and absolute: roundings and a last digit are no violation


def keeps(mean: np.ndarray, budget: np.ndarray) -> np.ndarray:
    """Whether mean costs (C,) [unit of each channel] meet their budgets (C,): cost <= 1.001 budget + 1e-6."""
    return mean <= SLACK[0] * budget + SLACK[1]


def summary(
    reward: np.ndarray,
    cost: np.ndarray,
    names: Sequence[str],
    budgets: Sequence[float],
    *,
    total: float | None = None,
    seed: int = SEED,
) -> dict[str, Any]:
    """Statistics of episodes, as a record has them; plain numbers.

    reward:   (B,)   [unit of the reward]    returns
    cost:     (B, C) [unit of each channel]  of the channels `names`
    budgets:  (C,)   [unit of each channel]  of an episode; an infinite one selects no channel
    total:    budget of the sum of the selected channels instead; None takes those of the channels. Budgets of zero
              hold all the same: a sum has no room for what must not happen at all
    seed:     of the resampling behind the interval
    """
    budget = np.asarray(budgets, float)
    chosen = np.isfinite(budget)
    over, scalar = cost > budget, cost[:, chosen].sum(axis=1)
    held = chosen if total is None else chosen & (budget == 0)
    violated, kept = over[:, held].any(axis=1), keeps(cost.mean(axis=0), budget)[held]
    if total is not None:
        violated, kept = violated | (scalar > total), np.append(kept, keeps(scalar.mean(), np.asarray(total)))
    quarter = len(reward) // 4
    worst = np.sort(cost, axis=0)[-max(1, math.ceil(WORST * len(cost))) :]

    def by_name(values: np.ndarray) -> dict[str, float]:
        return {name: float(x) for name, x in zip(names, values, strict=True)}

    return {
        "mean_reward": float(reward.mean()),
        "std_reward": float(reward.std()),
        "min_reward": float(reward.min()),
        "max_reward": float(reward.max()),
        "median_reward": float(np.median(reward)),
        "iqm_reward": float(np.sort(reward)[quarter : len(reward) - quarter].mean()),
        "ci95": bootstrap_intervals(reward[None], np.ones((1, len(reward))), seed)[0] or [],
        "feasible": bool(np.all(kept)),
        "mean_episode_cost": float(scalar.mean()),
        "std_episode_cost": float(scalar.std()),
        "cost_violation_rate": float(violated.mean()),
        "constraint_names": [name for name, yes in zip(names, chosen, strict=True) if yes],
        "cost_thresholds": {n: float(b) if np.isfinite(b) else None for n, b in zip(names, budget, strict=True)},
        "mean_costs_by_constraint": by_name(cost.mean(axis=0)),
        "std_costs_by_constraint": by_name(cost.std(axis=0)),
        "cost_violation_rate_by_constraint": by_name(over.mean(axis=0)),
        "worst_decile_by_constraint": by_name(worst.mean(axis=0)),
        "episode_rewards": reward.tolist(),
        "episode_costs": scalar.tolist(),
        "episode_costs_by_constraint": {name: cost[:, i].tolist() for i, name in enumerate(names)},
    }


def dataset_hashes(spec: TaskSpec) -> dict[str, str]:
    """Content hashes of the data sets that a task names in its keywords, the user's own by the name of their file."""
    keywords = dict(spec.overrides)
    sources = [keywords[key] for key in ("load_set", "price_set") if key in keywords]
    stressed = spec.split == "price_stress" and "price_set" in keywords
    if stressed and spec.split not in list_splits(_bundled(sources[-1])):
        sources[-1] = STRESS_SET
    weather = keywords.get("weather", WEATHER_SET if "weather_site" in keywords else None)
    if weather in list_datasets():
        sources.append(weather)
    sources += get_family(spec.family).data_sets(spec)
    found = (source.meta if isinstance(source, Series) else get_info(source) for source in map(_bundled, sources))
    return {info.name: info.sha256 for info in found}


def _bundled(source: Any) -> str | Series:
    """Name of a bundled set as it is; a user's file read."""
    return source if source in list_datasets() else load_dataset(source)


def episode_keys(seed: int, count: int) -> Array:
    """One PRNG key for each episode of the seeds seed .. seed + count - 1, (B,)."""
    return jax.vmap(jax.random.key)(jnp.arange(seed, seed + count))


def _refuse_stacked(sim: Sim) -> None:
    if is_stacked(sim):
        raise ValueError("a stacked Sim holds several tasks; evaluate its members one by one before stacking.")
