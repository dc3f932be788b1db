"""Own tasks and grids on the command line: Python files that register tasks, and keywords of `make`."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from powerzoo_jax.base.errors import SettingsError
from powerzoo_jax.base.textfile import parse_assignments, require_file

_loaded: set[Path] = set()


def load_modules(paths: Iterable[str | Path]) -> tuple[str, ...]:
    """Run Python files that register tasks, each once a process; returns their absolute paths.

    A file is imported under its stem, so that its builders are "my_tasks:build".
    Raises DataMissing without the file, SettingsError where it is no Python, its stem is taken by another module, or it
    fails, naming the file and the line.
    """
    found = []
    for path in paths:
        file = require_file(
            Path(path), "module of tasks", "Give the path of a .py file that calls powerzoo_jax.register."
        )
        file = file.resolve()
        if file not in _loaded:
            _load(file)
            _loaded.add(file)
        found.append(str(file))
    return tuple(found)


def _load(file: Path) -> None:
    name = file.stem
    if file.suffix != ".py" or not name.isidentifier():
        raise SettingsError(f"--module {file}: not a Python file whose name can be imported. Name it like my_tasks.py.")
    if name in sys.modules or not _is_free(name, file):
        raise SettingsError(f"--module {file}: there is another module {name!r}. Give the file another name.")
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None  # a file with the ending .py has a loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as err:
        del sys.modules[name]
        raise SettingsError(f"--module {file}, line {_line_of(err, file)}: {type(err).__name__}: {err}") from err


def _is_free(name: str, file: Path) -> bool:
    """Whether an import of this name finds nothing, or the file itself, as in a program started beside it."""
    there = importlib.util.find_spec(name)
    return there is None or (there.origin is not None and Path(there.origin).resolve() == file)


def _line_of(err: BaseException, file: Path) -> int:
    """Last line of the file on the way to an error; the line that a syntax error names."""
    if isinstance(err, SyntaxError) and err.lineno is not None:
        return err.lineno
    line, step = 1, err.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_filename == str(file):
            line = step.tb_lineno
        step = step.tb_next
    return line


def parse_keywords(texts: Sequence[str]) -> dict[str, Any]:
    """Keywords of `make` out of NAME=VALUE: numbers, true, false, null and [lists] as in JSON, all else as text.

    Raises SettingsError for a text of another form or a name that is given twice.
    """
    return parse_assignments(texts, "--keyword")
