"""Reactive power limits of PV buses: an outer loop around `solve_meshed` that also releases a bus from its limit.

Textbook symbols: x = ln|V| of the m PV buses, F(x) the reactive power of their units [pu], J = dF/dx. At every bus

    x = x_set and q_min <= F <= q_max,   or   F = q_max and x <= x_set,   or   F = q_min and x >= x_set

A bus at a limit stays a bus that holds its magnitude, at the voltage where F is the limit: the state that a switch from
PV to PQ has, with the factors of the network unchanged. With D the diagonal of J, F - D (x - x_set) beyond a limit says
which of the three holds, in both directions (semi-smooth Newton, Qi and Sun 1993, doi:10.1007/BF01581275); J follows
the solves by Broyden's update (1965, doi:10.1090/S0025-5718-1965-0198670-6).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.custom_derivatives import SymbolicZero

from powerzoo_jax.base import elimination, struct
from powerzoo_jax.base.errors import SolverError
from powerzoo_jax.base.host import on_host
from powerzoo_jax.base.numerics import anywhere, matmul
from powerzoo_jax.base.ranges import FINITE, NOT_NEGATIVE, Count, axes, checks_ranges, unchecked
from powerzoo_jax.base.solver_mode import ADAPTIVE, AUTO, FIXED, NATIVE, by_mode, check_mode
from powerzoo_jax.cases import Case
from powerzoo_jax.powerflow.batching import batched_shell
from powerzoo_jax.powerflow.implicit import sweep
from powerzoo_jax.powerflow.meshed.base_case import admittance, factored, held_buses, power_slope, unknown_rows
from powerzoo_jax.powerflow.meshed.factors import MeshedFactors
from powerzoo_jax.powerflow.meshed.slack import base_magnitude
from powerzoo_jax.powerflow.meshed.solve import MeshedResult, results_of, solve_meshed
from powerzoo_jax.powerflow.native.library import in_kernel
from powerzoo_jax.powerflow.native.solve import BoundedState, read_flows, solve_bounded
from powerzoo_jax.powerflow.result import Status

ROUNDS = 30
FIXED_ROUNDS = 8  # where their number is fixed: every limit met moves the others' buses once more
TOL = {"float32": 3e-7, "float64": 1e-10}  # [-] change of ln|V| still asked for at which a lane stops
SWEEP_TOL = {"float32": 1e-6, "float64": 1e-12}  # of a derivative: each product is itself good to 1e-13
STRIDE = 0.1  # largest change of ln|V| in a round


@struct.dataclass(kw_only=True)
class ReactiveLimits:
    """Limits of the PV buses of one network (the slack is none of them), summed over the units in service of each.

    bus:           (m,)    int32  positions
    q_min, q_max:  (m,)    [pu]   may be infinite
    slope:         (m, m)  [pu]   dF/dx at the base voltage
    unit:          (g,)    int32  position in the case of every unit in service at these buses
    at:            (g,)    int32  which of the m buses it stands at
    start, share:  (g,)    [pu], [-]  its output where the bus gives the sum of `start`, and its part of the rest
    """

    bus: Array
    q_min: Array
    q_max: Array
    slope: Array
    unit: Array
    at: Array
    start: Array
    share: Array

    AXES: ClassVar = {"m": "bus"}


class ReactiveResult(NamedTuple):
    """A power flow within limits.

    flow:      MeshedResult; `iterations` sums the rounds, `status` is CONVERGED only where limits are settled too
    solved:    ()    bool   `flow` is a power flow, be it for other set-points where limits are not settled
    at_limit:  (m,)  int32  -1 at the lower limit, 1 at the upper one, 0 where the bus holds its set-point
    q_pv:      (m,)  [pu]   reactive power of the units of each PV bus
    rounds:    ()    int32  power flows solved
    """

    flow: MeshedResult
    solved: Array
    at_limit: Array
    q_pv: Array
    rounds: Array


@on_host
def prepare_reactive(case: Case, factors: MeshedFactors) -> ReactiveLimits:
    """Collect what `solve_within_reactive_limits` needs: limits and sensitivities of the PV buses.

    case:     the case that `factors` was prepared from

    Raises SolverError when the two do not belong together.
    """
    held = held_buses(case)
    held[case.slack_bus] = False
    mine = np.array(factors.held)
    mine[np.asarray(factors.slack)] = False
    if mine.shape != held.shape or (mine != held).any():
        raise SolverError(
            f"The factors have {mine.sum()} PV buses among {mine.size}, {case.name} has {held.sum()} among "
            f"{held.size}. Give the case that the factors were prepared from."
        )
    bus, unit = np.flatnonzero(held), case.unit
    position = case.positions(unit.bus_id)
    rows = np.flatnonzero(unit.in_service & held[position])
    at = np.searchsorted(bus, position[rows])
    low, high = unit.q_min_mvar[rows] / case.base_mva, unit.q_max_mvar[rows] / case.base_mva
    start, share = _shares(low, high, at, len(bus))
    dtype = factors.v_base.dtype
    with jax.enable_x64(True):
        v = np.asarray(factors.v_base, float) @ np.array([1, 1j])
        numbers = dict(q_min=_sums(low, at, len(bus)), q_max=_sums(high, at, len(bus)), start=start, share=share)
        return ReactiveLimits(
            slope=jnp.asarray(_reactive_slope(case, v, bus), dtype),
            **{name: jnp.asarray(x, jnp.int32) for name, x in dict(bus=bus, unit=rows, at=at).items()},
            **{name: jnp.asarray(x, dtype) for name, x in numbers.items()},
        )


def _sums(x: np.ndarray, at: np.ndarray, size: int) -> np.ndarray:
    return np.bincount(at, x, size)


def _shares(low: np.ndarray, high: np.ndarray, at: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Start and share of every unit: from the lower limit in proportion to the range.

    At a bus with an infinite limit the units that have one share alike, the others stay as near to zero as they can.
    """
    bounded = np.isfinite(low) & np.isfinite(high)
    whole = _sums((~bounded).astype(float), at, size)[at] == 0
    start = np.where(whole, np.where(bounded, low, 0.0), np.clip(0.0, low, high))
    width = np.where(bounded, high - np.where(bounded, low, 0.0), 1.0)
    weight = np.where(whole, width, (~bounded).astype(float))
    # units without any range share alike what rounding leaves
    weight = np.where(_sums(weight, at, size)[at] > 0, weight, 1.0)
    return start, weight / _sums(weight, at, size)[at]


