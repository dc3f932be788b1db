"""docs/tasks.md says what the catalog and the reference table say."""

from __future__ import annotations

from pathlib import Path

from powerzoo_jax import list_tasks
from tools.tasks import report

PAGE = Path(__file__).resolve().parents[2] / report.PAGE


def test_the_page_is_up_to_date():
    assert report.main([str(PAGE)]) == 0


def test_every_task_is_described():
    assert sorted(report.ABOUT) == list(list_tasks())


def test_a_page_that_differs_is_told(tmp_path):
    other = tmp_path / "tasks.md"
    other.write_text("# Tasks\n")
    assert report.main([str(other)]) == 1
