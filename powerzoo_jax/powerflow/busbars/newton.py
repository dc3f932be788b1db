"""Newton's method for substations with two busbars, in JAX: another assignment in every lane, factorised anew.

A terminal is an end of a branch or a shunt. With A = Vb conj(Y Vb_far), the power that it takes at V = Vb (1 + w) is

    S = S_base |1 + w|^2 + A (1 + w) conj(w_far - w),    dS/dtheta = j a,  dS/dln|V| = 2 S - a,  dS/dtheta_far = -j a,
    dS/dln|V_far| = a,    a = A (1 + w) conj(1 + w_far)

so that the Jacobian follows from sums over terminals. A lane says on which busbar each of them stands; both busbars of
a substation are one block row of `busbars.elimination`, whose rows of what is not unknown are those of the unit matrix.
Without float64 w and the mismatch are pairs of floats (`base.double_single`), while the Jacobian stays one of floats:
an inexact move costs a step at most, and the mismatch alone decides what is found. Lanes stand last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from powerzoo_jax.base import double_single as ds
from powerzoo_jax.base import struct
from powerzoo_jax.base.double_single import Pair
from powerzoo_jax.base.host import on_host
from powerzoo_jax.cases import Case
from powerzoo_jax.cases.topology import branch_positions
from powerzoo_jax.powerflow.busbars.elimination import Elimination, plan_elimination, solve
from powerzoo_jax.powerflow.newton import damping
from powerzoo_jax.powerflow.result import Status
from powerzoo_jax.powerflow.wide import Wide

LONGEST = 0.3  # [-] largest move of ln|V| in a step: keeps the iterate on the branch of solutions it started from
WIDEST = 1.0  # [rad] largest move of an angle

Complex = tuple[Any, Any]  # real and imaginary part, arrays or pairs of floats


@struct.dataclass(kw_only=True)
class BusbarLanes:
    """Data of S substations with T = 2L + H terminals for the JAX form: from ends, to ends, shunts.

    here, far:  (T,)     int32  substation of each terminal and of the opposite end, itself for a shunt
    runs:       (n, R)   int32  terminals of substations with about as many; padding is T
    place:      (S,)     int32  place of every substation among the runs
    cross, flow: (T, 2)  [pu]   A and S_base
    slope, i_base: (L, 2) [pu]  series current = i_base (1 + w_t) + slope (w_f - w_t)
    v_base:     (S, 2)   [pu]   base voltages                    per_mag: (S,) 1 / |v_base|
    hold:       (S,)     [-]    set-points over base magnitudes
    dc:         (T, 2)   [pu]   susceptance of the DC flow, and what a shunt or phase shift takes there
    slack:      ()       int32  position of the reference bus
    """

    plan: Elimination
    here: Array
    far: Array
    runs: tuple[Array, ...]
    place: Array
    cross: Pair
    flow: Pair
    slope: Pair
    i_base: Pair
    v_base: Array
    per_mag: Pair
    hold: Pair
    dc: Array
    slack: Array


class LaneState(NamedTuple):
    """Solution: deviation e and injection s (2S, 2, B), flows and series currents (L, 2, B), and its proof (B,)."""

    e: Array
    s: Array
    s_from: Array
    s_to: Array
    current: Array
    residual: Array
    iterations: Array
    status: Array


@on_host
def prepare_lanes(
    case: Case, v: np.ndarray, v_set: np.ndarray, half_conductance: np.ndarray | None, dtype: np.dtype
) -> BusbarLanes:
    """Data for the JAX form at base voltages v (S,), complex [pu], and set-points v_set (S,) (host).

    half_conductance: (L,) [pu] of each end of the branches, None for none
    """
    f, t = branch_positions(case)
    b, shunted = case.branch, np.flatnonzero((case.bus.gs_mw != 0) | (case.bus.bs_mvar != 0))
    y, half = 1 / (b.r_pu + 1j * b.x_pu), 0.5j * b.b_pu + (0 if half_conductance is None else half_conductance)
    ratio = np.exp(-1j * np.deg2rad(b.shift_deg)) / b.tap
    u, w = ratio * v[f], v[t]
    consumed = (case.bus.gs_mw - 1j * case.bus.bs_mvar)[shunted] / case.base_mva
    cross = np.r_[-u * np.conj(y * w), -w * np.conj(y * u), np.zeros(len(shunted))]
    flow = np.r_[
        u * np.conj(y * (u - w) + half * u), w * np.conj(y * (w - u) + half * w), consumed * abs(v[shunted]) ** 2
    ]
    # a branch without reactance pushes nothing: the start is as good without it
    dc = np.where(b.x_pu == 0, 0, 1 / np.where(b.x_pu == 0, 1, b.x_pu * b.tap))
    push = dc * np.deg2rad(b.shift_deg)
    dc = np.stack([np.r_[dc, dc, 0 * shunted], np.r_[-push, push, consumed.real]], 1)
    here, far = np.r_[f, t, shunted], np.r_[t, f, shunted]
    mine: list[list[int]] = [[] for _ in range(case.n_bus)]
    for terminal, bus in enumerate(here.tolist()):
        mine[bus].append(terminal)
    order = sorted(range(case.n_bus), key=lambda k: -len(mine[k]))
    runs: list[list[list[int]]] = []
    for k in order:
        # a run is cut where they are half as many: padding at most doubles it
        if not runs or 2 * len(mine[k]) <= len(runs[-1][0]):
            runs.append([])
        runs[-1].append(mine[k] + [len(here)] * (len(runs[-1][0]) - len(mine[k]) if runs[-1] else 0))

    def number(x: np.ndarray) -> Pair:
        x = np.stack([x.real, x.imag], 1) if np.iscomplexobj(x) else x
        return Pair(*map(jnp.asarray, ds.split_constant(x, dtype)))

    def whole(x: Any) -> Array:
        return jnp.asarray(np.asarray(x, np.int32))

    with jax.enable_x64(True):
        return BusbarLanes(
            plan=plan_elimination(case.n_bus, f, t),
            here=whole(here),
            far=whole(far),
            runs=tuple(whole(run) for run in runs),
            place=whole(np.argsort(order)),
            cross=number(cross),
            flow=number(flow),
            slope=number(y * u),
            i_base=number(y * (u - w)),
            v_base=number(v).high,
            per_mag=number(1 / abs(v)),
            hold=number(v_set / abs(v)),
            dc=number(dc).high,
            slack=whole(case.slack_bus[0]),
        )


class Standing(NamedTuple):
    """Where the terminals of lanes stand: busbar 2 (T, B) bool here and at the far end, and whether they are on;
    unknown angles and magnitudes, and held magnitudes (2, S, B), of busbars 1 and 2."""

    here: Array
    far: Array
    on: Array
    angle: Array
    size: Array
    held: Array


def _standing(placed: Any) -> Standing:
    """Standing from `network.Placed` with lanes last."""
    n = placed.in_use.shape[0] // 2
    f, t, shunt = (x >= n for x in (placed.f, placed.t, placed.shunt))
    slack = jnp.arange(2 * n, dtype=jnp.int32)[:, None] == placed.slack[None]
    masks = placed.in_use & ~slack, placed.in_use & ~placed.holds, placed.in_use & placed.holds
    return Standing(
        jnp.concatenate([f, t, shunt]),
        jnp.concatenate([t, f, shunt]),
        jnp.concatenate([placed.on, placed.on, placed.shunt_on]),
        *(x.reshape(2, n, -1) for x in masks),
    )


def _number(x: Pair) -> Any:
    """A pair for arithmetic: as it is where there is no float64."""
    return x.high if x.high.dtype == jnp.float64 else Wide(x)


def _part(x: Any, of: Callable[[Array], Array]) -> Any:
    """The same selection from both floats of a pair."""
    return Wide(Pair(*map(of, x.pair))) if isinstance(x, Wide) else of(x)


def _float(x: Any) -> Array:
    return ds.value(x.pair) if isinstance(x, Wide) else x


def _constants(x: Any) -> Complex:
    """Parts of complex constants (n, 2), against lanes."""
    return _part(x, lambda x: x[:, 0, None]), _part(x, lambda x: x[:, 1, None])


def _times(a: Complex, x: Complex) -> Complex:
    return a[0] * x[0] - a[1] * x[1], a[0] * x[1] + a[1] * x[0]


def _times_conj(a: Complex, x: Complex) -> Complex:
    return a[0] * x[0] + a[1] * x[1], a[1] * x[0] - a[0] * x[1]


def _at(x: Any, index: Array, second: Array) -> Any:
    """Values (2, S, B) of the busbars where terminals stand, (T, B)."""

    def chosen(x: Array) -> Array:
        one, two = (jnp.take(x[c], index, axis=0, mode="clip") for c in (0, 1))
        return jnp.where(second, two, one)

    return _part(x, chosen)


def _square(w: Complex) -> Any:
    """|1 + w|^2 - 1."""
    return (w[0] * w[0] + w[1] * w[1]) + (w[0] + w[0])


class Taken(NamedTuple):
    """Power s that each terminal takes, parts of S and of a (T, B)."""

    s: Complex
    a: tuple[Array, Array]


def _taken(lanes: BusbarLanes, of: Callable[[Pair], Any], at: Standing, w: Complex) -> Taken:
    here = tuple(_at(x, lanes.here, at.here) for x in w)
    far = tuple(_at(x, lanes.far, at.far) for x in w)
    cross, flow = _constants(of(lanes.cross)), _constants(of(lanes.flow))
    near = 1 + here[0], here[1]
    moved = _times(cross, _times_conj(near, (far[0] - here[0], far[1] - here[1])))
    square = 1 + _square(here)
    s = tuple(flow[c] * square + moved[c] for c in (0, 1))
    (c_re, c_im), (e_re, e_im), (f_re, f_im) = ((_float(x[0]), _float(x[1])) for x in (cross, here, far))
    a = _times((c_re, c_im), _times_conj((1 + e_re, e_im), (1 + f_re, f_im)))
    return Taken((s[0], s[1]), a)


def _sums(lanes: BusbarLanes, at: Standing, terms: Any) -> Any:
    """Sums (2, .., S, B) over the terminals of both busbars, of arrays and pairs (.., T, B)."""
    kinds = jnp.stack([at.on & ~at.here, at.on & at.here])

    def run(table: Array) -> Any:
        def add(r: Array, totals: list[Any]) -> list[Any]:
            mine = jnp.take(kinds, table[:, r], axis=1, mode="fill", fill_value=False)

            def term(x: Array) -> Array:
                here = jnp.take(x, table[:, r], axis=-2, mode="clip")[None]
                return jnp.where(mine.reshape(2, *(1,) * (x.ndim - 2), *mine.shape[1:]), here, 0)

            new = jax.tree.map(term, terms)
            return [ds.add(x, y) if isinstance(x, Pair) else x + y for x, y in zip(totals, new, strict=True)]

        none = jax.tree.map(lambda x: jnp.zeros((2, *x.shape[:-2], table.shape[0], x.shape[-1]), x.dtype), terms)
        # a loop: fused with what reads it, a term would be computed again for each of its sums
        return lax.fori_loop(0, table.shape[1], add, none)

    parts = [run(table) for table in lanes.runs]
    return jax.tree.map(lambda *x: jnp.take(jnp.concatenate(x, -2), lanes.place, axis=-2, mode="clip"), *parts)


class Point(NamedTuple):
    """Data of a Newton step: a (T, B) of the terminals; sums of S and a, parts (2, S, B); right side (S, 4, B)."""

    a: tuple[Array, Array]
    s: tuple[Array, Array]
    own: tuple[Array, Array]
    right: Array
    size: Array


def _rows(x: Complex, at: Standing) -> Array:
    """Angle and magnitude rows (2, S, B) as right side (S, 4, B), busbar 1 first."""
    n, lanes = at.angle.shape[1:]
    return jnp.stack(x, 1).transpose(2, 0, 1, 3).reshape(n, 4, lanes)


def _stacked(a: Pair, b: Pair) -> Pair:
    return jax.tree.map(lambda *x: jnp.stack(x), a, b)


def _point(
    lanes: BusbarLanes, of: Callable[[Pair], Any], at: Standing, w: Complex, aim: tuple[Array, Array], hold: Any
) -> Point:
    taken = _taken(lanes, of, at, w)
    exact = isinstance(taken.s[0], Wide)
    power = _stacked(*(x.pair for x in taken.s)) if exact else jnp.stack(taken.s)
    found, own = _sums(lanes, at, [power, jnp.stack(taken.a)])
    s = [jax.tree.map(lambda x, c=c: x[:, c], found) for c in (0, 1)]
    s, own = [Wide(x) for x in s] if exact else s, (own[:, 0], own[:, 1])
    p, q = (jnp.where(free, _float(x + -y), 0) for x, y, free in zip(s, aim, (at.angle, at.size), strict=True))
    square = _square(w)
    # half the relative change of the square: what that neglects is itself a square
    grow = jnp.where(at.held, 0.5 * _float(hold - square) / (1 + _float(square)), 0)
    right = _rows((-p, grow - q), at)
    return Point(taken.a, (_float(s[0]), _float(s[1])), own, right, jnp.max(jnp.abs(right), (0, 1)))


def _blocks(lanes: BusbarLanes, at: Standing, point: Point) -> tuple[Array, Array]:
    """Blocks of the Jacobian on the diagonal (S, 4, 4, B), and by branch end (2L, 4, 4, B)."""
    (a, b), (p, q), (c, d) = point.a, point.s, point.own
    n, count = a.shape[-1], lanes.here.shape[0]
    free = jnp.stack([at.angle, at.size], 1).transpose(2, 0, 1, 3)  # (S, busbar, row, B)
    own = jnp.stack([jnp.stack([-d, 2 * p - c]), jnp.stack([c, 2 * q - d])]).transpose(3, 2, 0, 1, 4)
    unit = jnp.eye(2, dtype=a.dtype)
    own = jnp.where(free[:, :, :, None], own, unit[None, None, :, :, None])
    own = own[:, :, :, None] * unit[None, :, None, :, None, None]
    beside = jnp.stack([jnp.stack([b, a]), jnp.stack([-a, b])]).transpose(2, 0, 1, 3)[:, None, :, None]
    rows = jnp.take(free, lanes.here, axis=0, mode="clip") & (at.on[:, None, None] & _one_of(at.here)[:, :, None])
    beside = jnp.where(rows[:, :, :, None, None] & _one_of(at.far)[:, None, None, :, None], beside, 0)
    return own.reshape(-1, 4, 4, n), beside.reshape(count, 4, 4, n)[: 2 * lanes.slope.high.shape[0]]


def _one_of(second: Array) -> Array:
    """Whether terminals stand on busbar 1, 2: (T, B) -> (T, 2, B)."""
    return jnp.stack([~second, second], 1)


def _by_node(x: Array) -> Array:
    """Solution (S, 4, B) as rows (2, 2, S, B): angle or ln|V|, busbar."""
    return x.reshape(-1, 2, 2, x.shape[-1]).transpose(2, 1, 0, 3)


def _moved(w: tuple[Pair, Pair], turn: Array, todo: Array) -> tuple[Pair, Pair]:
    """(1 + w)(1 + dln|V|)(1 + j t)^2 / (1 + t^2) - 1 with t = dtheta / 2 in the lanes todo: held magnitudes stay."""
    t, grow = 0.5 * turn[0], turn[1]
    h = (1 + grow) / (1 + t * t)
    re, im = grow - 2 * t * t * h, 2 * t * h
    a, b = 1 + ds.value(w[0]), ds.value(w[1])
    change = a * re - b * im, a * im + b * re
    return tuple(ds.add(x, ds.pair(jnp.where(todo, dx, 0))) for x, dx in zip(w, change, strict=True))  # type: ignore[return-value]


def solve_lanes(
    lanes: BusbarLanes,
    placed: Any,
    p: Array,
    q: Array,
    v_set: Array | None = None,
    *,
    tol: float,
    steps: int,
    dc: bool,
    adaptive: bool,
) -> LaneState:
    """Newton's method in B lanes: placed with lanes last, injections p, q (2S, B) and set-points (S, B) [pu].

    At most `steps` steps from the base state, or from the angles of the DC flow; a lane rests when it is done.
    `adaptive` stops when all are done, else the number of steps is fixed.
    """
    at, n = _standing(placed), lanes.v_base.shape[0]
    unused = jnp.stack([~at.angle, ~at.size])
    aim = jnp.stack([p, q]).reshape(2, 2, n, -1)
    sound = jnp.all(jnp.isfinite(aim) | unused, (0, 1, 2))
    aim = jnp.where(jnp.isfinite(aim), aim, 0)
    ratio = _part(_number(lanes.hold), lambda x: x[None, :, None])
    if v_set is not None:
        sound = sound & jnp.all((jnp.isfinite(v_set) & (v_set > 0)) | ~jnp.any(at.held, 0), 0)
        v_set = jnp.where(jnp.isfinite(v_set), v_set, 1)
        ratio = _part(_number(lanes.per_mag), lambda x: x[None, :, None]) * _number(ds.pair(v_set[None]))
    hold = ratio * ratio + -jnp.ones_like(_float(ratio))

    def of(x: Pair) -> Any:
        return _number(x)

    def evaluate(w: tuple[Pair, Pair]) -> Point:
        return _point(lanes, of, at, tuple(map(of, w)), (aim[0], aim[1]), hold)  # type: ignore[arg-type]

    none = jnp.zeros_like(aim[0])
    w = (ds.pair(none), ds.pair(none))
    if dc:
        w = _dc_start(lanes, at, aim[0], _float(ratio))
    alive = sound & placed.connected
    carry = (jnp.int32(0), w, evaluate(w), alive, jnp.zeros(alive.shape, jnp.int32))

    def going(carry: Any) -> Array:
        _, _, point, alive, _ = carry
        return alive & ~(point.size <= tol)

    def step(carry: Any) -> Any:
        k, w, point, alive, count = carry
        turn = _by_node(solve(lanes.plan, *_blocks(lanes, at, point), point.right))
        factor = [damping(jnp.max(jnp.abs(x), (0, 1)), most) for x, most in zip(turn, (WIDEST, LONGEST), strict=True)]
        todo = going(carry)
        alive = alive & (~todo | jnp.all(jnp.isfinite(turn), (0, 1, 2)))
        todo = todo & alive
        w = _moved(w, turn * jnp.minimum(*factor)[None, None, None], todo[None, None])
        return k + 1, w, evaluate(w), alive, count + todo.astype(jnp.int32)

    if adaptive:
        carry = lax.while_loop(lambda carry: (carry[0] < steps) & jnp.any(going(carry)), step, carry)
    else:
        carry = lax.fori_loop(0, steps, lambda _, carry: step(carry), carry)
    _, w, point, alive, count = carry
    solved = alive & (point.size <= tol)
    status = jnp.where(alive, jnp.int32(Status.OUT_OF_STEPS), jnp.int32(Status.SINGULAR))
    status = jnp.where(solved, jnp.int32(Status.CONVERGED), status)
    status = jnp.where(sound, status, jnp.int32(Status.BAD_INPUT))
    status = jnp.where(placed.connected, status, jnp.int32(Status.ISLANDED))
    return _lane_state(lanes, at, w, point, count, status)


def _lane_state(
    lanes: BusbarLanes, at: Standing, w: tuple[Pair, Pair], point: Point, count: Array, status: Array
) -> LaneState:
    most, n_branch = float(jnp.finfo(point.size.dtype).max), lanes.slope.high.shape[0]
    numbers: Any = tuple(map(_number, w))
    s = [_float(x) for x in _taken(lanes, _number, at, numbers).s]
    near, far = ([_at(x, lanes.here[part], at.here[part]) for x in numbers] for part in _halves(n_branch))
    base, moved = _constants(_number(lanes.i_base)), _times(_constants(_number(lanes.slope)), _less(near, far))
    grown = _times(base, (1 + far[0], far[1]))
    i = [_float(grown[c] + moved[c]) for c in (0, 1)]

    def finite(*x: Array) -> Array:
        whole = jnp.stack(x, 1)
        return jnp.where(jnp.isfinite(whole), whole, 0)

    ends = finite(*(jnp.where(at.on, x, 0) for x in s))
    return LaneState(
        finite(*(ds.value(x).reshape(-1, x.high.shape[-1]) for x in w)),
        finite(*(x.reshape(-1, x.shape[-1]) for x in point.s)),
        ends[:n_branch],
        ends[n_branch : 2 * n_branch],
        finite(*(jnp.where(at.on[:n_branch], x, 0) for x in i)),
        jnp.where(point.size < most, point.size, most),
        count,
        status,
    )


def _halves(n_branch: int) -> tuple[slice, slice]:
    return slice(n_branch), slice(n_branch, 2 * n_branch)


def _less(a: list[Any], b: list[Any]) -> Complex:
    return a[0] - b[0], a[1] - b[1]


def solve_linear_lanes(lanes: BusbarLanes, placed: Any, e: Array, right: Array, *, transposed: bool) -> Array:
    """Solution of J(e) x = right, or of its transpose, on the unknowns; e, right and x (2S, 2, B), 0 elsewhere."""
    at, n = _standing(placed), lanes.v_base.shape[0]
    w = e.reshape(2, n, 2, -1)
    point = _point(lanes, lambda x: x.high, at, (w[:, :, 0], w[:, :, 1]), (jnp.zeros_like(w[:, :, 0]),) * 2, 0.0)
    free = jnp.stack([at.angle, at.size])
    given = jnp.where(free, right.reshape(2, n, 2, -1).transpose(2, 0, 1, 3), 0)
    x = solve(lanes.plan, *_blocks(lanes, at, point), _rows((given[0], given[1]), at), transpose=transposed)
    x = _by_node(x)
    # not finite where a lane has no solution
    return jnp.where(free & jnp.isfinite(x), x, 0).transpose(1, 2, 0, 3).reshape(2 * n, 2, -1)


def _dc_start(lanes: BusbarLanes, at: Standing, p: Array, ratio: Array) -> tuple[Pair, Pair]:
    """Deviation at the angles of the DC flow, magnitudes at their set-points, 1 pu where none is held."""
    b, push = lanes.dc[:, 0, None], lanes.dc[:, 1, None]
    on, n_branch = at.on.astype(b.dtype), lanes.slope.high.shape[0]
    angle = at.angle.transpose(1, 0, 2)
    own = (
        jnp.where(at.angle, _sums(lanes, at, [b * on])[0], 1).transpose(1, 0, 2)[:, :, None]
        * jnp.eye(2, dtype=b.dtype)[None, :, :, None]
    )
    rows = jnp.take(angle, lanes.here, axis=0, mode="clip") & (at.on[:, None] & _one_of(at.here))
    beside = jnp.where(rows[:, :, None] & _one_of(at.far)[:, None], -b[:, :, None, None], 0)[: 2 * n_branch]
    right = jnp.where(at.angle, p - _sums(lanes, at, [push * on])[0], 0).transpose(1, 0, 2)
    theta = solve(lanes.plan, own, beside, right).transpose(1, 0, 2)
    base = jnp.arctan2(lanes.v_base[:, 1], lanes.v_base[:, 0])[:, None]
    turned = theta + (jnp.take(base, lanes.slack, axis=0)[None] - base)[None]
    turned = jnp.where(jnp.isfinite(turned), turned, 0)
    size = jnp.where(at.held, ratio, lanes.per_mag.high[None, :, None])
    # 1 + w without loss of digits where it is near 1
    half = jnp.sin(0.5 * turned)
    return ds.pair((size - 1) - 2 * size * half * half), ds.pair(size * jnp.sin(turned))
