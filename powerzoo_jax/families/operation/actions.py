"""Actions on a grid as rows of a table: Grid2Op's dicts of actions to `GridAction` and back, and choices of rows.

Host only, in NumPy. Element order as in `types`; a topology vector of Grid2Op goes substation by substation, in each
first the line ends in the order of lines, then units, loads, storages.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from powerzoo_jax.base.errors import excerpt, unknown
from powerzoo_jax.base.numerics import FLOAT
from powerzoo_jax.families.operation.types import Fleet, GridAction

# key of an action -> field of `GridAction`, kind of element, value of "as it is", least and largest value
FIELDS: dict[str, tuple[str, str, float, float, float]] = {
    "set_line_status": ("set_line", "line", 0, -1, 1),
    "change_line_status": ("switch_line", "line", 0, 0, 1),
    "redispatch": ("redispatch", "unit", 0, -np.inf, np.inf),
    "curtail": ("curtail", "unit", -1, -1, np.inf),
    "set_storage": ("storage", "storage", 0, -np.inf, np.inf),
}
BUSBARS = {"set_bus": "set_busbar", "change_bus": "change_busbar"}
LIMITS = {"set_bus": (-1, 2), "change_bus": (0, 1)}
KEYS = (*FIELDS, *BUSBARS)
ENDS = {"lines_or_id": "line", "lines_ex_id": "line", "generators_id": "unit", "loads_id": "load"}
ENDS |= {"storages_id": "storage"}  # parts of set_bus and change_bus, in the order of elements
SUBSTATIONS = "substations_id"
MOST = 512  # busbar settings of a table, base ones included
BINS = 7  # of redispatch, storage and curtailment in Grid2Op's discrete spaces
LEAST_CURTAILED = 0.5  # share of Pmax, the first of these bins
# classes of actions -> their keys; a class named Action... is that of a competition, which takes all of them
CLASSES: dict[str, tuple[str, ...]] = {
    "DontAct": (),
    "DispatchAction": ("redispatch",),
    "PowerlineSetAction": ("set_line_status",),
    "PowerlineChangeAction": ("change_line_status",),
    "PowerlineSetAndDispatchAction": ("set_line_status", "redispatch"),
    "PowerlineChangeAndDispatchAction": ("change_line_status", "redispatch"),
    "PowerlineChangeDispatchAndStorageAction": ("change_line_status", "redispatch", "set_storage"),
    "TopologySetAction": ("set_line_status", "set_bus"),
    "TopologyChangeAction": ("change_line_status", "change_bus"),
    "TopologySetAndDispatchAction": ("set_line_status", "set_bus", "redispatch"),
    "TopologyChangeAndDispatchAction": ("change_line_status", "change_bus", "redispatch"),
    "TopologyAction": ("set_line_status", "change_line_status", "set_bus", "change_bus"),
    "TopologyAndDispatchAction": ("set_line_status", "change_line_status", "set_bus", "change_bus", "redispatch"),
    "PlayableAction": KEYS,
    "CompleteAction": KEYS,
}


class ElementNames(NamedTuple):
    """Names of the elements of a grid, and the substation of each.

    line, unit, load, storage:  names        sub: (E,) int
    """

    line: tuple[str, ...]
    unit: tuple[str, ...]
    load: tuple[str, ...]
    storage: tuple[str, ...]
    sub: np.ndarray

    @property
    def first(self) -> dict[str, int]:
        """First element of each part of set_bus."""
        sizes = [len(getattr(self, kind)) for kind in ENDS.values()]
        return dict(zip(ENDS, np.cumsum([0, *sizes[:-1]]).tolist(), strict=True))

    @property
    def order(self) -> np.ndarray:
        """Element at each position of a topology vector, (E,)."""
        number = np.concatenate([np.arange(len(getattr(self, kind))) for kind in ENDS.values()])
        rank = np.concatenate([np.full(len(getattr(self, kind)), i) for i, kind in enumerate(ENDS.values())])
        end = np.where(rank < 2, 0, rank)
        return np.lexsort((rank, number, end, self.sub))

    def members(self) -> list[np.ndarray]:
        """ElementNames of each substation in the order of a topology vector."""
        return [self.order[self.sub[self.order] == s] for s in range(int(self.sub.max()) + 1)]


def blank(elements: ElementNames, count: int) -> GridAction:
    """Actions (M, ..) that change nothing."""
    lines, places, units = len(elements.line), len(elements.sub), len(elements.unit)

    def full(width: int, value: Any, dtype: Any) -> Any:
        return np.full((count, width), value, dtype)

    return GridAction(
        set_line=full(lines, 0, np.int8),
        switch_line=full(lines, False, bool),
        set_busbar=full(places, 0, np.int8),
        change_busbar=full(places, False, bool),
        redispatch=full(units, 0, FLOAT),
        curtail=full(units, -1, FLOAT),
        storage=full(len(elements.storage), 0, FLOAT),
    )


def join(tables: Sequence[GridAction]) -> GridAction:
    """Tables one below the other."""
    return jax.tree.map(lambda *parts: np.concatenate(parts), *tables)  # type: ignore[no-any-return]


def keys_of(action_class: str) -> tuple[str, ...]:
    """Keys that a class of actions takes. Raises ValueError for a class that is not Grid2Op's own."""
    if action_class in CLASSES:
        return CLASSES[action_class]
    if action_class.startswith("Action"):
        return KEYS
    raise ValueError(unknown("class of actions", action_class, CLASSES))


