"""Power flow with switches as data: a few open branches correct the factors of the network with all switches closed.

Every lane of a batch has its own set of open switches. The inverse is corrected by a low rank (`woodbury`), the chord
runs on, and what it cannot solve goes to a full Newton method in float64 on the switched network.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from powerzoo_jax.base import elimination, struct
from powerzoo_jax.base.host import on_host
from powerzoo_jax.base.numerics import einsum, resolve_dtype
from powerzoo_jax.base.ranges import (
    FINITE,
    NOT_NEGATIVE,
    WHOLE,
    Count,
    Finite,
    Positive,
    Range,
    axes,
    checks_ranges,
    unchecked,
)
from powerzoo_jax.base.solver_mode import ADAPTIVE, AUTO, by_mode, check_mode
from powerzoo_jax.cases import Case
from powerzoo_jax.cases.topology import branch_positions
from powerzoo_jax.powerflow.batching import batched_shell
from powerzoo_jax.powerflow.contingency.factors import refuse_no_branches
from powerzoo_jax.powerflow.contingency.woodbury import (
    RANK,
    BranchTerms,
    Change,
    across,
    as_device,
    branch_columns,
    branch_power,
    branch_terms,
    change_of,
    correction,
    pair,
    scenarios,
    settle,
    settle_fixed,
)
from powerzoo_jax.powerflow.feeder.factors import nominal_injection
from powerzoo_jax.powerflow.meshed import equations as eqs
from powerzoo_jax.powerflow.meshed.base_case import BaseState, solve_base, voltage_setpoints
from powerzoo_jax.powerflow.meshed.chord import Shared
from powerzoo_jax.powerflow.meshed.factors import MeshedFactors, prepare_meshed
from powerzoo_jax.powerflow.meshed.solve import MAX_STEPS, TOL
from powerzoo_jax.powerflow.result import PowerFlowResult, Status
from powerzoo_jax.powerflow.topology import (
    SwitchLoops,
    closed_status,
    prepare_loops,
    single,
    stays_connected,
    switch_positions,
)

TILE = 128  # lanes that iterate together on a CPU core; accelerators take the whole batch
FIXED_STEPS = 20  # open switches lead far from the base state, each set of them to another place


@struct.dataclass(kw_only=True)
class SwitchFactors:
    """Prepared data of a network with S switches for `solve_switched`. Leaves only.

    meshed:    MeshedFactors with all switches closed
    terms:     BranchTerms
    loops:     SwitchLoops of the switches
    columns:   (S, 3, N, 2)   answer of the base state to a change of each switch
    coupling:  (S, 3, S, 3)   the same, read across every switch
    i_base, slope: (L, 2) [pu]  series current at the base voltage, and per difference of e
    r_pu, x_pu:    (L,)   [pu]
    """

    meshed: MeshedFactors
    terms: BranchTerms
    loops: SwitchLoops
    columns: Array
    coupling: Array
    i_base: Array
    slope: Array
    r_pu: Array
    x_pu: Array

    AXES: ClassVar = {"N": "meshed.n_bus", "S": "loops.n_switch"}


@struct.dataclass(kw_only=True)
class SwitchedResult(PowerFlowResult):
    """`PowerFlowResult` of a switched network; branch currents are those of the series element, 0 where it is open.

    p_to, q_to: (L,)  [pu]  power entering the branch at its to end

    status ISLANDED: the open switches cut buses off; the numbers are those with all switches closed.
    """

    p_to: Array
    q_to: Array


@on_host
@checks_ranges("prepare_switching")
def prepare_switching(
    case: Case,
    *,
    switches: Annotated[Sequence[int], axes("...", kind=WHOLE)] | None = None,
    load_factor: Finite = 1.0,
    dtype: Any = None,
) -> SwitchFactors:
    """Factor a network with all its switches closed, and what each of them changes (host, float64).

    case:         as for `prepare_meshed`; feeders too
    switches:     positions of the branches that can open and close, in service or not; None takes all of them
    load_factor:  base point as a multiple of the nominal injections
    dtype:        float32 (None) or float64

    Raises the errors of `prepare_meshed` and of `prepare_loops`, SolverError for a network without branches.
    """
    dtype = resolve_dtype(dtype)
    refuse_no_branches(case)
    chosen = switch_positions(case, switches)
    closed = dataclasses.replace(case, branch=dataclasses.replace(case.branch, in_service=closed_status(case, chosen)))
    meshed = prepare_meshed(closed, load_factor=load_factor, dtype=dtype, solver=ADAPTIVE)
    s = load_factor * nominal_injection(closed)
    v = solve_base(closed, s, voltage_setpoints(closed))
    f, t = branch_positions(case)
    terms = branch_terms(closed, v)
    columns = branch_columns(closed, BaseState.of(closed, s, v), terms, chosen)
    # (S, 3, S, 3): row (k, v) reads the answer (l, r) across switch k
    ends = (np.moveaxis(columns[:, :, at], 3, 0) for at in (f[chosen], t[chosen]))
    coupling = np.stack(across(*ends)).transpose(3, 0, 1, 2)
    series = 1 / (case.branch.r_pu + 1j * case.branch.x_pu)
    u = v[f] / (case.branch.tap * np.exp(1j * np.deg2rad(case.branch.shift_deg)))

    def numbers(x: np.ndarray) -> Array:
        return jnp.asarray(pair(x) if np.iscomplexobj(x) else x, dtype)

    return SwitchFactors(
        meshed=meshed,
        terms=BranchTerms(**{name: numbers(x) for name, x in terms.items()}),
        loops=prepare_loops(case, switches=chosen.tolist()),
        columns=as_device(columns[:, :, np.asarray(meshed.layout.inward)]),
        coupling=as_device(coupling),
        i_base=numbers(series * (u - v[t])),
        slope=numbers(series * u),
        r_pu=numbers(case.branch.r_pu),
        x_pu=numbers(case.branch.x_pu),
    )


@checks_ranges("solve_switched")
def solve_switched(
    switching: SwitchFactors,
    opened: Annotated[Array, Range(-1), axes("K", kind=WHOLE, below="S")],
    p_pu: Annotated[Array, FINITE, axes("N", told=True)],
    q_pu: Annotated[Array, FINITE, axes("N", told=True)],
    v_set_pu: Annotated[Array, NOT_NEGATIVE, axes("N", told=True)] | None = None,
    *,
    tol: Positive | None = None,
    max_steps: Count = MAX_STEPS,
    solver: str = AUTO,
) -> SwitchedResult:
    """Solve the power flow of one scenario with some switches open; vmap it for many, switches included.

    S_i = V_i sum_j conj(Y_ij V_j), |V_i| held at PV buses and the slack, Y without the open switches

    switching:  from `prepare_switching`; share it (in_axes=None)
    opened:     (K,) int32 open switches, positions among the S switches; -1 is none. The rank of the correction is 3 K
    p_pu, q_pu: (N,) [pu] net injections      v_set_pu: (N,) [pu] magnitudes held; all as for `solve_meshed`
    tol:        [pu] voltage error at which a lane stops; None takes 4e-7 (float32), 4e-10 (float64)
    max_steps:  chord iterations before a lane goes to the float64 Newton fallback, where the solver is adaptive
    solver:     "auto", "adaptive" or "fixed" as for `solve_meshed`; fixed takes 20 steps

    Returns a SwitchedResult; compiled, nothing raises or is NaN: `status` and `residual` tell.
    No derivative passes: `solve_meshed` with `with_branches` has them.
    """
    limit = TOL[p_pu.dtype.name] if tol is None else float(tol)
    given = (p_pu, q_pu) if v_set_pu is None else (p_pu, q_pu, v_set_pu)
    inputs = tuple(lax.stop_gradient(x) for x in (opened, *given))
    result: SwitchedResult = _shell(limit, max_steps, check_mode(solver))(lax.stop_gradient(switching), *inputs)
    return result


@functools.lru_cache(maxsize=32)
def _shell(tol: float, max_steps: int, mode: str) -> Any:
    def adaptive(switching: SwitchFactors, *inputs: Array) -> SwitchedResult:
        def solve(opened: Array, *given: Array) -> SwitchedResult:
            lanes = functools.partial(settle, tol=tol, max_steps=max_steps)
            return _solve_tile(switching, jnp.linalg.inv, lanes, opened, *given)

        found: SwitchedResult = in_pieces(solve, inputs, TILE)
        return found

    def fixed(switching: SwitchFactors, *inputs: Array) -> SwitchedResult:
        lanes = functools.partial(settle_fixed, tol=tol, count=FIXED_STEPS, rest=mode == AUTO)
        return _solve_tile(switching, elimination.inverse, lanes, *inputs)

    def core(switching: SwitchFactors, *inputs: Array) -> SwitchedResult:
        return by_mode(mode, adaptive, fixed, switching, *inputs)  # type: ignore[no-any-return]

    return batched_shell(core)


def in_pieces(solve: Any, inputs: tuple[Array, ...], size: int) -> Any:
    """Map a batched function over a batch (B, ...) in pieces that fit the cache of a CPU core."""
    batch = inputs[0].shape[0]
    if batch <= size:
        return solve(*inputs)
    count = -(-batch // size)
    rows = jnp.arange(count * size, dtype=jnp.int32) % batch
    pieces = tuple(jnp.take(x, rows, axis=0).reshape(count, size, *x.shape[1:]) for x in inputs)
    out = lax.map(lambda piece: solve(*piece), pieces)
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:batch], out)


def _solve_tile(switching: SwitchFactors, inverse: Any, iterate: Any, opened: Array, *given: Array) -> SwitchedResult:
    shared = Shared(switching.meshed.layout, switching.meshed.core)
    opened = jax.vmap(single)(opened)
    connected = jax.vmap(unchecked(stays_connected), in_axes=(None, 0))(switching.loops, opened)
    real = (opened >= 0) & connected[:, None]
    change = _change(switching, inverse, jnp.maximum(opened, 0), real)
    target, begin = scenarios(shared, given)
    found = iterate(shared, change, target, begin, begin)
    status = jnp.where(connected, found.status, jnp.int32(Status.ISLANDED))
    zeta = jnp.where((found.status == Status.CONVERGED)[None, None], correction(shared, change, found.left), 0)
    closed = _closed(switching, opened, real)
    return _expand(switching, closed, found.e, eqs.turn(found.e, zeta), found._replace(status=status))


def _closed(switching: SwitchFactors, opened: Array, real: Array) -> Array:
    """(L, B) bool: branches that carry current."""
    n_branch = switching.r_pu.shape[0]
    branch = jnp.where(real, switching.loops.branch[jnp.maximum(opened, 0)], n_branch)
    on = jnp.broadcast_to(switching.meshed.branch.in_service[None] > 0, (opened.shape[0], n_branch))
    return on.at[jnp.arange(opened.shape[0])[:, None], branch].set(False, mode="drop").T


def _change(switching: SwitchFactors, inverse: Any, opened: Array, real: Array) -> Change:
    """The changes of lanes (B, K), a group each."""
    branch, status = switching.loops.branch[opened].T, jnp.where(real.T, -1, 0)
    return change_of(
        switching.meshed.layout, switching.terms, branch, status, _weight(switching, inverse, opened, real)
    )


def _weight(switching: SwitchFactors, inverse: Any, opened: Array, real: Array) -> Array:
    """C (I - D V' C)^-1 D of each lane, with D = 1 for an open switch and 0 for none: (3 K, N, 2, B)."""
    rank = RANK * opened.shape[1]

    def one(opened: Array, real: Array) -> Array:
        d = jnp.repeat(real, RANK).astype(switching.columns.dtype)
        read = switching.coupling[opened][:, :, opened].reshape(rank, rank)
        system = jnp.eye(rank, dtype=d.dtype) - d[:, None] * read
        return inverse(system) * d[None]

    mixed = jax.vmap(one)(opened, real)
    columns = switching.columns[opened].reshape(opened.shape[0], rank, -1)
    weight = einsum("bro,brs->sob", columns, mixed)
    return weight.reshape(rank, *switching.columns.shape[2:], -1)


def _expand(switching: SwitchFactors, closed: Array, e: Array, rest: Array, found: Any) -> SwitchedResult:
    """Voltages, flows and losses of lanes (N, 2, B), read off e + rest; `rest` is not rounded into e."""
    meshed, layout = switching.meshed, switching.meshed.layout
    e, rest = lax.optimization_barrier((e, rest))
    w = lax.optimization_barrier((1 + (e[:, 0] + rest[:, 0]), e[:, 1] + rest[:, 1]))
    differ = [eqs.pick(x, layout.t) - eqs.pick(x, layout.f) for x in (e, rest)]
    gap = differ[0] + differ[1]
    near, far = ((eqs.pick(w[0], at), eqs.pick(w[1], at)) for at in (layout.f, layout.t))
    flows = branch_power(near, far, (gap[:, 0], gap[:, 1]), switching.terms)
    p_f, q_f, p_t, q_t = (jnp.where(closed, x, 0) for s in flows for x in s)
    i_re, i_im = (jnp.where(closed, x, 0) for x in _series_current(switching, far, gap))
    square = i_re * i_re + i_im * i_im
    base = meshed.v_base[..., None]
    re, im = (eqs.pick(x, layout.outward) for x in w)
    v_re, v_im = base[:, 0] * re - base[:, 1] * im, base[:, 0] * im + base[:, 1] * re
    slack = meshed.slack
    here = meshed.flow.f == slack, meshed.flow.t == slack
    size = v_re[slack] * v_re[slack] + v_im[slack] * v_im[slack]

    def at_slack(a: Array, b: Array, shunt: Array) -> Array:
        return jnp.sum(jnp.where(here[0][:, None], a, 0) + jnp.where(here[1][:, None], b, 0), 0) + shunt * size

    return SwitchedResult(
        **{name: x.T for name, x in dict(v_re=v_re, v_im=v_im, i_re=i_re, i_im=i_im).items()},
        **{name: x.T for name, x in dict(p_from=p_f, q_from=q_f, p_to=p_t, q_to=q_t).items()},
        p_loss=jnp.sum(switching.r_pu[:, None] * square, 0),
        q_loss=jnp.sum(q_f + q_t, 0),
        p_slack=at_slack(p_f, p_t, meshed.shunt[slack, 0]),
        q_slack=at_slack(q_f, q_t, -meshed.shunt[slack, 1]),
        residual=found.residual,
        iterations=found.steps,
        status=found.status,
    )


def _series_current(switching: SwitchFactors, far: tuple[Array, ...], gap: Array) -> tuple[Array, Array]:
    """i_base (1 + e_to) + slope (e_from - e_to), parts of (L, B)."""
    (a, b), (c, d) = ((x[:, 0, None], x[:, 1, None]) for x in (switching.i_base, switching.slope))
    re, im = a * far[0] - b * far[1], a * far[1] + b * far[0]
    return re - (c * gap[:, 0] - d * gap[:, 1]), im - (c * gap[:, 1] + d * gap[:, 0])
