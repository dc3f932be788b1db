"""Catalog of the transmission tasks, one literal each, and of presets on the grid of one operator."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from powerzoo_jax.base.types import TaskSpec
from powerzoo_jax.tasks.spec import SAFETY_WEIGHT, Task, day_task

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

ATOMIC_TRANSMISSION_GRID = day_task(
    "atomic_transmission_grid",
    family="transmission",
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

FOLDER = "powerzoo_jax.families.transmission"
UNITS = f"{FOLDER}.tasks.units:build_transmission"
DISPATCH = f"{FOLDER}.causal.dispatch:plan_dispatch", f"{FOLDER}.plan.priced:DispatchPlans"
MODES = ("global", "local", "local_plus_forecast")  # of observations of several agents, the default first
COMMITMENT_PLANS = f"{FOLDER}.commitment.priced:CommitmentPlans"

TASKS = (
    Task(
        COMPARISON_TSO,
        UNITS,
        f"{FOLDER}.commitment.policies:OPERATOR",
        f"{FOLDER}.causal.operator:plan_operator",
        COMMITMENT_PLANS,
        splits=("load_stress", "line_tightening", "iid"),
    ),
    Task(MARL_OPF, UNITS, f"{FOLDER}.plan.policies:DISPATCH", *DISPATCH, modes=MODES),
    Task(MARL_OPF_118, UNITS, f"{FOLDER}.plan.economic:ECONOMIC", *DISPATCH, modes=MODES),
    Task(MARL_OPF_7D, UNITS, f"{FOLDER}.plan.policies:DISPATCH", *DISPATCH, modes=MODES),
    Task(
        MARL_UC,
        UNITS,
        f"{FOLDER}.commitment.policies:COMMITMENT",
        f"{FOLDER}.causal.commitment:plan_units",
        COMMITMENT_PLANS,
        modes=MODES,
    ),
    *(Task(spec, UNITS, f"{FOLDER}.plan.economic:ECONOMIC", *DISPATCH, modes=MODES) for spec in (OPF_118, OPF_118_7D)),
    *(
        Task(spec, f"{FOLDER}.tasks.operator_fleet:build_grid_fleet", splits=(), preset=True)
        for spec in (ATOMIC_TRANSMISSION_GRID, ATOMIC_SOLAR, ATOMIC_WIND, ATOMIC_FLEXLOAD)
    ),
)
