"""Docstrings as the API pages show them: tables of fields and examples keep their lines."""

from __future__ import annotations

import re
import textwrap
from typing import Any

import griffe

ROW = re.compile(r"[A-Za-z_*]\w*(?:, \*{0,2}\w+)*:\s+\S")  # names, and no words of a sentence before its colon
EXAMPLE = "Example:\n"


class KeepLines(griffe.Extension):
    """Fence the paragraphs of a docstring whose line breaks mean something."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            paragraphs = re.split(r"\n\s*\n", obj.docstring.value)
            obj.docstring.value = "\n\n".join(fenced(part) for part in paragraphs)


def fenced(paragraph: str) -> str:
    """The paragraph, fenced where it is an example or a table of fields."""
    if paragraph.startswith(EXAMPLE):
        return f"Example:\n\n```python\n{textwrap.dedent(paragraph.removeprefix(EXAMPLE))}\n```"
    if ROW.match(paragraph) and not paragraph.startswith("Raises"):
        return f"```text\n{paragraph}\n```"
    return keep_brackets(paragraph)


def keep_brackets(text: str) -> str:
    """An index of an index is no link: infos[agent][name]; code between backticks stays as it is."""
    parts = text.split("`")
    return "`".join(part if k % 2 else part.replace("][", "]\\[") for k, part in enumerate(parts))
