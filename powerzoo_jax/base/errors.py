"""Errors raised on the host: an exception tree, and `Problem`, one finding of a validator."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from powerzoo_jax.base.synonyms import synonym


def printable(text: str) -> str:
    """Text for a terminal: what nobody sees, such as the start of a control sequence, as its escape; lines stay."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


class PowerZooError(Exception):
    """Root of every error that this package defines. Its text may hold names out of files, so it is made printable."""

    def __str__(self) -> str:
        return printable(super().__str__())


class CaseError(PowerZooError, ValueError):
    """A network case cannot be used; the message lists every problem found."""


class DataError(PowerZooError, ValueError):
    """A data set, a window or a signal cannot be used."""


class DataMissing(PowerZooError, FileNotFoundError):
    """A data set is not installed or a file was not found."""


class SettingsError(PowerZooError, ValueError):
    """A file of settings, or of a task, cannot be used."""


class KindError(SettingsError, TypeError):
    """An argument holds no numbers, or numbers of another kind than the function takes."""


class RunError(PowerZooError, ValueError):
    """The folder of a training run cannot be used: a file in it is broken, or another process writes there."""


class CheckpointError(DataError, RunError):
    """The checkpoint of a training run is damaged, incomplete, or of a format that this version does not read."""


class WriteError(PowerZooError, OSError):
    """A file cannot be written; what stood in its place is unchanged."""


class SolverError(PowerZooError, ValueError):
    """A solver was prepared for something that it cannot solve exactly."""


class BaseLoadError(SolverError):
    """The load that a solver is prepared around has no power-flow solution."""


MAX_LISTED = 5  # ids or values in a message; the others are counted, so that it stays readable


def listing(values: Iterable[object]) -> str:
    """Join at most five values, then a count: a message stays one screen long."""
    items = list(values)
    shown = ", ".join(excerpt(v) for v in items[:MAX_LISTED])
    return shown if len(items) <= MAX_LISTED else f"{shown} and {len(items) - MAX_LISTED} more"


MOST_SHOWN = 200  # characters of a value in a message: a file that is no case must not print itself back


def excerpt(value: object, most: int = MOST_SHOWN) -> str:
    """Printable text of a value, on one line and cut where it is longer than `most` characters."""
    text = str(value)
    if len(text) > most:
        text = " ".join(text[:most].split())[: most - 3] + "..."
    return printable(" ".join(text.splitlines()))


@dataclass(frozen=True)
class Problem:
    """One finding of a validator.

    component:  "bus" | "branch" | "unit" | "load" | "case"
    field:      column the finding is about
    ids:        external ids (or row numbers) concerned
    message:    what is wrong, with values
    remedy:     what to do about it
    severity:   "error" (the case is refused) or "warning" (suspicious magnitude)
    """

    component: str
    field: str
    ids: tuple[object, ...]
    message: str
    remedy: str
    severity: str = "error"

    def __str__(self) -> str:
        where = f"{self.component} {listing(self.ids)}" if self.ids else self.component
        return printable(f"{where}: {self.message} {self.remedy}".rstrip())


MOST_FINDINGS = 12  # of a message, which stays below 15 lines; `check` prints all


def render_problems(name: str, problems: Sequence[Problem], *, everything: bool = False) -> str:
    """Render problems of one case as a numbered list, errors first: the first twelve and a count, or all."""
    # a table that is missing says more than lines of a text that were not understood
    ordered = sorted(problems, key=lambda p: (p.severity != "error", p.field == "text"))
    most = len(ordered) if everything else MOST_FINDINGS
    lines = _in_lines([f"[{p.severity}] {p}" for p in ordered], most, "; `powerzoo-jax check` lists all")
    return f"{excerpt(name)} has {len(problems)} problem(s):\n{lines}"


def _in_lines(findings: Sequence[str], most: int = MOST_FINDINGS, where: str = "") -> str:
    lines = [f"{i}. {finding}" for i, finding in enumerate(findings[:most], 1)]
    if len(findings) > most:
        lines.append(f"... and {len(findings) - most} more{where}.")
    return "\n".join(lines)


def numbered(name: str, findings: Sequence[str]) -> str:
    """Message of all findings about one thing: a single one behind its name, several as a numbered list, cut."""
    if len(findings) == 1:
        return f"{name}: {findings[0]}"
    return f"{name} has {len(findings)} problems:\n" + _in_lines(findings)


def missing_extra(what: str, library: str, extra: str) -> str:
    """Message for an optional library that is not installed: two commands, for an installed package and a checkout.

    what:  what needs it, as the subject of the sentence in the singular, such as "A plot"
    """
    return (
        f"{what} needs {library}, which is not installed: pip install 'powerzoo-jax[{extra}]', "
        f"or pip install -e '.[{extra}]' in a checkout."
    )


def nearest(name: object, options: Iterable[str]) -> str | None:
    """Return the valid name closest to what the user typed, by its meaning or by its letters, or None."""
    names = list(options)
    lowered = {n.lower(): n for n in names}
    word = str(name).lower()
    if word in lowered:
        return lowered[word]
    if same := synonym(word, names):
        return same
    # an abbreviation, or the long form of one, is closer than its letters say
    longer = [n for n in lowered if min(len(n), len(word)) > 2 and (word.startswith(n) or n.startswith(word))]
    if len(longer) == 1:
        return lowered[longer[0]]
    close = difflib.get_close_matches(str(name).lower(), list(lowered), n=1, cutoff=0.5)
    return lowered[close[0]] if close else None


def unknown(kind: str, name: object, options: Iterable[str]) -> str:
    """Message for an unknown name: the value, the nearest valid one, the valid ones."""
    return f"Unknown {kind} {excerpt(repr(name))}.{_remedy(name, options)}"


def unexpected(owner: str, keyword: str, options: Iterable[str], idle: Collection[str] = (), hint: str = "") -> str:
    """Message for an unknown keyword: Python's own phrase, the nearest valid one, the valid ones.

    Callers that try keywords out tell "takes no such keyword" from other TypeErrors by that phrase.
    idle:  of the valid ones, those that would change nothing here: proposed, and not listed
    hint:  a sentence in the place of a proposal, where something else than a keyword does it
    """
    return f"{owner} got an unexpected keyword argument {keyword!r}.{_remedy(keyword, options, idle, hint)}"


def _remedy(name: object, options: Iterable[str], idle: Collection[str] = (), hint: str = "") -> str:
    names = sorted(options)
    close = nearest(name, names) if len(str(name)) <= MOST_SHOWN and not hint else None
    proposal = f" Did you mean {close!r}?" if close else ""
    listed = ", ".join(option for option in names if option not in idle)
    return f"{f' {hint}' if hint else proposal} Valid: {listed or 'none'}."
