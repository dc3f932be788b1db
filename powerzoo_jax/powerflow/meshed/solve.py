"""Power flow of meshed networks: deviation-form chord with a blocked inverse, batched, exact, differentiable.

Textbook symbols as in `meshed.equations`: V = Vb (1 + e), zeta = dln|V| + j dtheta. A step turns e by the constant
inverse Jacobian times the mismatch; slow networks mix in the last step (Anderson 1965, doi:10.1145/321296.321305).
Stragglers go on in small groups, and what the chord cannot solve goes to a full Newton method in float64.

Flows are small differences times large admittances, so they would show what float32 rounds off voltages. e stays as it
was solved; a last correction (`polish`) is kept beside it, and the branches are read off both. A program that reads
voltages only does not pay for this.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from powerzoo_jax.base import struct
from powerzoo_jax.base.errors import SolverError
from powerzoo_jax.base.ranges import FINITE, NOT_NEGATIVE, Count, Positive, axes, checks_ranges
from powerzoo_jax.base.solver_mode import ADAPTIVE, AUTO, FIXED, NATIVE, by_mode, check_mode
from powerzoo_jax.powerflow.batching import batched_shell, in_groups, in_tiles, lane_by_lane
from powerzoo_jax.powerflow.chord import iterate
from powerzoo_jax.powerflow.meshed import chord
from powerzoo_jax.powerflow.meshed import equations as eqs
from powerzoo_jax.powerflow.meshed.base_case import POLISH, VOLTAGE_TOL, StepCounts
from powerzoo_jax.powerflow.meshed.branches import Ends, NetworkData, Polished, SolvedState, branch_ends
from powerzoo_jax.powerflow.meshed.chord import ChordIteration, ChordLanes, Shared
from powerzoo_jax.powerflow.meshed.derivative import LinearMode, solve_linear, state_tangent
from powerzoo_jax.powerflow.meshed.exact import exact_ends
from powerzoo_jax.powerflow.meshed.factors import MeshedFactors
from powerzoo_jax.powerflow.meshed.fixed import FixedLanes, solve_fixed, solve_rest
from powerzoo_jax.powerflow.meshed.newton import newton
from powerzoo_jax.powerflow.meshed.slack import base_magnitude, normal_share, slack_mask
from powerzoo_jax.powerflow.native.library import in_kernel
from powerzoo_jax.powerflow.native.solve import TOL as MISMATCH_TOL
from powerzoo_jax.powerflow.native.solve import Readings, read_flows, solve_native
from powerzoo_jax.powerflow.result import PowerFlowResult, Status


class _Deviation(NamedTuple):
    """Deviations of the lanes, (N, 2, B): e, injections and what is left there, the turn that brings held magnitudes to
    their set-points; shared power (B,), shares (N, B) or None, and which lanes are solved (B,).
    """

    e: Array
    s: Array
    left: Array
    held: Array
    power: Array
    share: Array | None
    solved: Array


def polish(grid: NetworkData, given: tuple[Array, ...], lanes: ChordLanes, *, own: bool) -> Polished:
    """Correct solved lanes once more and read the branches; lanes without a solution stay where they are.

    With `own` every lane has a grid of its own and arrays are (B, 1, ...).
    """
    over: Callable[..., Any] = jax.vmap if own else lambda part: part
    point = over(_standing)(grid.shared, given, lanes)
    worth = jnp.where(point.solved[..., None, None, :], point.left, 0)
    zeta = solve_linear(grid.shared, point.e, point.s, worth, point.share, tol=POLISH, own=own)
    return over(_turned)(grid, point, zeta)  # type: ignore[no-any-return]


def _standing(shared: Shared, given: tuple[Array, ...], lanes: ChordLanes) -> _Deviation:
    """Mismatch at e in float64: its rounding in float32, and that of held magnitudes, would show in flows."""
    layout, dtype = shared.layout, given[0].dtype
    e = chord.inside(layout, lanes.e_re, lanes.e_im)
    with jax.enable_x64(True):
        p, q, *rest = (eqs.finite(x).astype(jnp.float64) for x in given)
        rest = [jnp.take(x.T, layout.inward, axis=0, mode="clip") for x in rest]
        net, wide, wanted = shared.core.wide, e.astype(jnp.float64), chord.inside(layout, p, q)
        size = jnp.sqrt(jnp.square(1 + wide[:, 0]) + jnp.square(wide[:, 1]))
        goal = rest[0] / net.v_mag[:, None] if rest else jnp.ones_like(size)
        grow = jnp.where(layout.free[:, 1:] | (size == 0), 0, goal / jnp.where(size == 0, 1, size) - 1)
        held = grow[:, None] * jnp.stack([1 + wide[:, 0], wide[:, 1]], 1)
        left = eqs.mismatch(layout, net, wanted - net.s_base[:, :, None], wide + held)
        power = jnp.zeros_like(left[0, 0])
        for part in rest[1:]:
            power = eqs.shared_power(layout, left)
            left, wanted = eqs.distribute_slack(left, part, power), eqs.distribute_slack(wanted, part, power)
        s, left, held, power = (x.astype(dtype) for x in (wanted - left, left, held, power))
        share = rest[1].astype(dtype) if len(rest) > 1 else None
    return _Deviation(e, s, left, held, power, share, lanes.status == Status.CONVERGED)


def _turned(grid: NetworkData, point: _Deviation, zeta: Array) -> Polished:
    layout, core = grid.shared
    e, s, left, held, power, share, solved = point
    held, zeta = (jnp.where(solved[None, None], x, 0) for x in (held, zeta))
    if share is not None:
        more = zeta[layout.slack, 0]
        power, left = power + more, eqs.distribute_slack(left, share, more)
        zeta = zeta * layout.free[:, :, None].astype(e.dtype)
    left = left - eqs.slope_times(layout, core.main, e, s, zeta)
    missing = held + eqs.turn(e, zeta)
    ends = jax.tree.map(jnp.transpose, branch_ends(grid, e, missing))
    outside = functools.partial(chord.outside, layout)
    return Polished(*outside(missing), *outside(left), power, ends)


MAX_STEPS = 30
TOL = VOLTAGE_TOL
REST = 8  # the batch goes on together while more than one lane in 8 is unfinished
GROUP = 32  # stragglers of the chord that go on together
NEWTON_GROUP = 8  # lanes factored together: enough to keep LAPACK busy, few enough to bound the memory


@struct.dataclass(kw_only=True)
class MeshedResult(PowerFlowResult):
    """`PowerFlowResult` of a meshed network; branch currents are those of the series element, losses net of charging.

    p_to, q_to:         (L,)  [pu]  power entering the branch at its to end
    p_added:            (N,)  [pu]  active power that the slack, or the buses that share its part, add to what is given
    q_bus:              (N,)  [pu]  reactive injection, solved for at buses that hold their magnitude
    p_shunt, q_shunt:   ()    [pu]  consumption of the bus shunts
    """

    p_to: Array
    q_to: Array
    p_added: Array
    q_bus: Array
    p_shunt: Array
    q_shunt: Array


@checks_ranges("solve_meshed")
def solve_meshed(
    factors: MeshedFactors,
    p_pu: Annotated[Array, FINITE, axes("N", told=True)],
    q_pu: Annotated[Array, FINITE, axes("N", told=True)],
    v_set_pu: Annotated[Array, NOT_NEGATIVE, axes("N", told=True)] | None = None,
    *,
    slack_share: Annotated[Array, NOT_NEGATIVE, axes("N", told=True)] | None = None,
    tol: Positive | None = None,
    max_steps: Count = MAX_STEPS,
    solver: str = AUTO,
    fixed_steps: Count | None = None,
) -> MeshedResult:
    """Solve the power flow of one scenario; vmap it for many (the core is batched).

    S_i = V_i sum_j conj(Y_ij V_j), |V_i| held at PV buses and the slack

    factors:    from `prepare_meshed`; share them (in_axes=None) or map them
    p_pu, q_pu: (N,) [pu] net injections; both ignored at the slack, q also at buses that hold their magnitude
    v_set_pu:   (N,) [pu] magnitudes of the buses that hold theirs, ignored elsewhere; None keeps the base state's
    slack_share: (N,) [-] weights of the buses that together add what is missing to the active balance (distributed
                slack), as `slack_share` makes them; p of the slack bus then counts. None, or zeros: the slack alone
    tol:        [pu] voltage error at which a lane stops; None takes 4e-7 (float32), 4e-10 (float64). For the compiled
                kernel the largest mismatch of the injections, found in float64; None takes 2e-8, 2e-9
    max_steps:  chord iterations before a lane goes to the float64 Newton fallback, where the solver is adaptive
    solver:     "adaptive" iterates until every lane is done, and falls back to Newton's method. "fixed" takes the steps
                that `prepare_meshed` counted, with no question to the host: a lane that has not reached `tol` by then
                is OUT_OF_STEPS. "native" is the compiled kernel, on CPUs. "auto" is native on a CPU where the factors
                are for it, are not mapped and the slack is not shared, else adaptive; elsewhere fixed, with one
                question after which the lanes that are not done are solved by a Newton-Krylov method
    fixed_steps: "fixed" with so many chord iterations

    Returns a MeshedResult; nothing in the program raises and nothing is NaN: `status` and `residual` tell.
    Raises SettingsError for arrays of another length or type, for numbers at hand that are not finite, ValueError for a
    solver that there is not, and SolverError for one that the factors were not prepared for.
    Differentiable forward and reverse in injections, set-points, shares and branch parameters (implicit function
    theorem).
    """
    limit = TOL[p_pu.dtype.name] if tol is None else float(tol)
    counts = factors.counts if fixed_steps is None else factors.counts._replace(chord=fixed_steps)
    mode = check_mode(solver, NATIVE) if fixed_steps is None else FIXED
    if mode == AUTO and factors.core.blocks is None and slack_share is None:
        mode = NATIVE
    _check_prepared(factors, mode, shared=slack_share is not None)
    mismatch = MISMATCH_TOL[p_pu.dtype.name] if tol is None else limit
    solve = meshed_state(limit, max_steps, factors.mix, counts, mode, mismatch)
    native = factors.native if mode in (AUTO, NATIVE) and slack_share is None else None
    grid = NetworkData(Shared(factors.layout, factors.core), factors.flow, factors.v_base, native)
    if slack_share is not None:
        v_set = base_magnitude(factors) if v_set_pu is None else v_set_pu
        share = normal_share(factors, slack_share)
        return expand(factors, p_pu, q_pu, share, solve(grid, p_pu, q_pu, v_set, share))
    given = (p_pu, q_pu) if v_set_pu is None else (p_pu, q_pu, v_set_pu)
    found = solve(grid, *given)
    if native is None:
        return expand(factors, p_pu, q_pu, None, found)
    return _reading(mode)(_readable(factors), p_pu, q_pu, found)


def _check_prepared(factors: MeshedFactors, mode: str, *, shared: bool) -> None:
    """SolverError where the factors are not for the solver that was asked for."""
    if mode == NATIVE and (factors.native is None or shared):
        what = "does not share the slack" if shared else "is not what these factors were prepared for"
        raise SolverError(f'The compiled kernel {what}. Leave solver="auto", or prepare_meshed(case, solver="native").')
    if mode in (ADAPTIVE, FIXED) or shared:
        factors.need_blocks("A shared slack" if shared else f"solver={mode!r}")


@functools.lru_cache(maxsize=32)
def meshed_state(
    tol: float, max_steps: int, mix: bool, counts: StepCounts, mode: str, mismatch_tol: float
) -> Callable[..., SolvedState]:
    """Return the differentiable single-scenario solver (grid, p, q[, v_set[, share]]) -> SolvedState."""
    shared, own = (Batch(tol, max_steps, mix, counts, mode, mismatch_tol, own) for own in (False, True))
    shell = batched_shell(shared.solve, own.solve)

    @jax.custom_jvp
    def solve(grid: NetworkData, *given: Array) -> SolvedState:
        found: SolvedState = shell(grid, *given)
        return found

    @functools.partial(solve.defjvp, symbolic_zeros=True)
    def _(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[SolvedState, SolvedState]:
        out = solve(*primals)
        return out, state_tangent(primals, tangents, out, LinearMode(mode, counts.sweeps))

    return solve


class Batch(NamedTuple):
    """The batched core: factors and arrays (B, N) as the user gave them -> SolvedState of (B, ...).

    With `own` every lane has factors of its own, (B, ...): what follows is mapped over them, but the loops are not, so
    that stragglers are gathered together with their factors.
    """

    tol: float
    max_steps: int
    mix: bool
    counts: StepCounts
    mode: str
    mismatch_tol: float
    own: bool

    def solve(self, grid: NetworkData, *given: Array) -> SolvedState:
        kernel = grid.native is not None and not self.own
        if grid.shared.core.blocks is None and not kernel:
            raise SolverError(
                "A network per lane takes the JAX form, and these factors were prepared for the compiled kernel alone. "
                'Give prepare_meshed solver="adaptive".'
            )
        cpu = self.native if kernel else self.adaptive
        found: SolvedState = (
            cpu(grid, *given) if self.mode == NATIVE else by_mode(self.mode, cpu, self.fixed, grid, *given)
        )
        return found

    def native(self, grid: NetworkData, *given: Array) -> SolvedState:
        """The compiled kernel, where the program may hold it."""

        def solve(grid: NetworkData, *given: Array) -> SolvedState:
            assert grid.native is not None
            return solve_native(grid.native, given, tol=self.mismatch_tol, max_steps=self.max_steps)

        plain = None if self.mode == NATIVE else self.adaptive
        found: SolvedState = in_kernel(solve, plain, grid, *given)
        return found

    def fixed(self, grid: NetworkData, *given: Array) -> SolvedState:
        """A known number of steps; on accelerators that choose it by themselves, one question for the rest."""
        begin = self.over(functools.partial(solve_fixed, counts=self.counts, tol=self.tol, mix=self.mix))

        def read(given: tuple[Array, ...], lanes: FixedLanes) -> SolvedState:
            state: SolvedState = self.outer(self.over(_read)(grid, lanes))
            return state

        if self.mode == FIXED:
            return self.tiles(lambda tile: read(tile, begin(grid.shared, self.inner(tile))), given)  # type: ignore[no-any-return]
        inner = self.inner(given)
        lanes = begin(grid.shared, inner)
        rest = self.over(solve_rest)
        lanes = lax.cond(jnp.any(lanes.slow), rest, lambda _, __, lanes: lanes, grid.shared, inner, lanes)
        return read(given, lanes)

    def adaptive(self, grid: NetworkData, *given: Array) -> SolvedState:
        """Steps until every lane is done; stragglers in groups, then Newton's method in float64."""
        shared = grid.shared
        lanes = self.tiles(lambda given: self.chord(shared, given, None, REST), given)
        lanes = self.groups(~lanes.stopped, GROUP, self.chord, shared, given, lanes)
        newton = lane_by_lane(_newton) if self.own else _newton
        lanes = self.groups(lanes.status != Status.CONVERGED, NEWTON_GROUP, newton, shared, given, lanes)
        end = self.tiles(lambda tile: self.outer(polish(grid, *self.inner(tile), own=self.own)), (given, lanes))
        return SolvedState(lanes.e_re, lanes.e_im, end, lanes.residual, lanes.steps, lanes.status)

    def tiles(self, part: Callable[..., Any], inputs: Any) -> Any:
        return part(inputs) if self.own else in_tiles(part, inputs, cpu=self.mode == AUTO)

    def groups(
        self,
        todo: Array,
        size: int,
        part: Callable[..., ChordLanes],
        shared: Shared,
        given: tuple[Array, ...],
        lanes: ChordLanes,
    ) -> ChordLanes:
        """Lanes after a part of the solver that some of them still need, a few at a time."""
        if not self.own:
            return in_groups(todo, size, part, shared, given, lanes)  # type: ignore[no-any-return]
        gathered = in_groups(todo, size, lambda _, mine, lanes: part(*mine, lanes), (), (shared, given), lanes)
        return gathered  # type: ignore[no-any-return]

    def chord(self, shared: Shared, given: tuple[Array, ...], lanes: ChordLanes | None, rest: int = 0) -> ChordLanes:
        """Run the chord from the base state, or on from where `lanes` stand, until 1 / rest of the lanes are left."""
        given, lanes = self.inner((given, lanes))
        aim, begin = self.over(functools.partial(chord.first, mix=self.mix))(shared, given, lanes)

        def advance(state: ChordIteration) -> ChordIteration:
            def step(shared: Shared, aim: eqs.Aim, state: ChordIteration) -> ChordIteration:
                return chord.advance(chord.system(shared, aim), state, tol=self.tol, mix=self.mix)

            return self.over(step)(shared, aim, state)  # type: ignore[no-any-return]

        end = iterate(advance, begin, taken=1, max_steps=self.max_steps, rest=rest)
        return self.outer(self.over(chord.stand)(shared, aim, lanes, end))  # type: ignore[no-any-return]

    def over(self, part: Callable[..., Any]) -> Callable[..., Any]:
        return jax.vmap(part) if self.own else part

    def inner(self, tree: Any) -> Any:
        """A batch of one in every lane that has factors of its own."""
        return jax.tree.map(lambda x: x[:, None], tree) if self.own else tree

    def outer(self, tree: Any) -> Any:
        return jax.tree.map(lambda x: x[:, 0], tree) if self.own else tree


