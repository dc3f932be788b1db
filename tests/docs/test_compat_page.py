"""The Python that compat/README.md shows runs as it is pasted."""

from __future__ import annotations

from pathlib import Path

PAGE = (Path(__file__).resolve().parents[2] / "compat" / "README.md").read_text(encoding="utf-8")


def test_every_example_runs(run_snippet, snippets_of):
    examples = snippets_of(PAGE)
    assert len(examples) == 5
    # one process for all: they share the import and what is compiled, not their names
    printed = run_snippet(f"for body in {examples!r}:\n    exec(body, {{}})\n    print('RUN')\n")
    assert printed.count("RUN") == len(examples)
