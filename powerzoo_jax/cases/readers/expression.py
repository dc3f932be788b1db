"""Arithmetic of the MATLAB subset that case files use, walked over a whitelisted syntax tree."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

LONGEST = 1000  # characters; keeps a hostile file from exhausting the parser's stack

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
    # the dotted operators get Python operators that MATLAB lacks, so that * between two arrays can be refused
    source = text.strip().replace(".*", "@").replace("./", "//").replace(".^", "^").replace("^", "**")
    try:
        tree = ast.parse(source, mode="eval")
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
