"""A feeder task on another grid than its own: where devices stand, how large they are, and which limits hold there.

What the catalog says of buses, budgets and the voltage band is meant for the grid of the catalog.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import dijkstra

from powerzoo_jax.base.errors import CaseError, listing
from powerzoo_jax.base.types import TaskSpec
from powerzoo_jax.cases import Case, load_case
from powerzoo_jax.cases.topology import branch_positions
from powerzoo_jax.powerflow import simplify_feeder

SANE_BAND = (0.5, 1.5)  # [pu] limits outside of it are how files write that there are none
DIGITS = 2  # of a size that is scaled to the load of another grid
FLEXIBLE_SHARE = 0.3  # of the load of a bus that a flexible load can shed, or defer
FLEXIBLE_LOADS = 5
FILES = (".m", ".json")
UNTOLD = ("feeder_bus_map", "v_slack")  # one zone of all buses, and the set-point of the case


def on_own_grid(spec: TaskSpec, overrides: dict[str, Any]) -> bool:
    """Whether the caller gives another grid than the task's own; no file is read to find out."""
    what = overrides.get("case")
    if what is None or what == spec.case:
        return False
    named = isinstance(what, str | PathLike)
    return (named and Path(what).suffix.lower() in FILES) or load_case(what).name != spec.case


def given_case(what: Any, reference: Any = None) -> Case:
    """Network that keywords of a task name, or the part of it that one reference supplies.

    What builds a task asks twice, for places and for the network: the last answer is kept until its file changes.
    """
    file = Path(what) if isinstance(what, str | PathLike) else None
    state = file.stat() if file is not None and file.is_file() else None
    return _read(what, reference, None if state is None else (state.st_mtime_ns, state.st_size))


@lru_cache(maxsize=1, typed=True)
def _read(what: Any, reference: Any, stamp: tuple[int, int] | None) -> Case:
    del stamp
    case = load_case(what)
    return case if reference is None else simplify_feeder(case, reference=reference)


def fit_to_grid(spec: TaskSpec, overrides: dict[str, Any]) -> dict[str, Any]:
    """The caller's keywords with those that another grid needs; as they are on the task's own grid.

    Devices go to the loaded buses farthest from the source by impedance, flexible loads to the largest, a data centre
    to the largest load; sizes keep their share of the load; the band is the case's, where it has one. A warning says
    which. What the caller gives stays.
    """
    if not on_own_grid(spec, overrides):
        return overrides
    case = given_case(overrides["case"], overrides.get("reference"))
    given = dict(spec.overrides)
    scale = _nice(case.p_load_mw.sum() / load_case(spec.case).p_load_mw.sum())
    found: dict[str, Any] = {}
    for name in ("battery_bus_ids", "ev_bus_ids", "pv_bus_ids"):
        if given.get(name):
            found[name] = _farthest(case, len(given[name]))
    if given.get("flexload_bus_ids"):
        found["flexload_bus_ids"] = _largest(case, len(given["flexload_bus_ids"]))
    if "bus_id" in given:
        found["bus_id"] = _largest(case, 1)[0]
    if "flexload_config" in given:
        found |= _flexible(case) | {"load_scale": 1.0}
        found |= {"feeder_bus_map": (tuple(case.bus.id.tolist()),)}
    if "v_slack" in given:
        found["v_slack"] = None
    for name in ("battery_capacity_mwh", "battery_power_mw", "battery_s_mva", "pv_capacity_mw", "pv_s_mva"):
        if name in given:
            found[name] = _scaled(given[name], scale)
    found |= _band(case)
    added = {name: value for name, value in found.items() if name not in overrides}
    if added:
        told = listing(f"{name}={value}" for name, value in added.items() if name not in UNTOLD)
        warnings.warn(f"{spec.id} on {case.name}: {told}. Give a keyword to choose otherwise.", stacklevel=4)
    return overrides | added


def _nice(number: float) -> float:
    return float(f"{number:.{DIGITS}g}")


def _scaled(size: Any, scale: float) -> Any:
    return tuple(_scaled(x, scale) for x in size) if isinstance(size, tuple) else _nice(size * scale)


def _loaded(case: Case, order: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Positions of the buses with load but the slack, in the order of a key (N,), the largest first."""
    load = case.p_load_mw.copy()
    load[case.slack_bus] = 0
    at = np.flatnonzero(load > 0)
    if not len(at):
        raise CaseError(f"{case.name} has no load, so nothing says where devices belong. Name their buses.")
    best: np.ndarray = at[np.argsort(-np.round(order(load)[at], 9), kind="stable")]
    return best


def _farthest(case: Case, count: int) -> tuple[int, ...]:
    """Ids of the loaded buses with the largest impedance on the shortest way to the source."""
    f, t = branch_positions(case)
    on = case.branch.in_service
    length = np.maximum(np.hypot(case.branch.r_pu, case.branch.x_pu)[on], np.finfo(float).tiny)
    graph = coo_matrix((length, (f[on], t[on])), (case.n_bus,) * 2).tocsr()
    distance = dijkstra(graph, directed=False, indices=int(case.slack_bus[0]))
    return _ids(case, _loaded(case, lambda load: distance), count)


def _largest(case: Case, count: int) -> tuple[int, ...]:
    return _ids(case, _loaded(case, lambda load: load), count)


def _ids(case: Case, at: np.ndarray, count: int) -> tuple[int, ...]:
    return tuple(int(bus) for bus in case.bus.id[at[:count]])


def _flexible(case: Case) -> dict[str, Any]:
    buses = _largest(case, FLEXIBLE_LOADS)
    caps = (_nice(FLEXIBLE_SHARE * case.p_load_mw[case.bus_index[bus]]) for bus in buses)
    return {"flexload_config": tuple((f"fl_{bus}", bus, cap, cap) for bus, cap in zip(buses, caps, strict=True))}


def _band(case: Case) -> dict[str, float]:
    """The narrowest band of the buses but the slack, [pu]; nothing where the case gives none."""
    rest = np.setdiff1d(np.arange(case.n_bus), case.slack_bus)
    low, high = float(case.bus.v_min_pu[rest].max()), float(case.bus.v_max_pu[rest].min())
    return {"v_min": low, "v_max": high} if SANE_BAND[0] <= low < high <= SANE_BAND[1] else {}
