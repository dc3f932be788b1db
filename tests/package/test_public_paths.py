"""Import paths that were public before the modules moved into folders of families: each is still importable."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

# every name of a package's `__init__` and every path printed in pages, notebooks, docstrings or the changelog
PATHS = (Path(__file__).parent / "public_paths.txt").read_text(encoding="utf-8").split()


def find(path: str) -> Any:
    """Object behind `module`, `module.name` or `module:name`."""
    module, _, name = path.partition(":")
    parts = module.split(".")
    for k in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:k]))
            break
        except ModuleNotFoundError as err:
            if k == 1 or not (err.name or "").startswith(parts[0]):
                raise
    for part in parts[k:]:
        found = getattr(found, part)
    if name and not hasattr(found, name):
        return importlib.import_module(f"{module}.{name}")
    return getattr(found, name) if name else found


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_every_former_public_path_is_importable():
    assert len(PATHS) > 500
    missing = {}
    for path in PATHS:
        try:
            find(path)
        except ImportError as err:
            if "pip install 'powerzoo-jax[" not in str(err):  # an optional package, named with its extra
                missing[path] = str(err)
        except AttributeError as err:
            missing[path] = str(err)
    assert missing == {}


def test_a_module_that_moved_warns_with_its_new_place():
    sys.modules.pop("powerzoo_jax.rl.ppo", None)
    with pytest.warns(DeprecationWarning, match=r"powerzoo_jax\.rl\.ppo is now powerzoo_jax\.rl\.algorithms\.ppo"):
        former = importlib.import_module("powerzoo_jax.rl.ppo")
    assert former is importlib.import_module("powerzoo_jax.rl.algorithms.ppo")


def test_a_name_that_changed_warns_with_the_present_one():
    oracle = importlib.import_module("powerzoo_jax.oracle")
    with pytest.warns(
        DeprecationWarning, match=r"powerzoo_jax\.oracle\.Playbook is now powerzoo_jax\.oracle\.Baselines"
    ):
        assert oracle.Playbook is oracle.Baselines
    with pytest.raises(AttributeError, match=r"module 'powerzoo_jax\.oracle' has no attribute 'Playbok'"):
        oracle.Playbok  # noqa: B018