def _reactive_slope(case: Case, v: np.ndarray, bus: np.ndarray) -> np.ndarray:
    """dQ/dln|V| of some buses (m, m) with every other injection constant: a Schur complement of the Jacobian."""
    rows = unknown_rows(case)[0]
    full = power_slope(admittance(case), v, rows, rows)[0].tocsr()
    mine = len(rows) + np.searchsorted(rows, bus)
    rest = np.setdiff1d(np.arange(full.shape[0]), mine)
    far = factored(case, full[rest][:, rest].tocsc()).solve(full[rest][:, mine].toarray())
    return np.asarray(full[mine][:, mine].toarray() - full[mine][:, rest] @ far)


@checks_ranges("split_reactive")
def split_reactive(limits: ReactiveLimits, q_pv: Annotated[Array, FINITE, axes("m")]) -> Array:
    """Reactive power (g,) [pu] of every unit of `limits.unit`, from that of its bus (m,); adds up to it."""
    total = jnp.zeros_like(q_pv).at[limits.at].add(limits.start)
    return limits.start + limits.share * (q_pv - total)[limits.at]


class ReactiveLimitIteration(NamedTuple):
    """State of the outer loop.

    v, step:           (m,)  magnitudes of the next solve, and ln of them over those of the last that succeeded
    v_known, q_known:  (m,)  magnitudes and reactive power of that one
    slope:             (m, m)
    settled, lost:     ()    bool, ends the loop: within limits, or without a power flow to begin with
    flow:              MeshedResult of the last solve that succeeded
    """

    rounds: Array
    v: Array
    step: Array
    v_known: Array
    q_known: Array
    slope: Array
    at_limit: Array
    settled: Array
    lost: Array
    flow: MeshedResult


