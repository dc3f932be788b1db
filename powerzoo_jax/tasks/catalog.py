"""The public tasks, one literal each and nothing else: what a paper must quote, as data."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from powerzoo_jax.base.types import TaskSpec
from powerzoo_jax.tasks.feeder.catalog import FEEDER_TASKS
from powerzoo_jax.tasks.transmission.catalog import TRANSMISSION

BATTERY_ARBITRAGE = TaskSpec(
    id="battery_arbitrage",
    version=0,
    family="distribution",
    case="case33bw",
    horizon=48,
    dt_hours=0.5,
    split="train",
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
        ("soc_max", 0.9),
        ("soc_min", 0.1),
        ("v_max", 1.10),
        ("v_min", 0.90),
    ),
)

DC_MICROGRID = TaskSpec(
    id="dc_microgrid",
    version=0,
    family="microgrid",
    case="island",
    horizon=288,
    dt_hours=1 / 12,
    split="train",
    agents=("datacenter_0",),
    cost_names=("sla", "overtemp", "power_deficit"),
    cost_budget=(2.0, 0.5, 0.15),
    term_names=("fuel", "degradation", "unserved_energy", "missed_jobs", "backlog", "settlement", "carbon"),
    term_weights=(0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.0008),
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
    term_weights=(0.01, 0.01, 0.01, 0.0, 0.01, 0.01, 0.0008),
    overrides=(*DC_MICROGRID.overrides, ("price_misses", False)),
)

MICROGRID = "powerzoo_jax.tasks.microgrid.build:build_microgrid"

CATALOG = (
    (BATTERY_ARBITRAGE, "powerzoo_jax.tasks.feeder.storage:build_feeder_storage"),
    *FEEDER_TASKS,
    (DC_MICROGRID, MICROGRID),
    (DC_MICROGRID_SAFE, MICROGRID),
    *TRANSMISSION,
)
