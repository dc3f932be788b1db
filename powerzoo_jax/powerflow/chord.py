"""Chord iteration of a batch with Newton-Raphson behind it: the loops of all families, and their Z-bus form.

A chord step takes a constant inverse for that of the Jacobian. Its changes d_k then shrink like a geometric series, and
with the rate c of the last ones (a posteriori bound of the contraction theorem)

    |x_k - x| <= |d_k| c / (1 - c)

Families differ in what a step is and in the norm: currents of rows (feeders and three phases, below) or relative
deviations of voltages (`meshed.chord`: meshed networks, outages, switches). All run `iterate` over a `Progress`. The
few lanes that the constant inverse does not solve go to `newton_raphson` in float64.

Z-bus form, for networks whose only nonlinear part is local to each row: x = M r(x) + w, exact and differentiable.
A row is a place where current enters: a bus of a feeder, or a pair of nodes in three phases. Textbook symbols:
x = e + j f its voltage, i(x) the current that its law injects, D0 = di/dx at the base state, r(x) = i(x) - D0 x, and
with Z the impedance that the rows see M = (I - Z D0)^-1 Z (implicit Z-bus method, Chen et al. 1991,
doi:10.1109/61.131105). Scenarios are rows of the arrays everywhere, (B, 2a): the constant matrix multiplies from the
right. Derivatives of a converged solve follow from the implicit function theorem (`implicit`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array, lax

from powerzoo_jax.base.numerics import FLOAT, matmul, matvec, rough_matvec
from powerzoo_jax.powerflow.batching import batched_shell, in_groups
from powerzoo_jax.powerflow.implicit import SWEEP_TOL, sweep
from powerzoo_jax.powerflow.result import Status

STALL = 0.95  # a lane whose change shrinks slower than this per step is left to Newton: 45 more steps a digit


class Progress(NamedTuple):
    """Progress of the lanes of a batch, (B,) each.

    size:     of the last change
    pace:     ratio of the last change to the one before, Array; None where a family estimates from `size` alone
    stopped:  bool  takes no further step
    settled:  bool  within the tolerance
    steps:    int32 taken
    """

    size: Array
    pace: Any
    stopped: Array
    settled: Array
    steps: Array

    @classmethod
    def begin(cls, size: Array, pace: Array, steps: int) -> Progress:
        """Progress of a batch of which no lane has stopped."""
        none = jnp.zeros(size.shape, bool)
        return cls(size, pace, none, none, jnp.full(size.shape, steps, jnp.int32))

    def after(self, size: Array, pace: Array | None, reached: Array, lost: Array) -> Progress:
        """Progress one step later; a lane that has stopped is frozen, however long its neighbours take.

        size, pace:     of the step
        reached, lost:  lanes (B,) within the tolerance, and lanes too slow for a chord
        """
        return Progress(
            size=jnp.where(self.stopped, self.size, size),
            pace=pace,
            stopped=self.stopped | reached | lost,
            settled=jnp.where(self.stopped, self.settled, reached),
            steps=self.steps + (~self.stopped).astype(jnp.int32),
        )


def ratio(size: Array, before: Array) -> Array:
    """Rate of convergence that two successive changes show, (B,)."""
    return size / jnp.maximum(before, jnp.finfo(before.dtype).tiny)


def error_ahead(size: Array, pace: Array, bounds: tuple[float, float]) -> Array:
    """Bound (B,) on the error after a change of this size, at a pace taken to lie within `bounds`.

    A single pace may be luck: below the lower bound it is not believed, above the upper one the bound says nothing.
    """
    slow = jnp.clip(pace, *bounds)
    return size * slow / (1 - slow)


def iterate(
    advance: Callable[[Any], Any], begin: Any, *, taken: int, max_steps: int, rest: int = 0, always: bool = False
) -> Any:
    """Last iterate of a batch that is advanced step by step until its lanes have stopped.

    advance:    one step of all lanes, which leaves those that have stopped as they are
    begin:      state with the `Progress` in a field `lanes`
    taken:      steps taken before, counted in `max_steps`
    rest:       0 goes on to the last lane; n stops when at most one lane in n is left, to be gathered with others:
                a step of the whole batch costs the same however few of its lanes still move
    always:     take every step without asking, for accelerators that would rather not wait for an answer
    """

    def unfinished(carry: tuple[Array, Any]) -> Array:
        k, state = carry
        if always:
            return k < max_steps
        going = ~state.lanes.stopped
        left = jnp.any(going) if rest == 0 else jnp.sum(going) * rest > going.shape[0]
        return (k < max_steps) & left

    def step(carry: tuple[Array, Any]) -> tuple[Array, Any]:
        return carry[0] + 1, advance(carry[1])

    return lax.while_loop(unfinished, step, (jnp.int32(taken), begin))[1]


# Newton-Raphson runs inside `jax.enable_x64(True)`, also in a float32 program: the lanes that come to it stand near
# collapse, where a rounding is amplified a hundredfold. Families bring the step (below, and `meshed.newton`).
NEWTON_STEPS = 20  # half a percent before the nose it takes 10; every further one is paid by lanes without a solution
NEWTON_TOL = 1e-10  # [pu, rad] move at which Newton stops; quadratic convergence makes the error its square
NEWTON_LEFT = 1e-7  # [pu] mismatch that a solution may leave: a stall on a short step is not one


def newton_raphson(
    step: Callable[[Array], tuple[Array, Array]], start: Array, *, axis: int = -1
) -> tuple[Array, Array, Array]:
    """Newton iterate of T lanes: x, its last move (-1 where x left the finite numbers) and steps, (T,) each.

    step:   x -> (next x, largest move of each lane (T,)), damped by the caller
    start:  float64, with the lanes on `axis`

    A lane is done when its move is at most 1e-10; it keeps its value while others go on.
    """
    across = tuple(k for k in range(start.ndim) if k != axis % start.ndim)
    lanes = start.shape[axis]

    def advance(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        k, x, size, steps = carry
        active = size > NEWTON_TOL
        new, move = step(x)
        ok = jnp.all(jnp.isfinite(new), across)
        x = jnp.where(jnp.expand_dims(active & ok, across), new, x)
        size = jnp.where(active, jnp.where(ok, move, -1.0), size)
        return k + 1, x, size, steps + active.astype(jnp.int32)

    begin = (jnp.int32(0), start, jnp.full(lanes, jnp.inf, start.dtype), jnp.zeros(lanes, jnp.int32))
    end = lax.while_loop(lambda c: (c[0] < NEWTON_STEPS) & jnp.any(c[2] > NEWTON_TOL), advance, begin)
    return end[1:]


def damping(size: Array, longest: float) -> Array:
    """Factor by which a move of this size is shortened to the longest that is allowed."""
    return jnp.minimum(1.0, longest / jnp.maximum(size, longest))


def verdict(move: Array, left: Array, fine: Array) -> Array:
    """`Status` (T,) of lanes after Newton: from their last move, the mismatch left [pu], whether inputs were finite."""
    status = jnp.where(move < 0, jnp.int32(Status.SINGULAR), jnp.int32(Status.OUT_OF_STEPS))
    solved = (move >= 0) & (move <= NEWTON_TOL) & (left < NEWTON_LEFT)
    status = jnp.where(solved, jnp.int32(Status.CONVERGED), status)
    return jnp.where(fine, status, jnp.int32(Status.BAD_INPUT))


MAX_STEPS = 30
TOL = {"float32": 4e-7, "float64": 8e-10}  # [pu] estimate of the voltage error; promised are 1e-6 and 1e-9
NOISE = 2.4e-7  # relative error of a single-precision product of a change with M, in units of gain
WIDE = 8  # lanes from which on rounding M for a product costs less than it saves
GROUP, GROUPS = 128, 8  # lanes that are slower than the rest go on together: at least so many, in so many groups
PACE = (0.02, 0.9)  # contraction assumed at least and at most when the error is estimated from the last change
TILE = 8  # lanes factored together by Newton: enough to keep LAPACK busy, few enough to bound the memory
V_BOUND = 1.5  # [pu] no feeder runs above: turns a current mismatch into a bound on the power mismatch
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


@dataclass(frozen=True)
class ConstantPower:
    """i = conj(s / v): loads that draw their power whatever the voltage."""

    power_per_current: float = V_BOUND

    def current(self, law: Any, e: Array, f: Array, p: Array, q: Array) -> tuple[Array, Array]:
        """Real and imaginary part of i."""
        del law  # the law has no parameters
        g = 1 / (e * e + f * f)
        return (p * e + q * f) * g, (p * f - q * e) * g


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
