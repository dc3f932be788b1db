"""Every notebook runs from top to bottom in an empty folder, and is committed without outputs."""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SECONDS_PER_CELL = 600
MOST_CODE_CELLS = 10


def read(path: Path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=4)


def code_cells(path: Path) -> list[nbformat.NotebookNode]:
    return [cell for cell in read(path).cells if cell.cell_type == "code"]


def name(path: Path) -> str:
    return path.stem


def test_there_are_notebooks():
    assert [path.stem[:2] for path in NOTEBOOKS] == [f"{k:02}" for k in range(1, 9)]


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
def test_a_notebook_runs(path, tmp_path, monkeypatch):
    # the kernel inherits the environment; the sources stand in front of any installed copy
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    book = read(path)
    client = NotebookClient(book, timeout=SECONDS_PER_CELL, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
