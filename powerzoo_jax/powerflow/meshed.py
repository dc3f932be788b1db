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
from powerzoo_jax.powerflow.batching import batched_shell
from powerzoo_jax.powerflow.meshed_factors import BranchFlow, MeshedCore, MeshedFactors, MeshedLayout
from powerzoo_jax.powerflow.meshed_newton import newton_tiles
from powerzoo_jax.powerflow.meshed_tangent import state_tangent
from powerzoo_jax.powerflow.result import PowerFlowResult, Status

MAX_STEPS = 30
TOL = {"float32": 8e-7, "float64": 8e-10}  # [pu] estimate of the voltage error; promised are 1e-6 and 1e-9
STALL = 0.95  # a lane whose step shrinks slower than this is left to Newton
PACE = (0.03, 0.9)  # contraction assumed at least and at most when the error is estimated from the last step
PACE_MIXED = (0.2, 0.9)  # mixing makes single steps shrink by luck, which says little about the next
REST = 8  # the batch goes on together while more than one lane in 8 is unfinished
GROUP = 32  # stragglers solved together
TILE = 256  # lanes that fit the cache of a CPU core together


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
    tol:        [pu] voltage error at which a lane stops; None takes 8e-7 (float32), 8e-10 (float64)
    max_steps:  chord iterations before a lane goes to the float64 Newton fallback

    Returns a MeshedResult; nothing raises and nothing is NaN: `status` and `residual` tell.
    Differentiable forward and reverse in injections, set-points and branch parameters (implicit function theorem).
    """
    limit = TOL[p_pu.dtype.name] if tol is None else float(tol)
    solve = meshed_state(limit, max_steps, factors.mix, v_set_pu is not None)
    given = (p_pu, q_pu) if v_set_pu is None else (p_pu, q_pu, v_set_pu)
    found = solve(Shared(factors.layout, factors.core), *given)
    return _expand(factors, p_pu, q_pu, found)


class State(NamedTuple):
    """What a solve finds, case order: deviation (N,) re and im, injections left unserved (N,), and how it went."""

    e_re: Array
    e_im: Array
    p_left: Array
    q_left: Array
    residual: Array
    iterations: Array
    status: Array


@functools.lru_cache(maxsize=32)
def meshed_state(tol: float, max_steps: int, mix: bool, has_v: bool) -> Callable[..., State]:
    """Return the differentiable single-scenario solver (shared, p, q[, v_set]) -> State."""
    del has_v  # one wrapper per number of arguments
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
    stopped: Array
    settled: Array
    steps: Array


def _solve_batch(shared: Shared, given: tuple[Array, ...], tol: float, max_steps: int, mix: bool) -> State:
    """The batched core: arrays (B, N) as the user gave them -> State of (B, ...), in tiles that fit the cache."""
    batch = given[0].shape[0]
    solve = functools.partial(_solve_tile, shared, tol=tol, max_steps=max_steps, mix=mix)
    if jax.default_backend() != "cpu" or batch < 2 * TILE or batch % TILE:
        return solve(given)
    tiles = jax.tree.map(lambda x: x.reshape(-1, TILE, *x.shape[1:]), given)
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), lax.map(solve, tiles))


def _solve_tile(shared: Shared, given: tuple[Array, ...], *, tol: float, max_steps: int, mix: bool) -> State:
    layout, core = shared
    target, start = _door(shared, given)
    carry = _first(shared, target, start, mix)
    advance = functools.partial(_advance, shared, tol=tol, mix=mix)

    def most(c: Carry) -> Array:
        return (c.k < max_steps) & (jnp.sum(~c.stopped) * REST > c.stopped.shape[0])

    def some(c: Carry) -> Array:
        return (c.k < max_steps) & jnp.any(~c.stopped)

    carry = lax.while_loop(most, lambda c: advance(target, c), carry)
    carry = _finish(carry, target, lambda t, c: lax.while_loop(some, lambda c: advance(t, c), c))
    free = layout.free[:, :, None].astype(target.dtype)
    residual = jnp.max(jnp.abs(carry.left) * free, (0, 1))
    status = jnp.where(carry.settled, jnp.int32(Status.CONVERGED), jnp.int32(Status.OUT_OF_STEPS))
    found = carry.e, carry.left, residual, carry.steps, status
    e, left, residual, steps, status = newton_tiles(layout, core, target, start, found)
    return State(*_out(layout, e), *_out(layout, left), residual, steps, status)


def _door(shared: Shared, given: tuple[Array, ...]) -> tuple[Array, Array | None]:
    """Injections counted from the base state (N, 2, B), and the deviation to start from where set-points are given."""
    layout, core = shared
    inner = [jnp.take(x.T, layout.inward, axis=0, mode="clip") for x in given]
    target = lax.optimization_barrier(jnp.stack(inner[:2], 1) - core.s_base[:, :, None])
    if len(given) == 2:
        return target, None
    holds = (layout.free[:, 1] == 0)[:, None]
    grow = jnp.where(holds, inner[2] / core.v_mag[:, None] - 1, 0)
    return target, jnp.stack([grow, jnp.zeros_like(grow)], 1)


def _out(layout: MeshedLayout, x: Array) -> tuple[Array, Array]:
    """(N, 2, B) internal -> two (B, N) in case order."""
    return tuple(jnp.take(x[:, c], layout.outward, axis=0, mode="clip").T for c in (0, 1))  # type: ignore[return-value]


def _first(shared: Shared, target: Array, start: Array | None, mix: bool) -> Carry:
    layout, core = shared
    batch = target.shape[2]
    e = jnp.zeros_like(target) if start is None else start
    left = target if start is None else eqs.mismatch(layout, core, target, e)
    step = eqs.correction(layout, core.blocks, left)
    e = lax.optimization_barrier(eqs.rotate(e, step))
    kept = step if mix else jnp.zeros((0,) * 3, target.dtype)
    return Carry(
        k=jnp.int32(1),
        e=e,
        left=eqs.mismatch(layout, core, target, e),
        step=kept,
        move=kept,
        size=jnp.max(jnp.abs(step), (0, 1)),
        stopped=jnp.zeros(batch, bool),
        settled=jnp.zeros(batch, bool),
        steps=jnp.ones(batch, jnp.int32),
    )


def _advance(shared: Shared, target: Array, c: Carry, *, tol: float, mix: bool) -> Carry:
    """One chord step of every lane that has not stopped."""
    layout, core = shared
    step = eqs.correction(layout, core.blocks, c.left)
    move = _mixed(step, c) if mix else step
    size = jnp.max(jnp.abs(step), (0, 1))
    pace = size / jnp.maximum(c.size, jnp.finfo(size.dtype).tiny)
    slow = jnp.clip(pace, *(PACE_MIXED if mix else PACE))
    reached = size * slow / (1 - slow) <= tol
    # a lane that stops keeps its value, whatever its neighbours go on to do
    e = lax.optimization_barrier(jnp.where(c.stopped[None, None], c.e, eqs.rotate(c.e, move)))
    return Carry(
        k=c.k + 1,
        e=e,
        left=eqs.mismatch(layout, core, target, e),
        step=step if mix else c.step,
        move=move if mix else c.move,
        size=jnp.where(c.stopped, c.size, size),
        stopped=c.stopped | reached | ~(pace < (1 / STALL if mix else STALL)),
        settled=jnp.where(c.stopped, c.settled, reached),
        steps=jnp.where(c.stopped, c.steps, c.k + 1),
    )


def _mixed(step: Array, c: Carry) -> Array:
    """Combine this step and the last so that the linearised remainder is shortest."""
    change = step - c.step
    share = jnp.sum(change * step, (0, 1)) / jnp.maximum(jnp.sum(change * change, (0, 1)), jnp.finfo(step.dtype).tiny)
    return step - share[None, None] * (c.move + change)


def _finish(carry: Carry, target: Array, run: Callable[[Array, Carry], Carry]) -> Carry:
    """Bring the lanes that have not stopped to an end, group by group."""
    batch = target.shape[2]
    group = min(GROUP, batch)

    def advance(c: Carry) -> Carry:
        lanes = jnp.nonzero(~c.stopped, size=group, fill_value=batch)[0]
        at = jnp.minimum(lanes, batch - 1)
        few = jax.tree.map(lambda x: x[..., at] if x.ndim and x.shape[-1] else x, c)
        few = run(target[..., at], few._replace(stopped=few.stopped | (lanes >= batch)))
        done = few._replace(stopped=jnp.ones_like(few.stopped))

        def put(old: Array, new: Array) -> Array:
            return old.at[..., lanes].set(new, mode="drop") if old.ndim and old.shape[-1] else old

        return jax.tree.map(put, c, done)

    return lax.while_loop(lambda c: jnp.any(~c.stopped), advance, carry)


def _expand(factors: MeshedFactors, p_pu: Array, q_pu: Array, found: State) -> MeshedResult:
    """From the deviation to voltages, flows, losses and the injections of buses that hold their magnitude."""
    flow = factors.flow
    e_re, e_im = found.e_re, found.e_im
    v = _times(factors.v_base, jnp.stack([1 + e_re, e_im], -1))
    e = jnp.stack([e_re, e_im], -1)
    i = _series_current(flow, e)
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


def _series_current(flow: BranchFlow, e: Array) -> Array:
    """i = i_base (1 + e_to) + slope (e_from - e_to), (L, 2): no difference of rounded voltages."""
    far = e[flow.t]
    return flow.i_base + _times(flow.i_base, far) + _times(flow.slope, e[flow.f] - far)


def _times(a: Array, b: Array) -> Array:
    """Complex product of pairs (..., 2)."""
    return jnp.stack([a[..., 0] * b[..., 0] - a[..., 1] * b[..., 1], a[..., 0] * b[..., 1] + a[..., 1] * b[..., 0]], -1)


def _times_conj(a: Array, b: Array) -> Array:
    """a conj(b) of pairs (..., 2)."""
    return jnp.stack([a[..., 0] * b[..., 0] + a[..., 1] * b[..., 1], a[..., 1] * b[..., 0] - a[..., 0] * b[..., 1]], -1)
