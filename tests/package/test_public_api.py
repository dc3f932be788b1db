"""The names users import, spelled out: adding or removing one is a decision, not a side effect."""

from __future__ import annotations

import inspect
import tomllib
from pathlib import Path
from types import ModuleType

import powerzoo_jax

PUBLIC = {
    "Info",
    "Sim",
    "Step",
    "TaskSpec",
    "autoreset",
    "from_grid2op",
    "lanes",
    "list_tasks",
    "load_case",
    "load_policy",
    "make",
    "register",
    "rollout",
    "run_power_flow",
    "stack",
    "vstep",
}


def test_the_package_offers_these_names_and_no_others():
    assert powerzoo_jax.from_grid2op  # imported when it is first asked for
    names = {n for n, v in vars(powerzoo_jax).items() if not n.startswith("_") and not isinstance(v, ModuleType)}
    assert names == PUBLIC


def test_every_public_name_says_what_it_is():
    assert [n for n in sorted(PUBLIC) if not inspect.getdoc(getattr(powerzoo_jax, n))] == []


def test_the_version_is_the_one_of_the_distribution():
    project = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    assert powerzoo_jax.__version__ == project["project"]["version"]