@checks_ranges("solve_within_reactive_limits")
def solve_within_reactive_limits(
    factors: MeshedFactors,
    limits: ReactiveLimits,
    p_pu: Annotated[Array, FINITE, axes("N", told=True)],
    q_pu: Annotated[Array, FINITE, axes("N", told=True)],
    v_set_pu: Annotated[Array, NOT_NEGATIVE, axes("N", told=True)] | None = None,
    *,
    rounds: Count = ROUNDS,
    solver: str = AUTO,
) -> ReactiveResult:
    """Solve the power flow of one scenario with PV buses kept within their reactive limits; vmap it for many.

    factors:   from `prepare_meshed`                  limits:  from `prepare_reactive`
    p_pu:      (N,) [pu] net injections; ignored at the slack
    q_pu:      (N,) [pu] net injections of everything but the units that hold a voltage: at a PV bus its load and
               devices only, so that the units give what is missing to the injection of the bus
    v_set_pu:  (N,) [pu] set-points of the buses that hold theirs; None keeps the base state's
    rounds:    power flows at most, one per round
    solver:    "auto", "native", "adaptive" or "fixed" as for `solve_meshed`; fixed takes 8 rounds

    A bus at a limit comes back when its voltage passes the set-point on the far side. The slack has no limit.
    Returns a ReactiveResult; compiled, nothing raises or is NaN. A lane that does not settle is OUT_OF_STEPS: its flow
    is a solution for other set-points, with reactive power outside the limits of some buses.
    Differentiable forward and reverse in everything but `rounds`, with the buses at their limits kept there: a
    derivative is that of the side on which the state lies.
    """
    v_set = base_magnitude(factors) if v_set_pu is None else v_set_pu
    given = ReactiveLimitInputs(factors, limits, p_pu, q_pu, v_set)
    return _settled(given, jnp.asarray(rounds, jnp.int32), check_mode(solver, NATIVE))[0]


class ReactiveLimitInputs(NamedTuple):
    """Inputs on which the state within limits depends, arguments of `solve_within_reactive_limits`."""

    factors: MeshedFactors
    limits: ReactiveLimits
    p: Array
    q: Array
    v_set: Array

    def flow(self, v: Array, solver: str) -> MeshedResult:
        """The power flow with the PV buses at magnitudes v (m,)."""
        return unchecked(solve_meshed)(
            self.factors, self.p, self.q, self.v_set.at[self.limits.bus].set(v), solver=solver
        )

    def reactive(self, flow: MeshedResult) -> Array:
        """Reactive power (m,) of the units of the PV buses."""
        return flow.q_bus[self.limits.bus] - self.q[self.limits.bus]


@functools.partial(jax.custom_jvp, nondiff_argnums=(2,))
def _settled(given: ReactiveLimitInputs, rounds: Array, mode: str) -> tuple[ReactiveResult, Array, Array]:
    """The outer loop: the result, the magnitudes (m,) of the PV buses, and the slope dF/dx (m, m) learnt on the way."""
    if mode == AUTO and given.factors.native is not None and given.factors.core.blocks is None:
        mode = NATIVE
    if mode == NATIVE:
        end = _in_kernel(given, rounds)
    else:
        cpu = _adaptive if mode != AUTO or given.factors.native is None else _in_kernel
        end = by_mode(mode, cpu, functools.partial(_fixed, rest=mode == AUTO), given, rounds)
    solved = end.flow.status == Status.CONVERGED
    status = jnp.where(solved & ~end.settled, jnp.int32(Status.OUT_OF_STEPS), end.flow.status)
    flow = dataclasses.replace(end.flow, status=status)
    result = ReactiveResult(flow, solved, end.at_limit, end.q_known, end.rounds)
    return result, end.v_known, end.slope


