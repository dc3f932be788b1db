"""Plan an episode on a feeder: solve a linear program, run the exact power flow, add tangents where it was wrong.

The network enters as tangent planes of loss and voltage that hold at all injections (`network`), so every program
relaxes the task: its optimum bounds what any policy can reach, while the played plan is a policy. Both meet.

Tangent planes of losses and voltages, collected while a plan is improved.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from powerzoo_jax.families.feeder.plan.en_route import TripCase, settle_trips
from powerzoo_jax.families.feeder.plan.network import (
    Reach,
    Tangent,
    loading_tangents,
    loss_tangents,
    reach_of,
    voltage_tangents,
)
from powerzoo_jax.families.feeder.plan.problem import (
    FREE,
    FeederEpisode,
    PlanOutcome,
    SetPoints,
    VehicleUnits,
    ViolationPrices,
    device_nodes,
    excess_mva,
    largest_injection,
    limit_prices,
    run,
)
from powerzoo_jax.families.feeder.plan.program import FeederProgram, idle_points
from powerzoo_jax.oracle.linear_program import LinearProgram, Optimum, RowBlock, dual_bound, solve


class BackOff(NamedTuple):
    """Distance that a plan keeps from the voltage band [pu] and from ratings [MVA]."""

    pu: float
    mva: float


INSIDE = BackOff(2e-5, 1e-3)  # a plan rounded to float32 stays inside
EXACT = BackOff(0.0, 0.0)  # for limits that have a finite price: what is broken counts, and no more
MOST_MVA = 1e3  # of an overload: bounds have to be finite


class TangentCuts:
    """Tangent planes collected over the rounds, as rows over the columns of a program."""

    def __init__(self, program: FeederProgram, reach: Reach, back_off: BackOff) -> None:
        self.program, self.reach, self.back_off = program, reach, back_off
        self.at = device_nodes(program.problem)
        self.planes = RowBlock()
        self.spare: list[np.ndarray] = []  # what a bound adds to a limit: error of the plane, and the back-off
        self.slack: dict[tuple[str, int, int], int] = {}

    def add(self, out: PlanOutcome, prices: ViolationPrices) -> None:
        """Tangents at a played plan: losses of every step where they are paid for, and priced limits that it breaks."""
        problem, base = self.program.problem, self.program.problem.network.base_mva
        if (problem.loss_per_mwh > 0).any():
            step, zero = np.arange(problem.horizon), np.zeros(problem.horizon)
            tangent = Tangent(*(base * x for x in loss_tangents(problem.network, out.solved, self.reach, self.at)))
            self._rows(out, tangent, step, 1.0, self.program.column["loss"], zero, zero)
        if prices.rating:
            self._loadings(out)
        if prices.band:
            self._voltages(out)

    def _loadings(self, out: PlanOutcome) -> None:
        problem, base, margin = self.program.problem, self.program.problem.network.base_mva, self.back_off.mva
        step, node = np.nonzero(excess_mva(problem, out.solved) > -margin)
        if not step.size:
            return
        loading = loading_tangents(problem.network, out.solved, self.reach, self.at, step, node)
        assert problem.rate_mva is not None
        most, spare = problem.rate_mva[node] - margin, np.full(step.size, margin)
        slack = self._slacks("rating", "rating", step, node, MOST_MVA)
        self._rows(out, Tangent(*(base * x for x in loading)), step, 1.0, slack, most, spare)

    def _voltages(self, out: PlanOutcome) -> None:
        problem, margin = self.program.problem, self.back_off.pu
        size = np.abs(out.solved.v)
        low, high = problem.v_min + margin, problem.v_max - margin
        for side, outside, edge, name in ((-1.0, size < low, low, "low"), (1.0, size > high, high, "high")):
            step, node = np.nonzero(outside)
            if not step.size:
                continue
            tangent = voltage_tangents(problem.network, out.solved, self.reach, self.at, step, node)
            # from above the plane says nothing: a voltage is concave in the injections
            if side > 0:
                tangent = tangent._replace(error=np.full(step.size, np.inf))
            spare = np.full(step.size, margin)
            slack = self._slacks("band", name, step, node, 1.0)
            self._rows(out, tangent, step, side, slack, np.full(step.size, edge), spare)

    def _slacks(self, price: str, name: str, step: np.ndarray, node: np.ndarray, most: float) -> np.ndarray:
        """Slack columns of the limit `name`, one for each pair of step and node; `price` names what they cost."""
        keys = [(name, int(t), int(k)) for t, k in zip(step, node, strict=True)]
        fresh = [key for key in keys if key not in self.slack]
        if fresh:
            columns = self.program.new(f"slack{len(self.slack)}", np.zeros(len(fresh)), most, 0.0)
            self.program.broken[price].append(columns)
            self.slack.update(zip(fresh, columns.tolist(), strict=True))
        return np.array([self.slack[key] for key in keys])

    def _rows(
        self,
        out: PlanOutcome,
        tangent: Tangent,
        step: np.ndarray,
        side: float,
        slack: np.ndarray,
        edge: np.ndarray,
        spare: np.ndarray,
    ) -> None:
        """side * (tangent - edge) <= slack, the tangent written over device columns."""
        from scipy import sparse

        program, problem, base = self.program, self.program.problem, self.program.problem.network.base_mva
        nodes, count = problem.load_p_mw.shape[1], len(step)
        where = step[:, None] * nodes + self.at
        pick = np.repeat(np.arange(count), len(self.at)), where.ravel()
        shape = (count, problem.load_p_mw.size)
        # the tangent is over consumption = (load - injection) / base
        by_p = sparse.csr_matrix((-side * tangent.by_p.ravel() / base, pick), shape=shape)
        by_q = sparse.csr_matrix((-side * tangent.by_q.ravel() / base, pick), shape=shape)
        device = (by_p @ program.inject_p + by_q @ program.inject_q).tocoo()
        # at all other nodes consumption is what was scheduled, in every plan
        cell = np.ix_(step, self.at)
        fixed = tangent.value + (tangent.by_p * (problem.load_p_mw / base - out.p_pu)[cell]).sum(axis=1)
        fixed += (tangent.by_q * (problem.load_q_mvar / base - out.q_pu)[cell]).sum(axis=1)
        rows = self.planes.rows(count, -np.inf, side * (edge - fixed), (slack, -1.0))
        self.planes.put(rows[device.row], device.col, device.data)
        self.spare.append(spare + tangent.error)

    def relaxed(self, linear: LinearProgram, dual: np.ndarray) -> tuple[LinearProgram, np.ndarray]:
        """Relaxation that holds for every policy, and its multipliers: planes moved by their error, or left out.

        linear:  of the program and, as its last rows, the planes
        """
        spare = np.concatenate([np.zeros(0), *self.spare])
        most, kept, first = linear.row_high.copy(), dual.copy(), dual.size - spare.size
        known = np.isfinite(spare)
        most[first:] += np.where(known, spare, 0.0)
        kept[first:] *= known
        return dataclasses.replace(linear, row_high=most), kept


ROUNDS = 40
CLOSE = 1e-3  # of the money at stake: where a plan is good enough
FEASIBILITY = 1e-9


@dataclass(frozen=True, eq=False)
class FeederPlan:
    """A plan that the environment can execute, and how good it is; returns in the unit of the task's reward.

    points:       set-points as delivered
    objective:    return of the plan, with the exact power flow
    violation_pu, overload_mva, missed_mwh: what the plan breaks, summed over the episode
    broken:       the same at the planner's prices
    bound:        no policy whatsoever returns more
    kept_bound:   no policy that breaks voltage band, ratings and departure levels by as little as the plan (in sum, at
                  the planner's prices) returns more; where the plan breaks nothing, no policy that keeps them all
    rounds:       linear programs solved
    """

    points: SetPoints
    objective: float
    violation_pu: float
    overload_mva: float
    missed_mwh: float
    broken: float
    bound: float
    kept_bound: float
    rounds: int

    @property
    def gap(self) -> float:
        """Optimality gap of the plan at the planner's prices; >= 0 up to rounding."""
        return self.kept_bound - self.objective


def plan_feeder(problem: FeederEpisode, *, rounds: int = ROUNDS) -> FeederPlan:
    """Plan an episode with everything known.

    Raises SolverError when HiGHS or the power flow of a plan fails.
    """
    kept = FeederSearch(problem, INSIDE).improve(limit_prices(problem), rounds)
    free = FeederSearch(problem, INSIDE).improve(FREE, rounds) if kept.limited else kept
    out, scale = kept.best, problem.scale
    return FeederPlan(
        points=out.points,
        objective=scale * out.money_usd,
        violation_pu=out.violation_pu,
        overload_mva=out.overload_mva,
        missed_mwh=out.missed_mwh,
        broken=scale * out.broken_usd,
        bound=scale * free.bound_usd,
        kept_bound=scale * (kept.bound_usd + out.broken_usd),
        rounds=kept.rounds + free.rounds * (free is not kept),
    )


class Improved(NamedTuple):
    """The best plan found and a bound on every plan, money less broken limits [$]; `limited`: some limit has a row."""

    best: PlanOutcome
    bound_usd: float
    rounds: int
    limited: bool


class FeederSearch:
    """Search for the best plan of an episode at given prices of broken limits.

    Tangents hold whatever the prices are: a search that goes on at others keeps those that it has.
    """

    def __init__(self, problem: FeederEpisode, back_off: BackOff) -> None:
        self.problem = problem
        reach = reach_of(problem.network, largest_injection(problem) / problem.network.base_mva)
        # upper bound of the losses in every step, (T,) [MW]; where the reach is infinite, the injections themselves
        most = problem.network.base_mva * (reach.current**2 @ problem.network.r)
        self.most_loss = np.minimum(most, largest_injection(problem).sum(axis=1))
        self.program = FeederProgram(problem, most_loss=self.most_loss)
        self.cuts = TangentCuts(self.program, reach, back_off)
        self.last = run(problem, idle_points(problem))
        self.apart = [FeederSearch(part, back_off) for part in _single_vehicles(problem)]

    def improve(self, prices: ViolationPrices, rounds: int = ROUNDS) -> Improved:
        """Solve, play, add tangents, until no plan can be much better than the best one played."""
        if self.apart and not (prices.band or prices.rating):
            return self._joined([search.improve(prices, rounds) for search in self.apart])
        problem, program, cuts = self.problem, self.program, self.cuts
        windfall = problem.dt_hours * np.maximum(-problem.loss_per_mwh, 0)
        bound, best, count, outside = np.inf, None, 0, False
        while count < rounds:
            count += 1
            known = cuts.planes.count
            cuts.add(self.last, prices)
            if count > 1 and cuts.planes.count == known and not outside:
                break  # the same program again
            found, ceiling = self._optimum(prices)
            bound = min(bound, ceiling + float(windfall @ self.most_loss))
            self.last, outside = run(problem, program.set_points(found.x)), program.tighten(found.x)
            if best is None or self.last.worth(prices) > best.worth(prices):
                best = self.last
            # what the program promises is with the planner's back-off, and without what losses are paid for
            promised = -program.constant - found.objective + windfall @ best.solved.loss_pu * problem.network.base_mva
            if promised - best.worth(prices) <= CLOSE * max(1.0, abs(best.money_usd)):
                break
        assert best is not None
        limited = problem.vehicles is not None or bool(cuts.slack)
        return Improved(best, bound, count, limited)

    def _joined(self, found: Sequence[Improved]) -> Improved:
        """Plan of all vehicles out of those of each alone, which is the best where they share no limit and no loss."""
        vehicle_mw = np.hstack([each.best.points.vehicle_mw for each in found])
        best = run(self.problem, dataclasses.replace(idle_points(self.problem), vehicle_mw=vehicle_mw))
        return Improved(best, sum(each.bound_usd for each in found), sum(each.rounds for each in found), limited=True)

    def _optimum(self, prices: ViolationPrices) -> tuple[Optimum, float]:
        """Optimum of the program as far as it is known, and the most money by its multipliers [$]."""
        program, problem, relaxed = self.program, self.problem, self.cuts.relaxed

        def case(linear: LinearProgram, bound: float = np.inf) -> TripCase:
            found = solve(linear, feasibility=FEASIBILITY)
            return TripCase(linear, found, min(bound, -program.constant - dual_bound(*relaxed(linear, found.dual))))

        def worth(x: np.ndarray) -> float:
            return run(problem, program.set_points(x)).worth(prices)

        whole = case(program.priced(prices, self.cuts.planes))
        if program.arrivals is not None:
            close = CLOSE * max(1.0, abs(whole.found.objective))
            whole = settle_trips(whole, program.arrivals, case, worth, close)
        return whole.found, whole.bound


def _single_vehicles(problem: FeederEpisode) -> list[FeederEpisode]:
    """The episode with one vehicle at a time; none where other devices, or paid losses, tie them together."""
    units = problem.vehicles
    tied = (
        any(kind is not None for kind in (problem.storage, problem.plants, problem.flex)) or problem.loss_per_mwh.any()
    )
    if units is None or units.node.size < 2 or tied:
        return []
    fields = {field.name: getattr(units, field.name) for field in dataclasses.fields(units)}
    return [
        dataclasses.replace(problem, vehicles=VehicleUnits(**{name: x[..., k : k + 1] for name, x in fields.items()}))
        for k in range(units.node.size)
    ]
