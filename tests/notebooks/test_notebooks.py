"""Every notebook runs from top to bottom in an empty folder, once for the tests and the site, and is committed bare."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from nbclient.exceptions import CellExecutionError

from tools import kept
from tools.notebooks import NOTEBOOKS, executed

MOST_CODE_CELLS = 11


def read(path: Path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=4)


def code_cells(path: Path) -> list[nbformat.NotebookNode]:
    return [cell for cell in read(path).cells if cell.cell_type == "code"]


def name(path: Path) -> str:
    return path.stem


def test_there_are_notebooks():
    assert [path.stem[:2] for path in NOTEBOOKS] == [f"{k:02}" for k in range(1, 10)]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_a_notebook_is_committed_without_outputs(path):
    assert all(not cell.outputs and cell.execution_count is None for cell in code_cells(path))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_a_notebook_is_short_and_says_how_long_it_runs(path):
    assert len(code_cells(path)) <= MOST_CODE_CELLS
    assert "Run time" in read(path).cells[0].source


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_a_notebook_ends_by_checking_what_it_advertises(path):
    assert code_cells(path)[-1].source.startswith("assert ")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_a_notebook_begins_by_installing_what_is_missing(path):
    """Without an address of an index, and without a change where the package is there."""
    first = code_cells(path)[0].source
    assert re.search(r'find_spec\("powerzoo_jax"\) is None:\n +%pip install -q "powerzoo-jax(\[\w+\])?"', first)
    assert "://" not in first


@pytest.mark.full
@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_a_notebook_runs(path):
    counts = [cell.execution_count for cell in executed(path).cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1))


@pytest.mark.full
def test_a_cell_that_fails_is_told_and_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "BUILD", tmp_path / "build")
    path = tmp_path / "small.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("assert 1 > 2", id="cell")]), path)
    with pytest.raises(CellExecutionError, match="assert 1 > 2"):
        executed(path)
    assert list((tmp_path / "build" / "notebooks").glob("*.ipynb")) == []
