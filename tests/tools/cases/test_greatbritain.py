"""The models of Great Britain: conversion of a saved net, ratings by voltage, and the transmission part."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy.sparse import coo_array, diags_array
from scipy.sparse.linalg import spsolve

from powerzoo_jax.base.errors import CaseError
from powerzoo_jax.cases import Case, load_case
from powerzoo_jax.cases.library import to_arrays
from powerzoo_jax.cases.topology import branch_positions, reachable_from_slack
from tools.cases.greatbritain import LINE_MVA, nearest_bus, transmission_part
from tools.cases.netfile import read_saved_net
from tools.cases.recipes import PART_NOTE

EXACT = dict(rel=1e-8)  # nine significant digits are kept


def frame(**columns: list) -> dict:
    """An element table as a saved net holds it."""
    rows = [list(row) for row in zip(*columns.values(), strict=True)]
    content = {"columns": list(columns), "index": list(range(len(rows))), "data": rows}
    return {"_class": "DataFrame", "_object": json.dumps(content)}


def saved_net(**changes: dict) -> str:
    """Three buses, a line of 2 km with two circuits, a transformer off its nominal tap, units and a negative load."""
    tables = {
        "bus": frame(vn_kv=[110.0, 110.0, 20.0], max_vm_pu=[1.1] * 3, min_vm_pu=[0.9] * 3, in_service=[True] * 3),
        "ext_grid": frame(
            bus=[0], vm_pu=[1.02], max_p_mw=[90.0], min_p_mw=[0.0], max_q_mvar=[50.0], min_q_mvar=[-50.0]
        ),
        "gen": frame(
            bus=[1], p_mw=[7.0], vm_pu=[1.01], max_p_mw=[9.0], min_p_mw=[1.0], max_q_mvar=[3.0], min_q_mvar=[-3.0]
        ),
        "sgen": frame(bus=[2], p_mw=[4.0], q_mvar=[-1.0], scaling=[0.5]),
        "load": frame(bus=[2], p_mw=[10.0], q_mvar=[5.0], scaling=[1.0]),
        "shunt": frame(bus=[2], p_mw=[0.1], q_mvar=[-2.0], vn_kv=[10.0], step=[1.0]),
        "line": frame(
            from_bus=[0],
            to_bus=[1],
            length_km=[2.0],
            r_ohm_per_km=[0.1],
            x_ohm_per_km=[0.4],
            c_nf_per_km=[9.0],
            max_i_ka=[0.5],
            parallel=[2],
        ),
        "trafo": frame(
            hv_bus=[1],
            lv_bus=[2],
            sn_mva=[25.0],
            vn_hv_kv=[110.0],
            vn_lv_kv=[20.0],
            vk_percent=[10.0],
            vkr_percent=[0.6],
            i0_percent=[-0.4],
            shift_degree=[30.0],
            tap_side=["hv"],
            tap_pos=[-2.0],
            tap_neutral=[0.0],
            tap_step_percent=[1.25],
        ),
        "poly_cost": frame(
            element=[0, 0],
            et=["gen", "ext_grid"],
            cp0_eur=[1.0, 2.0],
            cp1_eur_per_mw=[3.0, 4.0],
            cp2_eur_per_mw2=[5.0, 6.0],
        ),
        **changes,
    }
    return json.dumps({"_object": {"sn_mva": 100, "f_hz": 50.0, **tables}})


@pytest.fixture
def small() -> Case:
    return read_saved_net(saved_net(), "small", "made up")


def test_a_line_becomes_per_unit_by_hand(small):
    ohm = 110.0**2 / 100.0
    assert small.branch.r_pu[0] == pytest.approx(0.1 * 2 / 2 / ohm, **EXACT)
    assert small.branch.x_pu[0] == pytest.approx(0.4 * 2 / 2 / ohm, **EXACT)
    assert small.branch.b_pu[0] == pytest.approx(2 * math.pi * 50 * 9e-9 * 2 * 2 * ohm, **EXACT)
    assert small.branch.rate_a_mva[0] == pytest.approx(math.sqrt(3) * 110 * 0.5 * 2, **EXACT)


def test_a_transformer_becomes_per_unit_by_hand(small):
    branch = small.branch
    assert branch.r_pu[1] == pytest.approx(0.006 * 4, **EXACT)
    assert np.hypot(branch.r_pu[1], branch.x_pu[1]) == pytest.approx(0.1 * 4, **EXACT)
    assert branch.b_pu[1] == pytest.approx(0.004 / 4, **EXACT)  # a negative no-load current is charging
    assert branch.tap[1] == pytest.approx(0.975, **EXACT) and branch.shift_deg[1] == 30.0
    assert (branch.from_id[1], branch.to_id[1], branch.rate_a_mva[1]) == (2, 3, 25.0)


def test_units_loads_and_shunts_stand_at_their_buses(small):
    assert small.bus.kind.tolist() == [3, 2, 1] and small.bus.id.tolist() == [1, 2, 3]
    assert small.unit.bus_id.tolist() == [1, 2] and small.unit.v_set_pu.tolist() == [1.02, 1.01]
    assert small.unit.cost.tolist() == [[6.0, 4.0, 2.0], [5.0, 3.0, 1.0]]
    assert small.p_load_mw.tolist() == [0.0, 0.0, 8.0] and small.q_load_mvar.tolist() == [0.0, 0.0, 5.5]
    # rated at 10 kV, connected at 20 kV: four times the power
    assert small.bus.bs_mvar.tolist() == [0.0, 0.0, 8.0] and small.bus.gs_mw.tolist() == [0.0, 0.0, 0.4]


def test_elements_outside_the_subset_are_refused():
    with pytest.raises(CaseError, match=r"trafo3w.*from_pandapower"):
        read_saved_net(saved_net(trafo3w=frame(hv_bus=[0])), "small", "")
    idle = frame(bus=[2], p_mw=[10.0], q_mvar=[5.0], in_service=[False])
    with pytest.raises(CaseError, match=r"out of service in load"):
        read_saved_net(saved_net(load=idle), "small", "")


def test_published_impedances_of_the_29_bus_model_come_back():
    branch = load_case("case29gb").branch
    assert (branch.r_pu[0], branch.x_pu[0], branch.b_pu[0]) == (0.0122, 0.02, 0.0856)
    assert branch.rate_a_mva[0] == 525.0


def merit_order(case: Case) -> np.ndarray:
    """Outputs (G,) [MW] that cover the load where all units share one marginal cost."""
    unit, (c2, c1, _) = case.unit, case.unit.cost.T

    def outputs(price: float) -> np.ndarray:
        return np.clip((price - c1) / (2 * c2), unit.p_min_mw, unit.p_max_mw)

    low, high = 0.0, 1000.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if outputs(middle).sum() < case.load.p_mw.sum() else (low, middle)
    return outputs(high)


@pytest.mark.parametrize("name", ["case793gb", "case2224gb"])
def test_merit_order_cost_is_the_published_dc_optimum_and_no_rating_binds(name):
    case = load_case(name)
    p, (c2, c1, c0) = merit_order(case), case.unit.cost.T
    assert np.sum(c2 * p**2 + c1 * p + c0) == pytest.approx(1851891.45, rel=1e-8)
    f, t = branch_positions(case)
    a = coo_array((np.repeat([1.0, -1.0], len(f)), (np.tile(np.arange(len(f)), 2), np.concatenate([f, t])))).tocsr()
    weighted = diags_array(1 / (case.branch.x_pu * case.branch.tap)) @ a
    injection = np.bincount(case.positions(case.unit.bus_id), p, minlength=case.n_bus) - case.p_load_mw
    free = np.delete(np.arange(case.n_bus), case.slack_bus)
    angle = np.zeros(case.n_bus)
    angle[free] = spsolve((a.T @ weighted).tocsc()[free][:, free], injection[free])
    assert np.all(np.abs(weighted @ angle) < case.branch.rate_a_mva)


@pytest.mark.parametrize("name", ["case793gb", "case2224gb"])
def test_every_branch_is_rated_by_voltage(name):
    case = load_case(name)
    f, t = branch_positions(case)
    rate = case.branch.rate_a_mva
    assert rate.min() > 0 and rate.max() == LINE_MVA[400.0]
    both = (case.bus.base_kv[f] == 400) & (case.bus.base_kv[t] == 400)
    assert set(rate[both]) == {2780.0, 1000.0}


def test_the_transmission_part_keeps_buses_loads_and_units():
    full, part = load_case("case2224gb"), load_case("case793gb")
    kv, count = np.unique(part.bus.base_kv, return_counts=True)
    assert dict(zip(kv.tolist(), count.tolist(), strict=True)) == {275.0: 417, 400.0: 376}
    assert reachable_from_slack(part).all()
    for total in ("p_load_mw", "q_load_mvar"):
        assert getattr(part, total).sum() == pytest.approx(getattr(full, total).sum(), rel=1e-12)
    np.testing.assert_array_equal(part.unit.p_max_mw, full.unit.p_max_mw)
    stay = np.isin(full.unit.bus_id, part.bus.id)
    np.testing.assert_array_equal(part.unit.bus_id[stay], full.unit.bus_id[stay])
    assert np.all(np.isin(part.unit.bus_id, part.bus.id)) and (~stay).sum() == 116


def test_the_shipped_part_is_what_the_shipped_whole_gives():
    part = transmission_part(load_case("case2224gb"), "case793gb", PART_NOTE)
    ours, shipped = to_arrays(part), to_arrays(load_case("case793gb"))
    assert [key for key in ours if not np.array_equal(ours[key], shipped[key])] == ["citation"]


def test_charging_of_the_lower_networks_moves_up_with_them():
    full, part = load_case("case2224gb"), load_case("case793gb")
    own = np.isin(full.branch.from_id, part.bus.id) & np.isin(full.branch.to_id, part.bus.id)
    lower = full.base_mva * full.branch.b_pu[~own].sum()
    assert part.bus.bs_mvar.sum() == pytest.approx(full.bus.bs_mvar.sum() + lower, rel=1e-12)


def test_the_nearest_bus_follows_the_shortest_way():
    # 0 and 1 are goals; 2 hangs on 0, 3 is nearer to 1 by way of 4 though its shortest branch leads to 2, 5 is alone
    f, t = np.array([0, 2, 1, 4]), np.array([2, 3, 4, 3])
    home = nearest_bus(6, f, t, np.array([4.0, 1.0, 2.0, 2.0]), np.array([0, 1]))
    assert home.tolist() == [0, 1, 0, 1, 1, -1]
