"""Preventive security-constrained DC optimal power flow: a dispatch that no single branch outage overloads.

After the loss of branch k the flow of branch l is f_l + LODF_lk f_k, again linear in the injections. A contingency is
therefore one more row of the programme of `opf.dc`, with PTDF_l + LODF_lk PTDF_k in place of PTDF_l. Few of the L^2
rows ever bind: they are found on the host, and every solution is checked against all of them.

Outages that split the network have no such row; `SecureFactors.outages.islanding` names them.
`binding_rows` finds the branch limits that matter by solving on the host, so that programmes may leave the others out.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base import struct
from powerzoo_jax.base.errors import SolverError
from powerzoo_jax.base.host import on_host
from powerzoo_jax.base.numerics import resolve_dtype
from powerzoo_jax.base.ranges import FINITE, POSITIVE, NotNegative, Positive, axes, checks_ranges, unchecked
from powerzoo_jax.cases import Case
from powerzoo_jax.opf.dc.factors import DcOpfFactors, prepare_dc_opf
from powerzoo_jax.opf.dc.solve import OVERLOAD, DcOpfResult, dc_opf, dc_programme
from powerzoo_jax.opf.qp import Qp
from powerzoo_jax.opf.result import OpfStatus
from powerzoo_jax.powerflow.dc.outages import DcOutages, outage_flows, prepare_dc_outages
from powerzoo_jax.powerflow.dc.solve import DcConvention

SCREENING_ROUNDS = 12
STRIDE = 8  # rows are rounded up to a multiple of this with the most loaded branches: fewer sizes to compile for


@on_host
@checks_ranges("binding_rows")
def binding_rows(
    case: Case,
    loads_mw: Annotated[np.ndarray, axes("...")],
    *,
    convention: DcConvention = DcConvention.MATPOWER,
    rate_mva: Annotated[np.ndarray, axes("...")] | None = None,
    rating_scale: Positive = 1.0,
) -> np.ndarray:
    """Positions of the branches whose limits matter for some of the loads, for `rows` of `prepare_dc_opf`.

    Solves every load without limits, adds the branches that come out overloaded, and repeats until none does.

    loads_mw:      (S, N) [MW] a sample of what will be solved; loads outside it may need other branches, which
                   `dc_opf` then reports as ROW_MISSING
    rating_scale:  below 1 to find more branches than the ratings themselves would

    Raises SolverError when a load is not solved; errors of `prepare_dc_opf`.
    """
    rows = np.zeros(0, np.int64)
    with jax.enable_x64(True):
        factors = prepare_dc_opf(case, convention=convention, rate_mva=rate_mva, rows=rows, dtype="float64")
        rate = np.asarray(factors.rate_mva) * rating_scale
        factors = replace(factors, rate_mva=jnp.asarray(rate))
        for _ in range(SCREENING_ROUNDS):
            factors = replace(factors, rows=jnp.asarray(rows, jnp.int32))
            out = _economic_solver()(factors, np.asarray(loads_mw, np.float64))
            if not np.isin(out.status, (OpfStatus.OPTIMAL, OpfStatus.ROW_MISSING)).all():
                raise SolverError(f"{case.name}: a sample load was not solved (status {np.unique(out.status)}).")
            loading = np.where(rate > 0, np.abs(out.line_flow_mw).max(0) / np.where(rate > 0, rate, 1), 0.0)
            loading[rows] = 0.0
            new = np.flatnonzero(loading > 1 + 1e-9)
            if new.size == 0:
                return rows
            rows = _rounded_up(rows, new, loading)
    raise SolverError(
        f"{case.name}: limits still came up after {SCREENING_ROUNDS} rounds. Give `rows` yourself, or all of them."
    )


def _rounded_up(rows: np.ndarray, new: np.ndarray, loading: np.ndarray) -> np.ndarray:
    count = rows.size + new.size
    spare = -count % STRIDE
    others = np.setdiff1d(np.flatnonzero(loading > 0), new)
    filling = others[np.argsort(-loading[others])][:spare]
    return np.sort(np.concatenate([rows, new, filling]))


@cache
def _economic_solver() -> Any:
    return jax.jit(jax.vmap(partial(unchecked(dc_opf), vertex=False), in_axes=(None, 0)))


ROUNDS = 25
# Rows are filled up with unlimited ones to a multiple of this: fewer sizes to compile for while they are sought.
SEARCHING, FOUND = 64, 8


@struct.dataclass(kw_only=True)
class SecureFactors:
    """Prepared data of one network for `secure_dc_opf`. Leaves only; share them between lanes.

    factors:        DcOpfFactors whose L branches are followed by R contingencies, each like a branch of its own
    outages:        DcOutages
    emergency_mva:  (L,)  [MW]   rating after an outage, 0 = unlimited
    monitored:      (R,)  int32  branch that a contingency row limits
    lost:           (R,)  int32  branch that is out in it; -1 fills up
    """

    factors: DcOpfFactors
    outages: DcOutages
    emergency_mva: Array
    monitored: Array
    lost: Array

    AXES: ClassVar = {"N": "factors.n_bus", "G": "factors.committed"}


@struct.dataclass(kw_only=True)
class SecureResult:
    """Result of a secure dispatch.

    dispatch:            DcOpfResult of the intact network; its prices include those of the contingencies
    contingency_price:   (R,)  [USD/MWh]  value of one more MW of emergency rating, >= 0
    worst_overload_mw:   ()    [MW]       largest excess over an emergency rating, all outages and branches
    worst_lost, worst_branch: () int32    where it occurs
    status:              ()    int32      `OpfStatus`; ROW_MISSING when a row that did not enter is violated
    """

    dispatch: DcOpfResult
    contingency_price: Array
    worst_overload_mw: Array
    worst_lost: Array
    worst_branch: Array
    status: Array


@on_host
@checks_ranges("prepare_secure_dc_opf")
def prepare_secure_dc_opf(
    case: Case,
    loads_mw: Annotated[np.ndarray, axes("...")],
    *,
    convention: DcConvention = DcConvention.MATPOWER,
    rate_mva: Annotated[np.ndarray, axes("...")] | None = None,
    emergency: Positive = 1.0,
    rating_scale: Positive = 1.0,
    voll: NotNegative = 10_000.0,
    dtype: Any = None,
) -> SecureFactors:
    """Find the rows that matter for a sample of loads, and prepare the network with them.

    Solves every load, adds for each branch the outage that overloads it most, and repeats until nothing is overloaded.

    case, convention, rate_mva: as in `prepare_dc_opf`
    loads_mw:      (S, N) [MW] a sample of what will be solved; others may need other rows, and then say ROW_MISSING
    emergency:     [-]  rating after an outage over that before it
    rating_scale:  [-]  as in `secure_dc_opf`
    voll:          [USD/MWh] of the sample
    dtype:         float32 (None) or float64

    Raises SolverError when a load is not solved; errors of `prepare_dc_opf`.
    """
    dtype = resolve_dtype(dtype)
    rows: np.ndarray = np.zeros(0, np.int64)
    pairs: np.ndarray = np.zeros((0, 2), np.int64)
    with jax.enable_x64(True):
        plain = prepare_dc_opf(case, convention=convention, rate_mva=rate_mva, rows=rows, dtype="float64")
        outages = prepare_dc_outages(case, convention=convention, dtype="float64")
        for _ in range(ROUNDS):
            secure = _with_rows(plain, outages, rows, pairs, emergency, SEARCHING)
            out = _solver()(secure, jnp.asarray(loads_mw, "float64"), rating_scale, voll)
            if not np.isin(out.status, (OpfStatus.OPTIMAL, OpfStatus.ROW_MISSING)).all():
                raise SolverError(f"{case.name}: a sample load was not solved (status {np.unique(out.status)}).")
            flow = np.asarray(out.dispatch.line_flow_mw)
            new_rows, new_pairs = _violated(secure, flow, rating_scale, rows, pairs)
            if not len(new_rows) and not len(new_pairs):
                secure = _with_rows(plain, outages, rows, pairs, emergency, FOUND)
                break
            rows, pairs = np.union1d(rows, new_rows).astype(np.int64), np.concatenate([pairs, new_pairs])
        else:
            raise SolverError(f"{case.name}: rows still came up after {ROUNDS} rounds. Give fewer loads at a time.")
    found = jax.tree.map(np.asarray, secure)
    return jax.tree.map(lambda x: jnp.asarray(x, dtype if x.dtype.kind == "f" else x.dtype), found)


@checks_ranges("secure_dc_opf", options=dc_opf)
def secure_dc_opf(
    secure: SecureFactors,
    load_mw: Annotated[Array, FINITE, axes("N")],
    *,
    rating_scale: Annotated[float | Array, POSITIVE, axes()] = 1.0,
    **options: Any,
) -> SecureResult:
    """Dispatch at least cost so that neither the network nor any single outage overloads a branch; vmap it for many.

    secure:        from `prepare_secure_dc_opf`
    load_mw:       (N,) [MW]
    rating_scale:  () [-] multiplies normal and emergency ratings
    options:       of `dc_opf`, without rate_mva; with shedding=False a load that cannot be served securely is
                   INFEASIBLE, and `infeasibility` of `secure_programme` proves it

    Compiled, nothing raises or is NaN.
    """
    scale = jnp.asarray(rating_scale, load_mw.dtype)
    factors = secure.factors
    out = unchecked(dc_opf)(factors, load_mw, rate_mva=factors.rate_mva * scale, **options)
    n_branch = secure.emergency_mva.shape[0]
    flow = out.line_flow_mw[:n_branch]
    excess = _post_outage_excess(secure.outages, flow, secure.emergency_mva * scale)
    worst = jnp.argmax(excess.reshape(-1)).astype(jnp.int32) if n_branch else jnp.zeros((), jnp.int32)
    most = jnp.max(excess, initial=0)
    unseen = (out.status == OpfStatus.OPTIMAL) & (most > OVERLOAD[load_mw.dtype.name] * factors.base_mva)
    status = jnp.where(unseen, jnp.int32(OpfStatus.ROW_MISSING), out.status)
    return SecureResult(
        dispatch=replace(out, line_flow_mw=flow, line_price=out.line_price[:n_branch], status=status),
        contingency_price=out.line_price[n_branch:],
        worst_overload_mw=most,
        worst_lost=worst // max(n_branch, 1),
        worst_branch=worst % max(n_branch, 1),
        status=status,
    )


@checks_ranges("secure_programme", options=dc_opf)
def secure_programme(
    secure: SecureFactors,
    load_mw: Annotated[Array, FINITE, axes("N")],
    *,
    rating_scale: Annotated[float | Array, POSITIVE, axes()] = 1.0,
    **options: Any,
) -> Qp:
    """The programme that `secure_dc_opf` solves with the same arguments, load (N,) [MW] first; for audits."""
    rate = secure.factors.rate_mva * jnp.asarray(rating_scale, load_mw.dtype)
    return unchecked(dc_programme)(secure.factors, load_mw, rate_mva=rate, **options)


def _post_outage_excess(outages: DcOutages, flow: Array, emergency: Array) -> Array:
    """Excess over the emergency rating, (L, L) [MW], row k with branch k lost; 0 for what is not screened."""
    limited = (emergency > 0) & outages.in_service
    excess = jnp.where(limited[None, :], jnp.abs(unchecked(outage_flows)(outages, flow)) - emergency[None, :], 0)
    possible = outages.in_service & ~outages.islanding
    return jnp.maximum(jnp.where(possible[:, None], excess, 0), 0)


def _with_rows(
    plain: DcOpfFactors, outages: DcOutages, rows: np.ndarray, pairs: np.ndarray, emergency: float, stride: int
) -> SecureFactors:
    """Append contingencies (R, 2) of (monitored, lost) to the branches, filled up with unlimited rows."""
    used = len(rows) + len(pairs)
    spare = max(stride - used, -used % stride) if plain.rate_mva.shape[0] else 0  # a filler repeats a branch
    monitored = np.concatenate([pairs[:, 0], np.zeros(spare, np.int64)])
    lost = np.concatenate([pairs[:, 1], np.full(spare, -1)])
    real = lost >= 0
    ptdf, flow_0, rate = (np.asarray(x) for x in (plain.ptdf, plain.flow_0, plain.rate_mva))
    share = np.where(real, np.asarray(outages.lodf)[monitored, lost], 0.0)
    limit = rate * emergency
    factors = replace(
        plain,
        ptdf=jnp.asarray(np.concatenate([ptdf, real[:, None] * ptdf[monitored] + share[:, None] * ptdf[lost]])),
        flow_0=jnp.asarray(np.concatenate([flow_0, real * flow_0[monitored] + share * flow_0[lost]])),
        rate_mva=jnp.asarray(np.concatenate([rate, np.where(real, limit[monitored], 0.0)])),
        rows=jnp.asarray(np.concatenate([rows, len(rate) + np.arange(len(lost))]), jnp.int32),
    )
    return SecureFactors(
        factors=factors,
        outages=outages,
        emergency_mva=jnp.asarray(limit),
        monitored=jnp.asarray(monitored, jnp.int32),
        lost=jnp.asarray(lost, jnp.int32),
    )


def _violated(
    secure: SecureFactors, flow: np.ndarray, scale: float, rows: np.ndarray, pairs: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """New branches, and new (monitored, lost) pairs: of every branch and load the worst outage."""
    n_branch = flow.shape[1]
    if n_branch == 0:
        return np.zeros(0, np.int64), np.zeros((0, 2), np.int64)
    rate = np.asarray(secure.factors.rate_mva)[:n_branch] * scale
    tolerance = 1e-7 * float(secure.factors.base_mva)
    over = ((np.abs(flow) - rate > tolerance) & (rate > 0)).any(0)
    found: dict[tuple[int, int], None] = {}
    known = {tuple(pair) for pair in pairs.tolist()}
    emergency = secure.emergency_mva * scale
    for one in flow:
        excess = np.asarray(_post_outage_excess(secure.outages, jnp.asarray(one), emergency))
        worst = excess.argmax(0)
        for branch in np.flatnonzero(excess.max(0) > tolerance).tolist():
            found[branch, int(worst[branch])] = None
    new = [pair for pair in found if pair not in known]
    return np.setdiff1d(np.flatnonzero(over), rows), np.array(new, np.int64).reshape(-1, 2)


@cache
def _solver() -> Any:
    def solve(secure: SecureFactors, loads: Array, scale: float, voll: float) -> SecureResult:
        one = partial(unchecked(secure_dc_opf), secure, rating_scale=scale, voll=voll, vertex=False)
        return jax.vmap(one)(loads)

    return jax.jit(solve)
