"""Exports of a package that are imported when they are first asked for.

A package then offers what stands above it without importing it: its own modules may be imported by that first.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping


def on_demand(package: str, places: Mapping[str, str]) -> Callable[[str], object]:
    """Module-level `__getattr__` of a package: finds an exported name in its module, once.

    package: dotted name;  places: exported name -> module
    The function raises AttributeError, worded as Python's, for every other name.
    """

    def find(name: str) -> object:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(importlib.import_module(places[name]), name)
        setattr(sys.modules[package], name, found)
        return found

    return find
