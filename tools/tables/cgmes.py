"""Networks in the CGMES format, read in two ways and solved, beside the load flow of pypowsybl.

Runs where pypowsybl, pandapower and lxml are installed. pypowsybl writes each network as CGMES and reads it back; its
load flow of what it has read is the reference. The file goes to `run_power_flow` through pandapower's converter
("pandapower"), and through the MATPOWER file that pypowsybl writes of it ("matpower"). The errors are the largest
differences between the sorted voltage magnitudes of all buses and between the sorted active powers at all ends of
branches. Networks are pypowsybl's own, or shipped cases that it reads from a MATPOWER file. Nothing of them is kept.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from scipy.io import loadmat

from powerzoo_jax.base.errors import PowerZooError
from powerzoo_jax.cases import load_case, to_pandapower
from powerzoo_jax.study import run_power_flow
from tools.tables import Row, Table

OWN = ("case14", "case39", "case118")
THEIRS = ("ieee9", "ieee14", "ieee57", "eurostag_tutorial_example1_network")
MATCH_PU, MATCH_MW = 1e-7, 1e-4
Solved = tuple[np.ndarray, np.ndarray]


def make(name: str, folder: Path) -> Any:
    """A network of pypowsybl by its name, one of its own or a shipped case."""
    import pypowsybl

    if name in THEIRS:
        return getattr(pypowsybl.network, f"create_{name}")()
    from pandapower.converter.matpower.to_mpc import to_mpc

    to_mpc(to_pandapower(load_case(name)), filename=str(folder / "own.mat"), init="flat")
    return pypowsybl.network.load(str(folder / "own.mat"))


def first_unit(network: Any) -> str:
    """Bus of the first unit: the reference of all solutions."""
    return str(network.get_generators()["bus_id"].iloc[0])


def reference(network: Any) -> Solved:
    """Voltage magnitudes [pu] and active powers at the ends of branches [MW], sorted, by pypowsybl's load flow."""
    from pypowsybl import loadflow

    options = {
        "slackBusSelectionMode": "NAME",
        "slackBusesIds": first_unit(network),
        "newtonRaphsonConvEpsPerEq": "1e-10",
    }
    settings = loadflow.Parameters(
        use_reactive_limits=False,
        distributed_slack=False,
        transformer_voltage_control_on=False,
        shunt_compensator_voltage_control_on=False,
        voltage_init_mode=loadflow.VoltageInitMode.DC_VALUES,
        write_slack_bus=True,
        provider_parameters=options,
    )
    result = loadflow.run_ac(network, settings)[0]
    if result.status != loadflow.ComponentStatus.CONVERGED:
        raise PowerZooError(f"pypowsybl's load flow ends with {result.status.name}.")
    buses, levels, branches = network.get_buses(), network.get_voltage_levels(), network.get_branches()
    v = buses["v_mag"].to_numpy() / levels.loc[buses["voltage_level_id"], "nominal_v"].to_numpy()
    return np.sort(v), np.sort(np.concatenate([branches["p1"], branches["p2"]]))


def through_pandapower(path: Path) -> Any:
    """Net of a CGMES file by pandapower's converter; where it finds no reference, the first unit is it."""
    from pandapower.converter.cim.cim2pp import from_cim

    net = from_cim.from_cim(file_list=[str(path)])
    if not len(net.ext_grid):
        net.gen.loc[net.gen.index[0], "slack"] = True
    return net


def through_matpower(network: Any, folder: Path) -> Any:
    """MATPOWER file of a network that pypowsybl has solved: it writes a binary one, which becomes text here."""
    network.save(str(folder / "grid.mat"), format="MATPOWER")
    mpc = loadmat(folder / "grid.mat")["mpc"][0, 0]
    lines = ["function mpc = grid", "mpc.version = '2';", f"mpc.baseMVA = {mpc['baseMVA'].item()!r};"]
    for name in ("bus", "gen", "branch"):
        lines += [f"mpc.{name} = [", *(" ".join(map(repr, row)) + ";" for row in mpc[name].tolist()), "];"]
    (folder / "grid.m").write_text("\n".join(lines))
    return folder / "grid.m"


def solve(grid: Any) -> Solved:
    """As `reference`, by this package."""
    study = run_power_flow(grid)
    ends = np.concatenate([study.branch["p_from_mw"], study.branch["p_to_mw"]])
    return np.sort(study.elements.get("res_bus", study.bus)["v_pu"]), np.sort(ends)


def compare(name: str, folder: Path) -> Iterator[Row]:
    """Outcome of both routes of one network by column."""
    import pypowsybl

    path = folder / "network.zip"
    make(name, folder).save(str(path), format="CGMES")
    network = pypowsybl.network.load(str(path))
    expected = reference(network)
    source = f"pypowsybl {metadata.version('pypowsybl')}" if name in THEIRS else "shipped"
    for route, grid in (("pandapower", through_pandapower(path)), ("matpower", through_matpower(network, folder))):
        row = {"network": name, "source": source, "route": route}
        row |= {"buses": str(len(expected[0])), "branches": str(len(expected[1]) // 2)}
        try:
            found = solve(grid)
        except PowerZooError as err:
            yield row | {"outcome": "refused", "notes": " ".join(str(err).split())}
            continue
        if any(a.shape != b.shape for a, b in zip(found, expected, strict=True)):
            yield row | {"outcome": "other size", "notes": f"{len(found[0])} buses"}
            continue
        v, p = (float(np.abs(a - b).max()) for a, b in zip(found, expected, strict=True))
        match = v <= MATCH_PU and p <= MATCH_MW
        yield row | {"outcome": "match" if match else "differs", "error_pu": f"{v:.1e}", "error_mw": f"{p:.1e}"}


def rows(only: tuple[str, ...] = (*THEIRS, *OWN)) -> Iterator[Row]:
    """CGMES networks read in two ways and solved, beside the load flow of pypowsybl.

    --only  names of networks
    """
    for name in only:
        with tempfile.TemporaryDirectory() as folder:
            yield from compare(name, Path(folder))


TABLE = Table(
    rows,
    ("network", "source", "route", "buses", "branches", "outcome", "error_pu", "error_mw", "notes"),
    fails=lambda row: row["outcome"] in ("differs", "other size"),
)
