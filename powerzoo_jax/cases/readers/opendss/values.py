"""Values of OpenDSS properties: from the text of a script to numbers, matrices, nodes.

Every function raises ValueError that says what the text is not; the caller adds the element and the line.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import NamedTuple

from powerzoo_jax.base.errors import listing, unknown

MAX_PHASE = 3
LONGEST_NAME = 200  # characters; a table holds all its names in the width of the longest
# [m]; 0 where a length has the unit of the impedance beside it
UNITS = {
    **{"none": 0.0, "mi": 1609.344, "kft": 304.8, "km": 1e3, "m": 1.0, "ft": 0.3048},
    **{"in": 0.0254, "cm": 0.01, "mm": 0.001},
}
WYE, DELTA = frozenset(["wye", "y", "ln"]), frozenset(["delta", "d", "ll"])
BINARY: dict[str, Callable[[float, float], float]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "^": lambda a, b: a**b,
}


class Bus(NamedTuple):
    """A bus and the nodes that a terminal names there, 0 = ground; none means 1, 2, ..."""

    name: str
    nodes: tuple[int, ...]


def unquote(text: str) -> str:
    """Text without the brackets or quotes around it."""
    return text[1:-1].strip() if text[:1] in tuple("([{\"'") else text


def words(text: str) -> list[str]:
    """Entries of an array value."""
    return [w for w in re.split(r"[\s,|]+", unquote(text)) if w]


def word(text: str) -> str:
    """A name, in lower case."""
    return unquote(text).lower()


def number(text: str) -> float:
    """A finite number, or a formula in reverse Polish notation such as (8 1000 /)."""
    stack: list[float] = []
    for entry in words(text):
        if entry in BINARY and len(stack) > 1:
            b, a = stack.pop(), stack.pop()
            stack.append(_operate(entry, a, b))
        else:
            stack.append(_decimal(entry))
    if len(stack) != 1:
        raise ValueError("it is not one number.")
    return stack[0]


def _decimal(text: str) -> float:
    try:
        value = float(text)
    except ValueError as err:
        raise ValueError(f"{text!r} is not a number.") from err
    if not math.isfinite(value):
        raise ValueError(f"{text!r} is not a finite number.")
    return value


def _operate(operator: str, a: float, b: float) -> float:
    try:
        value = BINARY[operator](a, b)
    except (ArithmeticError, TypeError) as err:
        raise ValueError(f"{a:g} {b:g} {operator} has no value.") from err
    if not isinstance(value, float) or not math.isfinite(value):
        raise ValueError(f"{a:g} {b:g} {operator} is not a finite number.")
    return value


def within(low: float, high: float = math.inf, *, strict: bool = False) -> Callable[[str], float]:
    """Parser of numbers between two bounds; `strict` leaves the lower one out."""

    def parse(text: str) -> float:
        value = number(text)
        if value < low or value > high or (strict and value == low):
            sign = ">" if strict else ">="
            upper = f" and <= {high:g}" if math.isfinite(high) else ""
            raise ValueError(f"give a number {sign} {low:g}{upper}.")
        return value

    return parse


positive, nonnegative = within(0.0, strict=True), within(0.0)


def one_of(*allowed: int) -> Callable[[str], int]:
    """Parser of a whole number out of a few."""

    def parse(text: str) -> int:
        value = number(text)
        if value not in allowed:
            raise ValueError(f"give one of {', '.join(map(str, allowed))}.")
        return int(value)

    return parse


def pair(parse: Callable[[str], object]) -> Callable[[str], list[object]]:
    """Parser of an array with one value for each of two windings."""

    def parse_all(text: str) -> list[object]:
        found = [parse(w) for w in words(text)]
        if len(found) != 2:
            raise ValueError(f"it has {len(found)} values. Give one for each of the two windings.")
        return found

    return parse_all


def numbers(text: str) -> list[float]:
    """Numbers of an array value."""
    return [_decimal(w) for w in words(text)]


def matrix(text: str) -> list[list[float]]:
    """Rows of a symmetric matrix, "a | b c | d e f" or with all columns; returns its lower triangle."""
    rows = [[_decimal(w) for w in row.replace(",", " ").split()] for row in unquote(text).split("|")]
    full = len(rows) > 1 and all(len(row) == len(rows) for row in rows)
    if not full and any(len(row) != k for k, row in enumerate(rows, 1)):
        raise ValueError(
            f"its rows have {listing(len(row) for row in rows)} entries. Give the lower triangle, "
            "(a | b c | d e f), or all columns of every row."
        )
    if full and any(rows[i][j] != rows[j][i] for i in range(len(rows)) for j in range(i)):
        raise ValueError("it is not symmetric. Give the lower triangle, (a | b c | d e f).")
    return [row[: k + 1] for k, row in enumerate(rows)]


def resistances(text: str) -> list[list[float]]:
    """A symmetric matrix without negative numbers on its diagonal."""
    rows = matrix(text)
    if any(row[-1] < 0 for row in rows):
        raise ValueError("a number on its diagonal is negative. Give resistances >= 0.")
    return rows


def truth(text: str) -> bool:
    """Yes or no."""
    value = word(text)
    if value not in ("y", "yes", "t", "true", "n", "no", "f", "false"):
        raise ValueError("give yes or no.")
    return value[0] in "yt"


def is_delta(text: str) -> bool:
    """Connection of a winding: delta or wye."""
    value = word(text)
    if value not in WYE | DELTA:
        raise ValueError("give wye or delta.")
    return value in DELTA


def unit(text: str) -> str:
    """Unit of a length."""
    value = word(text)
    if value not in UNITS:
        raise ValueError(unknown("unit of length", value, UNITS))
    return value


def bus(text: str) -> Bus:
    """A bus with the nodes of a terminal: 680, 680.1.3 or 680.2.0."""
    name, *given = word(text).split(".")
    if not name or not all(node.isdecimal() for node in given):
        raise ValueError("give a bus as name or name.node.node, such as 680.1.3.")
    if len(name) > LONGEST_NAME:
        raise ValueError(f"its name is longer than {LONGEST_NAME} characters. Shorten it.")
    nodes = tuple(map(int, given))
    if any(node > MAX_PHASE for node in nodes):
        raise ValueError("a node beyond 3, a neutral conductor, is not represented. Connect to nodes 0 to 3.")
    return Bus(name, nodes)


def load_status(text: str) -> str:
    """Load status: True where load multipliers act on the load."""
    value = word(text)
    for status in ("variable", "fixed", "exempt"):
        if value and status.startswith(value):
            return status
    raise ValueError("give variable, fixed or exempt.")


def zip_shares(text: str) -> list[float]:
    """Shares of impedance and current [z_p, i_p, z_q, i_q] of seven ZIP coefficients."""
    given = numbers(text)
    if len(given) != 7:
        raise ValueError(f"it has {len(given)} numbers. Give three for P, three for Q, and the cut-off voltage.")
    z_p, i_p, p, z_q, i_q, q, _ = given
    if abs(z_p + i_p + p - 1) > 1e-9 or abs(z_q + i_q + q - 1) > 1e-9:
        raise ValueError("the shares of P or of Q do not add up to 1. Scale kW or kvar instead.")
    return [z_p, i_p, z_q, i_q]