# From Grid2Op's dicts and back


def from_dict(elements: ElementNames, action: Mapping[str, Any]) -> GridAction:
    """Action given as the dict that Grid2Op's action space takes.

    ElementNames go by number or name: a full vector, a pair (element, value), a list of pairs, a dict; a change also by
    one element or a list of them. Raises ValueError for an unknown key, name or number, a wrong length or value.
    """
    orders = jax.tree.map(lambda x: x[0], blank(elements, 1))
    for key, value in action.items():
        if key in BUSBARS:
            _set_busbars(getattr(orders, BUSBARS[key]), elements, key, value)
        elif key in FIELDS:
            name, kind, _, low, high = FIELDS[key]
            _fill(getattr(orders, name), getattr(elements, kind), value, key, (low, high))
        else:
            raise ValueError(unknown("key of an action", key, KEYS))
    return orders  # type: ignore[no-any-return]


def to_dict(orders: GridAction) -> dict[str, Any]:
    """Dict for Grid2Op's action space of one action, elements by number; empty where nothing changes."""
    found: dict[str, Any] = {}
    for key, (name, _, rest, _, _) in FIELDS.items():
        values = np.asarray(getattr(orders, name))
        if (values != rest).any():
            found[key] = _pairs(values, values != rest)
    lines, units, storages = (len(np.asarray(x)) for x in (orders.set_line, orders.redispatch, orders.storage))
    for key, name in BUSBARS.items():
        values = np.asarray(getattr(orders, name))
        ends = np.cumsum([lines, lines, units, len(values) - 2 * lines - units - storages])
        parts = dict(zip(ENDS, np.split(values, ends), strict=True))
        if values.any():
            found[key] = {part: _pairs(x, x != 0) for part, x in parts.items() if x.any()}
    return found


def to_grid2op(sim: Any, index: int) -> dict[str, Any]:
    """Dict for Grid2Op's action space of an action of a world, by its row. Raises ValueError for a row it lacks."""
    table = sim.params.table
    if not 0 <= index < len(table.set_line):
        raise ValueError(f"action {index} is not in the table, which has rows 0 to {len(table.set_line) - 1}.")
    return to_dict(jax.tree.map(lambda x: np.asarray(x[index]), table))


def _pairs(values: np.ndarray, which: np.ndarray) -> list[Any]:
    """ElementNames and their values, elements alone where values are flags."""
    ids = np.flatnonzero(which).tolist()
    return ids if values.dtype == bool else list(zip(ids, values[which].tolist(), strict=True))


def _set_busbars(into: np.ndarray, elements: ElementNames, key: str, value: Any) -> None:
    limits = LIMITS[key]
    if not isinstance(value, Mapping):  # by position in the topology vector
        placed = np.zeros_like(into)
        _fill(placed, (), value, key, limits)
        into[elements.order] = placed
        return
    for part, given in value.items():
        where = f"{key} {part}"
        if part in ENDS:
            first, names = elements.first[part], getattr(elements, ENDS[part])
            _fill(into[first : first + len(names)], names, given, where, limits)
        elif part == SUBSTATIONS:
            members = elements.members()
            for pair in [given] if isinstance(given, tuple) else given:
                if not isinstance(pair, tuple | list) or len(pair) != 2:
                    raise ValueError(f"{where}: {excerpt(pair)} is no pair (substation, busbars of its elements).")
                sub = _position(pair[0], tuple(f"sub_{k}" for k in range(len(members))), len(members), where)
                one = np.zeros(len(members[sub]), into.dtype)
                _fill(one, (), np.asarray(pair[1]), f"{where} {sub}", limits)
                into[members[sub][one != 0]] = one[one != 0]
        else:
            raise ValueError(unknown(f"part of {key}", part, (*ENDS, SUBSTATIONS)))


