"""Power flow of meshed networks: deviation-form chord with a blocked inverse, batched, exact, differentiable.

Textbook symbols as in `meshed_equations`: V = Vb (1 + e), zeta = dln|V| + j dtheta. A step turns e by the constant
inverse Jacobian times the mismatch; slow networks mix in the last step (Anderson 1965, doi:10.1145/321296.321305).
Stragglers go on in small groups, and what the chord cannot solve goes to a full Newton method in float64.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array, lax

from powerzoo_jax.powerflow import meshed_equations as eqs
from powerzoo_jax.powerflow.batching import batched_shell, in_groups
from powerzoo_jax.powerflow.meshed_factors import BranchFlow, MeshedCore, MeshedFactors, MeshedLayout
from powerzoo_jax.powerflow.meshed_newton import newton
from powerzoo_jax.powerflow.meshed_tangent import finite, solve_linear, state_tangent
from powerzoo_jax.powerflow.result import PowerFlowResult, Status

MAX_STEPS = 30
TOL = {"float32": 4e-7, "float64": 4e-10}  # [pu] estimate of the voltage error; promised are 1e-6 and 1e-9
FLOOR = {"float32": 4e-7, "float64": 1e-15}  # steps that short are rounding: nothing is gained by going on
STALL = 0.95  # a lane whose step shrinks slower than this is left to Newton
PACE = (0.05, 0.9)  # contraction assumed at least and at most when the last steps tell the error
PACE_MIXED = (0.5, 0.9)  # mixing makes single steps shrink by luck, which says little about the next
SHARE = (-1.0, 0.5)  # of the last step mixed in; beyond, rounding speaks: a rate of 0.5 asks for -1
POLISH = 2e-4  # share of the last error that flows may keep
REST = 8  # the batch goes on together while more than one lane in 8 is unfinished
GROUP = 32  # stragglers of the chord that go on together
NEWTON_GROUP = 8  # lanes factored together: enough to keep LAPACK busy, few enough to bound the memory
CACHE = 16_000  # buses times lanes that fit the cache of a CPU core together
SMALLEST = 128  # lanes of a tile at least: narrower products are slow


class Shared(NamedTuple):
    """The part of the factors that the iteration reads."""

    layout: MeshedLayout
    core: MeshedCore


@struct.dataclass(kw_only=True)
class MeshedResult(PowerFlowResult):
    """`PowerFlowResult` of a meshed network; branch currents are those of the series element, losses net of charging.

    p_to, q_to:         (L,)  [pu]  power entering the branch at its to end
    q_bus:              (N,)  [pu]  reactive injection, solved for at buses that hold their magnitude
    p_shunt, q_shunt:   ()    [pu]  consumption of the bus shunts
    """

    p_to: Array
    q_to: Array
    q_bus: Array
    p_shunt: Array
    q_shunt: Array


def solve_meshed(
    factors: MeshedFactors,
    p_pu: Array,
    q_pu: Array,
    v_set_pu: Array | None = None,
    *,
    tol: float | None = None,
    max_steps: int = MAX_STEPS,
) -> MeshedResult:
    """Solve the power flow of one scenario; vmap it for many (the core is batched).

    S_i = V_i sum_j conj(Y_ij V_j), |V_i| held at PV buses and the slack

    factors:    from `prepare_meshed`; share them (in_axes=None) or map them
    p_pu, q_pu: (N,) [pu] net injections; both ignored at the slack, q also at buses that hold their magnitude
    v_set_pu:   (N,) [pu] magnitudes of the buses that hold theirs, ignored elsewhere; None keeps the base state's
    tol:        [pu] voltage error at which a lane stops; None takes 4e-7 (float32), 4e-10 (float64)
    max_steps:  chord iterations before a lane goes to the float64 Newton fallback

    Returns a MeshedResult; nothing raises and nothing is NaN: `status` and `residual` tell.
    Differentiable forward and reverse in injections, set-points and branch parameters (implicit function theorem).
    """
    limit = TOL[p_pu.dtype.name] if tol is None else float(tol)
    solve = meshed_state(limit, max_steps, factors.mix)
    given = (p_pu, q_pu) if v_set_pu is None else (p_pu, q_pu, v_set_pu)
    found = solve(Shared(factors.layout, factors.core), *given)
    return _expand(factors, p_pu, q_pu, found)


class State(NamedTuple):
    """What a solve finds, case order, all (N,) but the last three.

    e_re, e_im:      deviation, solved to the tolerance
    d_re, d_im:      what is missing to the solution: e + d holds differences that e alone rounds away
    p_left, q_left:  injection left unserved by e + d
    """

    e_re: Array
    e_im: Array
    d_re: Array
    d_im: Array
    p_left: Array
    q_left: Array
    residual: Array
    iterations: Array
    status: Array


@functools.lru_cache(maxsize=32)
def meshed_state(tol: float, max_steps: int, mix: bool) -> Callable[..., State]:
    """Return the differentiable single-scenario solver (shared, p, q[, v_set]) -> State."""
    shell = batched_shell(lambda shared, *given: _solve_batch(shared, given, tol, max_steps, mix))

    @jax.custom_jvp
    def solve(shared: Shared, *given: Array) -> State:
        return State(*shell(shared, *given))

    @functools.partial(solve.defjvp, symbolic_zeros=True)
    def _(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[State, State]:
        out = solve(*primals)
        return out, State(*state_tangent(primals, tangents, out))

    return solve


class Carry(NamedTuple):
    """Progress of a batch: e, what is left, last chord step and last move (N, 2, B); the rest (B,)."""

    k: Array
    e: Array
    left: Array
    step: Array
    move: Array
    size: Array
    pace: Array
    stopped: Array
    settled: Array
    steps: Array


class Lanes(NamedTuple):
    """Progress of a batch lane by lane, case order: e (B, N) re and im; the rest (B,)."""

    e_re: Array
    e_im: Array
    residual: Array
    steps: Array
    stopped: Array
    status: Array


def _solve_batch(shared: Shared, given: tuple[Array, ...], tol: float, max_steps: int, mix: bool) -> State:
    """The batched core: arrays (B, N) as the user gave them -> State of (B, ...)."""
    chord = functools.partial(_chord, tol=tol, max_steps=max_steps, mix=mix)
    lanes = _in_tiles(lambda given: chord(shared, given, None, REST), given)
    lanes = in_groups(~lanes.stopped, GROUP, chord, shared, given, lanes)
    lanes = in_groups(lanes.status != Status.CONVERGED, NEWTON_GROUP, _newton, shared, given, lanes)
    missing, left = _polish(shared, given, lanes)
    return State(lanes.e_re, lanes.e_im, *missing, *left, lanes.residual, lanes.steps, lanes.status)


def _polish(shared: Shared, given: tuple[Array, ...], lanes: Lanes) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """What is missing to the solution, and what it leaves: flows are small differences times large admittances.

    A program that reads voltages only does not pay for this. Lanes without a solution stay where they are.
    """
    layout, core = shared
    target, _ = _door(shared, tuple(finite(x) for x in given))
    e = _in(layout, lanes.e_re, lanes.e_im)
    left = eqs.mismatch(layout, core.main, target, e)
    solved = (lanes.status == Status.CONVERGED)[None, None]
    zeta = jnp.where(solved, solve_linear(shared, e, jnp.where(solved, left, 0), POLISH), 0)
    left = left - eqs.slope_times(layout, core.main, e, eqs.power(layout, core.main, e), zeta)
    return _out(layout, eqs.turn(e, zeta)), _out(layout, left)


def _in_tiles(solve: Callable[[tuple[Array, ...]], Lanes], given: tuple[Array, ...]) -> Lanes:
    """Solve a batch in tiles that fit the cache of a CPU core; other devices take it whole."""
    batch, n_bus = given[0].shape
    tile = max(SMALLEST, 1 << (CACHE // n_bus).bit_length() - 1) if n_bus <= CACHE else SMALLEST
    if jax.default_backend() != "cpu" or batch < 2 * tile or batch % tile:
        return solve(given)
    tiles = jax.tree.map(lambda x: x.reshape(-1, tile, *x.shape[1:]), given)
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), lax.map(solve, tiles))


def _chord(
    shared: Shared,
    given: tuple[Array, ...],
    lanes: Lanes | None,
    rest: int = 0,
    *,
    tol: float,
    max_steps: int,
    mix: bool,
) -> Lanes:
    """Run the chord from the base state, or on from where `lanes` stand, until 1 / rest of the lanes are left."""
    layout = shared.layout
    target, start = _door(shared, given)
    if lanes is not None:
        start = _in(layout, lanes.e_re, lanes.e_im)

    def unfinished(c: Carry) -> Array:
        left = jnp.any(~c.stopped) if rest == 0 else jnp.sum(~c.stopped) * rest > c.stopped.shape[0]
        return (c.k < max_steps) & left

    advance = functools.partial(_advance, shared, target, tol=tol, mix=mix)
    c = lax.while_loop(unfinished, advance, _first(shared, target, start, mix))
    residual = eqs.largest(c.left * layout.free[:, :, None].astype(target.dtype))
    return Lanes(
        *_out(layout, c.e),
        residual=residual,
        steps=c.steps if lanes is None else lanes.steps + c.steps,
        stopped=c.stopped,
        status=jnp.where(c.settled, jnp.int32(Status.CONVERGED), jnp.int32(Status.OUT_OF_STEPS)),
    )


def _newton(shared: Shared, given: tuple[Array, ...], lanes: Lanes) -> Lanes:
    e, residual, steps, status = newton(*shared, *_door(shared, given))
    return Lanes(*_out(shared.layout, e), residual, lanes.steps + steps, lanes.stopped, status)


def _door(shared: Shared, given: tuple[Array, ...]) -> tuple[Array, Array | None]:
    """Injections counted from the base state (N, 2, B), and the deviation to start from where set-points are given."""
    layout, core = shared
    base = core.main.s_base[:, :, None], core.rest.s_base[:, :, None]
    target = lax.optimization_barrier((_in(layout, *given[:2]) - base[0]) - base[1])
    if len(given) == 2:
        return target, None
    v_set = jnp.take(given[2].T, layout.inward, axis=0, mode="clip")
    holds = ~layout.free[:, 1:]
    high, low = core.main.v_mag[:, None], core.rest.v_mag[:, None]
    grow = jnp.where(holds, ((v_set - high) - low) / high, 0)
    return target, jnp.stack([grow, jnp.zeros_like(grow)], 1)


def _in(layout: MeshedLayout, re: Array, im: Array) -> Array:
    """Two (B, N) in case order -> (N, 2, B) internal."""
    return jnp.stack([jnp.take(x.T, layout.inward, axis=0, mode="clip") for x in (re, im)], 1)


def _out(layout: MeshedLayout, x: Array) -> tuple[Array, Array]:
    """(N, 2, B) internal -> two (B, N) in case order."""
    return tuple(jnp.take(x[:, c], layout.outward, axis=0, mode="clip").T for c in (0, 1))  # type: ignore[return-value]


def _first(shared: Shared, target: Array, start: Array | None, mix: bool) -> Carry:
    layout, core = shared
    batch = target.shape[2]
    e = jnp.zeros_like(target) if start is None else start
    left = target if start is None else eqs.mismatch(layout, core.main, target, e)
    step = eqs.correction(layout, core.blocks, left)
    e = lax.optimization_barrier(eqs.rotate(e, step))
    kept = step if mix else jnp.zeros((0,) * 3, target.dtype)
    return Carry(
        k=jnp.int32(1),
        e=e,
        left=eqs.mismatch(layout, core.main, target, e),
        step=kept,
        move=kept,
        size=eqs.largest(step),
        pace=jnp.zeros(batch, target.dtype),
        stopped=jnp.zeros(batch, bool),
        settled=jnp.zeros(batch, bool),
        steps=jnp.ones(batch, jnp.int32),
    )


def _advance(shared: Shared, target: Array, c: Carry, *, tol: float, mix: bool) -> Carry:
    """One chord step of every lane that has not stopped."""
    layout, core = shared
    step = eqs.correction(layout, core.blocks, c.left)
    move = _mixed(step, c) if mix else step
    size = eqs.largest(step)
    pace = size / jnp.maximum(c.size, jnp.finfo(size.dtype).tiny)
    slow = jnp.clip(jnp.maximum(pace, c.pace), *(PACE_MIXED if mix else PACE))
    reached = (size * slow / (1 - slow) <= tol) | (size <= FLOOR[size.dtype.name])
    # a lane that stops keeps its value, whatever its neighbours go on to do
    e = lax.optimization_barrier(jnp.where(c.stopped[None, None], c.e, eqs.rotate(c.e, move)))
    return Carry(
        k=c.k + 1,
        e=e,
        left=eqs.mismatch(layout, core.main, target, e),
        step=step if mix else c.step,
        move=move if mix else c.move,
        size=jnp.where(c.stopped, c.size, size),
        pace=pace,
        stopped=c.stopped | reached | ~(pace < (1 / STALL if mix else STALL)),
        settled=jnp.where(c.stopped, c.settled, reached),
        steps=jnp.where(c.stopped, c.steps, c.k + 1),
    )


def _mixed(step: Array, c: Carry) -> Array:
    """Combine this step and the last so that the linearised remainder is shortest."""
    change = step - c.step
    share = jnp.sum(change * step, (0, 1)) / jnp.maximum(jnp.sum(change * change, (0, 1)), jnp.finfo(step.dtype).tiny)
    return step - jnp.clip(share, *SHARE)[None, None] * (c.move + change)


def _expand(factors: MeshedFactors, p_pu: Array, q_pu: Array, found: State) -> MeshedResult:
    """From the deviation to voltages, flows, losses and the injections of buses that hold their magnitude."""
    flow = factors.flow
    p_pu, q_pu = finite(p_pu), finite(q_pu)
    v = _times(factors.v_base, jnp.stack([1 + found.e_re, found.e_im], -1))
    i = _series_current(flow, jnp.stack([found.e_re, found.e_im], -1), jnp.stack([found.d_re, found.d_im], -1))
    u, far = _times(flow.ratio, v[flow.f]), v[flow.t]
    s_from, s_to = _times_conj(u, i), _times_conj(far, -i)
    q_from = s_from[:, 1] - flow.half_charging * jnp.sum(u * u, -1)
    q_to = s_to[:, 1] - flow.half_charging * jnp.sum(far * far, -1)
    square = jnp.sum(i * i, -1)
    shunt = factors.shunt * jnp.sum(v * v, -1, keepdims=True)
    q_bus = q_pu - jnp.where(factors.held, found.q_left, 0)
    return MeshedResult(
        v_re=v[:, 0],
        v_im=v[:, 1],
        i_re=i[:, 0],
        i_im=i[:, 1],
        p_from=s_from[:, 0],
        q_from=q_from,
        p_to=s_to[:, 0],
        q_to=q_to,
        p_loss=jnp.sum(flow.r * square),
        q_loss=jnp.sum(q_from + q_to),
        p_slack=(p_pu - found.p_left)[factors.slack],
        q_slack=q_bus[factors.slack],
        q_bus=q_bus,
        p_shunt=jnp.sum(shunt[:, 0]),
        q_shunt=-jnp.sum(shunt[:, 1]),
        residual=found.residual,
        iterations=found.iterations,
        status=found.status,
    )


def _series_current(flow: BranchFlow, e: Array, rest: Array) -> Array:
    """i = i_base (1 + e_to) + slope (e_from - e_to), (L, 2), with e in two parts: no difference of rounded voltages."""
    drop = (e[flow.f] - e[flow.t]) + (rest[flow.f] - rest[flow.t])
    return flow.i_base + (_times(flow.i_base, e[flow.t]) + _times(flow.slope, drop))


def _times(a: Array, b: Array) -> Array:
    """Complex product of pairs (..., 2)."""
    return jnp.stack([a[..., 0] * b[..., 0] - a[..., 1] * b[..., 1], a[..., 0] * b[..., 1] + a[..., 1] * b[..., 0]], -1)


def _times_conj(a: Array, b: Array) -> Array:
    """a conj(b) of pairs (..., 2)."""
    return jnp.stack([a[..., 0] * b[..., 0] + a[..., 1] * b[..., 1], a[..., 1] * b[..., 0] - a[..., 0] * b[..., 1]], -1)
