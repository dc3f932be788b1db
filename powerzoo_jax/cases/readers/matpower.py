"""Reader of MATPOWER case files: their tables, and the statements that occur in case files.

A statement outside the subset is a problem that names its line, never skipped: the distribution cases
convert ohm to per unit and kW to MW below their tables, and a reader of tables alone is wrong by 1000.
Formulas are walked over a whitelisted syntax tree and never executed; the work is linear in the size of the file.
"""

from __future__ import annotations

import ast
import math
import re
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from powerzoo_jax.base.errors import CaseError, Problem, excerpt, render_problems
from powerzoo_jax.base.textfile import MAX_MB, check_limit, read_text, require_file, too_large
from powerzoo_jax.cases.case import Case, assemble, table_problems, with_power_factors

# Possessive (*+) where no other division of the text can match: what does not match is then told in one pass.
STRING = re.compile(r"'[^'\n]*+(?:''[^'\n]*+)*'")
MARK = re.compile(r"[\[\](){}]|[;,][;,\s]*+")  # a run of separators ends one statement
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
    first, parts, hidden = 0, list[str](), 0
    for number, raw in enumerate(text.splitlines(), 1):
        mark = raw.strip()
        if not mark and not parts:
            continue
        hidden += mark == "%{"
        if hidden:
            hidden -= mark == "%}"
            continue
        code, continued = _uncomment(raw)
        if not (continued or parts or code.strip()):
            continue
        first = first or number
        parts.append(code)
        if not continued:
            yield first, " ".join(parts)
            first, parts = 0, []
    if parts:
        yield first, " ".join(parts)


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


LONGEST = 1000  # characters; keeps a hostile file from exhausting the parser's stack
GROUPED = re.compile(r"(?<![\w.])[\d.]+_")  # 1_000, a number to Python alone
NUMBER = re.compile(r"\s*+[+-]?[0-9]++\.?[0-9]*+(?:[eE][+-]?[0-9]++)?\s*+", re.ASCII)

CONSTANTS = {"pi": math.pi, "inf": math.inf, "nan": math.nan}  # MATLAB takes inf and Inf, nan and NaN
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "sqrt": np.sqrt,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "acos": np.arccos,
    "asin": np.arcsin,
    "atan": np.arctan,
    "abs": np.abs,
    "exp": np.exp,
    "log": np.log,
}


class ExpressionError(ValueError):
    """An expression is outside the subset; the message says which part."""


def evaluate(text: str, names: Mapping[str, Any] | None = None) -> Any:
    """Value of one expression: a float, or an array where `names` holds arrays.

    Raises ExpressionError for anything but numbers, names, + - * / ^ with or without a dot, and FUNCTIONS.
    """
    if len(text) > LONGEST:
        raise ExpressionError(f"an expression of {len(text)} characters is too long")
    if NUMBER.fullmatch(text):
        return float(text)  # most expressions, and a tenth of the parser's time
    # the dotted operators get Python operators that MATLAB lacks, so that * between two arrays can be refused
    source = text.strip().replace(".*", "@").replace("./", "//").replace(".^", "^").replace("^", "**")
    try:
        tree = ast.parse(GROUPED.sub("?", source), mode="eval")
        with np.errstate(all="raise"):
            return _value(tree.body, names or {})
    except (SyntaxError, RecursionError, MemoryError) as err:
        raise ExpressionError(f"{text.strip()!r} is not an expression") from err
    except (ArithmeticError, TypeError) as err:
        raise ExpressionError(f"{text.strip()!r} cannot be computed ({err})") from err


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return float(number)
        case ast.Name(id=name):
            return _named(name, names)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_value(inner, names)
        case ast.UnaryOp(op=ast.UAdd(), operand=inner):
            return _value(inner, names)
        case ast.BinOp(left=left, op=op, right=right):
            if isinstance(op, ast.Pow) and isinstance(right, ast.BinOp) and isinstance(right.op, ast.Pow):
                raise ExpressionError("a power of a power is ambiguous")  # MATLAB groups from the left, Python not
            return _binary(op, _value(left, names), _value(right, names))
        case ast.Call(func=ast.Name(id=name), args=[inner], keywords=[]) if name in FUNCTIONS:
            return FUNCTIONS[name](_value(inner, names))
    raise ExpressionError(f"{ast.unparse(node)!r} is not in the subset")


