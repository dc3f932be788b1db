"""Unit commitment as a mixed-integer linear programme: variables, rows and how exact its costs are.

Binary u tells who is on; v and w, starts and stops, follow from it and need not be binary:

    u_t - u_(t-1) = v_t - w_t,   sum of the last min_up starts <= u_t,   sum of the last min_down stops <= 1 - u_t

A quadratic block becomes equal segments priced by their chords, which overstate a cost by at most slope h^2 / 8 for
segments of h MW. Sources: Rajan and Takriti 2005, IBM RC23628; Carrion and Arroyo 2006, doi:10.1109/TPWRS.2006.876672.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from powerzoo_jax.oracle.commitment.problem import CommitmentDay, host_rules, running_cost

PIECEWISE_SHARE = 5e-4  # [-] of the cost, that segments may overstate it by: 0.05 %


class Segments(NamedTuple):
    """Linear pieces above the base output of each unit, in one row.

    unit:   (S,)  int
    width:  (S,)  [MW]
    price:  (S,)  [USD/MWh]
    error:  (G,)  [USD/h]  most by which they overstate the cost of a unit
    """

    unit: np.ndarray
    width: np.ndarray
    price: np.ndarray
    error: np.ndarray


class MixedProgram(NamedTuple):
    """min cost @ x + fixed,  row_low <= rows @ x <= row_high,  low <= x <= high, x whole where `whole`.

    running, above: (G, T), (S, T) columns of u and of the segments
    piece_rows: (R,) bool  rows that hold a segment below the share of its unit that runs
    """

    cost: np.ndarray
    rows: Any
    row_low: np.ndarray
    row_high: np.ndarray
    low: np.ndarray
    high: np.ndarray
    whole: np.ndarray
    segments: Segments
    running: np.ndarray
    above: np.ndarray
    piece_rows: np.ndarray


def linear_segments(problem: CommitmentDay) -> Segments:
    """Cut quadratic blocks so that the whole horizon is overstated by at most PIECEWISE_SHARE of its cost."""
    costs = problem.costs
    budget = PIECEWISE_SHARE * _cheapest(problem) / (len(problem.load_mw) * problem.dt_hours * len(costs.base_mw))
    error_of_one = costs.slope * costs.width_mw**2 / 8
    count = np.ceil(np.sqrt(error_of_one / max(budget, 1e-12)))
    count = np.clip(count, 1, problem.most_pieces).astype(np.int64)
    unit, width, price = [], [], []
    for g, k in np.argwhere(costs.width_mw > 0):
        pieces, size = count[g, k], costs.width_mw[g, k] / count[g, k]
        unit += [g] * pieces
        width += [size] * pieces
        price += (costs.price[g, k] + costs.slope[g, k] * size * (np.arange(pieces) + 0.5)).tolist()
    return Segments(np.array(unit, np.int64), np.array(width), np.array(price), (error_of_one / count**2).max(1))


def _cheapest(problem: CommitmentDay) -> float:
    """A cost [USD] that no plan undercuts: all energy at the lowest average cost of any unit."""
    rules = host_rules(problem.rules)
    p = np.linspace(np.maximum(rules["p_min_mw"], 1e-3), np.maximum(rules["p_max_mw"], 1e-3), 65)
    average = np.where(rules["available"], running_cost(problem.costs, p) / p, np.inf)
    lowest = min(float(average.min()), problem.voll)
    return max(lowest, 0.0) * float(np.maximum(problem.load_mw, 0).sum()) * problem.dt_hours


class _CommitmentLayout:
    """Positions of the variables: blocks of (G, T) for u, v, w, hot; (S, T) segments; (T,) shed, spill, excess."""

    def __init__(self, n_unit: int, n_segment: int, n_step: int, hot: bool) -> None:
        self.shape = (n_unit, n_step)
        sizes = {"u": n_unit, "v": n_unit, "w": n_unit, "hot": n_unit if hot else 0, "segment": n_segment}
        sizes |= {"shed": 1, "spill": 1, "excess": 1}
        self.at: dict[str, np.ndarray] = {}
        first = 0
        for name, count in sizes.items():
            self.at[name] = first + np.arange(count * n_step).reshape(count, n_step)
            first += count * n_step
        self.size = first


class _CommitmentRows:
    """Rows of a sparse matrix, collected term by term."""

    def __init__(self) -> None:
        self.entries: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self.low: list[np.ndarray] = []
        self.high: list[np.ndarray] = []
        self.pieces: list[np.ndarray] = []
        self.count = 0

    def add(self, terms: Iterable[tuple[np.ndarray, Any]], low: Any, high: Any, piece: bool = False) -> None:
        """Add a block of rows; every term is (columns (..., R) whose last axis is the rows, coefficient)."""
        n_row = 0
        for columns, coefficient in terms:
            columns = np.atleast_2d(columns)
            n_row = columns.shape[1]
            row = np.broadcast_to(self.count + np.arange(n_row), columns.shape)
            value = np.broadcast_to(np.asarray(coefficient, np.float64), columns.shape)
            self.entries.append((row.ravel(), columns.ravel(), value.ravel()))
        self.low.append(np.broadcast_to(np.asarray(low, np.float64), n_row))
        self.high.append(np.broadcast_to(np.asarray(high, np.float64), n_row))
        self.pieces.append(np.full(n_row, piece))
        self.count += n_row

    def matrix(self, n_column: int) -> Any:
        from scipy import sparse

        row, column, value = (np.concatenate(part) for part in zip(*self.entries, strict=True))
        return sparse.csc_matrix((value, (row, column)), (self.count, n_column))


def commitment_program(problem: CommitmentDay, commitment: np.ndarray | None = None) -> MixedProgram:
    """The programme of a day; `commitment` (T, G) fixes units on (1) or off (0), and leaves what is negative."""
    rules, segments = host_rules(problem.rules), linear_segments(problem)
    n_unit, n_step = len(rules["p_min_mw"]), len(problem.load_mw)
    layout = _CommitmentLayout(n_unit, len(segments.unit), n_step, problem.cold_startup_usd is not None)
    rows = _CommitmentRows()
    for g in range(n_unit):
        _add_switching(rows, layout, problem, rules, g)
        _add_output(rows, layout, problem, rules, np.flatnonzero(segments.unit == g), segments, g)
    _add_system(rows, layout, problem, rules, segments)
    _add_cuts(rows, layout, problem, segments)
    low, high = _boxes(layout, problem, rules, segments, commitment)
    whole = np.zeros(layout.size, bool)
    whole[layout.at["u"]] = True
    return MixedProgram(
        cost=_prices(layout, problem, rules, segments),
        rows=rows.matrix(layout.size),
        row_low=np.concatenate(rows.low),
        row_high=np.concatenate(rows.high),
        low=low,
        high=high,
        whole=whole,
        segments=segments,
        running=layout.at["u"],
        above=layout.at["segment"],
        piece_rows=np.concatenate(rows.pieces),
    )


def read_plan(problem: CommitmentDay, program: MixedProgram, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Commitment (T, G) bool and output (T, G) [MW] of a solution."""
    segments = program.segments
    n_unit, n_step = len(problem.costs.base_mw), len(problem.load_mw)
    layout = _CommitmentLayout(n_unit, len(segments.unit), n_step, problem.cold_startup_usd is not None)
    on = x[layout.at["u"]] > 0.5
    above = np.zeros((n_unit, n_step))
    np.add.at(above, segments.unit, x[layout.at["segment"]])
    return on.T, np.where(on, problem.costs.base_mw[:, None] + above, 0.0).T


