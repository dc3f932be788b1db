"""Host-side preparation of the DC-OPF: distribution factors, units, ratings, the branches whose limits enter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base import struct
from powerzoo_jax.base.errors import CaseError, listing
from powerzoo_jax.base.host import on_host
from powerzoo_jax.base.numerics import resolve_dtype
from powerzoo_jax.base.ranges import WHOLE, axes, checks_ranges, stored
from powerzoo_jax.cases import Case
from powerzoo_jax.opf.offers import Offers, to_offers, unit_costs
from powerzoo_jax.powerflow.dc.network import DcNetwork, build_dc_network
from powerzoo_jax.powerflow.dc.solve import DcConvention


@struct.dataclass(kw_only=True)
class DcOpfFactors:
    """Prepared data of one network for `dc_opf`. Leaves only; share them between lanes.

    ptdf:       (L, N)  [-]    flow per injection
    flow_0:     (L,)    [MW]   flow that phase shifts and shunts cause
    rate_mva:   (L,)    [MW]   0 = unlimited
    rows:       (R,)    int32  branches whose limits enter the programme
    shunt_mw:   (N,)    [MW]   consumption of the shunts
    unit_bus:   (G,)    int32  position
    p_min_mw, p_max_mw: (G,)   limits of the units, 0 out of service
    committed:  (G,)    [-]    1 in service
    spill_bus:  (W,)    int32  buses where surplus can be spilled
    offers:     Offers         true costs of the case
    base_mva:   ()      [MVA]
    """

    ptdf: Array
    flow_0: Array
    rate_mva: Array
    rows: Array
    shunt_mw: Array
    unit_bus: Array
    p_min_mw: Array
    p_max_mw: Array
    committed: Array
    spill_bus: Array
    offers: Offers
    base_mva: Array

    AXES: ClassVar = {"N": "n_bus", "L": "flow_0", "G": "committed"}

    @property
    def n_bus(self) -> int:
        return self.shunt_mw.shape[-1]


@on_host
@checks_ranges("prepare_dc_opf")
def prepare_dc_opf(
    case: Case,
    *,
    convention: DcConvention = DcConvention.MATPOWER,
    rate_mva: Annotated[np.ndarray, axes("...")] | None = None,
    rows: Annotated[Sequence[int] | np.ndarray, axes("...", kind=WHOLE)] | None = None,
    spill_bus_ids: Annotated[Sequence[int], axes("...", kind=WHOLE)] = (),
    dtype: Any = None,
) -> DcOpfFactors:
    """Prepare a network for `dc_opf`.

    case:           network of one island with convex costs and finite unit limits
    convention:     DcConvention
    rate_mva:       (L,) [MW] ratings instead of the case's own, 0 = unlimited
    rows:           positions of the branches whose limits enter the programme; None takes every rated one in service.
                    `binding_rows` finds the few that matter on a large network
    spill_bus_ids:  external ids of buses that may spill surplus beside those with units or negative load
    dtype:          float32 (None) or float64

    Raises CaseError for an invalid case, several islands, loads or units at isolated buses, a cost that is not convex
    quadratic or piecewise linear (naming the unit), an infinite unit limit, ratings of a wrong shape or below zero.
    """
    dtype = resolve_dtype(dtype)
    costs = unit_costs(case)
    network = build_dc_network(case, pglib=convention == DcConvention.PGLIB)
    _refuse_islands(case, network)
    rate = branch_ratings(case, rate_mva)
    on = case.unit.in_service
    unit_bus = case.positions(case.unit.bus_id)
    spill = np.zeros(case.n_bus, bool)
    spill[unit_bus[on]] = True
    spill[case.p_load_mw < 0] = True
    spill[case.positions(np.asarray(spill_bus_ids, np.int64))] = True
    entering = np.flatnonzero(rate > 0) if rows is None else np.asarray(rows, np.int64)

    def door(values: Any) -> Array:
        return stored(case.name, values, dtype)

    return DcOpfFactors(
        ptdf=door(network.ptdf),
        flow_0=door(network.flow_0 * case.base_mva),
        rate_mva=door(rate),
        rows=jnp.asarray(entering, jnp.int32),
        shunt_mw=door(case.bus.gs_mw),
        unit_bus=jnp.asarray(unit_bus, jnp.int32),
        p_min_mw=door(case.unit.p_min_mw),
        p_max_mw=door(case.unit.p_max_mw),
        committed=door(on),
        spill_bus=jnp.asarray(np.flatnonzero(spill), jnp.int32),
        offers=to_offers(costs, dtype),
        base_mva=door(case.base_mva),
    )


def _refuse_islands(case: Case, network: DcNetwork) -> None:
    """CaseError where one balance would carry power between buses that no branch joins."""
    if len(network.island) > 1:
        raise CaseError(
            f"{case.name} has {len(network.island)} islands, which a DC-OPF would let trade with each other. Give each "
            "as a case of its own, or use prepare_ac_opf, which balances each."
        )
    alone = ~network.live & ((case.p_load_mw != 0) | case.bus_has_unit)
    if alone.any():
        raise CaseError(
            f"{case.name}: bus {listing(case.bus.id[alone])} is isolated, and its load or unit would count in the "
            "balance of the others. Drop them, or connect the bus."
        )


def branch_ratings(case: Case, given: np.ndarray | None) -> np.ndarray:
    """Ratings of a case, or those given instead (L,) [MW]; 0 out of service."""
    rate = case.branch.rate_a_mva if given is None else np.asarray(given, float)
    if rate.shape != (case.n_branch,):
        raise CaseError(f"{case.name}: rate_mva has shape {rate.shape}, expected (L={case.n_branch},).")
    if not (rate >= 0).all() or not np.isfinite(rate).all():
        raise CaseError(f"{case.name}: rate_mva holds negative or non-finite ratings. Give 0 for no limit.")
    return np.where(case.branch.in_service, rate, 0.0)
