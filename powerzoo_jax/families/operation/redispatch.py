"""Redispatch, curtailment and storages of a step as Grid2Op has them.

Redispatch balances storages and curtailment and follows the targets of units:

    minimise  sum over ordered units of w (x - target)^2   subject to  sum x = total,  low <= x <= high

Units that nobody ordered weigh nothing, so the optimum is not unique, and SLSQP, which Grid2Op calls, stops early: the
answer is where its path ends. `follow` carries the path out: B starts as the identity, the quadratic programme of a
step has a box and one equality, the step is cut back on the l1 merit function, and B follows by Powell's damped BFGS
(D. Kraft, A software package for sequential quadratic programming, DFVLR-FB 88-28, 1988).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from powerzoo_jax.base.numerics import FLOAT, anywhere, matmul, safe_divide
from powerzoo_jax.base.solver_mode import AUTO, by_mode
from powerzoo_jax.families.operation.types import DispatchState, Fleet, GridAction, OperationParams
from powerzoo_jax.powerflow.batching import batched_shell, in_groups

HOURS = FLOAT.type(300) / FLOAT.type(3600)  # of energies, whatever the clock says
ZERO = 1e-7  # MW or a share below which a number is none
IDLE_MW = 0.01  # below which nothing is to be balanced
SLACK_MW = 1e-4  # by which bounds are wider, both sides together
ITERATIONS, FIXED_ITERATIONS = 100, 30  # of the path; at most 26 were met
FIXED_SWAPS = 16  # passes of one quadratic programme where their number is fixed; at most 12 were met
RESET_AFTER = 5  # iterations in which an ascent direction only resets B
MAX_CUTS = 10
BISECTIONS = 40
FEASIBLE, STILL, PULL = 1e-12, 1e-15, 1e-11  # a sum of bounds, a move, and a multiplier of the wrong sign, that count
TOGETHER = 16  # lanes whose paths a CPU core follows together


class Redispatched(NamedTuple):
    """State after the orders of a step, set-points p_unit (G,) [MW] with dispatch, and whether () bool it is infeasible
    or the change of a target was refused."""

    state: DispatchState
    p_unit: Array
    infeasible: Array
    refused: Array


class Programme(NamedTuple):
    """Change of dispatch in multiples of a scale: taking (G,) bool which units take part, else (G,), () of accuracy and
    the sum `total`."""

    taking: Array
    curvature: Array
    target: Array
    low: Array
    high: Array
    start: Array
    total: Array
    accuracy: Array


def initial(params: OperationParams) -> DispatchState:
    """State of dispatch before the first row of an episode."""
    fleet, rules = params.fleet, params.rules
    none, still = jnp.zeros_like(fleet.p_max_mw), jnp.zeros_like(fleet.e_max_mwh)
    rest = jnp.where(rules.storage_loss, fleet.loss_mw * HOURS, 0)
    return DispatchState(
        target=none,
        actual=none,
        ordered=jnp.zeros(none.shape, bool),
        scheduled=none,
        limit=jnp.ones_like(none),
        charge=rules.storage_start.astype(FLOAT) * fleet.e_max_mwh + rest,
        storage=still,
        curtailed_sum=jnp.zeros((), FLOAT),
        stored_sum=jnp.zeros((), FLOAT),
    )


def dispatch(
    state: DispatchState, orders: GridAction, p_row: Array, p_load: Array, busbar: Array, params: OperationParams
) -> Redispatched:
    """Dispatch of a step: what storages, curtailment, units and loads that are out, and targets ask of the units.

    p_row, p_load:  (G,), (D,) [MW] of the row that the step meets       busbar: (E,) after the action's orders
    """
    fleet, known = params.fleet, params.fleet.known
    charge, power, stored_sum, rest = _store(state, orders.storage, params)
    order, storage = orders.redispatch.astype(FLOAT), stored_sum - state.stored_sum
    limit = jnp.where((orders.curtail != -1) & fleet.renewable & known, orders.curtail, state.limit).astype(FLOAT)
    held = (jnp.abs(limit - 1) >= ZERO) & known
    given = jnp.where(held, jnp.minimum(fleet.p_max_mw * limit, p_row), p_row)
    curtailed_sum = jnp.sum(jnp.where(held, given, 0)) - jnp.sum(jnp.where(held, p_row, 0))
    # what is out leaves its power to the units, and loads take theirs along
    n_unit, first = p_row.shape[0], 2 * params.limit_a.shape[0]
    unit_out, load_out = (x == 0 for x in jnp.split(busbar[first : first + n_unit + p_load.shape[0]], [n_unit]))
    out = jnp.sum(jnp.where(unit_out, given, 0)) + jnp.sum(jnp.where(unit_out, state.actual, 0))
    lost = jnp.where(known, out - jnp.sum(jnp.where(load_out, p_load, 0)), 0)
    actual = jnp.where(unit_out & known, 0, state.actual)
    wanted = jnp.abs(order) > ZERO
    first_order = jnp.where(wanted, actual + order, state.target)
    target, ordered = jnp.where(state.ordered, state.target + order, first_order), state.ordered | wanted
    refused = jnp.any(jnp.abs(target) > fleet.p_max_mw - fleet.p_min_mw) & known
    target = jnp.where(refused, target - order, target)
    # a refused change takes the energy of storages back, whose power stays in force
    charge = jnp.where(refused, rest(state.charge), charge)
    storage = jnp.where(refused, storage - stored_sum, storage)
    curtailed = curtailed_sum - state.curtailed_sum
    asked = jnp.stack([jnp.sum(actual), storage, curtailed, lost, jnp.max(jnp.abs(actual - target), initial=0)])
    todo = jnp.any(jnp.abs(asked) >= IDLE_MW) & known
    before = state.scheduled - actual
    lane = (jnp.where(unit_out, 0, given), before, actual, target, ordered, jnp.stack([storage, -curtailed, lost]))
    idle = actual, jnp.zeros((), bool)
    actual, infeasible = lax.cond(anywhere(todo), lambda: _balanced(fleet, *lane, todo), lambda: idle)
    state = DispatchState(
        target=target,
        actual=actual,
        ordered=ordered,
        scheduled=given + actual,
        limit=limit,
        charge=charge,
        storage=power,
        curtailed_sum=curtailed_sum,
        stored_sum=stored_sum,
    )
    return Redispatched(state, given + jnp.where(jnp.abs(actual) >= ZERO, actual, 0), infeasible, refused)


def _store(
    state: DispatchState, order: Array, params: OperationParams
) -> tuple[Array, Array, Array, Callable[[Array], Array]]:
    """Charge (B,) [MWh] after an order, power (B,) [MW] that fits, its sum, and the law of rest."""
    fleet, loss = params.fleet, params.rules.storage_loss

    def rest(charge: Array) -> Array:
        return jnp.where(loss, jnp.maximum(charge - fleet.loss_mw * HOURS, 0), charge)

    if order.size == 0:
        return state.charge, state.storage, jnp.zeros((), FLOAT), rest
    into, back = (jnp.where(loss, x, 1) for x in (fleet.charging, fleet.discharging))
    active = jnp.abs(order) >= ZERO
    power = jnp.where(active, order, 0).astype(FLOAT)
    charge = state.charge + power * HOURS * jnp.where(power > 0, into, 1 / back)
    over, under = charge - fleet.e_max_mwh, charge - fleet.e_min_mwh
    fits = power - jnp.where(over > 0, over / HOURS / into, 0) - jnp.where(under < 0, under / HOURS * back, 0)
    any_order = jnp.any(active)
    power = jnp.where(any_order, fits, 0)
    charge = jnp.where(any_order, jnp.clip(charge, fleet.e_min_mwh, fleet.e_max_mwh), charge)
    return rest(charge), power, jnp.sum(power), rest


def _lanes(fleet: Fleet, *given: Array) -> tuple[Array, Array]:
    """Dispatch (T, G) [MW] of lanes after a step, and whether (T,) there is none."""
    *lane, todo = given
    outputs = lane[2], jnp.zeros(todo.shape, bool)

    def moved(adaptive: bool, fleet: Fleet, lane: Any) -> tuple[Array, Array]:
        with jax.enable_x64(True):  # the path in float32 is another one
            found: tuple[Array, Array] = jax.vmap(partial(_moved, adaptive), (None, *(0 for _ in lane)))(fleet, *lane)
        return found

    def adaptive(fleet: Fleet, lane: Any) -> tuple[Array, Array]:
        found: tuple[Array, Array] = in_groups(
            todo, TOGETHER, lambda fleet, lane, _: moved(True, fleet, lane), fleet, lane, outputs
        )
        return found

    def fixed(fleet: Fleet, lane: Any) -> tuple[Array, Array]:
        actual, infeasible = moved(False, fleet, lane)
        return jnp.where(todo[:, None], actual, outputs[0]), infeasible & todo

    found: tuple[Array, Array] = by_mode(AUTO, adaptive, fixed, fleet, tuple(lane))
    return found


_balanced = batched_shell(_lanes)


def _moved(
    adaptive: bool,
    fleet: Fleet,
    scheduled: Array,
    last: Array,
    actual: Array,
    target: Array,
    ordered: Array,
    asked: Array,
) -> tuple[Array, Array]:
    """Dispatch (G,) [MW] at the end of the path, and whether there is none.

    last:   (G,) [MW] set-points before, without dispatch      asked: (3,) [MW] pieces of the sum of the changes
    """
    total, rise, before = jnp.sum(asked.astype(float)), scheduled - last, last + actual
    some = (scheduled > 0) | (jnp.abs(actual) >= ZERO) | (target != actual)
    up = jnp.minimum(fleet.p_max_mw - before, fleet.ramp_up_mw)
    down = jnp.maximum(fleet.p_min_mw - before, -fleet.ramp_down_mw)

    def can(taking: Array) -> Array:
        least, need, most = (jnp.sum(jnp.where(taking, x, 0)) for x in (down, rise, up))
        need = need + total.astype(FLOAT)
        return (least <= need) & (need <= most)

    enough = can(fleet.redispatchable & some)
    taking = fleet.redispatchable & (some | ~enough)
    infeasible = ~enough & ~can(taking)
    given, scale = _programme(fleet, taking, scheduled, rise, actual, target, ordered, total)
    change, solved = follow(given, adaptive)
    moved = (actual.astype(scale.dtype) + change * scale).astype(FLOAT)
    return jnp.where(taking & solved & ~infeasible, moved, actual), infeasible | ~solved


def _programme(
    fleet: Fleet,
    taking: Array,
    scheduled: Array,
    rise: Array,
    actual: Array,
    target: Array,
    ordered: Array,
    total: Array,
) -> tuple[Programme, Array]:
    """Programme in float64 of what is float32, in multiples of the largest dispatch, and that scale [MW]."""
    wide = total.dtype
    weight = (1 / (fleet.ramp_up_mw + fleet.ramp_down_mw + FLOAT.type(SLACK_MW))).astype(wide)
    weight = weight / jnp.sum(jnp.where(taking, weight, 0))
    power = scheduled + actual
    low = jnp.maximum(fleet.p_min_mw - power, -fleet.ramp_down_mw - rise).astype(wide) - SLACK_MW / 2
    high = jnp.minimum(fleet.p_max_mw - power, fleet.ramp_up_mw - rise).astype(wide) + SLACK_MW / 2
    unit = jnp.maximum(jnp.max(jnp.abs(actual), initial=0), 1)
    scale = unit.astype(wide)
    aim, asked = ((target - actual) / unit).astype(wide), taking & ordered
    counted = jnp.where(jnp.any(asked), asked, taking)
    miss = jnp.sum(jnp.where(counted, jnp.abs(aim), 0))
    objective = jnp.round(jnp.maximum(0.5 * miss * miss, 1.0), 4)
    # units with a target start there, and the others share the opposite
    wanted = taking & ((jnp.abs(target) >= ZERO) | ordered)
    start = jnp.where(wanted, aim, 0)
    rest = taking & (jnp.abs(start) <= ZERO)
    shares = jnp.sum(jnp.where(rest, 1 / weight, 0))
    share = -jnp.sum(start) / (weight * jnp.where(shares > 0.01, shares, 1.0))
    given = jnp.any((jnp.abs(target) >= ZERO) | ordered)
    start = jnp.where(given, jnp.where(rest, share, start), jnp.where(taking, -(actual / unit).astype(wide), 0))

    def own(x: Array) -> Array:
        return jnp.where(taking, x, 0)

    curvature = jnp.where(counted, 2 * weight / objective, 0)
    accuracy = jnp.maximum(1e-4 / scale, 1e-6)
    return Programme(
        taking, curvature, own(aim), own(low / scale), own(high / scale), start, total / scale, accuracy
    ), scale


def _repeat(step: Callable[..., Any], carry: Any, most: int, adaptive: bool) -> Any:
    """Carry after `step(k, *carry)` until its last entry says that it is done, `most` times at most."""
    if adaptive:
        going = lambda c: (c[0] < most) & ~c[1][-1]  # noqa: E731
        return lax.while_loop(going, lambda c: (c[0] + 1, step(c[0], *c[1])), (jnp.int32(0), carry))[1]

    def unless_done(k: Array, carry: Any) -> Any:
        return jax.tree.map(lambda old, new: jnp.where(carry[-1], old, new), carry, step(k, *carry))

    return lax.fori_loop(0, most, unless_done, carry)


def _level(g: Array, low: Array, high: Array, total: Array) -> Array:
    """Point of a box (G,) whose entries are one number less g, clipped, and sum to `total`."""

    def clipped(price: Array) -> Array:
        return jnp.minimum(jnp.maximum(price - g, low), high)

    def halve(_: Any, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        mean = (ends[0] + ends[1]) / 2
        under = jnp.sum(clipped(mean)) < total
        return jnp.where(under, mean, ends[0]), jnp.where(under, ends[1], mean)

    a, b = lax.fori_loop(0, BISECTIONS, halve, (jnp.min(low + g), jnp.max(high + g)))
    least, most = clipped(a), clipped(b)
    share = safe_divide(total - jnp.sum(least), jnp.sum(most) - jnp.sum(least))
    return least + jnp.clip(share, 0, 1) * (most - least)


def _exchanged(table: Array, k: Array) -> Array:
    """Table whose pair k has changed sides."""
    column, pivot = table[:, k], table[k, k]
    row, here = table[k] / pivot, jnp.arange(table.shape[0], dtype=k.dtype) == k
    rest = table - jnp.outer(column, row)
    rest = jnp.where(here[None], (column / pivot)[:, None], rest)
    return jnp.where(here[:, None], jnp.where(here, 1 / pivot, -row)[None], rest)


def _grown(table: Array, free: Array, u: Array, size: Array) -> Array:
    """Table of B + size u u'."""
    q = jnp.where(free, 0, u) - matmul(table, jnp.where(free, u, 0))
    whole = 1 - size * jnp.sum(jnp.where(free, u * q, 0))
    return table + (size / whole) * jnp.outer(q, jnp.where(free, -q, q))


