"""Which branch limits matter: found by solving, on the host, before the programmes that leave the others out."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from powerzoo_jax.base.errors import SolverError
from powerzoo_jax.cases import Case
from powerzoo_jax.opf.dc.factors import prepare_dc_opf
from powerzoo_jax.opf.dc.solve import dc_opf
from powerzoo_jax.opf.result import OpfStatus
from powerzoo_jax.powerflow.dc.solve import DcConvention

ROUNDS = 12
STRIDE = 8  # rows are rounded up to a multiple of this with the most loaded branches: fewer sizes to compile for


def binding_rows(
    case: Case,
    loads_mw: np.ndarray,
    *,
    convention: DcConvention = DcConvention.MATPOWER,
    rate_mva: np.ndarray | None = None,
    rating_scale: float = 1.0,
) -> np.ndarray:
    """Positions of the branches whose limits matter for some of the loads, for `rows` of `prepare_dc_opf`.

    Solves every load without limits, adds the branches that come out overloaded, and repeats until none does.

    loads_mw:      (S, N) [MW] a sample of what will be solved; loads outside it may need other branches, which
                   `dc_opf` then reports as ROW_MISSING
    rating_scale:  below 1 to find more branches than the ratings themselves would

    Raises SolverError when a load is not solved; errors of `prepare_dc_opf`.
    """
    rows = np.zeros(0, np.int64)
    with jax.enable_x64(True):
        factors = prepare_dc_opf(case, convention=convention, rate_mva=rate_mva, rows=rows, dtype="float64")
        rate = np.asarray(factors.rate_mva) * rating_scale
        factors = replace(factors, rate_mva=jnp.asarray(rate))
        for _ in range(ROUNDS):
            factors = replace(factors, rows=jnp.asarray(rows, jnp.int32))
            out = _solver()(factors, np.asarray(loads_mw, np.float64))
            if not np.isin(out.status, (OpfStatus.OPTIMAL, OpfStatus.ROW_MISSING)).all():
                raise SolverError(f"{case.name}: a sample load was not solved (status {np.unique(out.status)}).")
            loading = np.where(rate > 0, np.abs(out.line_flow_mw).max(0) / np.where(rate > 0, rate, 1), 0.0)
            loading[rows] = 0.0
            new = np.flatnonzero(loading > 1 + 1e-9)
            if new.size == 0:
                return rows
            rows = _rounded_up(rows, new, loading)
    raise SolverError(f"{case.name}: limits still came up after {ROUNDS} rounds. Give `rows` yourself, or all of them.")


def _rounded_up(rows: np.ndarray, new: np.ndarray, loading: np.ndarray) -> np.ndarray:
    count = rows.size + new.size
    spare = -count % STRIDE
    others = np.setdiff1d(np.flatnonzero(loading > 0), new)
    filling = others[np.argsort(-loading[others])][:spare]
    return np.sort(np.concatenate([rows, new, filling]))


@cache
def _solver() -> Any:
    return jax.jit(jax.vmap(dc_opf, in_axes=(None, 0)))
