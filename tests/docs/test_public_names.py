"""Every public name is on a page of the reference and says what it takes and gives: shapes, and units or kinds."""

from __future__ import annotations

import importlib
import inspect
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import powerzoo_jax
from tests.docs.scripts import load

ROOT = Path(__file__).resolve().parents[2]
AXIS = r"(?:[A-Z][a-z]?|[a-z]|\d+|\.\.\.|n_\w+|count)(?: ?[+*-] ?\d+)?"
SHAPE = re.compile(rf"\((?:{AXIS}(?:, ?{AXIS})*,?)?\)")
ARRAY = re.compile(r"\b(?:Array|ArrayLike|ndarray)\b")
# a unit in brackets, or in the ending of a name; else what kind of number it is
UNIT = re.compile(
    r"\[[^\]\d]+\]|_(?:pu|mw|mwh|mvar|mva|kw|kv|rad|usd|hours|minutes)\b"
    r"|\b(?:bool|int32|int64|uint32|datetime64|PRNG key|float64|of 0 and 1|in any unit|in the units? of)\b"
)
IMPORTED = re.compile(r"^\s*from (powerzoo_jax[\w.]*) import \(?([\w, ]+)", re.MULTILINE)
PAGES = [ROOT / "README.md", ROOT / "compat" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@cache
def site() -> Any:
    return load(ROOT / "docs" / "hooks" / "site.py")


def modules() -> list[str]:
    return [module for _, listed in site().API.values() for module in listed]


@cache
def public() -> dict[str, Any]:
    """Everything on the API pages, by full name; constants are left to their pages."""
    found = {}
    for full in (
        name for module in modules() if module.startswith("powerzoo_jax") for name in site().public_names(module)
    ):
        module, _, name = full.rpartition(".")
        value = getattr(importlib.import_module(module), name)
        if inspect.isclass(value) or callable(value):
            found[full] = value
    return found


def arrays(value: Any) -> list[str]:
    """Names of the fields, arguments and results that are arrays."""
    if inspect.isclass(value):
        notes = inspect.get_annotations(value)
    else:
        signature = inspect.signature(value)
        notes = {name: p.annotation for name, p in signature.parameters.items()}
        notes["return"] = signature.return_annotation
    return [name for name, note in notes.items() if ARRAY.search(str(note)) and "Callable" not in str(note)]


def shown() -> set[tuple[str, str]]:
    """(module, name) of every import that a page or a notebook shows."""
    texts = [path.read_text(encoding="utf-8") for path in PAGES]
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        texts += ["".join(cell["source"]) for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]]
    found = {(m, name.strip()) for text in texts for m, names in IMPORTED.findall(text) for name in names.split(",")}
    return {(module, name) for module, name in found if name and not name.isupper()}  # constants stand with their users


def test_public_names_are_found():
    assert len(public()) > 300
    assert sum(bool(arrays(value)) for value in public().values()) > 150


def test_every_public_name_has_a_text_of_its_own():
    generated = [n for n, v in public().items() if not v.__doc__ or v.__doc__.startswith(f"{v.__name__}(")]
    assert generated == []


def test_every_array_has_a_shape():
    assert [name for name, value in public().items() if arrays(value) and not SHAPE.search(value.__doc__)] == []


def test_every_array_has_a_unit_or_a_kind():
    without = []
    for name, value in public().items():
        taken = arrays(value)
        if taken and not UNIT.search(" ".join([value.__doc__, *taken])):
            without.append(name)
    assert without == []


def test_every_array_of_a_record_is_explained():
    missing = {
        name: [field for field in arrays(value) if not re.search(rf"\b{field}\b", value.__doc__)]
        for name, value in public().items()
        if inspect.isclass(value)
    }
    assert {name: fields for name, fields in missing.items() if fields} == {}


def test_what_pages_and_notebooks_import_is_in_the_reference():
    on_pages = {(module, full.rpartition(".")[2]) for module in modules() for full in site().public_names(module)}
    missing = {
        (module, name)
        for module, name in shown()
        if (module, name) not in on_pages and f"{module}.{name}" not in modules()
    }
    assert len(shown()) > 40 and missing == set()


@pytest.mark.parametrize("name", [n for n, v in vars(powerzoo_jax).items() if not n.startswith("_") and callable(v)])
def test_a_name_of_the_top_level_shows_an_example_or_is_made_by_one(name):
    text = getattr(powerzoo_jax, name).__doc__
    assert "Example:" in text or name in {"Info", "Step", "TaskSpec"}  # handed out by `step` and `get_spec`
