"""Topology of a grid under actions: what one contradicts, touches and may do, and the busbars after it.

Elements (E) stand as `types` orders them, the ends of lines first; busbar 0 is out. A line is in service where both of
its ends are.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from powerzoo_jax.base import struct
from powerzoo_jax.families.operation.types import GridAction, OperationParams, OperationState

ZERO = 1e-7  # MW or a share below which an order is none
WORD = 32  # bits of a word


def ends_of(x: Array, n_line: int) -> Array:
    """Entries (..., 2, L) of both ends of lines of a row of elements (..., E)."""
    return x[..., : 2 * n_line].reshape(*x.shape[:-1], 2, n_line)


def in_service(busbar: Array, n_line: int) -> Array:
    """Lines in service, (L,) bool, by busbars (E,)."""
    return jnp.all(ends_of(busbar, n_line) > 0, axis=0)


def on_network(x: Array, fixed: float, params: OperationParams) -> Array:
    """Row of all elements of the network by that of the elements (E,), `fixed` for loads without topology and shunts.

    The unit is that of x.
    """
    before = x.shape[0] - params.q_storage.shape[0]
    n_fixed, total = params.p_fixed.shape[0], params.factors.n_element
    there = (jnp.full(n, fixed, x.dtype) for n in (n_fixed, total - x.shape[0] - n_fixed))
    return jnp.concatenate([x[:before], next(there), x[before:], next(there)])


def no_orders(orders: GridAction) -> GridAction:
    """GridAction of the same shapes that leave every element as it is."""
    idle = jax.tree.map(jnp.zeros_like, orders)
    return idle.replace(curtail=jnp.full_like(orders.curtail, -1))  # type: ignore[attr-defined,no-any-return]


def ambiguous(orders: GridAction, params: OperationParams) -> Array:
    """Ambiguity, () bool: orders contradict one another or ask what an element cannot do."""
    fleet, lines = params.fleet, orders.set_line.shape[0]
    power, share = orders.redispatch, orders.curtail
    ordered, limited = jnp.abs(power) >= ZERO, jnp.abs(share + 1) >= ZERO
    beyond = ~fleet.redispatchable | (power > fleet.ramp_up_mw) | (-power > fleet.ramp_down_mw)
    outside = ~fleet.renewable | (share < 0) | (share > 1)
    excess = (orders.storage < -fleet.produced_mw) | (orders.storage > fleet.absorbed_mw)
    to, moved = ends_of(orders.set_busbar, lines), ends_of(orders.change_busbar, lines)
    off, on = orders.set_line == -1, orders.set_line == 1
    torn = (to[0] == -1) & (to[1] > 0) | (to[1] == -1) & (to[0] > 0) | orders.switch_line & (orders.set_line != 0)
    torn |= jnp.any((off[None] & (to > 0)) | (on[None] & (to == -1)) | ((off | on)[None] & moved), axis=0)
    twice = orders.change_busbar & (orders.set_busbar != 0) | (orders.set_busbar < -1) | (orders.set_busbar > 2)
    found = ((ordered & beyond), (limited & outside), excess, torn, twice)
    return jnp.any(jnp.stack([jnp.any(x) for x in found]))


def touched(orders: GridAction, state: OperationState, params: OperationParams) -> tuple[Array, Array]:
    """Lines (L,) and substations (S,) bool that orders count as touching, by the status before the step.

    A busbar set at an end of a line that is out counts as that line, and so does -1 at one that is in; the ends of such
    lines do not count for their substations.
    """
    n_line = orders.set_line.shape[0]
    out = ~in_service(state.busbar, n_line)
    ordered = orders.switch_line | (orders.set_line != 0)
    to = ends_of(orders.set_busbar, n_line)
    moves = jnp.any(jnp.where(out[None], to > 0, to < 0), axis=0)
    known = ordered & out | moves
    moved = orders.change_busbar | (orders.set_busbar != 0)
    moved &= ~jnp.pad(jnp.tile(known, 2), (0, moved.shape[0] - 2 * n_line))
    there = jnp.append(on_network(moved, False, params), False)[params.factors.at_bus]
    return ordered | moves, jnp.any(there, axis=1)


def allowed(orders: GridAction, lines: Array, subs: Array, state: OperationState, params: OperationParams) -> Array:
    """Legality of orders that touch lines (L,) and substations (S,), () bool.

    Not more of them in any area than the rules have, none that is locked, no power of a storage that stays out.
    """
    rules, n_store = params.rules, orders.storage.shape[0]
    out, to, changed = (x[x.shape[0] - n_store :] for x in (state.busbar, orders.set_busbar, orders.change_busbar))
    idle = (out == 0) & (to <= 0) & ~changed & (jnp.abs(orders.storage) >= ZERO)
    n_lines = jnp.sum(line_areas(params, lines.shape[0]) & lines[None], axis=1, dtype=jnp.int32)
    n_subs = jnp.sum(rules.area & subs[None], axis=1, dtype=jnp.int32)
    many = jnp.any((n_lines > rules.max_lines) | (n_subs > rules.max_subs))
    locked = jnp.any(lines & (state.cooldown_line > 0)) | jnp.any(subs & (state.cooldown_sub > 0))
    return rules.unchecked | ~(jnp.any(idle) | many | locked)


def line_areas(params: OperationParams, n_line: int) -> Array:
    """Lines of each area, (A, L) bool: those that begin there."""
    return params.rules.area[:, params.sub[:n_line]]


def set_lines(order: Array, busbar: Array, last: Array) -> Array:
    """Busbars (E,) after orders (L,) to lines: -1 takes both ends out, 1 puts ends that are out where they stood last.

    busbar, last:  (E,) int8
    """
    n_line = order.shape[0]
    order, at = jnp.tile(order, 2), busbar[: 2 * n_line]
    back = jnp.where((order == 1) & (at == 0), last[: 2 * n_line], at)
    return jnp.concatenate([jnp.where(order == -1, 0, back).astype(busbar.dtype), busbar[2 * n_line :]])


def apply_topology(orders: GridAction, busbar: Array, last: Array) -> Array:
    """Busbars (E,) after orders to lines, then to busbars: an end that is out takes its line out, one put in closes it.

    busbar, last:  (E,) int8
    """
    n_line = orders.set_line.shape[0]
    closed = jnp.any(ends_of(busbar, n_line) > 0, axis=0)
    switched = jnp.where(orders.switch_line, jnp.where(closed, -1, 1), 0)
    # a line that is switched is not set, or the orders are ambiguous
    before = set_lines(jnp.where(switched != 0, switched, orders.set_line), busbar, last)
    flipped = jnp.where(orders.change_busbar & (before > 0), 3 - before, before)
    put = jnp.where(orders.set_busbar == 0, flipped, jnp.maximum(orders.set_busbar, 0))
    was, now = ends_of(before, n_line), ends_of(put, n_line)
    order = jnp.where(jnp.any((was == 0) | (now == 0), axis=0), -1, 0)
    order = jnp.where((was[0] == 0) & jnp.any(now > 0, axis=0), 1, order)
    return set_lines(order, put.astype(busbar.dtype), last)


@struct.dataclass(kw_only=True)
class ActionReach:
    """Lines, substations and storages that the actions of a table (M) may touch, as bits of W and V words.

    never:   (M,) bool       contradict themselves
    always, if_out, if_in: (M, W) uint32  lines touched at any status, those that are out, those that are in
    sub:     (M, K) int32    substations that an action may touch
    sure:    (M, K) bool     by other elements than ends of lines
    through: (M, K, W) uint32  by ends of these lines, unless the line itself counts as closed or opened
    store:   (M, V) uint32   storages that must be in
    """

    never: Array
    always: Array
    if_out: Array
    if_in: Array
    sub: Array
    sure: Array
    through: Array
    store: Array


def reach(table: GridAction, params: OperationParams) -> ActionReach:
    """Reach of the actions of a table (M, ...), on the host, by the parameters of its world."""
    table = jax.tree.map(np.asarray, table)
    sub, n_line, n_store = np.asarray(params.sub), table.set_line.shape[1], table.storage.shape[1]
    to, moved = ends_of(table.set_busbar, n_line), table.change_busbar | (table.set_busbar != 0)
    touches = [np.unique(sub[row]) for row in moved]
    width = max(1, *map(len, touches))
    places = np.stack([np.pad(x, (0, width - len(x)), constant_values=-1) for x in touches])
    here = moved[:, None] & (sub == places[..., None])  # (M, K, E)
    through = here[..., :n_line] | here[..., n_line : 2 * n_line]
    idle = (np.abs(table.storage) >= ZERO) & ~((table.set_busbar > 0) | table.change_busbar)[:, len(sub) - n_store :]
    return ActionReach(
        never=jnp.asarray(jax.vmap(ambiguous, in_axes=(0, None))(table, params)),
        always=_words(table.switch_line | (table.set_line != 0)),
        if_out=_words(np.any(to > 0, axis=1)),
        if_in=_words(np.any(to < 0, axis=1)),
        sub=jnp.asarray(np.maximum(places, 0), jnp.int32),
        sure=jnp.asarray(np.any(here[..., 2 * n_line :], axis=2)),
        through=_words(through),
        store=_words(idle),
    )


def legal(state: OperationState, params: OperationParams) -> Array:
    """Legality of all actions of the table, (M,) bool; `ambiguous`, `touched` and `allowed` say the same of one."""
    of, rules, n_line = params.reach, params.rules, state.cooldown_line.shape[0]
    n_store = params.q_storage.shape[0]
    out = _words(~in_service(state.busbar, n_line))[None]
    moves = of.if_out & out | of.if_in & ~out
    lines, known = of.always | moves, of.always & out | moves
    subs = of.sure | jnp.any((of.through & ~known[:, None]) != 0, axis=2)
    areas = _words(line_areas(params, n_line))
    n_lines = jnp.sum(lax.population_count(lines[:, None] & areas[None]), axis=2, dtype=jnp.int32)
    n_subs = jnp.sum(rules.area[:, of.sub] & subs[None], axis=2, dtype=jnp.int32).T
    many = jnp.any((n_lines > rules.max_lines) | (n_subs > rules.max_subs), axis=1)
    locked = jnp.any((lines & _words(state.cooldown_line > 0)[None]) != 0, axis=1)
    locked |= jnp.any(subs & (state.cooldown_sub > 0)[of.sub], axis=1)
    idle = jnp.any((of.store & _words(state.busbar[state.busbar.shape[0] - n_store :] == 0)[None]) != 0, axis=1)
    return ~of.never & (rules.unchecked | ~(many | locked | idle))


def _words(bits: Any) -> Array:
    """Bits (..., n) in words (..., n / 32) of uint32, at least one."""
    bits = jnp.asarray(bits)
    n = bits.shape[-1]
    size = max(1, -(-n // WORD))
    bits = jnp.pad(bits, [(0, 0)] * (bits.ndim - 1) + [(0, size * WORD - n)]).reshape(*bits.shape[:-1], size, WORD)
    value = jnp.expand_dims(jnp.uint32(1) << jnp.arange(WORD, dtype=jnp.uint32), range(bits.ndim - 1))
    return jnp.sum(jnp.where(bits, value, jnp.uint32(0)), axis=-1, dtype=jnp.uint32)