def _position(element: Any, names: Sequence[str], count: int, where: str) -> int:
    if isinstance(element, str):
        if element not in names:
            raise ValueError(f"{where}: {unknown('element', element, names)}")
        return names.index(element)
    if isinstance(element, bool | np.bool_) or not isinstance(element, int | np.integer):
        raise ValueError(f"{where}: {excerpt(element)} is neither the number nor the name of an element.")
    if not 0 <= element < count:
        raise ValueError(f"{where}: there is no element {element}; they are numbered 0 to {count - 1}.")
    return int(element)


def _fill(into: np.ndarray, names: Sequence[str], value: Any, where: str, limits: tuple[float, float]) -> None:
    """Values of a full vector, or of elements one by one, into an array of flags or numbers."""
    flags, count = into.dtype == bool, len(into)
    single = isinstance(value, str | int | np.integer) and not isinstance(value, bool)
    if single or (isinstance(value, tuple) and len(value) == 2 and not flags):
        value = [value]
    items = list(value.items()) if isinstance(value, Mapping) else value
    vector = np.asarray(items) if not isinstance(items, list | tuple) or not _listed(items, flags) else None
    if vector is not None:
        if vector.shape != (count,):
            raise ValueError(f"{where}: a vector of shape {vector.shape}, expected one number for each of {count}.")
        pairs = list(enumerate(vector.tolist()))
    else:
        pairs = [(item, True) if flags and not isinstance(item, tuple) else item for item in items]
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise ValueError(f"{where}: {excerpt(pair)} is no pair (element, value).")
        k, number = _position(pair[0], names, count, where), pair[1]
        known = isinstance(number, bool | int | float | np.number | np.bool_) and np.isfinite(number)
        whole = into.dtype.kind == "f" or (known and number == int(number))
        if not known or not whole or not limits[0] <= number <= limits[1]:
            wanted = "a finite number" if into.dtype.kind == "f" else f"a whole one of {limits[0]} to {limits[1]}"
            raise ValueError(f"{where}: element {pair[0]} has {excerpt(number)}, expected {wanted}.")
        into[k] = number


def _listed(items: Sequence[Any], flags: bool) -> bool:
    """Whether a sequence names elements; else it is a full vector."""
    kinds = (tuple, list, str) if not flags else (tuple, list, str, int, np.integer)
    return all(isinstance(item, kinds) and not isinstance(item, bool) for item in items)


# Tables


def line_rows(elements: ElementNames, keys: Collection[str]) -> GridAction:
    """Actions on one line: each changes its status, or where only that can be done each opens, then each closes."""
    n = len(elements.line)
    if "change_line_status" in keys:
        return blank(elements, n).replace(switch_line=np.eye(n, dtype=bool))  # type: ignore[attr-defined, no-any-return]
    if "set_line_status" not in keys:
        return blank(elements, 0)
    eye = np.eye(n, dtype=np.int8)
    return blank(elements, 2 * n).replace(set_line=np.concatenate([-eye, eye]))  # type: ignore[attr-defined, no-any-return]


def busbar_settings(elements: ElementNames) -> np.ndarray:
    """Settings (K, E) of the busbars of a substation each, 0 elsewhere, in the order and number of Grid2Op's own.

    The first element stands on busbar 1, and every busbar in use has a line end. The first of a substation is its
    base setting, all on busbar 1; substations with no other are left out.
    """
    rows, lines = [], 2 * len(elements.line)
    for members in elements.members():
        codes = _codes(len(members))
        second = codes[:, members < lines] == 1
        codes = codes[~second.all(axis=1) & (second.any(axis=1) | ~codes.any(axis=1))]
        if len(codes) > 1:
            row = np.zeros((len(codes), len(elements.sub)), np.int8)
            row[:, members] = 1 + codes
            rows.append(row)
    return np.concatenate([np.zeros((0, len(elements.sub)), np.int8), *rows])


