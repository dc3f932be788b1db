"""`Case`: a network as plain host tables, before anything is padded, scaled or put on a device.

From numeric tables in MATPOWER's column order to a `Case`.

A case of any kind as named arrays, the content of its npz: `bus.id`, `line.r_ohm`, `name`, ...
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from powerzoo_jax.base.errors import CaseError, Problem, listing, printable, render_problems
from powerzoo_jax.base.struct import brief


def flatten(case: Any, tables: Mapping[str, type]) -> dict[str, np.ndarray]:
    """Arrays of a case: its name, base, citation and notes, and every column of its tables."""
    arrays = {
        "name": np.array(case.name),
        "base_mva": np.array(case.base_mva, np.float64),
        "citation": np.array(case.citation),
        "notes": np.array(case.notes, dtype=np.str_),
    }
    for table in tables:
        rows = getattr(case, table)
        arrays |= {f"{table}.{name}": getattr(rows, name) for name in rows.written()}
    return arrays


def rebuild(arrays: Mapping[str, np.ndarray], tables: Mapping[str, type]) -> dict[str, Any]:
    """Keywords of the case that `flatten` took apart."""

    def columns(table: str) -> dict[str, np.ndarray]:
        return {key.partition(".")[2]: value for key, value in arrays.items() if key.startswith(f"{table}.")}

    head = {
        "name": str(arrays["name"]),
        "base_mva": float(arrays["base_mva"]),
        "citation": str(arrays["citation"]),
        "notes": tuple(str(note) for note in arrays["notes"]),
    }
    return head | {table: kind(**columns(table)) for table, kind in tables.items()}


PQ, PV, REF, ISOLATED = 1, 2, 3, 4  # bus kinds
TITLE = 100  # characters of a citation that fit beside its case


def islands(n_bus: int, f: np.ndarray, t: np.ndarray, status: np.ndarray) -> np.ndarray:
    """Island number of every bus, (N,) int64, numbered by their first bus.

    f, t:    (L,) int  positions of the ends of every branch
    status:  (L,) bool  in service

    Every round each island hooks onto the smallest neighbouring label, then paths are halved until flat:
    a feeder of 1000 buses in a row takes some ten rounds, not 1000.
    """
    on = np.asarray(status, np.bool_)
    f, t = np.asarray(f)[on], np.asarray(t)[on]
    label = np.arange(n_bus)
    while np.any(label[f] != label[t]):
        low = np.minimum(label[f], label[t])
        np.minimum.at(label, label[f].copy(), low)
        np.minimum.at(label, label[t].copy(), low)
        np.minimum.at(label, f, low)
        np.minimum.at(label, t, low)
        while np.any(label[label] != label):
            label = label[label]
    return np.unique(label, return_inverse=True)[1].astype(np.int64)


class _Columns:
    """Columns of one length as read-only arrays of a fixed dtype: float64 unless the class says otherwise.

    A column that is left out holds its default, a number or a row of numbers, in every row.
    """

    INTEGER: ClassVar[frozenset[str]] = frozenset()
    BOOLEAN: ClassVar[frozenset[str]] = frozenset()
    ROW: ClassVar[Mapping[str, tuple[int, ...]]] = {}  # shape of one row of a column, for a table that has none

    __repr__ = brief

    def __post_init__(self) -> None:
        lengths = {}
        for item in fields(self):  # type: ignore[arg-type]
            array: np.ndarray = np.array(getattr(self, item.name), dtype=self._dtype(item.name))
            if item.default is not MISSING and array.ndim == np.ndim(item.default):
                array = np.tile(array, (len(self), *[1] * array.ndim))
            if array.shape == (0,):
                array = array.reshape(0, *self.ROW.get(item.name, ()))
            array.setflags(write=False)
            object.__setattr__(self, item.name, array)
            lengths[item.name] = array.shape[0]
        if len(set(lengths.values())) > 1:
            found = listing(f"{name} {n}" for name, n in lengths.items())
            raise CaseError(f"{type(self).__name__} has columns of unequal lengths ({found}). Give one row per entry.")

    def __setstate__(self, state: dict[str, Any]) -> None:
        # NumPy forgets the read-only flag in a pickle, and cases are shared through a cache
        for name, array in state.items():
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))  # type: ignore[arg-type]

    def written(self) -> tuple[str, ...]:
        """Columns that a file must hold: all but those whose every row is the default."""
        return tuple(
            item.name
            for item in fields(self)  # type: ignore[arg-type]
            if item.default is MISSING or np.any(getattr(self, item.name) != np.asarray(item.default))
        )

    def rows(self, kept: np.ndarray) -> Self:
        """The table with some of its rows alone, by a mask or positions."""
        return type(self)(**{item.name: getattr(self, item.name)[kept] for item in fields(self)})  # type: ignore[arg-type]

    @classmethod
    def _dtype(cls, name: str) -> type:
        return np.int64 if name in cls.INTEGER else np.bool_ if name in cls.BOOLEAN else np.float64


@dataclass(frozen=True, eq=False, repr=False)
class BusTable(_Columns):
    """Buses.

    id:              (N,)  int64   external number, unique
    kind:            (N,)  int64   1 PQ, 2 PV, 3 reference, 4 isolated
    gs_mw:           (N,)  [MW]    shunt conductance, consumption at 1 pu
    bs_mvar:         (N,)  [Mvar]  shunt susceptance, injection at 1 pu
    v_init_pu:       (N,)  [pu]    initial magnitude
    angle_init_deg:  (N,)  [deg]   initial angle
    base_kv:         (N,)  [kV]    base voltage
    v_max_pu:        (N,)  [pu]
    v_min_pu:        (N,)  [pu]
    """

    INTEGER = frozenset({"id", "kind"})

    id: np.ndarray
    kind: np.ndarray
    gs_mw: np.ndarray
    bs_mvar: np.ndarray
    v_init_pu: np.ndarray
    angle_init_deg: np.ndarray
    base_kv: np.ndarray
    v_max_pu: np.ndarray
    v_min_pu: np.ndarray


@dataclass(frozen=True, eq=False, repr=False)
class BranchTable(_Columns):
    """Lines, cables and transformers as pi models with an ideal transformer at the from end.

    from_id, to_id:                (L,)  int64   external bus numbers
    r_pu, x_pu, b_pu:              (L,)  [pu]    series resistance, reactance, total charging
    rate_a_mva:                    (L,)  [MVA]   long-term rating, 0 = unlimited
    tap:                           (L,)  [-]     off-nominal ratio, 1 where a file says 0
    shift_deg:                     (L,)  [deg]   phase shift, positive delays the to end
    in_service:                    (L,)  bool
    angle_min_deg, angle_max_deg:  (L,)  [deg]   limits of the angle difference, -360 and 360 = none
    """

    INTEGER = frozenset({"from_id", "to_id"})
    BOOLEAN = frozenset({"in_service"})

    from_id: np.ndarray
    to_id: np.ndarray
    r_pu: np.ndarray
    x_pu: np.ndarray
    b_pu: np.ndarray
    rate_a_mva: np.ndarray
    tap: np.ndarray
    shift_deg: np.ndarray
    in_service: np.ndarray
    angle_min_deg: np.ndarray
    angle_max_deg: np.ndarray


@dataclass(frozen=True, eq=False, repr=False)
class UnitTable(_Columns):
    """Generating units.

    bus_id:                     (G,)    int64   external bus number
    p_mw, q_mvar:               (G,)            initial output
    q_max_mvar, q_min_mvar:     (G,)    [Mvar]  may be infinite
    v_set_pu:                   (G,)    [pu]    voltage set-point
    base_mva:                   (G,)    [MVA]   machine base
    in_service:                 (G,)    bool
    p_max_mw, p_min_mw:         (G,)    [MW]
    cost_model:                 (G,)    int64   0 none, 1 piecewise linear, 2 polynomial
    cost_terms:                 (G,)    int64   number of points (model 1) or coefficients (model 2)
    startup_usd, shutdown_usd:  (G,)    [USD]
    cost:                       (G, K)  x1, y1, x2, y2, ... [MW, USD/h] or highest power first, zero padded
    capability:                 (G, 6)  Pc1, Pc2 [MW], Qc1min, Qc1max, Qc2min, Qc2max [Mvar]: the lines through two
                                        points that limit reactive output; Pc1 = Pc2 for none
    q_per_p:                    (G,)    [-]     ratio that an optimum keeps between reactive and active output, 0 = free
    q_cost_model, q_cost_terms, q_cost: the same for reactive output [Mvar, USD/h]
    """

    INTEGER = frozenset({"bus_id", "cost_model", "cost_terms", "q_cost_model", "q_cost_terms"})
    BOOLEAN = frozenset({"in_service"})

    bus_id: np.ndarray
    p_mw: np.ndarray
    q_mvar: np.ndarray
    q_max_mvar: np.ndarray
    q_min_mvar: np.ndarray
    v_set_pu: np.ndarray
    base_mva: np.ndarray
    in_service: np.ndarray
    p_max_mw: np.ndarray
    p_min_mw: np.ndarray
    cost_model: np.ndarray
    cost_terms: np.ndarray
    startup_usd: np.ndarray
    shutdown_usd: np.ndarray
    cost: np.ndarray
    capability: np.ndarray = (0.0,) * 6  # type: ignore[assignment]
    q_per_p: np.ndarray = 0.0  # type: ignore[assignment]
    q_cost_model: np.ndarray = 0  # type: ignore[assignment]
    q_cost_terms: np.ndarray = 0  # type: ignore[assignment]
    q_cost: np.ndarray = (0.0,)  # type: ignore[assignment]


@dataclass(frozen=True, eq=False, repr=False)
class LoadTable(_Columns):
    """Loads, positive = consumption.

    bus_id:        (D,)  int64   external bus number
    p_mw, q_mvar:  (D,)  [MW], [Mvar]
    """

    INTEGER = frozenset({"bus_id"})

    bus_id: np.ndarray
    p_mw: np.ndarray
    q_mvar: np.ndarray


def note_lines(notes: tuple[str, ...]) -> list[str]:
    """A printed line for each note on what a case or a study does not represent."""
    return [f"note: {note}" for note in notes]


@dataclass(frozen=True, eq=False, repr=False)
class Case:
    """A network on the host: picklable, read-only; change it with `dataclasses.replace`.

    name:      what `load_case` calls it
    base_mva:  [MVA] three-phase power base of the per-unit values
    citation:  where the numbers come from, to be quoted in papers
    notes:     records of the source that the tables cannot express; `validate` repeats them as warnings,
               `run_power_flow` hands them on
    held:      ids of buses whose voltage an AC optimal power flow holds at the set-point of the first unit in service
    """

    name: str
    base_mva: float
    citation: str
    bus: BusTable
    branch: BranchTable
    unit: UnitTable
    load: LoadTable
    notes: tuple[str, ...] = ()
    held: tuple[int, ...] = ()

    def __repr__(self) -> str:
        on, rated = self.branch.in_service, self.branch.rate_a_mva > 0
        load, supply = self.p_load_mw.sum(), self.unit.p_max_mw[self.unit.in_service].sum()
        title = " ".join(self.citation.partition("\n")[0].split())
        levels = listing(f"{kv:g}" for kv in sorted(set(self.bus.base_kv.tolist()), reverse=True))
        lines = [
            f"{self.name}: {self.n_bus} buses at {levels} kV, base {self.base_mva:g} MVA",
            f"branches: {self.n_branch}, {on.sum()} in service, {rated.sum()} with a rating",
            f"units: {self.n_unit}, {supply:g} MW in service",
            f"load: {load:g} MW and {self.q_load_mvar.sum():g} Mvar at {len(self.load)} buses",
            f"source: {title[:TITLE]}",
            *note_lines(self.notes),
        ]
        return printable("\n".join(lines))

    AXES: ClassVar = {"N": "n_bus", "L": "n_branch", "G": "n_unit"}

    @property
    def n_bus(self) -> int:
        return len(self.bus)

    @property
    def n_branch(self) -> int:
        return len(self.branch)

    @property
    def n_unit(self) -> int:
        return len(self.unit)

    @cached_property
    def bus_index(self) -> dict[int, int]:
        """External bus id -> position."""
        return {int(i): k for k, i in enumerate(self.bus.id)}

    @cached_property
    def slack_bus(self) -> np.ndarray:
        """Positions of the buses that balance, (S,) int64; one entry in a well-formed case.

        They are the reference buses (kind 3) with a unit in service. An island whose references have none is balanced
        by its first PV bus that has one, as in `bustypes` of MATPOWER. Where there is no such bus either, the reference
        stays: a point of supply that the tables do not show.
        """
        reference, supplied = self.bus.kind == REF, self.bus_has_unit
        bare = reference & ~supplied
        if not bare.any():
            return np.flatnonzero(reference)
        f, t = self.positions(self.branch.from_id), self.positions(self.branch.to_id)
        known = (f >= 0) & (t >= 0)
        label = islands(self.n_bus, f[known], t[known], self.branch.in_service[known])
        balances = reference & supplied
        for island in np.unique(label[bare]):
            inside = label == island
            if not np.any(balances & inside):
                held = np.flatnonzero(inside & supplied & (self.bus.kind == PV))[:1]
                balances[held if held.size else inside & bare] = True
        return np.flatnonzero(balances)

    @property
    def bus_has_unit(self) -> np.ndarray:
        """Buses with a unit in service, (N,) bool."""
        return np.isin(self.bus.id, self.unit.bus_id[self.unit.in_service])

    def positions(self, bus_ids: np.ndarray) -> np.ndarray:
        """Positions of external bus ids, same shape, int64; -1 where the case has no such bus."""
        index = self.bus_index
        return np.array([index.get(int(i), -1) for i in bus_ids], np.int64)

    @property
    def p_load_mw(self) -> np.ndarray:
        """Active load per bus, (N,) [MW]."""
        return self._per_bus(self.load.p_mw)

    @property
    def q_load_mvar(self) -> np.ndarray:
        """Reactive load per bus, (N,) [Mvar]."""
        return self._per_bus(self.load.q_mvar)

    def _per_bus(self, values: np.ndarray) -> np.ndarray:
        at = self.positions(self.load.bus_id)
        if np.any(at < 0):
            missing = listing(self.load.bus_id[at < 0])
            raise CaseError(f"{self.name}: loads name unknown buses {missing}. Call cases.validate for all problems.")
        return np.bincount(at, values, minlength=self.n_bus).astype(np.float64)


def without_idle_branches(case: Case) -> Case:
    """The case with only its branches in service: open switches carry nothing and need no row."""
    on = case.branch.in_service
    if on.all():
        return case
    return replace(case, branch=case.branch.rows(on))


NO_ANGLE_LIMIT = 360.0  # [deg]
NO_COST = np.zeros((0, 5))


def assemble(
    name: str, base_mva: float, citation: str, tables: Mapping[str, np.ndarray], notes: tuple[str, ...] = ()
) -> Case:
    """Build a case from `bus`, `branch`, `gen` and optional `gencost` tables, columns in MATPOWER's order.

    Normalised: tap 0 -> 1, infinite rating -> 0 (unlimited), an angle limit pair of 0, 0 -> -360, 360.
    Raises CaseError listing ids, kinds and cost records that cannot be read.
    """
    problems = table_problems(tables)
    if problems:
        raise CaseError(render_problems(name, problems))
    bus, branch, gen, cost = tables["bus"], tables["branch"], tables["gen"], tables.get("gencost", NO_COST)
    has_load = (bus[:, 2] != 0) | (bus[:, 3] != 0)
    return Case(
        name=name,
        base_mva=base_mva,
        citation=citation,
        bus=BusTable(bus[:, 0], bus[:, 1], *(bus[:, k] for k in (4, 5, 7, 8, 9, 11, 12))),
        branch=_branches(branch),
        unit=_units(gen, cost),
        load=LoadTable(bus[has_load, 0], bus[has_load, 2], bus[has_load, 3]),
        notes=notes,
    )


def with_power_factors(case: Case) -> Case:
    """The case with MATPOWER's rule for dispatchable loads, which an optimum runs at a constant power factor.

    They are units with Pmin < 0 = Pmax and one reactive limit that is 0: their ratio is the other limit over Pmin.
    """
    u = case.unit
    load = (u.p_min_mw < 0) & (u.p_max_mw == 0) & ((u.q_min_mvar != 0) | (u.q_max_mvar != 0))
    bounded = np.isfinite(u.q_min_mvar) & np.isfinite(u.q_max_mvar)
    tied = load & bounded & ((u.q_min_mvar == 0) | (u.q_max_mvar == 0))
    if not load.any():
        return case
    limit = np.where(u.q_min_mvar == 0, u.q_max_mvar, u.q_min_mvar)  # the one that is not 0
    ratio = np.where(tied, limit, 0.0) / np.where(tied, u.p_min_mw, 1.0)
    notes = dict.fromkeys(case.notes)
    if (load & ~tied).any():
        notes[
            f"dispatchable load {unit_rows(case, load & ~tied)} has no constant power factor, as neither Qmin nor Qmax "
            "is 0: its reactive power is free between them"
        ] = None
    odd = tied & (np.abs(u.q_mvar - ratio * u.p_mw) > POWER_FACTOR_MVAR)
    if odd.any():
        notes[
            f"dispatchable load {unit_rows(case, odd)}: Qg is not of the power factor that its limits give; a power "
            "flow keeps Qg, an optimal dispatch the power factor"
        ] = None
    return replace(case, unit=replace(u, q_per_p=ratio), notes=tuple(notes))


def unit_rows(case: Case, chosen: np.ndarray) -> str:
    """Units by row and bus: `2 (bus 3)`."""
    return listing(f"{k + 1} (bus {case.unit.bus_id[k]})" for k in np.flatnonzero(chosen))


POWER_FACTOR_MVAR = 1e-6  # what MATPOWER allows between Qg and the power factor


def table_problems(tables: Mapping[str, np.ndarray]) -> list[Problem]:
    """Problems that keep `assemble` from building a case; empty = none."""
    cost = tables.get("gencost", NO_COST)
    return _integer_problems(tables["bus"], tables["branch"], tables["gen"]) + _cost_problems(cost, len(tables["gen"]))


def _branches(t: np.ndarray) -> BranchTable:
    low = t[:, 11] if t.shape[1] > 12 else np.zeros(len(t))
    high = t[:, 12] if t.shape[1] > 12 else np.zeros(len(t))
    free = (low == 0) & (high == 0)
    return BranchTable(
        from_id=t[:, 0],
        to_id=t[:, 1],
        r_pu=t[:, 2],
        x_pu=t[:, 3],
        b_pu=t[:, 4],
        rate_a_mva=np.where(np.isposinf(t[:, 5]), 0.0, t[:, 5]),
        tap=np.where(t[:, 8] == 0, 1.0, t[:, 8]),
        shift_deg=t[:, 9],
        in_service=t[:, 10] > 0,
        angle_min_deg=np.where(free, -NO_ANGLE_LIMIT, low),
        angle_max_deg=np.where(free, NO_ANGLE_LIMIT, high),
    )


def _units(t: np.ndarray, cost: np.ndarray) -> UnitTable:
    count = len(t)
    model, terms, values, startup, shutdown = _costs(cost[:count], count)
    q_model, q_terms, q_values, *_ = _costs(cost[count:], count)
    p, q, q_max, q_min, v_set, base = (t[:, k] for k in range(1, 7))
    return UnitTable(
        *(t[:, 0], p, q, q_max, q_min, v_set, base, t[:, 7] > 0, t[:, 8], t[:, 9]),
        *(model, terms, startup, shutdown, values),
        capability=t[:, 10:16] if t.shape[1] >= 16 else np.zeros((count, 6)),
        q_cost_model=q_model,
        q_cost_terms=q_terms,
        q_cost=q_values,
    )


def _costs(rows: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Model, terms, values, cost of starting and of stopping of units; zeros without rows."""
    if not len(rows):
        none = np.zeros(count)
        return none, none, np.zeros((count, 1)), none, none
    model, startup, shutdown, terms = (rows[:, k] for k in range(4))
    used = np.where(model == 1, 2 * terms, terms).astype(np.int64)
    width = max(int(used.max(initial=0)), 1)
    # entries behind a row's own terms are filler of the table, whatever they hold
    values = np.where(np.arange(width) < used[:, None], rows[:, 4 : 4 + width], 0.0)
    return model, terms, values, startup, shutdown


