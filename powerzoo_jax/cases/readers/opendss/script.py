"""OpenDSS scripts as a list of elements with their properties in the order given; values stay text."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from powerzoo_jax.base.errors import CaseError, DataMissing, excerpt
from powerzoo_jax.cases.readers.opendss.commands import COMMANDS, OPTIONS
from powerzoo_jax.cases.readers.opendss.rules import (
    APPLIED,
    CLASSES,
    FIXED,
    LOADSHAPE,
    NOTED,
    PROPERTIES,
    REFUSED,
    REMEDIES,
    SWITCHING,
    Rule,
    Rules,
    resolve,
)
from powerzoo_jax.cases.readers.opendss.values import LONGEST_NAME, decimal, unquote, word

COMMENT = re.compile(r"!|//")
QUOTED = r"\([^)]*\)|\[[^\]]*\]|\{[^}]*\}|\"[^\"]*\"|'[^']*'"
# An opening mark without its partner matches last and alone, so that it can be refused at once: going on behind it, one
# would look for the partner of every other mark as far as the end of the line.
PROPERTY = re.compile(rf"(?:([\w%.-]+)\s*=\s*)?({QUOTED}|[^\s,=(\[{{\"'][^\s,=]*|[(\[{{\"'])")
OPENING = frozenset("([{\"'")
# the state of a fuse, relay, recloser or switch control, abbreviated or not, in which a conductor is open
OPENS = re.compile(r"\b(?:act|nor|sta)\w*\s*=\s*[(\[{\"']?[^=]*?\b(?:o|open|trip)\b", re.IGNORECASE)
AT_LINE = re.compile(r"\bline\.([^\s,)\]]+)", re.IGNORECASE)
EDIT = re.compile(r"(\w+)\.([^.\s]+)\.(?=[\w%]+\s*=)")
FREQUENCY_HZ = 60.0  # OpenDSS's default base frequency
CIRCUIT = ("vsource", "source")  # a circuit is its source
# what `like` leaves as it is: where an element stands, and whether it is there
MOST_FILES = 16  # one leading to the other by Redirect
MOST_COMMANDS = 200  # for one element: every line that refers to it goes through them
MOST_BASES = 100  # every transformer looks for the nearest
MOST_COPIED = 1_000_000  # commands that `like` repeats
MOST_PROBLEMS = 12  # a file of another kind must not list each of its lines
NOT_COPIED = frozenset(["bus1", "bus", "buses", "enabled", "ppm_antifloat", "leadlag"])


class ScriptProblem(CaseError):
    """One problem of a script: reading goes on to find the others."""


class FollowUp(ScriptProblem):
    """A problem that follows from one that is known already."""


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
    earth:   model of the earth return that holds when it is defined
    groups:  one list of properties for each command; OpenDSS works out what follows from them after each
    model:   what `like` has copied
    """

    kind: str
    name: str
    where: str
    order: int
    earth: str = "deri"
    groups: list[list[Given]] = field(default_factory=list)
    model: Given | None = None

    def __str__(self) -> str:
        return f"{self.kind}.{self.name}"

    @property
    def rules(self) -> Rules:
        return LOADSHAPE if self.kind == "loadshape" else PROPERTIES[self.kind]

    def refuse(self, given: Given, why: str) -> NoReturn:
        raise ScriptProblem(f"{given.where}: {self}: {given.key}={excerpt(given.text)}: {why}")

    def fail(self, why: str) -> NoReturn:
        raise ScriptProblem(f"{self.where}: {self}: {why}")


