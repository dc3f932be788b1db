"""Element tables of a pandapower net: which of them a case represents, which are noted, and which are refused by name.

`to_ppc` of pandapower, which does the conversion, passes some tables over without a word: DC lines always, asymmetric
loads of a net with costs, the costs of what it cannot dispatch. What it leaves out is added here or said.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from powerzoo_jax.base.errors import CaseError, listing
from powerzoo_jax.cases.case import PQ, PV

# tables that the case expresses; the characteristics are read at the present tap, step or output
REPRESENTED = frozenset(
    [
        *("bus", "ext_grid", "gen", "load", "sgen", "motor", "storage", "asymmetric_load", "asymmetric_sgen"),
        *("shunt", "ward", "xward", "line", "trafo", "trafo3w", "impedance", "dcline", "switch"),
        *("poly_cost", "pwl_cost", "trafo_characteristic_table", "shunt_characteristic_table"),
        *("q_capability_curve_table", "q_capability_characteristic"),
    ]
)
# in service these set voltages or flows by a law that no row of a case has
REFUSED = ("svc", "ssc", "tcsc", "vsc", "vsc_stacked", "vsc_bipolar")
NOTES = {
    "controller": "controllers are not run: taps, steps and set-points stay as they stand in the net",
    "storage": "storages draw or feed their present power; how much energy they hold is not represented",
    "asymmetric_load": "asymmetric loads are the sum of their phases",
    "asymmetric_sgen": "asymmetric static generators are the sum of their phases",
    "dcline": "each DC line is two units of fixed power, its schedule less its losses",
}
SHARES = tuple(f"const_{kind}_percent" for kind in ("z", "i", "z_p", "z_q", "i_p", "i_q"))
MODEL_POLYNOMIAL = 2


def screen(net: Any, name: str) -> tuple[str, ...]:
    """Notes on what a case does not hold of a net; CaseError naming elements in service that it cannot express."""
    tables = {key: table for key, table in net.items() if _is_element_table(key, table)}
    refused = {key: tables[key].index[_in_service(tables[key])] for key in REFUSED if key in tables}
    found = [f"{key} {listing(index)}" for key, index in refused.items() if len(index)]
    if found:
        raise CaseError(
            f"{name!r} has in service: {'; '.join(found)}. A case has no row that follows such a control. Take it out "
            "of service in the net, or put a load or a generator in its place."
        )
    notes = [NOTES[key] for key in tables if key in NOTES]
    silent = [key for key in tables if key not in REPRESENTED and key not in NOTES]
    notes += [f"{key} of the net is not represented (rows: {len(tables[key].index)})" for key in silent]
    if _any(tables.get("load"), SHARES):
        notes.append("the voltage dependence of loads is not represented, they draw constant power")
    if any(_any(tables.get(key), ("reactive_capability_curve",)) for key in ("gen", "sgen")):
        notes.append("reactive capability curves are limits at the present output")
    if net.get("user_pf_options"):
        notes.append("user_pf_options of the net are not applied")
    return (*notes, *_cost_notes(tables))


def _is_element_table(key: str, table: Any) -> bool:
    """Test whether an entry of a net is a non-empty element table: results and templates are not."""
    return hasattr(table, "columns") and not key.startswith(("_", "res_")) and len(table.index) > 0


def _in_service(table: Any) -> np.ndarray:
    return np.asarray(table["in_service"], bool)


def _any(table: Any, columns: tuple[str, ...]) -> bool:
    """Test whether a row in service has a non-zero entry in one of the columns."""
    if table is None:
        return False
    values = (np.asarray(table[key], float)[_in_service(table)] for key in columns if key in table.columns)
    return any(bool((np.nan_to_num(x) != 0).any()) for x in values)


def _dispatched(table: Any) -> np.ndarray:
    """Rows that an optimum may move, (n,) bool."""
    given = table["controllable"] if "controllable" in table.columns else np.zeros(len(table.index))
    return np.array([value is not None and value == value and bool(value) for value in given], bool)


def _cost_notes(tables: dict[str, Any]) -> Iterator[str]:
    """Costs of elements that no unit stands for."""
    for key in ("poly_cost", "pwl_cost"):
        if key not in tables:
            continue
        kinds, elements = (np.asarray(tables[key][column]) for column in ("et", "element"))
        for kind in ("sgen", "load", "storage", "dcline"):
            mine = elements[kinds == kind].astype(int).tolist()
            if kind in tables and kind != "dcline":
                moved = np.asarray(tables[kind].index)[_dispatched(tables[kind])].tolist()
                mine = [element for element in mine if element not in moved]
            if mine:
                yield f"the cost of {kind} {listing(mine)}, which the case does not dispatch, is not represented"


def make_ready(net: Any) -> None:
    """Change a copy of a net so that `to_ppc` converts what `runpp` solves.

    Static generators keep their reactive power: `to_ppc` would clip it at limits that `runpp` does not enforce. Costs
    of DC lines go: `to_ppc` would give them to a generator.
    """
    for key in ("poly_cost", "pwl_cost"):
        table = net.get(key)
        if table is not None and len(table.index) and (np.asarray(table["et"]) == "dcline").any():
            net[key] = table[np.asarray(table["et"]) != "dcline"]
    sgen = net.get("sgen")
    if sgen is None or len(sgen.index) == 0:
        return
    optimum = any(len(net[key].index) for key in ("poly_cost", "pwl_cost") if key in net)
    fixed = ~_dispatched(sgen) if optimum else np.ones(len(sgen.index), bool)
    for column, free in (("min_q_mvar", np.nan), ("max_q_mvar", np.nan), ("reactive_capability_curve", False)):
        if column in sgen.columns:
            sgen[column] = np.where(fixed, free, sgen[column])


def left_out(net: Any, rows: int) -> Iterator[str]:
    """A note on buses in service that no reference supplies: pandapower takes them out with all that they have."""
    bus = net["bus"]
    at = np.asarray(net["_pd2ppc_lookups"]["bus"])[np.asarray(bus.index)]
    dead = np.asarray(bus.index)[_in_service(bus) & ((at < 0) | (at >= rows))]
    if dead.size:
        yield f"bus {listing(dead + 1)} (index + 1), which no reference supplies, is left out with all its elements"


def add_asymmetric(bus: np.ndarray, net: Any) -> None:
    """Add the asymmetric loads and generators to the load of the buses, where `to_ppc` with costs leaves them out."""
    for key, sign in (("asymmetric_load", 1.0), ("asymmetric_sgen", -1.0)):
        table = net.get(key)
        if table is None or len(table.index) == 0:
            continue
        scale = sign * np.asarray(table["scaling"], float) * _in_service(table)
        at, here = _rows(net, table["bus"], len(bus))
        for column, unit in ((2, "p_{}_mw"), (3, "q_{}_mvar")):
            power = scale * sum(np.asarray(table[unit.format(phase)], float) for phase in "abc")
            np.add.at(bus[:, column], at[here], power[here])


def dc_line_units(bus: np.ndarray, net: Any) -> np.ndarray:
    """Units (n, 10) in MATPOWER's columns at both ends of every DC line; their buses become PV in `bus`.

    p_arrive = |p| (1 - loss_percent / 100) - loss_mw; p > 0 flows from -> to. Each end holds its voltage.
    """
    table = net.get("dcline")
    if table is None or len(table.index) == 0:
        return np.zeros((0, 10))
    names = ("p_mw", "loss_percent", "loss_mw")
    p, percent, loss = (np.asarray(table[key], float) for key in names)
    arrive = np.abs(p) * (1 - percent / 100) - loss
    output = {"to": np.where(p > 0, arrive, -np.abs(p)), "from": np.where(p > 0, -np.abs(p), arrive)}
    units = []
    for end, power in output.items():
        at, here = _rows(net, table[f"{end}_bus"], len(bus))
        v_set, high, low = (
            np.asarray(table[key], float) for key in (f"vm_{end}_pu", f"max_q_{end}_mvar", f"min_q_{end}_mvar")
        )
        here &= _in_service(table)
        high, low = np.where(np.isnan(high), np.inf, high), np.where(np.isnan(low), -np.inf, low)
        ones = np.ones(len(p))
        units.append(np.stack([at, power, 0 * ones, high, low, v_set, np.nan * ones, ones, power, power], 1)[here])
        load = here & (bus[at * here, 1] == PQ)
        bus[at[load], 1], bus[at[load], 7] = PV, v_set[load]
    return np.concatenate(units)


def _rows(net: Any, buses: Any, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of buses of the net in the bus table, and which of them are in it."""
    at = np.asarray(net["_pd2ppc_lookups"]["bus"])[np.asarray(buses, int)]
    return at, (at >= 0) & (at < count)


def without_costs(gencost: np.ndarray, units: int, added: int) -> np.ndarray:
    """Cost rows with rows of no cost for `added` more units, behind the active and the reactive ones."""
    none = np.zeros((added, gencost.shape[1]))
    none[:, 0], none[:, 3] = MODEL_POLYNOMIAL, 1
    return np.concatenate([part for k in range(0, len(gencost), units) for part in (gencost[k : k + units], none)])


def branch_ratings(rate: np.ndarray, ppc: Any, net: Any) -> np.ndarray:
    """Ratings (L,) [MVA] with 0 where the net gives none: pandapower fills in 100 or 250."""
    on = np.asarray(ppc["internal"]["branch_is"], bool)  # its lookups count what is out of service too
    given = np.zeros(len(on), bool)
    for key, (begin, end) in net["_pd2ppc_lookups"]["branch"].items():
        given[begin:end] = key == "impedance" or (key in net and "max_loading_percent" in net[key].columns)
    return np.where(given[on] & np.isfinite(rate), rate, 0.0)
