"""Unit commitment as a mixed-integer linear program: variables, rows and how exact its costs are.

Binary u tells who is on; v and w, starts and stops, follow from it and need not be binary:

    u_t - u_(t-1) = v_t - w_t,   sum of the last min_up starts <= u_t,   sum of the last min_down stops <= 1 - u_t

A quadratic block becomes equal segments priced by their chords, which overstate a cost by at most slope h^2 / 8 for
segments of h MW. A row may stand for several units alike: u, v and w count them, and they share its output.
Sources: Rajan and Takriti 2005, IBM RC23628; Carrion and Arroyo 2006, doi:10.1109/TPWRS.2006.876672.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from powerzoo_jax.families.transmission.commitment.problem import CommitmentDay, host_rules, running_cost
from powerzoo_jax.oracle.linear_program import LinearProgram, ProgramWriter

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


class CommitmentColumns(NamedTuple):
    """Positions of the columns: (G, T) for u, v, w and hot (0, T where starts cost alike), (S, T) segments, (T,).

    missing: reserve that is not kept, at its price
    """

    u: np.ndarray
    v: np.ndarray
    w: np.ndarray
    hot: np.ndarray
    segment: np.ndarray
    shed: np.ndarray
    spill: np.ndarray
    excess: np.ndarray
    missing: np.ndarray


class CommitmentProgram(NamedTuple):
    """Mixed-integer program of a day, and where things stand in it.

    linear:      LinearProgram, whole in u
    segments:    Segments
    at:          CommitmentColumns
    piece_rows:  (R,) bool  rows that hold a segment below the share of its unit that runs
    """

    linear: LinearProgram
    segments: Segments
    at: CommitmentColumns
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


def commitment_program(problem: CommitmentDay, commitment: np.ndarray | None = None) -> CommitmentProgram:
    """The program of a day; `commitment` (T, G) fixes units on (1) or off (0), and leaves what is negative."""
    writer = ProgramWriter()
    at, segments, pieces = write_commitment(writer, problem, commitment)
    _write_cuts(writer, at, problem, segments)
    piece_rows = np.zeros(writer.count, bool)
    piece_rows[pieces] = True
    return CommitmentProgram(writer.program(), segments, at, piece_rows)


def write_commitment(
    writer: ProgramWriter, problem: CommitmentDay, commitment: np.ndarray | None = None
) -> tuple[CommitmentColumns, Segments, np.ndarray]:
    """Columns and rows of a day but its cuts: where columns stand, the segments, and positions of their rows."""
    rules, segments = host_rules(problem.rules), linear_segments(problem)
    at = _write_columns(writer, problem, rules, segments, commitment)
    piece_rows: list[np.ndarray] = []
    for g in range(len(at.u)):
        _write_switching(writer, at, problem, rules, g)
        piece_rows += _write_output(writer, at, problem, rules, np.flatnonzero(segments.unit == g), segments, g)
    _write_system(writer, at, problem, rules)
    return at, segments, np.concatenate([np.zeros(0, np.int64), *piece_rows])


def read_plan(
    problem: CommitmentDay, at: CommitmentColumns, segments: Segments, x: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Share of each unit that runs (T, G) [-] and output (T, G) [MW] of a solution, relaxed or not; of a row that
    stands for several units their number and sum.
    """
    on = x[at.u]
    above = np.zeros(on.shape)
    np.add.at(above, segments.unit, x[at.segment])
    return on.T, (on * problem.costs.base_mw[:, None] + above).T


def _write_columns(
    writer: ProgramWriter,
    problem: CommitmentDay,
    rules: dict[str, np.ndarray],
    segments: Segments,
    commitment: np.ndarray | None,
) -> CommitmentColumns:
    n_unit, n_step, dt, cold = len(rules["p_min_mw"]), len(problem.load_mw), problem.dt_hours, problem.cold_startup_usd
    each, pieces = (n_unit, n_step), (len(segments.unit), n_step)
    start = rules["startup_usd"] if cold is None else cold
    saved = np.zeros(0) if cold is None else rules["startup_usd"] - cold  # by a start of a unit that is still warm
    running, many = dt * (problem.costs.base_cost + rules["no_load_usd_per_hour"]), problem.units[:, None]
    spilled = problem.units @ rules["p_max_mw"] + np.maximum(-problem.load_mw, 0)
    bare = 0.0 if np.isinf(problem.reserve_usd) else problem.units @ rules["p_max_mw"] + spilled
    return CommitmentColumns(
        u=writer.columns(each, running[:, None], *_running_box(problem, rules, commitment), whole=True),
        v=writer.columns(each, start[:, None], 0.0, many),
        w=writer.columns(each, rules["shutdown_usd"][:, None], 0.0, many),
        hot=writer.columns((len(saved), n_step), saved[:, None], 0.0, many[: len(saved)]),
        segment=writer.columns(
            pieces, dt * segments.price[:, None], 0.0, (segments.width * problem.units[segments.unit])[:, None]
        ),
        shed=writer.columns(n_step, dt * problem.voll, 0.0, np.maximum(problem.load_mw, 0)),
        spill=writer.columns(n_step, dt * problem.surplus_price, 0.0, spilled),
        excess=writer.columns(n_step, dt * problem.voll, 0.0, 0.0 if problem.cuts is None else spilled.max()),
        missing=writer.columns(n_step, 0.0 if np.isinf(problem.reserve_usd) else problem.reserve_usd, 0.0, bare),
    )


