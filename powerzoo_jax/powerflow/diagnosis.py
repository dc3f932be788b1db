"""Likely causes of a power flow that did not converge, found on the host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import numpy as np

from powerzoo_jax.base.errors import BaseLoadError, listing
from powerzoo_jax.base.ranges import axes, checks_ranges
from powerzoo_jax.cases import Case
from powerzoo_jax.cases.case import ISOLATED
from powerzoo_jax.cases.plausibility import PLAUSIBILITY, low_set_points
from powerzoo_jax.cases.topology import branch_positions, reachable_from_slack
from powerzoo_jax.powerflow.feeder.factors import nominal_injection
from powerzoo_jax.powerflow.meshed.base_case import LEAST_Z_PU, solve_base, voltage_setpoints
from powerzoo_jax.powerflow.result import PowerFlowResult, Status, explain

# rules about what no power flow reads
NOT_READ = {"base_voltages", "costs", "ratings", "repeated_branches", "unit_magnitudes", "voltage_bands"}
NEAR_ZERO_Z = max(LEAST_Z_PU.values())  # [pu] below, a branch is a bus-bar: |y| of a million swamps its neighbours
FAR_TAP = (0.8, 1.25)  # [-] beyond, a ratio is no tap position of a transformer in use
HALVINGS = 10  # tells the largest solvable load to 0.1 % of the given
SHOWN = 3  # buses and branches named


@checks_ranges("diagnose")
def diagnose(
    case: Case,
    result: PowerFlowResult,
    p_pu: Annotated[np.ndarray, axes("N")] | None = None,
    q_pu: Annotated[np.ndarray, axes("N")] | None = None,
) -> str:
    """Say in prose why a solve of one scenario may have failed: a line per likely cause, then the last iterate.

    case:        the network as it was solved, outages included
    result:      unbatched
    p_pu, q_pu:  (N,) [pu] injections that were solved; None takes the nominal ones of the case

    Raises ValueError for a batched result.
    """
    if np.ndim(result.status):
        shape = np.shape(result.status)
        raise ValueError(f"diagnose takes one scenario, the result has lanes {shape}. Pick one of them.")
    if int(result.status) == Status.CONVERGED:
        return explain(result)
    s = nominal_injection(case)
    p = s.real if p_pu is None else np.asarray(p_pu, float)
    q = s.imag if q_pu is None else np.asarray(q_pu, float)
    causes = likely_causes(case, p, q)
    found = [f"- {cause}" for cause in causes] or ["- No cause found: the state is solvable, from the base state."]
    return "\n".join([explain(result), "Likely causes:", *found, *_last_iterate(case, result)])


def likely_causes(case: Case, p_pu: np.ndarray, q_pu: np.ndarray) -> list[str]:
    """Likely causes, a sentence each, why injections (N,) [pu] of a case have no power flow; empty if none is seen."""
    islands = list(_islands(case))
    finite = list(_not_finite(case, p_pu, q_pu))
    # bisection says nothing more about a network without a path to the slack or of numbers that are not, and would
    # blame the load for voltages at which no line carries it
    known = bool(islands or finite or list(low_set_points(case)))
    range_of_loads = [] if known else list(_load_range(case, p_pu + 1j * q_pu))
    return [*islands, *finite, *range_of_loads, *_magnitudes(case), *_branches(case)]


def _islands(case: Case) -> Iterator[str]:
    alone = ~reachable_from_slack(case) & (case.bus.kind != ISOLATED)
    if alone.any():
        out = np.flatnonzero(~case.branch.in_service)
        f, t = branch_positions(case)
        cut = out[alone[f[out]] | alone[t[out]]]
        by = f", which the outage of branch {_branch_names(case, cut)} cuts off" if cut.size else ""
        buses = listing(case.bus.id[alone])
        yield f"{alone.sum()} buses have no path to the slack bus: {buses}{by}. Give them kind 4, or a reference."


def _not_finite(case: Case, p: np.ndarray, q: np.ndarray) -> Iterator[str]:
    bad = ~(np.isfinite(p) & np.isfinite(q))
    if bad.any():
        yield f"The injection is not finite at bus {listing(case.bus.id[bad])}. Check the profiles."


def _load_range(case: Case, s: np.ndarray) -> Iterator[str]:
    """Message with the largest scale of the injections at which the base solve succeeds, by bisection."""

    def solvable(scale: float) -> bool:
        try:
            solve_base(case, scale * s, voltage_setpoints(case))
        except BaseLoadError:
            return False
        return True

    if solvable(1.0):
        return
    if not solvable(0.0):
        yield "The network does not solve without load either: the cause lies in its branches or set-points."
        return
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if solvable(middle) else (low, middle)
    if low:
        yield f"The load lies beyond the collapse point: scaled to {low:.3f} of the given injections it solves."
    else:
        yield f"Not even {high:.1e} of the given injections can be carried: a unit is wrong, or an impedance."


def _magnitudes(case: Case) -> Iterator[str]:
    for rule in PLAUSIBILITY:
        if rule.__name__ not in NOT_READ:
            for problem in rule(case):
                ids = f" {listing(problem.ids)}" if problem.ids else ""
                yield f"{problem.component}{ids}: {problem.message} {problem.remedy}"


def _branches(case: Case) -> Iterator[str]:
    b = case.branch
    z = np.hypot(b.r_pu, b.x_pu)
    at = np.flatnonzero(b.in_service & (z < NEAR_ZERO_Z))
    if at.size:
        yield f"|z| below {NEAR_ZERO_Z:g} pu: branch {_branch_names(case, at)}. Merge the buses, or give its impedance."
    at = np.flatnonzero(b.in_service & ((b.tap < FAR_TAP[0]) | (b.tap > FAR_TAP[1])))
    if at.size:
        yield f"tap = {listing(f'{x:g}' for x in b.tap[at])}: branch {_branch_names(case, at)}. Check the ratio."


def _branch_names(case: Case, at: np.ndarray) -> str:
    return listing(f"{case.branch.from_id[k]}-{case.branch.to_id[k]}" for k in at)


def _last_iterate(case: Case, result: PowerFlowResult) -> list[str]:
    """Message with the place where the last iterate is worst."""
    v = np.hypot(np.asarray(result.v_re, float), np.asarray(result.v_im, float))[: case.n_bus]
    load = np.hypot(np.asarray(result.p_from, float), np.asarray(result.q_from, float))[: case.n_branch]
    low = np.argsort(np.where(case.bus.kind == ISOLATED, np.inf, v))[:SHOWN]
    heavy = np.argsort(-load)[:SHOWN]
    ends = [f"{f}-{t}" for f, t in zip(case.branch.from_id, case.branch.to_id, strict=True)]
    return [
        "At the last iterate:",
        f"- lowest voltages: {listing(f'{v[i]:.3f} pu at bus {case.bus.id[i]}' for i in low)}.",
        f"- heaviest branches: {listing(f'{case.base_mva * load[k]:.4g} MVA on {ends[k]}' for k in heavy)}.",
    ]
