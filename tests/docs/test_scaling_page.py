"""What docs/scaling.md shows runs, and the commands and options it names exist."""

from __future__ import annotations

import re
from pathlib import Path

from powerzoo_jax.cli.main import build_parser

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")


def test_the_snippets_run(run_snippet, snippets_of):
    devices, observations = snippets_of(PAGE)
    assert run_snippet(devices + "\n" + observations) == "(1,) 1\n(189,) (54, 6) (54, 195)\n"


def test_the_commands_are_understood():
    lines = [line.replace("[TASK ...]", "dso").split()[1:] for line in re.findall(r"`(powerzoo-jax [^`]*)`", PAGE)]
    assert len(lines) == 5
    for words in lines:
        build_parser().parse_args(words if len(words) > 1 else [*words, "dso"])


def test_the_files_named_exist():
    assert all((ROOT / name).is_file() for name in re.findall(r"`python (\S+\.py)", PAGE))
