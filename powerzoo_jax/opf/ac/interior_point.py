"""Primal-dual interior point of the AC-OPF, many lanes at once.

    minimise cost(x)   subject to   g(x) = 0,   h(x) + z = 0,   z >= 0

with multipliers lam, mu and z mu -> gamma -> 0. Every inequality has a slack of its own, so a step may begin outside of
any limit. Units, reactive outputs and unserved load touch one bus each and are eliminated from the Newton system by
hand; what is left has four rows a bus (`ac.elimination`).

Where a branch limit binds on an impedance of 1e-4 pu, the bound on its weight in the Newton system gives it so much
room that the steps run into its slack and shrink to nothing; elsewhere slacks jam because a long step left one of them
close to zero. A lane that is stuck without a proof of infeasibility begins once more with a higher bound and keeps
further away from the limits (fraction-to-the-boundary rule).

Sources: Wang, Murillo-Sanchez, Zimmerman and Thomas 2007, doi:10.1109/TPWRS.2007.901307. Of jamming at the boundary
and of its rule: Nocedal and Wright, Numerical Optimization, 2nd edition, 2006, section 19.2; Waechter and Biegler 2000,
doi:10.1007/PL00011386.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from powerzoo_jax.opf.ac import equations as eqs
from powerzoo_jax.opf.ac.elimination import Factor, factorise, multiply, solve_factored
from powerzoo_jax.opf.ac.equations import ConstraintMultipliers, Curvature, Flow, Lane, Unknowns
from powerzoo_jax.opf.ac.factors import AcLayout, AcNetwork
from powerzoo_jax.opf.ac.reactive import coupled, to_blocks

GOAL = 1e-8  # [pu] of violation and [-] of the gap at which a lane stops
STATIONARY = 1e-7  # the same for the gradient, relative to the largest price: mu / z magnifies the rounding of dx
ACCEPT = 1e-6  # what counts as optimal when rounding stops it before
NEAR = 0.99995  # share of the way to the next limit
NEAR_AGAIN = 0.99  # the same in a second start
FLAT = 1e-9  # least curvature of a unit or of unserved load: bounds how far a flat cost lets the system degrade
FLAT_ON_CURVE = 1e-6  # the same of a unit with a capability curve: a binding line beside 1e-9 leaves no digits
STIFF, GIVE = 1e9, 1e6  # most that a binding branch limit adds to the Newton system; least that it may be cut to
STIFF_AGAIN = 1e13  # STIFF of a second start: with 1e11 steps still shrink at impedances of 2e-4 pu
SOFTER = 0.1  # what the stiffness of a lane is multiplied by where the system is too stiff to be solved
LOST = 1e-3  # relative residual of a solved system from which its direction is thrown away
WRONG = 1e-4  # [pu] violation from which an unsolved lane may be called infeasible
PROOF = 2.0  # how much more than what is within reach a certificate of infeasibility must ask for
TURN = 0.5  # [rad] reach of an angle in that certificate
SHORTEST = 1e-8  # a lane whose steps fall below this is stuck
FIRST_SLACK = 1.0  # least slack at the start
SENSITIVE = 1e8  # stiffness at which an optimum is differentiated
TINY = 1e-30  # keeps the ratio of two zeros finite, also where float64 is emulated with the range of float32
REFINED = 3  # refinements of each solve of the Newton system: its blocks are inverted without pivoting


class SharedNetwork(NamedTuple):
    """Network data that all lanes share."""

    network: AcNetwork
    layout: AcLayout


class PrimalDualPoint(NamedTuple):
    """Primal-dual point. x: Unknowns; lam: Multipliers of balance (N, 2, B) and limits (M, B); z: (M, B) slacks."""

    x: Unknowns
    lam: ConstraintMultipliers
    z: Array


class Measure(NamedTuple):
    """Optimality residuals of a point, (B,) each."""

    primal: Array  # [pu] largest violation
    dual: Array  # largest stationarity residual, relative to the largest price
    gap: Array  # relative
    proven: Array  # bool: the multipliers ask for more than any move within reach gives (linearised)


class InteriorPointState(NamedTuple):
    """State of the iteration: a point, with what is known there."""

    flow: Flow
    balance: Array
    h: Array
    live: Array
    slope: Unknowns  # gradient of the cost
    rest: Unknowns  # gradient of the Lagrangian


class InteriorPointLoop(NamedTuple):
    step: Array  # ()
    point: PrimalDualPoint
    measure: Measure
    running: Array  # (B,) bool
    length: Array  # (B,)
    stiff: Array  # (B,)
    near: Array  # (B,) NEAR, of a lane that started again NEAR_AGAIN
    steps: Array  # (B,)


def start(grid: SharedNetwork, lane: Lane) -> PrimalDualPoint:
    """Starting point: the middle of every box, flat angles, unit slacks."""
    network, layout = grid
    lanes = lane.p_load.shape[-1]

    def spread(v: Array) -> Array:
        return jnp.broadcast_to(v[:, None], (v.shape[0], lanes))

    q_low, q_high = (jnp.where(jnp.isfinite(q), q, 0) for q in (lane.q_low, lane.q_high))
    x = Unknowns(
        theta=spread(network.angle_0),
        w=spread(jnp.log(0.5 * (jnp.exp(network.w_min) + jnp.exp(network.w_max)))),
        p=0.5 * (lane.low + lane.high),
        q=jnp.where(lane.q_on, 0.5 * (q_low + q_high), 0),
        shed=jnp.zeros_like(lane.shed_high),
    )
    flow = eqs.branch_flow(network, layout, lane.rate, x)
    h, live = eqs.limits(network, layout, lane, x, flow)
    z = jnp.where(live, jnp.maximum(-h, FIRST_SLACK), 1)
    zero = jnp.zeros((layout.live.shape[0], 2, lanes), x.w.dtype)
    return PrimalDualPoint(x, ConstraintMultipliers(zero, jnp.where(live, 1 / z, 0)), z)


def cost_slope(lane: Lane, x: Unknowns) -> Unknowns:
    """Gradient of the scaled cost."""
    zero = jnp.zeros_like(x.w)
    p = jnp.where(lane.column_on, lane.price + lane.slope * x.p, 0)
    q = jnp.zeros_like(x.q)
    if lane.q_price is not None and lane.q_slope is not None:
        q = jnp.where(lane.q_on, lane.q_price + lane.q_slope * x.q, 0)
    shed = jnp.where(lane.shed_high > 0, lane.shed_price, 0)
    return Unknowns(zero, zero, p, q, shed)


def cost(lane: Lane, x: Unknowns) -> Array:
    """Scaled cost of blocks and unserved load, (B,)."""
    return block_cost(lane, x) + jnp.sum(lane.shed_price * x.shed, 0)


def block_cost(lane: Lane, x: Unknowns) -> Array:
    """Scaled cost of the blocks of active and of reactive output, (B,)."""
    p = jnp.where(lane.column_on, x.p, lane.low)
    total = jnp.sum((lane.price + 0.5 * lane.slope * p) * p, 0)
    if lane.q_price is not None and lane.q_slope is not None:
        q = jnp.where(lane.q_on, x.q, lane.q_low)
        total = total + jnp.sum((lane.q_price + 0.5 * lane.q_slope * q) * q, 0)
    return total


def worth(lane: Lane, x: Unknowns) -> Array:
    """Reference value of a relative gap, (B,)."""
    return jnp.abs(cost(lane, x)) + 1e-3


def evaluate(grid: SharedNetwork, lane: Lane, point: PrimalDualPoint) -> InteriorPointState:
    """Power flow, residuals and gradients at a point."""
    x = point.x
    flow = eqs.branch_flow(*grid, lane.rate, x)
    h, live = eqs.limits(*grid, lane, x, flow)
    slope = cost_slope(lane, x)
    rest = jax.tree.map(jnp.add, slope, eqs.pull(*grid, lane, x, flow, point.lam))
    return InteriorPointState(flow, eqs.balance(*grid, lane, x, flow), h, live, slope, rest)


def measure(grid: SharedNetwork, lane: Lane, point: PrimalDualPoint, state: InteriorPointState) -> Measure:
    """Optimality residuals at a point."""
    lam, mu = point.lam.balance, point.lam.limits
    price = 1 + jnp.maximum(_largest(lam), _largest(mu))
    violation = jnp.where(state.live, jnp.maximum(state.h, 0), 0)
    dual = _norm(state.rest) / price
    gap = jnp.sum(jnp.where(state.live, point.z * mu, 0), 0) / worth(lane, point.x)
    primal = jnp.maximum(_largest(state.balance), _largest(violation))
    ask = jnp.sum(lam * state.balance, (0, 1)) + jnp.sum(mu * jnp.where(state.live, state.h, 0), 0)
    proven = (primal > WRONG) & (ask > PROOF * _reach_of(grid, lane, state))
    return Measure(primal=primal, dual=dual, gap=gap, proven=proven)


def _reach_of(grid: SharedNetwork, lane: Lane, state: InteriorPointState) -> Array:
    """Largest fall of the multipliers' demand (B,) when every unknown moves across its box, an angle by TURN.

    Farkas: where the demand is larger, the linearised balances and limits have no solution within that reach.
    """
    pulled = jax.tree.map(jnp.subtract, state.rest, state.slope)
    far = Unknowns(
        theta=jnp.full_like(pulled.theta, TURN),
        w=jnp.broadcast_to((grid.network.w_max - grid.network.w_min)[:, None], pulled.w.shape),
        p=lane.high - lane.low,
        q=jnp.where(lane.q_on, jnp.minimum(lane.q_high - lane.q_low, 1 / FLAT), 0),
        shed=lane.shed_high,
    )
    return jax.tree.reduce(jnp.add, jax.tree.map(lambda a, b: jnp.sum(jnp.abs(a) * b, 0), pulled, far))


def like(scale: Array, v: Array) -> Array:
    """One number a lane (B,), shaped to go with v (..., B)."""
    return scale.reshape((1,) * (v.ndim - 1) + scale.shape)


def choose(flag: Array, new: Any, old: Any) -> Any:
    """Trees of (..., B) by lane: `new` where flag (B,)."""
    return jax.tree.map(lambda a, b: jnp.where(like(flag, a), a, b), new, old)


def _largest(v: Array) -> Array:
    return jnp.max(jnp.abs(v).reshape(-1, v.shape[-1]), 0, initial=0)


def _norm(d: Unknowns) -> Array:
    return jnp.max(jnp.stack([_largest(part) for part in d]), 0)


class NewtonSystem(NamedTuple):
    """A factored Newton system."""

    matrix: Array
    factor: Factor
    diagonal: Curvature
    weight: Array  # mu / z


def newton_system(
    grid: SharedNetwork, lane: Lane, point: PrimalDualPoint, state: InteriorPointState, stiff: Array
) -> NewtonSystem:
    """Assemble and factor the system at a point; stiff (B,) bounds what a binding branch limit adds."""
    weight = jnp.minimum(
        jnp.where(state.live, point.lam.limits / point.z, 0), _stiffest(grid.layout, lane, state, stiff)
    )
    diagonal = eqs.curvature(grid.layout, lane, weight, FLAT, FLAT_ON_CURVE)
    matrix = eqs.newton_matrix(*grid, lane, point.x, state.flow, point.lam, weight, diagonal)
    return NewtonSystem(matrix, factorise(grid.layout.plan, matrix), diagonal, weight)


def _stiffest(layout: AcLayout, lane: Lane, state: InteriorPointState, stiff: Array) -> Array:
    """Largest mu / z (M, B) that enters the system.

    A binding branch limit couples two buses by one huge direction, beside which their other rows lose their digits.
    Capped, it is a limit with a little give: the steps converge to the same point.
    """
    steep = jnp.maximum(jnp.max(jnp.square(state.flow.limit_slope), 2), 1)
    cap = jnp.full(state.h.shape, 1 / FLAT, state.h.dtype)
    begin = state.h.shape[0] - 4 * layout.f.shape[0]
    if lane.lines is not None:  # likewise for both outputs of a unit
        cap = cap.at[begin - 2 * lane.lines.unit.shape[0] : begin].set(GIVE)
    ends = like(stiff, steep) / steep
    angles = jnp.broadcast_to(stiff, ends.shape)
    return cap.at[begin:].set(jnp.concatenate([ends[:, 0], ends[:, 1], angles[:, 0], angles[:, 1]]))


def reduced_solve(
    grid: SharedNetwork, lane: Lane, system: NewtonSystem, right: Unknowns, short: Array
) -> tuple[Unknowns, Array, Array | None]:
    """Solve for the direction dx and d lam (N, 2, B):  W dx + g' d lam = right,  g dx = short. Linear in both.

    Also tells how far the lines of capability curves move, None where there are none.
    """
    d = system.diagonal
    rows = _reduced_rows(grid, lane, system, right, short)
    found = lax.custom_linear_solve(
        lambda v: multiply(grid.layout.plan, system.matrix, v),
        rows,
        lambda _, y: _refined(grid, system, y),
        symmetric=True,
    )
    lam = found[:, 2:]
    p, q = (right.p + eqs.price_of_blocks(lane, lam)) / d.p, (right.q + lam[lane.q_bus, 1]) / d.q
    p, q, curves = _with_capability(grid, lane, system, p, q)
    dx = Unknowns(
        theta=found[:, 0],
        w=found[:, 1],
        p=p,
        q=q,
        shed=(right.shed + lam[:, 0] + lane.shed_ratio * lam[:, 1]) / d.shed,
    )
    return dx, lam, curves


def _reduced_rows(grid: SharedNetwork, lane: Lane, system: NewtonSystem, right: Unknowns, short: Array) -> Array:
    """Right-hand side (N, 4, B) once dispatch and unserved load are eliminated."""
    layout, n = grid.layout, grid.layout.live.shape[0]
    d = system.diagonal
    moved_p, moved_q, _ = _with_capability(grid, lane, system, right.p / d.p, right.q / d.q)
    given_p, given_q = eqs.at_bus(lane.column_bus, moved_p, n), eqs.at_bus(lane.q_bus, moved_q, n)
    if lane.ratio is not None:
        given_q = given_q + eqs.at_bus(lane.column_bus, to_blocks(lane.ratio, moved_p.shape[0]) * moved_p, n)
    given_shed = right.shed / d.shed
    p = short[:, 0] + given_p + given_shed
    q = short[:, 1] + given_q + lane.shed_ratio * given_shed
    live = layout.live[:, None]
    return jnp.stack([right.theta, right.w, jnp.where(live, p, 0), jnp.where(live, q, 0)], 1)


def _with_capability(
    grid: SharedNetwork, lane: Lane, system: NewtonSystem, p: Array, q: Array
) -> tuple[Array, Array, Array | None]:
    """Moves of blocks under capability curves, from those without, and of the lines of the curves."""
    if lane.lines is None:
        return p, q, None
    d, weight = system.diagonal, eqs.split(grid.layout, lane, system.weight)[8]
    return coupled(lane.lines, weight, p, q, 1 / d.p, 1 / d.q, grid.layout.unit_bus.shape[0])


def _refined(grid: SharedNetwork, system: NewtonSystem, rows: Array) -> Array:
    plan = grid.layout.plan
    found = solve_factored(plan, system.factor, rows)
    for _ in range(REFINED):
        found = found + solve_factored(plan, system.factor, rows - multiply(plan, system.matrix, found))
    return found


def direction(
    grid: SharedNetwork,
    lane: Lane,
    point: PrimalDualPoint,
    state: InteriorPointState,
    system: NewtonSystem,
    target: Array,
) -> tuple[PrimalDualPoint, Array]:
    """Newton direction towards z mu = target (M, B), and how far it misses its equations, relative, (B,)."""
    extra = system.weight * jnp.where(state.live, state.h + target / point.lam.limits, 0)
    zero = jnp.zeros_like(point.lam.balance)
    added = eqs.pull(*grid, lane, point.x, state.flow, ConstraintMultipliers(zero, extra))
    right = jax.tree.map(lambda a, b: -(a + b), state.rest, added)
    dx, d_lam, curves = reduced_solve(grid, lane, system, right, -state.balance)
    along = jnp.where(state.live, eqs.push(grid.layout, lane, state.flow, dx, curves), 0)
    dz = jnp.where(state.live, -state.h - point.z - along, 0)
    rows = _reduced_rows(grid, lane, system, right, -state.balance)
    found = jnp.concatenate([jnp.stack([dx.theta, dx.w], 1), d_lam], 1)
    lost = _largest(rows - multiply(grid.layout.plan, system.matrix, found)) / (_largest(rows) + TINY)
    return PrimalDualPoint(dx, ConstraintMultipliers(d_lam, extra + system.weight * along), dz), lost


def sensitivity(
    grid: SharedNetwork, lane: Lane, point: PrimalDualPoint, state: InteriorPointState, change: InteriorPointState
) -> PrimalDualPoint:
    """Sensitivity of an optimum (implicit function theorem) when inputs change the residuals at it by `change`."""
    system = newton_system(grid, lane, point, state, jnp.full(point.z.shape[-1], SENSITIVE, point.z.dtype))
    extra = system.weight * change.h
    zero = jnp.zeros_like(point.lam.balance)
    added = eqs.pull(*grid, lane, point.x, state.flow, ConstraintMultipliers(zero, extra))
    right = jax.tree.map(lambda a, b: -(a + b), change.rest, added)
    dx, d_lam, curves = reduced_solve(grid, lane, system, right, -change.balance)
    along = eqs.push(grid.layout, lane, state.flow, dx, curves)
    return PrimalDualPoint(dx, ConstraintMultipliers(d_lam, extra + system.weight * along), -along - change.h)


def accepted(found: Measure) -> Array:
    """Whether a point counts as optimal, (B,)."""
    return (found.primal <= ACCEPT) & (found.dual <= ACCEPT) & (found.gap <= ACCEPT)


def infeasible(found: Measure) -> Array:
    """Whether a point counts as proof that there is no solution near it, (B,)."""
    return found.proven & (found.primal > WRONG)


def solve(grid: SharedNetwork, lane: Lane, max_steps: int) -> InteriorPointLoop:
    """Run all lanes to their end; one that has stopped keeps its point, one that is stuck starts once more."""
    first = start(grid, lane)
    lanes = lane.p_load.shape[-1]
    none = jnp.zeros(lanes, first.z.dtype)
    begin = InteriorPointLoop(
        step=jnp.int32(0),
        point=first,
        measure=Measure(none, none, none, none > 0),
        running=jnp.ones(lanes, bool),
        length=none + 1,
        stiff=none + STIFF,
        near=none + NEAR,
        steps=jnp.zeros(lanes, jnp.int32),
    )

    def advance(loop: InteriorPointLoop) -> InteriorPointLoop:
        state = evaluate(grid, lane, loop.point)
        now = measure(grid, lane, loop.point, state)
        done = (now.primal <= GOAL) & (now.dual <= STATIONARY) & (now.gap <= GOAL)
        now = now._replace(proven=now.proven | loop.measure.proven)
        moving = loop.running & ~done & (loop.length > SHORTEST)
        again = loop.running & ~moving & ~accepted(now) & ~infeasible(now) & (loop.near == NEAR)
        running = moving | again
        new, length, stiff = _advance(grid, lane, loop.point, state, loop.stiff, loop.near)
        return InteriorPointLoop(
            step=loop.step + 1,
            point=choose(again, first, choose(moving, new, loop.point)),
            measure=choose(loop.running, now._replace(proven=now.proven & ~again), loop.measure),
            running=running,
            length=jnp.where(again, 1, length),
            stiff=jnp.where(again, STIFF_AGAIN, stiff),
            near=jnp.where(again, NEAR_AGAIN, loop.near),
            steps=loop.steps + running.astype(jnp.int32),
        )

    return lax.while_loop(lambda loop: (loop.step <= max_steps) & jnp.any(loop.running), advance, begin)


def _advance(
    grid: SharedNetwork, lane: Lane, point: PrimalDualPoint, state: InteriorPointState, stiff: Array, near: Array
) -> tuple[PrimalDualPoint, Array, Array]:
    """One step, the shorter of its two lengths (B,), 0 where it is not finite, and the stiffness of the next.

    A lane whose system could not be solved stays where it is and comes back softer.
    """
    system = newton_system(grid, lane, point, state, stiff)
    mu, live = point.lam.limits, state.live
    count = jnp.maximum(jnp.sum(live, 0), 1).astype(mu.dtype)
    gamma = jnp.sum(jnp.where(live, point.z * mu, 0), 0) / count
    # not below what the goal asks for: the system would lose its digits while residuals still fall
    target = jnp.maximum(SIGMA * gamma, 0.1 * GOAL * worth(lane, point.x) / count)
    step, lost = direction(grid, lane, point, state, system, jnp.broadcast_to(target[None], mu.shape))
    primal, dual = _reach(point.z, step.z, near), _reach(mu, step.lam.limits, near)
    new = PrimalDualPoint(
        jax.tree.map(lambda v, d: v + like(primal, d) * d, point.x, step.x),
        jax.tree.map(lambda v, d: v + like(dual, d) * d, point.lam, step.lam),
        point.z + like(primal, step.z) * step.z,
    )
    good = jnp.all(jnp.stack([jnp.isfinite(v).reshape(-1, v.shape[-1]).all(0) for v in jax.tree.leaves(new)]), 0)
    again = ~(lost <= LOST) & (stiff > GIVE)
    length = jnp.where(again, 1, jnp.where(good, jnp.minimum(primal, dual), 0))
    return choose(good & ~again, new, point), length, jnp.where(again, SOFTER * stiff, stiff)


SIGMA = 0.1  # how far a step aims to reduce z mu


def _reach(value: Array, change: Array, near: Array) -> Array:
    """Longest step (B,) that goes at most the share near (B,) of the way to where a value (M, B) is 0."""
    shrinks = change < 0
    most = jnp.min(jnp.where(shrinks, -value / jnp.where(shrinks, change, -1), jnp.inf), 0)
    return jnp.minimum(near * most, 1)
