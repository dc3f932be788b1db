"""One AC-OPF between the door and the iteration: batches in tiles, order of buses, float64, derivatives."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from powerzoo_jax.opf.ac import equations as eqs
from powerzoo_jax.opf.ac import interior_point as interior
from powerzoo_jax.opf.ac.equations import Lane, Multipliers, Unknowns
from powerzoo_jax.opf.ac.factors import AcOpfFactors
from powerzoo_jax.opf.ac.interior_point import Grid, Measure, Point
from powerzoo_jax.opf.result import OpfStatus
from powerzoo_jax.powerflow.batching import batched_shell

TILE = 64  # lanes solved together: a factorisation of case118 took 34 us a lane, 60 with 32 lanes, 129 with 256
FIXED = 1e-9  # [pu] narrower boxes are equalities


class Given(NamedTuple):
    """Inputs of one lane, case order, per unit, costs scaled; batched, the batch comes first.

    p_load, q_load:       (N,)
    must_run:             (G,)   output below the blocks
    low, high, price, slope: (K,) blocks
    unit_on:              (G,)   1 or 0
    q_low, q_high:        (G,)
    rate:                 (L,)   infinite = none
    shed_price:           ()
    """

    p_load: Array
    q_load: Array
    must_run: Array
    low: Array
    high: Array
    price: Array
    slope: Array
    unit_on: Array
    q_low: Array
    q_high: Array
    rate: Array
    shed_price: Array


class Report(NamedTuple):
    """What a solved lane says, case order, per unit, costs scaled: see `AcOpfResult`. Counts are floats."""

    p: Array
    q: Array
    v: Array
    theta: Array
    shed: Array
    shed_q: Array
    p_from: Array
    q_from: Array
    p_to: Array
    q_to: Array
    lam_p: Array
    lam_q: Array
    mu_from: Array
    mu_to: Array
    mu_angle: Array
    cost: Array
    shed_cost: Array
    p_loss: Array
    overload: Array
    primal: Array
    dual: Array
    gap: Array
    steps: Array
    status: Array


def solve_lane(factors: AcOpfFactors, given: Given, shedding: bool, max_steps: int) -> Report:
    """Solve one lane; vmap it for many. Differentiable in `given`."""
    return _differentiable(shedding, max_steps)(factors, given)


@cache
def _differentiable(shedding: bool, max_steps: int) -> Callable[[AcOpfFactors, Given], Report]:
    """The solver with its implicit derivative; cached, so that equal options share one program."""
    shell = batched_shell(partial(_core, shedding=shedding, max_steps=max_steps))

    @jax.custom_jvp
    def solved(factors: AcOpfFactors, given: Given) -> tuple[Report, Point]:
        return shell(factors, *given)

    @solved.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        factors, given = primals
        out = solved(factors, given)
        return out, _moved(factors, given, tangents[1], *out, shedding)

    return lambda factors, given: solved(factors, given)[0]


def _core(factors: AcOpfFactors, *arrays: Array, shedding: bool, max_steps: int) -> tuple[Report, Point]:
    """A batch, leaves (B, ...), in tiles."""
    given = Given(*arrays)
    dtype, batch = given.p_load.dtype, given.p_load.shape[0]
    with jax.enable_x64(True):
        solve = partial(_tile, factors, shedding=shedding, max_steps=max_steps)
        if batch <= TILE:
            out = solve(given)
        else:
            count = -(-batch // TILE)
            # the last tile is filled up with its last lane
            at = jnp.minimum(jnp.arange(count * TILE), batch - 1).reshape(count, TILE)
            out = lax.map(lambda lanes: solve(jax.tree.map(lambda x: x[lanes], given)), at)
            out = jax.tree.map(lambda x: x.reshape(count * TILE, *x.shape[2:])[:batch], out)
        return jax.tree.map(lambda x: x.astype(dtype), out)


def _tile(factors: AcOpfFactors, given: Given, *, shedding: bool, max_steps: int) -> tuple[Report, Point]:
    """Lanes together: first axis in and out, last axis inside."""
    wide = jax.tree.map(lambda x: jnp.moveaxis(x.astype(jnp.float64), 0, -1), given)
    grid = Grid(factors.wide, factors.layout)
    lane = make_lane(grid, wide, shedding)
    found = interior.solve(grid, lane, max_steps)
    report = make_report(grid, lane, found.point)._replace(
        primal=found.measure.primal,
        dual=found.measure.dual,
        gap=found.measure.gap,
        steps=found.steps.astype(jnp.float64),
        status=_status(found.measure).astype(jnp.float64),
    )
    return jax.tree.map(lambda x: jnp.moveaxis(x, -1, 0), (report, found.point))


def _status(found: Measure) -> Array:
    optimal = (found.primal <= interior.ACCEPT) & (found.dual <= interior.ACCEPT) & (found.gap <= interior.ACCEPT)
    proven = found.proven & (found.primal > interior.WRONG)
    other = jnp.where(proven, jnp.int32(OpfStatus.INFEASIBLE), jnp.int32(OpfStatus.OUT_OF_STEPS))
    return jnp.where(optimal, jnp.int32(OpfStatus.OPTIMAL), other)


def make_lane(grid: Grid, given: Given, shedding: bool) -> Lane:
    """Bring inputs (..., B) into the order of elimination."""
    layout = grid.layout
    order = layout.plan.bus_at
    p_load, q_load = given.p_load[order], given.q_load[order]
    on = given.unit_on > 0
    q_low, q_high = (jnp.where(on, q, 0) for q in (given.q_low, given.q_high))
    per_unit = given.low.shape[0] // max(given.q_low.shape[0], 1)
    loaded = (p_load > 0) & layout.live[:, None]
    return Lane(
        p_load=p_load - eqs.at_bus(layout.unit_bus, given.must_run, order.shape[0]),
        q_load=q_load,
        column_bus=jnp.repeat(layout.unit_bus, per_unit),
        column_on=given.high - given.low > FIXED,
        low=given.low,
        high=given.high,
        price=given.price,
        slope=given.slope,
        unit_on=on & (q_high - q_low > FIXED),
        q_low=q_low,
        q_high=q_high,
        rate=given.rate,
        shed_high=jnp.where(loaded, p_load, 0) if shedding else jnp.zeros_like(p_load),
        shed_price=jnp.broadcast_to(given.shed_price[None], p_load.shape),
        shed_ratio=jnp.where(loaded, q_load / jnp.where(loaded, p_load, 1), 0),
    )


def make_report(grid: Grid, lane: Lane, point: Point) -> Report:
    """Everything that follows from a point, case order; what the iteration counted is left at 0."""
    layout, x = grid.layout, point.x
    place = layout.plan.place
    flow = eqs.branch_flow(*grid, lane.rate, x)
    turned = layout.turned[:, None]
    *_, mu_f, mu_t, up, down = eqs.split(layout, lane, point.lam.limits)
    _, live = eqs.limits(*grid, lane, x, flow)
    live_f, live_t, live_up, live_down = eqs.split(layout, lane, live)[-4:]
    mu_f, mu_t = jnp.where(live_f, mu_f, 0), jnp.where(live_t, mu_t, 0)
    angle = jnp.where(live_up, up, 0) - jnp.where(live_down, down, 0)
    p = jnp.where(lane.column_on, x.p, lane.low)
    rated = jnp.isfinite(lane.rate) & layout.on[:, None]
    loading = jnp.sqrt(jnp.maximum(jnp.square(flow.p) + jnp.square(flow.q), 1e-30))
    excess = jnp.where(rated[:, None], loading - jnp.where(rated, lane.rate, 1)[:, None], 0)
    zero = jnp.zeros_like(p[0]) if p.shape[0] else jnp.zeros(x.w.shape[1:], x.w.dtype)
    return Report(
        p=p,
        q=jnp.where(lane.unit_on, x.q, lane.q_low),
        v=jnp.exp(x.w)[place],
        theta=x.theta[place],
        shed=x.shed[place],
        shed_q=(lane.shed_ratio * x.shed)[place],
        p_from=jnp.where(turned, flow.p[:, 1], flow.p[:, 0]),
        q_from=jnp.where(turned, flow.q[:, 1], flow.q[:, 0]),
        p_to=jnp.where(turned, flow.p[:, 0], flow.p[:, 1]),
        q_to=jnp.where(turned, flow.q[:, 0], flow.q[:, 1]),
        lam_p=point.lam.balance[place, 0],
        lam_q=point.lam.balance[place, 1],
        mu_from=jnp.where(turned, mu_t, mu_f),
        mu_to=jnp.where(turned, mu_f, mu_t),
        mu_angle=jnp.where(turned, -angle, angle),
        cost=jnp.sum((lane.price + 0.5 * lane.slope * p) * p, 0),
        shed_cost=jnp.sum(lane.shed_price * x.shed, 0),
        p_loss=jnp.sum(flow.p, (0, 1)),
        overload=jnp.max(jnp.maximum(excess, 0), (0, 1), initial=0),
        primal=zero,
        dual=zero,
        gap=zero,
        steps=zero,
        status=zero,
    )


def _moved(
    factors: AcOpfFactors, given: Given, change: Given, report: Report, point: Point, shedding: bool
) -> tuple[Report, Point]:
    """Tangent of one lane's report and point."""
    dtype = given.p_load.dtype
    with jax.enable_x64(True):
        grid = Grid(factors.wide, factors.layout)
        wide = lambda tree: jax.tree.map(lambda x: x.astype(jnp.float64)[..., None], tree)  # noqa: E731
        given_wide, change_wide, at = wide(given), wide(change), wide(point)

        def residuals(given: Given) -> tuple[Unknowns, Array, Array]:
            state = interior.evaluate(grid, make_lane(grid, given, shedding), at)
            return state.rest, state.balance, state.h

        _, (rest, balance, h) = jax.jvp(residuals, (given_wide,), (change_wide,))
        lane = make_lane(grid, given_wide, shedding)
        state = interior.evaluate(grid, lane, at)
        d_point = interior.sensitivity(grid, lane, at, state, state._replace(rest=rest, balance=balance, h=h))

        def told(given: Given, x: Unknowns, lam: Multipliers) -> Report:
            return make_report(grid, make_lane(grid, given, shedding), Point(x, lam, at.z))

        here = (given_wide, at.x, at.lam)
        _, d_report = jax.jvp(told, here, (change_wide, d_point.x, d_point.lam))
        return jax.tree.map(lambda x: x[..., 0].astype(dtype), (d_report, d_point))
