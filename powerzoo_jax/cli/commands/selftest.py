"""`selftest`: checks of this installation's names, data, solvers, tasks and views."""

from __future__ import annotations

import argparse
import platform
from collections.abc import Callable
from importlib import metadata, util
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from powerzoo_jax import __version__
from powerzoo_jax.base import Step
from powerzoo_jax.base.errors import DataError, PowerZooError
from powerzoo_jax.base.numerics import resolve_dtype
from powerzoo_jax.cases import Case, list_cases, load_case, validate
from powerzoo_jax.cli.table import STDOUT, render_pairs, write_json
from powerzoo_jax.data import list_datasets, load_dataset
from powerzoo_jax.envs import Sim
from powerzoo_jax.opf import dc_opf, prepare_dc_opf
from powerzoo_jax.oracle import random_act
from powerzoo_jax.powerflow import (
    Status,
    nominal_injection,
    prepare_feeder,
    prepare_meshed,
    solve_feeder,
    solve_meshed,
)
from powerzoo_jax.powerflow.native.library import describe
from powerzoo_jax.rl import rollout
from powerzoo_jax.tasks import list_tasks, make

# Losses at nominal load: Baran and Wu 1989, and MATPOWER 8.1; the optimum of the five-bus dispatch is that of HiGHS.
LOSS_KW, LOSS_MW, COST_USD = 202.677, 13.3933, 17480.4696
TOLERANCE = 1e-5  # of a golden number; float32 keeps 1e-6
FAMILIES = ("battery_arbitrage", "marl_opf", "dc_microgrid")  # with a power flow, a dispatch, an island
LANES, STEPS = 2, 3  # of the rollouts
VIEWS = ("gymnasium", "vector", "pettingzoo", "sb3", "gymnax", "safety")
EXTRAS = {"matplotlib": "viz", "pettingzoo": "pettingzoo", "stable_baselines3": "sb3", "gymnax": "gymnax"}
VERSIONS = ("jax", "jaxlib", "numpy", "scipy", "flax", "optax", "gymnasium")
REPAIR = "Run `pip uninstall powerzoo`, then `pip install --force-reinstall powerzoo-jax`."


def run(options: argparse.Namespace) -> int:
    """Run every check, print one line each; 1 when one fails."""
    here = _environment()
    print(render_pairs(here))
    done: list[dict[str, Any]] = []
    for title, check in CHECKS:
        try:
            note, passed = check(), True
        except (PowerZooError, ValueError, OSError, ArithmeticError) as err:
            note, passed = str(err), False
        print(f"{'ok   ' if passed else 'FAIL '} {title}: {note}", flush=True)
        done.append({"check": title, "passed": passed, "note": note})
    failures = sum(not each["passed"] for each in done)
    print("all checks passed" if not failures else f"{failures} check(s) failed")
    if options.json:
        write_json({"passed": not failures, "checks": done, "environment": dict(here)}, STDOUT)
    return int(failures > 0)


def _environment() -> list[tuple[str, str]]:
    devices = ", ".join(str(device) for device in jax.devices())
    versions = [(name, _version(name)) for name in VERSIONS]
    here = [("powerzoo-jax", __version__), ("python", platform.python_version()), ("machine", platform.platform())]
    return [*here, *versions, ("devices", devices), ("meshed power flow", describe())]


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def check_names() -> str:
    """The import name `powerzoo` belongs to this distribution, or to nobody."""
    foreign = _version("powerzoo")
    if foreign != "not installed":
        raise DataError(f"the distribution powerzoo {foreign} is installed and uses the same import name. {REPAIR}")
    spec = util.find_spec("powerzoo")
    if spec is None or spec.origin is None:
        return "the drop-in `powerzoo` is not on the path"
    if util.find_spec("powerzoo_compat") is None:
        raise DataError(f"`powerzoo` at {Path(spec.origin).parent} is not the drop-in of this package. {REPAIR}")
    return "`powerzoo` is the drop-in of this package"


