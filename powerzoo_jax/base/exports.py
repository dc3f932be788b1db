"""Objects that are imported when they are first asked for: by an import string, or as exports of a package.

A package then offers, or names, what stands above it without importing it, which may itself import the package first.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def load_object(place: str) -> Any:
    """Object at an import string, "module:NAME"."""
    module, name = place.split(":")
    return getattr(importlib.import_module(module), name)


def on_demand(package: str, places: Mapping[str, str]) -> Callable[[str], object]:
    """Module-level `__getattr__` of a package: finds an exported name in its module, once.

    package: dotted name;  places: exported name -> module
    The function raises AttributeError, worded as Python's, for every other name.
    """

    def find(name: str) -> object:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = load_object(f"{places[name]}:{name}")
        setattr(sys.modules[package], name, found)
        return found

    return find
