"""AC optimal power flow: full network equations, apparent power limits, prices of active and reactive power.

    minimise cost   subject to   P_i(v, theta) + load_i - shed_i = units_i,   Q_i(v, theta) + ... likewise,
    |S| <= rate at both ends of a branch, angle limits, boxes of voltages and of active and reactive output,
    capability curves and constant power factors (`ac.reactive`)

Unserved load keeps the power factor of its bus. A local optimum of a non-convex programme: on the networks of the tests
it is the published one. A batch is solved in tiles, in float64 and in the order of elimination of the buses;
derivatives follow from the implicit function theorem.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache, partial
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from powerzoo_jax.base import struct
from powerzoo_jax.base.ranges import BUDGET, FINITE, FLAG, LOWER, NOT_NEGATIVE, UPPER, Count, axes, checks_ranges
from powerzoo_jax.base.solver_mode import AUTO, by_mode
from powerzoo_jax.opf.ac import equations as eqs
from powerzoo_jax.opf.ac import interior_point as interior
from powerzoo_jax.opf.ac.equations import ConstraintMultipliers, Lane, Unknowns
from powerzoo_jax.opf.ac.factors import AcOpfFactors
from powerzoo_jax.opf.ac.interior_point import Measure, PrimalDualPoint, SharedNetwork
from powerzoo_jax.opf.ac.reactive import CapabilityLines, ReactiveRules, of_units, with_tied_costs
from powerzoo_jax.opf.ac.refusal import refuse
from powerzoo_jax.opf.dc.solve import VOLL, DispatchVariables, Running, running_units, unit_columns
from powerzoo_jax.opf.offers import Offers
from powerzoo_jax.opf.result import OpfStatus
from powerzoo_jax.powerflow.batching import batched_shell

TILE = 64  # lanes solved together: a factorisation of case118 took 34 us a lane, 60 with 32 lanes, 129 with 256
FIXED = 1e-9  # [pu] narrower boxes are equalities


class AcOpfInputs(NamedTuple):
    """Inputs of one lane, case order, per unit, costs scaled; batched, the batch comes first.

    p_load, q_load:       (N,)
    must_run:             (G,)   output below the blocks
    low, high, price, slope: (K,) blocks
    unit_on:              (G,)   1 or 0
    q_low, q_high:        (J,)   blocks of reactive output, one a unit without costs of it
    rate:                 (L,)   infinite = none
    shed_price:           ()
    q_price, q_slope:     (J,)   None without costs of reactive output
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
    q_price: Array | None = None
    q_slope: Array | None = None


class AcOpfLane(NamedTuple):
    """Results of a solved lane, case order, per unit, costs scaled: see `AcOpfResult`. Counts are floats."""

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


def solve_lane(factors: AcOpfFactors, given: AcOpfInputs, shedding: bool, max_steps: int) -> AcOpfLane:
    """Solve one lane; vmap it for many. Differentiable in `given`."""
    return _differentiable(shedding, max_steps)(factors, given)


@cache
def _differentiable(shedding: bool, max_steps: int) -> Callable[[AcOpfFactors, AcOpfInputs], AcOpfLane]:
    """The solver with its implicit derivative; cached, so that equal options share one program."""
    shell = batched_shell(partial(_core, shedding=shedding, max_steps=max_steps))

    @jax.custom_jvp
    def solved(factors: AcOpfFactors, given: AcOpfInputs) -> tuple[AcOpfLane, PrimalDualPoint]:
        return shell(factors, *(part for part in given if part is not None))

    @solved.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        factors, given = primals
        out = solved(factors, given)
        return out, _moved(factors, given, tangents[1], *out, shedding)

    return lambda factors, given: solved(factors, given)[0]


def _core(factors: AcOpfFactors, *arrays: Array, shedding: bool, max_steps: int) -> tuple[AcOpfLane, PrimalDualPoint]:
    """A batch, leaves (B, ...), in tiles."""
    given = AcOpfInputs(*arrays)
    dtype, batch = given.p_load.dtype, given.p_load.shape[0]
    with jax.enable_x64(True):
        solve = partial(_tile, factors, shedding=shedding, max_steps=max_steps)
        # an accelerator takes the batch whole: one loop to wait for instead of one for each tile
        out = solve(given) if batch <= TILE else by_mode(AUTO, partial(_in_tiles, solve), solve, given)
        return jax.tree.map(lambda x: x.astype(dtype), out)


