"""Power flow of the AC-OPF with exact first and second derivatives, and the matrix of its optimality conditions.

In logarithmic polar form, zeta_i = w_i + j theta_i = ln v_i, the power entering a branch at either end is a sum of two
exponentials, and every derivative is one of its terms times 1, 2, 4 or j:

    S_f = A + C,  A = conj(Y_ff) exp(2 w_f),  C = conj(Y_ft) exp(zeta_f + conj(zeta_t))
    dS_f / d(theta_f, w_f, theta_t, w_t) = (jC, 2A + C, -jC, C)

A branch limit is h = (|S|^2 / rate - rate) / 2 <= 0, near the limit |S| - rate: its multiplier is the price of a
rating. Everything is per unit, buses stand in the order of elimination, lanes come last.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from powerzoo_jax.opf.ac.factors import AcLayout, AcNetwork
from powerzoo_jax.opf.ac.reactive import CapabilityLines, against, along, compliance, of_units, to_blocks


class Lane(NamedTuple):
    """Data of one AC-OPF per lane; costs are divided by their scale. Last axis: lanes.

    p_load, q_load:        (N, B)
    column_bus, column_on: (K,) int32, (K, B) bool   blocks of the units' offers; one that cannot move holds low
    low, high, price, slope: (K, B)
    q_bus, q_on:           (J,) int32, (J, B) bool   blocks of reactive output likewise, one a unit without costs of it
    q_low, q_high:         (J, B)
    rate:                  (L, B)                    infinite = none
    shed_high, shed_price, shed_ratio: (N, B)        ratio: reactive per active load
    q_price, q_slope:      (J, B)                    None without costs of reactive output
    ratio:                 (G, 1)                    reactive per active output of units, None where all are free
    lines:                 CapabilityLines           None without capability curves
    """

    p_load: Array
    q_load: Array
    column_bus: Array
    column_on: Array
    low: Array
    high: Array
    price: Array
    slope: Array
    q_bus: Array
    q_on: Array
    q_low: Array
    q_high: Array
    rate: Array
    shed_high: Array
    shed_price: Array
    shed_ratio: Array
    q_price: Array | None = None
    q_slope: Array | None = None
    ratio: Array | None = None
    lines: CapabilityLines | None = None


class Unknowns(NamedTuple):
    """Unknowns: theta, w (N, B); p (K, B) and q (J, B) of blocks, shed (N, B). Also a direction, or a gradient."""

    theta: Array
    w: Array
    p: Array
    q: Array
    shed: Array


class Flow(NamedTuple):
    """Both ends of the branches: power (L, 2, B) and its derivatives (L, 2, 4, B) over theta_f, w_f, theta_t, w_t."""

    p: Array
    q: Array
    dp: Array
    dq: Array
    own: Array  # (L, 2, 2, B) A of both ends, (re, im)
    across: Array  # (L, 2, 2, B) C
    limit_slope: Array  # (L, 2, 4, B) gradient of h


class ConstraintMultipliers(NamedTuple):
    """balance: (N, 2, B) of active and reactive balance; limits: (M, B) of the inequalities, ordered as `limits`."""

    balance: Array
    limits: Array


def branch_flow(network: AcNetwork, layout: AcLayout, rate: Array, x: Unknowns) -> Flow:
    """Power at both ends of every branch with its derivatives; those over a fixed unknown are 0. rate: (L, B)."""
    w_f, w_t = x.w[layout.f], x.w[layout.t]
    delta = x.theta[layout.f] - x.theta[layout.t]
    both = jnp.exp(w_f + w_t)
    cos, sin = both * jnp.cos(delta), both * jnp.sin(delta)
    square = jnp.stack([jnp.exp(2 * w_f), jnp.exp(2 * w_t)], 1)[:, :, None]
    own = network.own[..., None] * square
    g, b = network.across[:, :, 0, None], network.across[:, :, 1, None]
    turn = jnp.stack([sin, -sin], 1)
    c_re, c_im = g * cos[:, None] - b * turn, g * turn + b * cos[:, None]
    across = jnp.stack([c_re, c_im], 2)
    mask = jnp.concatenate([layout.free[layout.f], layout.free[layout.t]], 1).astype(x.w.dtype)[:, None, :, None]
    dp = mask * _slopes(own[:, :, 0], c_re, -c_im)
    dq = mask * _slopes(own[:, :, 1], c_im, c_re)
    p, q = own[:, :, 0] + c_re, own[:, :, 1] + c_im
    limited = jnp.isfinite(rate)
    inverse = jnp.where(limited, 1 / jnp.where(limited, rate, 1), 0)[:, None]
    limit_slope = (inverse * p)[:, :, None] * dp + (inverse * q)[:, :, None] * dq
    return Flow(p, q, dp, dq, own, across, limit_slope)


def _slopes(own: Array, c: Array, turned: Array) -> Array:
    """Derivatives of the branch flow, (L, 2, 4, B), from the real or imaginary part of A, C and j C, each (L, 2, B)."""
    first = jnp.stack([turned[:, 0], 2 * own[:, 0] + c[:, 0], -turned[:, 0], c[:, 0]], 1)
    second = jnp.stack([-turned[:, 1], c[:, 1], turned[:, 1], 2 * own[:, 1] + c[:, 1]], 1)
    return jnp.stack([first, second], 1)


def to_buses(layout: AcLayout, ends: Array) -> Array:
    """Sum (L, 2, 2, B) of both ends at their buses, (N, 2, B)."""
    total = jnp.zeros((layout.live.shape[0], *ends.shape[2:]), ends.dtype)
    return total.at[layout.f].add(ends[:, 0]).at[layout.t].add(ends[:, 1])


def at_bus(bus: Array, value: Array, n_bus: int) -> Array:
    """Sum over bus, (N, B), of values (K, B) of units or loads that stand at buses (K,)."""
    return jnp.zeros((n_bus, *value.shape[1:]), value.dtype).at[bus].add(value)


def balance(network: AcNetwork, layout: AcLayout, lane: Lane, x: Unknowns, flow: Flow) -> Array:
    """Power balance of the buses, leaving less entering, (N, 2, B): active, reactive; 0 at an isolated bus."""
    n = layout.live.shape[0]
    leaving = to_buses(layout, jnp.stack([flow.p, flow.q], 2))
    shunt = network.shunt[:, :, None] * jnp.exp(2 * x.w)[:, None]
    held, held_q = jnp.where(lane.column_on, x.p, lane.low), jnp.where(lane.q_on, x.q, lane.q_low)
    p = lane.p_load - x.shed - at_bus(lane.column_bus, held, n)
    q = lane.q_load - lane.shed_ratio * x.shed - at_bus(lane.q_bus, held_q, n)
    if lane.ratio is not None:
        q = q - at_bus(lane.column_bus, to_blocks(lane.ratio, held.shape[0]) * held, n)
    return jnp.where(layout.live[:, None, None], leaving + shunt + jnp.stack([p, q], 1), 0)


def limits(network: AcNetwork, layout: AcLayout, lane: Lane, x: Unknowns, flow: Flow) -> tuple[Array, Array]:
    """Inequalities h <= 0 (M, B), and which of them count.

    Boxes (upper, lower), capability curves, branch ends, angles (upper, lower).
    """
    delta = x.theta[layout.f] - x.theta[layout.t]
    boxes = [
        (x.w, network.w_min[:, None], network.w_max[:, None], layout.free[:, 1:]),
        (x.p, lane.low, lane.high, lane.column_on),
        (x.q, lane.q_low, lane.q_high, lane.q_on),
        (x.shed, jnp.zeros_like(x.shed), lane.shed_high, lane.shed_high > 0),
    ]
    value, counts = [], []
    for v, low, high, moves in boxes:
        value += [v - high, low - v]
        counts += [moves & jnp.isfinite(high), moves & jnp.isfinite(low)]
    if lane.lines is not None:
        held, held_q = jnp.where(lane.column_on, x.p, lane.low), jnp.where(lane.q_on, x.q, lane.q_low)
        room = lane.lines.room.reshape(-1, x.w.shape[-1])
        value += [along(lane.lines, held, held_q, layout.unit_bus.shape[0]) - jnp.where(jnp.isfinite(room), room, 0)]
        counts += [jnp.isfinite(room)]
    square = jnp.square(flow.p) + jnp.square(flow.q)
    rated = jnp.isfinite(lane.rate) & layout.on[:, None]
    rate = jnp.where(rated, lane.rate, 1)
    value += [0.5 * (square[:, end] / rate - rate) for end in (0, 1)]
    value += [delta - network.angle_max[:, None], network.angle_min[:, None] - delta]
    counts += [rated, rated, jnp.isfinite(network.angle_max)[:, None], jnp.isfinite(network.angle_min)[:, None]]
    live = jnp.concatenate([jnp.broadcast_to(part, v.shape) for part, v in zip(counts, value, strict=True)])
    return jnp.where(live, jnp.concatenate(value), -1), live


def split(layout: AcLayout, lane: Lane, values: Array) -> list[Array]:
    """Cut (M, B) into the groups of `limits`."""
    n, ends = layout.live.shape[0], layout.f.shape[0]
    k, j = lane.low.shape[0], lane.q_low.shape[0]
    lines = 0 if lane.lines is None else 2 * lane.lines.unit.shape[0]
    groups, begin = [], 0
    for size in (n, n, k, k, j, j, n, n, lines, ends, ends, ends, ends):
        groups.append(values[begin : begin + size])
        begin += size
    return groups


def pull(
    network: AcNetwork, layout: AcLayout, lane: Lane, x: Unknowns, flow: Flow, weights: ConstraintMultipliers
) -> Unknowns:
    """Gradient of weights' (balance, limits) over the unknowns; 0 for what is fixed."""
    lam = jnp.where(layout.live[:, None, None], weights.balance, 0)
    w_up, w_down, p_up, p_down, q_up, q_down, shed_up, shed_down, *rest = split(layout, lane, weights.limits)
    lines, from_limit, to_limit, angle_up, angle_down = rest
    ends = jnp.stack([lam[layout.f], lam[layout.t]], 1)[:, :, :, None]
    per_end = ends[:, :, 0] * flow.dp + ends[:, :, 1] * flow.dq
    per_end = per_end + jnp.stack([from_limit, to_limit], 1)[:, :, None] * flow.limit_slope
    total = per_end[:, 0] + per_end[:, 1]
    angle = angle_up - angle_down
    total = total.at[:, 0].add(angle).at[:, 2].add(-angle)
    bus = to_buses(layout, total.reshape(total.shape[0], 2, 2, total.shape[-1]))
    shunt = 2 * jnp.exp(2 * x.w) * jnp.sum(network.shunt[:, :, None] * lam, 1)
    free = layout.free.astype(x.w.dtype)[:, :, None]
    zero = jnp.zeros((), x.w.dtype)
    p, q = p_up - p_down - price_of_blocks(lane, lam), q_up - q_down - lam[lane.q_bus, 1]
    if lane.lines is not None:
        pulled = against(lane.lines, lines, layout.unit_bus.shape[0])
        p, q = p + to_blocks(pulled[0], p.shape[0]), q + to_blocks(pulled[1], q.shape[0])
    return Unknowns(
        theta=free[:, 0] * bus[:, 0],
        w=free[:, 1] * (bus[:, 1] + shunt + w_up - w_down),
        p=jnp.where(lane.column_on, p, zero),
        q=jnp.where(lane.q_on, q, zero),
        shed=jnp.where(lane.shed_high > 0, shed_up - shed_down - lam[:, 0] - lane.shed_ratio * lam[:, 1], zero),
    )


