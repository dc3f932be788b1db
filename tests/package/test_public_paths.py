"""Public import paths: what each package exports, and every path that a page prints."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# every name of a package's `__init__`
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


def missing(paths: Iterable[str]) -> dict[str, str]:
    """Paths that cannot be imported, and why; a missing optional package, named with its extra, is no reason."""
    found = {}
    for path in paths:
        try:
            find(path)
        except (ImportError, AttributeError) as err:
            if "pip install 'powerzoo-jax[" not in str(err):
                found[path] = str(err)
    return found


def test_every_export_of_a_package_is_importable():
    assert len(PATHS) > 400
    assert missing(PATHS) == {}


def printed() -> set[str]:
    """Dotted paths of the package that pages and notebooks print."""
    pages = [
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "notebooks").rglob("*.ipynb"),
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
    ]
    shown = re.compile(r"(?<![\w./-])powerzoo(?:_jax|_compat)?(?:\.[A-Za-z_]\w*)+(?::\w+)?(?![\w/])")
    taken = re.compile(r"from (powerzoo\w*(?:\.\w+)*) import ([A-Za-z_]\w*(?:, [A-Za-z_]\w*)*)")
    found: set[str] = set()
    for text in (page.read_text(encoding="utf-8") for page in pages):
        found |= set(shown.findall(text))
        found |= {f"{module}:{name}" for module, names in taken.findall(text) for name in names.split(", ")}
    return found


def test_every_path_printed_in_a_page_is_importable():
    assert len(paths := printed()) > 100
    assert missing(paths) == {}
