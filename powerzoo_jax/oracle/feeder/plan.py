"""Plan an episode on a feeder: solve a linear programme, run the exact power flow, add tangents where it was wrong.

The network enters as tangent planes of loss and voltage that hold at all injections (`network`), so every programme
relaxes the task: its optimum bounds what any policy can reach, while the played plan is a policy. Both meet.

Tangent planes of losses and voltages, collected while a plan is improved.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from powerzoo_jax.base.errors import SolverError
from powerzoo_jax.oracle.feeder.network import (
    Reach,
    Tangent,
    loading_tangents,
    loss_tangents,
    reach_of,
    voltage_tangents,
)
from powerzoo_jax.oracle.feeder.problem import (
    FREE,
    FeederEpisode,
    PlanOutcome,
    SetPoints,
    ViolationPrices,
    device_nodes,
    excess_mva,
    largest_injection,
    limit_prices,
    run,
)
from powerzoo_jax.oracle.feeder.program import FeederProgram, Linear, idle_points

BACK_OFF_PU = 2e-5  # kept from the band, so that a plan rounded to float32 stays inside
BACK_OFF_MVA = 1e-3  # the same for ratings
MOST_MVA = 1e3  # of an overload: bounds have to be finite


class TangentCuts:
    """Tangent planes collected over the rounds, as rows over the columns of a programme."""

    def __init__(self, program: FeederProgram, reach: Reach) -> None:
        self.program, self.reach = program, reach
        self.at = device_nodes(program.problem)
        self.rows: list[Any] = []
        self.most: list[np.ndarray] = []
        self.spare: list[np.ndarray] = []  # what a bound adds to `most`: error of the plane, and the back-off
        self.slack: dict[tuple[str, int, int], int] = {}

    def add(self, out: PlanOutcome, keep_limits: bool) -> None:
        """Tangents at a played plan: losses of every step where they are paid for, and limits that it breaks."""
        problem, base = self.program.problem, self.program.problem.network.base_mva
        if (problem.loss_per_mwh > 0).any():
            step, zero = np.arange(problem.horizon), np.zeros(problem.horizon)
            tangent = Tangent(*(base * x for x in loss_tangents(problem.network, out.solved, self.reach, self.at)))
            self._rows(out, tangent, step, 1.0, self.program.column["loss"], zero, zero)
        if not keep_limits:
            return
        step, node = np.nonzero(excess_mva(problem, out.solved) > -BACK_OFF_MVA)
        if step.size:
            loading = loading_tangents(problem.network, out.solved, self.reach, self.at, step, node)
            assert problem.rate_mva is not None
            most, spare = problem.rate_mva[node] - BACK_OFF_MVA, np.full(step.size, BACK_OFF_MVA)
            slack = self._slacks("rating", step, node, MOST_MVA, self.program.prices.rating)
            self._rows(out, Tangent(*(base * x for x in loading)), step, 1.0, slack, most, spare)
        self._voltages(out)

    def _voltages(self, out: PlanOutcome) -> None:
        problem = self.program.problem
        size = np.abs(out.solved.v)
        low, high = problem.v_min + BACK_OFF_PU, problem.v_max - BACK_OFF_PU
        for side, outside, edge, name in ((-1.0, size < low, low, "low"), (1.0, size > high, high, "high")):
            step, node = np.nonzero(outside)
            if not step.size:
                continue
            tangent = voltage_tangents(problem.network, out.solved, self.reach, self.at, step, node)
            # from above the plane says nothing: a voltage is concave in the injections
            if side > 0:
                tangent = tangent._replace(error=np.full(step.size, np.inf))
            spare = np.full(step.size, BACK_OFF_PU)
            slack = self._slacks(name, step, node, 1.0, self.program.prices.band)
            self._rows(out, tangent, step, side, slack, np.full(step.size, edge), spare)

    def _slacks(self, name: str, step: np.ndarray, node: np.ndarray, most: float, price: float) -> np.ndarray:
        """Slack columns of the limit `name`, one for each pair of step and node."""
        keys = [(name, int(t), int(k)) for t, k in zip(step, node, strict=True)]
        fresh = [key for key in keys if key not in self.slack]
        if fresh:
            columns = self.program.new(f"slack{len(self.slack)}", np.zeros(len(fresh)), most, price)
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
        row = by_p @ program.inject_p + by_q @ program.inject_q
        row.resize((count, program.width))
        own = sparse.csr_matrix((-np.ones(count), (np.arange(count), slack)), shape=row.shape)
        # at all other nodes consumption is what was scheduled, in every plan
        cell = np.ix_(step, self.at)
        fixed = tangent.value + (tangent.by_p * (problem.load_p_mw / base - out.p_pu)[cell]).sum(axis=1)
        fixed += (tangent.by_q * (problem.load_q_mvar / base - out.q_pu)[cell]).sum(axis=1)
        self.rows.append(row + own)
        self.most.append(side * (edge - fixed))
        self.spare.append(spare + tangent.error)

    def matrix(self) -> tuple[Any, np.ndarray]:
        """Rows and right-hand sides for `FeederProgram.linear`."""
        from scipy import sparse

        if not self.rows:
            return None, np.zeros(0)
        for row in self.rows:
            row.resize((row.shape[0], self.program.width))
        return sparse.vstack(self.rows, format="csr"), np.concatenate(self.most)

    def relaxed(self, linear: Linear, dual: np.ndarray) -> tuple[Linear, np.ndarray]:
        """Relaxation that holds for every policy, and its multipliers: planes moved by their error, or left out."""
        if not self.rows:
            return linear, dual
        spare = np.concatenate(self.spare)
        most, kept, first = linear.most.copy(), dual.copy(), linear.most.size - spare.size
        known = np.isfinite(spare)
        most[first:] += np.where(known, spare, 0.0)
        kept[first:] *= known
        return dataclasses.replace(linear, most=most), kept


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
    rounds:       linear programmes solved
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
    kept = _improve(problem, limit_prices(problem), rounds)
    free = _improve(problem, FREE, rounds) if kept.limited else kept
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


class _Improved(NamedTuple):
    """The best plan found and a bound on every plan, money less broken limits [$]; `limited`: some limit has a row."""

    best: PlanOutcome
    bound_usd: float
    rounds: int
    limited: bool


def _improve(problem: FeederEpisode, prices: ViolationPrices, rounds: int) -> _Improved:
    """Solve, play, add tangents, until no plan can be much better than the best one played."""
    reach = reach_of(problem.network, largest_injection(problem) / problem.network.base_mva)
    most_loss = _most_loss(problem, reach)
    windfall = problem.dt_hours * np.maximum(-problem.loss_per_mwh, 0)
    program = FeederProgram(problem, prices=prices, most_loss=most_loss)
    cuts, bound, best, count = TangentCuts(program, reach), np.inf, None, 0
    free = prices == FREE

    def worth(out: PlanOutcome) -> float:
        return out.money_usd - (0.0 if free else out.broken_usd)

    out, outside = run(problem, idle_points(problem)), False
    while count < rounds:
        count += 1
        known = len(cuts.rows)
        cuts.add(out, keep_limits=not free)
        if count > 1 and len(cuts.rows) == known and not outside:
            break  # the same programme again
        linear = program.linear(*cuts.matrix())
        result = solve_linear(linear)
        relaxed, dual = cuts.relaxed(linear, np.asarray(result.ineqlin.marginals))
        ceiling = -program.constant - linear_bound(relaxed, np.asarray(result.eqlin.marginals), dual)
        bound = min(bound, ceiling + float(windfall @ most_loss))
        out, outside = run(problem, program.set_points(result.x)), program.tighten(result.x)
        if best is None or worth(out) > worth(best):
            best = out
        # what the programme promises is with the planner's back-off, and without what losses are paid for
        promised = -program.constant - result.fun + windfall @ best.solved.loss_pu * problem.network.base_mva
        if promised - worth(best) <= CLOSE * max(1.0, abs(best.money_usd)):
            break
    assert best is not None
    limited = problem.vehicles is not None or bool(cuts.slack)
    return _Improved(best, bound, count, limited)


def _most_loss(problem: FeederEpisode, reach: Reach) -> np.ndarray:
    """Upper bound of the losses in every step, (T,) [MW]; where the reach is infinite, the injections themselves."""
    most = problem.network.base_mva * (reach.current**2 @ problem.network.r)
    return np.minimum(most, largest_injection(problem).sum(axis=1))


def solve_linear(linear: Linear) -> Any:
    """Run HiGHS; raises SolverError when it does not reach the optimum."""
    from scipy.optimize import linprog

    options = {"primal_feasibility_tolerance": FEASIBILITY, "dual_feasibility_tolerance": FEASIBILITY}
    result = linprog(
        linear.cost,
        A_ub=linear.upper,
        b_ub=linear.most,
        A_eq=linear.equal,
        b_eq=linear.right,
        bounds=np.column_stack([linear.low, linear.high]),
        method="highs",
        options=options,
    )
    if result.status != 0:
        raise SolverError(f"HiGHS stopped with status {result.status} ({result.message}).")
    return result


def linear_bound(linear: Linear, equal_dual: np.ndarray, upper_dual: np.ndarray) -> float:
    """Lower bound of a programme from any multipliers, recomputed by hand: those of `upper` are made <= 0 first.

    min over the box of  cost @ x + y @ (right - equal @ x) + z @ (most - upper @ x),  z <= 0
    """
    z = np.minimum(upper_dual, 0.0)
    reduced = linear.cost - linear.equal.T @ equal_dual - linear.upper.T @ z
    box = np.minimum(reduced * linear.low, reduced * linear.high).sum()
    return float(equal_dual @ linear.right + z @ linear.most + box)
