"""Element tables of a pandapower net: which of them a case represents, which are noted, and which are refused by name.

`to_ppc` of pandapower, which does the conversion, passes some tables over without a word, such as DC lines. What it
leaves out is added here or said.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from powerzoo_jax.base.errors import CaseError, listing
from powerzoo_jax.cases.case import PQ, PV
from powerzoo_jax.cases.readers.pandapower.origin import KEY

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
    "dcline": "each DC line is two units of fixed power, its schedule less its losses, in an optimum too",
}
# columns that ratings come from, a branch each
RATED = {"line": ("max_i_ka",), "trafo": ("sn_mva",), "trafo3w": ("sn_hv_mva", "sn_mv_mva", "sn_lv_mva")}
NO_CURRENT_KA = 99999.0  # what pandapower writes where a line has no rating
SHARES = tuple(f"const_{kind}_percent" for kind in ("z", "i", "z_p", "z_q", "i_p", "i_q"))


def screen(net: Any, name: str) -> tuple[str, ...]:
    """Notes on what a case does not hold of a net; CaseError naming elements in service that it cannot express."""
    tables = {key: table for key, table in net.items() if _is_element_table(key, table)}
    refused = {key: tables[key].index[in_service(tables[key])] for key in REFUSED if key in tables}
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
    return tuple(notes)


def _is_element_table(key: str, table: Any) -> bool:
    """Test whether an entry of a net is a non-empty element table: results and templates are not."""
    return hasattr(table, "columns") and not key.startswith(("_", "res_")) and len(table.index) > 0


def in_service(table: Any) -> np.ndarray:
    """Rows of a table in service, (n,) bool."""
    return np.asarray(table["in_service"], bool)


def _any(table: Any, columns: tuple[str, ...]) -> bool:
    """Test whether a row in service has a non-zero entry in one of the columns."""
    if table is None:
        return False
    values = (np.asarray(table[key], float)[in_service(table)] for key in columns if key in table.columns)
    return any(bool((np.nan_to_num(x) != 0).any()) for x in values)


def size(table: Any) -> int:
    """Number of rows of a table, 0 without one."""
    return 0 if table is None else len(table.index)


def flags(table: Any, name: str, default: bool) -> np.ndarray:
    """Column of truth values (n,) of a table, `default` where it has none."""
    given = table[name] if name in table.columns else [None] * len(table.index)
    return np.array([default if value is None or value != value else bool(value) for value in given], bool)


def column(table: Any, name: str, default: float) -> np.ndarray:
    """Column of numbers (n,) of a table, `default` where it has none."""
    given = np.asarray(table[name], float) if name in table.columns else np.full(len(table.index), np.nan)
    return np.where(np.isnan(given), default, given)


def make_ready(net: Any) -> None:
    """Change a copy of a net so that `to_ppc` converts what `runpp` solves.

    Static generators keep their reactive power: `to_ppc` would clip it at limits that `runpp` does not enforce.
    """
    sgen = net.get("sgen")
    if size(sgen) == 0:
        return
    on = in_service(sgen)  # those that an optimum moves have been taken out, and keep their limits
    for name, free in (("min_q_mvar", np.nan), ("max_q_mvar", np.nan), ("reactive_capability_curve", False)):
        if name in sgen.columns:
            sgen[name] = np.where(on, free, sgen[name])


def left_out(net: Any, rows: int) -> Iterator[str]:
    """A note on buses in service that no reference supplies: pandapower takes them out with all that they have."""
    bus = net["bus"]
    at = np.asarray(net["_pd2ppc_lookups"]["bus"])[np.asarray(bus.index)]
    dead = np.asarray(bus.index)[in_service(bus) & ((at < 0) | (at >= rows))]
    if dead.size:
        yield f"bus {listing(dead + 1)} (index + 1), which no reference supplies, is left out with all its elements"


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
        at, here = rows_of(net, table[f"{end}_bus"], len(bus))
        v_set, high, low = (
            np.asarray(table[key], float) for key in (f"vm_{end}_pu", f"max_q_{end}_mvar", f"min_q_{end}_mvar")
        )
        here &= in_service(table)
        high, low = np.where(np.isnan(high), np.inf, high), np.where(np.isnan(low), -np.inf, low)
        ones = np.ones(len(p))
        units.append(np.stack([at, power, 0 * ones, high, low, v_set, np.nan * ones, ones, power, power], 1)[here])
        load = here & (bus[at * here, 1] == PQ)
        bus[at[load], 1], bus[at[load], 7] = PV, v_set[load]
    return np.concatenate(units)


def rows_of(net: Any, buses: Any, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of buses of the net in the bus table, and which of them are in it."""
    at = np.asarray(net["_pd2ppc_lookups"]["bus"])[np.asarray(buses, int)]
    return at, (at >= 0) & (at < count)


def branch_ratings(rate: np.ndarray, ppc: Any, net: Any) -> np.ndarray:
    """Ratings (L,) [MVA] of the branches in service, 0 where the net gives none.

    Lines: sqrt(3) V max_i_ka df parallel at the rated voltage of the from bus. Transformers: sn_mva df parallel. Both
    times max_loading_percent, 100 % where it is missing, which in a net of `to_pandapower` means no rating. Of an
    impedance sn_mva, as `to_ppc` has it; for other branches that fills in 100 or 250 MVA.
    """
    on = np.asarray(ppc["internal"]["branch_is"], bool)  # its lookups count what is out of service too
    found, kept = np.zeros(len(on)), np.zeros(len(on), bool)
    for key, (begin, end) in net["_pd2ppc_lookups"]["branch"].items():
        kept[begin:end] = key == "impedance"
        if key in RATED and size(net.get(key)):
            found[begin:end] = _ratings(net, key)
    found = np.where(kept[on], rate, found[on])
    return np.where(np.isfinite(found) & (found > 0), found, 0.0)


def _ratings(net: Any, key: str) -> np.ndarray:
    """Ratings (n,) [MVA] of a table, of three windings one after another."""
    table = net[key]
    share = column(table, "max_loading_percent", 0.0 if KEY in net else 100.0) / 100
    share = share * column(table, "df", 1.0) * column(table, "parallel", 1.0)
    if key != "line":
        return np.concatenate([share * column(table, name, 0.0) for name in RATED[key]])
    bus = net["bus"]
    at = np.searchsorted(np.asarray(bus.index), np.asarray(table["from_bus"], int), sorter=np.argsort(bus.index))
    kv = column(bus, "vn_kv", 0.0)[np.argsort(bus.index)[at]]
    current = column(table, "max_i_ka", 0.0)
    return np.where(current < NO_CURRENT_KA, np.sqrt(3) * kv * current * share, 0.0)
