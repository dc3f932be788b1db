"""Distributed slack of meshed networks: shares of the buses in the active power that a schedule lacks."""

from __future__ import annotations

from typing import Annotated, Literal

import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base.errors import CaseError, listing
from powerzoo_jax.base.ranges import axes, checks_ranges
from powerzoo_jax.cases import Case
from powerzoo_jax.cases.topology import reachable_from_slack
from powerzoo_jax.powerflow.meshed.factors import MeshedFactors


@checks_ranges("slack_share")
def slack_share(
    case: Case, weight: Annotated[np.ndarray, axes("...")] | Literal["capacity", "headroom"] = "capacity"
) -> np.ndarray:
    """Share of every bus in the active power that the schedule lacks, (N,) [-], for `solve_meshed` and `prepare_dc`.

    weight:  (G,) participation factors of the units; "capacity" takes their p_max, "headroom" what is left to it from
             the scheduled p. Units out of service, and those that the slack bus does not reach, take nothing.

    Raises CaseError for weights of another shape, negative or not finite, and where all are zero.
    """
    unit = case.unit
    if isinstance(weight, str):
        weight = unit.p_max_mw - (unit.p_mw if weight == "headroom" else 0.0)
        weight = np.maximum(weight, 0.0)
    weight = np.asarray(weight, float)
    if weight.shape != unit.p_mw.shape:
        raise CaseError(f"{case.name}: weight has shape {weight.shape}, expected (G={len(unit)},).")
    bad = ~np.isfinite(weight) | (weight < 0)
    if bad.any():
        raise CaseError(
            f"{case.name}: the weight of unit {listing(np.flatnonzero(bad))} is negative or not finite. Give 0 or more."
        )
    at = case.positions(unit.bus_id)
    weight = np.where(unit.in_service & reachable_from_slack(case)[at], weight, 0.0)
    if not weight.any():
        raise CaseError(f"{case.name}: no unit in service has a weight. Give one of them a positive participation.")
    return np.bincount(at, weight, case.n_bus) / weight.sum()


def normal_share(factors: MeshedFactors, share: Array) -> Array:
    """Share (N,) of sum 1 over the buses that the solver balances; the slack alone where none has a share."""
    layout = factors.layout
    at_slack = slack_mask(factors)
    counts = jnp.take(layout.free[:, 0], layout.outward, mode="clip") | at_slack
    share = jnp.where(counts, share, 0)
    total = jnp.sum(share)
    return jnp.where(total == 0, at_slack.astype(share.dtype), share / jnp.where(total == 0, 1, total))


def slack_mask(factors: MeshedFactors) -> Array:
    """(N,) bool, True at the slack bus."""
    return jnp.zeros(factors.n_bus, bool).at[factors.slack].set(True)


def base_magnitude(factors: MeshedFactors) -> Array:
    """(N,) [pu] magnitudes of the base state."""
    return jnp.sqrt(jnp.sum(factors.v_base**2, -1))