def check_data() -> str:
    """Every bundled series decodes to the content its manifest names; every table passes the rules."""
    for name in list_datasets():
        load_dataset(name)
    for name in list_cases():
        errors = [p for p in validate(load_case(name)) if p.severity == "error"]
        if errors:
            raise DataError(f"{name}: {errors[0]}")
    return f"{len(list_datasets())} data sets have their SHA-256, {len(list_cases())} cases pass the rules"


def check_physics() -> str:
    """Three solvers against published numbers: a feeder, a meshed network, a dispatch with prices."""
    feeder, meshed, market = (load_case(name) for name in ("case33bw", "case14", "pz_case5"))
    found = (
        ("case33bw loses", 1000 * feeder.base_mva * _losses(feeder, solve_feeder, prepare_feeder), LOSS_KW, "kW"),
        ("case14 loses", meshed.base_mva * _losses(meshed, solve_meshed, prepare_meshed), LOSS_MW, "MW"),
        ("pz_case5 costs", _cost(market), COST_USD, "$/h"),
    )
    for what, value, golden, unit in found:
        if not np.isclose(value, golden, rtol=TOLERANCE, atol=0):
            raise ArithmeticError(f"{what} {value:.3f} {unit}, expected {golden} {unit}. Check the versions above.")
    return ", ".join(f"{what} {value:.3f} {unit}" for what, value, _, unit in found)


def _losses(case: Case, solve: Callable[..., Any], prepare: Callable[[Case], Any]) -> float:
    """Losses [pu] at nominal load; NaN where the solver does not converge."""
    demand, dtype = nominal_injection(case), resolve_dtype()
    result = solve(prepare(case), jnp.asarray(demand.real, dtype), jnp.asarray(demand.imag, dtype))
    return float(result.p_loss) if int(result.status) == Status.CONVERGED else np.nan


def _cost(case: Case) -> float:
    """Cost [USD/h] of the DC-OPF at nominal load; NaN where it finds no optimum."""
    result = jax.jit(dc_opf)(prepare_dc_opf(case), jnp.asarray(case.p_load_mw, resolve_dtype()))
    return float(result.objective) if bool(result.optimal) else np.nan


def check_tasks() -> str:
    """Every task can be made; a few steps of three of them are finite, lanes side by side."""
    for name in list_tasks():
        make(name)
    for name in FAMILIES:
        sim = make(name)
        keys = jax.random.split(jax.random.key(0), LANES)
        _, steps = jax.jit(jax.vmap(_play, (None, 0)))(sim, keys)
        if not all(bool(jnp.isfinite(x).all()) for x in (steps.obs, steps.reward, steps.cost)):
            raise ArithmeticError(f"task {name} gives a value that is not finite. Check the versions above.")
    return f"{len(list_tasks())} tasks can be made, rollouts of {', '.join(FAMILIES)} are finite"


def _play(sim: Sim, key: Array) -> tuple[Any, Step]:
    return rollout(sim, random_act(sim), (), key, STEPS, reset=False)


def check_views() -> str:
    """The views are installed beside the simulator; which of them can be used depends on the extras."""
    spec = util.find_spec("powerzoo_compat")
    if spec is None or spec.origin is None:
        raise DataError("`powerzoo_compat` is not on the path. Install the package instead of copying its folder.")
    missing = [view for view in VIEWS if not (Path(spec.origin).parent / f"{view}_view.py").is_file()]
    if missing:
        raise DataError(f"files of views are missing: {', '.join(missing)}. Install the package again.")
    absent = [extra for package, extra in EXTRAS.items() if util.find_spec(package) is None]
    note = f"; extras not installed: {', '.join(absent)}" if absent else ""
    return f"{', '.join(VIEWS)}{note}"


CHECKS: tuple[tuple[str, Callable[[], str]], ...] = (
    ("names", check_names),
    ("views", check_views),
    ("data", check_data),
    ("physics", check_physics),
    ("tasks", check_tasks),
)
