"""Values of OpenDSS properties: from the text of a script to numbers, matrices, nodes.

Every function raises ValueError that says what the text is not; the caller adds the element and the line.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import NamedTuple

from powerzoo_jax.base.errors import listing, unknown
from powerzoo_jax.base.textfile import decimal as plain_decimal

MAX_NODE = 99  # neutral and other conductors beyond the phases have the numbers from 4 on
LARGEST = 1e50  # of a number, in whatever unit
LONGEST_NAME = 200  # characters; a table holds all its names in the width of the longest
# [m]; 0 where a length has the unit of the impedance beside it
UNITS = {
    **{"none": 0.0, "mi": 1609.344, "kft": 304.8, "km": 1e3, "m": 1.0, "ft": 0.3048},
    **{"in": 0.0254, "cm": 0.01, "mm": 0.001},
}
BINARY: dict[str, Callable[[float, float], float]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "^": lambda a, b: a**b,
}
UNARY: dict[str, Callable[[float], float]] = {
    "sqr": lambda a: a * a,
    "sqrt": math.sqrt,
    "inv": lambda a: 1 / a,
    "ln": math.log,
    "log10": math.log10,
    "exp": math.exp,
    "sin": lambda a: math.sin(math.radians(a)),
    "cos": lambda a: math.cos(math.radians(a)),
    "tan": lambda a: math.tan(math.radians(a)),
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
        elif entry.lower() in UNARY and stack:
            stack.append(_operate(entry.lower(), stack.pop()))
        elif entry.lower() == "pi":
            stack.append(math.pi)
        else:
            stack.append(decimal(entry))
    if len(stack) != 1:
        raise ValueError("it is not one number.")
    return stack[0]


def decimal(text: str) -> float:
    """A finite number written with digits."""
    try:
        value = plain_decimal(text)
    except ValueError as err:
        raise ValueError(f"{text!r} is not a number.") from err
    if not math.isfinite(value):
        raise ValueError(f"{text!r} is not a finite number.")
    return _sized(value, text)


def _sized(value: float, shown: str) -> float:
    """The number itself; beyond these sizes products and squares of a few of them have no number."""
    if value and not 1 / LARGEST <= abs(value) <= LARGEST:
        raise ValueError(f"{shown} is beyond the numbers of a network, {1 / LARGEST:g} to {LARGEST:g}.")
    return value


def _operate(operator: str, *values: float) -> float:
    shown = " ".join(f"{value:g}" for value in values)
    function: Callable[..., float] = UNARY[operator] if len(values) == 1 else BINARY[operator]
    try:
        value = function(*values)
    except (ArithmeticError, TypeError, ValueError) as err:
        raise ValueError(f"{shown} {operator} has no value.") from err
    if not isinstance(value, float) or not math.isfinite(value):
        raise ValueError(f"{shown} {operator} is not a finite number.")
    return _sized(value, f"{shown} {operator}")


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
hertz = within(1.0, 1000.0)  # beyond, reactances of a feeder would leave the numbers that a solution can hold


def one_of(*allowed: int) -> Callable[[str], int]:
    """Parser of a whole number out of a few."""

    def parse(text: str) -> int:
        value = number(text)
        if value not in allowed:
            raise ValueError(f"give one of {', '.join(map(str, allowed))}.")
        return int(value)

    return parse


def count(most: int) -> Callable[[str], int]:
    """Parser of a whole number from 1 to `most`."""

    def parse(text: str) -> int:
        value = number(text)
        if value != int(value) or not 1 <= value <= most:
            raise ValueError(f"give a whole number from 1 to {most}.")
        return int(value)

    return parse


def array(parse: Callable[[str], object], most: int) -> Callable[[str], list[object]]:
    """Parser of an array of up to `most` values."""

    def parse_all(text: str) -> list[object]:
        found = words(text)
        if not 1 <= len(found) <= most:
            raise ValueError(f"it has {len(found)} values. Give one for each, {most} at most.")
        return [parse(w) for w in found]

    return parse_all


def open_or_ohm(text: str) -> float:
    """Resistance of a neutral to the ground; a negative number leaves it open."""
    value = number(text)
    return value if value >= 0 else -1.0


def names(text: str) -> list[str]:
    """Names of an array value, in lower case."""
    return [w.lower() for w in words(text)]


def numbers(text: str) -> list[float]:
    """Numbers of an array value."""
    return [decimal(w) for w in words(text)]


def matrix(text: str) -> list[list[float]]:
    """Rows of a symmetric matrix, "a | b c | d e f" or with all columns; returns its lower triangle."""
    rows = [[decimal(w) for w in row.replace(",", " ").split()] for row in unquote(text).split("|")]
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
    """Connection of a winding: delta or wye, known by their first letters."""
    value = word(text)
    if value[:1] == "d" or value == "ll":
        return True
    if value[:1] in ("y", "w") or value == "ln":
        return False
    raise ValueError("give wye or delta.")


def unit(text: str) -> str:
    """Unit of a length."""
    value = word(text)
    if value not in UNITS:
        raise ValueError(unknown("unit of length", value, UNITS))
    return value


def earth_model(text: str) -> str:
    """Model of the earth return: Carson's first term, Carson's series or the complex depth of Deri and others."""
    value = word(text)
    for model in ("carson", "fullcarson", "deri"):
        if value and model.startswith(value):
            return model
    raise ValueError("give Carson, FullCarson or Deri.")


def bus(text: str) -> Bus:
    """A bus with the nodes of a terminal: 680, 680.1.3 or 680.2.0."""
    name, *given = word(text).split(".")
    if not name or not all(node.isdecimal() for node in given):
        raise ValueError("give a bus as name or name.node.node, such as 680.1.3.")
    if len(name) > LONGEST_NAME:
        raise ValueError(f"its name is longer than {LONGEST_NAME} characters. Shorten it.")
    nodes = tuple(map(int, given))
    if any(node > MAX_NODE for node in nodes):
        raise ValueError(f"a node is beyond {MAX_NODE}. Number the conductors of a bus from 1.")
    return Bus(name, nodes)


def load_status(text: str) -> str:
    """Load status: True where load multipliers act on the load."""
    value = word(text)
    for status in ("variable", "fixed", "exempt"):
        if value and status.startswith(value):
            return status
    raise ValueError("give variable, fixed or exempt.")


def fixed_or_variable(text: str) -> str:
    """Generator status: variable where the multiplier of generation acts on it."""
    value = word(text)
    if value[:1] not in ("f", "v"):
        raise ValueError("give variable or fixed.")
    return "fixed" if value[0] == "f" else "variable"


def storage_state(text: str) -> int:
    """State of a storage: 1 discharging, 0 idling, -1 charging."""
    value = word(text)
    for state, name in ((1, "discharging"), (0, "idling"), (-1, "charging")):
        if value and name.startswith(value):
            return state
    raise ValueError("give charging, idling or discharging.")


def shape_action(text: str) -> bool:
    """Action on a load shape: True where it is divided by its largest value."""
    value = word(text)
    for action in ("normalize", "dblsave", "sngsave"):
        if value and action.startswith(value):
            return action == "normalize"
    raise ValueError("give normalize, or remove it.")


def shape_edge(text: str) -> bool:
    """Interpolation of a load shape: True where a value holds from its hour on, False where around it."""
    value = word(text)
    if value[:1] not in ("a", "e"):
        raise ValueError("give avg or edge.")
    return value[0] == "e"


def zip_shares(text: str) -> list[float]:
    """Shares of impedance and current [z_p, i_p, z_q, i_q] of seven ZIP coefficients."""
    given = numbers(text)
    if len(given) != 7:
        raise ValueError(f"it has {len(given)} numbers. Give three for P, three for Q, and the cut-off voltage.")
    z_p, i_p, p, z_q, i_q, q, _ = given
    if abs(z_p + i_p + p - 1) > 1e-9 or abs(z_q + i_q + q - 1) > 1e-9:
        raise ValueError("the shares of P or of Q do not add up to 1. Scale kW or kvar instead.")
    return [z_p, i_p, z_q, i_q]
