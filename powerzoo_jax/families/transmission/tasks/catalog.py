"""Catalog of the public tasks on transmission grids, one literal each and nothing else."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from powerzoo_jax.tasks.spec import day_task

# Dispatch tasks keep their lines, but for the rounding of flows that lie at a rating.
MARL_OPF = day_task(
    "marl_opf",
    family="transmission",
    case="pz_case5",
    agents=tuple(f"unit_{i}" for i in range(5)),
    cost_names=("thermal_overload", "voltage_violation", "power_balance", "unserved_energy", "resource"),
    cost_budget=(0.5, inf, inf, 0.0, inf),
    term_names=("generation", "surplus", "unserved_energy"),
    term_weights=(1e-3, 1e-3, 1e-3),
    overrides=(
        ("budgets", (("thermal_overload", (3.0, 0.5, 0.1)), ("unserved_energy", (0.0, 0.0, 0.0)))),
        ("constraint_tightness", "standard"),
        ("load_ratios", (0.70, 0.90, 0.98)),
        ("load_set", "fr_2017_2019"),
        ("obs_mode", "global"),
        ("stress_load", 1.08),
    ),
)

RATINGS_118 = 0.7  # of the lines of the case: at its own ratings a plan by the clock overloads none, whatever it sees

UNITS_UC = ("peak", "peak", "base", "peak", "base")  # with minimum times, ramps and costs of running

MARL_UC = replace(
    MARL_OPF,
    id="marl_uc",
    cost_names=(*MARL_OPF.cost_names, "reserve_shortfall"),
    cost_budget=(*MARL_OPF.cost_budget, 0.5),
    term_names=(*MARL_OPF.term_names, "no_load", "startup", "shutdown"),
    term_weights=(1e-3,) * 6,
    overrides=(
        (
            "budgets",
            (
                ("reserve_shortfall", (3.0, 0.5, 0.1)),
                ("thermal_overload", (3.0, 0.5, 0.1)),
                ("unserved_energy", (0.0, 0.0, 0.0)),
            ),
        ),
        ("commitment", True),
        *MARL_OPF.overrides[1:-1],
        ("reserve_share", 0.10),
        MARL_OPF.overrides[-1],
        ("unit_technologies", UNITS_UC),
    ),
)

OPF_118 = replace(
    MARL_OPF,
    id="opf_118",
    case="pz_case118",
    agents=tuple(f"unit_{i}" for i in range(54)),
    cost_budget=(2.0, inf, inf, 0.0, inf),
    overrides=(
        ("budgets", (("thermal_overload", (12.0, 2.0, 0.4)), ("unserved_energy", (0.0, 0.0, 0.0)))),
        ("constraint_tightness", "standard"),
        ("load_ratios", (0.70, 0.85, 0.95)),
        ("load_set", "fr_2017_2019"),
        ("obs_mode", "global"),
        ("rating_scale", RATINGS_118),
        ("stress_load", 1.08),
    ),
)

OPF_118_7D = replace(
    OPF_118,
    id="opf_118_7d",
    horizon=336,
    cost_budget=(14.0, inf, inf, 0.0, inf),
    overrides=(
        ("budgets", (("thermal_overload", (84.0, 14.0, 2.8)), ("unserved_energy", (0.0, 0.0, 0.0)))),
        *OPF_118.overrides[1:],
    ),
)

COMPARISON_TSO = replace(
    MARL_UC,
    id="comparison_tso_centralized",
    case="pz_case118",
    agents=("tso_0",),
    cost_names=("thermal_overload", "reserve_shortfall", "power_balance", "unserved_energy"),
    cost_budget=(10.0, 5.0, inf, 1.0),
    term_weights=(1e-4,) * 6,
    overrides=(
        (
            "budgets",
            (
                ("reserve_shortfall", (20.0, 5.0, 1.0)),
                ("thermal_overload", (30.0, 10.0, 3.0)),
                ("unserved_energy", (5.0, 1.0, 0.1)),
            ),
        ),
        ("commitment", True),
        ("constraint_tightness", "standard"),
        ("load_set", "fr_2017_2019"),
        ("max_load_ratio", 1.0),
        ("obs_mode", "flattened"),
        ("peak_mw", 6363.0),
        ("stress_load", 1.15),
        ("sun_share", 0.5),
        ("wind_share", 0.7),
    ),
)

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

MARL_OPF_7D = replace(
    MARL_OPF,
    id="marl_opf_7d",
    horizon=336,
    cost_budget=(3.5, inf, inf, 0.0, inf),
    overrides=(
        ("budgets", (("thermal_overload", (21.0, 3.5, 0.7)), ("unserved_energy", (0.0, 0.0, 0.0)))),
        *MARL_OPF.overrides[1:],
    ),
)

MARL_OPF_118 = replace(
    MARL_OPF,
    id="marl_opf_118",
    case="pz_case118",
    agents=OPF_118.agents,
    cost_budget=OPF_118.cost_budget,
    overrides=(
        OPF_118.overrides[0],
        *MARL_OPF.overrides[1:-1],
        ("rating_scale", RATINGS_118),
        MARL_OPF.overrides[-1],
    ),
)


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

BUILD = "powerzoo_jax.families.transmission.tasks.units:build_transmission"
JOINT = "powerzoo_jax.families.joint.tasks:build_joint"
BIDDING = "powerzoo_jax.families.market.tasks.bidding:build_market"
TRANSMISSION = (
    *((spec, BUILD) for spec in (MARL_OPF, MARL_OPF_7D, MARL_OPF_118, MARL_UC, OPF_118, OPF_118_7D, COMPARISON_TSO)),
    (GENCOS_BIDDING, BIDDING),
    (JOINT_TRANS_DIST, JOINT),
    (JOINT_TRANS_DIST_7D, JOINT),
)