def _named(name: str, names: Mapping[str, Any]) -> Any:
    if name in names:
        return names[name]
    if name.lower() in CONSTANTS and name in (name.lower(), "Inf", "NaN"):
        return CONSTANTS[name.lower()]
    raise ExpressionError(f"{name!r} is not defined")


def _binary(op: ast.operator, a: Any, b: Any) -> Any:
    arrays = np.ndim(a) > 0 and np.ndim(b) > 0
    match op:
        case ast.Add():
            return a + b
        case ast.Sub():
            return a - b
        case ast.Mult() if not arrays:
            return a * b
        case ast.MatMult():
            return a * b
        case ast.Div() if np.ndim(b) == 0:
            return a / b
        case ast.FloorDiv():
            return a / b
        case ast.Pow() if not arrays:
            return a**b
    raise ExpressionError("a matrix product, quotient or power is not in the subset")


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

PLAIN = re.compile(r"(?:[\d\s.eE+\-,;]++|\b(?:Inf|NaN|inf|nan)\b)*+")
REFERENCE = re.compile(r"\b([A-Za-z]\w*)\.(\w+)(?:\(([^()]*)\))?")
NOTE = re.compile(r"^%% note: (.+)$", re.MULTILINE)  # what `to_matpower` keeps of a case's notes
MOST_PROBLEMS = 20  # a file that is no case at all must not print itself back
MOST_REFUSED = 1000  # lines that cannot be read; behind them the rest is not looked at
# Far beyond any case, and read within seconds: what a file of the largest size could ask for takes hours.
MOST_STATEMENTS = 1_000_000
MOST_WORK = 250_000.0  # formulas; one over a table counts for each thousand of its numbers as well


@dataclass
class _Workspace:
    """Tables, scalars and problems read so far; `left` is the number of formulas that may still be computed."""

    variable: str = "mpc"
    name: str = ""
    base_mva: float | None = None
    tables: dict[str, np.ndarray] = field(default_factory=dict)
    scalars: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    skipping: int = 0  # depth of a branch that is not taken
    left: float = math.inf

    def spend(self, numbers: int = 0) -> None:
        """Count a formula over so many numbers; raises CaseError beyond MOST_WORK."""
        self.left -= 1 + numbers / 1000
        if self.left < 0:
            raise CaseError(
                f"the file asks for more than {MOST_WORK:,.0f} formulas: it is no case. Write numbers into its tables, "
                "or give max_mb=None if you trust its source."
            )


def read_matpower(path_or_text: str | Path, name: str | None = None, *, max_mb: float | None = MAX_MB) -> Case:
    """Read a case file, given as a path or as its text.

    max_mb:  [MB] largest file that is read; None lifts this limit and those of statements and formulas

    Raises DataMissing when there is no such file, CaseError with every problem found when it cannot be read.
    Records such as dclines are not represented; `Case.notes` says so.
    """
    title, case, problems = scan_matpower(path_or_text, name, max_mb=max_mb)
    if problems or case is None:
        raise CaseError(render_problems(title, problems))
    return case


