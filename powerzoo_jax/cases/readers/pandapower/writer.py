"""Cases as pandapower nets: lines, transformers, shunts, loads, generators and external grids."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from powerzoo_jax.base.errors import CaseError, listing, missing_extra
from powerzoo_jax.cases.case import ISOLATED, PV, REF, Case
from powerzoo_jax.cases.readers.pandapower.origin import keep_case
from powerzoo_jax.cases.topology import branch_positions
from powerzoo_jax.cases.validate import assert_valid

HERTZ = 50.0
NO_CURRENT_KA = 99999.0  # what pandapower writes where a line has no rating
POLYNOMIAL, PIECEWISE = 2, 1
MOST_TERMS = 3  # of a polynomial cost in pandapower: it ends with the square


def to_pandapower(case: Case) -> Any:
    """pandapower net of a case, with index = bus id - 1; `from_pandapower` gives the same case back.

    Branches between buses of one voltage without a ratio are lines of 1 km, all others transformers with the ratio in
    their rated voltage and their charging as a shunt at either end. Units are external grids (the first in service at
    a reference bus), generators at buses that hold their voltage, and static generators elsewhere; at one bus all
    hold the set-point of the first. The case itself stays in the net, so that a net whose elements nobody has changed
    gives it back number by number; after a change, or once saved as JSON (15 digits), impedances differ by rounding,
    and limits of angles, costs of starting and of reactive power, capability curves, constant power factors and the
    outputs of idle units are lost.

    Raises ImportError that names the extra when pandapower is missing, CaseError for an invalid case, a bus id below 1
    and a polynomial cost of a higher order than pandapower has.
    """
    try:
        import pandapower
    except ImportError as err:
        raise ImportError(missing_extra("to_pandapower", "pandapower", "pandapower")) from err
    assert_valid(case)
    _refuse_unsupported(case)
    net = pandapower.create_empty_network(case.name, HERTZ, case.base_mva, add_stdtypes=False)
    bus, on = case.bus, case.bus.kind != ISOLATED
    pandapower.create_buses(
        net,
        case.n_bus,
        _levels(case),
        index=bus.id - 1,
        in_service=on,
        max_vm_pu=bus.v_max_pu,
        min_vm_pu=bus.v_min_pu,
    )
    loads = np.flatnonzero((case.p_load_mw != 0) | (case.q_load_mvar != 0))
    if loads.size:
        pandapower.create_loads(net, bus.id[loads] - 1, case.p_load_mw[loads], case.q_load_mvar[loads])
    # branches (L,) bool that pandapower can have as lines
    b, kv = case.branch, _levels(case)
    f, t = branch_positions(case)
    is_line = (kv[f] == kv[t]) & (b.tap == 1) & (b.shift_deg == 0)
    _add_shunts(pandapower, net, case, is_line)
    _add_branches(pandapower, net, case, is_line)
    _add_units(pandapower, net, case)
    keep_case(net, case)
    return net


def _refuse_unsupported(case: Case) -> None:
    low = case.bus.id[case.bus.id < 1]
    if low.size:
        raise CaseError(f"bus id {int(low[0])} cannot be written: pandapower's index is the id less 1. Renumber it.")
    unit = case.unit
    beyond = np.arange(unit.cost.shape[1]) < unit.cost_terms[:, None] - MOST_TERMS  # the highest power comes first
    high = np.flatnonzero((unit.cost_model == POLYNOMIAL) & (beyond & (unit.cost != 0)).any(1))
    if high.size:
        rows = listing(high + 1)
        raise CaseError(f"unit {rows} has a cost of more than {MOST_TERMS} terms. pandapower knows squares at most.")


def _levels(case: Case) -> np.ndarray:
    """Rated voltages (N,) [kV]; 1 where the case has none, which changes no per-unit value."""
    return np.where(case.bus.base_kv > 0, case.bus.base_kv, 1.0)


def _add_shunts(pandapower: Any, net: Any, case: Case, is_line: np.ndarray) -> None:
    """Shunts of the buses, and the charging of branches in service that become transformers, behind their ratio."""
    b, moved = case.branch, case.branch.in_service & ~is_line
    f, t = branch_positions(case)
    half = np.where(moved, case.base_mva * b.b_pu / 2, 0.0)
    bs_mvar = case.bus.bs_mvar + np.bincount(f, half / b.tap**2, case.n_bus) + np.bincount(t, half, case.n_bus)
    at = np.flatnonzero((case.bus.gs_mw != 0) | (bs_mvar != 0))
    if at.size:
        pandapower.create_shunts(
            net, case.bus.id[at] - 1, q_mvar=-bs_mvar[at], p_mw=case.bus.gs_mw[at], vn_kv=_levels(case)[at]
        )


def _add_branches(pandapower: Any, net: Any, case: Case, is_line: np.ndarray) -> None:
    b, kv = case.branch, _levels(case)
    f, t = branch_positions(case)
    at, ohm = np.flatnonzero(is_line), kv[f] ** 2 / case.base_mva
    limit = np.where(b.rate_a_mva > 0, 100.0, np.nan)
    current = np.where(b.rate_a_mva > 0, b.rate_a_mva / (math.sqrt(3) * kv[f]), NO_CURRENT_KA)
    if at.size:
        pandapower.create_lines_from_parameters(
            net,
            b.from_id[at] - 1,
            b.to_id[at] - 1,
            length_km=1.0,
            r_ohm_per_km=(b.r_pu * ohm)[at],
            x_ohm_per_km=(b.x_pu * ohm)[at],
            c_nf_per_km=(b.b_pu / ohm / (2 * math.pi * HERTZ) * 1e9)[at],
            max_i_ka=current[at],
            max_loading_percent=limit[at],
            in_service=b.in_service[at],
        )
    at = np.flatnonzero(~is_line)
    if not at.size:
        return
    pandapower.create_transformers_from_parameters(
        net,
        b.from_id[at] - 1,
        b.to_id[at] - 1,
        sn_mva=case.base_mva,
        vn_hv_kv=(b.tap * kv[f])[at],
        vn_lv_kv=kv[t[at]],
        vkr_percent=100 * b.r_pu[at],
        vk_percent=(100 * np.hypot(b.r_pu, b.x_pu) * np.where(b.x_pu < 0, -1.0, 1.0))[at],
        pfe_kw=0.0,
        i0_percent=0.0,
        shift_degree=b.shift_deg[at],
        max_loading_percent=np.where(b.rate_a_mva > 0, 100 * b.rate_a_mva / case.base_mva, np.nan)[at],
        in_service=b.in_service[at],
    )


def _add_units(pandapower: Any, net: Any, case: Case) -> None:
    u, at = case.unit, case.positions(case.unit.bus_id)
    first = {bus: k for k, bus in reversed([(k, bus) for k, bus in enumerate(at.tolist()) if u.in_service[k]])}
    v_set = np.array([u.v_set_pu[first.get(bus, k)] for k, bus in enumerate(at.tolist())])
    balances, kind = np.isin(at, case.slack_bus), case.bus.kind[at]
    outer = np.array([balances[k] and first.get(bus) == k for k, bus in enumerate(at.tolist())], bool)
    held = ~outer & ((kind == PV) | (kind == REF))
    limits = {
        name: np.where(np.isfinite(values), values, np.nan)
        for name, values in (
            ("max_p_mw", u.p_max_mw),
            ("min_p_mw", u.p_min_mw),
            ("max_q_mvar", u.q_max_mvar),
            ("min_q_mvar", u.q_min_mvar),
        )
    }
    for bus in case.slack_bus:
        angle, k = case.bus.angle_init_deg[bus], first.get(int(bus))
        given = {} if k is None else {name: values[k] for name, values in limits.items()}
        v = case.bus.v_init_pu[bus] if k is None else v_set[k]
        free = case.bus.id[bus] not in case.held  # pandapower holds the voltage of what is not controllable
        index = pandapower.create_ext_grid(net, case.bus.id[bus] - 1, v, angle, controllable=bool(free), **given)
        if k is not None:
            _add_costs(pandapower, net, case, "ext_grid", np.array([k]), np.array([index]))
    priced = bool(u.cost_model.any())
    for rows, table, create in (
        (np.flatnonzero(held), "gen", pandapower.create_gens),
        (np.flatnonzero(~outer & ~held), "sgen", pandapower.create_sgens),
    ):
        if rows.size:
            fixed = np.isin(u.bus_id, case.held) & (u.p_min_mw == u.p_max_mw)
            more = (
                {"vm_pu": v_set[rows], "controllable": ~fixed[rows]}
                if table == "gen"
                else {"q_mvar": u.q_mvar[rows], "controllable": priced}
            )
            more |= {name: values[rows] for name, values in limits.items()}
            index = create(
                net, u.bus_id[rows] - 1, u.p_mw[rows], sn_mva=u.base_mva[rows], in_service=u.in_service[rows], **more
            )
            _add_costs(pandapower, net, case, table, rows, np.asarray(index))


def _add_costs(pandapower: Any, net: Any, case: Case, table: str, rows: np.ndarray, index: np.ndarray) -> None:
    u = case.unit
    for k, element in zip(rows.tolist(), index.tolist(), strict=True):
        terms = int(u.cost_terms[k])
        if u.cost_model[k] == POLYNOMIAL:
            c2, c1, c0 = [0.0] * max(MOST_TERMS - terms, 0) + u.cost[k, max(terms - MOST_TERMS, 0) : terms].tolist()
            pandapower.create_poly_cost(net, element, table, cp1_eur_per_mw=c1, cp0_eur=c0, cp2_eur_per_mw2=c2)
        elif u.cost_model[k] == PIECEWISE:
            x, y = u.cost[k, : 2 * terms : 2], u.cost[k, 1 : 2 * terms : 2]
            slope = np.diff(y) / np.where(np.diff(x) > 0, np.diff(x), 1)
            points = [[a, b, c] for a, b, c in zip(x[:-1].tolist(), x[1:].tolist(), slope.tolist(), strict=True)]
            pandapower.create_pwl_cost(net, element, table, points)
