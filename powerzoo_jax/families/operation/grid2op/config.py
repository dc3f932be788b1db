"""Settings of a world: `config.py` by its syntax tree, and the parameters of one difficulty."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from powerzoo_jax.base.errors import DataError, excerpt, unknown
from powerzoo_jax.base.textfile import MAX_SETTINGS_MB, read_json, read_text

DEFAULTS: dict[str, bool | int | float] = {
    "NO_OVERFLOW_DISCONNECTION": False,
    "NB_TIMESTEP_OVERFLOW_ALLOWED": 2,
    "NB_TIMESTEP_RECONNECTION": 10,
    "NB_TIMESTEP_COOLDOWN_LINE": 0,
    "NB_TIMESTEP_COOLDOWN_SUB": 0,
    "HARD_OVERFLOW_THRESHOLD": 2.0,
    "SOFT_OVERFLOW_THRESHOLD": 1.0,
    "MAX_SUB_CHANGED": 1,
    "MAX_LINE_STATUS_CHANGED": 1,
    "INIT_STORAGE_CAPACITY": 0.5,
    "ACTIVATE_STORAGE_LOSS": True,
}
# parameters that a world must leave as they are here: name -> value in force, what it would ask for
FIXED = {
    "ENV_DC": (False, "a DC flow"),
    "FORECAST_DC": (False, "a DC flow in forecasts"),
    "ENV_DOES_REDISPATCHING": (True, "no redispatch"),
    "IGNORE_MIN_UP_DOWN_TIME": (True, "minimum times up and down"),
    "ALLOW_DISPATCH_GEN_SWITCH_OFF": (True, "units that dispatch may not switch off"),
    "LIMIT_INFEASIBLE_CURTAILMENT_STORAGE_ACTION": (False, "actions on storages that are cut to what is feasible"),
    "STOP_EP_IF_GEN_BREAK_CONSTRAINTS": (False, "an end of the episode where a unit leaves its ramps"),
}
IDLE = (
    "ALARM_BEST_TIME",
    "ALARM_WINDOW_SIZE",
    "ALERT_TIME_WINDOW",
    "MAX_SIMULATE_PER_STEP",
    "MAX_SIMULATE_PER_EPISODE",
)
# names of older files
FORMER = {
    "NB_TIMESTEP_POWERFLOW_ALLOWED": "NB_TIMESTEP_OVERFLOW_ALLOWED",
    "NB_TIMESTEP_TOPOLOGY_REMODIF": "NB_TIMESTEP_COOLDOWN_SUB",
    "NB_TIMESTEP_LINE_STATUS_REMODIF": "NB_TIMESTEP_COOLDOWN_LINE",
}
ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Add: operator.add,
    ast.Sub: operator.sub,
}
REMEDY = "config.py is read, not executed: write numbers, lists and names of classes there."


class Named(NamedTuple):
    """A class that a configuration names, by the last part of its name."""

    name: str


class Called(NamedTuple):
    """A call of a class."""

    name: str
    arguments: list[Any]


def read_config(path: Path) -> dict[str, Any]:
    """Content of the last assignment of `config`. Raises DataError for what only Python itself could tell."""
    text = read_text(path, DataError, max_mb=MAX_SETTINGS_MB)
    values: dict[str, Any] = {}

    def value(node: ast.AST) -> Any:
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return values.get(node.id, Named(node.id))
            case ast.Attribute():
                return Named(node.attr)
            case ast.List() | ast.Tuple():
                return [value(item) for item in node.elts]
            case ast.Dict() if all(isinstance(key, ast.Constant) for key in node.keys):
                return {value(k): value(v) for k, v in zip(node.keys, node.values, strict=True) if k is not None}
            case ast.UnaryOp(op=ast.USub()):
                return -_number(value(node.operand))
            case ast.BinOp() if type(node.op) in ARITHMETIC:
                return ARITHMETIC[type(node.op)](_number(value(node.left)), _number(value(node.right)))
            case ast.Call(func=ast.Name() | ast.Attribute(), keywords=[]):
                return Called(value(node.func).name, [value(item) for item in node.args])
        raise ValueError(f"line {getattr(node, 'lineno', '?')} holds {type(node).__name__}")

    try:
        for statement in ast.parse(text).body:
            names = _assigned(statement)
            if names == ["config"]:
                values["config"] = value(statement.value)  # type: ignore[attr-defined]
            elif "config" in names:
                raise ValueError(f"line {statement.lineno} changes `config` after its assignment")
            elif isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
                for name in names:
                    values.pop(name, None)
                    try:
                        values[name] = value(statement.value)
                    except ValueError:  # what `config` may never ask for
                        continue
    except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError, AttributeError) as err:
        raise DataError(f"{path} cannot be read: {excerpt(err) or type(err).__name__}. {REMEDY}") from err
    if not isinstance(values.get("config"), dict):
        raise DataError(f"{path} assigns no dict to `config`. {REMEDY}")
    return dict(values["config"])


def _assigned(statement: ast.stmt) -> list[str]:
    """Names that a statement assigns or, as by a method, may change."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case ast.Import() | ast.ImportFrom():
            return []
    found = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
    return [*sorted(found), ""]  # never ["config"] alone


