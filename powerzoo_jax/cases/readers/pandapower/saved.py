"""Saved pandapower nets as plain data: looked through before anything in them is brought to life.

Such a file is JSON in which an object names the Python module and class it is to become, and pandapower imports that
module. A file could so run whatever lies beside it; here only the modules that pandapower itself writes may be named.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from powerzoo_jax.base.errors import CaseError, excerpt, missing_extra
from powerzoo_jax.base.textfile import MAX_MB, parse_json, read_text, require_file

REMEDY = "Save one with pandapower.to_json(net, path)."
# first part of a module's name -> classes and functions, None = any
MODULES: dict[str, frozenset[str] | None] = {
    "pandapower": None,
    "pandas": None,
    "networkx": None,
    "shapely": None,
    "geopandas": None,
    "numpy": None,
    "builtins": frozenset({"tuple", "set", "frozenset", "complex", "bool", "int", "float", "str", "list", "dict"}),
}
DEEPEST = 64  # levels; a net has six
NESTED = '"_module"'  # tables are texts of JSON within the JSON


def check_net_file(path: str | Path, *, max_mb: float | None = MAX_MB) -> None:
    """Look through a saved net. Raises CaseError as `parse_net`, and for a file larger than `max_mb` [MB]."""
    parse_net(read_text(path, CaseError, max_mb=max_mb), str(path))


def load_net(path: Path) -> Any:
    """The pandapower net of a .json file; CaseError where it holds none, ImportError without pandapower."""
    check_net_file(require_file(path, "pandapower net"))
    try:
        import pandapower
    except ImportError as err:
        raise ImportError(missing_extra("Reading a .json net", "pandapower", "pandapower")) from err
    try:
        net = pandapower.from_json(str(path))
    except Exception as err:  # a file that is no net fails in as many ways as JSON has shapes
        raise CaseError(
            f"{path} cannot be read as a pandapower net: {err}. Save one with pandapower.to_json(net, path)."
        ) from err
    if not isinstance(net, pandapower.pandapowerNet):
        raise CaseError(f"{path} holds no pandapower net. Save one with pandapower.to_json(net, path).")
    return net


def parse_net(text: str, name: str) -> Any:
    """Content of a saved net, the tables within it decoded as well.

    Raises CaseError for what is no JSON, is nested deeper than any net, or names a module that no net needs.
    """
    content = parse_json(text, name, CaseError, REMEDY)
    if not isinstance(content, dict):
        raise CaseError(f"{name} holds a {type(content).__name__}, not a net. {REMEDY}")
    level: list[Any] = [content]
    for _ in range(DEEPEST):
        level = [inner for node in level for inner in _open(node, name)]
        if not level:
            return content
    raise CaseError(f"{name} is nested deeper than {DEEPEST} levels. {REMEDY}")


def _open(node: Any, name: str) -> Iterator[Any]:
    """Objects and lists one level below a node; texts of JSON are put in their decoded form into the node."""
    if isinstance(node, dict):
        if "_class" in node:
            if "_module" in node:
                _check_class(node, name)
            if isinstance(node.get("_object"), str) and node["_object"][:1] in ("{", "["):
                node["_object"] = parse_json(node["_object"], name, CaseError, REMEDY)
        items: list[tuple[Any, Any]] = list(node.items())
    else:
        items = list(enumerate(node))
    for key, value in items:
        if isinstance(value, str) and NESTED in value and value[:1] in ("{", "["):
            node[key] = value = parse_json(value, name, CaseError, REMEDY)
        if isinstance(value, dict | list):
            yield value


def _check_class(node: dict[str, Any], name: str) -> None:
    module, kind = str(node["_module"]), str(node["_class"])
    allowed = MODULES.get(module.partition(".")[0], frozenset())
    # a function is named by its object, and pandapower imports the module to look for it
    if allowed is not None and kind not in allowed:
        raise CaseError(
            f"{name} asks for {excerpt(module)}.{excerpt(kind)}, which is no part of a net, and is not loaded. Do not "
            "open the file with other programs before you know where it comes from."
        )
