"""`selftest`: is this installation what it claims to be?"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Callable
from importlib import metadata, util
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from powerzoo_jax import __version__
from powerzoo_jax.base.errors import DataError, PowerZooError
from powerzoo_jax.base.numerics import resolve_dtype
from powerzoo_jax.base.spaces import sample
from powerzoo_jax.cases import list_cases, load_case, validate
from powerzoo_jax.cli.table import render_pairs
from powerzoo_jax.data import list_datasets, load_dataset
from powerzoo_jax.powerflow import Status, nominal_injection, prepare_feeder, solve_feeder
from powerzoo_jax.tasks import list_tasks, make

LOSS_KW = 202.677  # case33bw at nominal load, as published and as every solver finds
LOSS_TOLERANCE = 1e-5
VERSIONS = ("jax", "jaxlib", "numpy", "scipy", "flax", "optax", "gymnasium")
REPAIR = "Run `pip uninstall powerzoo`, then `pip install --force-reinstall powerzoo-jax`."


def run(options: argparse.Namespace) -> int:
    """Run every check, print one line each; 1 when one fails."""
    del options
    print(render_pairs(_environment()))
    failures = 0
    for title, check in CHECKS:
        try:
            note = check()
        except (PowerZooError, ValueError, OSError, ArithmeticError) as err:
            failures += 1
            print(f"FAIL  {title}: {err}")
        else:
            print(f"ok    {title}: {note}")
    print("all checks passed" if not failures else f"{failures} check(s) failed")
    return int(failures > 0)


def _environment() -> list[tuple[str, str]]:
    devices = ", ".join(str(device) for device in jax.devices())
    versions = [(name, _version(name)) for name in VERSIONS]
    here = [("powerzoo-jax", __version__), ("python", platform.python_version()), ("machine", platform.platform())]
    return [*here, *versions, ("devices", devices)]


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
    """The losses of a published feeder."""
    case = load_case("case33bw")
    demand = nominal_injection(case)
    dtype = resolve_dtype()
    result = solve_feeder(prepare_feeder(case), jnp.asarray(demand.real, dtype), jnp.asarray(demand.imag, dtype))
    loss = float(result.p_loss) * case.base_mva * 1000
    if int(result.status) != Status.CONVERGED or not np.isclose(loss, LOSS_KW, rtol=LOSS_TOLERANCE, atol=0):
        raise ArithmeticError(f"case33bw loses {loss:.3f} kW, expected {LOSS_KW} kW. Check the versions above.")
    return f"case33bw loses {loss:.3f} kW (expected {LOSS_KW} kW)"


def check_step() -> str:
    """One environment step of every task is finite and compiled."""
    for name in list_tasks():
        sim = make(name)
        state, _ = jax.jit(type(sim).init)(sim, jax.random.key(0))
        out = jax.jit(type(sim).step)(sim, state, sample(sim.spaces()[1], jax.random.key(1)))
        if not all(bool(jnp.isfinite(x).all()) for x in (out.obs, out.reward, out.cost)):
            raise ArithmeticError(f"task {name} gives a value that is not finite. Check the versions above.")
    return f"one step of {len(list_tasks())} task(s) is finite"


CHECKS: tuple[tuple[str, Callable[[], str]], ...] = (
    ("names", check_names),
    ("data", check_data),
    ("physics", check_physics),
    ("step", check_step),
)
