"""DC optimal power flow in reduced (PTDF) form, with its prices.

Variables are blocks of the units' offers, blocks of elastic demand, and by bus unserved load at VOLL and surplus at a
price, so that a problem with shedding always has a solution. One balance, and the flows of the branches that enter:

    minimise cost   subject to   sum p + shed - spill = load,   |PTDF (p + shed - spill - load) + f_0| <= rate

LMP_i = lam + sum_l PTDF_li mu_l + beta_i: the price of energy at the reference bus, what congestion adds, and what a
limit of shedding or spilling that moves with the load is worth. More load at a bus may be shed as well, and a smaller
negative load leaves less to spill: with the multipliers s >= 0 of those limits beta_i = -s_shed of a load, and +s_spill
of a negative one. Only with it a price is the derivative of the cost; without it load that is shed whole costs any
number above VOLL.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from typing import Annotated, Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import Array

from powerzoo_jax.base import struct
from powerzoo_jax.base.numerics import matmul
from powerzoo_jax.base.ranges import (
    BUDGET,
    FINITE,
    FLAG,
    LOWER,
    NOT_NEGATIVE,
    UPPER,
    WHOLE,
    axes,
    checks_ranges,
)
from powerzoo_jax.base.solver_mode import AUTO
from powerzoo_jax.opf.crossover import Towards
from powerzoo_jax.opf.dc.factors import DcOpfFactors
from powerzoo_jax.opf.offers import Offers
from powerzoo_jax.opf.qp import Qp, QpResult, solve_towards
from powerzoo_jax.opf.result import OpfStatus

VOLL = 10_000.0  # [USD/MWh]
SURPLUS_PRICE = 500.0  # [USD/MWh]
ROOM = {"float32": 1e-4, "float64": 1e-6}  # [pu] for shedding and spilling on the way to a vertex, which has none
OVERLOAD = {"float32": 1e-4, "float64": 1e-6}  # [pu] still accepted on a branch that did not enter


@struct.dataclass(kw_only=True)
class Bids:
    """Elastic demand: K blocks a bidder, bought as long as the price is below their value.

    bus:       (D,)    int32      position
    width_mw:  (D, K)  [MW]       0 = no such block
    price:     (D, K)  [USD/MWh]  value of the block; must not rise from block to block
    """

    bus: Annotated[Array, axes("D", kind=WHOLE, below="N")]
    width_mw: Annotated[Array, NOT_NEGATIVE, axes("D", "B")]
    price: Annotated[Array, FINITE, axes("D", "B")]


class UnitData(Protocol):
    """Data of the units in factors of either kind, (G,) each."""

    @property
    def committed(self) -> Array: ...

    @property
    def unit_bus(self) -> Array: ...

    @property
    def p_min_mw(self) -> Array: ...

    @property
    def p_max_mw(self) -> Array: ...


class DispatchVariables(NamedTuple):
    """Variables of the dispatch in MW, (n,) each: their buses, limits and costs."""

    bus: Array  # int32
    sign: Array  # +1 injects, -1 withdraws
    lo: Array
    hi: Array
    price: Array  # [USD/MWh]
    slope: Array  # [USD/MWh per MW]


class Running(NamedTuple):
    """Status and limits of the units as they run: (G,) each."""

    on: Array  # 1 or 0
    low: Array  # [MW] limits while on
    high: Array
    must_run: Array  # [MW] part below the blocks, 0 when off


def running_units(
    factors: UnitData, offers: Offers, commitment: Array | None, p_min_mw: Array | None, p_max_mw: Array | None
) -> Running:
    """Combine the limits of the case with those of the moment; an upper one below the lower one gives way."""
    on = factors.committed if commitment is None else factors.committed * commitment.astype(factors.committed.dtype)
    low = factors.p_min_mw if p_min_mw is None else jnp.maximum(factors.p_min_mw, p_min_mw)
    high = factors.p_max_mw if p_max_mw is None else jnp.minimum(factors.p_max_mw, p_max_mw)
    return Running(on, low, jnp.maximum(low, high), on * offers.base_mw)


def unit_columns(factors: UnitData, offers: Offers, units: Running) -> DispatchVariables:
    """Blocks (G K,) between the limits: those below the lower one are sold, those above the upper one are not."""
    end = offers.base_mw[:, None] + jnp.cumsum(offers.width_mw, axis=1)
    start = end - offers.width_mw
    on = units.on[:, None]
    return DispatchVariables(
        bus=jnp.repeat(factors.unit_bus, offers.width_mw.shape[1]),
        sign=jnp.ones(offers.width_mw.size, units.on.dtype),
        lo=(on * (jnp.clip(units.low[:, None], start, end) - start)).reshape(-1),
        hi=(on * (jnp.clip(units.high[:, None], start, end) - start)).reshape(-1),
        price=offers.price.reshape(-1),
        slope=offers.slope.reshape(-1),
    )


def bid_columns(bids: Bids) -> DispatchVariables:
    """Demand withdraws, and its value is a negative cost."""
    width = bids.width_mw.reshape(-1)
    zero = jnp.zeros_like(width)
    bus = jnp.repeat(bids.bus, bids.width_mw.shape[1])
    return DispatchVariables(bus, zero - 1, zero, width, -bids.price.reshape(-1), zero)


def shed_columns(load_mw: Array, voll: Array) -> DispatchVariables:
    """Unserved load of every bus, up to its load."""
    zero = jnp.zeros_like(load_mw)
    bus = jnp.arange(load_mw.shape[0], dtype=jnp.int32)
    most = jnp.where(load_mw >= 0, load_mw, 0)  # without load its derivative is that of more load
    return DispatchVariables(bus, zero + 1, zero, most, jnp.broadcast_to(voll, zero.shape), zero)


def spill_columns(factors: DcOpfFactors, load_mw: Array, units: Running, price: Array) -> DispatchVariables:
    """Surplus, up to the must-run output and the negative load of a bus."""
    must_run = sum_at_buses(factors, factors.unit_bus, units.on * units.low)
    most = (jnp.maximum(must_run, 0) + jnp.where(load_mw < 0, -load_mw, 0))[factors.spill_bus]
    zero = jnp.zeros_like(most)
    return DispatchVariables(factors.spill_bus, zero - 1, zero, most, jnp.broadcast_to(price, zero.shape), zero)


def join_columns(parts: list[DispatchVariables]) -> DispatchVariables:
    """All variables in one row, in the order given."""
    return DispatchVariables(*(jnp.concatenate(columns) for columns in zip(*parts, strict=True)))


def sum_at_buses(factors: DcOpfFactors, bus: Array, value: Array) -> Array:
    """Sum over what stands at each bus, (N,)."""
    return jnp.zeros_like(factors.shunt_mw).at[bus].add(value)


def network_programme(factors: DcOpfFactors, columns: DispatchVariables, fixed_mw: Array, rate_mva: Array) -> Qp:
    """Balance and flow limits in per unit; `fixed_mw` (N,) is what is injected whatever the variables do."""
    base = factors.base_mva
    ptdf = factors.ptdf[factors.rows]
    flow = (matmul(ptdf, fixed_mw) + factors.flow_0[factors.rows]) / base
    rate = rate_mva[factors.rows]
    limit = jnp.where(rate > 0, rate / base, jnp.inf)
    need = (jnp.sum(factors.shunt_mw) - jnp.sum(fixed_mw))[None] / base
    return Qp(
        a=jnp.concatenate([columns.sign[None, :], ptdf[:, columns.bus] * columns.sign[None, :]]),
        q=columns.slope * base * base,
        c=columns.price * base,
        lo=columns.lo / base,
        hi=columns.hi / base,
        row_lo=jnp.concatenate([need, -limit - flow]),
        row_hi=jnp.concatenate([need, limit - flow]),
    )


def add_reserve(qp: Qp, n_unit_columns: int, spare: Array, need: Array, price: Array) -> Qp:
    """One more row, sum of blocks - missing <= spare, and one more column, the missing reserve; all per unit."""
    n = qp.c.shape[0]
    zero = jnp.zeros((), qp.c.dtype)
    row = (jnp.arange(n) < n_unit_columns).astype(qp.c.dtype)
    a = jnp.concatenate([qp.a, row[None]])
    column = jnp.zeros(a.shape[0], qp.c.dtype).at[-1].set(-1)
    return Qp(
        a=jnp.concatenate([a, column[:, None]], axis=1),
        q=jnp.append(qp.q, zero),
        c=jnp.append(qp.c, price),
        lo=jnp.append(qp.lo, zero),
        hi=jnp.append(qp.hi, jnp.maximum(need, 0)),
        row_lo=jnp.append(qp.row_lo, jnp.full((), -jnp.inf, qp.c.dtype)),
        row_hi=jnp.append(qp.row_hi, spare),
    )


@struct.dataclass(kw_only=True)
class DcOpfResult:
    """Optimal dispatch of one network with its prices and its proof.

    unit_power_mw:    (G,)    [MW]
    block_mw:         (G, K)  [MW]       sold of each block, above the minimum output
    bid_mw:           (D, K)  [MW]       bought of each block of elastic demand, (0, 0) without bids
    line_flow_mw:     (L,)    [MW]       of all branches, from -> to
    injection_mw:     (N,)    [MW]       net of load, after shedding and spilling
    shed_mw, spill_mw: (N,)   [MW]
    lmp:              (N,)    [USD/MWh]  d(objective) / d(load); without load that of more load
    lmp_energy:       ()      [USD/MWh]  the part of all buses: the multiplier of the balance
    lmp_congestion:   (N,)    [USD/MWh]  the part of the line limits
    lmp_scarcity:     (N,)    [USD/MWh]  the part of the limits of shedding, <= 0, and of spilling, >= 0
    line_price:       (L,)    [USD/MWh]  value of one more MW of rating, >= 0
    reserve_price:    ()      [USD/MWh]  cost of one more MW of required reserve
    reserve_short_mw: ()      [MW]
    generation_cost:  ()      [USD/h]    of the offers
    objective:        ()      [USD/h]    with unserved load, surplus, missing reserve, less the value of bids
    overload_mw:      ()      [MW]       largest excess over a rating, of all branches
    primal_residual:  ()      [pu]       largest violation of the balance or of a limit that entered
    dual_residual:    ()      [-]        of stationarity, relative to the largest price
    gap:              ()      [-]        relative duality gap
    iterations:       ()      int32
    status:           ()      int32      `OpfStatus`
    multipliers:      (1+R,)  [USD/MWh]  of balance and rows (and reserve); of INFEASIBLE a certificate
    """

    unit_power_mw: Array
    block_mw: Array
    bid_mw: Array
    line_flow_mw: Array
    injection_mw: Array
    shed_mw: Array
    spill_mw: Array
    lmp: Array
    lmp_energy: Array
    lmp_congestion: Array
    lmp_scarcity: Array
    line_price: Array
    reserve_price: Array
    reserve_short_mw: Array
    generation_cost: Array
    objective: Array
    overload_mw: Array
    primal_residual: Array
    dual_residual: Array
    gap: Array
    iterations: Array
    status: Array
    multipliers: Array

    @property
    def optimal(self) -> Array:
        """() bool."""
        return self.status == OpfStatus.OPTIMAL


@checks_ranges("dc_opf")
def dc_opf(
    factors: DcOpfFactors,
    load_mw: Annotated[Array, FINITE, axes("N")],
    *,
    offers: Offers | None = None,
    bids: Bids | None = None,
    commitment: Annotated[Array, axes("G", kind=FLAG)] | None = None,
    p_min_mw: Annotated[Array, LOWER, axes("G")] | None = None,
    p_max_mw: Annotated[Array, UPPER, axes("G")] | None = None,
    rate_mva: Annotated[Array, BUDGET, axes("L")] | None = None,
    voll: Annotated[float | Array, NOT_NEGATIVE, axes()] = VOLL,
    surplus_price: Annotated[float | Array, FINITE, axes()] = SURPLUS_PRICE,
    reserve_mw: Annotated[float | Array, NOT_NEGATIVE, axes()] | None = None,
    reserve_price: Annotated[float | Array, NOT_NEGATIVE, axes()] = VOLL,
    shedding: bool = True,
    vertex: bool = True,
    solver: str = AUTO,
) -> DcOpfResult:
    """Dispatch at least cost; vmap it for many scenarios.

    factors:             from `prepare_dc_opf`; share them (in_axes=None)
    load_mw:             (N,) [MW]
    offers:              what units ask; None takes the true costs of the case
    bids:                elastic demand beside load_mw; None = none
    commitment:          (G,) bool or 0/1: units that run; one out of service in the case never runs
    p_min_mw, p_max_mw:  (G,) [MW] limits inside those of the case, such as ramp windows
    rate_mva:            (L,) [MW] ratings instead of those of the factors; the same branches enter
    voll, surplus_price: () [USD/MWh]
    reserve_mw:          () [MW] headroom that the running units must keep together; missing reserve costs
                         reserve_price () [USD/MWh]
    shedding:            False leaves out unserved load and surplus: a load that cannot be served is INFEASIBLE
    vertex:              True moves on from the interior point to a vertex, where prices are exact; False stays, which
                         is faster: prices are then off by the gap, and at a kink those of the central path
    solver:              "auto", "adaptive" or "fixed", as in `solve_qp`

    Returns a DcOpfResult; compiled, nothing raises or is NaN. Surplus is spilled from must-run output and negative
    load: a unit above its minimum is lowered first, which is never dearer while marginal costs exceed -surplus_price.
    Of buses without load prices are those of more load at all of them together, at another kink they lie between both
    sides. Differentiable once, forward and reverse; at a kink derivatives of prices are those of the central path.
    """
    options = _Options(
        offers, bids, commitment, p_min_mw, p_max_mw, rate_mva, voll, surplus_price, reserve_mw, reserve_price, shedding
    )
    fine, load, options = _cleaned(load_mw, options)
    plan = _plan(factors, load, options)
    found = solve_towards(plan.qp, _more_load(factors, plan, shedding) if vertex else None, solver=solver)
    out = _result(factors, plan, options, found)
    return replace(out, status=jnp.where(fine, out.status, jnp.int32(OpfStatus.BAD_INPUT)))


@checks_ranges("dc_programme", options=dc_opf)
def dc_programme(factors: DcOpfFactors, load_mw: Annotated[Array, FINITE, axes("N")], **options: Any) -> Qp:
    """The programme `dc_opf` solves for the same arguments, load (N,) [MW] first; for audits, see `opf.qp`."""
    return _plan(factors, load_mw, _Options(**options)).qp


class _Options(NamedTuple):
    """Keyword arguments of `dc_opf`."""

    offers: Offers | None = None
    bids: Bids | None = None
    commitment: Array | None = None
    p_min_mw: Array | None = None
    p_max_mw: Array | None = None
    rate_mva: Array | None = None
    voll: float | Array = VOLL
    surplus_price: float | Array = SURPLUS_PRICE
    reserve_mw: float | Array | None = None
    reserve_price: float | Array = VOLL
    shedding: bool = True


def _cleaned(load_mw: Array, options: _Options) -> tuple[Array, Array, _Options]:
    """Flag that every input is a number, and the inputs with 0 for those that are not: NaN would spread."""
    leaves, form = jax.tree.flatten((load_mw, options))
    # a limit may be infinite, a load may not; entry by entry, so that what lanes share stays shared
    real = [isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jnp.floating) for x in leaves]
    good = [~jnp.isnan(x) if is_real else jnp.asarray(True) for x, is_real in zip(leaves, real, strict=True)]
    good[0] = jnp.isfinite(load_mw)
    fine = jnp.all(jnp.stack([jnp.all(ok) for ok in good]))
    cleaned = [jnp.where(ok, x, 0) if is_real else x for ok, x, is_real in zip(good, leaves, real, strict=True)]
    load, kept = jax.tree.unflatten(form, cleaned)
    return fine, load, kept


class _DcOpfPlan(NamedTuple):
    """Programme of a DC-OPF and the meaning of its variables."""

    qp: Qp
    parts: list[DispatchVariables]
    units: Running
    offers: Offers
    load: Array
    fixed: Array
    rate: Array


def _plan(factors: DcOpfFactors, load_mw: Array, options: _Options) -> _DcOpfPlan:
    dtype, base = load_mw.dtype, factors.base_mva
    offers = factors.offers if options.offers is None else options.offers
    units = running_units(factors, offers, options.commitment, options.p_min_mw, options.p_max_mw)
    parts = [unit_columns(factors, offers, units)]
    if options.bids is not None:
        parts.append(bid_columns(options.bids))
    if options.shedding:
        parts.append(shed_columns(load_mw, jnp.asarray(options.voll, dtype)))
        parts.append(spill_columns(factors, load_mw, units, jnp.asarray(options.surplus_price, dtype)))
    fixed = sum_at_buses(factors, factors.unit_bus, units.must_run) - load_mw
    rate = factors.rate_mva if options.rate_mva is None else options.rate_mva
    qp = network_programme(factors, join_columns(parts), fixed, rate)
    if options.reserve_mw is not None:
        need = jnp.asarray(options.reserve_mw, dtype)
        spare = jnp.sum(units.on * units.high - units.must_run) - need
        price = jnp.asarray(options.reserve_price, dtype) * base
        qp = add_reserve(qp, parts[0].bus.size, spare / base, need / base, price)
    return _DcOpfPlan(qp, parts, units, offers, load_mw, fixed, rate)


def _result(factors: DcOpfFactors, plan: _DcOpfPlan, options: _Options, found: QpResult) -> DcOpfResult:
    base, offers, units, fixed = factors.base_mva, plan.offers, plan.units, plan.fixed
    columns = join_columns(plan.parts)
    cuts = list(accumulate(part.bus.size for part in plan.parts))
    x = found.x * base
    pieces = jnp.split(x, cuts)
    blocks = pieces[0].reshape(offers.price.shape)
    none = jnp.zeros_like(fixed)
    injection = fixed + sum_at_buses(factors, columns.bus, columns.sign * x[: cuts[-1]])
    flow = matmul(factors.ptdf, injection) + factors.flow_0
    overload = jnp.max(jnp.where(plan.rate > 0, jnp.abs(flow) - plan.rate, 0), initial=0)
    line, energy, congestion = _prices(factors, found.row_price / base)
    scarcity = _scarcity(factors, plan.load, jnp.split(found.bound_price / base, cuts)) if options.shedding else none
    must_run_cost = jnp.sum(units.on * offers.base_cost)
    reserve = options.reserve_mw is not None
    zero = jnp.zeros((), fixed.dtype)
    unchecked = (found.status == OpfStatus.OPTIMAL) & (overload > OVERLOAD[fixed.dtype.name] * base)
    return DcOpfResult(
        unit_power_mw=units.must_run + jnp.sum(blocks, axis=1),
        block_mw=blocks,
        bid_mw=none[:0, None] if options.bids is None else pieces[1].reshape(options.bids.price.shape),
        line_flow_mw=flow,
        injection_mw=injection,
        shed_mw=pieces[-3] if options.shedding else none,
        spill_mw=none.at[factors.spill_bus].set(pieces[-2]) if options.shedding else none,
        lmp=energy + congestion + scarcity,
        lmp_energy=energy,
        lmp_congestion=congestion,
        lmp_scarcity=scarcity,
        line_price=line,
        reserve_price=-found.row_price[-1] / base if reserve else zero,
        reserve_short_mw=x[-1] if reserve else zero,
        generation_cost=must_run_cost + jnp.sum((offers.price + 0.5 * offers.slope * blocks) * blocks),
        objective=must_run_cost + found.objective,
        overload_mw=overload,
        primal_residual=found.primal_residual,
        dual_residual=found.dual_residual,
        gap=found.gap,
        iterations=found.iterations,
        status=jnp.where(unchecked, jnp.int32(OpfStatus.ROW_MISSING), found.status),
        multipliers=found.row_price / base,
    )


def _prices(factors: DcOpfFactors, multipliers: Array) -> tuple[Array, Array, Array]:
    """Line prices (L,), price of energy () and of congestion (N,)."""
    limits = multipliers[1 : 1 + factors.rows.shape[0]]
    line = jnp.zeros_like(factors.flow_0).at[factors.rows].set(jnp.abs(limits))
    return line, multipliers[0], matmul(factors.ptdf[factors.rows].T, limits)


def _scarcity(factors: DcOpfFactors, load: Array, reduced: list[Array]) -> Array:
    """Worth of the limits of shedding and spilling that move with the load, (N,), from the reduced costs by part."""
    shed, spill = (jnp.minimum(part, 0) for part in reduced[-3:-1])
    spilled = jnp.zeros_like(load).at[factors.spill_bus].set(-spill)
    return jnp.where(load >= 0, shed, spilled)


def _more_load(factors: DcOpfFactors, plan: _DcOpfPlan, shedding: bool) -> Towards:
    """More load at every bus without one, and as much more that may be shed: what prices are derivatives towards.

    Where nobody takes power, or nobody gives any, all is held by its limits and multipliers could be any number: a
    little room for shedding and spilling bounds them on the way to the vertex.
    """
    more = (plan.load == 0).astype(plan.load.dtype)
    rows = jnp.concatenate([jnp.sum(more)[None], matmul(factors.ptdf[factors.rows], more)])
    m, n = plan.qp.a.shape
    none = jnp.zeros(n, more.dtype)
    hi, room = none, none
    if shedding:
        begin = sum(part.bus.size for part in plan.parts[:-2])
        end = begin + sum(part.bus.size for part in plan.parts[-2:])
        hi = none.at[begin : begin + more.size].set(more)
        room = none.at[begin:end].set(ROOM[more.dtype.name])
    return Towards(jnp.pad(rows, (0, m - rows.size)), hi, room)
