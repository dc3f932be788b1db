"""Field tables of the observation modes of feeder tasks: the one place that fixes names, order and bounds.

A flattened observation shows the grid, every device and the clock to one agent; the other modes show each agent its
own unit and a few shared fields. `views` computes what a table asks for, by the keys of its blocks.
"""

from __future__ import annotations

from collections.abc import Sequence

from powerzoo_jax.base.errors import unknown
from powerzoo_jax.envs.observe import FieldBlock, FieldTable, table

Field = tuple[str, float, float]

CLOCK: tuple[Field, ...] = (("time_of_day", 0, 1), ("hour_norm", 0, 1))
MARKET: tuple[Field, ...] = (("price_signal", -1, 3), ("is_peak", 0, 1), ("is_offpeak", 0, 1))
GRID: tuple[Field, ...] = (("total_load_norm", 0, 2), ("mean_voltage_dev", -10, 10), ("grid_stress", 0, 10))
VOLTAGE: tuple[Field, ...] = (("local_bus_voltage", 0, 2),)
PROGRESS: Field = ("episode_progress", 0, 1)
SIZE: tuple[Field, ...] = (("power_limit_norm", 0, 10), ("capacity_norm", 0, 10))

LOCAL: dict[str, tuple[Field, ...]] = {
    "storage": (
        ("soc", 0, 1),
        ("p_mw_norm", -1, 1),
        *CLOCK,
        *MARKET,
        *SIZE,
        PROGRESS,
        ("target_soc", 0, 1),
    ),
    "vehicle": (
        ("soc", 0, 1),
        ("is_home", 0, 1),
        ("departure_ready", 0, 1),
        ("time_to_departure", 0, 1),
        *CLOCK,
        *MARKET,
        ("charge_limit_norm", 0, 1),
        ("discharge_limit_norm", 0, 1),
        PROGRESS,
        ("soc_departure_min", 0, 1),
    ),
}
DERS_STATE = 5
AHEAD = {"load_forecast": (0, 2), "price_forecast": (-1, 3), "home_forecast": (0, 1)}

# what the grid's own part of an observation shows of a unit
GRID_OBS = {
    "storage": ("soc", "p_dis_max", "p_chg_max", "p_norm"),
    "renewable": ("available_cf", "p_norm"),
    "flexload": ("p_norm",),
    "vehicle": ("p_norm",),
    "datacenter": ("p_norm",),
}
PHASES = "abc"
# keys of a device's own block in the order of the alphabet, with their bounds
DEVICE: dict[str, tuple[Field, ...]] = {
    "storage": (
        ("p_charge_max_norm", -1, 1),
        ("p_discharge_max_norm", -1, 1),
        ("p_mw_norm", -1, 1),
        ("soc", -1, 1),
        ("time_cos", -1, 1),
        ("time_sin", -1, 1),
    ),
    "renewable": (
        ("available_cf", 0, 1),
        ("p_mw_norm", 0, 1),
        ("time_cos", -1, 1),
        ("time_sin", -1, 1),
    ),
    "vehicle": (
        ("departure_ready", -1, 1),
        ("is_home", -1, 1),
        ("p_mw_norm", -1, 1),
        ("soc", -1, 1),
        ("soc_departure_min", -1, 1),
        ("time_cos", -1, 1),
        ("time_sin", -1, 1),
        ("time_to_arrival_norm", -1, 1),
        ("time_to_departure_norm", -1, 1),
    ),
    "flexload": (
        ("buffer_energy_norm", 0, 1),
        ("buffer_fill_ratio", 0, 1),
        ("curtail_norm", 0, 1),
        ("price_norm", -1, 2),
        ("shift_in_norm", 0, 1),
        ("shift_out_norm", 0, 1),
        ("time_cos", -1, 1),
        ("time_sin", -1, 1),
    ),
    "datacenter": (
        ("cool_ratio", 0, 1),
        ("gpu_util", 0, 1),
        ("infer_util", 0, 1),
        ("outdoor_temp_norm", -1, 2),
        ("queue_ft_fill", 0, 1),
        ("queue_train_fill", 0, 1),
        ("queue_urgency", -1, 1),
        ("setpoint_norm", 0, 1),
        ("time_cos", -1, 1),
        ("time_sin", -1, 1),
        ("zone_temp_norm", 0, 1),
    ),
}
FLATTENED = "flattened"
AGENT_MODES = ("global", "local", "local_plus_forecast", "local_plus_voltage", "ders_local")


def flattened_table(
    bus_ids: Sequence[int], n_line: int, kind: str, devices: Sequence[str], n_forecast: int | None
) -> FieldTable:
    """Grid, devices of one kind, clock and prices in the order of the contract.

    n_line:      branches, numbered from 1
    devices:     ids of the units
    n_forecast:  hours of price forecast behind the price; None shows no price
    """
    return fleet_table(grid_blocks(bus_ids, n_line), ((kind, devices),), n_forecast)


