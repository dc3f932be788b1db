"""Cases of PyPSA networks: one snapshot of the alternating-current part, as its own power flow has it; and series."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from powerzoo_jax.base.errors import CaseError, listing
from powerzoo_jax.cases.case import NO_ANGLE_LIMIT, PQ, PV, REF, Case, assemble
from powerzoo_jax.cases.readers.series import NetworkSeries
from powerzoo_jax.cases.topology import islands
from powerzoo_jax.cases.validate import assert_valid

BASE_MVA = 100.0
NO_VOLTAGE_LIMIT = 2.0  # [pu]
AC = "AC"
ONE_PORTS = ("loads", "storage_units", "stores")
MINUTE_NS = 60 * 10**9
BUS = re.compile(r"bus(\d+)")


class _Components:
    """Columns of the components of a network at one snapshot, with those of inactive components left out."""

    def __init__(self, network: Any, row: int) -> None:
        self._network, self._row = network, row

    def table(self, kind: str) -> Any:
        """Static table of a component, active rows only."""
        table = self._network.c[kind].static
        return table[np.asarray(table["active"], bool)] if "active" in table.columns else table

    def numbers(self, kind: str, column: str) -> np.ndarray:
        """A column (n,) at the snapshot, 0 where it has no number."""
        return self.over_time(kind, column, slice(self._row, self._row + 1))[0]

    def over_time(self, kind: str, column: str, rows: slice = slice(None)) -> np.ndarray:
        """A column at snapshots (T, n), 0 where it has no number."""
        table = self.table(kind)
        fixed = np.array(table[column], np.float64) if column in table.columns else np.zeros(len(table.index))
        values = np.tile(fixed, (len(range(*rows.indices(len(self._network.snapshots)))), 1))
        series = self._network.c[kind].dynamic.get(column)
        if series is not None and len(series.columns):
            position = {name: k for k, name in enumerate(series.columns)}
            varying = [k for k, name in enumerate(table.index) if name in position]
            values[:, varying] = np.asarray(series)[rows][:, [position[table.index[k]] for k in varying]]
        return np.where(np.isnan(values), 0.0, values)


def from_pypsa(network: Any, snapshot: Any = None, name: str | None = None) -> Case:
    """Convert and validate one snapshot of a PyPSA network, as `network.pf` would solve it.

    network:   a pypsa.Network; it is not changed
    snapshot:  one of `network.snapshots`, the first by default

    Bus id = position in `network.buses`, from 1. Buses of another carrier than AC are left out with what stands at
    them, and noted. Lines and transformers take their standard types, ratios on either side and the T model; their
    conductance becomes shunts. Generators hold `v_mag_pu_set` of their bus where their control is PV or Slack; every
    island has the reference that PyPSA would choose. Loads, storage units, stores and links have their `p_set`, links
    as loads at both ends. Costs are marginal costs.

    Raises CaseError for a snapshot that the network does not have, for a network without AC buses, with lines of
    direct current or of many scenarios, and every problem of the case.
    """
    title = name or str(network.name or "") or "network"
    moments = list(network.snapshots)
    if snapshot is not None and snapshot not in moments:
        raise CaseError(f"{title!r} has no snapshot {snapshot!r}. It has {listing(moments)}.")
    if getattr(network, "has_scenarios", False):
        raise CaseError(f"{title!r} has several scenarios. Give the network of one: network.get_scenario(name).")
    network = network.copy()
    network.calculate_dependent_values()  # impedances per unit of 1 MVA, standard types applied
    part = _Components(network, 0 if snapshot is None else moments.index(snapshot))
    buses = part.table("buses")
    ac = np.array([carrier == AC for carrier in buses["carrier"]], bool)
    if not ac.any():
        raise CaseError(f"{title!r} has no bus of the carrier AC, and no other is represented.")
    position = {label: k for k, label in enumerate(np.asarray(buses.index)[ac].tolist())}
    ids = np.flatnonzero(ac) + 1
    notes = (
        [f"buses of another carrier than AC are left out with all at them (rows: {(~ac).sum()})"] if any(~ac) else []
    )
    bus, branch, f, t = _network(part, buses, ac, position, title)
    notes += _add_loads(part, position, bus)
    gen, cost, kind = _units(part, position, bus, islands(len(ids), f, t, np.ones(len(f), bool)))
    bus[:, 0], bus[:, 1] = ids, kind
    branch[:, 0], branch[:, 1], gen[:, 0] = ids[f], ids[t], ids[gen[:, 0].astype(int)]
    tables = {"bus": bus, "branch": branch, "gen": gen, "gencost": cost}
    moment = moments[0] if snapshot is None else snapshot
    case = assemble(title, BASE_MVA, f"Converted from a PyPSA network ({title}), {moment}.", tables, tuple(notes))
    assert_valid(case)
    return case


def read_pypsa_series(network: Any, name: str | None = None) -> NetworkSeries:
    """Load, solar and wind power of a PyPSA network over its snapshots.

    load_mw is `p_set` of the loads at AC buses; solar_mw and wind_mw are p_nom p_max_pu of the generators there whose
    carrier has that word in its name, where there are any. The snapshots begin their intervals.

    Raises CaseError for a network with fewer than two snapshots, and for snapshots that are no dates or not evenly
    spaced in whole minutes.
    """
    title = name or str(network.name or "") or "network"
    try:
        stamps = np.asarray(list(network.snapshots), "datetime64[ns]")
    except (TypeError, ValueError):
        stamps = np.zeros(0, "datetime64[ns]")
    steps = np.diff(stamps.astype(np.int64))
    if not steps.size or steps[0] <= 0 or (steps != steps[0]).any() or steps[0] % MINUTE_NS:
        raise CaseError(
            f"{title!r} has the snapshots {listing(network.snapshots)}. Give at least two dates, evenly spaced in "
            "whole minutes: network.set_snapshots(pandas.date_range(...))."
        )
    part = _Components(network, 0)
    buses = part.table("buses")
    position = {label: 0 for label, carrier in zip(buses.index, buses["carrier"], strict=True) if carrier == AC}

    def total(kind: str, chosen: np.ndarray, *factors: str) -> np.ndarray:
        here = chosen & (_at(part, kind, "bus", position) >= 0)
        with np.errstate(over="ignore", invalid="ignore"):  # refused below
            return np.prod([part.over_time(kind, factor)[:, here] for factor in factors], axis=0).sum(axis=1)

    loads = np.ones(len(part.table("loads").index), bool)
    columns = {"load_mw": -total("loads", loads, "sign", "p_set")}
    carriers = [str(word).lower() for word in part.table("generators")["carrier"]]
    for source in ("solar", "wind"):
        chosen = np.array([source in carrier for carrier in carriers], bool)
        if chosen.any():
            columns[f"{source}_mw"] = total("generators", chosen, "p_nom", "p_max_pu")
    for column, values in columns.items():
        if not np.isfinite(values).all():
            raise CaseError(f"{title!r}: {column} is not finite at some snapshot. Check the powers of the network.")
    return NetworkSeries(title, int(steps[0] // MINUTE_NS), str(stamps[0].astype("datetime64[m]")), columns)


def _at(part: _Components, kind: str, column: str, position: dict[str, int]) -> np.ndarray:
    """Position of the bus of every component, (n,), -1 at a bus that is left out."""
    return np.array([position.get(str(label), -1) for label in part.table(kind)[column]], np.int64)


def _network(
    part: _Components, buses: Any, ac: np.ndarray, position: dict[str, int], title: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rows of buses (N, 13) and branches (L, 13) in MATPOWER's columns, with the positions of both ends (L,)."""
    bus = np.zeros((int(ac.sum()), 13))
    bus[:, 6], bus[:, 10] = 1, 1
    bus[:, 7], bus[:, 9] = part.numbers("buses", "v_mag_pu_set")[ac], np.array(buses["v_nom"], np.float64)[ac]
    high = part.numbers("buses", "v_mag_pu_max")[ac]
    bus[:, 11] = np.where(np.isfinite(high), high, NO_VOLTAGE_LIMIT)
    bus[:, 12] = part.numbers("buses", "v_mag_pu_min")[ac]
    rows = []
    for kind in ("lines", "transformers"):
        table = part.table(kind)
        f, t = (_at(part, kind, column, position) for column in ("bus0", "bus1"))
        outside = np.flatnonzero((f < 0) | (t < 0))
        if outside.size:
            raise CaseError(
                f"{title!r} has {kind} at buses that are not AC: {listing(np.asarray(table.index)[outside])}. PyPSA "
                "itself solves these linearly only. Put links in their place, or take them out."
            )
        r, x, b, g = (np.array(table[f"{column}_pu"], np.float64) for column in "rxbg")
        ratio, shift, turned = np.ones(len(f)), np.zeros(len(f)), np.zeros(len(f), bool)
        rate = part.numbers(kind, "s_nom") * part.numbers(kind, "s_max_pu")
        if kind == "transformers":
            given = part.numbers(kind, "tap_ratio")
            ratio, shift = np.where(given == 0, 1.0, given), part.numbers(kind, "phase_shift")
            turned = np.array(table["tap_side"], np.int64) == 1  # a case has the ratio at the from end
        f, t, shift = np.where(turned, t, f), np.where(turned, f, t), np.where(turned, -shift, shift)
        part_rows = np.zeros((len(f), 13))
        part_rows[:, 0], part_rows[:, 1] = f, t
        part_rows[:, 2], part_rows[:, 3], part_rows[:, 4] = r * BASE_MVA, x * BASE_MVA, b / BASE_MVA
        part_rows[:, 5], part_rows[:, 8], part_rows[:, 9], part_rows[:, 10] = rate, ratio, shift, 1
        part_rows[:, 11], part_rows[:, 12] = -NO_ANGLE_LIMIT, NO_ANGLE_LIMIT
        np.add.at(bus[:, 4], f, g / 2 / ratio**2)
        np.add.at(bus[:, 4], t, g / 2)
        rows.append(part_rows)
    at = _at(part, "shunt_impedances", "bus", position)
    for column, name in ((4, "g_pu"), (5, "b_pu")):
        values = np.array(part.table("shunt_impedances")[name], np.float64)
        np.add.at(bus[:, column], at[at >= 0], values[at >= 0])
    branch = np.concatenate(rows)
    return bus, branch, branch[:, 0].astype(np.int64), branch[:, 1].astype(np.int64)