def _read(grid: NetworkData, lanes: FixedLanes) -> SolvedState:
    """Solution (B, ...) in case order, with the branches read off e + d."""
    outside = functools.partial(chord.outside, grid.shared.layout)
    last = Polished(*outside(lanes.d), *outside(lanes.left), lanes.power, exact_ends(grid, lanes.e, lanes.d))
    return SolvedState(*outside(lanes.e), last, lanes.residual, lanes.steps, lanes.status)


def _newton(shared: Shared, given: tuple[Array, ...], lanes: ChordLanes) -> ChordLanes:
    aim, start = chord.mismatch_targets(shared, given)
    with jax.enable_x64(True):
        net = shared.core.wide
    e, residual, steps, status = newton(shared.layout, net, aim, start)
    return ChordLanes(*chord.outside(shared.layout, e), residual, lanes.steps + steps, lanes.stopped, status)


def _readable(factors: MeshedFactors) -> MeshedFactors:
    """The part of the factors that flows are read with."""
    return dataclasses.replace(factors, layout=None, core=None, branch=None)  # type: ignore[arg-type]


# a shell of lanes takes arrays
_READ = jax.tree.structure((0, 0, SolvedState(0, 0, Polished(0, 0, 0, 0, 0, Ends(*[0] * 6)), 0, 0, 0)))  # type: ignore[arg-type]