def _add_switching(
    rows: _CommitmentRows, layout: _CommitmentLayout, problem: CommitmentDay, rules: dict[str, np.ndarray], g: int
) -> None:
    u, v, w = (layout.at[name][g] for name in ("u", "v", "w"))
    n_step = len(u)
    was = float(np.asarray(problem.state.on)[g])
    rows.add([(u[:1], 1.0), (v[:1], -1.0), (w[:1], 1.0)], was, was)
    rows.add([(u[1:], 1.0), (u[:-1], -1.0), (v[1:], -1.0), (w[1:], 1.0)], 0.0, 0.0)
    for t in range(n_step):
        since_up = v[max(t - int(rules["min_up"][g]) + 1, 0) : t + 1]
        since_down = w[max(t - int(rules["min_down"][g]) + 1, 0) : t + 1]
        rows.add([(since_up[:, None], 1.0), (u[t : t + 1], -1.0)], -np.inf, 0.0)
        rows.add([(since_down[:, None], 1.0), (u[t : t + 1], 1.0)], -np.inf, 1.0)
    if problem.cold_startup_usd is None or problem.cold_after is None:
        return
    hot = layout.at["hot"][g]
    off_since = -int(np.asarray(problem.state.steps)[g]) if not was else None
    rows.add([(hot, 1.0), (v, -1.0)], -np.inf, 0.0)
    for t in range(n_step):
        first = t - int(problem.cold_after[g])
        recent = w[max(first, 0) : t]
        still_warm = 1.0 if off_since is not None and off_since >= first else 0.0
        terms = [(hot[t : t + 1], 1.0), *([(recent[:, None], -1.0)] if recent.size else [])]
        rows.add(terms, -np.inf, still_warm)


