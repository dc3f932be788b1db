"""Catalog of the public tasks and presets, one literal each: the data that a paper must quote.

Presets validate one device on one feeder each, or the three-phase feeder: makeable, not among the tasks.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

from powerzoo_jax.base.types import TaskSpec
from powerzoo_jax.families.feeder.tasks.catalog import FEEDER_TASKS, SMARD
from powerzoo_jax.families.transmission.tasks.catalog import TRANSMISSION
from powerzoo_jax.tasks.spec import day_task

SAFETY_WEIGHT = 10.0  # of a unit of any channel

ATOMIC_DISTRIBUTION_GRID = day_task(
    "atomic_distribution_grid",
    family="distribution",
    case="case33bw",
    split="test",
    agents=("operator_0",),
    cost_names=("voltage_violation", "thermal_overload", "unserved_energy", "resource"),
    cost_budget=(inf,) * 4,
    term_names=("cost_sum",),
    term_weights=(SAFETY_WEIGHT,),
    overrides=(
        ("devices", ()),
        ("load_column", "mv_semiurb"),
        ("load_set", "simbench_2016"),
        ("max_load_ratio", 0.85),
        ("months", (1,)),
        *SMARD,
        ("price_forecast", False),
    ),
)


def _atomic(name: str, horizon: int, dt_hours: float, more: tuple[str, ...] = (), **overrides: object) -> TaskSpec:
    """The feeder with one device; `more` are its own cost channels."""
    base = ATOMIC_DISTRIBUTION_GRID
    return replace(
        base,
        id=f"atomic_{name}",
        horizon=horizon,
        dt_hours=dt_hours,
        cost_names=base.cost_names + more,
        cost_budget=base.cost_budget + (inf,) * len(more),
        overrides=tuple(sorted((dict(base.overrides) | overrides).items())),
    )


ATOMIC_BATTERY = _atomic(
    "battery", 24, 1.0, devices=(("storage", 6, (("capacity_mwh", 0.5), ("eta_roundtrip", 0.95), ("power_mw", 0.2))),)
)
ATOMIC_VEHICLE = _atomic("vehicle", 24, 1.0, ("departure_shortfall", "unmet_energy"), devices=(("vehicle", 10, ()),))
ATOMIC_DATACENTER = _atomic(
    "datacenter",
    48,
    1.0,
    ("sla", "overtemp"),
    devices=(("datacenter", 6, (("base_mw", 0.2), ("infer_gpu_peak", 96), ("n_gpus", 256))),),
)

DISTRIBUTION_3PHASE = day_task(
    "distribution_3phase",
    family="distribution",
    case="ieee13",
    agents=("operator_0",),
    cost_names=(
        *("voltage_violation", "thermal_overload", "vuf_violation", "unserved_energy", "resource"),
        *("departure_shortfall", "unmet_energy", "sla", "overtemp"),
    ),
    cost_budget=(inf,) * 9,
    term_names=(
        *("network_loss", "degradation", "comfort", "deferral", "terminal_buffer", "unmet_energy", "job_misses"),
        *("backlog", "unserved_energy"),
    ),
    term_weights=(1.0,) * 9,
    overrides=(
        (
            "devices",
            (
                ("storage", "671", (("capacity_mwh", 1.0), ("phases", "abc"), ("power_mw", 0.3))),
                ("storage", "692", (("capacity_mwh", 0.4), ("phases", "a-b"), ("power_mw", 0.1))),
                ("renewable", "675", (("capacity_mw", 0.4), ("phases", "c"))),
            ),
        ),
        ("load_column", "mv_semiurb"),
        ("load_set", "simbench_2016"),
        ("max_load_ratio", 0.85),
        *SMARD,
        ("vuf_max", 2.0),
    ),
)

ATOMIC_TRANSMISSION_GRID = day_task(
    "atomic_transmission_grid",
    family="transgrid",
    case="pz_case5",
    split="test",
    agents=("operator_0",),
    cost_names=("thermal_overload", "voltage_violation", "power_balance", "unserved_energy", "resource"),
    cost_budget=(inf,) * 5,
    term_names=("cost_sum",),
    term_weights=(SAFETY_WEIGHT,),
    overrides=(("devices", ()), ("load_set", "fr_2017_2019"), ("max_load_ratio", 0.85), ("months", (1,))),
)


def _on_transmission(name: str, **overrides: object) -> TaskSpec:
    """The transmission grid with one device."""
    base = ATOMIC_TRANSMISSION_GRID
    return replace(base, id=f"atomic_{name}", overrides=tuple(sorted((dict(base.overrides) | overrides).items())))


ATOMIC_SOLAR = _on_transmission(
    "solar", devices=(("renewable", 2, (("capacity_mw", 10.0),)),), plant_columns=("solar.available_mw",)
)
ATOMIC_WIND = _on_transmission(
    "wind", devices=(("renewable", 3, (("capacity_mw", 10.0),)),), plant_columns=("wind.available_mw",)
)
ATOMIC_FLEXLOAD = _on_transmission("flexload", devices=(("flexload", 4, ()),))

GRID_FLEET = "powerzoo_jax.families.transmission.tasks.operator_fleet:build_grid_fleet"
GRID = "powerzoo_jax.families.feeder.tasks.generic:build_grid"

PRESETS = (
    (ATOMIC_DISTRIBUTION_GRID, GRID),
    (ATOMIC_BATTERY, GRID),
    (ATOMIC_VEHICLE, GRID),
    (ATOMIC_DATACENTER, GRID),
    (ATOMIC_TRANSMISSION_GRID, GRID_FLEET),
    (ATOMIC_SOLAR, GRID_FLEET),
    (ATOMIC_WIND, GRID_FLEET),
    (ATOMIC_FLEXLOAD, GRID_FLEET),
    (DISTRIBUTION_3PHASE, "powerzoo_jax.families.feeder.tasks.generic:build_unbalanced"),
)


BATTERY_ARBITRAGE = day_task(
    "battery_arbitrage",
    family="distribution",
    case="case33bw",
    agents=("battery_0",),
    cost_names=("voltage_violation", "thermal_overload", "unserved_energy", "resource"),
    cost_budget=(inf, inf, inf, 0.5),
    term_names=("energy_sales", "degradation", "settlement", "unserved_energy"),
    term_weights=(1.0, 1.0, 1.0, 1.0),
    overrides=(
        ("battery_bus_ids", (6,)),
        ("battery_capacity_mwh", 0.5),
        ("battery_power_mw", 0.2),
        ("degradation_per_mwh", 5.0),
        ("eta_roundtrip", 0.95),
        ("initial_soc", 0.5),
        ("load_column", "mv_semiurb"),
        ("load_set", "simbench_2016"),
        ("max_load_ratio", 0.85),
        ("price_column", "price.day_ahead_per_mwh"),
        ("price_set", "de_smard_2018"),
        ("settlement_price", True),
        ("soc_max", 0.9),
        ("soc_min", 0.1),
        ("v_max", 1.10),
        ("v_min", 0.90),
    ),
)

DC_MICROGRID = day_task(
    "dc_microgrid",
    family="microgrid",
    case="island",
    horizon=288,
    dt_hours=1 / 12,
    agents=("datacenter_0",),
    cost_names=("sla", "overtemp", "power_deficit"),
    cost_budget=(2.0, 0.5, 0.15),
    term_names=(
        *("fuel", "degradation", "unserved_energy", "missed_jobs", "backlog", "settlement", "carbon"),
        *("zone_heat", "stored_carbon"),  # settled at the end, like the energy that is stored
    ),
    term_weights=(0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.0008, 0.01, 0.0008),
    overrides=(
        ("battery_capacity_mwh", 2.0),
        ("battery_power_mw", 0.5),
        ("constraint_tightness", "standard"),
        ("dg_max_mw", 0.9),
        ("pv_capacity_mw", 0.8),
        ("sla_price", 500.0),
        ("weather", "tmy"),
        ("workload_preset", "hyperscale"),
        ("workload_source", "synthetic"),
    ),
)

DC_MICROGRID_SAFE = replace(
    DC_MICROGRID,
    id="dc_microgrid_safe",
    cost_names=(*DC_MICROGRID.cost_names, "dropped_gpu_h"),
    cost_budget=(*DC_MICROGRID.cost_budget, 60.0),
    term_weights=(0.01, 0.01, 0.01, 0.0, 0.01, 0.01, 0.0008, 0.01, 0.0008),
    overrides=tuple(sorted((dict(DC_MICROGRID.overrides) | {"price_misses": False}).items())),
)

MICROGRID = "powerzoo_jax.families.microgrid.tasks.build:build_microgrid"

BATTERY = "powerzoo_jax.families.feeder.tasks.storage:build_feeder_storage"

CATALOG = (
    (BATTERY_ARBITRAGE, BATTERY),
    *FEEDER_TASKS,
    (DC_MICROGRID, MICROGRID),
    (DC_MICROGRID_SAFE, MICROGRID),
    *TRANSMISSION,
)
