"""Linear part of an unbalanced feeder as one system of equations, solved once in float64 on the host.

Unknowns are node voltages and the series currents of line conductors, transformer units and the source, so that
impedances enter as they are: a switch of a millionth of an ohm, or of none, costs no digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spl

from powerzoo_jax.base.errors import SolverError, listing
from powerzoo_jax.cases.threephase.case import GROUND, ThreePhaseCase, grounded_neutrals
from powerzoo_jax.cases.topology import islands

Pair = tuple[int, int]
DENSE = 2000  # unknowns up to which a dense factorisation is the faster one


@dataclass(frozen=True)
class Network:
    """Response of the feeder to what its a rows inject, in per unit; every quantity is y = y0 + Y i.

    Bases are the nodes' voltages and a third of the case's power.

    moved:      (2U,)               what a row of a moved unit injects per measured quantity and change of 1 / ratio
    at_rows:    (a,), (a, a)        what the rows measure: voltages of ports, then two quantities per moved unit
    at_nodes:   (N,), (N, a)        node voltages
    in_lines:   (L, 3), (L, 3, a)   series currents of line conductors, from -> to; 0 where there is none
    into_lines: (L, 3), (L, 3, a)   currents entering at the from ends, charging included
    in_units:   (T,), (T, a)        currents of transformer units, per unit of their rated turns
    from_source: (3,), (3, a)       currents of the source
    """

    moved: np.ndarray
    at_rows: tuple[np.ndarray, np.ndarray]
    at_nodes: tuple[np.ndarray, np.ndarray]
    in_lines: tuple[np.ndarray, np.ndarray]
    into_lines: tuple[np.ndarray, np.ndarray]
    in_units: tuple[np.ndarray, np.ndarray]
    from_source: tuple[np.ndarray, np.ndarray]


def phase_base_mva(case: ThreePhaseCase) -> float:
    """[MVA] power base of one phase."""
    return case.base_mva / 3


def base_ohm(case: ThreePhaseCase) -> np.ndarray:
    """(N,) [ohm] impedance base of every node: line-to-line kV squared over the three-phase base."""
    return case.node.base_kv**2 / phase_base_mva(case)


def unit_ratios(case: ThreePhaseCase) -> np.ndarray:
    """(T,) ratio that the regulators give to every transformer unit, 1 where none does."""
    ratio = np.ones(len(case.transformer))
    for units, tap in zip(case.regulator.unit.reshape(-1, 3), case.taps, strict=True):
        ratio[units[units >= 0]] = tap
    return ratio


def build_network(case: ThreePhaseCase, ports: Sequence[Pair], moving: np.ndarray) -> Network:
    """Solve the linear part of a feeder.

    ports:   pairs of nodes between which rows inject, -1 = ground
    moving:  (U,) units whose ratio may move at run time: each adds a row that measures the secondary voltage and
             injects a voltage there, and one that measures the secondary current and injects a current; both scaled

    Raises SolverError naming the nodes that the source does not reach.
    """
    _refuse_islands(case)
    at = _UnknownLayout(case)
    system, source = _equations(case, at)
    a = len(ports) + 2 * moving.size
    inject, measure = _Entries(at.size, a), _Entries(a, at.size)
    for k, (node, end) in enumerate(ports):
        for position, sign in ((node, 1.0), (end, -1.0)):
            if position != GROUND:
                inject.add(position, k, sign)
                measure.add(k, position, sign)
    idle, through = _unit_shunts(case), np.zeros((a, a), complex)
    for k, unit in enumerate(moving.tolist()):
        voltage, current = len(ports) + 2 * k, len(ports) + 2 * k + 1
        turns, ratio = 1 / _turns(case)[1][unit], unit_ratios(case)[unit]
        inject.add(at.unit[unit], voltage, 1.0)
        measure.add(current, at.unit[unit], turns)
        # what leaves the second winding is the unit's current less that of the shunt on it, y v / ratio per turn
        through[current, voltage] = -idle[unit] / turns
        for position, sign in ((case.transformer.to_node[unit], 1.0), (case.transformer.to_end[unit], -1.0)):
            if position != GROUND:
                measure.add(voltage, position, sign * turns)
                measure.add(current, position, -sign * idle[unit] / ratio)
                inject.add(position, current, sign)
                inject.add(position, voltage, -sign * idle[unit] / (turns * ratio))
    response = _solve(case, system, np.column_stack([source, _real_if_so(inject.dense())]))
    seen = measure.sparse() @ response if at.size > DENSE else _real_if_so(measure.dense()) @ response
    seen[:, 1:] += through
    measured, injected = _scales(seen, len(ports))
    response[:, 1:] /= injected
    seen[:, 1:] /= injected
    seen *= measured[:, None]

    def quantity(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        padded = np.vstack([response, np.zeros((1, a + 1))])[rows]  # -1 reads the zeros
        return padded[..., 0], padded[..., 1:]

    series, v = quantity(at.line), quantity(np.arange(case.n_node))
    charging = [_charging(case, part) for part in v]
    return Network(
        moved=(injected / measured)[len(ports) :],
        at_rows=(seen[:, 0], seen[:, 1:]),
        at_nodes=v,
        in_lines=series,
        into_lines=(series[0] + charging[0], series[1] + charging[1]),
        in_units=quantity(at.unit),
        from_source=quantity(at.source),
    )


def sparse_equations(case: ThreePhaseCase) -> tuple[sp.csc_array, np.ndarray]:
    """Matrix and right side of the network without loads; the first unknowns are the node voltages [pu].

    Raises SolverError naming the nodes that the source does not reach.
    """
    _refuse_islands(case)
    system, source = _equations(case, _UnknownLayout(case))
    return system.sparse(), source


def _real_if_so(matrix: np.ndarray) -> np.ndarray:
    """The real part of a matrix without imaginary one: its products are cheaper."""
    return matrix if matrix.imag.any() else matrix.real


def _scales(seen: np.ndarray, n_port: int) -> tuple[np.ndarray, np.ndarray]:
    """Scale factors (a,) (a,) of what rows measure and of what they inject, 1 for ports.

    Error estimates and step limits weigh rows alike. So secondary currents are made to answer to injections as much
    as voltages do, and what a moved tap injects to move voltages as much as a load's current does.
    """
    measured, injected = np.ones(seen.shape[0]), np.ones(seen.shape[0])
    answer = np.linalg.norm(seen[:, 1 : n_port + 1], axis=1)
    measured[n_port + 1 :: 2] = answer[:n_port].max() / answer[n_port + 1 :: 2]
    effect = np.linalg.norm(measured[:, None] * seen[:, 1:], axis=0)
    injected[n_port:] = effect[n_port:] / effect[:n_port].max()
    return measured, injected


class _UnknownLayout:
    """Positions of the unknowns: line (L, 3), unit (T,), source (3,); -1 = there is none."""

    def __init__(self, case: ThreePhaseCase) -> None:
        there = (case.line.from_node >= 0) & case.line.in_service[:, None]
        self.line = np.where(there, case.n_node - 1 + np.cumsum(there).reshape(there.shape), -1)
        begin = case.n_node + int(there.sum())
        self.unit = begin + np.arange(len(case.transformer))
        self.source = begin + len(case.transformer) + np.arange(3)
        self.size = begin + len(case.transformer) + 3


class _Entries:
    """A matrix (rows, columns) to which entries are added in groups that hit every place once."""

    def __init__(self, rows: int, columns: int) -> None:
        self.shape = (rows, columns)
        self.parts: list[tuple[Any, Any, Any]] = []

    def add(self, rows: Any, columns: Any, values: Any) -> None:
        """Add values to places; the three broadcast."""
        self.parts.append((rows, columns, values))

    def add_block(self, rows: np.ndarray, columns: np.ndarray, values: Any) -> None:
        """Add a matrix of values to every row and column."""
        self.add(rows[:, None], columns[None, :], values)

    def dense(self) -> np.ndarray:
        """Sum in the order in which the entries came."""
        found = np.zeros(self.shape, complex)
        for rows, columns, values in self.parts:
            found[rows, columns] += values
        return found

    def sparse(self) -> sp.csc_array:
        """The same without the zeros."""
        parts = [np.broadcast_arrays(*part) for part in self.parts]
        rows, columns, values = (np.concatenate([part[k].ravel() for part in parts]) for k in range(3))
        return sp.coo_array((values.astype(complex), (rows, columns)), shape=self.shape).tocsc()


def _solve(case: ThreePhaseCase, system: _Entries, right: np.ndarray) -> np.ndarray:
    """Unknowns for several right sides; large systems are factored sparsely, column by column of right sides."""
    problem = (
        f"{case.name}: the network equations are singular. Look for a part that only deltas join with the rest, and "
        "give it a capacitor, or a transformer its shunt against floating."
    )
    try:
        if system.shape[0] <= DENSE:
            return np.linalg.solve(system.dense(), right)
        found = np.asarray(spl.splu(system.sparse()).solve(right))
    except (np.linalg.LinAlgError, RuntimeError) as err:
        raise SolverError(problem) from err
    if not np.isfinite(found).all():
        raise SolverError(problem)
    return found


def _equations(case: ThreePhaseCase, at: _UnknownLayout) -> tuple[_Entries, np.ndarray]:
    """Kirchhoff's current law of every node, then the voltage law of every series element."""
    a = _Entries(at.size, at.size)
    b = np.zeros(at.size, complex)
    ohm = base_ohm(case)
    line = case.line
    for k in range(len(line)):
        on = at.line[k] >= 0
        if not on.any():
            continue
        f, t, own, pick = line.from_node[k, on], line.to_node[k, on], at.line[k, on], np.ix_(on, on)
        a.add(f, own, 1)
        a.add(t, own, -1)
        a.add(own, f, 1)
        a.add(own, t, -1)
        a.add_block(own, own, -(line.r_ohm[k][pick] + 1j * line.x_ohm[k][pick]) / ohm[f[0]])
        half = 0.5j * line.b_us[k][pick] * 1e-6 * ohm[f[0]]
        a.add_block(f, f, half)
        a.add_block(t, t, half)
    _add_units(case, at, a)
    _add_capacitors(case, a)
    _add_shunts(case, a)
    s = case.source
    a.add(s.node, at.source, -1)
    a.add(at.source, s.node, 1)
    a.add_block(at.source, at.source, (s.r_ohm + 1j * s.x_ohm) / ohm[s.node][:, None])
    b[at.source] = s.v_pu * np.exp(1j * np.deg2rad(s.angle_deg))
    return a, b


