"""Cases of pandapower nets, and the rows in which their elements stand."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from powerzoo_jax.base.errors import CaseError, listing, missing_extra
from powerzoo_jax.cases.case import Case, assemble
from powerzoo_jax.cases.readers.pandapower.dispatch import (
    WIDTH,
    close_limits,
    cost_notes,
    cost_rows,
    dispatched_units,
    free_references,
    has_costs,
    held_buses,
    least_output,
    limit_units,
    narrow_voltages,
    take_out,
    unlimited_in_runopp,
)
from powerzoo_jax.cases.readers.pandapower.origin import unchanged_case
from powerzoo_jax.cases.readers.pandapower.tables import branch_ratings, dc_line_units, left_out, make_ready, screen
from powerzoo_jax.cases.validate import assert_valid

BRANCHES = ("line", "trafo", "trafo3w", "impedance")
WINDINGS = ("trafo3w_hv", "trafo3w_mv", "trafo3w_lv")  # each a branch: from its bus to the star point, or from there
NO_LIMIT = 1e9  # [MW], [Mvar] what pandapower writes where a unit has no limit


@dataclass(frozen=True, eq=False)
class NetRows:
    """Rows of a case in which the elements of its net stand: pairs of element indices and rows, row -1 = not there.

    bus:           buses; those that switches join share a row
    branch:        by table: line, trafo, impedance, and a transformer of three windings as WINDINGS
    unit:          by table: ext_grid, gen
    y_from, y_to:  (L,) complex [pu] part of the shunts at its ends that belongs to a branch: iron losses
    """

    bus: tuple[np.ndarray, np.ndarray]
    branch: Mapping[str, tuple[np.ndarray, np.ndarray]]
    unit: Mapping[str, tuple[np.ndarray, np.ndarray]]
    y_from: np.ndarray
    y_to: np.ndarray


def from_pandapower(net: Any, name: str | None = None, *, opf: bool | None = None) -> Case:
    """Convert and validate a pandapower net, by pandapower's own `to_ppc`, transformers as `runpp` models them.

    opf:  True: the network that `runopp` dispatches. False: the one that `runpp` solves. None: that one too, but where
          the net has costs its controllable loads, storages and static generators are units

    Elements out of service are left out, buses joined by closed switches become one, and bus id = index + 1 (the
    lowest index of joined buses; inner buses of three-winding transformers and open lines get new ids). Every external
    grid keeps its voltage and angle, several in one island too. Iron losses become shunts at both ends of their branch,
    a DC line two units of fixed power that hold the voltages of its ends. Ratings are those at `max_loading_percent`,
    100 % where the net has none; limits that it does not give are infinite. `notes` says what of the net the case does
    not hold. A net of `to_pandapower` that nobody has changed gives the case that it was made from, number by number.

    Costs come along when the net has any; a generator that is not controllable then keeps its output. An AC-OPF holds
    the voltage set-points of external grids and generators that are not controllable (`Case.held`). With opf=True one
    reference an island keeps its angle, and limits that are missing are closed far from what the net needs, both
    noted; without any cost the total output is minimised, as `runopp` does.

    Raises ImportError that names the extra when pandapower is missing, CaseError naming what has no counterpart (static
    var and series compensators, converters, impedances that differ by direction) and every problem of the case.
    """
    case = convert_pandapower(net, name, opf=opf)
    assert_valid(case)
    return case


def convert_pandapower(net: Any, name: str | None = None, *, opf: bool | None = None) -> Case:
    """Convert as `from_pandapower` does, without the rules, so that `validate` can report on the result."""
    kept = unchanged_case(net)
    if kept is not None:
        return kept if name is None else replace(kept, name=name)
    return convert_with_rows(net, name, opf=opf)[0]


def convert_with_rows(net: Any, name: str | None = None, *, opf: bool | None = None) -> tuple[Case, NetRows]:
    """Case of a net as pandapower converts it, and where the elements of the net stand in it."""
    try:
        from pandapower.converter.pypower.to_ppc import to_ppc
    except ImportError as err:
        raise ImportError(missing_extra("from_pandapower", "pandapower", "pandapower")) from err
    net = copy.deepcopy(net)  # the conversion leaves its workings in the net
    title = name or str(net.get("name") or "") or "net"
    notes = (*screen(net, title), *cost_notes(net))
    dispatch = has_costs(net) if opf is None else opf
    taken = take_out(net) if dispatch else None
    make_ready(net)
    try:
        ppc = to_ppc(net, init="flat", calculate_voltage_angles=True, mode="pf")
    except Exception as err:  # a net that lacks what a power flow needs fails in many ways
        raise CaseError(f"pandapower cannot convert {title!r}: {err}. Try pandapower.diagnostic(net).") from err
    rows = _net_rows(ppc, net)
    return _from_ppc(ppc, net, title, notes, rows, taken, opf), rows


def _net_rows(ppc: Mapping[str, Any], net: Any) -> NetRows:
    lookups, internal = net["_pd2ppc_lookups"], ppc["internal"]

    def row_of(mask: Any) -> np.ndarray:
        """Row of the case for what pandapower counts with elements out of service."""
        on = np.asarray(mask, bool)
        return np.where(on, np.cumsum(on) - 1, -1)

    index = np.asarray(net["bus"].index)
    at = np.asarray(lookups["bus"])[index]
    branch: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    row = row_of(internal["branch_is"])
    for table, (begin, end) in lookups["branch"].items():
        if table in BRANCHES and end > begin:
            names = WINDINGS if table == "trafo3w" else (table,)
            parts = np.split(row[begin:end], len(names))  # of three windings, all of the high-voltage side come first
            branch |= {name: (np.asarray(net[table].index), rows) for name, rows in zip(names, parts, strict=True)}
    unit, row = dict[str, tuple[np.ndarray, np.ndarray]](), row_of(internal["gen_is"])
    for table in ("ext_grid", "gen"):
        elements = np.asarray(net[table].index) if table in net else np.zeros(0, int)
        lookup = lookups.get(table)
        if elements.size and lookup is not None:
            known = np.where(elements < len(lookup), np.asarray(lookup)[np.minimum(elements, len(lookup) - 1)], -1)
            unit[table] = elements, np.where(known >= 0, row[known], -1)
    y_from, y_to = _iron(ppc)
    return NetRows((index, np.where((at >= 0) & (at < len(ppc["bus"])), at, -1)), branch, unit, y_from, y_to)


def _iron(ppc: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Admittances (L,) complex [pu] at both ends of every branch that MATPOWER's columns do not hold."""
    tap = np.asarray(ppc["branch"])[:, 8].real
    conductance = _extra(ppc, "branch_g") / 2
    far = conductance + _extra(ppc, "branch_g_asym") / 2 + 0.5j * _extra(ppc, "branch_b_asym")
    return conductance / np.where(tap == 0, 1.0, tap) ** 2 + 0j, far


