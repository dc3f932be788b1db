"""A plain power flow of a Grid2Op grid in any topology for the tests: dense polar Newton from DC angles, in float64.

A busbar is a node s of substation s's first busbar, or N + s of its second. Textbook symbols: S = V conj(Y V),
x = (theta, |V|) where they are unknown, J = dS/dx.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from tests.references.grid2op_world import Grid

ISLAND, DIVERGENCE, REDISPATCH, DATA = "island", "divergence", "redispatch", "data"  # ends of an episode
TOL = 1e-8  # [pu] on the grid's base
MAX_STEPS = 10
AGREED_PU = 1e-6  # of set-points that units of one busbar ask for


class GameOver(Exception):
    """An episode that ends before the data do; `end` is its class."""

    def __init__(self, end: str, reason: str) -> None:
        super().__init__(reason)
        self.end = end


class Injections(NamedTuple):
    """p_unit (G,) [MW], v_unit (G,) [pu], p_load, q_load (E,) [MW, Mvar], p_storage (S,) [MW], charging positive."""

    p_unit: np.ndarray
    v_unit: np.ndarray
    p_load: np.ndarray
    q_load: np.ndarray
    p_storage: np.ndarray


class Flow(NamedTuple):
    """Result in float32: powers [MW, Mvar], voltages [kV], currents [A] at both ends of lines; 0 out of service."""

    in_service: np.ndarray
    p_or: np.ndarray
    q_or: np.ndarray
    v_or: np.ndarray
    a_or: np.ndarray
    p_ex: np.ndarray
    q_ex: np.ndarray
    v_ex: np.ndarray
    a_ex: np.ndarray
    gen_p: np.ndarray
    gen_q: np.ndarray
    gen_v: np.ndarray
    load_v: np.ndarray


class _Nodes(NamedTuple):
    """Node of every element among the busbars in use, -1 where out; `lines` in service; substation of every node."""

    at: dict[str, np.ndarray]
    lines: np.ndarray
    number: int


def _nodes(grid: Grid, topology: np.ndarray, p_storage: np.ndarray) -> _Nodes:
    busbar = {kind: topology[place] for kind, place in grid.place.items()}
    bus = {kind: np.where(b > 0, grid.sub[kind] + grid.n_sub * (b - 1), -1) for kind, b in busbar.items()}
    bus["shunt"] = grid.sub["shunt"]  # no action moves a shunt
    if (bus["unit"] < 0).any() or (bus["load"] < 0).any():
        raise GameOver(ISLAND, "a unit or a load is disconnected")
    if (np.abs(p_storage[bus["storage"] < 0]) > 0).any():
        raise GameOver(ISLAND, "a storage that charges or discharges is disconnected")
    lines = (bus["or"] >= 0) & (bus["ex"] >= 0)
    ends = [bus[kind][lines] for kind in ("or", "ex")]
    others = [bus[kind][bus[kind] >= 0] for kind in ("unit", "load", "storage", "shunt")]
    used = np.unique(np.concatenate([*ends, *others, np.flatnonzero(grid.s_fixed)]))
    number = np.full(2 * grid.n_sub + 1, -1)  # the last entry answers for -1
    number[used] = np.arange(len(used))
    at = {kind: number[b] for kind, b in bus.items()} | {"fixed": number[: grid.n_sub]}
    f, t = at["or"][lines], at["ex"][lines]
    graph = sp.coo_matrix((np.ones(len(f)), (f, t)), (len(used), len(used)))
    if connected_components(graph, directed=False, return_labels=False) > 1:
        raise GameOver(ISLAND, "a busbar in use has no path to the slack")
    return _Nodes(at, lines, len(used))


def _summed(n: int, nodes: np.ndarray, values: np.ndarray) -> np.ndarray:
    out = np.zeros(n, complex)
    np.add.at(out, nodes, values)
    return out


def solve_flow(grid: Grid, topology: np.ndarray, given: Injections) -> Flow:
    """Power flow of a topology. Raises GameOver where a busbar has no path to the slack or Newton's ten steps fail.

    topology:  (D,) busbar of every element, -1 = out
    """
    at, lines, n = _nodes(grid, topology, given.p_storage)
    f, t, unit = at["or"][lines], at["ex"][lines], at["unit"]
    held = np.unique(unit)
    for node in held:
        if np.ptp(given.v_unit[unit == node]) > AGREED_PU:
            raise GameOver(DIVERGENCE, "units of one busbar ask for different voltages")

    s_unit = _summed(n, unit, given.p_unit)
    on = at["storage"] >= 0
    rest = -_summed(n, at["load"], given.p_load + 1j * given.q_load)
    rest -= _summed(n, at["storage"][on], (given.p_storage + 1j * grid.s_storage.imag)[on])
    fixed = np.flatnonzero(grid.s_fixed)
    rest += _summed(n, at["fixed"][fixed], grid.s_fixed[fixed])
    s = (s_unit + rest) / grid.base_mva
    shunt = _summed(n, at["shunt"], grid.s_shunt.conj()) / grid.base_mva

    y = np.diag(shunt)
    y_line = grid.y[:, lines]
    for part, row, col in zip(y_line, (f, f, t, t), (f, t, f, t), strict=True):
        np.add.at(y, (row, col), part)
    slack = unit[grid.slack]
    theta = _dc_angles(grid, lines, f, t, s.real - shunt.real, slack)
    size = np.ones(n)
    size[unit] = given.v_unit
    v = _newton(y, s, theta, size, np.setdiff1d(np.arange(n), [slack]), np.setdiff1d(np.arange(n), held))

    v_f, v_t = v[f], v[t]
    i_f, i_t = y_line[0] * v_f + y_line[1] * v_t, y_line[2] * v_f + y_line[3] * v_t
    rows: dict[str, np.ndarray] = {}
    for end, volt, current in (("or", v_f, i_f), ("ex", v_t, i_t)):
        kv = np.abs(volt) * grid.vn_kv[grid.sub[end][lines]]
        mva = volt * current.conj() * grid.base_mva
        with np.errstate(all="ignore"):
            amps = np.abs(mva) / (np.sqrt(3) * kv) * 1000
        for key, value in (("p", mva.real), ("q", mva.imag), ("v", kv), ("a", amps)):
            rows[f"{key}_{end}"] = np.zeros(grid.n_line)
            rows[f"{key}_{end}"][lines] = value

    fed = v * (y @ v).conj() * grid.base_mva - rest
    p_unit = given.p_unit.astype(float)
    p_unit[grid.slack] += fed[slack].real - s_unit[slack].real
    rows |= {
        "gen_p": p_unit,
        "gen_q": _shared(fed.imag, unit, grid.q_span_mvar),
        "gen_v": np.abs(v)[unit] * grid.vn_kv[grid.sub["unit"]],
        "load_v": np.abs(v)[at["load"]] * grid.vn_kv[grid.sub["load"]],
    }
    return Flow(in_service=lines, **{key: value.astype(np.float32) for key, value in rows.items()})


def _dc_angles(grid: Grid, lines: np.ndarray, f: np.ndarray, t: np.ndarray, p: np.ndarray, slack: int) -> np.ndarray:
    """Angles of the lossless flow with the slack at zero."""
    n, b = len(p), grid.b_dc[lines]
    matrix, p = np.zeros((n, n)), p.copy()
    for row, col, sign in ((f, f, 1), (t, t, 1), (f, t, -1), (t, f, -1)):
        np.add.at(matrix, (row, col), sign * b)
    np.add.at(p, f, grid.shift_rad[lines] * b)
    np.add.at(p, t, -grid.shift_rad[lines] * b)
    free, theta = np.setdiff1d(np.arange(n), [slack]), np.zeros(n)
    theta[free] = _solved(matrix[np.ix_(free, free)], p[free])
    return theta


def _newton(
    y: np.ndarray, s: np.ndarray, theta: np.ndarray, size: np.ndarray, angle: np.ndarray, mag: np.ndarray
) -> np.ndarray:
    """Voltages where P of the nodes `angle` and Q of the nodes `mag` are met within TOL."""
    for step in range(MAX_STEPS + 1):
        v = size * np.exp(1j * theta)
        miss = v * (y @ v).conj() - s
        rest = np.concatenate([miss[angle].real, miss[mag].imag])
        if np.abs(rest).max(initial=0.0) < TOL:
            return v
        if step == MAX_STEPS or not np.isfinite(rest).all():
            break
        current, unit_v = y @ v, v / np.abs(v)
        by_angle = 1j * v[:, None] * (np.diag(current) - y * v).conj()
        by_size = v[:, None] * (y * unit_v).conj() + np.diag(current.conj() * unit_v)
        columns = np.hstack([by_angle[:, angle], by_size[:, mag]])
        jacobian = np.vstack([columns.real[angle], columns.imag[mag]])
        change = _solved(jacobian, -rest)
        theta[angle] += change[: len(angle)]
        size[mag] += change[len(angle) :]
        v = size * np.exp(1j * theta)
        theta, size = np.angle(v), np.abs(v)  # a magnitude below zero is half a turn
    raise GameOver(DIVERGENCE, "Newton's method found no solution in ten steps")


def _solved(matrix: np.ndarray, rhs: np.ndarray) -> np.ndarray:
    try:
        return np.linalg.solve(matrix, rhs)
    except np.linalg.LinAlgError as err:
        raise GameOver(DIVERGENCE, "singular matrix") from err


def _shared(q: np.ndarray, unit: np.ndarray, span: np.ndarray) -> np.ndarray:
    """Reactive power of the units: those of one node share in proportion to their span, equally without one."""
    out = np.zeros(len(unit))
    for node in np.unique(unit):
        here = unit == node
        total = span[here].sum()
        out[here] = q[node] * (span[here] / total if total > 0 and np.isfinite(total) else 1 / here.sum())
    return out
