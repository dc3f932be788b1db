"""Mismatch and branch currents of a meshed network in double-single arithmetic, where float64 is not to be had.

A deviation is e + d: e as the chord solved it, d what is missing to the solution, which e would round away. Symbols and
shapes as in `meshed.equations`. In a float64 program one float has digits enough, and `main` holds the whole network.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from powerzoo_jax.base import double_single as ds
from powerzoo_jax.base.double_single import Pair
from powerzoo_jax.powerflow.meshed import equations as eqs
from powerzoo_jax.powerflow.meshed.branches import Ends, NetworkData, end_voltages
from powerzoo_jax.powerflow.meshed.chord import Shared, inside

Complex = tuple[Pair, Pair]


class ExactAim(NamedTuple):
    """Targets of a batch, counted from the base state.

    target:  (N, 2, B)  [pu]  injections
    grow:    (N, B)     [-]   square of the magnitude to hold over that of the base voltage, less 1; None keeps the base
    share:   (N, B)     [-]   as in `equations.Aim`
    """

    target: Pair
    grow: Pair | None
    share: Array | None


class ExactMismatch(NamedTuple):
    """Injections left at e + d, (N, 2, B) [pu], after the shared power (B,) is given out, which may be zero."""

    left: Array
    power: Pair


def exact_aim(shared: Shared, given: tuple[Array, ...]) -> ExactAim:
    """Targets of inputs (B, N): injections, set-points, shares; 0 for what is not finite."""
    layout, core = shared
    rest = [eqs.finite(jnp.take(x.T, layout.inward, axis=0, mode="clip")) for x in given[2:]]
    high, low = core.main.s_base[:, :, None], core.rest.s_base[:, :, None]
    high, moved = ds.two_sum(eqs.finite(inside(layout, *given[:2])), -high)
    if not rest:
        return ExactAim(Pair(high, moved - low), None, None)
    v_set, *share = rest
    v_mag = Pair(core.main.v_mag[:, None], core.rest.v_mag[:, None])
    ratio = ds.divide(ds.subtract(ds.pair(v_set), v_mag), v_mag)  # v_set / v_mag - 1
    grow = ds.add(_twice(ratio), ds.multiply(ratio, ratio))
    return ExactAim(Pair(high, moved - low), grow, share[0] if share else None)


def exact_mismatch(shared: Shared, aim: ExactAim, e: Array, d: Array, power: Pair) -> ExactMismatch:
    """Mismatch at e + d; `power` is what buses were known to add together, and what they now lack is added to it."""
    layout, core = shared
    if e.dtype == jnp.float64:
        left = eqs.mismatch(layout, core.main, aim.target.high, e + d)
        if aim.share is None:
            return ExactMismatch(left, power)
        left = eqs.distribute_slack(left, aim.share, power.high)
    else:
        left = ds.value(ds.subtract(_given_out(aim, power), gained(shared, e, d)))
        if aim.share is None:
            return ExactMismatch(left, power)
    more = eqs.shared_power(layout, left)
    return ExactMismatch(eqs.distribute_slack(left, aim.share, more), ds.two_sum(power.high, power.low + more))


def missing_magnitude(shared: Shared, aim: ExactAim, e: Array, d: Array) -> Array:
    """Change of e + d (N, 2, B) that brings held magnitudes, almost there, to their set-points; 0 at other buses."""
    square = _square(_pairs(e, d))
    off = ds.value(ds.negative(square) if aim.grow is None else ds.subtract(aim.grow, square))
    size = 1 + square.high
    # half the relative change of the square; what that neglects is itself a square, of some 1e-7
    grow = jnp.where(shared.layout.free[:, 1, None] | ~(size > 0), 0, 0.5 * off / jnp.where(size > 0, size, 1))
    return both(grow * (1 + e[:, 0]), grow * e[:, 1])


def exact_ends(grid: NetworkData, e: Array, d: Array) -> Ends:
    """Both ends of every branch at e + d, (B, L); what a branch carries may be a small part of its base current."""
    layout, flow = grid.shared.layout, grid.flow
    at_f, at_t = ((eqs.pick(e, at), eqs.pick(d, at)) for at in (layout.f, layout.t))
    across = _differences(at_f, at_t)
    slope, base = _columns(flow.slope, flow.slope_rest), _columns(flow.i_base, flow.i_rest)
    moved = zip(_times(slope, across), _times(base, _pairs(*at_t)), strict=True)
    i = [ds.value(ds.add(base[c], ds.add(*both))) for c, both in enumerate(moved)]
    near, far = end_voltages(grid)
    u, w = (
        [v[:, 0, None] * x[:, 0] - v[:, 1, None] * x[:, 1], v[:, 0, None] * x[:, 1] + v[:, 1, None] * x[:, 0]]
        for v, x in ((near, at_f[0] + at_f[1]), (far, at_t[0] + at_t[1]))
    )
    ends = (*i, *(near[:, c, None] + u[c] for c in (0, 1)), *(far[:, c, None] + w[c] for c in (0, 1)))
    return Ends(*(x.T for x in ends))


def _columns(x: Array, rest: Array) -> Complex:
    """Constants (L, 2) in two parts, against lanes."""
    return Pair(x[:, 0, None], rest[:, 0, None]), Pair(x[:, 1, None], rest[:, 1, None])


def _given_out(aim: ExactAim, power: Pair) -> Pair:
    """Targets with the shared power given out."""
    if aim.share is None:
        return aim.target
    part = ds.multiply(ds.pair(aim.share), Pair(power.high[None], power.low[None]))
    none = jnp.zeros_like(part.high)
    return ds.add(aim.target, Pair(both(part.high, none), both(part.low, none)))


def gained(shared: Shared, e: Array, d: Array) -> Pair:
    """Injections at e + d less those of the base state, (N, 2, B)."""
    core = shared.core
    a, b = _around(shared, e, d)
    re, im = w = _pairs(e, d)
    square = _square(w)
    base = [Pair(core.main.s_base[:, c, None], core.rest.s_base[:, c, None]) for c in (0, 1)]
    p = ds.add(ds.add(ds.multiply(base[0], square), a), ds.subtract(ds.multiply(re, a), ds.multiply(im, b)))
    q = ds.add(ds.add(ds.multiply(base[1], square), b), ds.add(ds.multiply(re, b), ds.multiply(im, a)))
    return Pair(both(p.high, q.high), both(p.low, q.low))


def _around(shared: Shared, e: Array, d: Array) -> Complex:
    """sum_j A_ij conj(w_j - w_i), two (N, B): first all terms, in one kernel, then their sums bus by bus."""
    layout, core = shared
    sizes = [(nodes.shape[0], nodes.shape[1]) for nodes in layout.neighbours]
    starts = np.cumsum([0, *(n for n, _ in sizes)])
    here = np.concatenate([np.repeat(np.arange(i, i + n), m) for i, (n, m) in zip(starts, sizes, strict=False)])
    there = jnp.concatenate([nodes.reshape(-1) for nodes in layout.neighbours])
    # all coefficients in one array, or as many small kernels prepare them
    names = [(net, name) for name in ("out_re", "out_im") for net in (core.main, core.rest)]
    every = jnp.concatenate([getattr(x, name).reshape(-1, 1) for net, name in names for x in net.tables])
    a, a_rest, b, b_rest = every.reshape(4, -1, 1)
    far, near = ((eqs.pick(e, at), eqs.pick(d, at)) for at in (there, jnp.asarray(here, jnp.int32)))
    terms = lax.optimization_barrier(_times_conj((Pair(a, a_rest), Pair(b, b_rest)), _differences(far, near)))
    cells = _cells(sizes)
    return _sums(terms[0], cells), _sums(terms[1], cells)


def _cells(sizes: Sequence[tuple[int, int]]) -> np.ndarray:
    """Term of every bus in every column of the widest run, (N, m); past the end where a run is narrower."""
    count = sum(n * m for n, m in sizes)
    runs, begin = [], 0
    for n, m in sizes:
        table = np.full((n, max(width for _, width in sizes)), count)
        table[:, :m] = begin + np.arange(n * m).reshape(n, m)
        runs.append(table)
        begin += n * m
    return np.concatenate(runs)


def _sums(terms: Pair, cells: np.ndarray) -> Pair:
    """Sums (N, B) over the terms of every bus: one kernel for all runs, though narrow ones have fewer columns."""

    def column(k: int) -> Pair:
        return Pair(*(jnp.take(x, cells[:, k], axis=0, mode="fill", fill_value=0) for x in terms))

    high, low = column(0)
    for k in range(1, cells.shape[1]):
        term = column(k)
        high, rounded = ds.two_sum(high, term.high)
        low = low + (rounded + term.low)
    return ds.two_sum(high, low)


def both(re: Array, im: Array) -> Array:
    """Parts (N, B) as (N, 2, B); chosen, not stacked: a kernel goes on where it would end with a concatenation."""
    first = lax.broadcasted_iota(jnp.int32, (1, 2, 1), 1) == 0
    return jnp.where(first, re[:, None], im[:, None])


def _pairs(e: Array, d: Array) -> Complex:
    """Real and imaginary part of e + d, from (n, 2, B)."""
    return ds.two_sum(e[:, 0], d[:, 0]), ds.two_sum(e[:, 1], d[:, 1])


def _differences(a: tuple[Array, Array], b: tuple[Array, Array]) -> Complex:
    """Voltage difference (e_a + d_a) - (e_b + d_b), real and imaginary part in double-single; the e part is exact."""
    high, low = ds.two_sum(a[0], -b[0])
    low = low + (a[1] - b[1])
    return Pair(high[:, 0], low[:, 0]), Pair(high[:, 1], low[:, 1])


def _twice(x: Pair) -> Pair:
    return Pair(2 * x.high, 2 * x.low)


def _square(w: Complex) -> Pair:
    """|1 + w|^2 - 1."""
    re, im = w
    return ds.add(_twice(re), ds.add(ds.multiply(re, re), ds.multiply(im, im)))


def _times(a: Complex, x: Complex) -> Complex:
    """a x."""
    return (
        ds.subtract(ds.multiply(a[0], x[0]), ds.multiply(a[1], x[1])),
        ds.add(ds.multiply(a[0], x[1]), ds.multiply(a[1], x[0])),
    )


def _times_conj(a: Complex, x: Complex) -> Complex:
    """a conj(x)."""
    return (
        ds.add(ds.multiply(a[0], x[0]), ds.multiply(a[1], x[1])),
        ds.subtract(ds.multiply(a[1], x[0]), ds.multiply(a[0], x[1])),
    )
