"""Tables of a meshed network for the compiled kernel: order of elimination, admittances, pattern and factors.

Textbook symbols: Y = L U after reordering; buses are eliminated by least degree (Tinney and Walker 1967,
doi:10.1109/PROC.1967.6011), and the pattern holds the fill of every bus eliminated.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spl
from jax import Array

from powerzoo_jax.base import struct
from powerzoo_jax.base.numerics import FLOAT
from powerzoo_jax.cases import Case
from powerzoo_jax.cases.topology import branch_positions, live_buses
from powerzoo_jax.powerflow.meshed.base_case import admittance, unknown_rows
from powerzoo_jax.powerflow.native.library import Library


@struct.dataclass(kw_only=True)
class NativeFactors:
    """Operands of the compiled kernel for one network of N buses and L branches, buses in the order of elimination.

    tables:   int32: order (N,), unknown (N, 2), then rows and columns of the admittance matrix off its diagonal, of L
              and of U, then ends of branches (L, 4)
    numbers:  float64 as pairs of uint32, so that programs without 64-bit numbers take them as they are: admittances off
              the diagonal and on it, base voltage, parameters of branches [pu]
    parts:    float32 blocks (.., 4): L, D^-1 U, D^-1 of the Jacobian at the base voltage, rows over |V|^2
    version:  static, of the kernel that they were made by
    """

    tables: tuple[Array, ...]
    numbers: tuple[Array, ...]
    parts: tuple[Array, ...]
    version: str = struct.field(pytree_node=False)

    @property
    def operands(self) -> tuple[Array, ...]:
        return (*self.tables, *self.numbers, *self.parts)


class _Pattern(NamedTuple):
    """Rows and columns of a sparse matrix, columns rising."""

    row: np.ndarray
    column: np.ndarray


def prepare_native(library: Library, case: Case, v: np.ndarray) -> NativeFactors:
    """Factor a network at base voltages v (N,) complex [pu]."""
    f, t = branch_positions(case)
    n, live = case.n_bus, live_buses(case)
    # a branch at a bus without supply stays out of service, as it does in the JAX form
    usable = live[f] & live[t]
    joined = sp.csr_matrix((np.ones(2 * len(f)), (np.r_[f, t], np.r_[t, f])), (n, n))
    order = eliminate_least(joined)
    place = np.empty(n, np.int64)
    place[order] = np.arange(n)
    near, far = place[f], place[t]
    pattern = joined[order][:, order].tocsr()
    pattern.setdiag(0)
    pattern.eliminate_zeros()
    pattern.sort_indices()
    cells = _Pattern(pattern.indptr, pattern.indices)
    y = admittance(case)[order][:, order].tocsr()
    above = fill(cells)
    below = sp.csr_matrix((np.ones(len(above.column)), above.column, above.row), (n, n)).T.tocsr()
    below.sort_indices()
    unknown = np.zeros((n, 2), np.int32)
    for column, rows in enumerate(unknown_rows(case)):
        unknown[place[rows], column] = 1
    rows = np.repeat(np.arange(n), np.diff(cells.row))
    at = {pair: k for k, pair in enumerate(zip(rows.tolist(), cells.column.tolist(), strict=True))}
    pairs, nowhere = list(zip(near.tolist(), far.tolist(), strict=True)), len(at)
    ends = [(a, b, at.get((a, b), nowhere), at.get((b, a), nowhere)) for a, b in pairs]
    tables = (order, unknown, *cells, below.indptr, below.indices, *above, np.reshape(ends, (-1, 4)))
    off = np.asarray(y[rows, cells.column]).ravel() if len(rows) else np.zeros(0, complex)
    numbers = (off, y.diagonal(), v[order], branch_parameters(case, usable))
    whole = tuple(jnp.asarray(np.asarray(x, np.int32)) for x in tables)
    coded = tuple(jnp.asarray(words(x)) for x in numbers)
    shapes = tuple(jax.ShapeDtypeStruct((k, 4), FLOAT) for k in (len(below.indices), len(above.column), n))
    call = jax.ffi.ffi_call(library.target("factor"), shapes)
    empty = tuple(np.zeros(s.shape, FLOAT) for s in shapes)
    with jax.default_device(jax.devices("cpu")[0]):
        parts = jax.jit(lambda *given: call(*given))(*whole, *coded, *empty)
    return NativeFactors(tables=whole, numbers=coded, parts=tuple(parts), version=library.version)


def words(x: np.ndarray) -> np.ndarray:
    """Doubles as pairs of 32-bit words; a complex number is two doubles."""
    real = np.ascontiguousarray(x).view(float) if np.iscomplexobj(x) else np.ascontiguousarray(x, float)
    return real.reshape(-1).view(np.uint32)


def branch_parameters(case: Case, usable: np.ndarray, *, every: bool = False) -> np.ndarray:
    """Parameters of each branch (L, 6) complex: y_ff, y_ft, y_tf, y_tt, series admittance and 1 / ratio [pu].

    Series admittance and ratio are 0 out of service, where no current flows, but not where `every` branch may close;
    the others are those of the branch closed.
    """
    b = case.branch
    z = b.r_pu + 1j * b.x_pu
    there = usable & (z != 0)
    series = np.where(there, 1 / np.where(there, z, 1), 0)
    own = series + np.where(there, 0.5j * b.b_pu, 0)
    ratio = b.tap * np.exp(1j * np.deg2rad(b.shift_deg))
    shown = np.where(b.in_service | every, [series, 1 / ratio], 0)
    return np.stack([own / b.tap**2, -series / np.conj(ratio), -series / ratio, own, *shown], 1)


def eliminate_least(joined: sp.csr_matrix) -> np.ndarray:
    """Order (N,) in which buses are eliminated, by least degree; joined (N, N) has an entry for each pair of ends."""
    laplace = sp.diags(np.asarray(joined.sum(1)).ravel() + 1) - joined
    how: dict[str, Any] = dict(permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0, options=dict(SymmetricMode=True))
    return np.argsort(spl.splu(laplace.tocsc(), **how).perm_c)


def fill(cells: _Pattern) -> _Pattern:
    """Pattern of U off its diagonal, fill included, for a matrix of symmetric pattern."""
    n = len(cells.row) - 1
    after = [{j for j in cells.column[cells.row[i] : cells.row[i + 1]].tolist() if j > i} for i in range(n)]
    for i in range(n):
        if after[i]:
            # eliminating i joins all that are left of its neighbours; the first of them passes that on
            heir = min(after[i])
            after[heir] |= after[i] - {heir}
    columns = [sorted(x) for x in after]
    return _Pattern(np.r_[0, np.cumsum([len(x) for x in columns])], np.array([j for x in columns for j in x], int))