def _add_output(
    rows: _CommitmentRows,
    layout: _CommitmentLayout,
    problem: CommitmentDay,
    rules: dict[str, np.ndarray],
    mine: np.ndarray,
    segments: Segments,
    g: int,
) -> None:
    u, v, w = (layout.at[name][g] for name in ("u", "v", "w"))
    above = layout.at["segment"][mine]
    base, before = problem.costs.base_mw[g], float(np.asarray(problem.state.p_mw)[g])
    high, ramp, start = rules["p_max_mw"][g], rules["ramp_mw"][g], min(rules["start_mw"][g], rules["p_max_mw"][g])
    stop = min(rules["stop_mw"][g], high)
    for column, width in zip(above, segments.width[mine], strict=True):
        rows.add([(column, 1.0), (u, -width)], -np.inf, 0.0, piece=True)
    rows.add([(above, 1.0), (u, base - rules["p_min_mw"][g])], 0.0, np.inf)
    rows.add([(above, 1.0), (u, base - high), (v, high - start)], -np.inf, 0.0)
    rows.add([(above[:, :-1], 1.0), (u[:-1], base - high), (w[1:], high - stop)], -np.inf, 0.0)
    rows.add([(w[:1], before - stop)], -np.inf, 0.0)
    if ramp >= high:
        return
    rise = [(above[:, 1:], 1.0), (u[1:], base), (above[:, :-1], -1.0), (u[:-1], -base)]
    rows.add([*rise, (u[:-1], -ramp), (v[1:], -start)], -np.inf, 0.0)
    rows.add([*((c, -k) for c, k in rise), (u[1:], -ramp), (w[1:], -stop)], -np.inf, 0.0)
    was = float(np.asarray(problem.state.on)[g])
    rows.add([(above[:, :1], 1.0), (u[:1], base), (v[:1], -start)], -np.inf, before + ramp * was)
    rows.add([(above[:, :1], -1.0), (u[:1], -base - ramp), (w[:1], -max(stop, before))], -np.inf, -before)


def _add_system(
    rows: _CommitmentRows,
    layout: _CommitmentLayout,
    problem: CommitmentDay,
    rules: dict[str, np.ndarray],
    segments: Segments,
) -> None:
    u, above, shed, spill = (layout.at[name] for name in ("u", "segment", "shed", "spill"))
    base = problem.costs.base_mw[:, None]
    rows.add([(above, 1.0), (u, base), (shed, 1.0), (spill, -1.0)], problem.load_mw, problem.load_mw)
    rows.add([(u, rules["p_max_mw"][:, None])], problem.load_mw + problem.reserve_mw, np.inf)


def _add_cuts(rows: _CommitmentRows, layout: _CommitmentLayout, problem: CommitmentDay, segments: Segments) -> None:
    if problem.cuts is None:
        return
    u, above, shed, excess = (layout.at[name] for name in ("u", "segment", "shed", "excess"))
    for t, of_unit, of_shed, most in zip(*problem.cuts, strict=True):
        terms = [(u[:, [t]], (of_unit * problem.costs.base_mw)[:, None]), (above[:, [t]], of_unit[segments.unit, None])]
        rows.add([*terms, (shed[:, t], of_shed), (excess[:, t], -1.0)], -np.inf, most)


def _prices(
    layout: _CommitmentLayout, problem: CommitmentDay, rules: dict[str, np.ndarray], segments: Segments
) -> np.ndarray:
    cost, dt = np.zeros(layout.size), problem.dt_hours
    cost[layout.at["u"]] = dt * (problem.costs.base_cost + rules["no_load_usd_per_hour"])[:, None]
    startup = rules["startup_usd"] if problem.cold_startup_usd is None else problem.cold_startup_usd
    cost[layout.at["v"]] = startup[:, None]
    cost[layout.at["w"]] = rules["shutdown_usd"][:, None]
    if problem.cold_startup_usd is not None:
        cost[layout.at["hot"]] = (rules["startup_usd"] - problem.cold_startup_usd)[:, None]
    cost[layout.at["segment"]] = dt * segments.price[:, None]
    cost[layout.at["shed"]] = dt * problem.voll
    cost[layout.at["spill"]] = dt * problem.surplus_price
    cost[layout.at["excess"]] = dt * problem.voll
    return cost


def _boxes(
    layout: _CommitmentLayout,
    problem: CommitmentDay,
    rules: dict[str, np.ndarray],
    segments: Segments,
    commitment: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray]:
    low, high = np.zeros(layout.size), np.ones(layout.size)
    high[layout.at["segment"]] = segments.width[:, None]
    high[layout.at["shed"]] = np.maximum(problem.load_mw, 0)
    high[layout.at["spill"]] = rules["p_max_mw"].sum() + np.maximum(-problem.load_mw, 0)
    high[layout.at["excess"]] = high[layout.at["spill"]].max() if problem.cuts is not None else 0.0
    on, steps = np.asarray(problem.state.on), np.asarray(problem.state.steps)
    u = layout.at["u"]
    for g in range(layout.shape[0]):
        held = int(rules["min_up" if on[g] else "min_down"][g]) - int(steps[g])
        if held > 0:
            low[u[g, :held]], high[u[g, :held]] = float(on[g]), float(on[g])
        if not rules["available"][g]:
            low[u[g]], high[u[g]] = 0.0, 0.0
    if commitment is not None:
        # an illegal wish leaves an empty box: infeasible, and HiGHS says so
        wish = np.asarray(commitment, np.int64).T
        low[u], high[u] = np.where(wish > 0, 1.0, low[u]), np.where(wish == 0, 0.0, high[u])
    return low, high