def price_of_blocks(lane: Lane, lam: Array) -> Array:
    """Multiplier (K, B) of a block of active output at its bus, with the reactive power that it brings along."""
    price = lam[lane.column_bus, 0]
    if lane.ratio is None:
        return price
    return price + to_blocks(lane.ratio, price.shape[0]) * lam[lane.column_bus, 1]


def push(layout: AcLayout, lane: Lane, flow: Flow, d: Unknowns, curves: Array | None) -> Array:
    """Change of the inequalities (M, B) along a direction; that of capability curves is given."""
    at = jnp.stack([d.theta[layout.f], d.w[layout.f], d.theta[layout.t], d.w[layout.t]], 1)
    ends = jnp.sum(flow.limit_slope * at[:, None], 2)
    delta = at[:, 0] - at[:, 2]
    parts = [d.w, -d.w, d.p, -d.p, d.q, -d.q, d.shed, -d.shed, ends[:, 0], ends[:, 1], delta, -delta]
    if curves is not None:
        parts.insert(8, curves)
    return jnp.concatenate(parts)


class Curvature(NamedTuple):
    """Curvature on the diagonal for unknowns that touch one bus only; infinite where they cannot move."""

    p: Array
    q: Array
    shed: Array


def curvature(layout: AcLayout, lane: Lane, weight: Array, least: float, on_curve: float) -> Curvature:
    """Curvature of block outputs, reactive outputs and unserved load; weight (M, B) = multiplier / slack.

    least, on_curve: bounds, the second of units with a capability curve
    """
    _, _, p_up, p_down, q_up, q_down, shed_up, shed_down, *_ = split(layout, lane, weight)
    inf = jnp.asarray(jnp.inf, weight.dtype)
    q = q_up + q_down if lane.q_slope is None else lane.q_slope + q_up + q_down
    least_p: Array | float = least
    least_q: Array | float = least
    if lane.lines is not None:
        of_unit = jnp.full((layout.unit_bus.shape[0], 1), least, weight.dtype).at[lane.lines.unit].set(on_curve)
        least_p, least_q = (to_blocks(of_unit, v.shape[0]) for v in (lane.slope, q))
    return Curvature(
        p=jnp.where(lane.column_on, jnp.maximum(lane.slope + p_up + p_down, least_p), inf),
        q=jnp.where(lane.q_on, jnp.maximum(q, least_q), inf),
        shed=jnp.where(lane.shed_high > 0, jnp.maximum(shed_up + shed_down, least), inf),
    )


