"""Names whose packages are optional: looked up when first asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

WRAPPER = "TaskPettingZooWrapper"


def wrapper_on_demand(module: str) -> Callable[[str], Any]:
    """The `__getattr__` of a module that offers TaskPettingZooWrapper; an ImportError names the extra it needs."""

    def lookup(name: str) -> Any:
        if name != WRAPPER:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        from powerzoo_compat.pettingzoo_view import TaskPettingZooWrapper

        return TaskPettingZooWrapper

    return lookup
