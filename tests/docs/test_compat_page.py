"""The Python that compat/README.md shows runs as it is pasted."""

from __future__ import annotations

from pathlib import Path

PAGE = (Path(__file__).resolve().parents[2] / "compat" / "README.md").read_text(encoding="utf-8")


def test_every_example_runs(run_snippet, snippets_of):
    examples = snippets_of(PAGE)
    assert len(examples) == 5
    for body in examples:
        run_snippet(body)
