"""Nets as pandapower converted and solved them, for tests where it is not installed (see record_exchange.py)."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest

from powerzoo_jax.base.npz import read_npz
from powerzoo_jax.cases import from_pandapower

RECORDED = read_npz(Path(__file__).parents[1] / "recorded" / "exchange" / "expected.npz")


def _content(text: np.ndarray) -> Any:
    return json.loads(text.tobytes())


WRITTEN = _content(RECORDED["written"])  # tables of the nets that `to_pandapower` makes of cases
SMALL = _content(RECORDED["nets"])  # `tables` of an empty net, and `nets`: one for each


def _column(values: Any) -> np.ndarray:
    """Array of the values of a column, of lists where they are lists: the segments of costs."""
    if len(values) and isinstance(values[0], list):
        column = np.empty(len(values), object)
        column[:] = values
        return column
    return np.array(values)


class Frame(dict):
    """Columns of a pandas table, as far as the conversion reads them."""

    def __init__(self, columns: dict[str, Any]):
        super().__init__({key: _column(value) for key, value in columns.items()})
        self.index = self.pop("index")

    @property
    def columns(self) -> list[str]:
        return list(self)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return super().__getitem__(key)
        return Frame({name: column[key] for name, column in self.items()} | {"index": self.index[key]})


class PandapowerWriter(ModuleType):
    """The functions that create elements, each as a table of what they are given (`to_pandapower` calls them)."""

    GIVEN: ClassVar[dict[str, tuple[str, str]]] = {  # function -> its table and the names of positional arguments
        "create_buses": ("bus", "count vn_kv"),
        "create_loads": ("load", "bus p_mw q_mvar"),
        "create_shunts": ("shunt", "bus"),
        "create_lines_from_parameters": ("line", "from_bus to_bus"),
        "create_transformers_from_parameters": ("trafo", "hv_bus lv_bus"),
        "create_gens": ("gen", "bus p_mw"),
        "create_sgens": ("sgen", "bus p_mw"),
        "create_ext_grid": ("ext_grid", "bus vm_pu va_degree"),
        "create_poly_cost": ("poly_cost", "element et"),
        "create_pwl_cost": ("pwl_cost", "element et points"),
    }

    def __init__(self) -> None:
        super().__init__("pandapower")

    def create_empty_network(self, name: str, f_hz: float, sn_mva: float, add_stdtypes: bool) -> dict[str, Any]:
        return {"name": name, "f_hz": f_hz, "sn_mva": sn_mva}

    def __getattr__(self, function: str) -> Any:
        if function not in self.GIVEN:
            raise AttributeError(function)
        table, names = self.GIVEN[function]

        def create(net: dict[str, Any], *given: Any, index: Any = None, **more: Any) -> Any:
            columns = dict(zip(names.split(), given, strict=True)) | more
            columns.pop("count", None)
            one = not function.endswith(("s", "parameters"))
            size = 1 if one else max(np.size(value) for value in columns.values())
            whole = {key: [value] if one else np.broadcast_to(value, size) for key, value in columns.items()}
            before = net.get(table)
            at = np.arange(size) + (0 if before is None else len(before.index)) if index is None else np.array(index)
            if before is not None:
                whole = {key: [*before[key], *value] for key, value in whole.items()}
            net[table] = Frame({"index": [*([] if before is None else before.index), *at], **whole})
            return at[0] if one else at

        return create


def voltages(name: str) -> np.ndarray:
    """Complex voltages of all rows of the bus table, inner buses included."""
    if name in SMALL["nets"]:
        v = np.array(SMALL["nets"][name]["v"])
        return np.asarray(v[0] + 1j * v[1])
    return RECORDED[f"{name}.v"]


def converter(monkeypatch: pytest.MonkeyPatch, read: Callable[[Any], Any] = from_pandapower) -> Callable[..., Any]:
    """Net name -> what `read` makes of the net, a case, with pandapower's recorded answer in place of pandapower."""

    def call(name: str, **changes: Any) -> Any:
        options = {key: changes.pop(key) for key in ("opf",) if key in changes}
        if name in SMALL["nets"]:
            parts = {key: np.array(x) if key != "seen" else x for key, x in SMALL["nets"][name].items()}
        else:
            parts = {key.partition(".")[2]: x for key, x in RECORDED.items() if key.startswith(f"{name}.")}
            parts["seen"] = _content(parts["seen"])
        seen = parts["seen"]
        net = {key: Frame(columns) for key, columns in seen["tables"].items()} | {"name": name}
        lookups = {key: seen.get(key) for key in ("branch", "ext_grid", "gen")}
        net["_pd2ppc_lookups"] = {"bus": parts.get("lookup"), **lookups}
        net |= changes.pop("net", {})
        module = ModuleType("to_ppc")
        internal = {key: seen.get(key) for key in ("branch_is", "gen_is")}
        module.to_ppc = lambda *_, **__: {**parts, "internal": internal, **changes}  # type: ignore[attr-defined]
        for path in ("pandapower", "pandapower.converter", "pandapower.converter.pypower"):
            monkeypatch.setitem(sys.modules, path, ModuleType(path))
        monkeypatch.setitem(sys.modules, "pandapower.converter.pypower.to_ppc", module)
        return read(net, **options)

    return call
