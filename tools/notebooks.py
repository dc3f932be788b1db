"""Notebooks with their outputs, run once for the tests and the documentation site alike: `python -m tools.notebooks`.

They are committed without outputs; `tools.kept` keeps the executed ones under build/notebooks.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from tools.kept import ROOT, digest_with, kept

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SECONDS_PER_CELL = 600
# Compiling is most of their time and takes half as long without optimisation; none of them tells a speed. These here
# train for so long that optimised programs save more than they cost.
OPTIMISED = frozenset({"04_safe_rl"})


def executed(path: Path) -> Any:
    """Notebook with the outputs of all its cells.

    path:  a notebook of the repository
    Raises nbclient's CellExecutionError, with the traceback of the cell, where a cell fails.
    """
    import nbformat

    source = path.read_text(encoding="utf-8")
    text = kept("notebooks", path.stem, "ipynb", digest_with(source), lambda: _run(source, path.stem in OPTIMISED))
    return nbformat.reads(text, as_version=4)


def _run(source: str, optimised: bool) -> str:
    """Text of a notebook after every cell has run, in an empty folder and on the sources beside this file."""
    import nbformat
    from nbclient import NotebookClient

    # the sources stand in front of any installed copy
    paths = [str(ROOT), str(ROOT / "compat"), *filter(None, [os.environ.get("PYTHONPATH")])]
    plain = "0" if optimised else "1"
    environment = {"PYTHONPATH": os.pathsep.join(paths), "JAX_DISABLE_MOST_OPTIMIZATIONS": plain}
    notebook = nbformat.reads(source, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(notebook, timeout=SECONDS_PER_CELL, resources={"metadata": {"path": folder}})
        client.execute(env=os.environ | environment)
    return str(nbformat.writes(notebook))


if __name__ == "__main__":
    for notebook in NOTEBOOKS:
        executed(notebook)
        print(notebook.name, flush=True)
