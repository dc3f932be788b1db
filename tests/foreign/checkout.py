"""A file of another project's checkout with lines exchanged; nothing of it is kept."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any


def stand_in(modules: dict[str, dict[str, Any]]) -> None:
    """Modules by name, with their attributes, for packages that a file imports and does not need here."""
    for name, attributes in modules.items():
        sys.modules[name] = ModuleType(name)
        sys.modules[name].__dict__.update(attributes)


class Checkout:
    """A file at a path, and how it is run with lines exchanged.

    folder:   the checkout
    file:     path below it
    changes:  line -> line; each must occur once, but for its indentation

    Raises ValueError for a line that is not there, or there more than once.
    """

    def __init__(self, folder: str, file: str, changes: dict[str, str]) -> None:
        self.path = Path(folder) / file
        text = self.path.read_text(encoding="utf-8")
        self.digest = hashlib.sha256(text.encode()).hexdigest()
        self.lines = list(changes.values())
        for old, new in changes.items():
            if text.count(old) != 1:
                raise ValueError(f"{file} holds {text.count(old)} times {old!r}. Take a revision that has it once.")
            text = text.replace(old, new)
        self._text = text

    def run(self, name: str) -> dict[str, Any]:
        """Names that the file leaves behind, run as the module `name`."""
        module = sys.modules[name] = ModuleType(name)  # dataclasses look their module up
        module.__file__ = str(self.path)
        exec(compile(self._text, str(self.path), "exec"), module.__dict__)
        return module.__dict__

    def told(self) -> dict[str, Any]:
        """What the record says of the file."""
        return {"sha256": self.digest, "lines": self.lines}
