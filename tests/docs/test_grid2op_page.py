"""Page for users of Grid2Op: its Python runs on a world of five buses."""

from __future__ import annotations

from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "from_grid2op.md"


@pytest.mark.long
def test_the_python_of_the_page_runs(run_snippet, snippets_of, monkeypatch):
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # what compiles takes most of the time
    printed = run_snippet("\n".join(snippets_of(PAGE.read_text(encoding="utf-8"))))
    assert "largest rho" in printed and "is the best" in printed and "{'redispatch': [(1, 2.0)]}" in printed
    assert "nan" not in printed