def _in_tiles(solve: Callable[[AcOpfInputs], Any], given: AcOpfInputs) -> Any:
    """Map a function of a batch over tiles that fit the cache of a CPU core."""
    batch = given.p_load.shape[0]
    count = -(-batch // TILE)
    # the last tile is filled up with its last lane
    at = jnp.minimum(jnp.arange(count * TILE), batch - 1).reshape(count, TILE)
    out = lax.map(lambda lanes: solve(jax.tree.map(lambda x: x[lanes], given)), at)
    return jax.tree.map(lambda x: x.reshape(count * TILE, *x.shape[2:])[:batch], out)


def _tile(
    factors: AcOpfFactors, given: AcOpfInputs, *, shedding: bool, max_steps: int
) -> tuple[AcOpfLane, PrimalDualPoint]:
    """Lanes together: first axis in and out, last axis inside."""
    wide = jax.tree.map(lambda x: jnp.moveaxis(x.astype(jnp.float64), 0, -1), given)
    grid = SharedNetwork(factors.wide, factors.layout)
    lane = make_lane(grid, wide, shedding, _rules(factors))
    found = interior.solve(grid, lane, max_steps)
    report = make_report(grid, lane, wide.must_run, found.point)._replace(
        primal=found.measure.primal,
        dual=found.measure.dual,
        gap=found.measure.gap,
        steps=found.steps.astype(jnp.float64),
        status=_status(found.measure).astype(jnp.float64),
    )
    return jax.tree.map(lambda x: jnp.moveaxis(x, -1, 0), (report, found.point))


def _status(found: Measure) -> Array:
    other = jnp.where(interior.infeasible(found), jnp.int32(OpfStatus.INFEASIBLE), jnp.int32(OpfStatus.OUT_OF_STEPS))
    return jnp.where(interior.accepted(found), jnp.int32(OpfStatus.OPTIMAL), other)


def _rules(factors: AcOpfFactors) -> ReactiveRules | None:
    """Rules of reactive output in per unit and float64."""
    rules = jax.tree.map(lambda x: x if x.dtype == jnp.int32 else x.astype(jnp.float64), factors.reactive)
    if rules is None or rules.room is None:
        return rules
    return dataclasses.replace(rules, room=rules.room / factors.base_mva.astype(jnp.float64))


def make_lane(grid: SharedNetwork, given: AcOpfInputs, shedding: bool, rules: ReactiveRules | None = None) -> Lane:
    """Bring inputs (..., B) into the order of elimination. rules: in per unit."""
    layout = grid.layout
    order = layout.plan.bus_at
    p_load, q_load = given.p_load[order], given.q_load[order]
    units = max(layout.unit_bus.shape[0], 1)
    per_unit, per_unit_q = given.low.shape[0] // units, given.q_low.shape[0] // units
    q_bus = layout.unit_bus if per_unit_q == 1 else jnp.repeat(layout.unit_bus, per_unit_q)
    on = given.unit_on > 0
    q_on = on if per_unit_q == 1 else jnp.repeat(on, per_unit_q, axis=0)
    q_low, q_high = (jnp.where(q_on, q, 0) for q in (given.q_low, given.q_high))
    loaded = (p_load > 0) & layout.live[:, None]
    ratio = None if rules is None or rules.ratio is None else rules.ratio[:, None]
    if ratio is not None:
        q_load = q_load - eqs.at_bus(layout.unit_bus, ratio * given.must_run, order.shape[0])
    return Lane(
        p_load=p_load - eqs.at_bus(layout.unit_bus, given.must_run, order.shape[0]),
        q_load=q_load,
        column_bus=jnp.repeat(layout.unit_bus, per_unit),
        column_on=given.high - given.low > FIXED,
        low=given.low,
        high=given.high,
        price=given.price,
        slope=given.slope,
        q_bus=q_bus,
        q_on=q_on & (q_high - q_low > FIXED),
        q_low=q_low,
        q_high=q_high,
        rate=given.rate,
        shed_high=jnp.where(loaded, p_load, 0) if shedding else jnp.zeros_like(p_load),
        shed_price=jnp.broadcast_to(given.shed_price[None], p_load.shape),
        shed_ratio=jnp.where(loaded, given.q_load[order] / jnp.where(loaded, p_load, 1), 0),
        q_price=given.q_price,
        q_slope=given.q_slope,
        ratio=ratio,
        lines=None if rules is None else _lines(rules, given.must_run, on),
    )


def _lines(rules: ReactiveRules, must_run: Array, on: Array) -> CapabilityLines | None:
    """Capability curves over the output of the blocks, above what must run; infinite room where a unit is off."""
    if rules.unit is None or rules.line is None or rules.room is None:
        return None
    below = rules.line[:, :, 0, None] * must_run[rules.unit][:, None]
    room = jnp.where(on[rules.unit][:, None], rules.room[:, :, None] - below, jnp.inf)
    return CapabilityLines(rules.unit, rules.line[..., None], room)


def make_report(grid: SharedNetwork, lane: Lane, must_run: Array, point: PrimalDualPoint) -> AcOpfLane:
    """Everything that follows from a point, case order; what the iteration counted is left at 0. must_run: (G, B)."""
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
    q = of_units(jnp.where(lane.q_on, x.q, lane.q_low), layout.unit_bus.shape[0])
    if lane.ratio is not None:
        q = q + lane.ratio * (must_run + of_units(p, layout.unit_bus.shape[0]))
    rated = jnp.isfinite(lane.rate) & layout.on[:, None]
    loading = jnp.sqrt(jnp.maximum(jnp.square(flow.p) + jnp.square(flow.q), 1e-30))
    excess = jnp.where(rated[:, None], loading - jnp.where(rated, lane.rate, 1)[:, None], 0)
    zero = jnp.zeros_like(p[0]) if p.shape[0] else jnp.zeros(x.w.shape[1:], x.w.dtype)
    return AcOpfLane(
        p=p,
        q=q,
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
        cost=interior.block_cost(lane, x),
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
    factors: AcOpfFactors,
    given: AcOpfInputs,
    change: AcOpfInputs,
    report: AcOpfLane,
    point: PrimalDualPoint,
    shedding: bool,
) -> tuple[AcOpfLane, PrimalDualPoint]:
    """Tangent of one lane's report and point."""
    dtype = given.p_load.dtype
    with jax.enable_x64(True):
        grid = SharedNetwork(factors.wide, factors.layout)
        wide = lambda tree: jax.tree.map(lambda x: x.astype(jnp.float64)[..., None], tree)  # noqa: E731
        given_wide, at, rules = wide(given), wide(point), _rules(factors)
        lane = make_lane(grid, given_wide, shedding, rules)
        state = interior.evaluate(grid, lane, at)

        def residuals(given: AcOpfInputs) -> tuple[Unknowns, Array, Array]:
            state = interior.evaluate(grid, make_lane(grid, given, shedding, rules), at)
            return state.rest, state.balance, state.h

        def told(given: AcOpfInputs, x: Unknowns, lam: ConstraintMultipliers) -> AcOpfLane:
            lane = make_lane(grid, given, shedding, rules)
            return make_report(grid, lane, given.must_run, PrimalDualPoint(x, lam, at.z))

        def follow(change: AcOpfInputs) -> tuple[AcOpfLane, PrimalDualPoint]:
            change_wide = wide(change)
            _, (rest, balance, h) = jax.jvp(residuals, (given_wide,), (change_wide,))
            d_point = interior.sensitivity(grid, lane, at, state, state._replace(rest=rest, balance=balance, h=h))
            here = (given_wide, at.x, at.lam)
            _, d_report = jax.jvp(told, here, (change_wide, d_point.x, d_point.lam))
            return jax.tree.map(lambda x: x[..., 0].astype(dtype), (d_report, d_point))

        return _linear_both_ways(follow, change, (report, point))


def _linear_both_ways(follow: Callable[[Any], Any], change: Any, like: Any) -> Any:
    """follow(change) for a linear function whose transpose is traced here as well, in the float type of here.

    Reverse mode transposes tangents where `jax.grad` was called. In a float32 program that is outside of the float64
    block in which they were made, and JAX then fills float64 arrays with float32 zeros. A linear solve carries its
    transpose along, so the product is written as one:  (I 0; -F I) (c; y) = (change; 0)  gives  y = F change.
    """

    def plus(a: Any, b: Any) -> Any:
        return jax.tree.map(jnp.add, a, b)

    def transposed(value: Any) -> Any:
        return jax.linear_transpose(follow, change)(value)[0]

    # JAX transposes such a solve only where its whole right-hand side is a tangent, zeros included
    zero = 0 * sum(jnp.sum(leaf) for leaf in jax.tree.leaves(change))
    right = jax.tree.map(lambda x: x + zero, change), jax.tree.map(lambda x: jnp.broadcast_to(zero, x.shape), like)
    _, out = lax.custom_linear_solve(
        lambda v: (v[0], jax.tree.map(jnp.subtract, v[1], follow(v[0]))),
        right,
        lambda _, v: (v[0], plus(v[1], follow(v[0]))),
        transpose_solve=lambda _, v: (plus(v[0], transposed(v[1])), v[1]),
    )
    return out


NO_TPU = (
    "ac_opf computes in float64, which a TPU does not have: emulated, its program was not compiled within minutes. "
    'Run it on a CPU or a GPU, such as under jax.default_device(jax.devices("cpu")[0]), or take dc_opf.'
)
MAX_STEPS = 100


@struct.dataclass(kw_only=True)
class AcOpfResult:
    """Optimal operating point of one network with its prices and residuals; case order.

    unit_power_mw, unit_reactive_mvar: (G,)
    block_mw:          (G, K)  [MW]         sold of each block, above the minimum output
    v_pu:              (N,)    [pu]
    angle_rad:         (N,)    [rad]
    p_from_mw, q_from_mvar, p_to_mw, q_to_mvar: (L,)  power entering each end of a branch
    shed_mw, shed_mvar: (N,)   unserved load
    lmp:               (N,)    [USD/MWh]    d(objective) / d(active load), of more load at a bus without load
    lmp_reactive:      (N,)    [USD/Mvarh]  d(objective) / d(reactive load)
    lmp_scarcity, lmp_reactive_scarcity: (N,)  parts of both from load that is shed: what may be shed moves with the
                       load, and its reactive part follows it. The rest are the multipliers of the balances
    line_price_from, line_price_to: (L,) [USD/MVAh]  value of one more MVA of rating, by end, >= 0
    angle_price:       (L,)    [USD/rad h]  of theta_from - theta_to: > 0 at its upper limit, < 0 at its lower one
    p_loss_mw:         ()      [MW]         of all branches
    generation_cost:   ()      [USD/h]      of the offers and of reactive power
    objective:         ()      [USD/h]      with unserved load
    overload_mva:      ()      [MVA]        largest excess over a rating
    primal_residual:   ()      [pu]         largest violation of a balance or limit
    dual_residual:     ()      [-]          of stationarity, relative to the largest price
    gap:               ()      [-]          what complementarity leaves, relative to the objective
    iterations:        ()      int32
    status:            ()      int32        `OpfStatus`
    """

    unit_power_mw: Array
    unit_reactive_mvar: Array
    block_mw: Array
    v_pu: Array
    angle_rad: Array
    p_from_mw: Array
    q_from_mvar: Array
    p_to_mw: Array
    q_to_mvar: Array
    shed_mw: Array
    shed_mvar: Array
    lmp: Array
    lmp_reactive: Array
    lmp_scarcity: Array
    lmp_reactive_scarcity: Array
    line_price_from: Array
    line_price_to: Array
    angle_price: Array
    p_loss_mw: Array
    generation_cost: Array
    objective: Array
    overload_mva: Array
    primal_residual: Array
    dual_residual: Array
    gap: Array
    iterations: Array
    status: Array

    @property
    def optimal(self) -> Array:
        """() bool."""
        return self.status == OpfStatus.OPTIMAL


@checks_ranges("ac_opf")
def ac_opf(
    factors: AcOpfFactors,
    p_load_mw: Annotated[Array, FINITE, axes("N")],
    q_load_mvar: Annotated[Array, FINITE, axes("N")],
    *,
    offers: Offers | None = None,
    commitment: Annotated[Array, axes("G", kind=FLAG)] | None = None,
    p_min_mw: Annotated[Array, LOWER, axes("G")] | None = None,
    p_max_mw: Annotated[Array, UPPER, axes("G")] | None = None,
    rate_mva: Annotated[Array, BUDGET, axes("L")] | None = None,
    voll: Annotated[float | Array, NOT_NEGATIVE, axes()] = VOLL,
    shedding: bool = True,
    max_steps: Count = MAX_STEPS,
) -> AcOpfResult:
    """Find the cheapest operating point that the network allows; vmap it for many scenarios.

    factors:            from `prepare_ac_opf`; share them (in_axes=None)
    p_load_mw:          (N,) [MW]
    q_load_mvar:        (N,) [Mvar]
    offers:             what units ask; None takes the true costs of the case
    commitment:         (G,) bool or 0/1: units that run; one that does not gives no reactive power either
    p_min_mw, p_max_mw: (G,) [MW] limits inside those of the case, such as ramp windows
    rate_mva:           (L,) [MVA] ratings instead of those of the factors, 0 = unlimited
    voll:               () [USD/MWh]
    shedding:           False leaves out unserved load: what cannot be served is INFEASIBLE
    max_steps:          interior point steps at most

    Every arithmetic of the solver runs in float64, also in a float32 program; a TPU has none, and a program that is
    lowered for one raises NotImplementedError. Returns an AcOpfResult; compiled, nothing else raises or is NaN.
    Differentiable once, forward and reverse, in loads, offers, limits and ratings (implicit
    function theorem). INFEASIBLE is a statement about the neighbourhood of the last point: multipliers that no move
    within reach can satisfy.
    """
    limits = (commitment, p_min_mw, p_max_mw)
    p_load_mw = refuse(jnp.asarray(p_load_mw), "tpu", NO_TPU)
    options = offers, limits, rate_mva, jnp.asarray(voll, p_load_mw.dtype)
    fine, p_load, q_load, options = _cleaned(p_load_mw, q_load_mvar, options)
    plan = _plan(factors, p_load, q_load, *options)
    report = solve_lane(factors, plan.given, shedding, max_steps)
    return _result(factors, plan, report, fine, shedding)


def _cleaned(p_load: Array, q_load: Array, options: Any) -> tuple[Array, Array, Array, Any]:
    """Flag that every input is a number, and the inputs with 0 for those that are not: NaN would spread."""
    finite = [jnp.isfinite(p_load), jnp.isfinite(q_load)]
    leaves, form = jax.tree.flatten(options)
    floats = [jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in leaves]
    good = [~jnp.isnan(leaf) if is_float else jnp.asarray(True) for leaf, is_float in zip(leaves, floats, strict=True)]
    fine = jnp.all(jnp.stack([jnp.all(ok) for ok in finite + good]))
    kept = [
        jnp.where(ok, leaf, 0) if is_float else leaf for ok, leaf, is_float in zip(good, leaves, floats, strict=True)
    ]
    p_load, q_load = (jnp.where(ok, load, 0) for ok, load in zip(finite, (p_load, q_load), strict=True))
    return fine, p_load, q_load, jax.tree.unflatten(form, kept)


class _AcOpfPlan(NamedTuple):
    given: AcOpfInputs
    units: Running
    offers: Offers
    columns: DispatchVariables
    rate: Array
    scale: Array  # [USD/h] of one unit of scaled cost


def _plan(
    factors: AcOpfFactors,
    p_load: Array,
    q_load: Array,
    offers: Offers | None,
    limits: tuple[Array | None, Array | None, Array | None],
    rate_mva: Array | None,
    voll: Array,
) -> _AcOpfPlan:
    """Scale to per unit and to costs around one."""
    base = factors.base_mva
    rules = factors.reactive
    offers = with_tied_costs(rules, factors.offers if offers is None else offers)
    units = running_units(factors, offers, *limits)
    columns = unit_columns(factors, offers, units)
    rate = factors.rate_mva if rate_mva is None else rate_mva
    dearest = jnp.max(jnp.abs(columns.price) + columns.slope * columns.hi, initial=0)
    q_low, q_high, q_price, q_slope = _reactive_blocks(factors)
    if q_price is not None and q_slope is not None:
        width = jnp.where(jnp.isfinite(q_low) & jnp.isfinite(q_high), jnp.maximum(jnp.abs(q_low), jnp.abs(q_high)), 0)
        dearest = jnp.maximum(dearest, jnp.max(jnp.abs(q_price) + q_slope * width, initial=0))
    scale = jax.lax.stop_gradient(jnp.maximum(dearest, 1e-3) * base)
    given = AcOpfInputs(
        p_load=p_load / base,
        q_load=q_load / base,
        must_run=units.must_run / base,
        low=columns.lo / base,
        high=columns.hi / base,
        price=columns.price * base / scale,
        slope=columns.slope * base * base / scale,
        unit_on=units.on,
        q_low=q_low / base,
        q_high=q_high / base,
        rate=jnp.where(rate > 0, rate / base, jnp.inf),
        shed_price=voll * base / scale,
        q_price=None if q_price is None else q_price * base / scale,
        q_slope=None if q_slope is None else q_slope * base * base / scale,
    )
    return _AcOpfPlan(given, units, offers, columns, rate, scale)


def _reactive_blocks(factors: AcOpfFactors) -> tuple[Array, Array, Array | None, Array | None]:
    """Blocks of reactive output [Mvar] with their prices and slopes; 0 where it follows the active output."""
    rules = factors.reactive
    if rules is not None and rules.low is not None and rules.high is not None:
        blocks = (rules.low, rules.high, rules.price, rules.slope)
        return tuple(None if x is None else x.reshape(-1) for x in blocks)  # type: ignore[return-value]
    low, high = factors.q_min_mvar, factors.q_max_mvar
    if rules is not None and rules.ratio is not None:
        low, high = (jnp.where(rules.ratio != 0, 0, q) for q in (low, high))
    return low, high, None, None


def _scarcity(given: AcOpfInputs, report: AcOpfLane, shedding: bool) -> tuple[Array, Array]:
    """Parts of the prices from shed load, active and reactive (N,), in the scale of the multipliers.

    Shedding s <= P takes r = Q / P of reactive power with it. With the multiplier of that limit,
    z = [lam + r lam_q - voll]+, the Lagrangian moves with the load by
    dC/dP = lam - z + lam_q r s / P  and  dC/dQ = lam_q (1 - s / P).
    """
    none = jnp.zeros_like(given.p_load)
    if not shedding:
        return none, none
    loaded = given.p_load > 0
    load = jnp.where(loaded, given.p_load, 1)
    ratio, share = (jnp.where(loaded, x / load, 0) for x in (given.q_load, report.shed))
    held = jnp.maximum(report.lam_p + ratio * report.lam_q - given.shed_price, 0)
    return share * ratio * report.lam_q - jnp.where(given.p_load >= 0, held, 0), -share * report.lam_q


def _result(factors: AcOpfFactors, plan: _AcOpfPlan, report: AcOpfLane, fine: Array, shedding: bool) -> AcOpfResult:
    base, offers = factors.base_mva, plan.offers
    price = plan.scale / base
    scarcity, reactive_scarcity = _scarcity(plan.given, report, shedding)
    blocks = (report.p * base).reshape(offers.price.shape)
    status = jnp.round(report.status).astype(jnp.int32)
    running_cost = jnp.sum(plan.units.on * offers.base_cost)
    power = {
        name: getattr(report, name.rsplit("_", 1)[0]) * base
        for name in ("p_from_mw", "q_from_mvar", "p_to_mw", "q_to_mvar", "shed_mw", "p_loss_mw", "overload_mva")
    }
    return AcOpfResult(
        unit_power_mw=plan.units.must_run + jnp.sum(blocks, axis=1),
        unit_reactive_mvar=report.q * base,
        block_mw=blocks,
        v_pu=report.v,
        angle_rad=report.theta,
        shed_mvar=report.shed_q * base,
        lmp=(report.lam_p + scarcity) * price,
        lmp_reactive=(report.lam_q + reactive_scarcity) * price,
        lmp_scarcity=scarcity * price,
        lmp_reactive_scarcity=reactive_scarcity * price,
        line_price_from=report.mu_from * price,
        line_price_to=report.mu_to * price,
        angle_price=report.mu_angle * plan.scale,
        generation_cost=running_cost + report.cost * plan.scale,
        objective=running_cost + (report.cost + report.shed_cost) * plan.scale,
        primal_residual=report.primal,
        dual_residual=report.dual,
        gap=report.gap,
        iterations=jnp.round(report.steps).astype(jnp.int32),
        status=jnp.where(fine, status, jnp.int32(OpfStatus.BAD_INPUT)),
        **power,
    )
