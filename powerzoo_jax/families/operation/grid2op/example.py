"""Example of an environment folder of Grid2Op: a made-up world of five substations, every file and number ours.

Four substations of 110 kV in a mesh, and one of 20 kV behind two transformers that holds a load and a capacitor; a
thermal unit (slack), a hydro plant, a wind farm, and a storage.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from powerzoo_jax.base.files.results import write_text

ROWS = 40  # of an episode
HORIZONS = 2
EPISODES = ("calm", "outages")
LINES = ("0_1_0", "0_2_1", "1_2_2", "1_3_3", "2_3_4", "3_4_5", "2_4_6")
LOADS = ("load_1_0", "load_2_1", "load_3_2", "load_4_3")
UNITS = ("gen_0_0", "gen_1_1", "gen_3_2")
HYDRO, WIND = 1, 2
STORAGE = "storage_2_0"
LIMITS_A = (260.0, 240.0, 200.0, 200.0, 200.0, 150.0, 150.0)
V_KV = (112.2, 112.2, 111.1)
LOAD_MW = np.array([20.0, 30.0, 15.0, 24.0])
EFFICIENCY = {"charging_efficiency": 0.9, "discharging_efficiency": 0.8, "power_loss": 0.12}
E_MAX_MWH, STORAGE_MW = 3.0, 8.0
WIND_MAX_MW = 40.0

CONFIG = """from grid2op.Action import PlayableAction, PowerlineSetAction
from grid2op.Backend import PandaPowerBackend
from grid2op.Chronics import {series}, Multifolder
from grid2op.Opponent import BaseActionBudget, RandomLineOpponent
from grid2op.Reward import RedispReward
from grid2op.Rules import DefaultRules, RulesByArea

