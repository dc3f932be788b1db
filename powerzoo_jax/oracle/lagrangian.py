"""Best plans under budgets on mean costs, by Lagrangian relaxation over the days, and a bound on all of them.

With R_d the return and C_d the costs of day d, budgets b on the mean costs of n days couple the days:

    max sum_d R_d   subject to   sum_d C_d <= n b
    <=  g(lam) = sum_d max (R_d - lam' C_d) + n lam' b      for every lam >= 0

The right side needs one plan a day at prices lam of the cost channels. It is convex and piecewise linear in lam, so its
least value is found by cutting planes: a linear program over all plans seen so far, which mixes the plans of a day,
gives the next prices. At the end one plan is chosen for each day, under the budgets.
Source: Kelley 1960, doi:10.1137/0108053; Dantzig and Wolfe 1960, doi:10.1287/opre.8.1.101.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from powerzoo_jax.base.errors import SolverError
from powerzoo_jax.base.npz import read_npz, write_npz
from powerzoo_jax.oracle.linear_program import LinearProgram, ProgramWriter, solve

ROUNDS = 16  # prices tried at most
CLOSE = 0.003  # of what the plans earn beyond the anchor: where bound and mixture of plans are near enough
SAME = 1e-6  # relative change of prices that is none
CHOICE_GAP, CHOICE_SECONDS = 1e-6, 20.0  # of the choice of one plan a day
SAVE_S = 15.0  # between two saves of the state
KEPT = np.zeros(0)  # prices of what is beyond a budget, where no budget may be exceeded
HINT = "No choice of the plans known keeps the budgets: a channel's highest price may be too low."


class PricedPlan(NamedTuple):
    """A plan of one episode at prices of the cost channels; returns in the unit of the reward.

    action:  (T, A, U) [-]  kernel actions
    value:   return
    cost:    (C,) [unit of each channel]  sums over the episode
    bound:   no policy has a larger return less priced costs on this episode
    """

    action: np.ndarray
    value: float
    cost: np.ndarray
    bound: float


class PricedPlanner(Protocol):
    """Planner of a set of episodes, each with everything known.

    most_price: (C,)  [reward per unit of each channel]  at which breaking a limit never pays; 0 where plans break none
    """

    most_price: np.ndarray

    def plan(self, episode: int, price: np.ndarray) -> PricedPlan:
        """Plan of an episode at prices (C,) of the cost channels."""
        ...


@runtime_checkable
class ReachPlanner(PricedPlanner, Protocol):
    """Planner whose bounds hold for more than the actions of the task can reach, and that has a bound of these."""

    def reached_bound(self, episode: int, price: np.ndarray) -> float:
        """Bound of an episode at prices (C,) of the cost channels, as that of a plan."""
        ...


@runtime_checkable
class BoundPlanner(PricedPlanner, Protocol):
    """Planner that bounds an episode without planning it."""

    def bound(self, episode: int, price: np.ndarray) -> float:
        """Bound of an episode at prices (C,) of the cost channels, as that of a plan."""
        ...


@runtime_checkable
class StartedPlanner(PricedPlanner, Protocol):
    """Planner whose plans keep the budgets without prices, but whose bounds do not know that.

    first_prices: (C,) each  [reward per unit of each channel]  to try after none at all, budgets broken or not
    """

    first_prices: Sequence[np.ndarray]


@runtime_checkable
class FlooredPlanner(PricedPlanner, Protocol):
    """Planner whose plans leave channels alone at any price, but whose bounds know that by a price only.

    least_price: (C,)  [reward per unit of each channel]  0 for other channels
    """

    least_price: np.ndarray


@runtime_checkable
class ManyPlanner(PricedPlanner, Protocol):
    """Planner that looks at several plans of an episode."""

    def plans(self, episode: int, price: np.ndarray) -> list[PricedPlan]:
        """The plan of an episode at prices (C,) of the cost channels, and others, which have no bound."""
        ...


Progress = Callable[[str, int, int], None]


@dataclass
class PlanPool:
    """Plans of n episodes, all that a search needs to go on; round r was planned at prices[r].

    prices: (C,) each;  plans: (round, episode) -> plan; rounds below 0 have plans without a bound
    """

    prices: list[np.ndarray] = field(default_factory=list)
    plans: dict[tuple[int, int], PricedPlan] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Write the pool to a file, whole or not at all."""
        if not self.plans:
            return
        at, plans = np.array(list(self.plans)), list(self.plans.values())
        parts = {name: np.stack([getattr(plan, name) for plan in plans]) for name in PricedPlan._fields}
        write_npz(path, {"at": at, "prices": np.stack(self.prices), **parts})

    @classmethod
    def load(cls, path: Path) -> PlanPool:
        """Read a pool as `save` left it."""
        kept = read_npz(path)
        plans = {
            (int(round_), int(episode)): PricedPlan(a, float(v), c, float(b))
            for (round_, episode), a, v, c, b in zip(*(kept[name] for name in ("at", *PricedPlan._fields)), strict=True)
        }
        return cls(list(kept["prices"]), plans)

    def add(self, episode: int, plans: Sequence[PricedPlan]) -> None:
        """Add plans of an episode that have no bound, and take no part in one."""
        number = min((0, *(known for known, at in self.plans if at == episode)))
        for k, plan in enumerate(plans):
            self.plans[number - 1 - k, episode] = plan

    def of(self, episode: int) -> list[PricedPlan]:
        """All plans of an episode."""
        return [plan for (_, at), plan in self.plans.items() if at == episode]


