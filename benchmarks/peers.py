"""Other engines behind one interface, for interleaved timing; one that is not installed is left out."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import metadata, util
from typing import Any

import numpy as np

from powerzoo_jax.cases import Case
from powerzoo_jax.cases.topology import branch_positions
from powerzoo_jax.powerflow import nominal_injection
from powerzoo_jax.powerflow.meshed.base_case import held_buses, solve_base, voltage_setpoints

TOL = 1e-8  # [pu] mismatch at which peers stop
MODES = (("lightsim2grid newton", 0, 30), ("lightsim2grid chord", 2, 100))  # 2 keeps the first Jacobian


@dataclass
class Engine:
    """One timed closure: `run()` solves `batch` scenarios; the figures are filled in as it runs.

    A run that returns seconds says itself what of its time counts.
    """

    name: str
    dtype: str
    batch: int
    run: Callable[[], Any]
    compile_s: float = 0.0
    iterations: float = 0.0
    error_pu: float = 0.0
    times: list[float] = field(default_factory=list)
    cpu_times: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return self.batch / float(np.median(self.times))

    def time(self, budget_s: float) -> None:
        """Run for about `budget_s`, at least once, and keep every duration."""
        begin = time.perf_counter()
        while True:
            tick, tock = time.perf_counter(), time.process_time()
            counted = self.run()
            self.cpu_times.append(time.process_time() - tock)
            self.times.append(counted if isinstance(counted, float) else time.perf_counter() - tick)
            if time.perf_counter() - begin >= budget_s:
                break


def versions() -> str:
    """Versions of everything that took part."""
    found = {d.metadata["Name"].lower().replace("_", "-"): d.version for d in metadata.distributions()}
    wanted = ("powerzoo-jax", "jax", "numpy", "lightsim2grid", "power-grid-model", "opendssdirect.py")
    return " ".join(f"{name}={found[name]}" for name in wanted if name in found)


def lightsim2grid_engines(
    case: Case, load: np.ndarray, v_ref: np.ndarray | None, scale: np.ndarray | None = None
) -> list[Engine]:
    """Newton and chord of lightsim2grid on loads (B, N) complex [pu].

    scale:  (B,) of the units that generate; None: all keep their schedule
    """
    if util.find_spec("lightsim2grid") is None:
        return []
    model, run = _lightsim2grid(case, load, scale)
    engines = []
    for name, mode, steps in MODES:
        sweep = _sweep(model, mode)

        def timed(sweep: Any = sweep, steps: int = steps) -> Any:
            return run(sweep, steps, TOL)

        found = timed()
        error = float("nan") if v_ref is None else float(np.abs(np.abs(found) - np.abs(v_ref[: len(load)])).max())
        iterations = float(np.mean(sweep.get_row_nb_iter()))
        engines.append(Engine(name, "float64", len(load), timed, iterations=iterations, error_pu=error))
    return engines


def lightsim2grid_voltages(case: Case, load: np.ndarray) -> np.ndarray:
    """Voltages (B, N) complex of a full Newton stopped at 1e-9 pu, an independent reference for meshed networks."""
    model, run = _lightsim2grid(case, load)
    return np.array(run(_sweep(model, 0), 30, 1e-9))


def _lightsim2grid(
    case: Case, load: np.ndarray, scale: np.ndarray | None = None
) -> tuple[Any, Callable[[Any, int, float], Any]]:
    from lightsim2grid import network

    model = network.init_from_matpower(matpower_tables(case))
    bus = np.array([item.bus_id for item in model.get_loads()])
    p_mw, q_mvar = (np.ascontiguousarray(x[:, bus] * case.base_mva) for x in (load.real, load.imag))
    unit_mw = np.array([unit.target_p_mw for unit in model.get_generators()])
    by = np.ones(len(load)) if scale is None else scale
    units_mw = np.where(unit_mw > 0, unit_mw * by[:, None], unit_mw)
    start = solve_base(case, nominal_injection(case), voltage_setpoints(case))

    def run(sweep: Any, steps: int, tol: float) -> Any:
        sweep.modify_gen_p(units_mw)
        sweep.modify_load_p(p_mw)
        sweep.modify_load_q(q_mvar)
        sweep.compute(start, steps, tol)
        return sweep.get_voltages()

    return model, run


def _sweep(model: Any, mode: int) -> Any:
    from lightsim2grid import lightsim2grid_cpp as cpp

    sweep = cpp.InjectionSweepCPP(model)
    sweep.change_algorithm(cpp.AlgorithmType.NR_KLU)
    config = sweep.get_algo_config()
    values = list(config.int_params)
    values[1] = mode
    config.int_params = values
    sweep.set_algo_config(config)
    return sweep


def matpower_tables(case: Case) -> dict[str, Any]:
    """The case in MATPOWER's columns, buses numbered in case order, which readers may sort by.

    A unit at a bus that does not hold its magnitude is folded into the load.
    """
    b, u, br = case.bus, case.unit, case.branch
    f, t = branch_positions(case)
    one = np.ones(case.n_bus)
    at = case.positions(u.bus_id)
    kept = held_buses(case)[at] & u.in_service
    folded = np.zeros((2, case.n_bus))
    rest = u.in_service & ~kept
    np.add.at(folded[0], at[rest], u.p_mw[rest])
    np.add.at(folded[1], at[rest], u.q_mvar[rest])
    bus = [
        np.arange(case.n_bus) + 1,
        b.kind,
        case.p_load_mw - folded[0],
        case.q_load_mvar - folded[1],
        b.gs_mw,
        b.bs_mvar,
        one,
        b.v_init_pu,
    ]
    bus += [b.angle_init_deg, b.base_kv, one, b.v_max_pu, b.v_min_pu]
    wide = np.full(case.n_unit, 1e4)  # reactive limits that never bind
    unit = [at + 1, u.p_mw, u.q_mvar, wide, -wide, u.v_set_pu, u.base_mva, u.in_service, u.p_max_mw, u.p_min_mw]
    branch = [f + 1, t + 1, br.r_pu, br.x_pu, br.b_pu, *([br.rate_a_mva] * 3)]
    branch += [np.where(br.tap == 1, 0, br.tap), br.shift_deg, br.in_service, br.angle_min_deg, br.angle_max_deg]

    def columns(parts: list[np.ndarray], rows: np.ndarray, width: int) -> np.ndarray:
        table = np.stack([np.asarray(c, float)[rows] for c in parts], 1)
        return np.ascontiguousarray(np.pad(table, ((0, 0), (0, width - table.shape[1]))))

    tables = {
        "bus": columns(bus, np.ones(case.n_bus, bool), 13),
        "gen": columns(unit, kept, 21),
        "branch": columns(branch, br.in_service, 13),
    }
    return {"baseMVA": case.base_mva, "version": "2", **tables}


def power_grid_model_engine(case: Case, load: np.ndarray, v_ref: np.ndarray) -> list[Engine]:
    """power-grid-model's Newton on a feeder of plain series branches, loads (B, N) complex [pu]."""
    if util.find_spec("power_grid_model") is None:
        return []
    from power_grid_model import CalculationMethod, PowerGridModel, initialize_array

    model, load_ids, bus = _power_grid_model(case, initialize_array, PowerGridModel)
    update = initialize_array("update", "sym_load", (len(load), len(bus)))
    update["id"] = load_ids[None]
    update["p_specified"] = load[:, bus].real * case.base_mva * 1e6
    update["q_specified"] = load[:, bus].imag * case.base_mva * 1e6

    def run() -> Any:
        return model.calculate_power_flow(
            update_data={"sym_load": update},
            calculation_method=CalculationMethod.newton_raphson,
            error_tolerance=TOL,
            max_iterations=200,
            threading=-1,
            output_component_types=["node"],
        )

    error = float(np.abs(run()["node"]["u_pu"] - np.abs(v_ref[: len(load)])).max())
    return [Engine("power-grid-model newton", "float64", len(load), run, iterations=float("nan"), error_pu=error)]