config = {{
    "backend": PandaPowerBackend,
    "action_class": PlayableAction,
    "observation_class": None,
    "reward_class": RedispReward,
    "gamerules_class": {rules},
    "chronics_class": Multifolder,
    "grid_value_class": {series},
    "data_feeding_kwargs": {{"h_forecast": [5, 2 * 5]}},
    "volagecontroler_class": None,
    "thermal_limits": {limits},
    "names_chronics_to_grid": None,
    "opponent_attack_cooldown": 12,
    "opponent_attack_duration": 2 * 2,
    "opponent_budget_per_ts": 0.5,
    "opponent_init_budget": 8.0,
    "opponent_action_class": PowerlineSetAction,
    "opponent_class": RandomLineOpponent,
    "opponent_budget_class": BaseActionBudget,
    "kwargs_opponent": {{"lines_attacked": ["0_2_1", "2_3_4", "3_4_5"]}},
}}
"""
AREAS = "RulesByArea([[0, 1], [2, 3, 4]])"
READ, DRAWN = "GridStateFromFileWithForecasts", "GridStateFromFileWithForecastsWithMaintenance"
MAINTENANCE = {
    "maintenance_starting_hour": 9,
    "maintenance_ending_hour": 17,
    "line_to_maintenance": [LINES[0], LINES[2], LINES[4], LINES[6]],
    "daily_proba_per_month_maintenance": [0.6] * 12,
    "max_daily_number_per_month_maintenance": [2] * 12,
}
PARAMETERS = {"NB_TIMESTEP_COOLDOWN_LINE": 3, "NB_TIMESTEP_COOLDOWN_SUB": 3}


def _table(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    columns = list(rows[0])
    content = {"columns": columns, "index": list(range(len(rows))), "data": [[row[c] for c in columns] for row in rows]}
    return {"_module": "pandas.core.frame", "_class": "DataFrame", "_object": json.dumps(content), "orient": "split"}


def _net() -> dict[str, Any]:
    on = {"name": None, "in_service": True}
    buses = [on | {"vn_kv": kv, "type": "b", "zone": None} for kv in (110.0, 110.0, 110.0, 110.0, 20.0)]
    ends = ((0, 1, 30.0), (0, 2, 40.0), (1, 2, 25.0), (1, 3, 35.0), (2, 3, 20.0))
    per_km = {"r_ohm_per_km": 0.08, "x_ohm_per_km": 0.4, "c_nf_per_km": 9.0, "g_us_per_km": 0.02, "max_i_ka": 0.4}
    more = {"std_type": None, "df": 1.0, "parallel": 1, "type": "ol"}
    lines = [on | per_km | more | {"from_bus": f, "to_bus": t, "length_km": km} for f, t, km in ends]
    rated = {"vn_hv_kv": 110.0, "vn_lv_kv": 20.0, "shift_degree": 0.0, "tap_side": "hv", "tap_neutral": 0}
    rated |= {"tap_min": -5, "tap_max": 5, "tap_step_percent": 1.5, "tap_step_degree": 0.0, "tap_phase_shifter": False}
    rated |= {"std_type": None, "parallel": 1, "df": 1.0, "lv_bus": 4}
    first = {"hv_bus": 3, "sn_mva": 40.0, "vk_percent": 12.0, "vkr_percent": 0.5, "pfe_kw": 30.0, "i0_percent": 0.1}
    # a negative no-load current is charging
    second = {"hv_bus": 2, "sn_mva": 25.0, "vk_percent": 10.0, "vkr_percent": 0.6, "pfe_kw": 0.0, "i0_percent": -0.2}
    trafos = [on | rated | first | {"tap_pos": -1}, on | rated | second | {"tap_pos": 0}]
    wide = {"sn_mva": None, "scaling": 1.0, "type": None}
    units = [
        on | wide | {"bus": bus, "p_mw": p, "vm_pu": v, "slack": bus == 0, "slack_weight": float(bus == 0)}
        | {"min_q_mvar": -60.0, "max_q_mvar": 60.0}
        for bus, p, v in ((0, 40.0, 1.02), (1, 25.0, 1.02), (3, 20.0, 1.01))
    ]  # fmt: skip
    loads = [
        on | wide | {"bus": k + 1, "p_mw": p, "q_mvar": p / 4, "const_z_percent": 0.0, "const_i_percent": 0.0}
        for k, p in enumerate(LOAD_MW)
    ]
    storage = on | wide | {"bus": 2, "p_mw": 0.0, "q_mvar": 0.0, "soc_percent": None}
    storage |= {"min_e_mwh": 0.0, "max_e_mwh": E_MAX_MWH}
    shunt = on | {"bus": 4, "q_mvar": -4.0, "p_mw": 0.0, "vn_kv": 20.0, "step": 1, "max_step": 1}
    return {
        "bus": _table(buses),
        "line": _table(lines),
        "trafo": _table(trafos),
        "gen": _table(units),
        "load": _table(loads),
        "storage": _table([storage]),
        # one in service, and one that is out and must not count
        "shunt": _table([shunt, shunt | {"bus": 3, "q_mvar": 20.0, "in_service": False}]),
        "version": "2.8.0",
        "name": "five",
        "f_hz": 50.0,
        "sn_mva": 100.0,
    }


def _write_csv(path: Path, names: Sequence[str], rows: np.ndarray) -> None:
    lines = [";".join(names), *(";".join(f"{x:.3f}" for x in row) for row in rows)]
    write_text(path, "\n".join(lines) + "\n")


def _series(shift: float, load: np.ndarray) -> dict[str, np.ndarray]:
    """Loads, wind and hydro of an episode; what they leave is the slack's."""
    t = np.arange(ROWS)[:, None] + shift
    p_load = LOAD_MW * (1 + 0.15 * np.sin(2 * np.pi * t / 29 + np.arange(4))) * load[:, None]
    wind = 20.0 + 12.0 * np.sin(2 * np.pi * t[:, 0] / 23)
    hydro = 25.0 + 4.0 * np.cos(2 * np.pi * t[:, 0] / 37)
    p_unit = np.stack([p_load.sum(axis=1) - wind - hydro, hydro, wind], axis=1)
    return {"load_p": p_load, "load_q": p_load / 4, "prod_p": p_unit, "prod_v": np.tile(V_KV, (ROWS, 1))}