def newton_matrix(
    network: AcNetwork,
    layout: AcLayout,
    lane: Lane,
    x: Unknowns,
    flow: Flow,
    weights: ConstraintMultipliers,
    barrier: Array,
    diagonal: Curvature,
) -> Array:
    """Blocks (n + e, 4, 4, B) of the system over (theta, w, active, reactive multiplier) of every bus.

    weights:   multipliers of balance and limits
    barrier:   (M, B) multiplier / slack
    """
    n, lanes = layout.live.shape[0], x.w.shape[-1]
    lam = jnp.where(layout.live[:, None, None], weights.balance, 0)
    hessian = _branch_hessian(layout, lane, flow, lam, weights.limits, barrier)
    zero = jnp.zeros_like(flow.dp[:, 0, :2])
    zero = jnp.stack([zero, zero], 1)

    def slopes(end: int, at: int) -> Array:
        """(L, 2, 2, B) derivative of the power at one end over the unknowns of the bus at an end."""
        return jnp.stack([flow.dp[:, end, 2 * at : 2 * at + 2], flow.dq[:, end, 2 * at : 2 * at + 2]], 1)

    def block(h: Array, column: Array, row: Array) -> Array:
        upper = jnp.concatenate([h, column.swapaxes(1, 2)], 2)
        return jnp.concatenate([upper, jnp.concatenate([row, zero], 2)], 1)

    from_block = block(hessian[:, :2, :2], slopes(0, 0), slopes(0, 0))
    to_block = block(hessian[:, 2:, 2:], slopes(1, 1), slopes(1, 1))
    between = block(hessian[:, 2:, :2], slopes(0, 1), slopes(1, 0))
    matrix = jnp.zeros((n + layout.plan.n_block, 4, 4, lanes), x.w.dtype)
    matrix = matrix.at[layout.slot_ff].add(from_block).at[layout.slot_tt].add(to_block)
    matrix = matrix.at[layout.slot_tf].add(between)
    return matrix.at[:n].add(_bus_blocks(network, layout, lane, x, lam, barrier, diagonal))