def _running_box(
    problem: CommitmentDay, rules: dict[str, np.ndarray], commitment: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds (G, T) of u: what was switched shortly before stays, and what is out of service is off."""
    on, steps = np.asarray(problem.state.on), np.asarray(problem.state.steps)
    shape = len(on), len(problem.load_mw)
    low, high = np.zeros(shape), np.ones(shape)
    for g in range(len(on)):
        held = int(rules["min_up" if on[g] else "min_down"][g]) - int(steps[g])
        if held > 0:
            low[g, :held], high[g, :held] = float(on[g]), float(on[g])
        if not rules["available"][g]:
            low[g], high[g] = 0.0, 0.0
    if commitment is not None:
        # an illegal commitment leaves nothing between the bounds, and the solver says so
        asked = np.asarray(commitment, np.int64).T
        low, high = np.where(asked > 0, 1.0, low), np.where(asked == 0, 0.0, high)
    return low * problem.units[:, None], high * problem.units[:, None]


def _write_switching(
    writer: ProgramWriter, at: CommitmentColumns, problem: CommitmentDay, rules: dict[str, np.ndarray], g: int
) -> None:
    u, v, w = at.u[g], at.v[g], at.w[g]
    n_step, many = len(u), float(problem.units[g])
    was = many * float(np.asarray(problem.state.on)[g])
    writer.rows(1, was, was, (u[:1], 1.0), (v[:1], -1.0), (w[:1], 1.0))
    writer.rows(n_step - 1, 0.0, 0.0, (u[1:], 1.0), (u[:-1], -1.0), (v[1:], -1.0), (w[1:], 1.0))
    for t in range(n_step):
        since_up = v[max(t - int(rules["min_up"][g]) + 1, 0) : t + 1]
        since_down = w[max(t - int(rules["min_down"][g]) + 1, 0) : t + 1]
        writer.rows(1, -np.inf, 0.0, (since_up[:, None], 1.0), (u[t : t + 1], -1.0))
        writer.rows(1, -np.inf, many, (since_down[:, None], 1.0), (u[t : t + 1], 1.0))
    if problem.cold_startup_usd is None or problem.cold_after is None:
        return
    hot = at.hot[g]
    off_since = -int(np.asarray(problem.state.steps)[g]) if not was else None
    writer.rows(n_step, -np.inf, 0.0, (hot, 1.0), (v, -1.0))
    for t in range(n_step):
        first = t - int(problem.cold_after[g])
        recent = w[max(first, 0) : t]
        still_warm = many if off_since is not None and off_since >= first else 0.0
        writer.rows(1, -np.inf, still_warm, (hot[t : t + 1], 1.0), (recent[:, None], -1.0))


def _write_output(
    writer: ProgramWriter,
    at: CommitmentColumns,
    problem: CommitmentDay,
    rules: dict[str, np.ndarray],
    mine: np.ndarray,
    segments: Segments,
    g: int,
) -> list[np.ndarray]:
    """Limits and ramps of a unit; returns the rows of its pieces."""
    u, v, w, above = at.u[g], at.v[g], at.w[g], at.segment[mine]
    n_step = len(u)
    base, many = problem.costs.base_mw[g], float(problem.units[g])
    before = many * float(np.asarray(problem.state.p_mw)[g])
    high, ramp, start = rules["p_max_mw"][g], rules["ramp_mw"][g], min(rules["start_mw"][g], rules["p_max_mw"][g])
    stop, was = min(rules["stop_mw"][g], high), many * float(np.asarray(problem.state.on)[g])
    pieces = [
        writer.rows(n_step, -np.inf, 0.0, (column, 1.0), (u, -width))
        for column, width in zip(above, segments.width[mine], strict=True)
    ]
    writer.rows(n_step, 0.0, np.inf, (above, 1.0), (u, base - rules["p_min_mw"][g]))
    writer.rows(n_step, -np.inf, 0.0, (above, 1.0), (u, base - high), (v, high - start))
    writer.rows(n_step - 1, -np.inf, 0.0, (above[:, :-1], 1.0), (u[:-1], base - high), (w[1:], high - stop))
    writer.rows(1, -np.inf, 0.0, (w[:1], before / many - stop))
    if ramp >= high:
        return pieces
    rise = [(above[:, 1:], 1.0), (u[1:], base), (above[:, :-1], -1.0), (u[:-1], -base)]
    fall = [(columns, -coefficient) for columns, coefficient in rise]
    writer.rows(n_step - 1, -np.inf, 0.0, *rise, (u[:-1], -ramp), (v[1:], -start))
    writer.rows(n_step - 1, -np.inf, 0.0, *fall, (u[1:], -ramp), (w[1:], -stop))
    writer.rows(1, -np.inf, before + ramp * was, (above[:, :1], 1.0), (u[:1], base), (v[:1], -start))
    writer.rows(1, -np.inf, -before, (above[:, :1], -1.0), (u[:1], -base - ramp), (w[:1], -max(stop, before / many)))
    return pieces


def _write_system(
    writer: ProgramWriter, at: CommitmentColumns, problem: CommitmentDay, rules: dict[str, np.ndarray]
) -> None:
    load, base = problem.load_mw, problem.costs.base_mw[:, None]
    writer.rows(len(load), load, load, (at.segment, 1.0), (at.u, base), (at.shed, 1.0), (at.spill, -1.0))
    writer.rows(len(load), load + problem.reserve_mw, np.inf, (at.u, rules["p_max_mw"][:, None]), (at.missing, 1.0))


def _write_cuts(writer: ProgramWriter, at: CommitmentColumns, problem: CommitmentDay, segments: Segments) -> None:
    if problem.cuts is None:
        return
    for t, of_unit, of_shed, most in zip(*problem.cuts, strict=True):
        running = at.u[:, [t]], (of_unit * problem.costs.base_mw)[:, None]
        above = at.segment[:, [t]], of_unit[segments.unit, None]
        writer.rows(1, -np.inf, most, running, above, (at.shed[[t]], of_shed), (at.excess[[t]], -1.0))
