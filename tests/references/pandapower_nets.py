"""Small pandapower nets, one for every element table of an empty net and every kind of switch (needs pandapower)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pandapower as pp


def ring() -> Any:
    """Five buses of 20 kV in a ring behind a transformer that turns 150 degrees; a line out of service."""
    net = pp.create_empty_network(sn_mva=10.0)
    high = pp.create_bus(net, 110.0)
    buses = [pp.create_bus(net, 20.0) for _ in range(5)]
    pp.create_ext_grid(net, high, vm_pu=1.02)
    pp.create_transformer(net, high, buses[0], "25 MVA 110/20 kV")
    for a, b in zip(buses, [*buses[1:], buses[0]], strict=True):
        pp.create_line(net, a, b, 4.0, "NA2XS2Y 1x240 RM/25 12/20 kV")
    pp.create_line(net, buses[1], buses[3], 4.0, "NA2XS2Y 1x240 RM/25 12/20 kV", in_service=False)
    pp.create_load(net, buses[2], 3.0, 0.8)
    pp.create_gen(net, buses[3], 1.5, vm_pu=1.01, min_p_mw=0.0, max_p_mw=3.0, min_q_mvar=-2.0, max_q_mvar=2.0)
    return net


def _converter(net: Any) -> None:
    pp.create_bus_dc(net, 20.0)
    pp.create_bus_dc(net, 20.0)


def _bipolar(net: Any) -> None:
    _converter(net)
    control = dict(control_mode="p", control_value_1=1.0, control_value_2=1.0)
    pp.create_vsc_bipolar(net, 4, 0, 1, 0.1, 1.0, 1.0, **control)


def _vsc(net: Any) -> None:
    _converter(net)
    pp.create_vsc(net, 4, 0, 0.1, 1.0, 1.0, control_mode_ac="q_mvar", control_value_ac=0.1)


def _stacked(net: Any) -> None:
    _converter(net)
    pp.create_vsc_stacked(net, 4, 0, 1, 0.1, 1.0, 1.0, control_mode_ac="q_mvar", control_value_ac=0.1)


def _costs(net: Any) -> None:
    """Costs beside loads of unequal phases, a generator that is not dispatched, and a DC line with a cost."""
    net.ext_grid[["min_p_mw", "max_p_mw", "min_q_mvar", "max_q_mvar"]] = [-50.0, 50.0, -50.0, 50.0]
    pp.create_poly_cost(net, 0, "ext_grid", cp1_eur_per_mw=30.0)
    pp.create_poly_cost(net, 0, "gen", cp1_eur_per_mw=20.0, cp2_eur_per_mw2=0.1)
    _asymmetric_load(net)
    pp.create_sgen(net, 4, 0.5, 0.3, min_q_mvar=-0.1, max_q_mvar=0.1, controllable=False)
    pp.create_poly_cost(net, 0, "sgen", cp1_eur_per_mw=7.0)
    _dcline(net, 1.0)
    pp.create_poly_cost(net, 0, "dcline", cp1_eur_per_mw=99.0)


def _pwl(net: Any) -> None:
    net.ext_grid[["min_p_mw", "max_p_mw", "min_q_mvar", "max_q_mvar"]] = [-50.0, 50.0, -50.0, 50.0]
    pp.create_pwl_cost(net, 0, "gen", [[0.0, 1.0, 10.0], [1.0, 3.0, 20.0]])


def _limits(net: Any, table: str, p: tuple[float, float], q: tuple[float, float]) -> None:
    net[table][["min_p_mw", "max_p_mw", "min_q_mvar", "max_q_mvar"]] = [*p, *q]


def _band(net: Any) -> None:
    """Limits of voltages and loadings; the transformer does not turn, which `runopp` cannot start with."""
    net.trafo["shift_degree"] = 0.0
    net.bus[["min_vm_pu", "max_vm_pu"]] = [0.94, 1.06]
    for table in ("line", "trafo"):
        net[table]["max_loading_percent"] = 90.0


def _two_grids_with_costs(net: Any) -> None:
    """Two external grids in one island, 40 MW behind them, and costs: `runpp` holds both angles, `runopp` one."""
    _band(net)
    net.line["max_loading_percent"] = 1000.0
    pp.create_ext_grid(net, 2, vm_pu=1.01, va_degree=0.4)
    _limits(net, "ext_grid", (-60.0, 60.0), (-50.0, 50.0))
    net.ext_grid.loc[1, ["max_q_mvar", "max_p_mw"]] = float("nan"), float("nan")
    pp.create_load(net, 4, 15.0, 3.0)
    pp.create_poly_cost(net, 0, "ext_grid", cp1_eur_per_mw=30.0)
    pp.create_poly_cost(net, 1, "ext_grid", cp1_eur_per_mw=30.5)


def _one_held(net: Any) -> None:
    """An external grid that holds its voltage beside a generator that keeps its output and one that is moved."""
    _band(net)
    _limits(net, "ext_grid", (-60.0, 60.0), (-50.0, 50.0))
    pp.create_gen(net, 5, 2.0, vm_pu=1.02, min_p_mw=0.0, max_p_mw=3.0, min_q_mvar=-2.0, max_q_mvar=2.0)
    net.gen["controllable"] = [False, True]
    pp.create_poly_cost(net, 0, "ext_grid", cp1_eur_per_mw=30.0)
    pp.create_poly_cost(net, 0, "gen", cp1_eur_per_mw=90.0)
    pp.create_poly_cost(net, 1, "gen", cp1_eur_per_mw=29.0, cp2_eur_per_mw2=0.5, cp0_eur=4.0)


def _moved(net: Any) -> None:
    """A load, a storage and a static generator that an optimum moves, beside some of each that it does not."""
    _band(net)
    _limits(net, "ext_grid", (-60.0, 60.0), (-50.0, 50.0))
    net.ext_grid["controllable"] = True
    pp.create_load(net, 5, 1.0, 0.0, scaling=1.5, controllable=True)
    pp.create_load(net, 4, 0.5, 0.1, scaling=1.2)
    pp.create_storage(net, 4, 0.4, 2.0, controllable=True)
    for table in ("load", "storage"):
        _limits(net, table, (-0.5, 2.5), (-0.2, 0.6))
    pp.create_sgen(net, 2, 0.6, 0.0, controllable=True, min_p_mw=0.0, max_p_mw=1.1, min_q_mvar=-0.3, max_q_mvar=0.3)
    pp.create_sgen(net, 2, 0.5, 0.2, controllable=False)
    pp.create_sgen(net, 3, 0.5, 0.2, controllable=True, in_service=False)


def _quadratic(net: Any) -> None:
    """Quadratic costs of all, of the load 7 - 40 P + P^2."""
    _moved(net)
    for kind, element, c0, c1, c2 in (
        *(("ext_grid", 0, 2.0, 30.0, 0.1), ("gen", 0, 1.0, 31.0, 0.9), ("load", 1, 7.0, -40.0, 1.0)),
        *(("storage", 0, 3.0, -33.0, 2.0), ("sgen", 0, 5.0, 33.0, 0.5), ("sgen", 1, 0.0, 50.0, 0.0)),
        ("sgen", 2, 0.0, 60.0, 0.0),
    ):
        pp.create_poly_cost(net, element, kind, c1, c0, cp2_eur_per_mw2=c2)


def _segments(net: Any) -> None:
    """Costs in segments of all but one, which is linear."""
    _moved(net)
    pp.create_poly_cost(net, 0, "ext_grid", cp1_eur_per_mw=30.0)
    for kind, element, points in (
        ("gen", 0, [[0.0, 1.0, 10.0], [1.0, 2.0, 29.0], [2.0, 3.0, 35.0]]),
        ("load", 1, [[-0.5, 1.0, -45.0], [1.0, 1.7, -31.0], [1.7, 2.5, -20.0]]),
        ("storage", 0, [[-0.5, 0.0, -34.0], [0.0, 0.8, -30.5], [0.8, 2.5, -5.0]]),
        ("sgen", 0, [[0.0, 0.7, 29.0], [0.7, 1.1, 40.0]]),
    ):
        pp.create_pwl_cost(net, element, kind, points)


def as_static_generators(net: Any) -> Any:
    """Copy in which a static generator of -P stands for each controllable load and storage of P, its cost mirrored.

    `runopp` multiplies all coefficients of their costs by -1, and leaves the ends of segments where they are. The cost
    of a static generator that is not dispatched goes: `runopp` gives it to the last unit.
    """
    net = copy.deepcopy(net)
    if "controllable" in net.sgen:
        fixed = net.sgen.index[~(net.sgen.in_service & net.sgen.controllable.astype(bool))]
        net.poly_cost = net.poly_cost[~((net.poly_cost.et == "sgen") & net.poly_cost.element.isin(fixed))]
    for kind in ("load", "storage"):
        if "controllable" not in net[kind]:
            continue
        for k, row in net[kind][net[kind].controllable.fillna(False).astype(bool)].iterrows():
            net[kind].loc[k, "in_service"] = False
            new = pp.create_sgen(
                net, row.bus, -row.p_mw * row.scaling, -row.q_mvar * row.scaling, controllable=True,
                min_p_mw=-row.max_p_mw, max_p_mw=-row.min_p_mw, min_q_mvar=-row.max_q_mvar, max_q_mvar=-row.min_q_mvar,
            )  # fmt: skip
            for table in ("poly_cost", "pwl_cost"):
                mine = (net[table].et == kind) & (net[table].element == k)
                net[table].loc[mine, ["et", "element"]] = "sgen", new
                for at in net[table].index[mine]:
                    if table == "poly_cost":
                        net[table].loc[at, "cp1_eur_per_mw"] *= -1
                    else:
                        parts = net[table].at[at, "points"]
                        net[table].at[at, "points"] = [[-b, -a, -slope] for a, b, slope in parts[::-1]]
    return net


def _asymmetric_load(net: Any) -> None:
    pp.create_asymmetric_load(net, 4, p_a_mw=0.5, p_b_mw=0.2, q_c_mvar=0.1, scaling=1.1)


def _dcline(net: Any, p_mw: float) -> None:
    pp.create_dcline(net, 2, 5, p_mw, loss_percent=1.2, loss_mw=0.01, vm_from_pu=1.0, vm_to_pu=1.005, max_p_mw=3.0)


def _bus_switch(net: Any, z_ohm: float, *, closed: bool = True) -> None:
    bus = pp.create_bus(net, 20.0)
    pp.create_load(net, bus, 0.4, 0.1)
    pp.create_switch(net, 4, bus, "b", closed=closed, z_ohm=z_ohm)


def _rated(net: Any) -> None:
    """Ratings by parallel systems, derating and a limit of the loading that one line lacks."""
    pp.create_line(net, 1, 4, 2.0, "NAYY 4x50 SE", parallel=2, df=0.8, max_loading_percent=70.0)
    pp.create_transformer(net, 0, 4, "25 MVA 110/20 kV", parallel=2, df=0.9)


def _three_windings(net: Any) -> None:
    low = pp.create_bus(net, 10.0)
    pp.create_transformer3w(net, 0, 5, low, "63/25/38 MVA 110/20/10 kV")
    pp.create_load(net, low, 0.6, 0.2)


def _open_winding(net: Any) -> None:
    _three_windings(net)
    pp.create_switch(net, 5, 0, "t3", closed=False)


def _dead_island(net: Any) -> None:
    a, b = pp.create_bus(net, 20.0), pp.create_bus(net, 20.0)
    pp.create_line(net, a, b, 1.0, "NA2XS2Y 1x240 RM/25 12/20 kV")
    pp.create_load(net, b, 0.7)


def _several_references(net: Any) -> None:
    """Two more external grids in the island, each with its own angle; the transformer turns 150 degrees."""
    pp.create_ext_grid(net, 2, vm_pu=1.0, va_degree=-152.0)
    pp.create_ext_grid(net, 5, vm_pu=1.01, va_degree=-150.5)


def _two_islands(net: Any) -> None:
    """A second island with a reference of its own, far from the angles of the first."""
    a, b = pp.create_bus(net, 20.0), pp.create_bus(net, 20.0)
    pp.create_ext_grid(net, a, vm_pu=1.03, va_degree=30.0)
    pp.create_line(net, a, b, 3.0, "NA2XS2Y 1x240 RM/25 12/20 kV")
    pp.create_load(net, b, 1.0, 0.2)


def _slack_generator(net: Any) -> None:
    """A generator that is a reference beside the external grid."""
    net.gen.loc[0, "slack"] = True
    pp.create_ext_grid(net, 1, vm_pu=1.02, va_degree=-150.0)


def _controller(net: Any) -> None:
    pp.control.DiscreteTapControl(net, 0, 0.99, 1.01)


def _motor(net: Any) -> None:
    pp.create_motor(net, 4, 0.5, cos_phi=0.9, efficiency_percent=92.0, loading_percent=80.0)


def _clipped(net: Any) -> None:
    pp.create_sgen(net, 4, 0.5, 0.3, min_q_mvar=-0.1, max_q_mvar=0.1)


def _curve(net: Any) -> None:
    pp.create_load(net, 4, 0.5, 0.2, const_z_p_percent=50.0)


_LINE_DC = "2400-CU"
# name of a net -> what is added to the ring; one that begins with a table's name stands for that table
ADDED: dict[str, Callable[[Any], Any]] = {
    "bus": lambda net: pp.create_bus(net, 20.0),
    "bus dead island": _dead_island,
    "bus out of service": lambda net: pp.create_bus(net, 20.0, in_service=False),
    "ext_grid": lambda net: pp.create_ext_grid(net, 0, vm_pu=1.02, in_service=False),
    "ext_grid several": _several_references,
    "ext_grid islands": _two_islands,
    "gen slack": _slack_generator,
    "gen": lambda net: pp.create_gen(net, 5, 0.5, vm_pu=1.0, scaling=0.5),
    "load": _curve,
    "sgen": _clipped,
    "motor": _motor,
    "asymmetric_load": _asymmetric_load,
    "asymmetric_sgen": lambda net: pp.create_asymmetric_sgen(net, 4, p_a_mw=0.5, p_b_mw=0.2, q_c_mvar=0.1),
    "storage": lambda net: pp.create_storage(net, 4, 0.4, 2.0, q_mvar=0.1),
    "shunt": lambda net: pp.create_shunt(net, 4, q_mvar=-0.4, p_mw=0.02, step=2, max_step=3),
    "ward": lambda net: pp.create_ward(net, 4, 0.2, 0.1, 0.05, 0.02),
    "xward": lambda net: pp.create_xward(net, 4, 0.2, 0.1, 0.05, 0.02, 0.5, 2.0, 1.0),
    "line": lambda net: pp.create_line(net, 1, 4, 2.0, "NAYY 4x50 SE", parallel=2),
    "line rated": _rated,
    "trafo": lambda net: pp.create_transformer(net, 0, 4, "25 MVA 110/20 kV", tap_pos=3),
    "trafo3w": _three_windings,
    "impedance": lambda net: pp.create_impedance(net, 2, 4, 0.01, 0.05, sn_mva=5.0, gf_pu=0.01, bt_pu=0.02),
    "impedance by direction": lambda net: pp.create_impedance(net, 2, 4, 0.01, 0.05, 5.0, rtf_pu=0.02, xtf_pu=0.05),
    "dcline": lambda net: _dcline(net, 1.0),
    "dcline back": lambda net: _dcline(net, -0.8),
    "dcline out of service": lambda net: pp.create_dcline(net, 2, 5, 1.0, 1.2, 0.01, 1.0, 1.0, in_service=False),
    "switch b": lambda net: _bus_switch(net, 0.0),
    "switch b open": lambda net: _bus_switch(net, 0.0, closed=False),
    "switch b impedance": lambda net: _bus_switch(net, 0.2),
    "switch l open": lambda net: pp.create_switch(net, 2, 1, "l", closed=False),
    "switch l closed": lambda net: pp.create_switch(net, 2, 1, "l"),
    "switch t open": lambda net: (
        pp.create_transformer(net, 0, 4, "25 MVA 110/20 kV"),
        pp.create_switch(net, 4, 1, "t", closed=False),
    ),
    "switch t3 open": _open_winding,
    "poly_cost": _costs,
    "pwl_cost": _pwl,
    "ext_grid costs": _two_grids_with_costs,
    "gen held": _one_held,
    "poly_cost moved": _quadratic,
    "pwl_cost moved": _segments,
    "svc": lambda net: pp.create_svc(net, 4, 1.0, -10.0, 1.0, 90.0),
    "ssc": lambda net: pp.create_ssc(net, 4, 0.1, 1.0),
    "tcsc": lambda net: pp.create_tcsc(net, 2, 4, 1.0, -10.0, 1.0, 140.0),
    "tcsc out of service": lambda net: pp.create_tcsc(net, 2, 4, 1.0, -10.0, 1.0, 140.0, in_service=False),
    "vsc": _vsc,
    "vsc_stacked": _stacked,
    "vsc_bipolar": _bipolar,
    "bus_dc": lambda net: pp.create_bus_dc(net, 20.0),
    "line_dc": lambda net: (_converter(net), pp.create_line_dc(net, 0, 1, 2.0, _LINE_DC)),
    "source_dc": lambda net: (_converter(net), pp.create_source_dc(net, 0)),
    "load_dc": lambda net: (_converter(net), pp.create_load_dc(net, 0, 0.1)),
    "measurement": lambda net: pp.create_measurement(net, "v", "bus", 1.0, 0.01, 0),
    "controller": _controller,
    "group": lambda net: pp.create_group(net, "bus", [[1, 2]], name="two"),
}


def tables() -> list[str]:
    """Names of the element tables of an empty net, and `characteristic` tables that come with use."""
    net = pp.create_empty_network()
    return [key for key, value in net.items() if hasattr(value, "columns") and not key.startswith(("_", "res_"))]


def table_net(name: str) -> Any:
    """The ring with one addition."""
    net = ring()
    ADDED[name](net)
    return net
