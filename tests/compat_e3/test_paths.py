"""The first of three ways to begin, a learner for gymnax in ten lines, runs as docs/howto/paths.md prints it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.docs.scripts import blocks, play

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "paths.md"


def test_a_learner_takes_ten_lines_and_earns_on_days_it_has_not_seen(capsys):
    section = PAGE.read_text(encoding="utf-8").partition("## A learner in ten lines\n")[2].partition("\n## ")[0]
    (block,) = blocks(section)
    assert sum(bool(line) for line in block.body.splitlines()) == len(ast.parse(block.body).body) == 10
    play([block])
    begun, *_, ended = (float(x) for x in re.findall(r"-?[\d.]+", capsys.readouterr().out.partition(":")[2]))
    assert begun < 0 < ended
