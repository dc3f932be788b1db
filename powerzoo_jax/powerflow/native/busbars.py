"""Calls of the compiled kernel for substations with two busbars: power flow of a batch, and its linear systems."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from jax import Array

from powerzoo_jax.base import struct
from powerzoo_jax.cases import Case
from powerzoo_jax.cases.topology import branch_positions
from powerzoo_jax.powerflow.native.factors import branch_parameters, eliminate_least, words
from powerzoo_jax.powerflow.native.library import Library
from powerzoo_jax.powerflow.native.solve import call_kernel


@struct.dataclass(kw_only=True)
class NativeBusbars:
    """Operands of the compiled kernel for S substations and E elements.

    tables:   int32: order of elimination (S,), place in it of the bus of each element (E,), whether units hold their
              magnitude (G,), place of the reference (1,)
    numbers:  float64 as pairs of uint32: parameters of branches, their DC susceptances and what phase shifts push,
              shunts, base voltages, set-points [pu]
    version:  static, of the kernel that they were made for
    """

    tables: tuple[Array, ...]
    numbers: tuple[Array, ...]
    version: str = struct.field(pytree_node=False)

    @property
    def operands(self) -> tuple[Array, ...]:
        return (*self.tables, *self.numbers)


def prepare_busbars(
    library: Library,
    case: Case,
    bus: np.ndarray,
    holds: np.ndarray,
    shunt: np.ndarray,
    half_conductance: np.ndarray | None,
    v: np.ndarray,
    v_set: np.ndarray,
) -> NativeBusbars:
    """Operands for elements at positions bus (E,); shunt (H, 2), base voltages v (S,), set-points v_set (S,).

    half_conductance: (L,) [pu] of each end of the branches, None for none
    """
    f, t = branch_positions(case)
    n, b = case.n_bus, case.branch
    order = eliminate_least(sp.csr_matrix((np.ones(2 * len(f)), (np.r_[f, t], np.r_[t, f])), (n, n)))
    place = np.empty(n, np.int64)
    place[order] = np.arange(n)
    # a branch without reactance pushes nothing: the start is as good without it
    dc = np.where(b.x_pu == 0, 0, 1 / np.where(b.x_pu == 0, 1, b.x_pu * b.tap))
    pushed = dc * np.deg2rad(b.shift_deg)
    tables = (order, place[bus], holds, place[case.slack_bus[:1]])
    branch = branch_parameters(case, np.ones(len(f), bool), every=True)
    if half_conductance is not None:
        branch[:, 0] += half_conductance / b.tap**2
        branch[:, 3] += half_conductance
    numbers = (branch, np.stack([dc, pushed], 1), shunt, v, v_set)
    return NativeBusbars(
        tables=tuple(jnp.asarray(x, jnp.int32) for x in tables),
        numbers=tuple(jnp.asarray(words(x)) for x in numbers),
        version=library.version,
    )


def solve_busbars(
    native: NativeBusbars,
    given: tuple[Array, ...],
    *,
    n_branch: int,
    tol: float,
    steps: int,
    dc: bool,
) -> tuple[Array, ...]:
    """State of a batch: assignments (B, E), injections (B, 2S) and set-points (B, S) where given.

    Returns deviation and injection of the nodes, whether they are in use (B, 2S), residual, steps and status (B,), then
    powers entering both ends of the branches and series currents (B, L), real and imaginary parts apart.
    """
    topology, p, q, *v_set = given
    like = jax.ShapeDtypeStruct
    of_lanes, of_nodes = p.shape[:1], p.shape
    results = [like(of_nodes, p.dtype)] * 4 + [like(of_nodes, bool), like(of_lanes, p.dtype)]
    results += [like(of_lanes, jnp.int32)] * 2 + [like((*of_lanes, n_branch), p.dtype)] * 6
    call = call_kernel(native.version, "split", p.dtype, tuple(results))
    inputs = (*native.operands, topology, p, q, *(v_set or (jnp.zeros(0, p.dtype),)))
    found: tuple[Array, ...] = call(*inputs, batch=np.int64(p.shape[0]), tol=tol, newton_steps=np.int64(steps), dc=dc)
    return found


def solve_linear(native: NativeBusbars, topology: Array, e: Array, right: Array, *, transposed: bool) -> Array:
    """Solution x of J(e) x = right, or of its transpose, in every lane; topology (B, E), e, right and x (B, 2S, 2).

    Rows and columns of what is not unknown are left out, and 0 in x.
    """
    parts = (e[..., 0], e[..., 1], jnp.zeros(0, e.dtype), right[..., 0], right[..., 1])
    results: Any = (jax.ShapeDtypeStruct(parts[0].shape, e.dtype),) * 2
    call = call_kernel(native.version, "split_linear", e.dtype, results)
    x = call(*native.operands, topology, *parts, batch=np.int64(e.shape[0]), transposed=transposed)
    return jnp.stack(x, -1)