def scan_matpower(
    path_or_text: str | Path, name: str | None = None, *, max_mb: float | None = MAX_MB
) -> tuple[str, Case | None, list[Problem]]:
    """Name, case and problems of a case file; the case is None when its tables cannot be read.

    A case beside problems is what the readable part says: fit for `validate`, not for use.
    Raises DataMissing when there is no such file, CaseError when it is too large (see `read_matpower`).
    """
    text, stem = _source(path_or_text, max_mb)
    work, stopped = _Workspace(left=math.inf if max_mb is None else MOST_WORK), ""
    for count, statement in enumerate(statements(text)):
        if count == MOST_STATEMENTS and max_mb is not None:
            raise CaseError(
                f"the file has more than {MOST_STATEMENTS:,} statements: it is no case. Give max_mb=None if you trust "
                "its source."
            )
        if len(work.problems) >= MOST_REFUSED:
            stopped = " Behind them nothing was read."
            break
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
            case = with_power_factors(assemble(title, work.base_mva, header(text), work.tables, notes))
    # missing tables were found last and matter most
    shown = problems[::-1][:MOST_PROBLEMS][::-1]
    if len(problems) > len(shown):
        message = f"{len(problems) - len(shown)} further lines cannot be read.{stopped}"
        shown.append(Problem("case", "text", (), message, ""))
    return title, case, shown


def _source(path_or_text: str | Path, max_mb: float | None) -> tuple[str, str]:
    if isinstance(path_or_text, str):
        named = path_or_text[-2:].lower() == ".m" and "\n" not in path_or_text
        if not named and ("\n" in path_or_text or "=" in path_or_text or not path_or_text.strip()):
            check_limit(max_mb)
            if max_mb is not None and len(path_or_text) > 1e6 * max_mb:
                raise CaseError(too_large("the text", len(path_or_text) / 1e6, max_mb))
            return path_or_text, ""
    path = require_file(path_or_text, "case file", "Check the path, or see cases.list_cases().")
    # older files carry accents of authors' names in comments
    return read_text(path, CaseError, legacy="latin-1", max_mb=max_mb), path.stem


def _refusal(statement: Statement, reason: str) -> Problem:
    shown = excerpt(" ".join(statement.text[:LONGEST].split()), 60)
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
    """Statement without effect: the end of a function or of a branch that was taken."""


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
        note = f"{name} of the source file is not represented"
        work.notes += [note] if note not in work.notes else []
    elif name not in IGNORED:
        raise ExpressionError(f"the field {excerpt(name)!r} is not known")


def _indices(work: _Workspace, statement: Statement, match: re.Match[str]) -> None:
    names = re.findall(r"[A-Za-z]\w*", match.group(1))
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
    work.spend(table[index].size)
    if value.ndim and value.shape != table[index].shape:
        raise ExpressionError(f"expected shape {table[index].shape}, got {value.shape}")
    table[index] = value


Handler = Callable[[_Workspace, Statement, "re.Match[str]"], None]
HANDLERS: tuple[tuple[re.Pattern[str], Handler], ...] = (
    (re.compile(r"function\s+(\w+)\s*=\s*(\w+)\s*(?:\(\s*\))?"), _function),
    (re.compile(r"end(?:if|function)?"), _nothing),
    (re.compile(r"if\s+(\S.*)"), _condition),
    (re.compile(r"([A-Za-z]\w*)\.(\w+)\s*=(?!=)\s*(.*)", re.DOTALL), _field),
    (re.compile(r"\[([\w\s,]+)\]\s*=\s*(idx_bus|idx_brch|idx_gen)"), _indices),
    (re.compile(r"([A-Za-z]\w*)\.(bus|branch|gen|gencost)\s*\(([^()]*)\)\s*=(?!=)\s*(.+)", re.DOTALL), _update),
    (re.compile(r"([A-Za-z]\w*)\s*=(?!=)\s*(.+)", re.DOTALL), _scalar),
)


def _own(work: _Workspace, variable: str) -> None:
    if variable != work.variable:
        raise ExpressionError(f"{excerpt(variable)!r} is not the case, which is called {excerpt(work.variable)!r}")


# ---- expressions over tables


def _number(work: _Workspace, text: str) -> float:
    value = _compute(work, text)
    if np.ndim(value):
        raise ExpressionError("a single number is needed")
    return float(value)