def dual_value(price: np.ndarray, bounds: np.ndarray, budget: np.ndarray) -> float:
    """Lagrangian dual g(lam) / n: bound on the mean return of every policy that keeps the budgets on these episodes.

    price:   (C,)  lam >= 0, 0 where the budget is infinite
    bounds:  (n,)  of max (R_d - lam' C_d)
    budget:  (C,)  b
    """
    limited = np.isfinite(budget)
    if (price < 0).any() or price[~limited].any():
        raise ValueError("prices of cost channels must not be negative, and 0 for those without a budget.")
    return float(np.mean(bounds) + price[limited] @ budget[limited])


class Relaxation(NamedTuple):
    """Result of the search over prices.

    price:   (C,)  of the least bound
    bound:   mean return that no policy within the budgets exceeds
    mixed:   mean return of the best mixture of the plans of each episode: no choice of one a day has more
    support: (C,)  prices at which no plan known is worth more than that mixture
    """

    price: np.ndarray
    bound: float
    mixed: float
    support: np.ndarray


def search_prices(
    planner: PricedPlanner,
    n: int,
    budget: np.ndarray,
    *,
    pool: PlanPool,
    anchor: float = 0.0,
    first: Sequence[np.ndarray] = (),
    rounds: int = ROUNDS,
    path: Path | None = None,
    progress: Progress | None = None,
) -> Relaxation:
    """Lower the bound over prices until the plans found come close to it, or `rounds` are done.

    anchor:  mean return that closeness is measured from
    first:   prices (C,) to begin with, after none at all, in place of those that the planner itself begins with
    path:    file that the pool is kept in while plans are made
    Raises SolverError where even the highest prices leave plans above a budget.
    """
    limited = np.isfinite(budget)
    least = np.where(limited, planner.least_price if isinstance(planner, FlooredPlanner) else 0.0, 0.0)
    most = np.maximum(np.where(limited, planner.most_price, 0.0), least)
    own = planner.first_prices if isinstance(planner, StartedPlanner) else ()
    starts = [least, *(np.maximum(price, least) for price in first or own)]
    found: Relaxation | None = None
    for number in range(rounds):
        if number == len(pool.prices):
            known = pool.prices
            price = starts[number] if number < len(starts) else np.maximum(least, _next_price(pool, n, budget, most))
            if any(np.allclose(price, other, rtol=SAME, atol=0.0) for other in known):
                break
            pool.prices.append(price)
        _plan_round(planner, pool, number, n, path, progress)
        found = relaxation(pool, n, budget, most)
        enough = found.bound - found.mixed <= CLOSE * max(found.mixed - anchor, 0.0)
        if number + 1 >= len(starts) and enough:
            break
        if number == 0 and not own and within_budget(pool, n, budget):
            break
    assert found is not None
    return found


def _plan_round(
    planner: PricedPlanner, pool: PlanPool, number: int, n: int, path: Path | None, progress: Progress | None
) -> None:
    """Plan every episode at the prices of a round; what the pool holds already stays."""
    saved = time.monotonic()
    for episode in range(n):
        if (number, episode) not in pool.plans:
            price = pool.prices[number]
            plan, *others = (
                planner.plans(episode, price) if isinstance(planner, ManyPlanner) else [planner.plan(episode, price)]
            )
            pool.plans[number, episode] = plan
            pool.add(episode, others)
            if path and time.monotonic() - saved > SAVE_S:
                pool.save(path)
                saved = time.monotonic()
        if progress:
            progress(f"prices {number + 1}", episode + 1, n)
    if path:
        pool.save(path)


def within_budget(pool: PlanPool, n: int, budget: np.ndarray) -> bool:
    """Whether the plans without prices keep every budget: then they are the best there are."""
    mean = np.mean([pool.plans[0, episode].cost for episode in range(n)], axis=0)
    return bool((mean <= budget).all())


