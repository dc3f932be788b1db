"""Host-side preparation of the AC-OPF: admittances, limits, costs, and the order in which buses are eliminated."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax.base import struct
from powerzoo_jax.base.errors import CaseError, listing
from powerzoo_jax.base.host import on_host
from powerzoo_jax.base.numerics import resolve_dtype
from powerzoo_jax.base.ranges import axes, checks_ranges
from powerzoo_jax.cases import Case, assert_valid
from powerzoo_jax.cases.case import ISOLATED
from powerzoo_jax.cases.topology import branch_positions, shared_references
from powerzoo_jax.opf.ac.elimination import EliminationPlan, plan_elimination
from powerzoo_jax.opf.ac.reactive import ReactiveRules, reactive_rules
from powerzoo_jax.opf.dc.factors import branch_ratings
from powerzoo_jax.opf.offers import Offers, to_offers, unit_costs
from powerzoo_jax.powerflow.admittances import BranchData, stamps
from powerzoo_jax.powerflow.meshed.base_case import no_load_angles

NO_ANGLE = 360.0  # [deg] an angle limit this wide is none


@struct.dataclass(kw_only=True)
class AcNetwork:
    """The physics of a network, per unit, float64 inside the solver; buses in the order of elimination.

    own, across:        (L, 2, 2)  conj(Y_ff), conj(Y_tt) and conj(Y_ft), conj(Y_tf) of both ends, (re, im)
    angle_min, angle_max: (L,)  [rad]  limits of theta_f - theta_t, infinite = none
    shunt:              (N, 2)  g and -b: what a shunt draws at 1 pu
    w_min, w_max:       (N,)    logarithm of the voltage limits
    angle_0:            (N,)    [rad]  start: angles without load; of a reference, its own
    """

    own: Array
    across: Array
    angle_min: Array
    angle_max: Array
    shunt: Array
    w_min: Array
    w_max: Array
    angle_0: Array


@struct.dataclass(kw_only=True)
class AcLayout:
    """Positions; buses in the order of elimination. `f` leaves before `t`, whatever the case calls its ends.

    plan:          EliminationPlan
    f, t:          (L,)    int32
    turned:        (L,)    bool   `f` is the to end of the case
    slot_ff, slot_tt, slot_tf: (L,) int32  blocks of the matrix that a branch adds to
    unit_bus:      (G,)    int32
    free:          (N, 2)  bool   whether angle, magnitude move
    live:          (N,)    bool   not isolated
    on:            (L,)    bool   in service
    """

    plan: EliminationPlan
    f: Array
    t: Array
    turned: Array
    slot_ff: Array
    slot_tt: Array
    slot_tf: Array
    unit_bus: Array
    free: Array
    live: Array
    on: Array


@struct.dataclass(kw_only=True)
class AcOpfFactors:
    """Prepared data of one network for `ac_opf`. Leaves only; share them between lanes.

    layout:          AcLayout
    main, rest:      AcNetwork, and what the dtype rounds away: the solver computes in float64 throughout
    rate_mva:        (L,)   [MVA]   0 = unlimited
    unit_bus:        (G,)   int32   position in the case
    p_min_mw, p_max_mw, q_min_mvar, q_max_mvar: (G,)  limits of the units; reactive ones may be infinite
    committed:       (G,)   [-]     1 in service
    offers:          Offers         true costs of the case
    base_mva:        ()     [MVA]
    reactive:        ReactiveRules  reactive costs, constant power factors, capability curves; None without any
    """

    layout: AcLayout
    main: AcNetwork
    rest: AcNetwork
    rate_mva: Array
    unit_bus: Array
    p_min_mw: Array
    p_max_mw: Array
    q_min_mvar: Array
    q_max_mvar: Array
    committed: Array
    offers: Offers
    base_mva: Array
    reactive: ReactiveRules | None = None

    AXES: ClassVar = {"N": "n_bus", "L": "rate_mva", "G": "committed"}

    @property
    def n_bus(self) -> int:
        return self.layout.live.shape[-1]

    @property
    def wide(self) -> AcNetwork:
        """The network in float64, whole."""
        return jax.tree.map(_joined, self.main, self.rest)


def _joined(main: Array, rest: Array) -> Array:
    return main.astype(jnp.float64) + rest.astype(jnp.float64)


@on_host
@checks_ranges("prepare_ac_opf")
def prepare_ac_opf(
    case: Case, *, rate_mva: Annotated[np.ndarray, axes("...")] | None = None, dtype: Any = None
) -> AcOpfFactors:
    """Prepare a network for `ac_opf`.

    case:      network with convex costs, finite active limits and voltage limits above zero; several islands are
               solved side by side, each with its reference bus
    rate_mva:  (L,) [MVA] ratings instead of the case's own, 0 = unlimited
    dtype:     of loads and results, float32 (None) or float64

    Raises CaseError for an invalid case, several references in one island, no unit in service, a cost that is not
    convex quadratic or piecewise linear (naming the unit), a capability curve that leaves nothing, an infinite active
    limit, a voltage limit of zero, ratings of a wrong shape or below zero.
    """
    dtype = resolve_dtype(dtype)
    assert_valid(case)
    _refuse_shared_references(case)
    if not case.unit.in_service.any():
        raise CaseError(f"{case.name} has no unit in service: there is nothing to dispatch. Put one in service.")
    case = _holding(case)
    costs = unit_costs(case)
    layout, ends = _layout(case)
    network = _network(case, layout, ends)

    def door(values: Any) -> Array:
        return jnp.asarray(values, dtype)

    main = jax.tree.map(door, network)
    # what float32 leaves of an infinite limit is 0, not the difference of two infinities
    rest = jax.tree.map(lambda x, kept: door(np.where(np.isfinite(x), x - _host(kept, x), 0)), network, main)
    return AcOpfFactors(
        layout=layout,
        main=main,
        rest=rest,
        rate_mva=door(branch_ratings(case, rate_mva)),
        unit_bus=jnp.asarray(case.positions(case.unit.bus_id), jnp.int32),
        p_min_mw=door(case.unit.p_min_mw),
        p_max_mw=door(case.unit.p_max_mw),
        q_min_mvar=door(case.unit.q_min_mvar),
        q_max_mvar=door(case.unit.q_max_mvar),
        committed=door(case.unit.in_service),
        offers=to_offers(costs, dtype),
        base_mva=door(case.base_mva),
        reactive=reactive_rules(case, dtype),
    )


def _host(kept: Array, like: np.ndarray) -> np.ndarray:
    wide = np.asarray(kept, np.float64)
    return np.where(np.isfinite(like), wide, 0)


def _layout(case: Case) -> tuple[AcLayout, np.ndarray]:
    """Positions, and for each branch whether its ends are exchanged."""
    n = case.n_bus
    f, t = branch_positions(case)
    on = case.branch.in_service & (f != t)
    plan, block_of = plan_elimination(n, f[on], t[on], last=case.slack_bus)
    place = np.asarray(plan.place)
    a, b = place[f], place[t]
    turned = a > b
    first, second = np.where(turned, b, a), np.where(turned, a, b)
    # a branch that is out keeps a place, which it adds zeros to
    slot = [n + block_of.get((j, i), 0) for i, j in zip(first.tolist(), second.tolist(), strict=True)]
    live = case.bus.kind != ISOLATED
    reference = np.zeros(n, bool)
    reference[case.slack_bus] = True
    held = case.bus.v_max_pu <= case.bus.v_min_pu
    free = np.stack([live & ~reference, live & ~held], 1)[np.asarray(plan.bus_at)]
    positions = dict(f=first, t=second, slot_ff=first, slot_tt=second, slot_tf=slot)
    layout = AcLayout(
        plan=plan,
        turned=jnp.asarray(turned),
        unit_bus=jnp.asarray(place[case.positions(case.unit.bus_id)], jnp.int32),
        free=jnp.asarray(free),
        live=jnp.asarray(live[np.asarray(plan.bus_at)]),
        on=jnp.asarray(on),
        **{key: jnp.asarray(value, jnp.int32) for key, value in positions.items()},
    )
    return layout, turned


def _network(case: Case, layout: AcLayout, turned: np.ndarray) -> AcNetwork:
    """Host arrays in float64."""
    order = np.asarray(layout.plan.bus_at)
    _refuse_no_voltage(case)
    branch, on = case.branch, np.asarray(layout.on)
    with jax.enable_x64(True):
        data = BranchData(
            r_pu=jnp.asarray(branch.r_pu),
            x_pu=jnp.asarray(branch.x_pu),
            b_pu=jnp.asarray(branch.b_pu),
            tap=jnp.asarray(branch.tap),
            shift_rad=jnp.deg2rad(jnp.asarray(branch.shift_deg)),
            in_service=jnp.asarray(on, jnp.float64),
        )
        y = [np.conj(np.asarray(part)) for part in stamps(data)]
    exchanged = turned[:, None]
    own = np.where(exchanged, np.stack([y[3], y[0]], 1), np.stack([y[0], y[3]], 1))
    across = np.where(exchanged, np.stack([y[2], y[1]], 1), np.stack([y[1], y[2]], 1))
    low = np.where(branch.angle_min_deg > -NO_ANGLE, np.deg2rad(branch.angle_min_deg), -np.inf)
    high = np.where(branch.angle_max_deg < NO_ANGLE, np.deg2rad(branch.angle_max_deg), np.inf)
    # MATPOWER's files write 0 to 0 for no limit
    none = ~on | ((branch.angle_min_deg == 0) & (branch.angle_max_deg == 0))
    low, high = np.where(none, -np.inf, low), np.where(none, np.inf, high)
    v_min, v_max = (np.log(np.where(case.bus.kind == ISOLATED, 1.0, v)) for v in (case.bus.v_min_pu, case.bus.v_max_pu))
    first = np.deg2rad(case.bus.angle_init_deg[case.slack_bus[0]])
    host: dict[str, Any] = dict(
        own=np.stack([own.real, own.imag], 2),
        across=np.stack([across.real, across.imag], 2),
        angle_min=np.where(turned, -high, low),
        angle_max=np.where(turned, -low, high),
        shunt=np.stack([case.bus.gs_mw, -case.bus.bs_mvar], 1)[order] / case.base_mva,
        w_min=v_min[order],
        w_max=np.maximum(v_min, v_max)[order],
        angle_0=(first + no_load_angles(case))[order],
    )
    return AcNetwork(**host)


def _holding(case: Case) -> Case:
    """Case whose voltage limits are the set-points that it holds."""
    at, unit = case.positions(np.array(case.held, np.int64)), case.unit
    low, high = case.bus.v_min_pu.copy(), case.bus.v_max_pu.copy()
    for bus, k in zip(case.held, at.tolist(), strict=True):
        first = np.flatnonzero(unit.in_service & (unit.bus_id == bus))
        if first.size and k >= 0:
            low[k] = high[k] = unit.v_set_pu[first[0]]
    return replace(case, bus=replace(case.bus, v_min_pu=low, v_max_pu=high))


def _refuse_shared_references(case: Case) -> None:
    several = shared_references(case)
    if several.size:
        raise CaseError(
            f"{case.name}: buses {listing(case.bus.id[several])} are references of one island, which would fix the "
            "angle between them. Keep one and make the others PV (kind 2)."
        )


def _refuse_no_voltage(case: Case) -> None:
    low = np.flatnonzero((case.bus.kind != ISOLATED) & ~(case.bus.v_min_pu > 0))
    if low.size:
        raise CaseError(
            f"{case.name}: bus {case.bus.id[low[0]]} has the lower voltage limit {case.bus.v_min_pu[low[0]]} pu. "
            "Give limits above 0."
        )
