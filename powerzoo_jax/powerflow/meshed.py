"""Power flow of meshed networks: deviation-form chord with a blocked inverse, batched, exact, differentiable.

Textbook symbols as in `meshed_equations`: V = Vb (1 + e), zeta = dln|V| + j dtheta. A step turns e by the constant
inverse Jacobian times the mismatch; slow networks mix in the last step (Anderson 1965, doi:10.1145/321296.321305).
Stragglers go on in small groups, and what the chord cannot solve goes to a full Newton method in float64.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array, lax

from powerzoo_jax.powerflow import meshed_chord as chord
from powerzoo_jax.powerflow import meshed_equations as eqs
from powerzoo_jax.powerflow.batching import batched_shell, in_groups, lane_by_lane
from powerzoo_jax.powerflow.inputs import injections
from powerzoo_jax.powerflow.meshed_chord import Carry, Lanes, Shared
from powerzoo_jax.powerflow.meshed_factors import BranchFlow, MeshedFactors
from powerzoo_jax.powerflow.meshed_newton import newton
from powerzoo_jax.powerflow.meshed_slack import base_magnitude, normal_share, slack_mask
from powerzoo_jax.powerflow.meshed_tangent import solve_linear, solve_linear_own, state_tangent
from powerzoo_jax.powerflow.result import PowerFlowResult, Status

MAX_STEPS = 30
TOL = {"float32": 4e-7, "float64": 4e-10}  # [pu] estimate of the voltage error; promised are 1e-6 and 1e-9
POLISH = 2e-4  # share of the last error that flows may keep
REST = 8  # the batch goes on together while more than one lane in 8 is unfinished
GROUP = 32  # stragglers of the chord that go on together
NEWTON_GROUP = 8  # lanes factored together: enough to keep LAPACK busy, few enough to bound the memory
CACHE = 16_000  # buses times lanes that fit the cache of a CPU core together
SMALLEST = 128  # lanes of a tile at least: narrower products are slow


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


def solve_meshed(
    factors: MeshedFactors,
    p_pu: Array,
    q_pu: Array,
    v_set_pu: Array | None = None,
    *,
    slack_share: Array | None = None,
    tol: float | None = None,
    max_steps: int = MAX_STEPS,
    fixed_steps: int | None = None,
) -> MeshedResult:
    """Solve the power flow of one scenario; vmap it for many (the core is batched).

    S_i = V_i sum_j conj(Y_ij V_j), |V_i| held at PV buses and the slack

    factors:    from `prepare_meshed`; share them (in_axes=None) or map them
    p_pu, q_pu: (N,) [pu] net injections; both ignored at the slack, q also at buses that hold their magnitude
    v_set_pu:   (N,) [pu] magnitudes of the buses that hold theirs, ignored elsewhere; None keeps the base state's
    slack_share: (N,) [-] weights of the buses that together add what is missing to the active balance (distributed
                slack), as `slack_share` makes them; p of the slack bus then counts. None, or zeros: the slack alone
    tol:        [pu] voltage error at which a lane stops; None takes 4e-7 (float32), 4e-10 (float64)
    max_steps:  chord iterations before a lane goes to the float64 Newton fallback
    fixed_steps: take exactly so many chord iterations in every lane, with no fallback: for accelerators that would
                rather not ask. A lane that has not reached `tol` by then is OUT_OF_STEPS. None stops by itself

    Returns a MeshedResult; nothing in the program raises and nothing is NaN: `status` and `residual` tell.
    Raises ValueError or TypeError for arrays of another length or type.
    Differentiable forward and reverse in injections, set-points, shares and branch parameters (implicit function
    theorem).
    """
    p_pu, q_pu = injections(factors.n_bus, p_pu, q_pu)
    limit = TOL[p_pu.dtype.name] if tol is None else float(tol)
    solve = meshed_state(limit, fixed_steps or max_steps, factors.mix, fixed_steps is not None)
    shared = Shared(factors.layout, factors.core)
    if slack_share is not None:
        v_set = base_magnitude(factors) if v_set_pu is None else v_set_pu
        share = normal_share(factors, slack_share)
        return _expand(factors, p_pu, q_pu, share, solve(shared, p_pu, q_pu, v_set, share))
    given = (p_pu, q_pu) if v_set_pu is None else (p_pu, q_pu, v_set_pu)
    return _expand(factors, p_pu, q_pu, None, solve(shared, *given))


class State(NamedTuple):
    """What a solve finds, case order, all (N,) but the last four.

    e_re, e_im:      deviation, solved to the tolerance
    d_re, d_im:      what is missing to the solution: e + d holds differences that e alone rounds away
    p_left, q_left:  injection left unserved by e + d
    p_shared:        active power that the buses add together where they share it, else 0
    """

    e_re: Array
    e_im: Array
    d_re: Array
    d_im: Array
    p_left: Array
    q_left: Array
    p_shared: Array
    residual: Array
    iterations: Array
    status: Array


@functools.lru_cache(maxsize=32)
def meshed_state(tol: float, max_steps: int, mix: bool, fixed: bool = False) -> Callable[..., State]:
    """Return the differentiable single-scenario solver (shared, p, q[, v_set[, share]]) -> State."""
    shared, own = (Batch(tol, max_steps, mix, own, fixed) for own in (False, True))
    shell = batched_shell(shared.solve, own.solve)

    @jax.custom_jvp
    def solve(shared: Shared, *given: Array) -> State:
        return State(*shell(shared, *given))

    @functools.partial(solve.defjvp, symbolic_zeros=True)
    def _(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[State, State]:
        out = solve(*primals)
        return out, State(*state_tangent(primals, tangents, out))

    return solve


class Batch(NamedTuple):
    """The batched core: factors and arrays (B, N) as the user gave them -> State of (B, ...).

    With `own` every lane has factors of its own, (B, ...): what follows is mapped over them, but the loops are not, so
    that stragglers are gathered together with their factors. With `fixed` all lanes take `max_steps`, and that is all.
    """

    tol: float
    max_steps: int
    mix: bool
    own: bool
    fixed: bool = False

    def solve(self, shared: Shared, *given: Array) -> State:
        if self.own:
            lanes = self.chord(shared, given, None, REST)
        else:
            lanes = _in_tiles(lambda given: self.chord(shared, given, None, REST), given)
        if self.fixed:
            lanes = _without_lost(given, lanes)
        else:
            lanes = self.groups(~lanes.stopped, GROUP, self.chord, shared, given, lanes)
            newton = lane_by_lane(_newton) if self.own else _newton
            lanes = self.groups(lanes.status != Status.CONVERGED, NEWTON_GROUP, newton, shared, given, lanes)
        missing, left, power = self.polish(shared, given, lanes)
        return State(lanes.e_re, lanes.e_im, *missing, *left, power, lanes.residual, lanes.steps, lanes.status)

    def groups(
        self, todo: Array, size: int, part: Callable[..., Lanes], shared: Shared, given: tuple[Array, ...], lanes: Lanes
    ) -> Lanes:
        """Go on with some lanes, a few at a time."""
        if not self.own:
            return in_groups(todo, size, part, shared, given, lanes)  # type: ignore[no-any-return]
        gathered = in_groups(todo, size, lambda _, mine, lanes: part(*mine, lanes), (), (shared, given), lanes)
        return gathered  # type: ignore[no-any-return]

    def chord(self, shared: Shared, given: tuple[Array, ...], lanes: Lanes | None, rest: int = 0) -> Lanes:
        """Run the chord from the base state, or on from where `lanes` stand, until 1 / rest of the lanes are left."""
        given, lanes = self.inner((given, lanes))
        advance = self.over(functools.partial(chord.advance, tol=self.tol, mix=self.mix))
        aim, begin = self.over(functools.partial(chord.first, mix=self.mix))(shared, given, lanes)

        def unfinished(carry: tuple[Array, Carry]) -> Array:
            if self.fixed:
                return carry[0] < self.max_steps
            going = ~carry[1].stopped
            left = jnp.any(going) if rest == 0 else jnp.sum(going) * rest > going.shape[0]
            return (carry[0] < self.max_steps) & left

        def step(carry: tuple[Array, Carry]) -> tuple[Array, Carry]:
            return carry[0] + 1, advance(shared, aim, carry[1])

        _, end = lax.while_loop(unfinished, step, (jnp.int32(1), begin))
        return self.outer(self.over(chord.stand)(shared, aim, lanes, end))  # type: ignore[no-any-return]

    def polish(
        self, shared: Shared, given: tuple[Array, ...], lanes: Lanes
    ) -> tuple[tuple[Array, Array], tuple[Array, Array], Array]:
        """What is missing to the solution, what it leaves, and the power that buses share.

        Flows are small differences times large admittances. A program that reads voltages only does not pay for this.
        Lanes without a solution stay where they are.
        """
        e, right, left, power, held, *share = self.over(_what_is_left)(shared, *self.inner((given, lanes)))
        if self.own:
            zeta = solve_linear_own(shared, *(x[..., 0] for x in (e, right, *share)), tol=POLISH)[..., None]
        else:
            zeta = solve_linear(shared, e, right, *share, tol=POLISH)
        end = self.over(_last_turn)(shared, self.inner(lanes), e, left, power, held, zeta, *share)
        return self.outer(end)  # type: ignore[no-any-return]

    def over(self, part: Callable[..., Any]) -> Callable[..., Any]:
        return jax.vmap(part) if self.own else part

    def inner(self, tree: Any) -> Any:
        """A batch of one in every lane that has factors of its own."""
        return jax.tree.map(lambda x: x[:, None], tree) if self.own else tree

    def outer(self, tree: Any) -> Any:
        return jax.tree.map(lambda x: x[:, 0], tree) if self.own else tree


def _what_is_left(shared: Shared, given: tuple[Array, ...], lanes: Lanes) -> tuple[Array, ...]:
    """e, what is worth correcting and what is left (N, 2, B), shared power (B,), the turn that brings held magnitudes
    to their set-points (N, 2, B), and the shares (N, B) if there are.

    Flows are small differences of large ones, so in float32 their rounding and that of held magnitudes would show.
    """
    layout, dtype = shared.layout, given[0].dtype
    e = chord.inside(layout, lanes.e_re, lanes.e_im)
    with jax.enable_x64(True):
        p, q, *rest = (eqs.finite(x).astype(jnp.float64) for x in given)
        rest = [jnp.take(x.T, layout.inward, axis=0, mode="clip") for x in rest]
        net, wide = shared.core.wide, e.astype(jnp.float64)
        size = jnp.sqrt(jnp.sum(jnp.square(wide.at[:, 0].add(1)), 1))
        wanted = rest[0] / net.v_mag[:, None] if rest else jnp.ones_like(size)
        grow = jnp.where(layout.free[:, 1:] | (size == 0), 0, wanted / jnp.where(size == 0, 1, size) - 1)
        at = eqs.rotate(wide, jnp.stack([jnp.zeros_like(grow), grow], 1))
        left = eqs.mismatch(layout, net, chord.inside(layout, p, q) - net.s_base[:, :, None], at)
        power = jnp.zeros_like(left[0, 0])
        for part in rest[1:]:
            power = eqs.shared_power(layout, left)
            left = eqs.give_out(left, part, power)
        left, held, power, *share = (x.astype(dtype) for x in (left, at - wide, power, *rest[1:]))
    solved = (lanes.status == Status.CONVERGED)[None, None]
    return e, jnp.where(solved, left, 0), left, power, held, *share


def _last_turn(
    shared: Shared, lanes: Lanes, e: Array, left: Array, power: Array, held: Array, zeta: Array, *share: Array
) -> tuple[tuple[Array, Array], tuple[Array, Array], Array]:
    """Change of e for the last turn, what it leaves, and the shared power with what belongs to that turn."""
    layout, core = shared
    solved = (lanes.status == Status.CONVERGED)[None, None]
    held, zeta = jnp.where(solved, held, 0), jnp.where(solved, zeta, 0)
    for part in share:
        more = zeta[layout.slack, 0]
        power, left = power + more, eqs.give_out(left, part, more)
        zeta = zeta * layout.free[:, :, None].astype(e.dtype)
    left = left - eqs.slope_times(layout, core.main, e, eqs.power(layout, core.main, e), zeta)
    return chord.outside(layout, held + eqs.turn(e, zeta)), chord.outside(layout, left), power


def _in_tiles(solve: Callable[[tuple[Array, ...]], Lanes], given: tuple[Array, ...]) -> Lanes:
    """Solve a batch in tiles that fit the cache of a CPU core; other devices take it whole."""
    batch, n_bus = given[0].shape
    tile = max(SMALLEST, 1 << (CACHE // n_bus).bit_length() - 1) if n_bus <= CACHE else SMALLEST
    if jax.default_backend() != "cpu" or batch < 2 * tile or batch % tile:
        return solve(given)
    tiles = jax.tree.map(lambda x: x.reshape(-1, tile, *x.shape[1:]), given)
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), lax.map(solve, tiles))


def _without_lost(given: tuple[Array, ...], lanes: Lanes) -> Lanes:
    """Bring lanes that ran off, or were given what is not finite, back to the base state; their status tells why."""
    found = jnp.all(jnp.isfinite(lanes.e_re) & jnp.isfinite(lanes.e_im), 1) & jnp.isfinite(lanes.residual)
    sound = functools.reduce(jnp.logical_and, (jnp.all(jnp.isfinite(x), 1) for x in given))
    lost = jnp.where(sound, jnp.int32(Status.OUT_OF_STEPS), jnp.int32(Status.BAD_INPUT))
    return lanes._replace(
        e_re=jnp.where(found[:, None], lanes.e_re, 0),
        e_im=jnp.where(found[:, None], lanes.e_im, 0),
        residual=jnp.where(found, lanes.residual, jnp.finfo(lanes.residual.dtype).max),
        status=jnp.where(found, lanes.status, lost),
    )


def _newton(shared: Shared, given: tuple[Array, ...], lanes: Lanes) -> Lanes:
    e, residual, steps, status = newton(*shared, *chord.door(shared, given))
    return Lanes(*chord.outside(shared.layout, e), residual, lanes.steps + steps, lanes.stopped, status)


def _expand(factors: MeshedFactors, p_pu: Array, q_pu: Array, share: Array | None, found: State) -> MeshedResult:
    """From the deviation to voltages, flows, losses and the injections of buses that hold their magnitude."""
    flow = factors.flow
    p_pu, q_pu = eqs.finite(p_pu), eqs.finite(q_pu)
    v = _times(factors.v_base, jnp.stack([1 + found.e_re, found.e_im], -1))
    i = _series_current(flow, jnp.stack([found.e_re, found.e_im], -1), jnp.stack([found.d_re, found.d_im], -1))
    # charging may be most of a flow: the voltage that a stop at the tolerance leaves off would show
    fine = _times(factors.v_base, jnp.stack([1 + (found.e_re + found.d_re), found.e_im + found.d_im], -1))
    u, far = _times(flow.ratio, fine[flow.f]), fine[flow.t]
    s_from, s_to = _times_conj(u, i), _times_conj(far, -i)
    q_from = s_from[:, 1] - flow.half_charging * jnp.sum(u * u, -1)
    q_to = s_to[:, 1] - flow.half_charging * jnp.sum(far * far, -1)
    square = jnp.sum(i * i, -1)
    shunt = factors.shunt * jnp.sum(fine * fine, -1, keepdims=True)
    q_bus = q_pu - jnp.where(factors.held, found.q_left, 0)
    p_added = jnp.where(slack_mask(factors), -found.p_left, 0)
    if share is not None:
        p_added = p_added + eqs.finite(share) * found.p_shared
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
        p_slack=(p_pu + p_added)[factors.slack],
        q_slack=q_bus[factors.slack],
        p_added=p_added,
        q_bus=q_bus,
        p_shunt=jnp.sum(shunt[:, 0]),
        q_shunt=-jnp.sum(shunt[:, 1]),
        residual=found.residual,
        iterations=found.iterations,
        status=found.status,
    )


@jax.custom_jvp
def _series_current(flow: BranchFlow, e: Array, rest: Array) -> Array:
    """`_current` in float64: what a branch carries may be a small part of what it carries at the base state."""
    dtype = e.dtype
    with jax.enable_x64(True):
        i_base, i_rest, slope, slope_rest, e, rest = (
            x.astype(jnp.float64) for x in (flow.i_base, flow.i_rest, flow.slope, flow.slope_rest, e, rest)
        )
        wide = dataclasses.replace(flow, i_base=i_base + i_rest, slope=slope + slope_rest)
        return _current(wide, e, rest).astype(dtype)


@_series_current.defjvp
def _(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Array, Array]:
    # a derivative needs no digits beyond those of its dtype
    return _series_current(*primals), jax.jvp(_current, primals, tangents)[1]


def _current(flow: BranchFlow, e: Array, rest: Array) -> Array:
    """i = i_base (1 + e_to) + slope (e_from - e_to), (L, 2), with e in two parts: no difference of rounded voltages."""
    drop = (e[flow.f] - e[flow.t]) + (rest[flow.f] - rest[flow.t])
    return flow.i_base + (_times(flow.i_base, e[flow.t] + rest[flow.t]) + _times(flow.slope, drop))


def _times(a: Array, b: Array) -> Array:
    """Complex product of pairs (..., 2)."""
    return jnp.stack([a[..., 0] * b[..., 0] - a[..., 1] * b[..., 1], a[..., 0] * b[..., 1] + a[..., 1] * b[..., 0]], -1)


def _times_conj(a: Array, b: Array) -> Array:
    """a conj(b) of pairs (..., 2)."""
    return jnp.stack([a[..., 0] * b[..., 0] + a[..., 1] * b[..., 1], a[..., 1] * b[..., 0] - a[..., 0] * b[..., 1]], -1)
