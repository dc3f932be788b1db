"""Tangent planes of losses and voltages, collected while a plan is improved."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from powerzoo_jax.oracle.feeder.feederrun import Outcome, excess_mva
from powerzoo_jax.oracle.feeder.network import Reach, Tangent, loading_tangents, loss_tangents, voltage_tangents
from powerzoo_jax.oracle.feeder.problem import device_nodes
from powerzoo_jax.oracle.feeder.program import FeederProgram, Linear

BACK_OFF_PU = 2e-5  # kept from the band, so that a plan rounded to float32 stays inside
BACK_OFF_MVA = 1e-3  # the same for ratings
MOST_MVA = 1e3  # of an overload: bounds have to be finite


class Cuts:
    """Tangent planes collected over the rounds, as rows over the columns of a programme."""

    def __init__(self, program: FeederProgram, reach: Reach) -> None:
        self.program, self.reach = program, reach
        self.at = device_nodes(program.problem)
        self.rows: list[Any] = []
        self.most: list[np.ndarray] = []
        self.spare: list[np.ndarray] = []  # what a bound adds to `most`: error of the plane, and the back-off
        self.slack: dict[tuple[str, int, int], int] = {}

    def add(self, out: Outcome, keep_limits: bool) -> None:
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

    def _voltages(self, out: Outcome) -> None:
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
        """Columns of what the limit `name` is broken by, one for each pair of step and node."""
        keys = [(name, int(t), int(k)) for t, k in zip(step, node, strict=True)]
        fresh = [key for key in keys if key not in self.slack]
        if fresh:
            columns = self.program.new(f"slack{len(self.slack)}", np.zeros(len(fresh)), most, price)
            self.slack.update(zip(fresh, columns.tolist(), strict=True))
        return np.array([self.slack[key] for key in keys])

    def _rows(
        self,
        out: Outcome,
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
        """The programme that no policy can break, and its multipliers: planes moved by their error, or left out."""
        if not self.rows:
            return linear, dual
        spare = np.concatenate(self.spare)
        most, kept, first = linear.most.copy(), dual.copy(), linear.most.size - spare.size
        known = np.isfinite(spare)
        most[first:] += np.where(known, spare, 0.0)
        kept[first:] *= known
        return dataclasses.replace(linear, most=most), kept
