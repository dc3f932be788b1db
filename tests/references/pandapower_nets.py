"""Small pandapower nets, one for every element table of an empty net and every kind of switch (needs pandapower)."""

from __future__ import annotations

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


def _asymmetric_load(net: Any) -> None:
    pp.create_asymmetric_load(net, 4, p_a_mw=0.5, p_b_mw=0.2, q_c_mvar=0.1, scaling=1.1)


def _dcline(net: Any, p_mw: float) -> None:
    pp.create_dcline(net, 2, 5, p_mw, loss_percent=1.2, loss_mw=0.01, vm_from_pu=1.0, vm_to_pu=1.005, max_p_mw=3.0)


def _bus_switch(net: Any, z_ohm: float, *, closed: bool = True) -> None:
    bus = pp.create_bus(net, 20.0)
    pp.create_load(net, bus, 0.4, 0.1)
    pp.create_switch(net, 4, bus, "b", closed=closed, z_ohm=z_ohm)


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
