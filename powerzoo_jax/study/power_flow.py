"""Power flow of one network on the host, by sparse Newton in float64; optimal dispatch, outages, actions on request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from powerzoo_jax.base.errors import BaseLoadError, CaseError, SolverError, listing, printable
from powerzoo_jax.cases import Case, ThreePhaseCase, assert_valid, load_case
from powerzoo_jax.cases.case import ISOLATED, PQ, REF, note_lines
from powerzoo_jax.cases.readers.files import read_grid
from powerzoo_jax.cases.readers.pandapower.convert import NetRows, convert_with_rows
from powerzoo_jax.cases.topology import branch_positions, isolate_unsupplied, live_buses
from powerzoo_jax.opf import ac_opf, prepare_ac_opf
from powerzoo_jax.opf.result import EXPLAIN_OPF, OpfStatus
from powerzoo_jax.powerflow.diagnosis import likely_causes
from powerzoo_jax.powerflow.feeder.factors import nominal_injection
from powerzoo_jax.powerflow.meshed.base_case import (
    admittance,
    held_buses,
    least_voltage,
    solve_base,
    voltage_setpoints,
)
from powerzoo_jax.study.actions import FLOWS_AS_RATINGS, action_table
from powerzoo_jax.study.elements import BranchFlows, Dispatch, element_tables
from powerzoo_jax.study.table import StudyTable

KEPT = 1e-6  # [pu] and share of a rating: what a limit may be passed by before it counts as violated


@dataclass(frozen=True, eq=False)
class NetworkStudy:
    """Solved state of one network as tables, with every limit that it breaks.

    case:            the network
    bus:             id, v_pu, angle_deg, injection and load; after an OPF also the price
    branch:          from, to, powers at both ends, losses, loading in percent of the long-term rating
    unit:            bus, output
    outage:          a row for every branch in service, None unless asked for: lowest voltage, highest loading
    action:          the state as it is, then after every single action, best first, None unless asked for
    v:               (N,) complex [pu], 0 at buses that are not supplied
    p_loss_mw:       losses of all branches
    cost_usd_per_h:  cost of the dispatch, NaN unless it was optimised
    elements:        of a pandapower net: its own elements by index, `res_bus`, `res_line`, `res_trafo`, ...
    notes:           what of the source the study does not represent, a phrase each; those of the case come first
    """

    case: Case
    bus: StudyTable
    branch: StudyTable
    unit: StudyTable
    outage: StudyTable | None
    action: StudyTable | None
    v: np.ndarray
    p_loss_mw: float
    cost_usd_per_h: float
    elements: Mapping[str, StudyTable] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def tables(self) -> dict[str, StudyTable]:
        """The tables by name."""
        every = (self.bus, self.branch, self.unit, self.outage, self.action)
        return {table.name: table for table in every if table is not None}

    @property
    def violations(self) -> tuple[str, ...]:
        """A phrase for every limit that is broken, outages included; what an action would break is no violation."""
        return tuple(
            f"{name} {' - '.join(row[: 2 if name == 'branch' else 1])}: {row[-1]}"
            for name, table in self.tables.items()
            if name != "action"
            for row in table.text_rows(len(table))
            if row[-1]
        )

    def to_frame(self, table: str = "bus") -> Any:
        """One of the tables, or of those of a net's elements, as a data frame; needs pandas."""
        tables = {**self.tables, **self.elements}
        if table not in tables:
            raise ValueError(f"There is no table {table!r}; this study has {', '.join(tables)}.")
        return tables[table].to_frame()

    def summary(self) -> str:
        """Totals in one line each, and the notes."""
        load, out = complex(self.case.p_load_mw.sum(), self.case.q_load_mvar.sum()), self.unit["p_mw"].sum()
        at_low, at_high = np.argmin(np.where(self.v == 0, np.inf, np.abs(self.v))), np.argmax(np.abs(self.v))
        lines = [
            f"{self.case.name}: {self.case.n_bus} buses, {self.case.n_branch} branches, {self.case.n_unit} units",
            f"load {load.real:.3f} MW and {load.imag:.3f} Mvar, output {out:.3f} MW, losses {self.p_loss_mw:.3f} MW",
            f"voltages from {abs(self.v[at_low]):.4f} pu at bus {self.case.bus.id[at_low]} to "
            f"{abs(self.v[at_high]):.4f} pu at bus {self.case.bus.id[at_high]}",
        ]
        if np.isfinite(self.cost_usd_per_h):
            lines.append(f"cost {self.cost_usd_per_h:.2f} USD/h")
        return "\n".join([*lines, f"violations: {len(self.violations)}", *note_lines(self.notes)])

    def __repr__(self) -> str:
        return printable(self.summary())


