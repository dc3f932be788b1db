"""Catalog of the market tasks."""

from __future__ import annotations

from powerzoo_jax.tasks.spec import Task, day_task

GENCOS_BIDDING = day_task(
    "gencos_bidding",
    family="market",
    case="pz_case5",
    agents=tuple(f"genco_{i}" for i in range(5)),
    cost_names=("thermal_overload", "unserved_energy"),
    cost_budget=(0.0, 0.5),
    term_names=("revenue", "generation_cost"),
    term_weights=(1.0, 1.0),
    overrides=(
        ("constraint_tightness", "standard"),
        ("load_set", "fr_2017_2019"),
        ("n_segments", 3),
        ("price_cap", 1000.0),
        ("ramp_rate_fraction", 0.5),
    ),
)

TASKS = (
    Task(
        GENCOS_BIDDING,
        "powerzoo_jax.families.market.tasks.bidding:build_market",
        "powerzoo_jax.families.market.plan:BIDDING",
    ),
)