def _from_ppc(
    ppc: Mapping[str, Any],
    net: Any,
    name: str,
    notes: tuple[str, ...],
    rows: NetRows,
    taken: Mapping[str, np.ndarray] | None,
    opf: bool | None,
) -> Case:
    """Case of MATPOWER's tables and of what they leave out of a net.

    taken:  controllable elements by table, which become units; None for a power flow
    """
    base = float(ppc["baseMVA"])
    bus, branch, gen = (np.array(ppc[key][:, :13].real) for key in ("bus", "branch", "gen"))
    branch[:, 5] = branch_ratings(branch[:, 5], ppc, net)
    f, t = branch[:, 0].astype(int), branch[:, 1].astype(int)
    for at, y in zip((f, t), _iron(ppc), strict=True):
        np.add.at(bus[:, 4], at, base * y.real)
        np.add.at(bus[:, 5], at, base * y.imag)
    ids = _bus_ids(net, len(bus))
    uneven = np.flatnonzero(_extra(ppc, "branch_r_asym") + 1j * _extra(ppc, "branch_x_asym"))
    if uneven.size:
        ends = listing(f"bus {ids[f[k]]} -> {ids[t[k]]}" for k in uneven)
        raise CaseError(
            f"{name!r} has an impedance that differs by direction ({ends}, index + 1), which a case cannot express. "
            "Give both directions the same r and x."
        )
    _take_voltage_limits(bus, ids, net)
    notes = (*notes, *left_out(net, len(bus)))
    place = {key: at for key, (_, at) in rows.unit.items()}
    limit_units(gen, net, place, dispatch=taken is not None)
    moved, places = dispatched_units(net, taken or {}, len(bus))
    place |= {key: np.where(at >= 0, at + len(gen), -1) for key, at in places.items()}
    gen = np.concatenate([gen[:, :WIDTH], moved, dc_line_units(bus, net)])
    limits = gen[:, [3, 4, 8, 9]].round(9) + 0.0  # pandapower widens limits by 1e-10
    gen[:, [3, 4, 8, 9]] = np.where(np.abs(limits) >= NO_LIMIT, np.copysign(np.inf, limits), limits)
    bus[:, 0] = ids
    tables = {"bus": bus, "branch": branch, "gen": gen}
    if has_costs(net):
        tables["gencost"] = cost_rows(net, place, len(gen))
    elif opf:
        tables["gencost"] = least_output(len(gen))
        notes = (*notes, "the net has no costs: the optimum is the least output of all units together")
    if opf:
        narrow_voltages(bus, gen, net, place)
        notes = (*notes, *free_references(bus, branch), *unlimited_in_runopp(net))
        notes = (*notes, *close_limits(bus, gen, last=int(net["bus"].index.max()) + 1))
    held = tuple(ids[held_buses(gen, net, place)].tolist())
    branch[:, 0], branch[:, 1] = ids[f], ids[t]
    gen[:, 0] = ids[gen[:, 0].astype(int)]
    gen[:, 6] = np.where(np.isfinite(gen[:, 6]), gen[:, 6], base)
    case = assemble(name, base, f"Converted from a pandapower net ({name}).", tables, notes)
    return replace(case, held=held)


def _extra(ppc: Mapping[str, Any], key: str) -> np.ndarray:
    """A column that pandapower adds to MATPOWER's, (L,); it is left out where it is zero throughout."""
    return np.asarray(ppc.get(key, np.zeros(len(ppc["branch"])))).real


def _bus_ids(net: Any, count: int) -> np.ndarray:
    """Bus id of every row: lowest index of the buses it stands for, plus 1; new ids for inner buses."""
    lookup, index = net["_pd2ppc_lookups"]["bus"], np.asarray(net["bus"].index)
    ids = np.zeros(count, np.int64)
    for i in np.sort(index)[::-1]:
        if 0 <= lookup[i] < count:
            ids[lookup[i]] = i + 1
    inner = np.flatnonzero(ids == 0)
    ids[inner] = index.max() + 2 + np.arange(len(inner))
    return ids


def _take_voltage_limits(bus: np.ndarray, ids: np.ndarray, net: Any) -> None:
    """Put the net's own limits in: without costs pandapower leaves them out, and it fixes the reference bus."""
    frame = net["bus"]
    for column, key, unset in ((11, "max_vm_pu", 2.0), (12, "min_vm_pu", 0.0)):
        given = dict(zip(frame.index, frame[key], strict=True)) if key in frame else {}
        values = np.array([given.get(i - 1, unset) for i in ids.tolist()], np.float64)
        bus[:, column] = np.where(np.isfinite(values), values, unset)
