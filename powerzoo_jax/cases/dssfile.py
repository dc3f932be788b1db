"""OpenDSS scripts as a list of elements with their properties in the order given; values stay text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from powerzoo_jax.base.errors import CaseError

BLOCK = re.compile(r"/\*.*?\*/", re.DOTALL)
COMMENT = re.compile(r"!|//")
QUOTED = r"\([^)]*\)|\[[^\]]*\]|\{[^}]*\}|\"[^\"]*\"|'[^']*'"
PROPERTY = re.compile(rf"(?:([\w%.]+)\s*=\s*)?({QUOTED}|[^\s,=]+)")
EDIT = re.compile(r"(\w+)\.([^.\s]+)\.(?=[\w%]+\s*=)")

# What shows, plots, controls the solution or meters: nothing of it is part of the network.
IGNORED_COMMANDS = frozenset(
    [
        *("clear", "solve", "calcv", "calcvoltagebases", "buscoords", "interpolate", "show", "plot", "export"),
        *("get", "close", "visualize"),
    ]
)
IGNORED_CLASSES = frozenset(["energymeter", "monitor", "loadshape", "growthshape", "spectrum", "tcc_curve"])


@dataclass
class Element:
    """One element: class and name in lower case, properties as (key, value) in the order of the script."""

    kind: str
    name: str
    properties: list[tuple[str, str]] = field(default_factory=list)


@dataclass
class Script:
    """What a script defines.

    elements:       by (class, name), in the order of definition
    voltage_bases:  [kV] line to line, as `Set VoltageBases` lists them
    opened:         elements that an `Open` command disconnects, "line.sw7"
    """

    elements: dict[tuple[str, str], Element] = field(default_factory=dict)
    voltage_bases: tuple[float, ...] = ()
    opened: list[str] = field(default_factory=list)

    def of(self, kind: str) -> list[Element]:
        return [e for e in self.elements.values() if e.kind == kind]


def parse(name: str, read: Callable[[str], str]) -> Script:
    """Parse a script and the files it redirects to; `read` returns the text of a file by the name it is called."""
    script = Script()
    _parse_file(name, read, script)
    return script


def _parse_file(name: str, read: Callable[[str], str], script: Script) -> None:
    for line, text in _commands(read(name)):
        verb, _, rest = text.partition(" ")
        word = verb.lower()
        if word in ("redirect", "compile"):
            _parse_file(unquote(rest.strip()), read, script)
        elif word == "new":
            _new(rest, script, f"{name}, line {line}")
        elif word == "open":
            script.opened.append(rest.split()[0].lower())
        elif word == "set":
            _option(rest, script)
        elif edit := EDIT.match(text):
            element = script.elements.get((edit[1].lower(), edit[2].lower()))
            if element is None:
                raise CaseError(f"{name}, line {line}: {edit[0]}... edits an element that is not defined.")
            element.properties += _properties(text[edit.end() :])
        elif word not in IGNORED_COMMANDS:
            raise CaseError(
                f"{name}, line {line}: the command {verb!r} is not in the subset read here "
                f"(New, Redirect, Open, Set and edits by name). Remove it if the network does not depend on it."
            )


def _commands(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line number, command) with comments removed and continuation lines appended."""
    blank = BLOCK.sub(lambda m: "\n" * m[0].count("\n"), text)
    pending: tuple[int, str] | None = None
    for number, raw in enumerate(blank.splitlines(), 1):
        line = COMMENT.split(raw, maxsplit=1)[0].strip()
        if not line:
            continue
        if line.startswith("~") or line.lower().startswith("more "):
            assert pending is not None  # a file that begins with a continuation is no script
            pending = (pending[0], f"{pending[1]} {line.lstrip('~').strip()}")
            continue
        if pending is not None:
            yield pending
        pending = (number, line.replace("\t", " "))
    if pending is not None:
        yield pending


def _new(text: str, script: Script, where: str) -> None:
    pairs = _properties(text)
    key, full = pairs[0]
    kind, _, name = unquote(full).lower().partition(".")
    if key not in ("", "object") or not name:
        raise CaseError(f"{where}: 'New {text[:40]}' does not begin with Class.name.")
    if kind in IGNORED_CLASSES:
        return
    element = Element(kind, name)
    for key, value in pairs[1:]:
        if key == "like":
            model = script.elements.get((kind, value.lower()))
            if model is None:
                raise CaseError(f"{where}: like={value} names no {kind} defined before.")
            element.properties += model.properties
        elif key == "":
            raise CaseError(f"{where}: the value {value!r} has no name. Write it as property=value.")
        else:
            element.properties.append((key, value))
    script.elements[kind, name] = element


def _option(text: str, script: Script) -> None:
    for key, value in _properties(text):
        if key == "voltagebases":
            script.voltage_bases = tuple(numbers(value))


def _properties(text: str) -> list[tuple[str, str]]:
    return [(m[1].lower() if m[1] else "", m[2]) for m in PROPERTY.finditer(text)]


def unquote(text: str) -> str:
    """Text without the brackets or quotes around it."""
    return text[1:-1].strip() if text[:1] in tuple("([{\"'") else text


def words(text: str) -> list[str]:
    """Entries of an array value."""
    return [w for w in re.split(r"[\s,|]+", unquote(text)) if w]


def number(text: str) -> float:
    """A number, or a formula in reverse Polish notation such as (8 1000 /)."""
    stack: list[float] = []
    binary: dict[str, Callable[[float, float], float]] = {
        "+": lambda a, b: a + b,
        "-": lambda a, b: a - b,
        "*": lambda a, b: a * b,
        "/": lambda a, b: a / b,
        "^": lambda a, b: a**b,
    }
    for word in words(text):
        if word in binary:
            b, a = stack.pop(), stack.pop()
            stack.append(binary[word](a, b))
        else:
            stack.append(float(word))
    if len(stack) != 1:
        raise CaseError(f"{text!r} is not one number.")
    return stack[0]


def numbers(text: str) -> list[float]:
    """Numbers of an array value."""
    return [float(w) for w in words(text)]


def triangle(text: str) -> list[list[float]]:
    """Rows of a matrix value, "a | b c | d e f"."""
    return [[float(w) for w in row.replace(",", " ").split()] for row in unquote(text).split("|")]


def truth(text: str) -> bool:
    """Yes or no."""
    return text.strip().lower()[:1] in ("y", "t")
