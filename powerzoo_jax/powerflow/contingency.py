"""Single outages of a meshed network in AC, all of them or a chosen few, inside a compiled step.

Every outage corrects the constant factors of the intact network by a low rank (`correction`). The chord starts from the
state before the outage, and what it cannot solve goes to a full Newton method in float64. Those that cut buses off are
found on the host and flagged.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array, lax

from powerzoo_jax.base.errors import SolverError, listing
from powerzoo_jax.base.numerics import resolve_dtype
from powerzoo_jax.cases import Case
from powerzoo_jax.cases.topology import branch_positions
from powerzoo_jax.powerflow import meshed_equations as eqs
from powerzoo_jax.powerflow.base_state import solve_base, voltage_setpoints
from powerzoo_jax.powerflow.batching import batched_shell
from powerzoo_jax.powerflow.correction import (
    RANK,
    BranchTerms,
    Change,
    Parts,
    Progress,
    across,
    branch_columns,
    branch_power,
    branch_terms,
    change_of,
    correction,
    door,
    pair,
    scenarios,
    settle,
)
from powerzoo_jax.powerflow.dc_outage import bridges
from powerzoo_jax.powerflow.factors import nominal_injection
from powerzoo_jax.powerflow.limits import loading_excess, voltage_excess
from powerzoo_jax.powerflow.meshed import MAX_STEPS, TOL
from powerzoo_jax.powerflow.meshed_chord import Shared
from powerzoo_jax.powerflow.meshed_factors import MeshedFactors, prepare_meshed
from powerzoo_jax.powerflow.result import Status

TILE = 128  # lanes that iterate together on a CPU core; other devices take WIDE
WIDE = 65_536
START_STEPS = 2  # chord steps to the state before the outage, which is only a place to start from


@struct.dataclass(kw_only=True)
class OutageFactors:
    """What `n_minus_1` needs to know about one network and O outages of it. Leaves only.

    meshed:       MeshedFactors of the network before any outage
    terms:        BranchTerms
    branch:       (O,)           int32  position of the branch that is lost
    islanding:    (O,)           bool   whether that cuts buses off
    weight:       (O, 3, N, 2)          correction of the inverse, 0 where it islands
    rate_pu:      (L,)           [pu]   ratings, 0 = unlimited
    v_min, v_max: (N,)           [pu]   voltage bands
    """

    meshed: MeshedFactors
    terms: BranchTerms
    branch: Array
    islanding: Array
    weight: Array
    rate_pu: Array
    v_min: Array
    v_max: Array

    @property
    def n_outage(self) -> int:
        return self.branch.shape[-1]


@struct.dataclass(kw_only=True)
class OutageResult:
    """What O outages do to one state of a network.

    status:       (O,)  int32  `Status` of each outage; ISLANDED rows hold the state before the outage
    loading:      (O,)  [-]    largest apparent power over rating, both ends, surviving branches with a rating
    worst_branch: (O,)  int32  the branch that has it
    overload:     (O,)  [pu]   sum over the branches of apparent power beyond the rating
    violation:    (O,)  [pu]   sum over the buses of the distance from their voltage band
    v_min, v_max: (O,)  [pu]   lowest and highest voltage
    residual:     (O,)  [pu]   largest power mismatch          iterations:   (O,)  int32
    """

    status: Array
    loading: Array
    worst_branch: Array
    overload: Array
    violation: Array
    v_min: Array
    v_max: Array
    residual: Array
    iterations: Array


class OutageStates(NamedTuple):
    """Voltages (O, N) and the power entering both ends of every branch (O, L) [pu] after each outage, case order."""

    v_re: Array
    v_im: Array
    p_from: Array
    q_from: Array
    p_to: Array
    q_to: Array


def prepare_outages(
    case: Case,
    *,
    branches: Sequence[int] | None = None,
    load_factor: float = 1.0,
    rate_pu: np.ndarray | None = None,
    dtype: Any = None,
) -> OutageFactors:
    """Correct the factors of a network for single branch outages, on the host in float64.

    case:         as for `prepare_meshed`
    branches:     positions of the branches to lose, one at a time; None takes every branch in service
    load_factor:  base point as a multiple of the nominal injections
    rate_pu:      (L,) [pu] ratings on the case's base power, 0 = unlimited; None takes `rate_a_mva` of the case
    dtype:        float32 (None) or float64

    Raises the errors of `prepare_meshed`, SolverError naming branches that are not there or not in service.
    """
    dtype = resolve_dtype(dtype)
    lost = _lost_branches(case, branches)
    meshed = prepare_meshed(case, load_factor=load_factor, dtype=dtype)
    v = solve_base(case, load_factor * nominal_injection(case), voltage_setpoints(case))
    f, t = branch_positions(case)
    islanding = bridges(case.n_bus, f, t, case.branch.in_service)[lost]
    terms = branch_terms(case, v)
    columns = branch_columns(case, v, terms, lost)
    weight = np.where(islanding[:, None, None, None], 0.0, _weights(columns, f[lost], t[lost], islanding))
    rate = case.branch.rate_a_mva / case.base_mva if rate_pu is None else np.asarray(rate_pu, float)
    if rate.shape != (case.n_branch,):
        raise SolverError(f"{case.name}: rate_pu has shape {rate.shape}, expected (L={case.n_branch},).")
    inward = np.asarray(meshed.layout.inward)
    return OutageFactors(
        meshed=meshed,
        terms=BranchTerms(**{name: jnp.asarray(pair(x), dtype) for name, x in terms.items()}),
        branch=jnp.asarray(lost, jnp.int32),
        islanding=jnp.asarray(islanding),
        weight=door(weight[:, :, inward]),
        rate_pu=jnp.asarray(rate, dtype),
        v_min=jnp.asarray(case.bus.v_min_pu, dtype),
        v_max=jnp.asarray(case.bus.v_max_pu, dtype),
    )


def _lost_branches(case: Case, branches: Sequence[int] | None) -> np.ndarray:
    if branches is None:
        return np.flatnonzero(case.branch.in_service)
    lost = np.asarray(branches, np.int64)
    wrong = (lost < 0) | (lost >= case.n_branch)
    if wrong.any():
        raise SolverError(
            f"{case.name} has no branch {listing(lost[wrong])}. Give positions from 0 to {case.n_branch - 1}."
        )
    off = ~case.branch.in_service[lost]
    if off.any():
        raise SolverError(f"{case.name}: branch {listing(lost[off])} is out of service and cannot be lost.")
    return lost


def _weights(columns: np.ndarray, f: np.ndarray, t: np.ndarray, skip: np.ndarray) -> np.ndarray:
    """C (I - V' C)^-1 of single outages, from C (O, 3, N, 2)."""
    rows = np.arange(len(f))
    own = np.stack(across(*(np.moveaxis(columns[rows, :, at], 2, 0) for at in (f, t))), 1)
    system = np.eye(RANK) - np.where(skip[:, None, None], 0.0, own)
    return np.einsum("orni,ors->osni", columns, np.linalg.inv(system))


def n_minus_1(
    outages: OutageFactors,
    p_pu: Array,
    q_pu: Array,
    v_set_pu: Array | None = None,
    *,
    only: Array | None = None,
    states: bool = False,
    tol: float | None = None,
    max_steps: int = MAX_STEPS,
) -> Any:
    """Solve the power flow of one scenario after each outage; vmap it for many scenarios.

    S_i = V_i sum_j conj(Y_ij V_j), |V_i| held at PV buses and the slack, Y without the lost branch

    outages:    from `prepare_outages`; share them (in_axes=None)
    p_pu, q_pu: (N,) [pu] net injections      v_set_pu: (N,) [pu] magnitudes held; all as for `solve_meshed`
    only:       (K,) int32 rows of `outages` to solve instead of all O of them; may differ between scenarios
    states:     also return the voltages and flows after every outage
    tol:        [pu] voltage error at which a lane stops; None takes 4e-7 (float32), 4e-10 (float64)
    max_steps:  chord iterations before a lane goes to the float64 Newton fallback

    Returns an OutageResult, with states=True a pair (OutageResult, OutageStates). Nothing raises and nothing is NaN.
    No derivative passes: differentiate `solve_meshed` on the few outages that bind instead.
    """
    limit = TOL[p_pu.dtype.name] if tol is None else float(tol)
    given = (p_pu, q_pu) if v_set_pu is None else (p_pu, q_pu, v_set_pu)
    rows = () if only is None else (only,)
    inputs = tuple(lax.stop_gradient(x) for x in (*given, *rows))
    found = _shell(limit, max_steps, states, only is not None)(lax.stop_gradient(outages), *inputs)
    return found if states else found[0]


@functools.lru_cache(maxsize=32)
def _shell(tol: float, max_steps: int, states: bool, chosen: bool) -> Any:
    def core(outages: OutageFactors, *inputs: Array) -> Any:
        given = inputs[:-1] if chosen else inputs
        return _solve_batch(outages, given, inputs[-1] if chosen else None, tol, max_steps, states)

    return batched_shell(core)


class Lanes(NamedTuple):
    """Scenarios (N, 2, B): injections counted from the base state, and where the chord and Newton start."""

    target: Array
    start: Array
    begin: Array


def _solve_batch(
    outages: OutageFactors, given: tuple[Array, ...], only: Array | None, tol: float, max_steps: int, states: bool
) -> Any:
    """The batched core: (B, N) scenarios -> (OutageResult, OutageStates or ()) of (B, O, ...)."""
    shared = Shared(outages.meshed.layout, outages.meshed.core)
    target, begin = scenarios(shared, given)
    lanes = Lanes(target, _intact(shared, target, begin), begin)

    def solve(rows: Array, lanes: Lanes) -> Any:
        change = _change(outages, rows)
        found = settle(shared, change, *lanes, tol, max_steps)
        return _account(outages, shared, rows, change, found, states)

    width = TILE if jax.default_backend() == "cpu" else WIDE
    return _solve_all(solve, lanes, outages.n_outage, width) if only is None else _solve_some(solve, lanes, only, width)


def _intact(shared: Shared, target: Array, e: Array) -> Array:
    """The state before the outage, to a few digits."""
    for _ in range(START_STEPS):
        left = eqs.mismatch(shared.layout, shared.core.main, target, e)
        e = eqs.rotate(e, eqs.correction(shared.layout, shared.core.blocks, left))
    return jnp.where(jnp.isfinite(e), e, 0)


def _solve_all(solve: Any, lanes: Lanes, count: int, width: int) -> Any:
    """All outages of all scenarios in tiles of `width` lanes; the scenarios of an outage side by side."""
    batch = lanes.target.shape[2]
    members = min(batch, width)
    groups = min(count, max(width // members, 1))
    pieces = jax.tree.map(lambda x: _cut(jnp.moveaxis(x, 2, 0), members), lanes)
    rows = _cut(jnp.arange(count, dtype=jnp.int32), groups)
    tiles = rows.shape[0], pieces.target.shape[0]

    def tile(at: tuple[Array, Array]) -> Any:
        mine = jax.tree.map(lambda x: jnp.tile(jnp.moveaxis(x[at[1]], 0, 2), (1, 1, groups)), pieces)
        return solve(rows[at[0]], mine)

    out = lax.map(tile, tuple(x.reshape(-1) for x in jnp.indices(tiles, jnp.int32)))

    def joined(x: Array) -> Array:
        x = jnp.moveaxis(x.reshape(*tiles, groups, members, *x.shape[2:]), (1, 3), (0, 1))
        return x.reshape(tiles[1] * members, tiles[0] * groups, *x.shape[4:])[:batch, :count]

    return jax.tree.map(joined, out)


def _solve_some(solve: Any, lanes: Lanes, only: Array, width: int) -> Any:
    """Chosen outages (B, K) of each scenario, in tiles."""
    batch, count = only.shape
    members = min(batch, max(width // count, 1))
    pieces = jax.tree.map(lambda x: _cut(jnp.moveaxis(x, 2, 0), members), lanes)

    def tile(at: tuple[Array, Lanes]) -> Any:
        mine = jax.tree.map(lambda x: jnp.repeat(jnp.moveaxis(x, 0, 2), count, axis=2), at[1])
        return solve(at[0].reshape(-1), mine)

    out = lax.map(tile, (_cut(only, members), pieces))
    return jax.tree.map(lambda x: x.reshape(-1, count, *x.shape[2:])[:batch], out)


def _cut(x: Array, size: int) -> Array:
    """(n, ...) in pieces (m, size, ...); the last one is filled up with the first rows of x."""
    count = -(-x.shape[0] // size)
    return jnp.take(x, jnp.arange(count * size) % x.shape[0], axis=0).reshape(count, size, *x.shape[1:])


def _change(outages: OutageFactors, rows: Array) -> Change:
    """The changes that outages (G,) make; one that islands changes nothing."""
    lost = jnp.where(outages.islanding[rows], 0, -1)[None]
    weight = jnp.moveaxis(outages.weight[rows], 0, -1)
    return change_of(outages.meshed.layout, outages.terms, outages.branch[rows][None], lost, weight)


def _account(
    outages: OutageFactors, shared: Shared, rows: Array, change: Change, found: Progress, states: bool
) -> tuple[OutageResult, Any]:
    """What a tile of lanes reports, read off e plus one more step that is not rounded into it."""
    layout = shared.layout
    members = found.status.shape[0] // rows.shape[0]
    solved = (found.status == Status.CONVERGED)[None, None]
    zeta = jnp.where(solved, correction(shared, change, found.left), 0)
    # barriers: XLA would compute all of it once more for every result that reads it
    e, rest = lax.optimization_barrier((found.e, eqs.turn(found.e, zeta)))
    w = lax.optimization_barrier((1 + (e[:, 0] + rest[:, 0]), e[:, 1] + rest[:, 1]))
    islanding = jnp.repeat(outages.islanding[rows], members)
    lost = jnp.repeat(jnp.where(outages.islanding[rows], -1, outages.branch[rows]), members)
    flows = _flows(outages, w, e, rest, lost)
    loading, worst_branch, overload = _loading(flows, outages.rate_pu[:, None])
    v = jnp.sqrt(w[0] * w[0] + w[1] * w[1]) * shared.core.main.v_mag[:, None]
    low, high = (x[layout.inward][:, None] for x in (outages.v_min, outages.v_max))
    result = OutageResult(
        status=jnp.where(islanding, jnp.int32(Status.ISLANDED), found.status),
        loading=loading,
        worst_branch=worst_branch,
        overload=overload,
        violation=jnp.sum(voltage_excess(v, low, high), 0),
        v_min=jnp.min(v, 0),
        v_max=jnp.max(v, 0),
        residual=found.residual,
        iterations=found.steps,
    )
    return result, _states(outages, w, flows) if states else ()


def _flows(outages: OutageFactors, w: Parts, e: Array, rest: Array, lost: Array) -> tuple[Array, ...]:
    """(p_from, q_from, p_to, q_to) of every branch, (L, B) [pu]; nothing in branches out of service or lost."""
    layout = outages.meshed.layout

    def differ(x: Array) -> Array:
        return _rows(x, layout.t) - _rows(x, layout.f)

    gap = differ(e) + differ(rest)
    near, far = ((_rows(w[0], at), _rows(w[1], at)) for at in (layout.f, layout.t))
    s_f, s_t = branch_power(near, far, (gap[:, 0], gap[:, 1]), outages.terms)
    mine = jnp.arange(layout.f.shape[0], dtype=jnp.int32)[:, None] == lost[None]
    carries = ~mine & (outages.meshed.branch.in_service > 0)[:, None]
    flows: tuple[Array, ...] = lax.optimization_barrier(tuple(jnp.where(carries, x, 0) for x in (*s_f, *s_t)))
    return flows


def _loading(flows: tuple[Array, ...], rate: Array) -> tuple[Array, Array, Array]:
    """Largest loading, the branch that has it, and the power beyond the ratings (L, 1): (B,) each."""
    p_f, q_f, p_t, q_t = flows
    apparent = jnp.sqrt(jnp.maximum(p_f * p_f + q_f * q_f, p_t * p_t + q_t * q_t))
    rated = rate > 0
    loading = lax.optimization_barrier(apparent * jnp.where(rated, 1 / jnp.where(rated, rate, 1), 0))
    highest = jnp.max(loading, 0)
    # not argmax, which XLA does not vectorise on a CPU
    position = lax.broadcasted_iota(jnp.int32, loading.shape, 0)
    worst = jnp.min(jnp.where(loading == highest[None], position, loading.shape[0] - 1), 0)
    return highest, worst, jnp.sum(loading_excess(apparent, rate), 0)


def _rows(x: Array, index: Array) -> Array:
    return jnp.take(x, index, axis=0, mode="clip")


def _states(outages: OutageFactors, w: Parts, flows: tuple[Array, ...]) -> OutageStates:
    """Case order, lanes first."""
    base = outages.meshed.v_base
    re, im = (_rows(x, outages.meshed.layout.outward).T for x in w)
    a, b = base[None, :, 0], base[None, :, 1]
    return OutageStates(a * re - b * im, a * im + b * re, *(x.T for x in flows))
