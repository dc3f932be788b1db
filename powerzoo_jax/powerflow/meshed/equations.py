"""Power balance of a meshed network in deviation form, its derivative and that derivative's transpose, batched.

Textbook symbols: V = Vb (1 + e), w = 1 + e, A_ij = Vb_i conj(Y_ij Vb_j), S_b = sum_j A_ij, zeta = dln|V| + j dtheta.

    S_i - S_b_i = S_b_i (|w_i|^2 - 1) + w_i sum_j A_ij conj(e_j - e_i)
    dS_i = S_i zeta_i + A_ii |w_i|^2 conj(zeta_i) + w_i sum_{j != i} A_ij conj(w_j zeta_j)

Neighbour differences instead of Ybus V: in float32 the latter leaves 2e-6 pu, differences 1e-9. The batch stands last,
arrays are (N, 2, B) with (re, im), (active, reactive) or (angle, log magnitude) in the middle.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from powerzoo_jax.powerflow.meshed.blocks import Blocks, apply_blocks
from powerzoo_jax.powerflow.meshed.factors import MeshedNetwork
from powerzoo_jax.powerflow.meshed.layout import MeshedLayout

NARROW = 8  # lanes: what a group of the Newton fallback has


class Aim(NamedTuple):
    """Injections that the buses of a batch must meet, and who takes what they lack together.

    target:  (N, 2, B)  [pu]  injections counted from those of the base state
    share:   (N, B)     [-]   part that each bus takes of the active power that all of them lack together, sums to 1;
                              None where the slack bus takes it alone
    """

    target: Array
    share: Array | None = None


def unserved(layout: MeshedLayout, net: MeshedNetwork, aim: Aim, e: Array) -> Array:
    """Mismatch of the injections at e, (N, 2, B) [pu], after the shared power is given out."""
    left = mismatch(layout, net, aim.target, e)
    return left if aim.share is None else distribute_slack(left, aim.share, shared_power(layout, left))


def shared_power(layout: MeshedLayout, left: Array) -> Array:
    """Active power that the buses must add together so that nothing is left of their sum, (B,) [pu]."""
    return -jnp.sum(left[:, 0] * rows(layout, shared=True)[:, 0, None].astype(left.dtype), 0)


def distribute_slack(left: Array, share: Array, power: Array) -> Array:
    """Hand shared power (B,) to the buses; left (N, 2, B)."""
    return left.at[:, 0].add(share * power[None])


def rows(layout: MeshedLayout, *, shared: bool) -> Array:
    """(N, 2) bool: equations to meet. Where power is shared the active one of the slack bus is among them.

    The place of that equation, where an angle stands at other buses, holds the shared power among the unknowns.
    """
    return layout.free.at[layout.slack, 0].set(True) if shared else layout.free


def mismatch(layout: MeshedLayout, net: MeshedNetwork, target: Array, e: Array) -> Array:
    """Power mismatch (N, 2, B) [pu]: target - (S(e) - S_b), both less the injections S_b at the base voltages."""
    rows, begin = [], 0
    for nodes, table in zip(layout.neighbours, net.tables, strict=True):
        here = e[begin : begin + nodes.shape[0]]
        rows.append(_sum_over(nodes, table.out_re, table.out_im, e, here))
        begin += nodes.shape[0]
    # the barrier keeps XLA from computing the neighbour sums once for each of the parts that read them
    around = lax.optimization_barrier(jnp.concatenate(rows))
    re, im = e[:, 0], e[:, 1]
    square = 2 * re + re * re + im * im
    a, b = around[:, 0], around[:, 1]
    p = net.s_base[:, 0, None] * square + a + (re * a - im * b)
    q = net.s_base[:, 1, None] * square + b + (re * b + im * a)
    return target - jnp.stack([p, q], 1)


def correction(layout: MeshedLayout, blocks: Blocks, left: Array) -> Array:
    """Chord step (N, 2, B) [rad, -]: the blocked inverse times what is left; 0 for magnitudes and angles held."""
    n, _, batch = left.shape
    x = apply_blocks(layout.plan, blocks, left.reshape(2 * n, batch).astype(blocks.core.dtype))
    zeta = x.reshape(n, 2, batch).astype(left.dtype) * layout.free[:, :, None].astype(left.dtype)
    return lax.optimization_barrier(zeta)


def rotate(e: Array, zeta: Array) -> Array:
    """Deviation after turning by zeta: (1 + e)(1 + dln|V|)(1 + j t)^2 / (1 + t^2) - 1 with t = dtheta / 2.

    The Cayley form keeps held magnitudes exactly and needs no sine or cosine.
    """
    t, grow = 0.5 * zeta[:, 0], zeta[:, 1]
    h = (1 + grow) / (1 + t * t)
    re, im = grow - 2 * t * t * h, 2 * t * h
    a, b = e[:, 0], e[:, 1]
    return jnp.stack([a + re + (a * re - b * im), b + im + (b * re + a * im)], 1)


def finite(x: Array) -> Array:
    """x with 0 for what is not finite: a bad lane must not poison what it shares with others."""
    return jnp.where(jnp.isfinite(x), x, 0)


def largest(x: Array) -> Array:
    """Largest magnitude of each lane, (N, 2, B) -> (B,); infinite for one with a NaN, which a maximum may pass over."""
    size = jnp.abs(x)
    return jnp.max(jnp.where(size < jnp.inf, size, jnp.inf), (0, 1))


def pick(x: Array, index: Array) -> Array:
    """Rows of x at positions of the layout: all lie within, so nothing has to be filled in."""
    return jnp.take(x, index, axis=0, mode="clip")


def turn(e: Array, zeta: Array) -> Array:
    """Change of e for a small turn: (1 + e)(dln|V| + j dtheta), (N, 2, B)."""
    return _times(e.at[:, 0].add(1), zeta[:, ::-1])


def power(layout: MeshedLayout, net: MeshedNetwork, e: Array) -> Array:
    """Injections S(e), (N, 2, B) [pu]."""
    base = net.s_base[:, :, None]
    return base - mismatch(layout, net, jnp.zeros_like(e), e)


def slope_times(layout: MeshedLayout, net: MeshedNetwork, e: Array, s: Array, zeta: Array) -> Array:
    """Change of the injections (N, 2, B) for a small turn zeta (angle, log magnitude); s = power(e)."""
    w = e.at[:, 0].add(1)
    x = zeta[:, ::-1]  # as a complex number: log magnitude + j angle
    around = _gather(layout, net, _times(w, x), back=False)
    own = net.own[:, :, None] * jnp.sum(w * w, 1, keepdims=True)
    return _times(s, x) + _times_conj(own[:, 0], own[:, 1], x) + _times(w, around)


def slope_transposed_times(layout: MeshedLayout, net: MeshedNetwork, e: Array, s: Array, weight: Array) -> Array:
    """Transposed: sensitivity (N, 2, B) of sum(weight * S) to (angle, log magnitude).

    With kappa the weight as a complex number, C_j = conj(kappa_j) S_j + kappa_j conj(a_jj)
    + w_j sum_i kappa_i conj(w_i A_ij): the parts are (-Im C, Re C).
    """
    w = e.at[:, 0].add(1)
    conj = jnp.asarray([1, -1], e.dtype)[None, :, None]
    # sum_i kappa_i conj(w_i) conj(A_ij) = conj(sum_i A_ij conj(y_i)) with y_i = kappa_i conj(w_i)
    around = conj * _gather(layout, net, _times(weight, conj * w), back=True)
    own = net.own[:, :, None] * jnp.sum(w * w, 1, keepdims=True)
    c = _times(conj * weight, s) + _times(weight, conj * own) + _times(w, around)
    return jnp.stack([-c[:, 1], c[:, 0]], 1)


def _gather(layout: MeshedLayout, net: MeshedNetwork, y: Array, *, back: bool) -> Array:
    """sum_j A_ij conj(y_j) over the neighbours, or sum_j A_ji conj(y_j)."""
    rows = []
    for nodes, table in zip(layout.neighbours, net.tables, strict=True):
        re, im = (table.back_re, table.back_im) if back else (table.out_re, table.out_im)
        rows.append(_sum_over(nodes, re, im, y))
    return jnp.concatenate(rows)


def _sum_over(nodes: Array, re: Array, im: Array, y: Array, here: Array | None = None) -> Array:
    """sum_j A_ij conj(y_j - here_i) over the neighbours of a run of buses, (n, 2, B).

    A wide batch is fastest column by column. A narrow one takes all columns at once: a tenth of the program to compile.
    """
    if y.shape[2] <= NARROW:
        far = pick(y, nodes.reshape(-1)).reshape(*nodes.shape, *y.shape[1:])
        far = far if here is None else far - here[:, None]
        a, b, c, d = re[:, :, None], im[:, :, None], far[:, :, 0], far[:, :, 1]
        return jnp.stack([jnp.sum(a * c + b * d, 1), jnp.sum(b * c - a * d, 1)], 1)
    total = jnp.zeros((nodes.shape[0], *y.shape[1:]), y.dtype)
    for k in range(nodes.shape[1]):
        far = pick(y, nodes[:, k])
        far = far if here is None else far - here
        total = total + _times_conj(re[:, k, None], im[:, k, None], far)
    return total


def _times(a: Array, b: Array) -> Array:
    """Complex product of two (N, 2, B)."""
    return jnp.stack([a[:, 0] * b[:, 0] - a[:, 1] * b[:, 1], a[:, 0] * b[:, 1] + a[:, 1] * b[:, 0]], 1)


def _times_conj(re: Array, im: Array, x: Array) -> Array:
    """(re + j im) conj(x), x (n, 2, B)."""
    return jnp.stack([re * x[:, 0] + im * x[:, 1], im * x[:, 0] - re * x[:, 1]], 1)
