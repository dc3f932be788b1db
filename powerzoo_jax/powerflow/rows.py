"""Z-bus form of networks whose only nonlinear part is local to each row: x = M r(x) + w, exact and differentiable.

A row is a place where current enters: a bus of a feeder, or a pair of nodes in three phases. Textbook symbols:
x = e + j f its voltage, i(x) the current that its law injects, D0 = di/dx at the base state, r(x) = i(x) - D0 x, and
with Z the impedance that the rows see M = (I - Z D0)^-1 Z (implicit Z-bus method, Chen et al. 1991,
doi:10.1109/61.131105). Scenarios are rows of the arrays everywhere, (B, 2a): the constant matrix multiplies from the
right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base import struct
from powerzoo_jax.base.numerics import FLOAT, ROUGH, matvec, rough_matvec

V_BOUND = 1.5  # [pu] no feeder runs above: turns a current mismatch into a bound on the power mismatch
PACE = (0.02, 0.9)  # contraction assumed at least and at most when the error is estimated from the last change
TOL = {"float32": 4e-7, "float64": 8e-10}  # [pu] estimate of the voltage error; promised are 1e-6 and 1e-9
WIDE = 8  # lanes from which on rounding M for a product costs less than it saves

# Steps that all lanes take in the fixed form. A few values instead of any number: feeders alike share a program.
LENGTHS = (5, 8, 12)
RANGE = (0.0, 1.0, 2.0, -0.5)  # multiples of the base injections that these steps have to solve: no load up to export


@struct.dataclass(kw_only=True)
class ChordCore:
    """Constant factors of the iteration on a rows.

    m:       (2a, 2a)  M, rows and columns (re, im)
    w:       (2a,)     constant part
    d_base:  (4, a)    D0 per row: d(re i)/d(re x), d(re i)/d(im x), d(im i)/d(re x), d(im i)/d(im x)
    x_base:  (2a,)     base state
    r_base:  (2a,)     r there
    gain:    ()        largest Euclidean row norm of M: error of x per error of r of norm 1
    law:     arrays of the law of the rows
    steps:   static    chord steps of the fixed form, see `fixed_length`; lanes of one program must agree on it
    """

    m: Array
    w: Array
    d_base: Array
    x_base: Array
    r_base: Array
    gain: Array
    law: Any
    steps: int = struct.field(pytree_node=False, default=LENGTHS[0])


class Law(Protocol):
    """Current law of the rows. Functions of arrays (..., a) that follow one another row by row.

    Written with the operators of numbers and the functions of `wide`, so that it also serves arrays of the host.
    """

    @property
    def power_per_current(self) -> float:
        """Bound on the power mismatch per mismatch of current [pu]."""

    @property
    def takes_pairs(self) -> bool:
        """True for a law written with operators alone, which also serves pairs of floats."""

    def current(self, law: Any, e: Any, f: Any, p: Any, q: Any) -> tuple[Any, Any]:
        """Real and imaginary part of i."""
        ...


@dataclass(frozen=True)
class ConstantPower:
    """i = conj(s / v): loads that draw their power whatever the voltage."""

    power_per_current: float = V_BOUND
    takes_pairs: bool = True

    def current(self, law: Any, e: Any, f: Any, p: Any, q: Any) -> tuple[Any, Any]:
        """Real and imaginary part of i."""
        del law  # the law has no parameters
        g = 1 / (e * e + f * f)
        return (p * e + q * f) * g, (p * f - q * e) * g


def residual_parts(law: Law, core: ChordCore, e: Any, f: Any, p: Any, q: Any) -> tuple[Any, Any]:
    """Real and imaginary part of r = i - D0 x at x = e + j f; arguments (a,) or (B, a), of any kind of number."""
    d = core.d_base[:, None] if p.ndim == 2 else core.d_base
    parameters = jax.tree.map(lambda c: c[..., None, :], core.law) if p.ndim == 2 else core.law
    re, im = law.current(parameters, e, f, p, q)
    return re - (d[0] * e + d[1] * f), im - (d[2] * e + d[3] * f)


def residual_current(law: Law, core: ChordCore, x: Array, p: Array, q: Array) -> Array:
    """r(x) = i(x) - D0 x: x (2a,), p and q (a,), or all of them with a first axis B."""
    a = p.shape[-1]
    return jnp.concatenate(residual_parts(law, core, x[..., :a], x[..., a:], p, q), axis=-1)


def local_slope(law: Law, core: ChordCore, x: Array, p: Array, q: Array) -> Array:
    """D(x) - D0 (4, a): derivative of r, which is local to each row, for one scenario."""
    a = p.shape[0]
    e, f = x[:a], x[a:]

    def current(e: Array, f: Array) -> tuple[Array, Array]:
        return law.current(core.law, e, f, p, q)

    one, zero = jnp.ones_like(e), jnp.zeros_like(e)
    _, by_e = jax.jvp(current, (e, f), (one, zero))
    _, by_f = jax.jvp(current, (e, f), (zero, one))
    return jnp.stack([by_e[0], by_f[0], by_e[1], by_f[1]]) - core.d_base


def affine(matrix: Array, constant: Array, r: Array) -> Array:
    """matrix @ r + constant on the last axis of r (2a,) or (B, 2a), in full precision on every device."""
    return matvec(matrix, r) + (constant[None] if r.ndim == 2 else constant)


def roughly(m: Array, change: Array) -> Array:
    """M times a change (B, 2a), in half precision where a batch is wide enough: twice as fast on cores that know it."""
    if change.shape[0] >= WIDE:
        return rough_matvec(m, change)
    return matvec(m.astype(FLOAT), change.astype(FLOAT)).astype(change.dtype)


def newton_matrix(m: Array, slope: Array) -> Array:
    """I - M S (2a, 2a): derivative of x - M r(x) - w by x, with S (4, a) the slope of r at x."""
    a = slope.shape[-1]
    rows = slope[:, None]
    columns = [m[:, :a] * rows[0] + m[:, a:] * rows[2], m[:, :a] * rows[1] + m[:, a:] * rows[3]]
    diagonal = jnp.arange(2 * a)
    # not eye - ...: XLA would build that constant in every solve, also when no lane needs Newton
    return (-jnp.concatenate(columns, 1)).at[diagonal, diagonal].add(1)


def finite(p: Array, q: Array) -> tuple[Array, Array]:
    """Injections with 0 where either part is not finite: a bad lane must not poison shared gradients."""
    fine = jnp.isfinite(p) & jnp.isfinite(q)
    return jnp.where(fine, p, 0), jnp.where(fine, q, 0)


def stamp(z: np.ndarray) -> np.ndarray:
    """Complex matrix (..., a) as a real one of twice the rows and columns (host)."""
    return np.block([[z.real, -z.imag], [z.imag, z.real]])


def slope_matrix(d: np.ndarray) -> np.ndarray:
    """D (4, a) as a matrix (2a, 2a) of four diagonals (host)."""
    return np.block([[np.diag(d[0]), np.diag(d[1])], [np.diag(d[2]), np.diag(d[3])]])


def chord_factors(z: np.ndarray, flat: np.ndarray, d: np.ndarray, x: np.ndarray, i: np.ndarray) -> dict[str, Any]:
    """Fields of `ChordCore` around a base state, but its law, in float64 on the host.

    z:     (2a, 2a) [pu] impedance seen by the rows        flat:  (2a,) [pu] their voltages without current
    d:     (4, a)   D0        x, i:  (2a,) [pu] voltages and injected currents at the base state
    """
    d0 = slope_matrix(d)
    system = np.eye(len(x)) - z @ d0
    m = np.linalg.solve(system, z)
    w = np.linalg.solve(system, flat)
    return dict(m=m, w=w, d_base=d, x_base=x, r_base=i - d0 @ x, gain=np.linalg.norm(m, axis=1).max())


def calibrated(law: Law, core: ChordCore, s: np.ndarray, dtype: np.dtype) -> ChordCore:
    """Factors on the device, in `dtype`, of factors in float64 on the host, with the length of their fixed form.

    s:  (a,) [pu] complex injections of the base state
    """
    length = fixed_length(law, core, np.array(RANGE)[:, None] * s, TOL[dtype.name])
    placed: ChordCore = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), core)
    return placed.replace(steps=length)  # type: ignore[attr-defined, no-any-return]


def fixed_length(law: Law, core: ChordCore, s: np.ndarray, tol: float) -> int:
    """Chord steps of the fixed form: one of LENGTHS, at least one more than the slowest of the scenarios needs.

    core:  float64, on the host        s:  (S, a) [pu] complex injections

    The iteration of `chord` in float64, its rough first step and its estimate of the error included. Scenarios that the
    longest form does not solve count for no more: their lanes are left to what follows the fixed steps.
    """
    a, p, q = s.shape[-1], s.real, s.imag

    def residual(x: np.ndarray) -> np.ndarray:
        return np.concatenate(residual_parts(law, core, x[:, :a], x[:, a:], p, q), axis=-1)

    def rough(y: np.ndarray) -> np.ndarray:
        return y.astype(FLOAT).astype(ROUGH).astype(np.float64)

    m, r = np.asarray(core.m), residual(np.broadcast_to(core.x_base, (len(s), 2 * a)))
    first = residual(core.x_base + rough(r - core.r_base) @ rough(m).T)
    sizes, r = [np.linalg.norm(first - r, axis=1)], first
    for steps in range(2, LENGTHS[-1]):
        new = residual(r @ m.T + core.w)
        sizes, r = [*sizes, np.linalg.norm(new - r, axis=1)], new
        slow = np.clip(sizes[-1] / np.maximum(sizes[-2], np.finfo(float).tiny), *PACE)
        if (core.gain * sizes[-1] * slow / (1 - slow) <= tol).all():
            return next(length for length in LENGTHS if length > steps)
    return LENGTHS[-1]


def common_length(trees: list[Any]) -> list[Any]:
    """Trees with the longest fixed form of all of them in every `ChordCore`, so that they can be lanes of a program."""

    def is_core(node: Any) -> bool:
        return isinstance(node, ChordCore)

    cores = [node for node in jax.tree.leaves(trees, is_leaf=is_core) if is_core(node)]
    longest = max((core.steps for core in cores), default=LENGTHS[0])

    def lengthened(node: Any) -> Any:
        return node.replace(steps=longest) if is_core(node) else node

    return [jax.tree.map(lengthened, tree, is_leaf=is_core) for tree in trees]