def _turns(case: ThreePhaseCase) -> tuple[np.ndarray, np.ndarray]:
    """(T,) each: rated voltage of either winding, fixed tap included, per unit of the base where it stands."""
    t, kv = case.transformer, case.node.base_kv
    first = np.where(t.from_node >= 0, t.from_node, t.from_end)
    second = np.where(t.to_node >= 0, t.to_node, t.to_end)
    return t.from_kv * t.from_tap / kv[first], t.to_kv * t.to_tap / kv[second]


def secondary_turns(case: ThreePhaseCase) -> np.ndarray:
    """(T,) current of a unit, as the results have it, over that of its second winding at ratio 1."""
    return _turns(case)[1]


def _add_units(case: ThreePhaseCase, at: _UnknownLayout, a: _Entries) -> None:
    t = case.transformer
    z = (t.r_pu + 1j * t.x_pu) * phase_base_mva(case) * 1e3 / t.rating_kva
    from_turns, to_turns = _turns(case)
    to_turns = to_turns * unit_ratios(case)
    for k, own in enumerate(at.unit.tolist()):
        a.add(own, own, -z[k])
        for position, turns in (
            (t.from_node[k], from_turns[k]),
            (t.from_end[k], -from_turns[k]),
            (t.to_node[k], -to_turns[k]),
            (t.to_end[k], to_turns[k]),
        ):
            if position != GROUND:
                a.add(position, own, 1 / turns)
                a.add(own, position, 1 / turns)


