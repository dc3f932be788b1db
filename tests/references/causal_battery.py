"""What a causal planner earns on `battery_arbitrage`: a linear programme on the observation, solved anew at every step.

`python tests/references/causal_battery.py [DAYS]` prints shares of the oracle's profit on the test split.
"""

from __future__ import annotations

import dataclasses
import sys

import numpy as np

import powerzoo_jax
from powerzoo_jax.base.tree import take
from powerzoo_jax.data.library import load_dataset, price_quantiles
from powerzoo_jax.envs.series import SIGNAL
from powerzoo_jax.families.feeder.arbitrage.problem import StorageEpisode, play
from powerzoo_jax.oracle import build_problems, solve_storage
from powerzoo_jax.tasks.score import all_starts

HOURS, STEPS_PER_HOUR = 24, 2


def shown_prices(sim: powerzoo_jax.Sim) -> np.ndarray:
    """Prices [$/MWh] of this hour and the next ones as the observation of each row shows them, clipped: (R, 1 + H)."""
    given = dict(sim.spec.overrides)
    data = load_dataset(given["price_set"])
    low, high = price_quantiles(data, data.resolve(given["price_column"]))
    return low + (high - low) * np.asarray(sim.params.bank.price_rows[:, SIGNAL:-1], np.float64)


def profit(problem: StorageEpisode, shown: np.ndarray, *, remembers: bool) -> float:
    """Profit [$] of one day, prices (T, 1 + H) as shown at its steps.

    remembers:  energy left at the end is valued at the mean of the day's prices as the first step showed them, which
                is what the task settles it at; else at the mean of what the step itself shows
    """
    horizon, soc = len(problem.price_per_mwh), problem.soc_start
    plan = np.zeros((horizon, len(problem.mask)))
    for t in range(horizon):
        ahead = shown[t, np.arange(t, horizon) // STEPS_PER_HOUR - t // STEPS_PER_HOUR]
        mean = shown[0, :HOURS].mean() if remembers else shown[t].mean()
        rest = dataclasses.replace(problem, price_per_mwh=ahead, mean_price_per_mwh=float(mean), soc_start=soc)
        played = play(rest, solve_storage(rest).plan_mw)
        plan[t], soc = played.p_mw[0], played.soc[1]
    return float(play(problem, plan).profit_usd.sum())


def shares(days: int | None = None) -> tuple[float, float]:
    """Shares of the oracle's profit with the remembered number and without, over `days` spread over the test split."""
    sim = powerzoo_jax.make("battery_arbitrage", split="test")
    draws, shown = all_starts(sim), shown_prices(sim)
    count = len(draws.load_row)
    draws = take(draws, np.linspace(0, count - 1, days or count).astype(int))
    problems = build_problems(sim, draws)
    seen = [shown[first : first + sim.spec.horizon] for first in np.asarray(draws.price_row)]
    best = sum(solve_storage(problem).objective for problem in problems)
    with_it, without = (
        sum(profit(problem, day, remembers=remembers) for problem, day in zip(problems, seen, strict=True))
        for remembers in (True, False)
    )
    return with_it / best, without / best


if __name__ == "__main__":
    print("remembering the mean price {:.1%}, without {:.1%} of the oracle".format(*shares(*map(int, sys.argv[1:]))))
