"""Published networks read and solved, beside the power flow of the package that they come from.

Runs where pandapower and SimBench are installed (`pip install .[bench]`). Every network is given to `run_power_flow` as
a pandapower net and to `runpp(net, calculate_voltage_angles=True, trafo_model="t", init="dc", tolerance_mva=1e-8,
voltage_depend_loads=False)`; the error is the largest |V - V'| over all buses that the latter supplies. `seconds` is
the second of two runs of each, reading included. Nothing of the networks is kept.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib import metadata
from typing import Any

import numpy as np

from powerzoo_jax.base.errors import PowerZooError
from powerzoo_jax.study import run_power_flow
from tools.tables import Row, Table

SIMBENCH = (
    "1-LV-rural1--0-sw",
    "1-LV-rural2--1-no_sw",
    "1-LV-urban6--2-sw",
    "1-LV-semiurb4--0-no_sw",
    "1-MV-rural--0-sw",
    "1-MV-comm--1-no_sw",
    "1-MV-urban--0-sw",
    "1-MVLV-rural-1.108-0-sw",
    "1-HV-mixed--0-sw",
    "1-EHV-mixed--0-sw",
)
LARGE = ("case2869pegase", "case3120sp", "case6470rte", "case9241pegase")
MATCH_PU = 1e-8


def networks(only: tuple[str, ...]) -> Iterator[tuple[str, str, Callable[[], Any]]]:
    """Name, source and maker of the networks whose names contain one of the texts."""
    for name in (*SIMBENCH, *LARGE):
        if not any(text in name for text in only):
            continue
        if name in SIMBENCH:
            from simbench import get_simbench_net

            yield name, f"simbench {metadata.version('simbench')}", partial(get_simbench_net, name)
        else:
            from pandapower import networks

            yield name, f"pandapower {metadata.version('pandapower')}", getattr(networks, name)


def reference(net: Any) -> np.ndarray | None:
    """Complex voltages (N,) [pu] of `net.bus` that runpp finds, NaN where nothing supplies it; None without any."""
    import pandapower

    options = dict(calculate_voltage_angles=True, trafo_model="t", init="dc", voltage_depend_loads=False)
    try:
        pandapower.runpp(net, tolerance_mva=MATCH_PU, max_iteration=30, **options)
    except pandapower.LoadflowNotConverged:
        return None
    return np.asarray(net.res_bus.vm_pu * np.exp(1j * np.deg2rad(net.res_bus.va_degree)))


def compare(net: Any) -> Row:
    """Outcome of one network by column."""
    theirs = copy.deepcopy(net)
    expected, seconds = timed(lambda: reference(theirs))
    row = {"buses": str(len(net.bus)), "seconds_runpp": f"{seconds:.2f}"}
    try:
        study, seconds = timed(lambda: run_power_flow(net))
    except PowerZooError as err:
        return row | {"outcome": "refused", "notes": " ".join(str(err).split())}
    row |= {"branches": str(study.case.n_branch), "seconds": f"{seconds:.2f}"}
    row["notes"] = "; ".join(study.case.notes)
    if expected is None:
        return row | {"outcome": "no reference"}
    found = study.elements["res_bus"]
    v = found["v_pu"] * np.exp(1j * np.deg2rad(found["angle_deg"]))
    error = np.abs(v - expected)[np.isfinite(expected)].max()  # NaN where a bus is missing here
    return row | {"outcome": "match" if error <= MATCH_PU else "differs", "error_pu": f"{error:.1e}"}


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """Result and seconds of the second of two calls: the first loads what both share."""
    call()
    start = time.perf_counter()
    return call(), time.perf_counter() - start


def rows(only: tuple[str, ...] = ("",)) -> Iterator[Row]:
    """Ten grids of SimBench, from low to extra-high voltage, and four networks of 2,869 to 9,241 buses.

    --only  networks whose names contain one of these
    """
    for name, source, make in networks(only):
        yield {"network": name, "source": source} | compare(make())


TABLE = Table(
    rows,
    ("network", "source", "buses", "branches", "outcome", "error_pu", "seconds", "seconds_runpp", "notes"),
)