def _add_loads(part: _Components, position: dict[str, int], bus: np.ndarray) -> list[str]:
    """Add what loads, storage and links draw to the load of the buses; notes on what that leaves out."""
    notes = []
    for kind in ONE_PORTS:
        at, sign = _at(part, kind, "bus", position), part.numbers(kind, "sign")
        for column, field in ((2, "p_set"), (3, "q_set")):
            np.add.at(bus[:, column], at[at >= 0], (-sign * part.numbers(kind, field))[at >= 0])
        if kind != "loads" and (at >= 0).any():
            notes.append(f"{kind} draw or feed p_set; how much energy they hold is not represented")
    p = part.numbers("links", "p_set")
    for column in part.table("links").columns:
        end = BUS.fullmatch(column)
        if end and len(p):
            share = {"0": "", "1": "efficiency"}.get(end[1], f"efficiency{end[1]}")
            at = _at(part, "links", column, position)
            power = -part.numbers("links", share) * p if share else p
            np.add.at(bus[:, 2], at[at >= 0], power[at >= 0])
    if len(p):
        notes.append("links are loads at their ends: p_set, and what arrives of it")
    return notes


def _units(
    part: _Components, position: dict[str, int], bus: np.ndarray, island: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of units (G, 10) and of their costs (G, 7), and the kinds of the buses (N,)."""
    at = _at(part, "generators", "bus", position)
    here = np.flatnonzero(at >= 0)
    control = np.array([str(word) for word in part.table("generators")["control"]])
    kind = np.full(len(bus), PQ)
    kind[at[here][control[here] != "PQ"]] = PV
    for k in range(int(island.max()) + 1):
        mine = here[island[at[here]] == k]
        chosen = [*mine[control[mine] == "Slack"], *mine]
        kind[at[chosen[0]] if chosen else int(np.argmax(island == k))] = REF
    sign, nominal = part.numbers("generators", "sign"), part.numbers("generators", "p_nom")
    rows = np.zeros((len(at), 10))
    rows[:, 0] = at
    rows[:, 1], rows[:, 2] = (sign * part.numbers("generators", field) for field in ("p_set", "q_set"))
    rows[:, 3], rows[:, 4], rows[:, 5] = np.inf, -np.inf, bus[at, 7]
    rows[:, 6], rows[:, 7] = np.where(nominal > 0, nominal, BASE_MVA), 1
    ends = np.stack([sign * nominal * part.numbers("generators", f"p_{end}_pu") for end in ("max", "min")])
    rows[:, 8], rows[:, 9] = ends.max(0), ends.min(0)
    cost = np.zeros((len(at), 7))
    cost[:, 0], cost[:, 3] = 2, 3
    cost[:, 4] = part.numbers("generators", "marginal_cost_quadratic")
    cost[:, 5] = sign * part.numbers("generators", "marginal_cost")
    return rows[here], cost[here], kind