def _add_capacitors(case: ThreePhaseCase, a: _Entries) -> None:
    c = case.capacitor
    for node, end, q_kvar, kv in zip(c.node.tolist(), c.end.tolist(), c.q_kvar, c.kv, strict=True):
        place, signs = _ends(node, end)
        y = 1j * q_kvar / 1e3 / phase_base_mva(case) * (case.node.base_kv[place[0]] / kv) ** 2
        a.add_block(place, place, y * signs)


def _add_shunts(case: ThreePhaseCase, a: _Entries) -> None:
    shunt = case.shunt
    ratio = np.append(unit_ratios(case), 1.0)[shunt.unit]  # -1 reads the last
    for node, end, y in zip(shunt.node.tolist(), shunt.end.tolist(), _shunt_pu(case) / ratio**2, strict=True):
        place, signs = _ends(node, end)
        a.add_block(place, place, y * signs)


def _shunt_pu(case: ThreePhaseCase) -> np.ndarray:
    """(S,) complex [pu] admittance of every shunt, at the ratio 1 of the regulator where it stands on a unit."""
    shunt = case.shunt
    place = np.where(shunt.node == GROUND, shunt.end, shunt.node)
    fixed = np.append(case.transformer.to_tap, 1.0)[shunt.unit]  # -1 reads the last
    return np.asarray((shunt.g_us + 1j * shunt.b_us) * 1e-6 * base_ohm(case)[place] / fixed**2)


