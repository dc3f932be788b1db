"""Reader of MATPOWER case files: the tables, and the statements that case files really contain.

A statement outside the subset is a problem that names its line, never skipped: the distribution cases
convert ohm to per unit and kW to MW below their tables, and a reader of tables alone is wrong by 1000.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from powerzoo_jax.base.errors import CaseError, Problem, render_problems
from powerzoo_jax.base.textfile import read_text, require_file
from powerzoo_jax.cases.assemble import assemble, table_problems
from powerzoo_jax.cases.case import Case
from powerzoo_jax.cases.readers.expression import ExpressionError, evaluate
from powerzoo_jax.cases.readers.mfile import Statement, header, statements

TABLES = {"bus": 13, "gen": 10, "branch": 11, "gencost": 5}  # table -> least number of columns
REQUIRED = ("bus", "gen", "branch")
IGNORED = {"bus_name", "gentype", "genfuel", "areas", "zones"}  # labels: no effect on any result
NOTED = {"dcline", "dclinecost", "reserves", "A", "l", "u", "N", "H", "Cw", "fparm", "softlims"}

# What `[...] = idx_bus` and its sisters return, position by position (column numbers count from 1).
INDEX_LISTS: dict[str, tuple[int, ...]] = {
    "idx_bus": (1, 2, 3, 4, *range(1, 18)),
    "idx_brch": (*range(1, 12), *range(14, 20), 12, 13, 20, 21),
    "idx_gen": (*range(1, 11), 22, 23, 24, 25, *range(11, 22)),
}

PLAIN = re.compile(r"(?:[\d\s.eE+\-,;]|\b(?:Inf|NaN|inf|nan)\b)*")
REFERENCE = re.compile(r"\b([A-Za-z]\w*)\.(\w+)(?:\(([^()]*)\))?")
NOTE = re.compile(r"^%% note: (.+)$", re.MULTILINE)  # what `to_matpower` keeps of a case's notes
MOST_PROBLEMS = 20  # a file that is no case at all must not print itself back


@dataclass
class _Workspace:
    """What has been read so far."""

    variable: str = "mpc"
    name: str = ""
    base_mva: float | None = None
    tables: dict[str, np.ndarray] = field(default_factory=dict)
    scalars: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    skipping: int = 0  # depth of a branch that is not taken


def read_matpower(path_or_text: str | Path, name: str | None = None) -> Case:
    """Read a case file, given as a path or as its text.

    Raises DataMissing when there is no such file, CaseError with every problem found when it cannot be read.
    Rows of reactive costs and records such as dclines are not represented; `Case.notes` says so.
    """
    title, case, problems = scan_matpower(path_or_text, name)
    if problems or case is None:
        raise CaseError(render_problems(title, problems))
    return case


def scan_matpower(path_or_text: str | Path, name: str | None = None) -> tuple[str, Case | None, list[Problem]]:
    """Name, case and problems of a case file; the case is None when its tables cannot be read.

    A case beside problems is what the readable part says: fit for `validate`, not for use.
    Raises DataMissing when there is no such file.
    """
    text, stem = _source(path_or_text)
    work = _Workspace()
    for statement in statements(text):
        try:
            _execute(work, statement)
        except ExpressionError as err:
            work.problems.append(_refusal(statement, str(err)))
    title = name or stem or work.name or "case"
    _check_presence(work)
    problems, case = list(work.problems), None
    if work.base_mva is not None and all(table in work.tables for table in REQUIRED):
        problems += table_problems(work.tables)
        if len(problems) == len(work.problems):
            notes = (*work.notes, *NOTE.findall(text))
            case = assemble(title, work.base_mva, header(text), work.tables, notes)
    # missing tables were found last and matter most
    shown = problems[::-1][:MOST_PROBLEMS][::-1]
    if len(problems) > len(shown):
        message = f"{len(problems) - len(shown)} further lines cannot be read."
        shown.append(Problem("case", "text", (), message, ""))
    return title, case, shown


def _source(path_or_text: str | Path) -> tuple[str, str]:
    if isinstance(path_or_text, str):
        named = path_or_text.lower().endswith(".m") and "\n" not in path_or_text
        if not named and ("\n" in path_or_text or "=" in path_or_text or not path_or_text.strip()):
            return path_or_text, ""
    path = require_file(path_or_text, "case file", "Check the path, or see cases.list_cases().")
    # older files carry accents of authors' names in comments
    return read_text(path, CaseError, legacy="latin-1"), path.stem


def _refusal(statement: Statement, reason: str) -> Problem:
    shown = " ".join(statement.text.split())
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    remedy = "Apply what it does to the tables by hand and delete it, or delete it if it only labels things."
    return Problem("case", "text", (), f"line {statement.line}: {shown!r} is not understood: {reason}.", remedy)


def _check_presence(work: _Workspace) -> None:
    for table in REQUIRED:
        named = any(p.field == table for p in work.problems)
        if table not in work.tables and not named:
            message = f"the table {work.variable}.{table} is missing."
            remedy = f"Add `{work.variable}.{table} = [ ... ];` with its rows."
            work.problems.append(Problem("case", table, (), message, remedy))
    if work.skipping:
        message = "an `if` whose branch is not taken has no `end`."
        work.problems.append(Problem("case", "text", (), message, "Add the missing `end`."))
    if work.base_mva is None:
        message = f"{work.variable}.baseMVA is missing."
        work.problems.append(Problem("case", "base_mva", (), message, f"Add `{work.variable}.baseMVA = 100;`."))


# ---- statements: each handler takes the workspace, the statement and the match of its pattern


def _execute(work: _Workspace, statement: Statement) -> None:
    text = statement.text
    if work.skipping:
        if work.skipping == 1 and text.startswith("else"):
            raise ExpressionError("else is outside the subset")
        work.skipping += bool(re.match(r"(if|for|while|switch)\b", text)) - bool(re.fullmatch(r"end\w*", text))
        return
    if not statement.closed:
        return _unclosed(work, statement)
    for pattern, handler in HANDLERS:
        match = pattern.fullmatch(text)
        if match:
            return handler(work, statement, match)
    raise ExpressionError("it is outside the subset of case files")


def _unclosed(work: _Workspace, statement: Statement) -> None:
    match = re.match(r"\w+\.(\w+)\s*=", statement.text)
    table = match.group(1) if match else "text"
    message = f"line {statement.line}: the bracket opened here for {table!r} is never closed."
    work.problems.append(Problem("case", table, (), message, "Close it with `];`."))


def _function(work: _Workspace, statement: Statement, match: re.Match[str]) -> None:
    work.variable, work.name = match.group(1), match.group(2)


def _nothing(work: _Workspace, statement: Statement, match: re.Match[str]) -> None:
    """The end of a function or of a branch that was taken."""


def _condition(work: _Workspace, statement: Statement, match: re.Match[str]) -> None:
    work.skipping = int(not _number(work, match.group(1)))


def _field(work: _Workspace, statement: Statement, match: re.Match[str]) -> None:
    variable, name, value = match.groups()
    _own(work, variable)
    if name in TABLES:
        if not (value.startswith("[") and value.endswith("]")):
            raise ExpressionError("a table must be written out between [ and ]")
        table = _table(work, statement, name)
        if table is not None:
            work.tables[name] = table
    elif name == "baseMVA":
        work.base_mva = _number(work, value)
    elif name == "version":
        if value.strip("'\"") != "2":
            raise ExpressionError("only version 2 of the format is read")
    elif name in NOTED:
        work.notes.append(f"{name} of the source file is not represented")
    elif name not in IGNORED:
        raise ExpressionError(f"the field {name!r} is not known")


def _indices(work: _Workspace, statement: Statement, match: re.Match[str]) -> None:
    names = re.findall(r"\w+", match.group(1))
    values = INDEX_LISTS[match.group(2)]
    if len(names) > len(values):
        raise ExpressionError(f"{match.group(2)} returns {len(values)} values")
    work.scalars.update(zip(names, map(float, values), strict=False))


def _scalar(work: _Workspace, statement: Statement, match: re.Match[str]) -> None:
    work.scalars[match.group(1)] = _number(work, match.group(2))


def _update(work: _Workspace, statement: Statement, match: re.Match[str]) -> None:
    variable, name, where, expression = match.groups()
    _own(work, variable)
    index = _index(work, name, where)
    value = np.asarray(_compute(work, expression), np.float64)
    table = work.tables[name]
    if value.ndim and value.shape != table[index].shape:
        raise ExpressionError(f"expected shape {table[index].shape}, got {value.shape}")
    table[index] = value


Handler = Callable[[_Workspace, Statement, "re.Match[str]"], None]
HANDLERS: tuple[tuple[re.Pattern[str], Handler], ...] = (
    (re.compile(r"function\s+(\w+)\s*=\s*(\w+)\s*(?:\(\s*\))?"), _function),
    (re.compile(r"end(?:if|function)?"), _nothing),
    (re.compile(r"if\s+(.+)"), _condition),
    (re.compile(r"([A-Za-z]\w*)\.(\w+)\s*=(?!=)\s*(.*)", re.DOTALL), _field),
    (re.compile(r"\[([\w\s,]+)\]\s*=\s*(idx_bus|idx_brch|idx_gen)"), _indices),
    (re.compile(r"([A-Za-z]\w*)\.(bus|branch|gen|gencost)\s*\(([^()]*)\)\s*=(?!=)\s*(.+)", re.DOTALL), _update),
    (re.compile(r"([A-Za-z]\w*)\s*=(?!=)\s*(.+)", re.DOTALL), _scalar),
)


def _own(work: _Workspace, variable: str) -> None:
    if variable != work.variable:
        raise ExpressionError(f"{variable!r} is not the case, which is called {work.variable!r}")


# ---- expressions over tables


def _number(work: _Workspace, text: str) -> float:
    value = _compute(work, text)
    if np.ndim(value):
        raise ExpressionError("a single number is needed")
    return float(value)


def _compute(work: _Workspace, text: str) -> Any:
    """Evaluate an expression whose names may be parts of tables, such as mpc.bus(:, PD)."""
    names: dict[str, Any] = dict(work.scalars)

    def bind(match: re.Match[str]) -> str:
        variable, name, where = match.groups()
        _own(work, variable)
        key = f"part_{len(names)}"
        if name == "baseMVA" and where is None and work.base_mva is not None:
            names[key] = work.base_mva
        else:
            names[key] = work.tables[name][_index(work, name, where)] if where else _whole(work, name)
        return key

    return evaluate(REFERENCE.sub(bind, text), names)


def _whole(work: _Workspace, name: str) -> np.ndarray:
    if name not in work.tables:
        raise ExpressionError(f"{name!r} is not defined at this point")
    return work.tables[name]


def _index(work: _Workspace, name: str, where: str) -> tuple[Any, Any]:
    """NumPy index of `rows, columns` as the file writes it, counting from 1."""
    shape = _whole(work, name).shape
    parts = re.fullmatch(r"\s*([^,\[\]]+?)\s*,\s*(\[[^\]]*\]|[^,\[\]]+?)\s*", where)
    if parts is None:
        raise ExpressionError(f"({where}) is not a pair of row and column")
    return _axis(work, parts.group(1), shape[0]), _axis(work, parts.group(2), shape[1])


def _axis(work: _Workspace, text: str, size: int) -> Any:
    if text == ":":
        return slice(None)
    items = re.split(r"[\s,]+", text.strip("[] ")) if text.startswith("[") else [text]
    chosen = []
    for item in items:
        value = float(evaluate(item, work.scalars))
        if not 1 <= value <= size or value != int(value):  # NaN and infinity fail the first
            raise ExpressionError(f"index {item!r} = {value:g} is outside 1..{size}")
        chosen.append(int(value) - 1)
    return chosen if text.startswith("[") else chosen[0]


# ---- tables


def _table(work: _Workspace, statement: Statement, name: str) -> np.ndarray | None:
    """The rows between the brackets as (rows, columns) float64; None when a problem was found."""
    rows: list[list[float]] = []
    lines: list[int] = []
    before = len(work.problems)
    for line, text in _rows(statement):
        try:
            rows.append(_row(work, text))
            lines.append(line)
        except ExpressionError as err:
            message = f"line {line}, a row of {name!r}: {err}."
            work.problems.append(Problem("case", name, (), message, "Write a number or a formula of numbers."))
    if len(work.problems) == before:
        work.problems.extend(_shape_problems(name, rows, lines))
    if len(work.problems) > before:
        return None
    return np.array(rows, np.float64).reshape(len(rows), -1 if rows else TABLES[name])


def _rows(statement: Statement) -> list[tuple[int, str]]:
    pieces = list(statement.pieces)
    number, first = pieces[0]
    while "[" not in first:  # `mpc.bus = ...` and the bracket on the next line
        pieces.pop(0)
        number, first = pieces[0]
    pieces[0] = (number, first.partition("[")[2])  # rows may begin right behind the bracket
    number, last = pieces[-1]
    pieces[-1] = (number, last.rpartition("]")[0])
    return [(n, part) for n, text in pieces for part in text.split(";") if part.strip()]


def _row(work: _Workspace, text: str) -> list[float]:
    if PLAIN.fullmatch(text):
        try:
            return [float(cell) for cell in text.replace(",", " ").split()]
        except ValueError:
            pass  # 5-3 or 1 - 2: a formula after all
    return [float(evaluate(cell, work.scalars)) for cell in _cells(text)]


def _cells(text: str) -> list[str]:
    """Split a row as MATLAB does: `a -b` are two cells, `a - b`, `a-b` and `a * b` are one."""
    joined = re.sub(r"\s*(\.?[*/^])\s*", r"\1", text)
    joined = re.sub(r"\s+([+-])\s+", r"\1", joined)
    cells, depth = [""], 0
    for sign in joined:
        depth += (sign == "(") - (sign == ")")
        if depth <= 0 and (sign.isspace() or sign == ","):
            cells.append("")
        elif not sign.isspace():
            cells[-1] += sign
    return [cell for cell in cells if cell]


def _shape_problems(name: str, rows: list[list[float]], lines: list[int]) -> list[Problem]:
    if not rows:
        empty = Problem("case", name, (), f"the table {name!r} has no rows.", "Add rows.")
        return [empty] if name == "bus" else []
    widths = np.array([len(row) for row in rows])
    counts = np.bincount(widths)
    usual = counts.size - 1 - int(counts[::-1].argmax())  # on a tie the longer rows are the whole ones
    odd = np.flatnonzero(widths != usual)
    if odd.size:
        where = "; ".join(f"line {lines[i]} has {widths[i]}" for i in odd[:5])
        message = f"the rows of {name!r} have unequal lengths: most have {usual} columns, {where}."
        return [Problem("case", name, (), message, "Complete or shorten these rows.")]
    if usual < TABLES[name]:
        message = f"the table {name!r} has {usual} columns, at least {TABLES[name]} are needed."
        return [Problem("case", name, (), message, "See the column list of format version 2.")]
    return []
