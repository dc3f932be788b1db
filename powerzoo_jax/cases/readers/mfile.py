"""Split a .m file into its header comment and its statements, with line numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

STRING = re.compile(r"'(?:[^'\n]|'')*'")
MARK = re.compile(r"[\[\](){};,]")
BRACKET = re.compile(r"[\[\](){}]")
ASSIGNMENT = re.compile(r"\s*[A-Za-z]\w*\.\w+\s*=")


@dataclass(frozen=True)
class Statement:
    """One statement; `pieces` are its physical lines as (line number, text without comment)."""

    pieces: tuple[tuple[int, str], ...]
    closed: bool = True

    @property
    def line(self) -> int:
        return next((n for n, text in self.pieces if text.strip()), self.pieces[0][0])

    @property
    def text(self) -> str:
        return "\n".join(text for _, text in self.pieces).strip()


def statements(text: str) -> Iterator[Statement]:
    """Yield the statements of a file; line ends inside brackets belong to the statement."""
    pieces: list[tuple[int, str]] = []
    depth = 0
    for line, code in _code_lines(text):
        mask = _mask(code)
        if depth and ASSIGNMENT.match(mask):  # the bracket was forgotten: do not swallow the other tables
            yield Statement(tuple(pieces), closed=False)
            pieces, depth = [], 0
        if depth and not BRACKET.search(mask):
            pieces.append((line, code))
            continue
        start = 0
        for mark in MARK.finditer(mask):
            if mark.group() in "[({":
                depth += 1
            elif mark.group() in "])}":
                depth = max(depth - 1, 0)
            elif depth == 0:
                yield from _finished([*pieces, (line, code[start : mark.start()])])
                pieces, start = [], mark.end()
        pieces.append((line, code[start:]))
        if depth == 0:
            yield from _finished(pieces)
            pieces = []
    if pieces:
        yield Statement(tuple(pieces), closed=False)


def _finished(pieces: list[tuple[int, str]]) -> Iterator[Statement]:
    statement = Statement(tuple(pieces))
    if statement.text:
        yield statement


def _code_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments, continued lines joined to the first."""
    first, parts, hidden = 0, "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        mark = raw.strip()
        hidden += mark == "%{"
        if hidden:
            hidden -= mark == "%}"
            continue
        code, continued = _uncomment(raw)
        first, parts = (first or number), f"{parts} {code}" if parts else code
        if not continued:
            yield first, parts
            first, parts = 0, ""
    if parts:
        yield first, parts


def _uncomment(raw: str) -> tuple[str, bool]:
    comment = _mask(raw).find("%")
    code = raw if comment < 0 else raw[:comment]
    dots = _mask(code).find("...")
    return (code, False) if dots < 0 else (code[:dots], True)


def _mask(code: str) -> str:
    """The line with the content of its strings blanked, position by position."""
    return STRING.sub(lambda m: "'" + " " * (len(m.group()) - 2) + "'", code) if "'" in code else code


def header(text: str) -> str:
    """The comment below the function line: title, citation and licence, without comment signs."""
    lines: list[str] = []
    for raw in text.splitlines():
        line = raw.strip()
        if line.startswith("function") and not lines:
            continue
        if line and not line.startswith("%"):
            break
        body = line.lstrip("%").strip()
        if body.lower().startswith("matpower case format"):
            break
        if body or (lines and lines[-1]):
            lines.append(body)
    return "\n".join(lines).strip()