def _integer_problems(bus: np.ndarray, branch: np.ndarray, gen: np.ndarray) -> list[Problem]:
    columns = (
        ("bus", "id", bus[:, 0]),
        ("bus", "kind", bus[:, 1]),
        ("branch", "from_id", branch[:, 0]),
        ("branch", "to_id", branch[:, 1]),
        ("unit", "bus_id", gen[:, 0]),
    )
    problems = []
    for component, field, values in columns:
        # outside int64 a cast would wrap silently; 2**53 is where float64 stops telling integers apart
        bad = np.flatnonzero(~(np.isfinite(values) & (np.abs(values) < 2**53) & (values == np.round(values))))
        if bad.size:
            message = f"column {field} must hold whole numbers, found {listing(values[bad])}."
            rows = tuple(f"row {i + 1}" for i in bad)
            problems.append(Problem(component, field, rows, message, "Renumber the buses."))
    return problems


def _cost_problems(cost: np.ndarray, n_unit: int) -> list[Problem]:
    if len(cost) == 0:
        return []
    if len(cost) not in (n_unit, 2 * n_unit):
        message = f"gencost has {len(cost)} rows for {n_unit} units."
        return [Problem("unit", "cost", (), message, "Give one row per unit (and optionally one more for Q).")]
    model, terms = cost[:, 0], cost[:, 3]
    whole = np.isfinite(terms) & (terms == np.round(terms)) & (terms >= 0)
    needed = np.where(model == 1, 2 * terms, terms)
    bad = np.flatnonzero(~(np.isin(model, (1, 2)) & whole & (needed <= cost.shape[1] - 4)))
    if bad.size == 0:
        return []
    found = listing(f"(model {model[i]:g}, n {terms[i]:g})" for i in bad)
    message = f"gencost cannot be read: {found} with {cost.shape[1] - 4} value columns."
    remedy = "Use model 1 with n points or model 2 with n coefficients, and enough columns."
    return [Problem("unit", "cost", tuple(f"row {i + 1}" for i in bad), message, remedy)]
