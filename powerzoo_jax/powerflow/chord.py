"""Chord iteration of a batch with Newton-Raphson behind it: the loops of all families, and their Z-bus form.

A chord step takes a constant inverse for that of the Jacobian. Its changes d_k then shrink like a geometric series, and
with the rate c of the last ones (a posteriori bound of the contraction theorem)

    |x_k - x| <= |d_k| c / (1 - c)

Families differ in what a step is and in the norm: currents of rows (feeders and three phases, `rows`) or relative
deviations of voltages (`meshed.chord`: meshed networks, outages, switches). All run `iterate` over a `Progress`. The
few lanes that the constant inverse does not solve go to `newton`. Derivatives of a converged solve follow from the
implicit function theorem (`implicit`).

The Z-bus form has two ways through a batch. The adaptive one gathers the lanes that go on after the first steps, and
stops when none is left. The fixed one takes `ChordCore.steps` steps with all lanes and asks once whether one is left;
what then follows is rare, and holds neither float64 nor a factorisation of a library.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from powerzoo_jax.base import elimination
from powerzoo_jax.base.numerics import FLOAT, anywhere, matmul, matvec
from powerzoo_jax.base.solver_mode import AUTO, by_mode
from powerzoo_jax.powerflow.batching import batched_shell, in_groups
from powerzoo_jax.powerflow.implicit import SWEEP_TOL, fixed_sweeps, sweep
from powerzoo_jax.powerflow.newton import Solved, newton_of_floats, newton_of_pairs, no_newton
from powerzoo_jax.powerflow.result import Status
from powerzoo_jax.powerflow.rows import (
    PACE,
    TOL,
    ChordCore,
    Law,
    affine,
    finite,
    local_slope,
    newton_matrix,
    residual_current,
    roughly,
)

EXTRA_SWEEPS = 2  # of a derivative, which begins farther from its solution than the chord does
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


MAX_STEPS = 30
NOISE = 2.4e-7  # relative error of a single-precision product of a change with M, in units of gain
GROUP, GROUPS = 128, 8  # lanes that are slower than the rest go on together: at least so many, in so many groups
TILE = 8  # lanes factored together by Newton: enough to keep LAPACK busy, few enough to bound the memory


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


FIRST = {"float32": 2, "float64": 3}  # steps of `_open`


def _open(law: Law, core: ChordCore, p: Array, q: Array, tol: float) -> RowIteration:
    """First steps, which the whole batch takes: two, since only two changes in a row tell how fast a lane contracts.

    The first goes by three digits of M: the next ones contract its error, and count the change from the base again.
    In float64 two more multiply changes by M in single precision, x_k+1 = x_k + M (r_k - r_k-1): a change is
    small, so is what rounding adds to it. That noise counts as a change of its own when a lane is judged.
    """
    # one row of base voltages against all scenarios: their laws are evaluated once
    r0 = residual_current(law, core, core.x_base[None], p, q)
    x = core.x_base[None] + roughly(core.m, r0 - core.r_base[None])
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


def _advance(law: Law, core: ChordCore, given: tuple[Array, Array], state: RowIteration, tol: float) -> RowIteration:
    """One step in full precision of the lanes that have not stopped."""
    r, size = _step(law, core, given, state)
    return _moved(state, r, size, *_judge(core, size, state.lanes.size, None, tol))


def _after_opening(
    law: Law, core: ChordCore, given: tuple[Array, Array], state: RowIteration, tol: float
) -> RowIteration:
    """The first step behind `_open` in float64: it makes up for the rounding there, so slow it is not."""
    r, size = _step(law, core, given, state)
    reached, _ = _judge(core, size, state.lanes.size, None, tol)
    return _moved(state, r, size, reached, reached)


def _step(law: Law, core: ChordCore, given: tuple[Array, Array], state: RowIteration) -> tuple[Array, Array]:
    new = residual_current(law, core, affine(core.m, core.w, state.r), *given)
    return new, _distance(new, state.r)


def _go_on(
    law: Law, core: ChordCore, given: tuple[Array, Array], state: RowIteration, *, taken: int, tol: float, limit: int
) -> RowIteration:
    """Group of lanes iterated in full precision until every one of them has stopped, or has taken `limit` steps."""
    if given[0].dtype == jnp.float64 and taken == FIRST["float64"]:
        state, taken = _after_opening(law, core, given, state, tol), taken + 1
    end: RowIteration = iterate(
        lambda state: _advance(law, core, given, state, tol), state, taken=taken, max_steps=limit
    )
    return end


def _outcome(law: Law, state: RowIteration) -> Solved:
    lanes = state.lanes
    status = jnp.where(lanes.settled, jnp.int32(Status.CONVERGED), jnp.int32(Status.OUT_OF_STEPS))
    return state.r, law.power_per_current * lanes.size, lanes.steps, status


class RowSolver(NamedTuple):
    """The batched core: p, q (B, a) as the user gave them -> (r (B, 2a), residual, steps, status (B,)).

    law, tol, max_steps:  of the iteration;  tol is the error of voltages [pu]
    stragglers:           False leaves lanes that the fixed steps do not solve at OUT_OF_STEPS, at the base state

    A lane with an injection that is not finite never settles; it is told from the rest where the failures are
    handled, at no cost to a batch without failures.
    """

    law: Law
    tol: float
    max_steps: int
    stragglers: bool = True

    def adaptive(self, core: ChordCore, p: Array, q: Array) -> Solved:
        """Every group of lanes goes on until it has stopped."""
        state = _open(self.law, core, p, q, self.tol)
        return self._rest(core, p, q, state, FIRST[p.dtype.name], newton_of_floats)

    def fixed(self, core: ChordCore, p: Array, q: Array) -> Solved:
        """All lanes take the same number of steps; one question whether lanes are left."""
        steps = self.length(core, p.dtype.name)
        state = _open(self.law, core, p, q, self.tol)
        for taken in range(FIRST[p.dtype.name], steps):
            # a lane that counts as too slow here may yet arrive within the steps that are taken anyway
            state = state._replace(lanes=state.lanes._replace(stopped=state.lanes.settled))
            after = p.dtype == jnp.float64 and taken == FIRST["float64"]
            state = (_after_opening if after else _advance)(self.law, core, (p, q), state, self.tol)
        found = _outcome(self.law, state)
        left = ~state.lanes.settled
        if not self.stragglers:
            return jnp.where(left[:, None], core.r_base[None], found[0]), *found[1:]
        newton = newton_of_pairs if self.law.takes_pairs else no_newton
        rest = functools.partial(self._rest, core, p, q, state, steps, newton)
        solved: Solved = lax.cond(anywhere(left), rest, lambda: found)
        return solved

    def length(self, core: ChordCore, dtype: str) -> int:
        """Steps of the fixed form: those of the factors are meant for the default tolerance of their type."""
        scaled = math.ceil(core.steps * math.log(self.tol) / math.log(TOL[dtype]))
        return max(min(scaled, self.max_steps), FIRST[dtype])

    def _rest(
        self, core: ChordCore, p: Array, q: Array, state: RowIteration, taken: int, newton: Callable[..., Solved]
    ) -> Solved:
        """Lanes left after `taken` steps: chord steps in groups, then Newton-Raphson in tiles."""
        go_on = functools.partial(_go_on, self.law, taken=taken, tol=self.tol, limit=self.max_steps)
        state = in_groups(~state.lanes.stopped, max(GROUP, p.shape[0] // GROUPS), go_on, core, (p, q), state)
        found = _outcome(self.law, state)
        last = functools.partial(newton, self.law)
        solved: Solved = in_groups(found[3] != Status.CONVERGED, TILE, last, core, (p, q), found)
        return solved


def solve_tangent(m: Array, slope: Array, forcing: Array, solver: str = AUTO, steps: int = 0) -> Array:
    """Solution dx of (I - M S) dx = forcing, with S the bus-local slope of r at the solution.

    m:       (2a, 2a)  chord matrix
    slope:   (4, a)    D(x) - D0
    forcing: (2a,)     right-hand side
    solver:  mode;  steps: of the fixed form

    Neumann sweeps dx <- forcing + M S dx contract as fast as the chord itself; lanes on which they do not
    settle (near collapse) make the batch fall back to a dense solution. Linear, so `transpose_solve` gives reverse
    mode.
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

    def swept(improve: Callable[[Array], Array], b: Array, matrix: Callable[[Array], Array]) -> Array:
        def adaptive(b: Array) -> Array:
            return sweep(lambda v: b + improve(v), b, lambda: jnp.linalg.solve(matrix(dense()), b), tol)

        def fixed(b: Array) -> Array:
            def direct() -> Array:
                return elimination.solve(matrix(newton_matrix(m, slope)), b)

            # a sweep contracts as fast as a step of the chord, to another share of the solution
            count = math.ceil(steps * math.log(tol) / math.log(TOL[b.dtype.name])) + EXTRA_SWEEPS
            return fixed_sweeps(lambda v: b + improve(v), b, direct, tol, count)

        found: Array = by_mode(solver, adaptive, fixed, b)
        return found

    def forward(b: Array) -> Array:
        return swept(lambda v: matvec(m, local(v)), b, lambda system: system)

    def backward(b: Array) -> Array:
        return swept(lambda v: local_transposed(matmul(v, m)), b, lambda system: system.T)

    return lax.custom_linear_solve(
        lambda v: v - matvec(m, local(v)),
        forcing,
        solve=lambda _, b: forward(b),
        transpose_solve=lambda _, b: backward(b),
    )


@functools.lru_cache(maxsize=64)
def chord_state(
    law: Law, tol: float, max_steps: int, solver: str = AUTO, stragglers: bool = True
) -> Callable[[ChordCore, Array, Array], Solved]:
    """Return the differentiable single-scenario solver (core, p (a,), q (a,)) -> (r (2a,), residual, steps, status).

    solver:      mode, see `base.solver_mode`
    stragglers:  see `RowSolver`; the adaptive form never leaves any
    """
    batch = RowSolver(law, tol, max_steps, stragglers)
    shell = batched_shell(functools.partial(by_mode, solver, batch.adaptive, batch.fixed))

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
        dx = solve_tangent(core.m, local_slope(law, core, x, p, q), forcing, solver, core.steps)
        residual = functools.partial(residual_current, law)
        _, dr = jax.jvp(residual, (core, x, p, q), (tangents[0], dx, *tangents[1:]))
        nothing = (jnp.zeros_like(out[1]), *(np.zeros(v.shape, jax.dtypes.float0) for v in out[2:]))
        return out, (dr, *nothing)

    return solve