class Quadratic(NamedTuple):
    """Active set of the programme min d'Bd/2 + g'd in a box with one equality: the point x + d, whose entries stand at
    the lower bound, the upper one or neither (side -1, 1, 0), and the table of B.

    Of the pairs d, B d it gives the first of those that are free and the second of the others, from what is left.
    """

    point: Array
    side: Array
    table: Array


def quadratic_step(
    start: Quadratic, x: Array, g: Array, given: Programme, adaptive: bool
) -> tuple[Quadratic, Array, Array]:
    """Solution for the step from x, its multiplier () of the sum and those (G,) of the bounds, positive at the lower
    and negative at the upper one.

    Each pass goes to the optimum of the free units, or to the first bound on the way, which then holds; there the
    bound with the worst multiplier is let go (Nocedal and Wright, Numerical Optimization, algorithm 16.3).
    """
    taking, low, high = given.taking, given.low, given.high

    def swap(_: Array, now: Quadratic, price: Array, bound: Array, done: Array) -> Any:
        z, side, table = now
        free = side == 0
        known = jnp.where(free, -g, z - x)
        w, rate = matmul(table, jnp.stack([known, free.astype(g.dtype)], 1)).T
        # without free units between the slopes at both bounds
        below, above = jnp.where(taking & (side < 0), w + g, jnp.inf), jnp.where(taking & (side > 0), w + g, -jnp.inf)
        below, above = jnp.min(below), jnp.max(above)
        below, above = jnp.where(jnp.isfinite(below), below, above), jnp.where(jnp.isfinite(above), above, below)
        left = given.total - jnp.sum(x) - jnp.sum(jnp.where(free, w, known))
        price = jnp.where(jnp.any(free), safe_divide(left, jnp.sum(jnp.where(free, rate, 0))), (below + above) / 2)
        price = jnp.where(jnp.isfinite(price), price, 0)
        w = w + price * rate
        move = jnp.where(free, x + w - z, 0)
        rising, falling = move > STILL, move < -STILL
        reach = jnp.where(rising, (high - z) / jnp.where(rising, move, 1), jnp.inf)
        reach = jnp.where(falling, (low - z) / jnp.where(falling, move, 1), reach)
        length = jnp.min(reach)
        whole = length >= 1
        met, bound = reach == length, jnp.where(free, 0, w + g - price)
        wrong = taking & (side * bound > PULL)
        # in float32, see `elimination`: nearly the worst is as good
        size = jnp.where(whole, jnp.where(wrong, jnp.abs(bound), 0), met.astype(g.dtype)).astype(FLOAT)
        k = lax.argmax(size, 0, jnp.int32)
        done = whole & ~jnp.any(wrong)
        here = (jnp.arange(z.shape[0], dtype=k.dtype) == k) & ~done
        held = here & ~whole
        z = jnp.where(held, jnp.where(rising, high, low), z + jnp.minimum(length, 1) * move)
        side = jnp.where(here, jnp.where(whole, 0.0, jnp.where(rising, 1.0, -1.0)), side)
        return Quadratic(z, side, jnp.where(done, table, _exchanged(table, k))), price, bound, done

    no = jnp.zeros((), bool)
    most = 10 * x.shape[0] + 20 if adaptive else FIXED_SWAPS
    end, price, bound, _ = _repeat(swap, (start, jnp.zeros_like(given.total), jnp.zeros_like(x), no), most, adaptive)
    return end, price, jnp.where(taking, bound, 0)


