"""Nets as pandapower converted and solved them, for tests where it is not installed (see record_exchange.py)."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from powerzoo_jax.base.npz import read_npz
from powerzoo_jax.cases import Case, from_pandapower

RECORDED = read_npz(Path(__file__).parents[1] / "recorded" / "exchange" / "expected.npz")


def _content(text: np.ndarray) -> Any:
    return json.loads(text.tobytes())


SMALL = _content(RECORDED["nets"])  # `tables` of an empty net, and `nets`: one for each


class Frame(dict):
    """Columns of a pandas table, as far as the conversion reads them."""

    def __init__(self, columns: dict[str, Any]):
        super().__init__({key: np.array(value) for key, value in columns.items()})
        self.index = self.pop("index")

    @property
    def columns(self) -> list[str]:
        return list(self)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return super().__getitem__(key)
        return Frame({name: column[key] for name, column in self.items()} | {"index": self.index[key]})


def voltages(name: str) -> np.ndarray:
    """Complex voltages of all rows of the bus table, inner buses included."""
    if name in SMALL["nets"]:
        v = np.array(SMALL["nets"][name]["v"])
        return np.asarray(v[0] + 1j * v[1])
    return RECORDED[f"{name}.v"]


def converter(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Case]:
    """Net name -> case, with pandapower's recorded answer in place of pandapower."""

    def call(name: str, **changes: Any) -> Case:
        if name in SMALL["nets"]:
            parts = {key: np.array(x) if key != "seen" else x for key, x in SMALL["nets"][name].items()}
        else:
            parts = {key.partition(".")[2]: x for key, x in RECORDED.items() if key.startswith(f"{name}.")}
            parts["seen"] = _content(parts["seen"])
        seen = parts["seen"]
        net = {key: Frame(columns) for key, columns in seen["tables"].items()} | {"name": name}
        net["_pd2ppc_lookups"] = {"bus": parts.get("lookup"), "branch": seen.get("branch")}
        net |= changes.pop("net", {})
        module = ModuleType("to_ppc")
        internal = {"branch_is": seen.get("branch_is")}
        module.to_ppc = lambda *_, **__: {**parts, "internal": internal, **changes}  # type: ignore[attr-defined]
        for path in ("pandapower", "pandapower.converter", "pandapower.converter.pypower"):
            monkeypatch.setitem(sys.modules, path, ModuleType(path))
        monkeypatch.setitem(sys.modules, "pandapower.converter.pypower.to_ppc", module)
        return from_pandapower(net)

    return call