def _power_grid_model(case: Case, initialize: Any, model: Any) -> tuple[Any, np.ndarray, np.ndarray]:
    volt = 1e4
    ohm = volt * volt / (case.base_mva * 1e6)
    f, t = branch_positions(case)
    on = case.branch.in_service
    n, n_line = case.n_bus, int(on.sum())
    node = initialize("input", "node", n)
    node["id"], node["u_rated"] = np.arange(n), volt
    line = initialize("input", "line", n_line)
    line["id"], line["from_node"], line["to_node"] = n + np.arange(n_line), f[on], t[on]
    line["from_status"], line["to_status"] = 1, 1
    line["r1"], line["x1"] = case.branch.r_pu[on] * ohm, case.branch.x_pu[on] * ohm
    line["c1"], line["tan1"], line["i_n"] = 0.0, 0.0, 1e4
    bus = np.flatnonzero(nominal_injection(case))
    load = initialize("input", "sym_load", bus.size)
    load["id"], load["node"], load["status"], load["type"] = n + n_line + np.arange(bus.size), bus, 1, 0
    load["p_specified"], load["q_specified"] = 0.0, 0.0
    slack = int(case.slack_bus[0])
    source = initialize("input", "source", 1)
    source["id"], source["node"], source["status"] = 3 * n + n_line, slack, 1
    source["u_ref"], source["u_ref_angle"] = voltage_setpoints(case)[slack], 0.0
    source["sk"], source["rx_ratio"] = 1e16, 0.1
    built = model({"node": node, "line": line, "sym_load": load, "source": source}, system_frequency=50.0)
    return built, load["id"], bus