def _branch_hessian(layout: AcLayout, lane: Lane, flow: Flow, lam: Array, multipliers: Array, barrier: Array) -> Array:
    """Hessian of the branches, (L, 4, 4, B) over theta_f, w_f, theta_t, w_t, barrier included."""
    *_, mu_f, mu_t, _, _ = split(layout, lane, multipliers)
    *_, k_f, k_t, k_up, k_down = split(layout, lane, barrier)
    limited = jnp.isfinite(lane.rate)
    inverse = jnp.where(limited, 1 / jnp.where(limited, lane.rate, 1), 0)
    price = jnp.stack([mu_f, mu_t], 1) * inverse[:, None]
    ends = jnp.stack([lam[layout.f], lam[layout.t]], 1)
    kappa_p, kappa_q = ends[:, :, 0] + price * flow.p, ends[:, :, 1] + price * flow.q
    a = 4 * (kappa_p * flow.own[:, :, 0] + kappa_q * flow.own[:, :, 1])
    c = kappa_p * flow.across[:, :, 0] + kappa_q * flow.across[:, :, 1]
    turned = kappa_q * flow.across[:, :, 0] - kappa_p * flow.across[:, :, 1]
    c, j = c[:, 0] + c[:, 1], turned[:, 0] - turned[:, 1]
    rows = [[-c, j, c, j], [j, a[:, 0] + c, -j, c], [c, -j, -c, -j], [j, c, -j, a[:, 1] + c]]
    second = jnp.stack([jnp.stack(row, 1) for row in rows], 1)
    mask = jnp.concatenate([layout.free[layout.f], layout.free[layout.t]], 1).astype(c.dtype)[:, :, None]
    second = second * mask[:, :, None] * mask[:, None]
    for end in (0, 1):
        stiff = jnp.stack([k_f, k_t], 1)[:, end]
        for weight, slope in ((price[:, end], flow.dp), (price[:, end], flow.dq), (stiff, flow.limit_slope)):
            s = slope[:, end]
            second = second + weight[:, None, None] * s[:, :, None] * s[:, None]
    ahead = mask * jnp.asarray([1, 0, -1, 0], c.dtype)[None, :, None]
    return second + (k_up + k_down)[:, None, None] * ahead[:, :, None] * ahead[:, None]


