"""Proofs of optimality and infeasibility, rechecked on the host in float64 from the multipliers of the rows alone.

Nothing of the solver enters: for any multipliers lam the inequalities below hold, so a small gap is a proof.
"""

from __future__ import annotations

import numpy as np

from powerzoo_jax.opf.qp import Qp


def dual_bound(qp: Qp, row_price: np.ndarray) -> float:
    """No feasible point of the programme costs less (weak duality): a bound in its objective's unit, [$/h] of an OPF.

    g(lam) = sum_j min over the box of 1/2 q x^2 + (c - A' lam) x   +   sum_i min over the row's limits of lam y

    row_price: (m,) of QpResult; a price on an open side of a row counts as 0
    """
    a, q, c, lo, hi, row_lo, row_hi, lam = _wide(qp, row_price)
    lam = np.where((lam > 0) & ~np.isfinite(row_lo) | (lam < 0) & ~np.isfinite(row_hi), 0.0, lam)
    reduced = c - a.T @ lam
    turning = np.where(q > 0, -reduced / np.where(q > 0, q, 1.0), np.where(reduced > 0, lo, hi))
    x = np.clip(turning, lo, hi)
    at = np.where(lam > 0, row_lo, np.where(lam < 0, row_hi, 0.0))
    return float(np.sum((0.5 * q * x + reduced) * x) + lam @ at)


def cost_at(qp: Qp, x: np.ndarray) -> float:
    """1/2 x' Q x + c' x."""
    x = np.asarray(x, np.float64)
    return float(np.sum((0.5 * np.asarray(qp.q, np.float64) * x + np.asarray(qp.c, np.float64)) * x))


def violation(qp: Qp, x: np.ndarray) -> float:
    """Largest violation of a box or row."""
    a, _, _, lo, hi, row_lo, row_hi, x = _wide(qp, x)
    y = a @ x
    return float(max(0.0, *(np.max(part, initial=0.0) for part in (lo - x, x - hi, row_lo - y, y - row_hi))))


def infeasibility(qp: Qp, ray: np.ndarray) -> float:
    """By how much the rows, weighted with `ray` (m,) [-], ask for more than the boxes give: above 0 proves infeasible.

    max over the box of ray' A x  <  min over the row limits of ray' y
    """
    a, _, _, lo, hi, row_lo, row_hi, ray = _wide(qp, ray)
    ray = np.where((ray > 0) & ~np.isfinite(row_lo) | (ray < 0) & ~np.isfinite(row_hi), 0.0, ray)
    pull = a.T @ ray
    at = np.where(ray > 0, row_lo, np.where(ray < 0, row_hi, 0.0))
    return float(ray @ at - np.sum(np.maximum(pull * lo, pull * hi)))


def _wide(qp: Qp, multipliers: np.ndarray) -> tuple[np.ndarray, ...]:
    parts = (qp.a, qp.q, qp.c, qp.lo, qp.hi, qp.row_lo, qp.row_hi, multipliers)
    return tuple(np.asarray(part, np.float64) for part in parts)
