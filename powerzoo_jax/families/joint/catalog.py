"""Catalog of the joint tasks: a transmission grid with feeders, for a day and for a week."""

from __future__ import annotations

from dataclasses import replace

from powerzoo_jax.tasks.spec import Task, day_task


def _joint_budgets(days: float, voltage_pu: float) -> tuple[tuple[str, tuple[float, float, float]], ...]:
    """Budgets of as many days."""
    return (
        ("resource", (days, days, days)),
        ("thermal_overload", (50.0 * days, 15.0 * days, 4.0 * days)),
        ("unserved_energy", (0.0, 0.0, 0.0)),
        ("voltage_violation", (voltage_pu, voltage_pu, voltage_pu)),
    )


JOINT_TRANS_DIST = day_task(
    "joint_trans_dist",
    family="joint",
    case="pz_case5",
    agents=(*(f"unit_{i}" for i in range(5)), *(f"bat_{k}" for k in range(3))),
    cost_names=("thermal_overload", "voltage_violation", "unserved_energy", "resource"),
    cost_budget=(15.0, 0.02, 0.0, 1.0),
    term_names=("generation", "surplus", "unserved_energy", "degradation", "settlement"),
    term_weights=(1e-3,) * 5,
    overrides=(
        ("battery_capacity_mwh", 1.0),
        ("budgets", _joint_budgets(1, 0.02)),
        ("constraint_tightness", "standard"),
        ("degradation_per_mwh", 1.0),
        ("dist_case", "case33bw"),
        ("dist_load_ratio", 0.9),
        ("feeder_bus_ids", (3,)),
        ("feeder_scale", 100.0),  # so much storage that idle batteries cost
        ("load_set", "fr_2017_2019"),
        ("num_batteries", 3),
        ("obs_mode", "global"),
        ("stored_usd_per_mwh", 20.0),
    ),
)

JOINT_TRANS_DIST_7D = replace(
    JOINT_TRANS_DIST,
    id="joint_trans_dist_7d",
    horizon=336,
    # more than seven times that of a day: weeks overlap, and one cold spell of the test split is in a tenth of them
    cost_budget=(105.0, 0.25, 0.0, 7.0),
    overrides=tuple(sorted((dict(JOINT_TRANS_DIST.overrides) | {"budgets": _joint_budgets(7, 0.25)}).items())),
)

MODES = ("global", "local")  # of observations, the default first
TASKS = tuple(
    Task(
        spec,
        "powerzoo_jax.families.joint.tasks:build_joint",
        "powerzoo_jax.families.joint.plan.policies:JOINT",
        "powerzoo_jax.families.joint.causal:plan_joint",
        "powerzoo_jax.families.joint.plan.priced:JointPlans",
        modes=MODES,
    )
    for spec in (JOINT_TRANS_DIST, JOINT_TRANS_DIST_7D)
)