def _bus_blocks(
    network: AcNetwork, layout: AcLayout, lane: Lane, x: Unknowns, lam: Array, barrier: Array, diagonal: Curvature
) -> Array:
    """Blocks of buses, (N, 4, 4, B): shunts, voltage limits, units, shedding, and a unit diagonal for what is fixed."""
    w_up, w_down, *_ = split(layout, lane, barrier)
    shunt = jnp.exp(2 * x.w)[:, None] * network.shunt[:, :, None]
    free = layout.free.astype(x.w.dtype)[:, :, None]
    zero = jnp.zeros_like(x.w)
    h = free[:, 1] * (4 * jnp.sum(shunt * lam, 1) + w_up + w_down)
    slope = 2 * free[:, 1:] * shunt
    units_p, mixed, units_q = _unit_compliance(layout, lane, diagonal, barrier)
    shed, ratio = 1 / diagonal.shed, lane.shed_ratio
    both = -ratio * shed if mixed is None else -mixed - ratio * shed
    out = jnp.where(layout.live, 0, 1).astype(x.w.dtype)[:, None]
    rows = [
        [zero + 1 - free[:, 0], zero, zero, zero],
        [zero, h + 1 - free[:, 1], slope[:, 0], slope[:, 1]],
        [zero, slope[:, 0], -units_p - shed - out, both],
        [zero, slope[:, 1], both, -units_q - ratio * ratio * shed - out],
    ]
    return jnp.stack([jnp.stack(row, 1) for row in rows], 1)


def _unit_compliance(
    layout: AcLayout, lane: Lane, diagonal: Curvature, barrier: Array
) -> tuple[Array, Array | None, Array]:
    """Response of the units of a bus to its prices, (N, B) each: active, mixed (None: not at all) and reactive."""
    n, units = layout.live.shape[0], layout.unit_bus.shape[0]
    if lane.ratio is None and lane.lines is None:
        return at_bus(lane.column_bus, 1 / diagonal.p, n), None, at_bus(lane.q_bus, 1 / diagonal.q, n)
    p, q = of_units(1 / diagonal.p, units), of_units(1 / diagonal.q, units)
    mixed = jnp.zeros_like(p)
    if lane.lines is not None:
        p, mixed, q = compliance(lane.lines, split(layout, lane, barrier)[8], p, q)
    if lane.ratio is not None:
        mixed, q = mixed + lane.ratio * p, q + jnp.square(lane.ratio) * p
    return at_bus(layout.unit_bus, p, n), at_bus(layout.unit_bus, mixed, n), at_bus(layout.unit_bus, q, n)
