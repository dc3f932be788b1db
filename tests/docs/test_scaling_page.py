"""What docs/scaling.md shows runs, and the commands and options it names exist."""

from __future__ import annotations

import re
from pathlib import Path

from powerzoo_jax.cli.main import build_parser

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")


def test_the_snippet_runs(run_snippet, snippets_of):
    (body,) = snippets_of(PAGE)
    assert run_snippet(body) == "(1,) 1\n"


def test_the_commands_are_understood():
    lines = [line.replace("[TASK ...]", "dso").split()[1:] for line in re.findall(r"`(powerzoo-jax [^`]*)`", PAGE)]
    assert len(lines) == 4
    for words in lines:
        build_parser().parse_args(words if len(words) > 1 else [*words, "dso"])


def test_the_files_named_exist():
    assert all((ROOT / name).is_file() for name in re.findall(r"`python (\S+\.py)", PAGE))