def _codes(n: int) -> np.ndarray:
    """All rows (2^(n-1), n) of 0 and 1 that begin with 0, in lexicographic order."""
    return ((np.arange(2 ** (n - 1))[:, None] >> np.arange(n)[::-1]) & 1).astype(np.int8)


def discrete(elements: ElementNames, keys: Collection[str], fleet: Fleet) -> GridAction:
    """All actions of Grid2Op's `DiscreteActSpace` under its ids, for a class of actions with these keys."""
    make: dict[str, Callable[[], GridAction]] = {
        "change_bus": partial(_change_rows, elements),
        "change_line_status": partial(line_rows, elements, ("change_line_status",)),
        "curtail": partial(_curtail_rows, elements, fleet),
        "redispatch": partial(_ramp_rows, elements, "redispatch", _ramps(fleet)),
        "set_bus": lambda: _set_rows(elements, busbar_settings(elements)),
        "set_line_status": partial(_status_rows, elements),
        "set_storage": partial(_ramp_rows, elements, "storage", (fleet.produced_mw, fleet.absorbed_mw)),
    }
    return join([blank(elements, 1), *(make[key]() for key in sorted(make) if key in keys)])


def _set_rows(elements: ElementNames, settings: np.ndarray) -> GridAction:
    return blank(elements, len(settings)).replace(set_busbar=settings)  # type: ignore[attr-defined, no-any-return]


def _change_rows(elements: ElementNames) -> GridAction:
    rows = [np.zeros((0, len(elements.sub)), bool)]
    for members in elements.members():
        codes = _codes(len(members))[1:]
        rows.append(np.zeros((len(codes), len(elements.sub)), bool))
        rows[-1][:, members] = codes
    found = np.concatenate(rows)
    return blank(elements, len(found)).replace(change_busbar=found)  # type: ignore[attr-defined, no-any-return]


def _status_rows(elements: ElementNames) -> GridAction:
    """Each line opens; then each closes with its to end on busbar 1 or 2, and for each of them its from end."""
    n, eye = len(elements.line), np.eye(len(elements.line), dtype=np.int8)
    rest = np.zeros((n, len(elements.sub) - 2 * n), np.int8)
    ends = [np.concatenate([a * eye, b * eye, rest], axis=1) for b in (1, 2) for a in (1, 2)]
    busbars = np.concatenate([np.zeros((n, len(elements.sub)), np.int8), *ends])
    status = np.concatenate([-eye, *([eye] * 4)])
    return blank(elements, 5 * n).replace(set_line=status, set_busbar=busbars)  # type: ignore[attr-defined, no-any-return]


def _ramps(fleet: Fleet) -> tuple[np.ndarray, np.ndarray]:
    """Largest redispatch of a step down and up, 0 of units that have none."""
    can = np.asarray(fleet.redispatchable)
    return np.where(can, fleet.ramp_down_mw, 0), np.where(can, fleet.ramp_up_mw, 0)


def _ramp_rows(elements: ElementNames, name: str, limits: tuple[Any, Any]) -> GridAction:
    """Bins of powers up to the limits, one unit after the other; units without limits are left out."""
    rows = []
    down, up = (np.asarray(limit, FLOAT) for limit in limits)
    for k in np.flatnonzero((down > 0) | (up > 0) if name == "redispatch" else np.ones(len(down), bool)):
        bins = np.concatenate([np.linspace(0, up[k], BINS)[1:], np.linspace(-down[k], 0, BINS)[:-1]])
        rows.append(np.where(np.arange(len(down)) == k, bins[:, None], 0).astype(FLOAT))
    found = np.concatenate([np.zeros((0, len(down)), FLOAT), *rows])
    return blank(elements, len(found)).replace(**{name: found})  # type: ignore[attr-defined, no-any-return]


def _curtail_rows(elements: ElementNames, fleet: Fleet) -> GridAction:
    bins, units = np.linspace(LEAST_CURTAILED, 1, BINS), np.flatnonzero(np.asarray(fleet.renewable))
    found = np.full((len(units), BINS, len(elements.unit)), -1, FLOAT)
    found[np.arange(len(units)), :, units] = bins
    table = found.reshape(-1, len(elements.unit))
    return blank(elements, len(table)).replace(curtail=table)  # type: ignore[attr-defined, no-any-return]