def grid_blocks(bus_ids: Sequence[int], n_line: int) -> list[FieldBlock]:
    """Voltages, branch flows and net loads of a balanced feeder."""
    lines = range(1, n_line + 1)
    return [
        FieldBlock("node_v_norm", tuple(f"node_{i}_v_norm" for i in bus_ids), -10, 10),
        FieldBlock("line_p_norm", tuple(f"line_{i}_p_norm" for i in lines), -5, 5),
        FieldBlock("line_q_norm", tuple(f"line_{i}_q_norm" for i in lines), -5, 5),
        FieldBlock("node_p_load_norm", tuple(f"node_{i}_p_load_norm" for i in bus_ids), -5, 5),
        FieldBlock("node_q_load_norm", tuple(f"node_{i}_q_load_norm" for i in bus_ids), -5, 5),
    ]


def phase_blocks(buses: Sequence[str], lines: Sequence[str]) -> list[FieldBlock]:
    """Voltages, line flows and net loads of a three-phase feeder, phase after phase; 0 where a bus or line lacks it."""

    def named(kind: str, rows: Sequence[str], what: str) -> tuple[str, ...]:
        return tuple(f"{kind}_{row}_{what}_{phase}" for phase in PHASES for row in rows)

    return [
        FieldBlock("node_v_norm", named("node", buses, "v_norm"), -20, 20),
        FieldBlock("line_p_norm", named("line", lines, "p_norm"), -20, 20),
        FieldBlock("line_q_norm", named("line", lines, "q_norm"), -20, 20),
        FieldBlock("node_p_load_norm", named("node", buses, "p_load_norm"), -20, 20),
        FieldBlock("node_q_load_norm", named("node", buses, "q_load_norm"), -20, 20),
    ]


def fleet_table(
    grid: Sequence[FieldBlock], fleet: Sequence[tuple[str, Sequence[str]]], n_forecast: int | None
) -> FieldTable:
    """Grid, devices kind after kind, clock and prices in the order of the contract.

    grid:        blocks of the network
    fleet:       (kind, ids of its units) of every kind
    n_forecast:  hours of price forecast behind the price; None shows no price
    """
    price = [] if n_forecast is None else ["price_signal", *(f"price_forecast_{k + 1}" for k in range(n_forecast))]
    return table(
        [
            *grid,
            *(
                FieldBlock(f"{kind}_grid_obs", tuple(f"{d}_{x}" for d in devices for x in GRID_OBS[kind]), -1, 1)
                for kind, devices in fleet
            ),
            FieldBlock("clock", ("time_sin", "time_cos"), -1, 1),
            *(_own_block(kind, devices) for kind, devices in fleet),
            FieldBlock("time", ("time/time_sin", "time/time_cos"), -1, 1),
            FieldBlock("price", tuple(price), -1, 3),
        ]
    )


def _own_block(kind: str, devices: Sequence[str]) -> FieldBlock:
    """Fields that the units of a kind show of themselves."""
    names, low, high = zip(*DEVICE[kind], strict=True)
    same, count = len(set(low)) == len(set(high)) == 1, len(devices)
    fields = tuple(f"{d}/{key}" for d in devices for key in names)
    return FieldBlock(f"{kind}_obs", fields, low[0] if same else low * count, high[0] if same else high * count)


def agent_table(mode: str, kinds: Sequence[str], supported: Sequence[str], horizon: int) -> FieldTable:
    """The fields of one agent, which commands one unit; every agent of a task has the same names.

    kinds:      kinds of units in the task
    supported:  modes that the task offers
    horizon:    steps of forecasts
    Raises ValueError for a mode that the task does not offer, naming the nearest.
    """
    if mode not in supported:
        raise ValueError(unknown("observation mode", mode, supported))
    if mode == "ders_local":
        return _blocks([*CLOCK, *MARKET, PROGRESS, *VOLTAGE], _states())
    local = LOCAL["vehicle" if "vehicle" in kinds else "storage"]
    if mode == "global":
        return _blocks([*GRID, *local])
    if mode == "local_plus_voltage":
        return _blocks([*local, *VOLTAGE])
    if mode == "local_plus_forecast":
        ahead = [key for key in AHEAD if key != "home_forecast" or "vehicle" in kinds]
        return _blocks(local, [_ahead(key, horizon) for key in ahead])
    return _blocks(local)


def _blocks(fields: Sequence[Field], more: Sequence[FieldBlock] = ()) -> FieldTable:
    return table([*(FieldBlock(name, (name,), low, high) for name, low, high in fields), *more])


def _states() -> list[FieldBlock]:
    return [FieldBlock("ders_state", tuple(f"ders_state_{k}" for k in range(DERS_STATE)), -1, 1)]


def _ahead(key: str, horizon: int) -> FieldBlock:
    low, high = AHEAD[key]
    return FieldBlock(key, tuple(f"{key}_t+{k}" for k in range(1, horizon + 1)), low, high)