def run_power_flow(
    case: Any,
    *,
    opf: bool = False,
    n_minus_1: bool = False,
    actions: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> NetworkStudy:
    """Power flow of a network at the loads, outputs and set-points of its tables.

    case:       a case, a grid file (.m, pandapower .json), the name of a shipped case, a net of pandapower or PyPSA
    opf:        dispatch units at least cost within all limits (AC optimal power flow) instead of as given
    n_minus_1:  repeat it without each branch in service
    actions:    repeat it after every single action: a branch opened or closed, a substation in another of its
                `configurations`; ranked by the largest loading, then overload, then losses
    progress:   called with the number of outages solved and that of all

    Newton's method on the sparse admittance matrix, in float64: the mismatch ends below 1e-11 pu. Every reference bus
    keeps the magnitude and the angle of its table, several in one island too; one without a unit in service gives way
    to the first PV bus of its island that has one, which the notes tell. Units share what
    their bus delivers: at the slack bus the first in service takes what is left of the active power, and reactive power
    is divided in proportion to the range of each. Reactive limits mark a violation, they do not release the voltage.

    Raises CaseError for a grid that cannot be used and for an unbalanced feeder, BaseLoadError naming likely causes
    where no power flow is found, SolverError where no dispatch is.

    Example:
        study = run_power_flow("case14", n_minus_1=True)
        print(study, study.violations)
    """
    given, rows = _grid(case, opf)
    # the case with the buses that balance as its references, so that an outage leaves none that delivers by itself
    kind = np.where(given.bus.kind == REF, PQ, given.bus.kind)
    kind[given.slack_bus] = REF
    grid = given if np.array_equal(kind, given.bus.kind) else replace(given, bus=replace(given.bus, kind=kind))
    dispatch = _optimal(grid) if opf else _as_given(grid)
    flows, unrated = branch_flows(grid, dispatch.v), not grid.branch.rate_a_mva.any()
    return NetworkStudy(
        case=grid,
        bus=_bus_table(grid, dispatch),
        branch=_branch_table(grid, flows),
        unit=_unit_table(grid, dispatch),
        outage=_outage_table(grid, dispatch, progress) if n_minus_1 else None,
        action=action_table(_dispatched(grid, dispatch) if opf else grid, KEPT) if actions else None,
        v=dispatch.v,
        p_loss_mw=float((flows.s_from + flows.s_to).real.sum()),
        cost_usd_per_h=dispatch.cost_usd_per_h,
        elements={} if rows is None else element_tables(grid, rows, flows, dispatch),
        notes=(*grid.notes, *_notes(given, grid, dispatch), *([FLOWS_AS_RATINGS] if actions and unrated else [])),
    )


def _grid(case: Any, opf: bool) -> tuple[Case, NetRows | None]:
    """Balanced network that was asked for, valid, and where the elements of a net stand in it."""
    grid, rows = case, None
    if isinstance(case, str | Path):
        grid = read_grid(case, opf=opf)
    elif isinstance(case, Mapping) and "bus" in case and "ext_grid" in case:
        grid, rows = convert_with_rows(case, opf=opf)
    elif type(case).__module__.startswith("pypsa."):
        grid = load_case(case)
    if isinstance(grid, ThreePhaseCase):
        raise CaseError(
            f"{grid.name} is an unbalanced feeder, this study is of balanced networks. "
            "Use powerflow.prepare_threephase and powerflow.solve_threephase."
        )
    if not isinstance(grid, Case):
        raise CaseError(f"A study takes a Case, a grid file or a name, not {type(grid).__name__}. Use load_case.")
    assert_valid(grid)
    return grid, rows


def _notes(given: Case, case: Case, dispatch: Dispatch) -> Iterator[str]:
    """References without a unit, with the buses that balance instead, and buses on the low-voltage branch."""
    before, after = given.bus.kind == REF, case.bus.kind == REF
    if (before & ~after).any():
        moved = f", bus {listing(case.bus.id[after & ~before])} balances instead" if (after & ~before).any() else ""
        yield f"reference bus {listing(case.bus.id[before & ~after])} has no unit in service{moved}"
    size = np.abs(dispatch.v)
    low = live_buses(case) & (size < least_voltage(case, voltage_setpoints(case)))
    if low.any() and np.isnan(dispatch.cost_usd_per_h):
        found = listing(f"{case.bus.id[k]} ({size[k]:.4f} pu)" for k in np.flatnonzero(low))
        yield f"bus {found} stands on the low-voltage branch; no start (flat, DC, without load, as given) leads higher"


def _as_given(case: Case) -> Dispatch:
    """State at the loads, outputs and set-points of the case; BaseLoadError with likely causes where there is none."""
    s = nominal_injection(case)
    try:
        v = solve_base(case, s, voltage_setpoints(case))
    except BaseLoadError as err:
        causes = "\n".join(f"- {cause}" for cause in likely_causes(case, s.real, s.imag))
        raise BaseLoadError(f"{err}\nLikely causes:\n{causes}" if causes else str(err)) from err
    v = np.where(live_buses(case), v, 0)
    return Dispatch(v, *_unit_output(case, v), np.full(case.n_bus, np.nan), float("nan"))


def branch_flows(case: Case, v: np.ndarray) -> BranchFlows:
    """Powers [MVA] that enter the branches at bus voltages v (N,) complex [pu], from the pi model of each."""
    f, t = branch_positions(case)
    b = case.branch
    y = np.where(b.in_service, 1 / np.where(b.in_service, b.r_pu + 1j * b.x_pu, 1), 0)
    charging = 0.5j * b.b_pu * b.in_service
    a = b.tap * np.exp(1j * np.deg2rad(b.shift_deg))
    inside = v[f] / a
    current = y * (inside - v[t])
    return BranchFlows(
        case.base_mva * inside * np.conj(current + charging * inside),
        case.base_mva * v[t] * np.conj(charging * v[t] - current),
    )


def _delivered(case: Case, v: np.ndarray) -> np.ndarray:
    """Power (N,) complex [MVA] that the units of every bus deliver: what enters the network, and the load."""
    s = case.base_mva * v * np.conj(admittance(case) @ v)
    return np.where(live_buses(case), s + case.p_load_mw + 1j * case.q_load_mvar, 0)


def _unit_output(case: Case, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Output (G,) [MW], [Mvar] of units at the voltages of a power flow."""
    u, at = case.unit, case.positions(case.unit.bus_id)
    on = u.in_service & live_buses(case)[at]
    p, q = np.where(on, u.p_mw, 0.0), np.where(on, u.q_mvar, 0.0)
    delivered = _delivered(case, v)
    for bus in case.slack_bus:
        first, *rest = np.flatnonzero(on & (at == bus)) if np.any(on & (at == bus)) else (None,)
        if first is not None:
            p[first] = delivered[bus].real - p[rest].sum()
    for bus in np.flatnonzero(held_buses(case)):
        members = np.flatnonzero(on & (at == bus))
        if members.size:
            q[members] = _by_range(delivered[bus].imag, u.q_min_mvar[members], u.q_max_mvar[members])
    return p, q


def _by_range(total: float, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Share of each unit, at the same fraction of its range; equal shares where a range has no ends or no width."""
    width = high - low
    if np.isfinite(width).all() and width.sum() > 0:
        return np.asarray(low + (total - low.sum()) * width / width.sum())
    return np.full(len(low), total / len(low))


def _optimal(case: Case) -> Dispatch:
    """State of least cost within all limits; SolverError where none is found."""
    with jax.enable_x64(True):
        factors = prepare_ac_opf(case, dtype="float64")
        solve = jax.jit(partial(ac_opf, shedding=False))
        result = solve(factors, jnp.asarray(case.p_load_mw), jnp.asarray(case.q_load_mvar))
        result = jax.tree.map(np.asarray, result)
    if not bool(result.optimal):
        reason = EXPLAIN_OPF[OpfStatus(int(result.status))]
        raise SolverError(f"{case.name} has no optimal dispatch: {reason} Leave out opf to see what limits it breaks.")
    v = np.where(live_buses(case), result.v_pu * np.exp(1j * result.angle_rad), 0)
    return Dispatch(v, result.unit_power_mw, result.unit_reactive_mvar, result.lmp, float(result.generation_cost))


def _dispatched(case: Case, dispatch: Dispatch) -> Case:
    """Case whose units deliver a dispatch and hold the voltages that it has."""
    v_set = np.abs(dispatch.v)[case.positions(case.unit.bus_id)]
    unit = replace(case.unit, p_mw=dispatch.p_mw, q_mvar=dispatch.q_mvar, v_set_pu=v_set)
    return replace(case, unit=unit)


def _bus_table(case: Case, dispatch: Dispatch) -> StudyTable:
    v, lmp, live, size = dispatch.v, dispatch.lmp, live_buses(case), np.abs(dispatch.v)
    s = case.base_mva * v * np.conj(admittance(case) @ v)
    columns = {
        "bus": case.bus.id,
        "v_pu": np.where(live, size, np.nan),
        "angle_deg": np.where(live, np.rad2deg(np.angle(v)), np.nan),
        "p_mw": np.where(live, s.real, 0.0),
        "q_mvar": np.where(live, s.imag, 0.0),
        "p_load_mw": case.p_load_mw,
        "q_load_mvar": case.q_load_mvar,
    }
    units = dict(zip(columns, ("", "pu", "deg", "MW", "Mvar", "MW", "Mvar"), strict=True))
    if np.isfinite(lmp).any():
        columns, units = columns | {"lmp": lmp}, units | {"lmp": "USD/MWh"}
    words = np.full(case.n_bus, "", object)
    words[live & (size < case.bus.v_min_pu - KEPT)] = "below v_min"
    words[live & (size > case.bus.v_max_pu + KEPT)] = "above v_max"
    words[~live & (case.bus.kind != ISOLATED)] = "not supplied"
    by_unit = case.bus_has_unit | ~np.isin(np.arange(case.n_bus), case.slack_bus)
    for bus in np.flatnonzero(~by_unit & (np.abs(_delivered(case, v)) > KEPT * case.base_mva)):
        words[bus] = f"{words[bus]}, supplied by no unit".lstrip(", ")
    return StudyTable("bus", columns, units, tuple(words))


def loadings(case: Case, flows: BranchFlows) -> np.ndarray:
    """Larger apparent power of both ends in percent of the long-term rating, (L,); NaN without one."""
    rate = case.branch.rate_a_mva
    size = np.maximum(np.abs(flows.s_from), np.abs(flows.s_to))
    return np.where(rate > 0, 100 * size / np.where(rate > 0, rate, 1), np.nan)


def _branch_table(case: Case, flows: BranchFlows) -> StudyTable:
    loading = loadings(case, flows)
    columns = {
        "from": case.branch.from_id,
        "to": case.branch.to_id,
        "p_from_mw": flows.s_from.real,
        "q_from_mvar": flows.s_from.imag,
        "p_to_mw": flows.s_to.real,
        "q_to_mvar": flows.s_to.imag,
        "p_loss_mw": (flows.s_from + flows.s_to).real,
        "loading": loading,
    }
    units = dict(zip(columns, ("", "", "MW", "Mvar", "MW", "Mvar", "MW", "%"), strict=True))
    words = np.where(np.nan_to_num(loading) > 100 * (1 + KEPT), "overloaded", "")
    return StudyTable("branch", columns, units, tuple(words))


def _unit_table(case: Case, dispatch: Dispatch) -> StudyTable:
    u, slack = case.unit, KEPT * case.base_mva
    on = u.in_service
    marks = (
        (dispatch.p_mw < u.p_min_mw - slack, "below p_min"),
        (dispatch.p_mw > u.p_max_mw + slack, "above p_max"),
        (dispatch.q_mvar < u.q_min_mvar - slack, "below q_min"),
        (dispatch.q_mvar > u.q_max_mvar + slack, "above q_max"),
        (_beyond_curve(case, dispatch, slack), "beyond its capability curve"),
    )
    words = tuple(", ".join(word for broken, word in marks if on[k] and broken[k]) for k in range(case.n_unit))
    columns = {"bus": u.bus_id, "in_service": on, "p_mw": dispatch.p_mw, "q_mvar": dispatch.q_mvar}
    return StudyTable("unit", columns, dict(zip(columns, ("", "", "MW", "Mvar"), strict=True)), words)


def _beyond_curve(case: Case, dispatch: Dispatch, slack: float) -> np.ndarray:
    """Units (G,) whose reactive output lies outside of the lines of their capability curve."""
    p1, p2, low_1, high_1, low_2, high_2 = case.unit.capability.T
    given = p1 != p2
    way = (dispatch.p_mw - p1) / np.where(given, p2 - p1, 1.0)
    low, high = low_1 + way * (low_2 - low_1), high_1 + way * (high_2 - high_1)
    return np.asarray(given & ((dispatch.q_mvar < low - slack) | (dispatch.q_mvar > high + slack)))


class OutageState(NamedTuple):
    """Worst of the network after an outage: NaN where there is no power flow or no rating."""

    v_min_pu: float
    at_bus: int
    loading: float
    on_branch: str
    cut_off_mw: float
    words: str


def _outage_table(case: Case, dispatch: Dispatch, progress: Callable[[int, int], None] | None) -> StudyTable:
    """Power flow without each branch in service, units as dispatched and the slack balancing."""
    out = np.flatnonzero(case.branch.in_service)
    states = list(_outages(_dispatched(case, dispatch), out, progress))
    columns = {
        "from": case.branch.from_id[out],
        "to": case.branch.to_id[out],
        "v_min_pu": np.array([s.v_min_pu for s in states], float),
        "at_bus": np.array([s.at_bus for s in states]),
        "loading": np.array([s.loading for s in states], float),
        "on_branch": np.array([s.on_branch for s in states], object),
        "cut_off_mw": np.array([s.cut_off_mw for s in states], float),
    }
    units = dict(zip(columns, ("", "", "pu", "", "%", "", "MW"), strict=True))
    return StudyTable("outage", columns, units, tuple(s.words for s in states))


def _outages(case: Case, out: np.ndarray, progress: Callable[[int, int], None] | None) -> Iterator[OutageState]:
    for done, branch in enumerate(out, 1):
        yield _outage(case, branch)
        if progress is not None:
            progress(done, len(out))


def _outage(case: Case, branch: int) -> OutageState:
    on = case.branch.in_service.copy()
    on[branch] = False
    left = isolate_unsupplied(replace(case, branch=replace(case.branch, in_service=on)))
    live = live_buses(left)
    lost = float(case.p_load_mw[live_buses(case) & ~live].sum())
    try:
        v = np.where(live, solve_base(left, nominal_injection(left), voltage_setpoints(left)), 0)
    except BaseLoadError:
        return OutageState(np.nan, -1, np.nan, "-", lost, "no power flow")
    size, loading = np.where(live, np.abs(v), np.inf), loadings(left, branch_flows(left, v))
    low = int(size.argmin())
    heavy = int(np.nan_to_num(loading, nan=-1.0).argmax())
    b = left.bus
    broken = (
        (lost > 0, "load cut off"),
        (np.any(live & (size < b.v_min_pu - KEPT)), "below v_min"),
        (np.any(live & (np.abs(v) > b.v_max_pu + KEPT)), "above v_max"),
        (np.nan_to_num(loading[heavy]) > 100 * (1 + KEPT), "overloaded"),
    )
    rated = bool(np.isfinite(loading[heavy]))
    return OutageState(
        v_min_pu=float(size[low]),
        at_bus=int(b.id[low]),
        loading=float(loading[heavy]),
        on_branch=f"{left.branch.from_id[heavy]}-{left.branch.to_id[heavy]}" if rated else "-",
        cut_off_mw=lost,
        words=listing(word for is_broken, word in broken if is_broken),
    )
