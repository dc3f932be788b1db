"""Power flow whose only nonlinear part is local to each row: x = M r(x) + w, batched, exact, differentiable.

A row is a place where current enters: a bus of a feeder, or a pair of nodes in three phases. Textbook symbols:
x = e + j f its voltage, i(x) the current that its law injects, D0 = di/dx at the base state, r(x) = i(x) - D0 x, and
with Z the impedance that the rows see M = (I - Z D0)^-1 Z (implicit Z-bus method, Chen et al. 1991,
doi:10.1109/61.131105). Scenarios are rows of the arrays everywhere, (B, 2a): the constant matrix multiplies from the
right.

The few lanes that the constant factor does not solve go to a full Newton method in float64; derivatives of a converged
solve follow from the implicit function theorem.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array, lax

from powerzoo_jax.base.numerics import FLOAT, matmul, matvec, rough_matvec
from powerzoo_jax.powerflow.batching import batched_shell, in_groups
from powerzoo_jax.powerflow.chord import STALL, Progress, error_ahead, iterate, ratio
from powerzoo_jax.powerflow.implicit import SWEEP_TOL, sweep
from powerzoo_jax.powerflow.newton import damping, newton_raphson, verdict
from powerzoo_jax.powerflow.result import Status

MAX_STEPS = 30
TOL = {"float32": 4e-7, "float64": 8e-10}  # [pu] estimate of the voltage error; promised are 1e-6 and 1e-9
NOISE = 2.4e-7  # relative error of a single-precision product of a change with M, in units of gain
WIDE = 8  # lanes from which on rounding M for a product costs less than it saves
GROUP, GROUPS = 128, 8  # lanes that are slower than the rest go on together: at least so many, in so many groups
PACE = (0.02, 0.9)  # contraction assumed at least and at most when the error is estimated from the last change
TILE = 8  # lanes factored together by Newton: enough to keep LAPACK busy, few enough to bound the memory
LONGEST = 0.15  # [pu] largest voltage move of a Newton step: keeps the iterate on the upper branch of the PV curve

Solved = tuple[Array, Array, Array, Array]  # r (B, 2a), residual (B,), steps (B,), status (B,)


@struct.dataclass(kw_only=True)
class ChordCore:
    """Constant factors of the iteration on a rows.

    m:       (2a, 2a)  M, rows and columns (re, im)
    w:       (2a,)     constant part
    d_base:  (4, a)    D0 per row: d(re i)/d(re x), d(re i)/d(im x), d(im i)/d(re x), d(im i)/d(im x)
    x_base:  (2a,)     base state
    r_base:  (2a,)     r there
    gain:    ()        largest Euclidean row norm of M: error of x per error of r of norm 1
    law:     arrays of the law of the rows
    """

    m: Array
    w: Array
    d_base: Array
    x_base: Array
    r_base: Array
    gain: Array
    law: Any


class Law(Protocol):
    """Current law of the rows. Functions of arrays (..., a) that follow one another row by row."""

    power_per_current: float  # bound on the power mismatch per mismatch of current [pu]

    def current(self, law: Any, e: Array, f: Array, p: Array, q: Array) -> tuple[Array, Array]:
        """Real and imaginary part of i."""
        ...


def residual_current(law: Law, core: ChordCore, x: Array, p: Array, q: Array) -> Array:
    """r(x) = i(x) - D0 x: x (2a,), p and q (a,), or all of them with a first axis B."""
    a = p.shape[-1]
    e, f = x[..., :a], x[..., a:]
    d = core.d_base[:, None] if e.ndim == 2 else core.d_base
    parameters = jax.tree.map(lambda c: c[..., None, :], core.law) if e.ndim == 2 else core.law
    re, im = law.current(parameters, e, f, p, q)
    return jnp.concatenate([re - (d[0] * e + d[1] * f), im - (d[2] * e + d[3] * f)], axis=-1)


def local_slope(law: Law, core: ChordCore, x: Array, p: Array, q: Array) -> Array:
    """D(x) - D0 (4, a): derivative of r, which is local to each row, for one scenario."""
    a = p.shape[0]
    e, f = x[:a], x[a:]

    def current(e: Array, f: Array) -> tuple[Array, Array]:
        return law.current(core.law, e, f, p, q)

    one, zero = jnp.ones_like(e), jnp.zeros_like(e)
    _, by_e = jax.jvp(current, (e, f), (one, zero))
    _, by_f = jax.jvp(current, (e, f), (zero, one))
    return jnp.stack([by_e[0], by_f[0], by_e[1], by_f[1]]) - core.d_base


def affine(matrix: Array, constant: Array, r: Array) -> Array:
    """matrix @ r + constant on the last axis of r (2a,) or (B, 2a), in full precision on every device."""
    return matvec(matrix, r) + (constant[None] if r.ndim == 2 else constant)


def finite(p: Array, q: Array) -> tuple[Array, Array]:
    """Injections with 0 where either part is not finite: a bad lane must not poison shared gradients."""
    fine = jnp.isfinite(p) & jnp.isfinite(q)
    return jnp.where(fine, p, 0), jnp.where(fine, q, 0)


def stamp(z: np.ndarray) -> np.ndarray:
    """Complex matrix (..., a) as a real one of twice the rows and columns (host)."""
    return np.block([[z.real, -z.imag], [z.imag, z.real]])


def slope_matrix(d: np.ndarray) -> np.ndarray:
    """D (4, a) as a matrix (2a, 2a) of four diagonals (host)."""
    return np.block([[np.diag(d[0]), np.diag(d[1])], [np.diag(d[2]), np.diag(d[3])]])


def chord_factors(z: np.ndarray, flat: np.ndarray, d: np.ndarray, x: np.ndarray, i: np.ndarray) -> dict[str, Any]:
    """Fields of `ChordCore` around a base state, but its law, in float64 on the host.

    z:     (2a, 2a) [pu] impedance seen by the rows        flat:  (2a,) [pu] their voltages without current
    d:     (4, a)   D0        x, i:  (2a,) [pu] voltages and injected currents at the base state
    """
    d0 = slope_matrix(d)
    system = np.eye(len(x)) - z @ d0
    m = np.linalg.solve(system, z)
    w = np.linalg.solve(system, flat)
    return dict(m=m, w=w, d_base=d, x_base=x, r_base=i - d0 @ x, gain=np.linalg.norm(m, axis=1).max())


class RowIteration(NamedTuple):
    """Iterate of a batch: r (B, 2a) and the progress of its lanes; their size is the norm of the last change of r."""

    r: Array
    lanes: Progress


def _distance(r_new: Array, r: Array) -> Array:
    change = r_new - r
    return jnp.sqrt(jnp.sum(change * change, axis=-1))


def _judge(core: ChordCore, size: Array, before: Array, noise: Array | None, tol: float) -> tuple[Array, Array]:
    """Lanes that have reached the tolerance, and lanes too slow for the chord."""
    pace = ratio(size, before)
    left = size if noise is None else size + noise
    return error_ahead(core.gain * left, pace, PACE) <= tol, ~(pace < STALL)


def _moved(old: RowIteration, r: Array, size: Array, reached: Array, lost: Array) -> RowIteration:
    """Iterate after a step of the lanes that run."""
    return RowIteration(
        r=jnp.where(old.lanes.stopped[:, None], old.r, r), lanes=old.lanes.after(size, None, reached, lost)
    )


def _begin(r: Array, size: Array, steps: int, judged: tuple[Array, Array]) -> RowIteration:
    reached, lost = judged
    return RowIteration(r, Progress(size, None, reached | lost, reached, jnp.full(size.shape, steps, jnp.int32)))


def _roughly(m: Array, change: Array) -> Array:
    """M times a change (B, 2a), in half precision where a batch is wide enough: twice as fast on cores that know it."""
    if change.shape[0] >= WIDE:
        return rough_matvec(m, change)
    return matvec(m.astype(FLOAT), change.astype(FLOAT)).astype(change.dtype)


FIRST = {"float32": 2, "float64": 3}  # steps of `_open`


def _open(law: Law, core: ChordCore, p: Array, q: Array, tol: float) -> RowIteration:
    """First steps, which the whole batch takes: two, since only two changes in a row tell how fast a lane contracts.

    The first goes by three digits of M: the next ones contract its error, and count the change from the base again.
    In float64 two more multiply changes by M in single precision, x_k+1 = x_k + M (r_k - r_k-1): a change is
    small, so is what rounding adds to it. That noise counts as a change of its own when a lane is judged.
    """
    # one row of base voltages against all scenarios: their laws are evaluated once
    r0 = residual_current(law, core, core.x_base[None], p, q)
    x = core.x_base[None] + _roughly(core.m, r0 - core.r_base[None])
    r1 = residual_current(law, core, x, p, q)
    if p.dtype != jnp.float64:
        r2 = residual_current(law, core, affine(core.m, core.w, r1), p, q)
        size = _distance(r2, r1)
        return _begin(r2, size, 2, _judge(core, size, _distance(r1, r0), None, tol))
    narrow, zero = core.m.astype(FLOAT), jnp.zeros(1, FLOAT)

    def step(x: Array, r: Array, r_before: Array) -> tuple[Array, Array]:
        change = (r - r_before).astype(FLOAT)
        x = x + affine(narrow, zero, change).astype(x.dtype)
        return x, residual_current(law, core, x, p, q)

    x, r2 = step(core.x_base[None], r1, core.r_base[None])
    _, r3 = step(x, r2, r1)
    size = _distance(r3, r2)
    noise = NOISE * _distance(r0, core.r_base[None])
    return _begin(r3, size, 3, _judge(core, size, _distance(r2, r1), noise, tol))


def _go_on(
    law: Law, core: ChordCore, given: tuple[Array, Array], state: RowIteration, tol: float, max_steps: int
) -> RowIteration:
    """Group of lanes iterated in full precision until every one of them has stopped."""
    taken = FIRST[given[0].dtype.name]

    def step(r: Array) -> tuple[Array, Array]:
        new = residual_current(law, core, affine(core.m, core.w, r), *given)
        return new, _distance(new, r)

    def advance(state: RowIteration) -> RowIteration:
        r, size = step(state.r)
        return _moved(state, r, size, *_judge(core, size, state.lanes.size, None, tol))

    if given[0].dtype == jnp.float64:
        # this change makes up for the rounding of the last ones: small it may be, slow it is not
        r, size = step(state.r)
        reached, _ = _judge(core, size, state.lanes.size, None, tol)
        state, taken = _moved(state, r, size, reached, reached), taken + 1
    end: RowIteration = iterate(advance, state, taken=taken, max_steps=max_steps)
    return end


def _newton(law: Law, core: ChordCore, given: tuple[Array, Array], found: Solved) -> Solved:
    """Full Newton from the base state on a tile of lanes (T, a), in float64 also inside a float32 program."""
    dtype = given[0].dtype
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), core)
        fine = jnp.isfinite(given[0]) & jnp.isfinite(given[1])
        p, q = (jnp.where(fine, x, 0).astype(jnp.float64) for x in given)
        start = jnp.broadcast_to(wide.x_base[None], (p.shape[0], wide.x_base.shape[0]))
        lane = jax.vmap(lambda x, p, q: _newton_step(law, wide, x, p, q))

        def step(x: Array) -> tuple[Array, Array]:
            new = lane(x, p, q)
            return new, jnp.max(jnp.abs(new - x), -1)

        x, move, steps = newton_raphson(step, start, axis=0)
        left = jnp.max(jnp.abs(jax.vmap(lambda x, p, q: _error(law, wide, x, p, q))(x, p, q)), -1)
        r, residual = jax.vmap(lambda x, p, q: _settled(law, wide, x, p, q))(x, p, q)
        status = verdict(move, left, jnp.all(fine, -1))
        out = r.astype(dtype), residual.astype(dtype), found[2] + steps, status
    return out


def _error(law: Law, core: ChordCore, x: Array, p: Array, q: Array) -> Array:
    """x - M r(x) - w (2a,) of one scenario."""
    return x - affine(core.m, core.w, residual_current(law, core, x, p, q))


def _newton_step(law: Law, core: ChordCore, x: Array, p: Array, q: Array) -> Array:
    """Next iterate (2a,) of one scenario: the derivative of `_error` is I - M S with S local to each row."""
    left, slope = _error(law, core, x, p, q), local_slope(law, core, x, p, q)
    a = p.shape[-1]
    m = core.m
    rows = slope[:, None]
    columns = [m[:, :a] * rows[0] + m[:, a:] * rows[2], m[:, :a] * rows[1] + m[:, a:] * rows[3]]
    diagonal = jnp.arange(2 * a)
    # not eye - ...: XLA would build that constant in every solve, also when no lane needs Newton
    system = (-jnp.concatenate(columns, 1)).at[diagonal, diagonal].add(1)
    move = -jnp.linalg.solve(system, left)
    return x + move * damping(jnp.max(jnp.abs(move)), LONGEST)


def _settled(law: Law, core: ChordCore, x: Array, p: Array, q: Array) -> tuple[Array, Array]:
    """One chord step of one scenario: r (2a,) at the next iterate, always finite, and its exact power mismatch ()."""
    before = residual_current(law, core, x, p, q)
    r = residual_current(law, core, affine(core.m, core.w, before), p, q)
    fine = jnp.all(jnp.isfinite(r))
    # so much power that r itself overflows: report the base state, the status says what happened
    size = law.power_per_current * _distance(r, before)
    return jnp.where(fine, r, core.r_base), jnp.where(fine, size, jnp.max(jnp.abs(p)))


def _solve_batch(law: Law, core: ChordCore, p: Array, q: Array, tol: float, max_steps: int) -> Solved:
    """The batched core: p, q (B, a) as the user gave them -> (r (B, 2a), residual, steps, status (B,)).

    A lane with an injection that is not finite never settles; it is told from the rest where the failures are
    handled, at no cost to a batch without failures.
    """
    state = _open(law, core, p, q, tol)
    go_on = functools.partial(_go_on, law, tol=tol, max_steps=max_steps)
    state = in_groups(~state.lanes.stopped, max(GROUP, p.shape[0] // GROUPS), go_on, core, (p, q), state)
    lanes = state.lanes
    status = jnp.where(lanes.settled, jnp.int32(Status.CONVERGED), jnp.int32(Status.OUT_OF_STEPS))
    found = (state.r, law.power_per_current * lanes.size, lanes.steps, status)
    newton = functools.partial(_newton, law)
    solved: Solved = in_groups(found[3] != Status.CONVERGED, TILE, newton, core, (p, q), found)
    return solved


def solve_tangent(m: Array, slope: Array, forcing: Array) -> Array:
    """Solution dx of (I - M S) dx = forcing, with S the bus-local slope of r at the solution.

    m:       (2a, 2a)  chord matrix
    slope:   (4, a)    D(x) - D0
    forcing: (2a,)     right-hand side

    Neumann sweeps dx <- forcing + M S dx contract as fast as the chord itself; lanes on which they do not
    settle (near collapse) make the batch fall back to a dense LU. Linear, so `transpose_solve` gives reverse mode.
    """
    a, tol = slope.shape[-1], SWEEP_TOL[forcing.dtype.name]

    def local(v: Array) -> Array:
        u, w = v[:a], v[a:]
        return jnp.concatenate([slope[0] * u + slope[1] * w, slope[2] * u + slope[3] * w])

    def local_transposed(v: Array) -> Array:
        u, w = v[:a], v[a:]
        return jnp.concatenate([slope[0] * u + slope[2] * w, slope[1] * u + slope[3] * w])

    def dense() -> Array:
        blocks = jnp.block([[jnp.diag(slope[0]), jnp.diag(slope[1])], [jnp.diag(slope[2]), jnp.diag(slope[3])]])
        return jnp.eye(2 * a, dtype=m.dtype) - matmul(m, blocks)

    def forward(b: Array) -> Array:
        return sweep(lambda v: b + matvec(m, local(v)), b, lambda: jnp.linalg.solve(dense(), b), tol)

    def backward(b: Array) -> Array:
        return sweep(lambda v: b + local_transposed(matmul(v, m)), b, lambda: jnp.linalg.solve(dense().T, b), tol)

    return lax.custom_linear_solve(
        lambda v: v - matvec(m, local(v)),
        forcing,
        solve=lambda _, b: forward(b),
        transpose_solve=lambda _, b: backward(b),
    )


@functools.lru_cache(maxsize=32)
def chord_state(law: Law, tol: float, max_steps: int) -> Callable[[ChordCore, Array, Array], Solved]:
    """Return the differentiable single-scenario solver (core, p (a,), q (a,)) -> (r (2a,), residual, steps, status)."""
    shell = batched_shell(lambda core, p, q: _solve_batch(law, core, p, q, tol, max_steps))

    @jax.custom_jvp
    def solve(core: ChordCore, p: Array, q: Array) -> Solved:
        return shell(core, p, q)

    @solve.defjvp
    def _(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Solved, Any]:
        out = solve(*primals)
        core, (p, q) = primals[0], finite(*primals[1:])
        x = affine(core.m, core.w, out[0])

        def step(core: ChordCore, p: Array, q: Array) -> Array:
            return affine(core.m, core.w, residual_current(law, core, x, p, q))

        _, forcing = jax.jvp(step, (core, p, q), tangents)
        dx = solve_tangent(core.m, local_slope(law, core, x, p, q), forcing)
        residual = functools.partial(residual_current, law)
        _, dr = jax.jvp(residual, (core, x, p, q), (tangents[0], dx, *tangents[1:]))
        nothing = (jnp.zeros_like(out[1]), *(np.zeros(v.shape, jax.dtypes.float0) for v in out[2:]))
        return out, (dr, *nothing)

    return solve