@functools.lru_cache(maxsize=8)
def _reading(mode: str) -> Callable[..., MeshedResult]:
    """Result of one scenario (factors, p, q, state): read by the kernel where it solves, differentiated as `expand`."""

    def by_kernel(factors: MeshedFactors, p: Array, q: Array, found: SolvedState) -> MeshedResult:
        return results_of(factors, p, found, read_flows(factors, (p, q), found))

    def in_jax(factors: MeshedFactors, p: Array, q: Array, found: SolvedState) -> MeshedResult:
        return jax.vmap(expand, in_axes=(None, 0, 0, None, 0))(factors, p, q, None, found)

    def core(factors: MeshedFactors, *leaves: Array) -> MeshedResult:
        cpu, given = functools.partial(in_kernel, by_kernel, in_jax), jax.tree.unflatten(_READ, leaves)
        return (cpu if mode == NATIVE else functools.partial(by_mode, mode, cpu, in_jax))(factors, *given)  # type: ignore[no-any-return]

    def own(factors: MeshedFactors, *leaves: Array) -> MeshedResult:
        p, q, found = jax.tree.unflatten(_READ, leaves)
        return jax.vmap(expand, in_axes=(0, 0, 0, None, 0))(factors, p, q, None, found)

    shell = batched_shell(core, own)

    @jax.custom_jvp
    def read(factors: MeshedFactors, p: Array, q: Array, found: SolvedState) -> MeshedResult:
        return shell(factors, *jax.tree.leaves((p, q, found)))  # type: ignore[no-any-return]

    @read.defjvp
    def _(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[MeshedResult, MeshedResult]:
        def plain(factors: MeshedFactors, p: Array, q: Array, found: SolvedState) -> MeshedResult:
            return expand(factors, p, q, None, found)

        return read(*primals), jax.jvp(plain, primals, tangents)[1]

    return read


def expand(factors: MeshedFactors, p_pu: Array, q_pu: Array, share: Array | None, found: SolvedState) -> MeshedResult:
    """From the state to voltages, flows, losses and the injections of buses that hold their magnitude."""
    flow, last = factors.flow, found.polished
    ends, q_pu = last.ends, eqs.finite(q_pu)
    # charging may be most of a flow: the voltage that a stop at the tolerance leaves off would show
    fine = _at_base(factors, found.e_re + last.d_re, found.e_im + last.d_im)
    size_from, size_to = ends.u_re**2 + ends.u_im**2, ends.w_re**2 + ends.w_im**2
    q_from = ends.u_im * ends.i_re - ends.u_re * ends.i_im - flow.half_charging * size_from
    q_to = ends.w_re * ends.i_im - ends.w_im * ends.i_re - flow.half_charging * size_to
    size = fine[0] ** 2 + fine[1] ** 2
    p_added = jnp.where(slack_mask(factors), -last.p_left, 0)
    if share is not None:
        p_added = p_added + eqs.finite(share) * last.p_shared
    flows = Readings(
        p_added=p_added,
        q_bus=q_pu - jnp.where(factors.held, last.q_left, 0),
        i_re=ends.i_re,
        i_im=ends.i_im,
        p_from=ends.u_re * ends.i_re + ends.u_im * ends.i_im,
        q_from=q_from,
        p_to=-(ends.w_re * ends.i_re + ends.w_im * ends.i_im),
        q_to=q_to,
        p_loss=jnp.sum(flow.r * (ends.i_re**2 + ends.i_im**2)),
        q_loss=jnp.sum(q_from + q_to),
        p_shunt=jnp.sum(factors.shunt[:, 0] * size),
        q_shunt=-jnp.sum(factors.shunt[:, 1] * size),
    )
    return _result(factors, p_pu, found, flows)


def _result(factors: MeshedFactors, p_pu: Array, found: SolvedState, flows: Readings) -> MeshedResult:
    v_re, v_im = _at_base(factors, found.e_re, found.e_im)
    return MeshedResult(
        v_re=v_re,
        v_im=v_im,
        p_slack=(eqs.finite(p_pu) + flows.p_added)[factors.slack],
        q_slack=flows.q_bus[factors.slack],
        residual=found.residual,
        iterations=found.iterations,
        status=found.status,
        **flows._asdict(),
    )


# results of a batch from its states and what is read off them
results_of = jax.vmap(_result, in_axes=(None, 0, 0, 0))


def _at_base(factors: MeshedFactors, e_re: Array, e_im: Array) -> tuple[Array, Array]:
    """V = Vb (1 + e)."""
    (a, b), re = (factors.v_base[:, 0], factors.v_base[:, 1]), 1 + e_re
    return a * re - b * e_im, a * e_im + b * re