def write_world(
    folder: str | Path,
    limits: Sequence[float] = LIMITS_A,
    parameters: dict[str, Any] = PARAMETERS,
    load: np.ndarray | float = 1.0,
    drawn: bool = False,
) -> Path:
    """Folder of the example, written anew, for `from_grid2op` and for Grid2Op itself.

    limits:  (L,) [A]        parameters: of parameters.json        load: (ROWS,) multiples of all loads
    drawn:   a step is an hour, maintenance is drawn at reset, and the rules hold by area
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    saved = {"_module": "pandapower.auxiliary", "_class": "pandapowerNet", "_object": _net()}
    write_text(folder / "grid.json", json.dumps(saved))
    rules, series = (AREAS, DRAWN) if drawn else ("DefaultRules", READ)
    named = dict(zip(LINES, map(float, limits), strict=True))
    write_text(folder / "config.py", CONFIG.format(limits=named, rules=rules, series=series))
    write_text(folder / "parameters.json", json.dumps(parameters))
    places = {f"sub_{k}": [100.0 * k, 50.0 * (k % 3)] for k in range(5)}
    write_text(folder / "grid_layout.json", json.dumps(places))
    units = "Pmax,Pmin,name,type,bus,max_ramp_up,max_ramp_down,min_up_time,min_down_time,marginal_cost,"
    units += "shut_down_cost,start_cost,x,y,V\n"
    units += "120,0,gen_0_0,thermal,0,8,8,4,4,60,1,2,0,0,110\n60,0,gen_1_1,hydro,1,5,4,4,4,30,1,2,0,0,110\n"
    units += f"{WIND_MAX_MW},0,gen_3_2,wind,3,0,0,0,0,0,0,0,0,0,110\n"
    write_text(folder / "prods_charac.csv", units)
    storage = {"Emax": E_MAX_MWH, "Emin": 0.0, "name": STORAGE, "type": "battery", "max_p_prod": STORAGE_MW}
    storage |= {"max_p_absorb": STORAGE_MW, "marginal_cost": 20.0, **EFFICIENCY}
    text = "\n".join(",".join(map(str, row)) for row in (storage.keys(), storage.values())) + "\n"
    write_text(folder / "storage_units_charac.csv", text)
    for k, name in enumerate(EPISODES):
        _write_episode(folder / "chronics" / name, 11.0 * k, np.broadcast_to(load, ROWS), k > 0, drawn)
    return folder


def _write_episode(folder: Path, shift: float, load: np.ndarray, outages: bool, drawn: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    names = {"load_p": LOADS, "load_q": LOADS, "prod_p": UNITS, "prod_v": UNITS}
    for key, rows in _series(shift, load).items():
        _write_csv(folder / f"{key}.csv", names[key], rows)
        ahead = np.minimum(np.arange(ROWS)[:, None] + np.arange(1, HORIZONS + 1), ROWS - 1).ravel()
        _write_csv(folder / f"{key}_forecasted.csv", names[key], rows[ahead] * (1.0 if key == "prod_v" else 1.01))
    out = {key: np.zeros((ROWS, len(LINES))) for key in ("maintenance", "hazards")}
    if outages:
        out["maintenance"][6:10, 2] = out["maintenance"][20:24, 3] = out["hazards"][14:17, 4] = 1
    for key, rows in out.items():
        _write_csv(folder / f"{key}.csv", LINES, rows)
    write_text(folder / "start_datetime.info", "2030-06-03 00:00\n")
    write_text(folder / "time_interval.info", "01:00\n" if drawn else "00:05\n")
    if drawn:
        write_text(folder / "maintenance_meta.json", json.dumps(MAINTENANCE))
