"""Single outages of a meshed network in AC, all of them or a chosen few, inside a compiled step.

The loss of a branch or a unit corrects the constant factors of the intact network by a low rank
(`contingency.factors`), or many scenarios share factors of the network that is left. The chord starts from the state
before the outage and what the outage does at the base load; what it cannot solve goes to a full Newton method in
float64. Outages that cut buses off are found on the host and flagged. `screen_outages` ranks outages before the exact
solve, `worst_outages` after it.
"""

from __future__ import annotations

import functools
from typing import Annotated, Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from powerzoo_jax.base.ranges import FINITE, NOT_NEGATIVE, WHOLE, Count, Positive, axes, checks_ranges, unchecked
from powerzoo_jax.base.solver_mode import AUTO, check_mode
from powerzoo_jax.powerflow.batching import batched_shell
from powerzoo_jax.powerflow.contingency.batch import Kind, inputs_of, solve_outages
from powerzoo_jax.powerflow.contingency.derivative import outage_tangent
from powerzoo_jax.powerflow.contingency.factors import OutageFactors
from powerzoo_jax.powerflow.contingency.result import OutageResult
from powerzoo_jax.powerflow.dc.outages import DcOutages, worst_outage_loading, worst_unit_outage_loading
from powerzoo_jax.powerflow.meshed.solve import MAX_STEPS, TOL
from powerzoo_jax.powerflow.result import Status


@checks_ranges("screen_outages")
def screen_outages(
    outages: OutageFactors,
    dc: DcOutages,
    flow_pu: Annotated[Array, FINITE, axes("L")],
    count: Count,
    p_unit_pu: Annotated[Array, FINITE, axes("G")] | None = None,
) -> Array:
    """Rows of the `count` outages that load a branch most under the DC approximation, worst first, (count,) int32.

    outages:    from `prepare_outages`; its ratings count      dc: from `prepare_dc_outages` of the same case
    flow_pu:    (L,) [pu] flows before any outage: of `solve_dc`, or active flows of an AC solve, which rank better
    p_unit_pu:  (G,) [pu] output of every unit; None takes the schedule of the case

    For `n_minus_1(..., only=rows)`. Voltages are not screened: keep the outages that you know to depress them.
    """
    loading, _ = unchecked(worst_outage_loading)(dc, flow_pu, outages.rate_pu)
    of_unit, _ = unchecked(worst_unit_outage_loading)(dc, flow_pu, outages.rate_pu, p_unit_pu)
    first = outages.n_outage - outages.n_unit_outage
    both = jnp.concatenate([loading[outages.branch[:first]], of_unit[outages.unit[first:]]])
    return lax.top_k(both, count)[1].astype(jnp.int32)


@checks_ranges("worst_outages")
def worst_outages(result: OutageResult, count: Count) -> Array:
    """Positions of the `count` worst outages of a result, worst first, (count,) int32.

    Outages without a solution come first (the state after them collapses), then those of the highest loading; outages
    that cut buses off come last: they are worst for known buses in every state, which `islanding` tells beforehand.
    """
    collapsed = (result.status != Status.CONVERGED) & (result.status != Status.ISLANDED)
    severity = jnp.where(collapsed, jnp.inf, result.loading)
    severity = jnp.where(result.status == Status.ISLANDED, -1.0, severity)
    return lax.top_k(severity, count)[1].astype(jnp.int32)


@checks_ranges("n_minus_1")
def n_minus_1(
    outages: OutageFactors,
    p_pu: Annotated[Array, FINITE, axes("N", told=True)],
    q_pu: Annotated[Array, FINITE, axes("N", told=True)],
    v_set_pu: Annotated[Array, NOT_NEGATIVE, axes("N")] | None = None,
    *,
    p_unit_pu: Annotated[Array, FINITE, axes("G")] | None = None,
    q_unit_pu: Annotated[Array, FINITE, axes("G")] | None = None,
    only: Annotated[Array, axes("K", kind=WHOLE, below="O")] | None = None,
    states: bool = False,
    tol: Positive | None = None,
    max_steps: Count = MAX_STEPS,
    solver: str = AUTO,
) -> Any:
    """Solve the power flow of one scenario after each outage; vmap it for many scenarios.

    S_i = V_i sum_j conj(Y_ij V_j), |V_i| held at PV buses and the slack, Y without the lost branch, S without the lost
    unit; a PV bus that loses its last unit holds S_i instead

    outages:    from `prepare_outages`; share them (in_axes=None)
    p_pu, q_pu: (N,) [pu] net injections      v_set_pu: (N,) [pu] magnitudes held; all as for `solve_meshed`. Where a PV
                bus loses its last unit, q_pu less q_unit_pu is what it injects from then on
    p_unit_pu, q_unit_pu: (G,) [pu] output of every unit of the case, which are part of p_pu and q_pu; None takes the
                schedule of the case
    only:       (K,) int32 rows of `outages` to solve instead of all O of them; may differ between scenarios
    states:     also return the voltages and flows after every outage
    tol:        [pu] voltage error at which a lane stops; None takes 4e-7 (float32), 4e-10 (float64)
    max_steps:  chord iterations before a lane goes to the float64 Newton fallback, where the solver is adaptive
    solver:     "auto", "adaptive" or "fixed" as for `solve_meshed`; fixed takes 16 steps

    Returns an OutageResult, with states=True a pair (OutageResult, OutageStates). Compiled, nothing raises or is NaN.
    Differentiable forward and reverse in injections, set-points and outputs (implicit function theorem); the rows of
    outages without a solution have derivative 0.
    """
    limit = TOL[p_pu.dtype.name] if tol is None else float(tol)
    units = outages.n_unit_outage > 0 and not (p_unit_pu is None and q_unit_pu is None)
    kind = Kind(v_set_pu is not None, units, only is not None, states)
    output = (
        ()
        if not units
        else tuple(
            scheduled if x is None else x for x, scheduled in ((p_unit_pu, outages.p_unit), (q_unit_pu, outages.q_unit))
        )
    )
    arrays = (p_pu, q_pu, v_set_pu, *output, only)
    found = _solver(limit, max_steps, kind, check_mode(solver))(
        lax.stop_gradient(outages), *(x for x in arrays if x is not None)
    )
    return found if states else found[0]


@functools.lru_cache(maxsize=32)
def _solver(tol: float, max_steps: int, kind: Kind, mode: str) -> Any:
    """The differentiable solver of one scenario: (outages, *arrays) -> (OutageResult, OutageStates or ())."""

    def shell(kind: Kind) -> Any:
        def core(outages: OutageFactors, *arrays: Array) -> Any:
            return solve_outages(outages, inputs_of(kind, arrays), kind, tol, max_steps, mode)

        return batched_shell(core)

    plain, keeping = shell(kind), shell(kind._replace(keep=True))

    @jax.custom_jvp
    def solve(outages: OutageFactors, *arrays: Array) -> Any:
        return plain(outages, *arrays)[:2]

    @solve.defjvp
    def _(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
        *out, e = keeping(*primals)
        return tuple(out), outage_tangent(kind, primals, tangents, tuple(out), e)

    return solve
