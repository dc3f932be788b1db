"""Networks that ship with pandapower, read with `from_pandapower` and solved, against `runpp` of the same net.

Usage: python benchmarks/pandapower_networks.py [--quick] [--out results.tsv]

Every function of `pandapower.networks` that builds a network without being given anything, and a few of their variants,
up to 3,000 buses; --quick takes those up to 60. The reference is `runpp(net, calculate_voltage_angles=True,
trafo_model="t", init="dc", tolerance_mva=1e-10)`. Ours is `solve_meshed` in float64 at the injections of the net. The
error is the largest |V - V'| over all buses that pandapower supplies; buses joined by switches are one in the case.

A network counts unless it has three-winding transformers, DC lines, wards or several references in service, or
pandapower finds no solution itself. The last line says how many of those that count are within 1e-8 pu.
"""

from __future__ import annotations

# isort: off
import one_core  # noqa: F401  pins the process before jax starts
# isort: on

import inspect
import logging
import random
import warnings
from collections.abc import Iterator
from importlib import metadata
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandapower as pp
from pandapower import networks
from report import Table, parser

from powerzoo_jax.base.errors import CaseError, SolverError
from powerzoo_jax.cases import Case, from_pandapower
from powerzoo_jax.powerflow import nominal_injection, prepare_meshed, solve_meshed

LARGEST, LARGEST_QUICK = 3000, 60
MATCH_PU = 1e-8
STEPS = 6  # chord steps from the base state, without a fallback: compiles in a fifth of the time
TOLERANCE_MVA = 1e-10
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "create_cigre_network_mv": [{"with_der": "pv_wind"}, {"with_der": "all"}],
    "create_synthetic_voltage_control_lv_network": [
        {"network_class": name} for name in ("rural_2", "village_1", "village_2", "suburb_1")
    ],
    "ieee_european_lv_asymmetric": [{"scenario": "off_peak_1"}, {"scenario": "off_peak_1440"}],
    "mv_oberrhein": [{"scenario": "generation"}],
}
NOT_COUNTED = ("trafo3w", "dcline", "ward", "xward")
COLUMNS = ("network", "buses", "counts", "outcome", "error_pu", "reason")


def builders() -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Name, function and arguments of every network."""
    for name, function in sorted(vars(networks).items()):
        if not inspect.isfunction(function) or not function.__module__.startswith("pandapower.networks."):
            continue
        given = [p for p in inspect.signature(function).parameters.values() if p.kind != p.VAR_KEYWORD]
        if all(p.default is not p.empty for p in given):
            yield name, function, {}
            for options in VARIANTS.get(name, ()):
                yield f"{name} {' '.join(map(str, options.values()))}", function, options


def not_counted(net: Any) -> str:
    """Reason that puts a network outside the count, empty where there is none."""
    found = [key for key in NOT_COUNTED if len(net[key]) and net[key].in_service.any()]
    references = int(net.ext_grid.in_service.sum() + (net.gen.in_service & net.gen.slack.astype(bool)).sum())
    return ", ".join([*found, *([f"{references} references"] if references > 1 else [])])


def reference(net: Any) -> np.ndarray | None:
    """Complex voltages (N,) of `net.bus`, NaN where nothing supplies it; None without a solution."""
    try:
        pp.runpp(net, calculate_voltage_angles=True, trafo_model="t", init="dc", tolerance_mva=TOLERANCE_MVA)
    except pp.LoadflowNotConverged:
        return None
    angle = np.deg2rad(net.res_bus.va_degree.to_numpy(float))
    return np.asarray(net.res_bus.vm_pu.to_numpy(float) * np.exp(1j * angle))


def joined(net: Any) -> dict[int, int]:
    """Lowest index of the buses that closed switches without impedance make one with each bus."""
    on = set(net.bus.index[net.bus.in_service])
    lowest = {int(i): int(i) for i in net.bus.index}
    switch = net.switch[net.switch.closed & (net.switch.et == "b") & (net.switch.z_ohm <= 0)]
    pairs = [(int(a), int(b)) for a, b in zip(switch.bus, switch.element, strict=True) if a in on and b in on]
    while any(lowest[a] != lowest[b] for a, b in pairs):
        for a, b in pairs:
            lowest[a] = lowest[b] = min(lowest[a], lowest[b])
    return lowest


def solve(case: Case) -> np.ndarray:
    """Complex voltages (N,) of a case."""
    factors, s = prepare_meshed(case, dtype="float64"), nominal_injection(case)
    result = jax.jit(lambda *given: solve_meshed(*given, fixed_steps=STEPS))(
        factors, jnp.asarray(s.real), jnp.asarray(s.imag)
    )
    if not bool(result.converged):
        raise SolverError(f"status {int(result.status)}, residual {float(result.residual):.1e} pu")
    return np.asarray(result.v_re) + 1j * np.asarray(result.v_im)


def compare(net: Any, name: str) -> tuple[str, str, str]:
    """Outcome, error and reason of one network."""
    expected = reference(net)
    if expected is None:
        return "no reference", "", "runpp does not converge"
    try:
        case = from_pandapower(net, name)
        v = solve(case)
    except (CaseError, SolverError) as err:
        return "refused", "", " ".join(str(err).split())
    lowest = joined(net)
    at = case.positions(np.array([lowest[int(i)] + 1 for i in net.bus.index]))
    supplied = np.isfinite(expected)
    missing = net.bus.index[supplied & (at < 0)].tolist()
    if missing:
        return "differs", "", f"buses {missing} are not in the case"
    error = float(np.abs(v[at] - expected)[supplied].max())
    return "match" if error <= MATCH_PU else "differs", f"{error:.1e}", "; ".join(case.notes)


def main() -> None:
    options = parser(__doc__, f"networks up to {LARGEST_QUICK} buses").parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    jax.config.update("jax_enable_x64", True)
    counted = matched = 0
    note = f"pandapower={metadata.version('pandapower')}"
    with Table(COLUMNS, options.out, note) as table:
        for name, function, arguments in builders():
            random.seed(0)  # Kerber's lines are drawn
            net = function(**arguments)
            if len(net.bus) > (LARGEST_QUICK if options.quick else LARGEST):
                continue
            left_out = not_counted(net)
            outcome, error, reason = compare(net, name)
            counts = not left_out and outcome != "no reference"
            counted, matched = counted + counts, matched + (counts and outcome == "match")
            why = "; ".join(filter(None, (left_out, reason)))
            table.add((name, str(len(net.bus)), "yes" if counts else "no", outcome, error, why))
        table.add((f"# {matched} of {counted} that count match to {MATCH_PU:g} pu",))


if __name__ == "__main__":
    main()
