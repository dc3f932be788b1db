"""Catalog of presets that validate one device on one feeder each, and the three-phase feeder: no public tasks."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from powerzoo_jax.base.types import TaskSpec
from powerzoo_jax.families.feeder.tasks.catalog import SMARD
from powerzoo_jax.tasks.spec import SAFETY_WEIGHT, Task, day_task

ATOMIC_DISTRIBUTION_GRID = day_task(
    "atomic_distribution_grid",
    family="feeder",
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
    family="feeder",
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

PRESETS = (
    *(
        Task(spec, "powerzoo_jax.families.feeder.tasks.generic:build_grid", preset=True)
        for spec in (ATOMIC_DISTRIBUTION_GRID, ATOMIC_BATTERY, ATOMIC_VEHICLE, ATOMIC_DATACENTER)
    ),
    Task(DISTRIBUTION_3PHASE, "powerzoo_jax.families.feeder.tasks.generic:build_unbalanced", preset=True),
)
