"""Packages that are not installed name their extra; matplotlib: tests/plot, equal numbers: test_public_tasks.py."""

from __future__ import annotations

import importlib
import sys

import powerzoo
import pytest

API = "powerzoo_compat.powerzoo_api."
VIEWS = [  # package, extra, module that needs it
    ("pettingzoo", "pettingzoo", "powerzoo_compat.pettingzoo_view"),
    ("pettingzoo", "pettingzoo", API + "grids.marl"),
    ("pettingzoo", "mo", "powerzoo_compat.momaland_view"),
    ("pettingzoo", "smartgrid", "powerzoo_compat.smartgrid_view"),
    ("stable_baselines3.common.vec_env", "sb3", "powerzoo_compat.sb3_view"),
    ("ray.rllib.env.multi_agent_env", "rllib", "powerzoo_compat.rllib_view"),
    ("gymnax", "gymnax", "powerzoo_compat.gymnax_view"),
    ("jaxmarl", "jaxmarl", "powerzoo_compat.jaxmarl_view"),
]
USES = [  # package, extra, a call that needs it
    ("pettingzoo", "pettingzoo", lambda: powerzoo.make_task_env("marl_opf", framework="pettingzoo")),
    ("pettingzoo", "pettingzoo", lambda: powerzoo.TaskPettingZooWrapper),
    ("ray", "rllib", lambda: powerzoo.make_task_env("marl_opf", framework="rllib")),
    ("yaml", "dropin", lambda: powerzoo.RLConfig.from_yaml("run.yaml")),
    ("stable_baselines3", "sb3", lambda: powerzoo.Trainer("battery_arbitrage", backend="sb3").train()),
    ("torchrl.envs", "torchrl", lambda: make_torchrl_env("marl_opf")),
]


def make_torchrl_env(task):
    return importlib.import_module("powerzoo_compat.torchrl_view").make_torchrl_env(task)


def commands(extra):
    """Pattern of the two commands that install it: beside an installed package, and in a checkout."""
    return rf"pip install 'powerzoo-jax\[{extra}\]', or pip install -e '\.\[{extra}\]' in a checkout"


@pytest.fixture
def without(monkeypatch):
    """Make a package missing, and forget our modules that have found it."""

    def leave_out(package):
        for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, package, None)
        monkeypatch.delitem(vars(powerzoo), "TaskPettingZooWrapper", raising=False)  # found by an earlier test
        ours = ("powerzoo_compat.pettingzoo_aec", API + "envs.parallel", API + "envs.rllib")
        for name in [*{view for _, _, view in VIEWS}, *ours]:
            monkeypatch.delitem(sys.modules, name, raising=False)

    return leave_out


@pytest.mark.parametrize(("package", "extra", "module"), VIEWS)
def test_a_view_whose_package_is_not_installed_names_its_extra(package, extra, module, without):
    without(package)
    with pytest.raises(ImportError, match=commands(extra)):
        importlib.import_module(module)


@pytest.mark.parametrize(("package", "extra", "use"), USES)
def test_a_call_whose_package_is_not_installed_names_its_extra(package, extra, use, without):
    without(package)
    with pytest.raises(ImportError, match=commands(extra)):
        use()