def relaxation(pool: PlanPool, n: int, budget: np.ndarray, most: np.ndarray) -> Relaxation:
    """Least bound over the rounds so far, and the best mixture of their plans.

    A round that was interrupted has no bound yet.
    """
    whole = [k for k in range(len(pool.prices)) if all((k, episode) in pool.plans for episode in range(n))]
    values = [
        dual_value(pool.prices[k], np.array([pool.plans[k, episode].bound for episode in range(n)]), budget)
        for k in whole
    ]
    least = int(np.argmin(values))
    return Relaxation(pool.prices[whole[least]], values[least], *_mix(pool, n, budget, most))


def _next_price(pool: PlanPool, n: int, budget: np.ndarray, most: np.ndarray) -> np.ndarray:
    """Prices of the next round: the highest after none at all, then those of the best mixture."""
    return most if len(pool.prices) == 1 else _mix(pool, n, budget, most)[1]


def _mix(pool: PlanPool, n: int, budget: np.ndarray, most: np.ndarray) -> tuple[float, np.ndarray]:
    """Mean return of the best mixture within the budgets, and the prices (C,) that support it.

    A cost beyond a budget is had at the highest price, so that there is always a mixture.
    """
    limited = np.flatnonzero(np.isfinite(budget))
    shares = _shares(pool, n, budget, beyond=most[limited])
    found = solve(shares.program)
    price = np.zeros(len(budget))
    price[limited] = np.maximum(-found.dual[shares.room], 0.0)
    return -found.objective / n, price


class _Shares(NamedTuple):
    """Linear program of how much of each known plan is played on its episode, within the budgets.

    share:  (K,) columns;  at: (K, 2) their (episode, plan)
    excess: (L,) columns  of the L budgets, by how much their sums are exceeded; none where they are kept
    room:   (L,) rows of the budgets
    """

    program: LinearProgram
    share: np.ndarray
    at: np.ndarray
    excess: np.ndarray
    room: np.ndarray


def _shares(pool: PlanPool, n: int, budget: np.ndarray, *, whole: bool = False, beyond: np.ndarray = KEPT) -> _Shares:
    """Program of the largest return of the known plans of n episodes under budgets (C,) on mean costs.

    whole:   whether an episode has one plan, not a mixture
    beyond:  (L,)  [reward per unit]  price of what is beyond a budget; without, the budgets are kept
    """
    writer, limited = ProgramWriter(), np.flatnonzero(np.isfinite(budget))
    each = [(episode, k, plan) for episode in range(n) for k, plan in enumerate(pool.of(episode))]
    share = writer.columns(len(each), [-plan.value for *_, plan in each], 0.0, 1.0, whole=whole)
    at = np.array([(episode, k) for episode, k, _ in each])
    writer.put(writer.rows(n, 1.0, 1.0)[at[:, 0]], share, 1.0)
    excess = writer.columns(len(beyond), beyond, 0.0, np.inf)
    room = writer.rows(len(limited), -np.inf, n * budget[limited])
    writer.put(room[: len(beyond)], excess, -1.0)
    writer.put(room[:, None], share, np.stack([plan.cost for *_, plan in each])[:, limited].T)
    return _Shares(writer.program(), share, at, excess, room)


def choose_plans(pool: PlanPool, n: int, budget: np.ndarray) -> list[PricedPlan]:
    """One plan for each episode: the largest mean return whose mean costs keep the budgets (C,).

    Raises NoPointError where no choice does.
    """
    shares = _shares(pool, n, budget, whole=True)
    found = solve(shares.program, gap=CHOICE_GAP, seconds=CHOICE_SECONDS, hint=HINT)
    chosen = shares.at[found.x[shares.share] > 0.5]
    if not np.array_equal(chosen[:, 0], np.arange(n)):
        raise SolverError("the choice of plans does not name one for each episode.")
    return [pool.of(episode)[k] for episode, k in chosen]


def missing_room(pool: PlanPool, n: int, budget: np.ndarray) -> np.ndarray:
    """Least excess of the mean costs of any choice of plans over the budgets (C,), (C,) [unit of each channel].

    Least in the sum of the shares of the budgets, a budget of 0 counted as 1; zeros where a choice keeps them.
    """
    limited = np.flatnonzero(np.isfinite(budget))
    unit = np.where(budget[limited] > 0, budget[limited], 1.0)
    shares = _shares(pool, n, budget, whole=True, beyond=1.0 / unit)
    worth = shares.program.cost.copy()
    worth[shares.share] = 0.0
    lacking = solve(replace(shares.program, cost=worth), gap=CHOICE_GAP, seconds=CHOICE_SECONDS).x[shares.excess] / n
    short = np.where(lacking > CHOICE_GAP * unit, lacking, 0.0)
    return np.bincount(limited, short, minlength=len(budget))