def follow(given: Programme, adaptive: bool) -> tuple[Array, Array]:
    """Change of dispatch (G,) where the path ends, and whether () the bounds leave room for the sum."""
    taking, curvature, low, high, accuracy = given.taking, given.curvature, given.low, given.high, given.accuracy
    eye = jnp.eye(low.shape[0], dtype=low.dtype)

    def cost(x: Array) -> Array:
        return jnp.sum(curvature * (x - given.target) ** 2) / 2

    def violated(x: Array) -> Array:
        off = jnp.abs(jnp.sum(x) - given.total)
        return jnp.concatenate([off[None], jnp.maximum(low - x, 0), jnp.maximum(x - high, 0)])

    def advance(k: Array, x: Array, now: Quadratic, penalty: Array, f: Array, g: Array, done: Array) -> Any:
        now, price, bound = quadratic_step(now, x, g, given, adaptive)
        step, over = now.point - x, violated(x)
        dual = jnp.concatenate([jnp.abs(price)[None], jnp.maximum(bound, 0), jnp.maximum(-bound, 0)])
        penalty = jnp.maximum(dual, (penalty + dual) / 2)
        slope, near = jnp.sum(g * step), jnp.sum(over) < accuracy
        room = jnp.concatenate([over[:1], jnp.abs(x - low), jnp.abs(high - x)])
        there = (jnp.abs(slope) + jnp.sum(dual * room) < accuracy) & near
        excess = jnp.sum(penalty * over)
        merit, descent = f + excess, slope - excess
        rising = descent >= 0

        def cut(_: Array, share: Array, whole: Array, descent: Array, f: Array, done: Array) -> Any:
            descent, whole = descent * share, whole * share
            f = cost(x + whole * step)
            gain = f + jnp.sum(penalty * violated(x + whole * step)) - merit
            far = descent - gain
            share = jnp.maximum(descent / jnp.where(far < 0, 2 * far, -1), 0.1)
            return share, whole, descent, f, gain <= descent / 10

        one, no = jnp.ones_like(f), jnp.zeros((), bool)
        _, share, _, f_new, _ = _repeat(cut, (one, one, descent, f, no), MAX_CUTS + 1, adaptive)
        step = share * step
        moved = x + step
        fresh = curvature * (moved - given.target)
        small = (jnp.abs(f_new - f) < accuracy) | (jnp.sqrt(jnp.sum(step * step)) < accuracy)
        end = small & (jnp.sum(violated(moved)) < accuracy)
        ahead = jnp.where(taking, share * (bound + price - g), 0)  # B times the step
        table = jnp.where(rising, eye, damped_update(now.table, now.side == 0, step, fresh - g, ahead))
        stays = there | rising
        x, f, g = (jnp.where(stays, old, new) for old, new in ((x, moved), (f, f_new), (g, fresh)))
        done = there | jnp.where(rising, k > RESET_AFTER, end)
        return x, now._replace(table=table), penalty, f, g, done

    x = given.start
    f, g = cost(x), curvature * (x - given.target)
    point = x + _level(g, low - x, high - x, given.total - jnp.sum(x))
    side = jnp.where(point <= low, -1.0, jnp.where(point >= high, 1.0, 0.0))
    solved = (jnp.sum(low) <= given.total + FEASIBLE) & (jnp.sum(high) >= given.total - FEASIBLE)
    start = (x, Quadratic(point, side, eye), jnp.zeros(1 + 2 * x.shape[0], x.dtype), f, g, ~solved)
    x, *_ = _repeat(advance, start, ITERATIONS if adaptive else FIXED_ITERATIONS, adaptive)
    return jnp.where(jnp.isfinite(x), x, 0), solved & jnp.all(jnp.isfinite(x))


def damped_update(table: Array, free: Array, step: Array, change: Array, ahead: Array) -> Array:
    """Table (G, G) after Powell's damped BFGS update of B by the change of the Lagrangian's gradient along a step.

    ahead:  B times the step
    """
    along, curved = jnp.sum(step * change), jnp.sum(step * ahead)
    short = along < 0.2 * curved
    share = jnp.where(short, safe_divide(0.8 * curved, curved - along), 1.0)
    change = share * change + (1 - share) * ahead
    along = jnp.where(short, 0.2 * curved, along)
    table = _grown(table, free, change, safe_divide(jnp.ones_like(along), along))
    return _grown(table, free, ahead, -safe_divide(jnp.ones_like(curved), curved))