def _adaptive(given: ReactiveLimitInputs, rounds: Array) -> ReactiveLimitIteration:
    return _until_done(given, rounds, ADAPTIVE, jnp.linalg.solve)


def _in_kernel(given: ReactiveLimitInputs, rounds: Array) -> ReactiveLimitIteration:
    """The compiled kernel, which switches the limits of every lane by itself."""
    found: ReactiveLimitIteration = _kernel_shell()((given.factors, given.limits, rounds), *given[2:])
    return found


@functools.cache
def _kernel_shell() -> Any:
    def solve(prepared: Any, p: Array, q: Array, v_set: Array) -> ReactiveLimitIteration:
        factors, limits, rounds = prepared
        bounds = (limits.q_min, limits.q_max)
        found = solve_bounded(factors.native, (p, q, v_set), limits.bus, bounds, factors.held, rounds)
        flows = read_flows(factors, (p, found.q), found.state, holds=found.holds)
        flow = results_of(factors, p, found.state, flows)
        finish = jax.vmap(lambda found, flow, *lane: _found(ReactiveLimitInputs(factors, limits, *lane), found, flow))
        return finish(found, flow, p, q, v_set)  # type: ignore[no-any-return]

    def one(of: Any, *lane: Array) -> ReactiveLimitIteration:
        return _adaptive(ReactiveLimitInputs(*of[:2], *lane), of[2])

    def plain(prepared: Any, *lanes: Array) -> ReactiveLimitIteration:
        return jax.vmap(one, in_axes=(None, 0, 0, 0))(prepared, *lanes)  # type: ignore[no-any-return]

    def core(prepared: Any, *lanes: Array) -> ReactiveLimitIteration:
        blocks = prepared[0].core.blocks
        return in_kernel(solve, None if blocks is None else plain, prepared, *lanes)  # type: ignore[no-any-return]

    def own(prepared: Any, *lanes: Array) -> ReactiveLimitIteration:
        return jax.vmap(one)(prepared, *lanes)  # type: ignore[no-any-return]

    return batched_shell(core, own)


def _found(given: ReactiveLimitInputs, found: BoundedState, flow: MeshedResult) -> ReactiveLimitIteration:
    """The end of the loop from what the kernel found in one scenario."""
    limits, at = given.limits, found.at_limit
    solved = flow.status == Status.CONVERGED
    v = jnp.where((at == 0) & solved, given.v_set[limits.bus], flow.v_pu[limits.bus])
    return ReactiveLimitIteration(
        rounds=found.rounds,
        v=v,
        step=jnp.zeros_like(v),
        v_known=v,
        q_known=jnp.where(solved, given.reactive(flow), 0),
        slope=limits.slope,
        at_limit=at,
        settled=found.settled != 0,
        lost=~solved,
        flow=flow,
    )


def _until_done(
    given: ReactiveLimitInputs, rounds: Array, solver: str, linear: Callable[[Array, Array], Array]
) -> ReactiveLimitIteration:
    """Rounds until limits are settled."""
    going = lambda c: (c.rounds < rounds) & ~c.settled & ~c.lost  # noqa: E731
    advance = functools.partial(_round, given, solver, linear)
    end: ReactiveLimitIteration = lax.while_loop(going, advance, _before(given))
    return end


def _fixed(given: ReactiveLimitInputs, rounds: Array, *, rest: bool) -> ReactiveLimitIteration:
    """A fixed number of rounds of fixed power flows; with `rest` lanes that are left start again after one question."""

    def advance(_: int, c: ReactiveLimitIteration) -> ReactiveLimitIteration:
        done = (c.rounds >= rounds) | c.settled | c.lost
        new = _round(given, FIXED, _eliminate, c)
        return jax.tree.map(functools.partial(jnp.where, done), c, new)  # type: ignore[no-any-return]

    found: ReactiveLimitIteration = lax.fori_loop(0, FIXED_ROUNDS, advance, _before(given))
    if not rest:
        return found
    left = ~found.settled & (rounds > 0)

    def again() -> ReactiveLimitIteration:
        new = _until_done(given, jnp.where(left, rounds, 0), AUTO, _eliminate)
        return jax.tree.map(functools.partial(jnp.where, left), new, found)  # type: ignore[no-any-return]

    solved: ReactiveLimitIteration = lax.cond(anywhere(left), again, lambda: found)
    return solved


