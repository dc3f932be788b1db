"""Figures of a set of episodes beside its returns and costs: a mean or a ratio each, with an interval."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.episode import Totals
from powerzoo_jax.envs.feeder.fleet import storing
from powerzoo_jax.envs.feeder.reward import OUTAGE, SHAPING

RESAMPLES = 2000  # of the bootstrap; its own error on a 95 % interval is then about 1 % of the width
MARKET = "market"  # family whose agents earn for themselves
TRANSMISSION = "transmission"
SALES = "energy_sales"  # term of tasks that trade energy
RATES = {
    "departure_success_rate": ("ready_departures", "departures"),
    "mean_pue": ("site_mwh", "it_mwh"),
    "mean_power_deficit": ("deficit_mwh", "hours"),
    "commitment_rate": ("committed_units", "units"),
}  # figure -> what is counted, and among what


class Figure(NamedTuple):
    """Sum of `part` over episodes per sum of `of`; (B,) each. A mean has `of` = 1."""

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
    tally = {name: np.asarray(x) for name, x in totals.tally.items()}
    used = {name for pair in RATES.values() for name in pair}
    found = {name: Figure(x, one) for name, x in tally.items() if name not in used}
    found |= {name: Figure(tally[a], tally[b]) for name, (a, b) in RATES.items() if a in tally}
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
    if sim.spec.family == TRANSMISSION:
        found["total_cost_usd"] = Figure(-mean.sum(axis=1), one)
    if sim.spec.family == MARKET:
        found["mean_lmp_per_mwh"] = Figure(np.asarray(totals.price_per_mwh) / np.maximum(totals.length, 1), one)
        found["consumer_cost_usd"] = Figure(np.asarray(totals.consumer_usd), one)
    return found


def bootstrap_intervals(parts: np.ndarray, wholes: np.ndarray, seed: int) -> list[list[float] | None]:
    """95 % intervals of the ratios of sums of parts (M, B) to sums of wholes (M, B), by resampling episodes.

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
    """What a record holds of the figures of its episodes, by name."""

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