def _compute(work: _Workspace, text: str) -> Any:
    """Evaluate an expression whose names may be parts of tables, such as mpc.bus(:, PD)."""
    if len(text) > LONGEST:
        raise ExpressionError(f"an expression of {len(text)} characters is too long")
    work.spend()
    parts: dict[str, Any] = {}

    def bind(match: re.Match[str]) -> str:
        variable, name, where = match.groups()
        _own(work, variable)
        key = f"_part{len(parts)}"  # names of a case file begin with a letter
        if name == "baseMVA" and where is None and work.base_mva is not None:
            parts[key] = work.base_mva
        else:
            parts[key] = _whole(work, name)[_index(work, name, where)] if where else _whole(work, name)
            work.spend(np.size(parts[key]))
        return key

    return evaluate(REFERENCE.sub(bind, text), ChainMap(parts, work.scalars))


def _whole(work: _Workspace, name: str) -> np.ndarray:
    if name not in work.tables:
        raise ExpressionError(f"{name!r} is not defined at this point")
    return work.tables[name]


def _index(work: _Workspace, name: str, where: str) -> tuple[Any, Any]:
    """NumPy index of `rows, columns` as the file writes it, counting from 1."""
    shape = _whole(work, name).shape
    rows, _, columns = (part.strip() for part in where.partition(","))
    inner = columns[1:-1] if columns[:1] == "[" and columns[-1:] == "]" else columns.replace(",", "[")
    if len(where) > LONGEST or not rows or not columns or set("[]") & {*rows, *inner}:
        raise ExpressionError(f"({excerpt(where)}) is not a pair of row and column")
    return _axis(work, rows, shape[0]), _axis(work, columns, shape[1])


def _axis(work: _Workspace, text: str, size: int) -> Any:
    if text == ":":
        return slice(None)
    items = re.split(r"[\s,]+", text.strip("[] ")) if text.startswith("[") else [text]
    chosen = []
    for item in items:
        work.spend()
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
    before, short = len(work.problems), 0
    for line, text in _rows(statement):
        if short == MOST_REFUSED or len(work.problems) == before + MOST_REFUSED:
            break  # it is no table, and what is wrong with it is known
        try:
            rows.append(_row(work, text))
            lines.append(line)
            short += len(rows[-1]) < TABLES[name]
        except ExpressionError as err:
            message = f"line {line}, a row of {name!r}: {err}."
            work.problems.append(Problem("case", name, (), message, "Write a number or a formula of numbers."))
    if len(work.problems) == before:
        work.problems.extend(_shape_problems(name, rows, lines))
    if len(work.problems) > before:
        return None
    return np.array(rows, np.float64).reshape(len(rows), -1 if rows else TABLES[name])


def _rows(statement: Statement) -> Iterator[tuple[int, str]]:
    # `mpc.bus = ...` may stand before the line of the bracket
    start = next(k for k, (_, text) in enumerate(statement.pieces) if "[" in text)
    pieces = list(statement.pieces[start:])
    number, first = pieces[0]
    pieces[0] = (number, first.partition("[")[2])  # rows may begin right behind the bracket
    number, last = pieces[-1]
    pieces[-1] = (number, last.rpartition("]")[0])
    return ((n, part) for n, text in pieces for part in text.split(";") if part and not part.isspace())


def _row(work: _Workspace, text: str) -> list[float]:
    if PLAIN.fullmatch(text):
        try:
            return [float(cell) for cell in text.replace(",", " ").split()]
        except ValueError:
            pass  # 5-3 or 1 - 2: a formula after all
    row = []
    for cell in _cells(text):
        work.spend()
        row.append(float(evaluate(cell, work.scalars)))
    return row


def _cells(text: str) -> list[str]:
    """Split a row as MATLAB does: `a -b` are two cells, `a - b`, `a-b` and `a * b` are one."""
    joined = re.sub(r" ?(\.?[*/^]) ?", r"\1", " ".join(text.split()))
    joined = re.sub(r" ([+-]) ", r"\1", joined)
    signs, depth = list[str](), 0
    for sign in joined:
        depth += (sign == "(") - (sign == ")")
        if sign not in " ,":
            signs.append(sign)
        elif depth <= 0:
            signs.append(" ")
        elif sign == ",":
            signs.append(sign)
    return "".join(signs).split()


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