def _round(
    given: ReactiveLimitInputs, solver: str, linear: Callable[[Array, Array], Array], c: ReactiveLimitIteration
) -> ReactiveLimitIteration:
    """One power flow, and the magnitudes that the next one takes."""
    limits, hold = given.limits, given.v_set[given.limits.bus]
    flow = given.flow(c.v, solver)
    q = given.reactive(flow)
    solved = (flow.status == Status.CONVERGED) & jnp.all(jnp.isfinite(q))
    slope = jnp.where(solved, _secant(c.slope, c.step, q - c.q_known), c.slope)
    at_limit, final, move = _judge(limits, linear, slope, c.at_limit, c.v, hold, q)
    v_known = jnp.where(solved, c.v, c.v_known)
    # no power flow there: half the way
    step = jnp.where(solved, move, 0.5 * c.step)
    first = c.rounds == 0
    kept = jax.tree.map(lambda new, old: jnp.where(solved | first, new, old), flow, c.flow)
    return ReactiveLimitIteration(
        rounds=c.rounds + 1,
        v=v_known * jnp.exp(step),
        step=step,
        v_known=v_known,
        q_known=jnp.where(solved, q, c.q_known),
        slope=slope,
        at_limit=jnp.where(solved, at_limit, c.at_limit),
        settled=solved & final & (jnp.max(jnp.abs(move), initial=0) <= TOL[q.dtype.name]),
        lost=~solved & first,
        flow=dataclasses.replace(kept, iterations=c.flow.iterations + flow.iterations),
    )


def _before(given: ReactiveLimitInputs) -> ReactiveLimitIteration:
    """State before the first round: every bus at its set-point."""
    hold = given.v_set[given.limits.bus]
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(lambda v: given.flow(v, FIXED), hold))
    return ReactiveLimitIteration(
        rounds=jnp.int32(0),
        v=hold,
        step=jnp.zeros_like(hold),
        v_known=hold,
        q_known=jnp.zeros_like(hold),
        slope=given.limits.slope,
        at_limit=jnp.zeros(hold.shape, jnp.int32),
        settled=jnp.bool_(False),
        lost=jnp.bool_(False),
        flow=nothing,
    )