def _number(value: Any) -> Any:
    if type(value) not in (int, float):  # a text or a list times a number may fill the memory
        raise ValueError(f"arithmetic with {excerpt(repr(value))}")
    return value


def read_parameters(folder: Path, level: Path | None, own: Path | None, difficulty: str | int | None) -> dict[str, Any]:
    """Parameters of a difficulty: `competition` or the largest number where none is named, else of parameters.json.

    level, own:  difficulty_levels.json and parameters.json, None where there is none
    Raises DataError for an unknown difficulty or parameter, a value of another type, and what is not modelled.
    """
    remedy = "Restore the file of the environment."
    if level is not None:
        path, found = level, read_json(level, DataError, remedy, max_mb=MAX_SETTINGS_MB)
        if not isinstance(found, dict) or not found:
            raise DataError(f"{level} lists no difficulty. {remedy}")
        numbers = [key for key in found if key.isdecimal()]
        key = "competition" if "competition" in found or not numbers else max(numbers, key=int)
        key = key if difficulty is None else str(difficulty)
        if key not in found:
            raise DataError(f"{level}: {unknown('difficulty', key, found)}")
        found = found[key]
    else:
        path = own or folder
        found = {} if own is None else read_json(own, DataError, remedy, max_mb=MAX_SETTINGS_MB)
        if difficulty is not None:
            raise DataError(f"{folder} has no difficulty_levels.json, and no difficulty {difficulty!r}. Leave it None.")
    if not isinstance(found, dict):
        raise DataError(f"{path} holds no parameters by name. {remedy}")
    found = {FORMER[key]: x for key, x in found.items() if key in FORMER} | {
        key: x for key, x in found.items() if key not in FORMER
    }
    for key, given in found.items():
        if key in IDLE:
            continue
        kind = type(DEFAULTS[key]) if key in DEFAULTS else bool if key in FIXED else None
        if kind is None:
            raise DataError(f"{path}: {unknown('parameter', key, DEFAULTS)}")
        whole = isinstance(given, int) or (isinstance(given, float) and given.is_integer())
        if kind is bool:
            fits = given in (False, True)
        elif kind is int:
            fits = whole and -(2**31) < given < 2**31
        else:
            fits = isinstance(given, int | float) and abs(given) < 1e30
        if not fits:
            raise DataError(f"{path}: {key} = {excerpt(repr(given))} must be of type {kind.__name__}. Correct it.")
        if key in FIXED and bool(given) != FIXED[key][0]:
            raise DataError(f"{path}: {key} = {given} asks for {FIXED[key][1]}, which is not modelled. Set it back.")
    return {key: type(value)(found.get(key, value)) for key, value in DEFAULTS.items()}