def _unit_shunts(case: ThreePhaseCase) -> np.ndarray:
    """(T,) complex [pu] admittance on the second winding of every unit, at the ratio 1 of its regulator."""
    total = np.zeros(len(case.transformer) + 1, complex)
    np.add.at(total, case.shunt.unit, _shunt_pu(case))
    return total[:-1]


def _ends(node: int, end: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions of the ends that are no ground, and the signs with which an admittance between them enters."""
    place = np.array([p for p in (node, end) if p != GROUND])
    sign = np.array([s for p, s in ((node, 1.0), (end, -1.0)) if p != GROUND])
    return place, np.outer(sign, sign)


def _charging(case: ThreePhaseCase, v: np.ndarray) -> np.ndarray:
    """Currents (L, 3, ...) into the charging at the from ends at node voltages v (N, ...)."""
    line = case.line
    padded = np.concatenate([v, np.zeros((1, *v.shape[1:]), v.dtype)])[line.from_node]
    half = 0.5j * line.b_us * 1e-6 * base_ohm(case)[line.from_node[:, 0]][:, None, None]
    return np.einsum("lij,lj...->li...", half * line.in_service[:, None, None], padded)


def _refuse_islands(case: ThreePhaseCase) -> None:
    line, t = case.line, case.transformer
    on = (line.from_node >= 0) & line.in_service[:, None]
    pairs = [np.stack([line.from_node[on], line.to_node[on]])]
    shunts = (case.shunt.node, case.shunt.end)
    grounded = grounded_neutrals(case)
    earth = (grounded, np.full(grounded.size, case.source.node[0]))
    across = (np.where(t.from_node >= 0, t.from_node, t.from_end), np.where(t.to_node >= 0, t.to_node, t.to_end))
    for ends in ((t.from_node, t.from_end), (t.to_node, t.to_end), across, shunts, earth):
        pairs.append(np.stack(ends)[:, (ends[0] != GROUND) & (ends[1] != GROUND)])
    f, to = np.concatenate(pairs, axis=1)
    label = islands(case.n_node, f, to, np.ones(f.size, bool))
    lost = ~np.isin(label, label[case.source.node])
    if lost.any():
        names = listing(np.array(case.node_names)[lost])
        raise SolverError(f"{case.name}: the source does not reach {names}. Close a switch, or drop these nodes.")