@functools.partial(_settled.defjvp, symbolic_zeros=True)
def _(mode: str, primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
    """Tangent of `_settled` from F(x) = limit at the buses at a limit and x = x_set at the others; the sets stay.

    The slope of the loop steers sweeps with the true one; where they stall the true one is built column by column.
    """
    given, rounds = primals
    out = _settled(given, rounds, mode)
    result, v, slope = out
    limits, limited = given.limits, result.at_limit != 0
    moving = {
        key: value
        for key, value in tangents[0]._asdict().items()
        if not all(_is_zero(t) for t in jax.tree.leaves(value, is_leaf=_is_zero))
    }

    def equations(theta: dict[str, Any], x: Array) -> tuple[MeshedResult, Array, Array]:
        now = given._replace(**theta)
        flow = now.flow(jnp.exp(x), mode)
        q = now.reactive(flow)
        edge = jnp.where(result.at_limit > 0, now.limits.q_max, now.limits.q_min)
        missing = jnp.where(limited, q - jnp.where(limited, edge, 0), x - jnp.log(now.v_set[limits.bus]))
        return flow, q, missing

    theta = {key: getattr(given, key) for key in moving}
    _, linear = jax.linearize(equations, theta, jnp.log(v))
    d_theta = {key: jax.tree.map(_whole, tangent, theta[key], is_leaf=_is_zero) for key, tangent in moving.items()}
    still = jax.tree.map(lambda x: np.zeros(x.shape, jax.dtypes.float0) if _is_int(x) else jnp.zeros_like(x), theta)

    def apply(dx: Array) -> Array:
        return linear(still, dx)[2]  # type: ignore[no-any-return]

    known = by_mode(
        mode, jnp.linalg.inv, elimination.inverse, jnp.where(limited[:, None], slope, jnp.eye(v.size, dtype=v.dtype))
    )
    turned = jax.linear_transpose(apply, v)
    dx = lax.custom_linear_solve(
        apply,
        -linear(d_theta, jnp.zeros_like(v))[2],
        solve=lambda _, b: _solve(mode, apply, known, b),
        transpose_solve=lambda _, b: _solve(mode, lambda w: turned(w)[0], known.T, b),
    )
    d_flow, d_q, _ = linear(d_theta, dx)
    solved, at_limit, count = (
        np.zeros(x.shape, jax.dtypes.float0) for x in (result.solved, result.at_limit, result.rounds)
    )
    moved: Any = ReactiveResult(d_flow, solved, at_limit, d_q, count)  # type: ignore[arg-type]
    return out, (moved, v * dx, jnp.zeros_like(slope))


def _eliminate(matrix: Array, right: Array) -> Array:
    """Solution (m,) in array operations; a network without PV buses has nothing to solve."""
    return elimination.solve(matrix, right) if right.size else right


def _solve(mode: str, apply: Callable[[Array], Array], known: Array, b: Array) -> Array:
    """Solution of apply(x) = b (m,) with an approximate inverse of it; where the sweeps stall, column by column."""
    if b.size == 0:  # a network without PV buses
        return b

    def direct() -> Array:
        columns = jax.vmap(apply, out_axes=1)(jnp.eye(b.size, dtype=b.dtype))
        found: Array = by_mode(mode, jnp.linalg.solve, _eliminate, columns, b)
        return found

    return sweep(lambda x: x + matmul(known, b - apply(x)), matmul(known, b), direct, SWEEP_TOL[b.dtype.name])


def _is_zero(x: Any) -> bool:
    return isinstance(x, SymbolicZero)


def _is_int(x: Array) -> bool:
    return not jnp.issubdtype(x.dtype, jnp.floating)


def _whole(tangent: Any, like: Array) -> Any:
    """A tangent in full; of whole numbers and masks it is none."""
    if _is_int(like):
        return np.zeros(like.shape, jax.dtypes.float0)
    return jnp.zeros_like(like) if _is_zero(tangent) else tangent


def _secant(slope: Array, step: Array, change: Array) -> Array:
    """Slope that reproduces the last change of Q; steps near the rounding of Q teach nothing."""
    square = jnp.sum(step * step)
    known = square > jnp.finfo(step.dtype).eps
    missing = change - matmul(slope, step)
    return slope + jnp.outer(jnp.where(known, missing, 0), step / jnp.where(known, square, 1))


def _judge(
    limits: ReactiveLimits,
    linear: Callable[[Array, Array], Array],
    slope: Array,
    at_limit: Array,
    v: Array,
    hold: Array,
    q: Array,
) -> tuple[Array, Array, Array]:
    """Limits that hold (m,), a flag that this is final, and the change of ln|V| (m,) that meets them all.

    From one limit to the other a bus passes its set-point: D overrates what neighbours at limits leave of J, and a bus
    sent straight across can come straight back for ever.
    """
    away = jnp.log(v / hold)
    free = q - jnp.diagonal(limits.slope) * away
    beyond = (free > limits.q_max).astype(jnp.int32) - (free < limits.q_min).astype(jnp.int32)
    at_limit = jnp.clip(beyond, at_limit - 1, at_limit + 1)
    limit = jnp.where(at_limit > 0, limits.q_max, limits.q_min)
    limited = at_limit != 0
    rows = jnp.where(limited[:, None], slope, jnp.eye(q.size, dtype=q.dtype))
    move = linear(rows, jnp.where(limited, limit - q, -away))
    move = move * jnp.minimum(1, STRIDE / jnp.maximum(jnp.max(jnp.abs(move), initial=0), STRIDE))
    return at_limit, jnp.all(at_limit == beyond), move
