"""Catalog of the microgrid tasks: an islanded data centre that pays for missed jobs, or has a budget of them."""

from __future__ import annotations

from dataclasses import replace

from powerzoo_jax.tasks.spec import Task, day_task

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

TASKS = tuple(
    Task(
        spec,
        "powerzoo_jax.families.microgrid.tasks.build:build_microgrid",
        "powerzoo_jax.families.microgrid.plan.policies:MICROGRID",
        "powerzoo_jax.families.microgrid.causal:plan_island",
        "powerzoo_jax.families.microgrid.plan.priced:MicrogridPlans",
    )
    for spec in (DC_MICROGRID, DC_MICROGRID_SAFE)
)