class Screen(NamedTuple):
    """DC model of a grid in n states, which judges the usefulness of settings.

    b_pu: (L,) susceptances [pu]   limit_mw: (L,)   injection_mw: (n, E), 0 at line ends   slack: unit that balances
    """

    b_pu: np.ndarray
    limit_mw: np.ndarray
    injection_mw: np.ndarray
    slack: int


def topology(elements: ElementNames, keys: Collection[str], screen: Screen, most: int = MOST) -> GridAction:
    """Table of nothing, each line, and at most so many busbar settings: base settings, then the others by usefulness.

    Where there are more settings than `most`, those with fewer than two line ends on a busbar, or more than three
    elements on the smaller one, are left out. Ties by Grid2Op's order.
    """
    tables = [blank(elements, 1), line_rows(elements, keys)]
    if {"set_bus", "change_bus"} & set(keys):
        settings = busbar_settings(elements)
        base = ~(settings == 2).any(axis=1)
        if len(settings) > most:
            ends = settings[:, : 2 * len(elements.line)]
            small = np.minimum(*((settings == k).sum(axis=1) for k in (1, 2))) <= 3
            settings = settings[base | (small & ((ends == 1).sum(axis=1) > 1) & ((ends == 2).sum(axis=1) > 1))]
            base = ~(settings == 2).any(axis=1)
        gain = np.where(base, np.inf, np.round(usefulness(elements, settings, screen), 9))
        tables.append(_set_rows(elements, settings[np.argsort(-gain, kind="stable")[:most]]))
    return join(tables)


def usefulness(elements: ElementNames, settings: np.ndarray, screen: Screen) -> np.ndarray:
    """Fall of the largest loading after the outage of a line, mean over states, for each setting (K, E) -> (K,).

    By DC flows, f_k + (PTDF of l on k) f_l / (1 - PTDF of l on l). An outage that cuts the grid counts in no state;
    where a setting adds such outages the base loading counts too, and one that cuts the grid itself has -inf.
    """
    p = np.array(screen.injection_mw, float)
    p[:, 2 * len(elements.line) + screen.slack] -= p.sum(axis=1)
    base, cuts = _worst(elements, np.zeros(len(elements.sub), bool), p, screen)
    found = np.full(len(settings), -np.inf)
    for k, setting in enumerate(settings):
        worst, cut = _worst(elements, setting == 2, p, screen)
        if (cut & ~cuts).any():
            worst = np.maximum(worst, base)
        found[k] = (base - worst).mean()
    return found


def _worst(elements: ElementNames, moved: np.ndarray, p: np.ndarray, screen: Screen) -> tuple[np.ndarray, np.ndarray]:
    """Largest loading over single outages in each state (n,), and lines whose outage cuts the grid (L,)."""
    lines, nodes = len(elements.line), int(elements.sub.max()) + 1
    at = np.where(moved, nodes, elements.sub)
    nodes += bool(moved.any())
    incidence = np.zeros((lines, nodes))
    np.add.at(incidence, (np.arange(lines), at[:lines]), 1.0)
    np.add.at(incidence, (np.arange(lines), at[lines : 2 * lines]), -1.0)
    weighted = screen.b_pu[:, None] * incidence
    matrix = (incidence.T @ weighted)[1:, 1:]
    at_node = np.zeros((len(p), nodes))
    np.add.at(at_node.T, at, p.T)
    try:
        angles = np.linalg.solve(matrix, np.concatenate([at_node[:, 1:].T, incidence[:, 1:].T], axis=1))
    except np.linalg.LinAlgError:
        return np.full(len(p), np.inf), np.ones(lines, bool)
    both = weighted[:, 1:] @ angles
    flow, transfer = both[:, : len(p)].T, both[:, len(p) :]
    left = 1 - np.diag(transfer)
    cut = np.abs(left) < 1e-6
    share = np.where(cut, 0, transfer / np.where(cut, 1, left))
    np.fill_diagonal(share, -1.0)
    after = np.abs(flow[:, :, None] + share * flow[:, None, :]) / screen.limit_mw[:, None]
    return after[:, :, ~cut].max(axis=(1, 2)), cut
