"""Published networks read and solved, beside the power flow of the package that they come from.

Usage: python -m tools.readers_table [--simbench] [--large] [--out networks.tsv]

Runs where pandapower and SimBench are installed (`pip install .[bench]`); without a flag all are tried. Every network
is given to `run_power_flow` as a pandapower net and to `runpp(net, calculate_voltage_angles=True, trafo_model="t",
init="dc", tolerance_mva=1e-8, voltage_depend_loads=False)`; the error is the largest |V - V'| over all buses that the
latter supplies. `seconds` is the second of two runs of each, reading included. Nothing of the networks is kept.
"""

from __future__ import annotations

import argparse
import copy
import logging
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from powerzoo_jax.base.errors import PowerZooError
from powerzoo_jax.study import run_power_flow

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
COLUMNS = ("network", "source", "buses", "branches", "outcome", "error_pu", "seconds", "seconds_runpp", "notes")


def networks(simbench: bool, large: bool) -> Iterator[tuple[str, str, Callable[[], Any]]]:
    """Name, source and maker of every network."""
    if simbench:
        from simbench import get_simbench_net

        for code in SIMBENCH:
            yield code, f"simbench {metadata.version('simbench')}", partial(get_simbench_net, code)
    if large:
        from pandapower import networks

        for name in LARGE:
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


def compare(net: Any) -> dict[str, str]:
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


def main(argv: list[str] | None = None) -> int:
    """Try the networks and print one row for each; the exit status is the number of those that differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simbench", action="store_true", help="ten grids of SimBench, from low to extra-high voltage")
    parser.add_argument("--large", action="store_true", help="four networks of 2,869 to 9,241 buses")
    parser.add_argument("--out", type=Path, help="file for the table")
    options = parser.parse_args(argv)
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    everything = not (options.simbench or options.large)
    lines, differing = ["\t".join(COLUMNS)], 0
    for name, source, make in networks(options.simbench or everything, options.large or everything):
        row = {"network": name, "source": source} | compare(make())
        differing += row["outcome"] == "differs"
        lines.append("\t".join(row.get(column, "") for column in COLUMNS))
        print(lines[-1], flush=True)
    if options.out:
        options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return differing


if __name__ == "__main__":
    raise SystemExit(main())