@dataclass
class Script:
    """Content of a parsed script.

    elements:       by (class, name), in the order of definition; the circuit is vsource.source
    circuits:       names of the circuits
    voltage_bases:  [kV] line to line, as `Set VoltageBases` lists them
    load_factor:    `Set LoadMult`
    generation_factor: `Set GenMult`
    frequency_hz:   base frequency of what is defined
    earth:          `Set EarthModel`
    opened:         line -> terminals that `Open` disconnects and `Close` has not closed again, with the last command
    places:         bus -> coordinates
    lost:           elements whose definition is a problem: what refers to them is none of its own
    shapes:         load shapes by name
    actual:         those of them that hold kW, not multiples
    built:          line geometry -> model of the earth return for which OpenDSS works it out, once
    notes:          reason -> what is left out for it
    problems:       messages, each once
    """

    elements: dict[tuple[str, str], Element] = field(default_factory=dict)
    circuits: list[str] = field(default_factory=list)
    voltage_bases: tuple[float, ...] = ()
    load_factor: float = 1.0
    generation_factor: float = 1.0
    frequency_hz: float = FREQUENCY_HZ
    earth: str = "deri"
    opened: dict[str, dict[int, str]] = field(default_factory=dict)
    places: dict[str, tuple[float, float]] = field(default_factory=dict)
    lost: set[tuple[str, str]] = field(default_factory=set)
    shapes: dict[str, Element] = field(default_factory=dict)
    actual: set[str] = field(default_factory=set)
    built: dict[str, str] = field(default_factory=dict)
    notes: dict[str, dict[str, None]] = field(default_factory=dict)
    problems: dict[str, None] = field(default_factory=dict)

    def of(self, kind: str) -> list[Element]:
        return [e for e in self.elements.values() if e.kind == kind]

    def note(self, reason: str, what: str) -> None:
        self.notes.setdefault(reason, {})[what] = None

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Keep a problem that the body raises; from so many on, raise all of them."""
        try:
            yield
        except FollowUp:
            pass
        except ScriptProblem as err:
            self.problems[str(err)] = None
            if len(self.problems) >= MOST_PROBLEMS:
                self.refuse()

    def refuse(self) -> None:
        """Raise one CaseError with all problems, if there are any."""
        found = list(self.problems)
        if len(found) == 1:
            raise CaseError(found[0])
        if found:
            more = " at least" if len(found) >= MOST_PROBLEMS else ""
            raise CaseError("\n".join([f"{len(found)} problems{more}:", *found]))

    def values(self, element: Element) -> list[list[tuple[str, Any, Given]]]:
        """Name, value and origin of every property that is applied, one list for each command.

        Notes what is left out; raises CaseError naming element, property and line for what is refused.
        """
        found: list[list[tuple[str, Any, Given]]] = []
        for group in element.groups:
            found.append([])
            for given in group:
                with self.collecting():
                    self._take(element, given, found[-1])
        return found

    def _take(self, element: Element, given: Given, found: list[tuple[str, Any, Given]]) -> None:
        rule = element.rules[given.key]
        value = _value(given, rule, f"{element}: {given.key}")
        if rule.effect == NOTED:
            self.note(rule.text, f"{element.kind}.{given.key}")
        if rule.effect != APPLIED:
            return
        if given.key == "frequency" and value != self.frequency_hz:
            element.refuse(given, f"the circuit has {self.frequency_hz:g} Hz: the source would have no voltage.")
        found.append((given.key, value, given))


def _value(given: Given, rule: Rule, what: str) -> Any:
    """Value of a property or an option; raises CaseError when it is refused."""
    try:
        value = rule.parse(given.text)
    except ValueError as err:
        raise ScriptProblem(f"{given.where}: {what}={excerpt(given.text)}: {excerpt(err)}") from err
    if rule.effect == REFUSED or (rule.effect == FIXED and not value):
        shown = excerpt(given.text)
        raise ScriptProblem(f"{given.where}: {what}={shown} is not in the subset of OpenDSS read here. {rule.text}")
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
            with self.script.collecting():
                self._command(name, text, above)

    def _command(self, name: str, text: str, above: tuple[str, ...]) -> None:
        verb, _, rest = text.partition(" ")
        if edit := EDIT.match(text):
            self._edit(f"{edit[1]}.{edit[2]}", text[edit.end() :])
            return
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
            self.script, self.active = Script(frequency_hz=self.script.frequency_hz, earth=self.script.earth), None
        elif command == "new":
            self._new(rest)
        elif command == "edit":
            self._edit(*self._named(rest, "Edit"))
        elif command == "batchedit":
            self._edit_all(*self._named(rest, "BatchEdit"))
        elif command in ("buscoords", "latlongcoords"):
            self._take_places(name, unquote(rest.strip()), command == "latlongcoords")
        elif command in ("more", "m", "~"):
            self._continue(rest)
        elif command in ("open", "close"):
            self._switch(command, rest)
        elif command in ("set", "solve"):  # the solution takes options as well
            self._set(rest)

    def _error(self, text: str) -> ScriptProblem:
        return ScriptProblem(f"{self.where}: {text}")

    def _redirect(self, name: str, target: str, above: tuple[str, ...]) -> None:
        path = beside(name, target)
        chain = (*above, name)
        if len(chain) > MOST_FILES:
            raise self._error(f"Redirect leads through more than {MOST_FILES} files, the last one {path}. Join them.")
        if path.lower() in [file.lower() for file in chain]:
            raise self._error(f"Redirect is circular: {' -> '.join((*chain, path))}. Remove one of them.")
        self.run(path, chain)
        self.active = None

    def _given(self, rules: Rules, what: str, owner: str, text: str, *, in_order: bool = False) -> list[Given]:
        """Properties or options of a command with their full names.

        in_order: a value without a name is that of the property after the one before it
        """
        found, names, at = list[Given](), list(rules), -1
        for key, value in self._properties(text):
            with self.script.collecting():
                if key:
                    try:
                        at = names.index(resolve(f"{what} of {owner}", key, rules))
                    except ValueError as err:
                        raise self._error(str(err)) from err
                elif not in_order:
                    raise self._error(f"{owner}: the value {excerpt(value)!r} has no name. Write it as property=value.")
                elif (at := at + 1) >= len(names):
                    raise self._error(
                        f"{owner}: the value {excerpt(value)!r} comes after the last property. Remove it."
                    )
                found.append(Given(names[at], value, self.where, self.order))
        return found

    def _properties(self, text: str) -> list[tuple[str, str]]:
        try:
            return properties(text)
        except ValueError as err:
            raise self._error(str(err)) from err

    def _named(self, text: str, command: str) -> tuple[str, str]:
        """Class.name at the beginning of a command, and what follows."""
        first = PROPERTY.match(text.strip())
        key, full = ((first[1] or "").lower(), unquote(first[2])) if first else ("", "")
        if first is None or key not in ("", "object") or not full.partition(".")[2]:
            self.active = Element("", "", self.where, self.order)  # takes the continuations of what is lost
            raise self._error(f"{f'{command} {text}'[:40]!r} does not begin with Class.name.")
        if len(full) > LONGEST_NAME:
            raise self._error(f"the name {excerpt(full)!r} is longer than {LONGEST_NAME} characters. Shorten it.")
        return full, text.strip()[first.end() :]

    def _new(self, text: str) -> None:
        full, rest = self._named(text, "New")
        kind, _, name = full.lower().partition(".")
        self.active = Element(kind, name, self.where, self.order)
        if kind in CLASSES:
            self.script.note(CLASSES[kind], kind)
            self._leave_out(self.active, rest)
            return
        if kind == "circuit":
            self.script.circuits.append(name)
            kind, name = CIRCUIT
            rest = f" bus1=sourcebus {rest}"  # values without names follow it
        if kind not in PROPERTIES:
            self.script.lost.add((kind, name))
            remedy = REMEDIES.get(kind, "Remove it.")
            raise self._error(f"it defines {kind}.{name}, and this reader does not know the class {kind}. {remedy}")
        element = Element(kind, name, self.where, self.order, self.script.earth)
        if (kind, name) in self.script.elements and len(self.script.circuits) < 2:
            before = self.script.elements[kind, name].where
            raise self._error(
                f"{element} is defined a second time, the first time in {before}. Rename or remove one of them, or "
                f"change the first one by {element}.property=value."
            )
        if kind == CIRCUIT[0] and name != CIRCUIT[1]:
            raise self._error(f"{element} is a second source. Model a feeder with one source, that of its circuit.")
        self.active = element
        try:
            self._take(element, rest)
        except ScriptProblem:
            self.script.lost.add((kind, name))
            raise
        self.script.elements[kind, name] = element

    def _take(self, element: Element, text: str) -> None:
        """Append the properties of one command to an element, what it copies by `like` first."""
        group = self._given(element.rules, "property", str(element), text, in_order=True)
        for position, given in enumerate(group):
            if given.key != "like" or element.rules["like"].effect == REFUSED:
                continue
            model = self.script.elements.get((element.kind, word(given.text)))
            if model is None and (element.kind, word(given.text)) in self.script.lost:
                self.script.lost.add((element.kind, element.name))
                raise FollowUp(given.text)
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
        for given in group if element.kind in ("load", "generator") else ():
            if given.key in ("yearly", "daily", "duty") and word(given.text) in self.script.actual:
                element.refuse(
                    given, f"OpenDSS gives the {element.kind} the maximum of the shape (UseActual). Write kW instead."
                )
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
        if self.active.kind in PROPERTIES:
            self._take(self.active, text)
        elif self.active.kind in CLASSES:
            self._leave_out(self.active, text)

    def _leave_out(self, element: Element, text: str) -> None:
        """Pass over the properties of a class that is left out; refuse a protection that opens what it guards.

        Load shapes are kept for the series. A load of one that holds kW itself takes its maximum in OpenDSS.
        """
        if element.kind == "loadshape":
            shape = self.script.shapes.setdefault(element.name, element)
            shape.groups.append(self._given(LOADSHAPE, "property", str(element), text, in_order=True))
            for given in shape.groups[-1]:
                if given.key == "useactual":
                    actual = word(given.text)[:1] in ("y", "t")
                    (self.script.actual.add if actual else self.script.actual.discard)(element.name)
        if element.kind in SWITCHING and OPENS.search(text):
            at = AT_LINE.search(text)
            line = f"line.{at[1].lower()}" if at else "what it guards"
            raise self._error(
                f"{element}: it opens {line}, and protection is not represented. Write Open {line} 1 in its place."
            )

    def _edit(self, full: str, text: str) -> None:
        kind, _, name = full.lower().partition(".")
        if kind in CLASSES or (kind, name) in self.script.lost:
            self.active = Element(kind, name, self.where, self.order)
            if kind in CLASSES:
                self._leave_out(self.active, text)
            return
        if (kind, name) not in self.script.elements:
            raise self._error(f"{excerpt(full)}. edits an element that is not defined. Define it before.")
        self.active = self.script.elements[kind, name]
        self._take(self.active, text)

    def _edit_all(self, full: str, text: str) -> None:
        """Edit all elements of a class; of what is left out, a pattern may name some."""
        kind, _, pattern = full.lower().partition(".")
        if kind in CLASSES:
            for name in list(self.script.shapes) if kind == "loadshape" and pattern == ".*" else ():
                self._leave_out(Element(kind, name, self.where, self.order), text)
            return
        if pattern != ".*" or kind not in PROPERTIES:
            raise self._error(f"BatchEdit {excerpt(full)}: only all elements of a class that is read, such as load..*.")
        for element in self.script.of(kind):
            self._take(element, text)

    def _take_places(self, name: str, target: str, turned: bool) -> None:
        """Coordinates of buses from a file of rows bus, x, y; `turned`: latitude and longitude."""
        try:
            text = self.read(beside(name, target))
        except DataMissing:
            self.script.note("the file of coordinates is missing", target)
            return
        for number, raw in enumerate(text.splitlines(), 1):
            fields = [unquote(f) for f in re.split(r"[,\s]+", COMMENT.split(raw, maxsplit=1)[0].strip()) if f]
            if not fields:
                continue
            try:
                first, second = (decimal(fields[k]) for k in (1, 2))
            except (ValueError, IndexError) as err:
                raise self._error(
                    f"{target}, line {number}: {excerpt(raw.strip(), 40)!r} is no row of bus, x and y. Correct it."
                ) from err
            self.script.places[fields[0].lower()] = (second, first) if turned else (first, second)

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
        if (kind, name) in self.script.lost:
            return
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
            with self.script.collecting():
                self._set_option(given)

    def _set_option(self, given: Given) -> None:
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
        elif key == "genmult":
            self.script.generation_factor = value
        elif key == "earthmodel":
            self.script.earth = value
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


def beside(name: str, target: str) -> str:
    """Path of a file that another one names, from the master."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), target.replace("\\", "/")))


def _commands(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line number, command) with comments removed."""
    for number, raw in enumerate(_without_blocks(text).splitlines(), 1):
        # published files have a NUL here and there
        line = COMMENT.split(raw.replace("\0", ""), maxsplit=1)[0].strip().replace("\t", " ")
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
