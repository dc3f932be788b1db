"""OpenDSS scripts as a list of elements with their properties in the order given; values stay text."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from powerzoo_jax.base.errors import CaseError, excerpt
from powerzoo_jax.cases.readers.opendss.commands import COMMANDS, OPTIONS
from powerzoo_jax.cases.readers.opendss.rules import (
    APPLIED,
    CLASSES,
    FIXED,
    NOTED,
    PROPERTIES,
    REFUSED,
    Rule,
    Rules,
    resolve,
)
from powerzoo_jax.cases.readers.opendss.values import LONGEST_NAME, unquote, word

COMMENT = re.compile(r"!|//")
QUOTED = r"\([^)]*\)|\[[^\]]*\]|\{[^}]*\}|\"[^\"]*\"|'[^']*'"
# An opening mark without its partner matches last and alone, so that it can be refused at once: going on behind it, one
# would look for the partner of every other mark as far as the end of the line.
PROPERTY = re.compile(rf"(?:([\w%.]+)\s*=\s*)?({QUOTED}|[^\s,=(\[{{\"'][^\s,=]*|[(\[{{\"'])")
OPENING = frozenset("([{\"'")
EDIT = re.compile(r"(\w+)\.([^.\s]+)\.(?=[\w%]+\s*=)")
FREQUENCY_HZ = 60.0  # OpenDSS's default base frequency
CIRCUIT = ("vsource", "source")  # a circuit is its source
# what `like` leaves as it is: where an element stands, and whether it is there
MOST_FILES = 16  # one leading to the other by Redirect
MOST_COMMANDS = 200  # for one element: every line that refers to it goes through them
MOST_BASES = 100  # every transformer looks for the nearest
MOST_COPIED = 1_000_000  # commands that `like` repeats
NOT_COPIED = frozenset(["bus1", "bus", "buses", "enabled", "ppm_antifloat", "leadlag"])


@dataclass(frozen=True)
class Given:
    """A property of an element, or an option, as a script gives it.

    key:    full name, lower case
    text:   value
    where:  "master.dss, line 12"
    order:  number of the command
    """

    key: str
    text: str
    where: str
    order: int


@dataclass
class Element:
    """One element: class and name in lower case, properties in the order of the script.

    where:   where it is defined
    order:   number of the command that does
    groups:  one list of properties for each command; OpenDSS works out what follows from them after each
    model:   what `like` has copied
    """

    kind: str
    name: str
    where: str
    order: int
    groups: list[list[Given]] = field(default_factory=list)
    model: Given | None = None

    def __str__(self) -> str:
        return f"{self.kind}.{self.name}"

    @property
    def rules(self) -> Rules:
        return PROPERTIES[self.kind]

    def refuse(self, given: Given, why: str) -> NoReturn:
        raise CaseError(f"{given.where}: {self}: {given.key}={excerpt(given.text)}: {why}")

    def fail(self, why: str) -> NoReturn:
        raise CaseError(f"{self.where}: {self}: {why}")


@dataclass
class Script:
    """Content of a parsed script.

    elements:       by (class, name), in the order of definition; the circuit is vsource.source
    circuits:       names of the circuits
    voltage_bases:  [kV] line to line, as `Set VoltageBases` lists them
    load_factor:    `Set LoadMult`
    frequency_hz:   base frequency of what is defined
    opened:         line -> terminals that `Open` disconnects and `Close` has not closed again, with the last command
    notes:          reason -> what is left out for it
    """

    elements: dict[tuple[str, str], Element] = field(default_factory=dict)
    circuits: list[str] = field(default_factory=list)
    voltage_bases: tuple[float, ...] = ()
    load_factor: float = 1.0
    frequency_hz: float = FREQUENCY_HZ
    opened: dict[str, dict[int, str]] = field(default_factory=dict)
    notes: dict[str, dict[str, None]] = field(default_factory=dict)

    def of(self, kind: str) -> list[Element]:
        return [e for e in self.elements.values() if e.kind == kind]

    def note(self, reason: str, what: str) -> None:
        self.notes.setdefault(reason, {})[what] = None

    def values(self, element: Element) -> list[list[tuple[str, Any, Given]]]:
        """Name, value and origin of every property that is applied, one list for each command.

        Notes what is left out; raises CaseError naming element, property and line for what is refused.
        """
        found: list[list[tuple[str, Any, Given]]] = []
        for group in element.groups:
            found.append([])
            for given in group:
                rule = element.rules[given.key]
                value = _value(given, rule, f"{element}: {given.key}")
                if rule.effect == NOTED:
                    self.note(rule.text, f"{element.kind}.{given.key}")
                if rule.effect != APPLIED:
                    continue
                if given.key in ("basefreq", "frequency") and value != self.frequency_hz:
                    element.refuse(given, f"the circuit has {self.frequency_hz:g} Hz. Convert it to that frequency.")
                found[-1].append((given.key, value, given))
        return found


def _value(given: Given, rule: Rule, what: str) -> Any:
    """Value of a property or an option; raises CaseError when it is refused."""
    try:
        value = rule.parse(given.text)
    except ValueError as err:
        raise CaseError(f"{given.where}: {what}={excerpt(given.text)}: {excerpt(err)}") from err
    if rule.effect == REFUSED or (rule.effect == FIXED and not value):
        shown = excerpt(given.text)
        raise CaseError(f"{given.where}: {what}={shown} is not in the subset of OpenDSS read here. {rule.text}")
    return value


def parse(name: str, read: Callable[[str], str]) -> Script:
    """Parse a script and the files it redirects to; `read` returns the text of a file by its path from the master."""
    reader = _Reader(read)
    reader.run(name, ())
    return reader.script


class _Reader:
    """The state of a script while its commands are taken one after the other.

    active:  the element that a continuation (~) goes on with
    where:   file and line of the command
    order:   number of the command
    copied:  number of commands that `like` has repeated
    """

    def __init__(self, read: Callable[[str], str]) -> None:
        self.read, self.script = read, Script()
        self.active: Element | None = None
        self.where, self.order, self.copied = "", 0, 0

    def run(self, name: str, above: tuple[str, ...]) -> None:
        """Take the commands of one file; `above` are the files whose Redirect led here."""
        self.active = None
        for line, text in _commands(self.read(name)):
            self.where, self.order = f"{name}, line {line}", self.order + 1
            verb, _, rest = text.partition(" ")
            if edit := EDIT.match(text):
                self._edit(edit, text[edit.end() :])
                continue
            try:
                command = resolve("command", verb.lower(), COMMANDS)
            except ValueError as err:
                raise self._error(f"the command {excerpt(verb)!r} is unknown to OpenDSS. Remove it.") from err
            rule = COMMANDS[command]
            if rule.effect == REFUSED:
                raise self._error(f"the command {verb!r} is not in the subset of OpenDSS read here. {rule.text}")
            if rule.effect == NOTED:
                self.script.note(rule.text, command)
            elif command in ("redirect", "compile"):
                self._redirect(name, unquote(rest.strip()), above)
            elif command in ("clear", "clearall"):
                self.script, self.active = Script(frequency_hz=self.script.frequency_hz), None
            elif command == "new":
                self._new(rest)
            elif command in ("more", "m", "~"):
                self._continue(rest)
            elif command in ("open", "close"):
                self._switch(command, rest)
            elif command in ("set", "solve"):  # the solution takes options as well
                self._set(rest)

    def _error(self, text: str) -> CaseError:
        return CaseError(f"{self.where}: {text}")

    def _redirect(self, name: str, target: str, above: tuple[str, ...]) -> None:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(name), target.replace("\\", "/")))
        chain = (*above, name)
        if len(chain) > MOST_FILES:
            raise self._error(f"Redirect leads through more than {MOST_FILES} files, the last one {path}. Join them.")
        if path.lower() in [file.lower() for file in chain]:
            raise self._error(f"Redirect is circular: {' -> '.join((*chain, path))}. Remove one of them.")
        self.run(path, chain)
        self.active = None

    def _given(self, rules: Rules, what: str, owner: str, text: str) -> list[Given]:
        """Properties or options of a command with their full names."""
        found = []
        for key, value in self._properties(text):
            if key == "":
                raise self._error(f"{owner}: the value {excerpt(value)!r} has no name. Write it as property=value.")
            try:
                full = resolve(f"{what} of {owner}", key, rules)
            except ValueError as err:
                raise self._error(str(err)) from err
            found.append(Given(full, value, self.where, self.order))
        return found

    def _properties(self, text: str) -> list[tuple[str, str]]:
        try:
            return properties(text)
        except ValueError as err:
            raise self._error(str(err)) from err

    def _new(self, text: str) -> None:
        first = PROPERTY.match(text.strip())
        key, full = ((first[1] or "").lower(), unquote(first[2])) if first else ("", "")
        kind, _, name = full.lower().partition(".")
        if first is None or key not in ("", "object") or not name:
            raise self._error(f"'New {text[:40]}' does not begin with Class.name.")
        if len(full) > LONGEST_NAME:
            raise self._error(f"the name {excerpt(full)!r} is longer than {LONGEST_NAME} characters. Shorten it.")
        rest = text.strip()[first.end() :]
        if kind in CLASSES:
            self.script.note(CLASSES[kind], kind)
            self.active = Element(kind, name, self.where, self.order)
            return
        if kind == "circuit":
            self.script.circuits.append(name)
            kind, name = CIRCUIT
        if kind not in PROPERTIES:
            raise self._error(f"it defines {kind}.{name}, and this reader does not know the class {kind}. Remove it.")
        element = Element(kind, name, self.where, self.order)
        if (kind, name) in self.script.elements and len(self.script.circuits) < 2:
            before = self.script.elements[kind, name].where
            raise self._error(
                f"{element} is defined a second time, the first time in {before}. Rename or remove one of them, or "
                f"change the first one by {element}.property=value."
            )
        if kind == CIRCUIT[0] and name != CIRCUIT[1]:
            raise self._error(f"{element} is a second source. Model a feeder with one source, that of its circuit.")
        self.active = element
        self._take(element, rest)
        self.script.elements[kind, name] = element

    def _take(self, element: Element, text: str) -> None:
        """Append the properties of one command to an element, what it copies by `like` first."""
        group = self._given(element.rules, "property", str(element), text)
        for position, given in enumerate(group):
            if given.key != "like" or element.rules["like"].effect == REFUSED:
                continue
            model = self.script.elements.get((element.kind, word(given.text)))
            if model is None:
                raise self._error(f"{element}: like={given.text} names no {element.kind} defined before. Check it.")
            if position or element.groups:
                element.refuse(given, "it undoes what is given before it. Put it first.")
            # OpenDSS stays at the last winding after an array, and goes back to the first after a copy
            moved = [[replace(g, key="wdg", text="2") if g.key == "buses" else g for g in old] for old in model.groups]
            element.groups += [[g for g in old if g.key not in NOT_COPIED] for old in moved]
            self.copied += len(moved)
            if element.kind == "transformer":
                element.groups.append([replace(given, key="wdg", text="1")])
            element.model, group, self.active = given, group[1:], None
        element.groups.append(group)
        if len(element.groups) > MOST_COMMANDS or self.copied > MOST_COPIED:
            raise self._error(
                f"{element}: more than {MOST_COMMANDS} commands define it, or like repeats more than {MOST_COPIED:,} "
                "commands in all. Write its properties in one command."
            )

    def _continue(self, text: str) -> None:
        if self.active is None:
            raise self._error(
                "a continuation (~) follows no element of this file, or one with like=, after which OpenDSS goes on "
                "with the element that it copied. Begin with New Class.name, and put what follows like= beside it."
            )
        if self.active.kind not in CLASSES:
            self._take(self.active, text)

    def _edit(self, edit: re.Match[str], text: str) -> None:
        key = (edit[1].lower(), edit[2].lower())
        if key not in self.script.elements:
            raise self._error(f"{excerpt(edit[0])}... edits an element that is not defined. Define it before.")
        self.active = self.script.elements[key]
        self._take(self.active, text)

    def _switch(self, command: str, text: str) -> None:
        """Open or close a terminal of a line, all conductors of it."""
        names, found = ["object", "term", "cond"], {"object": "", "term": "1", "cond": "0"}
        for position, (key, value) in enumerate(self._properties(text)):
            slot = next((n for n in names if key and n.startswith(key[:4])), None) if key else names[min(position, 2)]
            if slot is None:
                raise self._error(f"{command} has no {key}. Write {command} line.name terminal.")
            found[slot] = word(value)
        kind, _, name = found["object"].partition(".")
        if kind != "line":
            raise self._error(f"{command} {found['object']}: only lines are switched. Use enabled=no, or remove it.")
        if (kind, name) not in self.script.elements:
            raise self._error(f"line.{name} is to be {command}{'e' * (command == 'open')}d and not defined. Define it.")
        if found["cond"] != "0":
            raise self._error(
                f"{command} line.{name}: one conductor, {found['cond']}, is not switched alone here. Switch all of "
                "them, or model a line of fewer phases."
            )
        if found["term"] not in ("1", "2"):
            raise self._error(f"{command} line.{name}: a line has the terminals 1 and 2, not {found['term']}.")
        terminals = self.script.opened.setdefault(name, {})
        if command == "open":
            terminals[int(found["term"])] = self.where
        else:
            terminals.pop(int(found["term"]), None)

    def _set(self, text: str) -> None:
        for given in self._given(OPTIONS, "option", "Set", text):
            key, rule = given.key, OPTIONS[given.key]
            value = _value(given, rule, f"Set {key}")
            if rule.effect == NOTED:
                self.script.note(rule.text, f"set {key}")
            elif key == "voltagebases":
                if len(value) > MOST_BASES:
                    raise self._error(f"Set VoltageBases lists {len(value)} voltages. Give {MOST_BASES} at most.")
                self.script.voltage_bases = tuple(value)
            elif key == "loadmult":
                self.script.load_factor = value
            elif rule.effect == APPLIED:
                self._set_frequency(given, value)

    def _set_frequency(self, given: Given, value: float) -> None:
        if given.key == "defaultbasefrequency" and not self.script.elements:
            self.script.frequency_hz = value
        elif value != self.script.frequency_hz:
            raise self._error(
                f"Set {given.key}={given.text}: what is defined before has {self.script.frequency_hz:g} Hz. "
                "Put Set DefaultBaseFrequency before New Circuit."
            )


def _commands(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line number, command) with comments removed."""
    for number, raw in enumerate(_without_blocks(text).splitlines(), 1):
        line = COMMENT.split(raw, maxsplit=1)[0].strip().replace("\t", " ")
        if line:
            yield number, f"~ {line[1:]}" if line[0] == "~" else line


def _without_blocks(text: str) -> str:
    """The text with its block comments blanked, line by line; one that is never closed stays."""
    parts, at = list[str](), 0
    while (start := text.find("/*", at)) >= 0 and (end := text.find("*/", start + 2)) >= 0:
        parts += [text[at:start], "\n" * text.count("\n", start, end)]
        at = end + 2
    return "".join([*parts, text[at:]])


def properties(text: str) -> list[tuple[str, str]]:
    """Pairs of name, "" where there is none, and value; raises ValueError for a bracket or quote never closed."""
    found = []
    for match in PROPERTY.finditer(text):
        value = match[2]
        if len(value) == 1 and value in OPENING:
            raise ValueError(f"the {value} at {excerpt(text[match.start(2) :], 40)!r} is never closed. Close it.")
        found.append((match[1].lower() if match[1] else "", value))
    return found
