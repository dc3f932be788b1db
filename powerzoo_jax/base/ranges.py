"""Declared ranges of settings: what a number may be stands beside its type, and one check reads it there.

    class Example:
        gamma: Share = 0.99                       # Annotated[float, Range(0, 1)]
        widths: tuple[Count, ...] = (128, 128)    # Annotated[int, Range(1, ...)] for each of them

    @checks_ranges("battery")
    def make(power_mw: Annotated[Rating, POSITIVE] = 20.0): ...

A value out of its range, or of another type, is refused before anything is built or compiled, by a message that names
the setting, the value and the nearest valid one. NaN lies in no range, infinity only where a range says so.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Annotated, Any, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from jax import Array
from jax.core import Tracer

from powerzoo_jax.base.errors import SettingsError, excerpt

P = ParamSpec("P")
R = TypeVar("R")

LENIENT = (str, int, float, object, Any, np.ndarray, Array)  # classes whose values come in several forms
MOST = 2**31 - 1  # of what is counted in int32


@dataclass(frozen=True)
class Range:
    """Interval [low, high] of valid numbers, or (low, high].

    open_low:  low itself lies outside
    infinite:  +inf is valid too: a budget that constrains nothing, a ramp that limits nothing
    """

    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    infinite: bool = False

    def holds(self, value: float) -> bool:
        """Membership of a number."""
        if value in (math.inf, -math.inf):
            return self.infinite and value > 0
        return self.low <= value <= self.high and not (self.open_low and value == self.low)

    def rule(self, value: float, whole: bool) -> str:
        """Text of the rule that a number breaks, after "must"."""
        if whole:
            end = f" of at most {self.high}" if value > self.high else f" of at least {self.low}"
            return "be a whole number" + ("" if isinstance(value, float) else end)
        if math.isfinite(self.low) and math.isfinite(self.high):
            return f"lie in {'(' if self.open_low else '['}{self.low:g}, {self.high:g}]"
        finite = "" if self.infinite else " and finite"
        if self.low == 0:
            return f"be positive{finite}" if self.open_low else f"not be negative{finite and ', and finite'}"
        return "be finite" if self.low == -math.inf else f"be at least {self.low:g}{finite}"

    def nearest(self, value: float, whole: bool) -> float | None:
        """The valid number closest to one outside; None where there is no closest one."""
        if value != value:  # NaN; math.isnan would refuse an integer beyond all floats
            return None
        clipped = min(max(value, self.low), self.high)
        if abs(clipped) == math.inf or not self.holds(clipped):
            return None
        return round(clipped) if whole else clipped


POSITIVE = Range(0, open_low=True)
NOT_NEGATIVE = Range(0)
SHARE = Range(0, 1)
POSITIVE_SHARE = Range(0, 1, open_low=True)
FINITE = Range()
BUDGET = Range(0, infinite=True)

Positive = Annotated[float, POSITIVE]
NotNegative = Annotated[float, NOT_NEGATIVE]
Share = Annotated[float, SHARE]
PositiveShare = Annotated[float, POSITIVE_SHARE]
Finite = Annotated[float, FINITE]
Budget = Annotated[float, BUDGET]
Count = Annotated[int, Range(1, MOST)]
Whole = Annotated[int, Range(0, MOST)]
Seeds = Annotated[int, Range(1, 2**12)]  # policies that are trained side by side
Label = Annotated[int, Range(-MOST, MOST)]  # of a bus, as its case numbers them


def declared(owner: Any) -> dict[str, Any]:
    """Declared type of every field of a dataclass, or parameter of a function, with its range."""
    return _hints(inspect.unwrap(owner))


@functools.cache
def _hints(owner: Any) -> dict[str, Any]:
    return get_type_hints(owner, include_extras=True)


def check_fields(prefix: str, kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Values of fields of a dataclass as plain Python values of their declared types.

    prefix:  begins a message, such as "dso: "
    NumPy scalars and arrays become numbers and tuples. Raises SettingsError for what does not fit.
    """
    hints = declared(kind)
    defaults = {field.name: field.default for field in dataclasses.fields(kind)}
    return {name: fitted(prefix + name, value, hints[name], defaults.get(name)) for name, value in values.items()}


def check_settings(prefix: str, settings: Any) -> None:
    """Check of a frozen dataclass after its creation; its fields become what `check_fields` makes of them."""
    for name, value in check_fields(prefix, type(settings), vars(settings)).items():
        object.__setattr__(settings, name, value)


def checks_ranges(owner: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator of a function whose arguments are checked by their declared ranges.

    owner:  begins a message, such as "battery"
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        parameters = inspect.signature(function).parameters

        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            hints = declared(function)
            for name, value in {**dict(zip(parameters, args, strict=False)), **kwargs}.items():
                if name in hints and (not isinstance(hints[name], type) or hints[name] in (bool, *LENIENT)):
                    fitted(f"{owner} {name}", value, hints[name], parameters[name].default)
            return function(*args, **kwargs)

        return checked

    return decorate


def plain(value: Any) -> Any:
    """A NumPy or JAX scalar as a Python number, an array as a tuple of such: specs hold hashable values alone."""

    def fixed(x: Any) -> Any:
        return tuple(map(fixed, x)) if isinstance(x, list) else x

    return fixed(value.tolist()) if isinstance(value, np.generic | np.ndarray | Array) else value


def fitted(label: str, value: Any, kind: Any, default: Any = None) -> Any:
    """A value as its declared type has it: an int as float, a list as tuple, a NumPy scalar as a Python number.

    label:    of the value in a message;  default: what the message offers where no valid value is nearest
    Types that say nothing of numbers pass, and so do values that a compiled program will know only later.
    """
    origin = get_origin(kind)
    if isinstance(value, Tracer):
        return value
    if origin in (Union, types.UnionType):
        return _of_union(label, value, get_args(kind), default)
    if origin is Annotated:
        base, limits = get_args(kind)[:2]
        if base in (int, float):
            return _number(label, value, base is int, limits, default)
        return _table(label, value, limits, default)
    if origin is tuple:
        return _of_tuple(label, value, get_args(kind))
    if kind is bool:
        value = value.item() if isinstance(value, np.bool_) else value
        if not isinstance(value, bool):
            raise SettingsError(f"{label} = {excerpt(repr(value))} must be true or false.")
    # what reads a network or a series says itself what to give in place of an object of this package
    if kind is str and not isinstance(value, str | PurePath) and not dataclasses.is_dataclass(value):
        raise SettingsError(f"{label} = {excerpt(repr(value))} must be text.")
    if isinstance(kind, type) and kind not in LENIENT and not isinstance(value, kind):
        raise SettingsError(f"{label} = {excerpt(repr(value))} must be {_named(kind)}.")
    return value


def _named(kind: Any) -> str:
    """Words of a message for the values of a class."""
    return "text" if kind is str else f"a {kind.__name__}"


def _of_union(label: str, value: Any, kinds: tuple[Any, ...], default: Any) -> Any:
    """The value as the first of several types that it fits; the complaint is that of the type it looks like."""
    if value is None and types.NoneType in kinds:
        return None
    several = isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim > 0)
    rest = [kind for kind in kinds if kind is not types.NoneType]
    if len(rest) > 1 and all(isinstance(kind, type) and kind not in LENIENT[1:] for kind in rest):
        if not isinstance(value, tuple(rest)):
            raise SettingsError(f"{label} = {excerpt(repr(value))} must be {' or '.join(map(_named, rest))}.")
        return value
    # a stable sort: sequences try the tuples first
    errors = []
    for kind in sorted(rest, key=lambda kind: (get_origin(kind) is tuple) is not several):
        try:
            return fitted(label, value, kind, default)
        except SettingsError as err:
            errors.append(err)
    raise errors[0]


def _of_tuple(label: str, value: Any, kinds: tuple[Any, ...]) -> tuple[Any, ...]:
    if isinstance(value, np.ndarray | Array) and np.ndim(value):
        value = np.asarray(value).tolist()
    if not isinstance(value, list | tuple):
        shown = excerpt(repr(value))
        raise SettingsError(f"{label} = {shown} must be a list; write [{shown}] for one value.")
    if len(kinds) == 2 and kinds[1] is ...:
        return tuple(fitted(f"{label}[{i}]", x, kinds[0]) for i, x in enumerate(value))
    if len(value) != len(kinds):
        raise SettingsError(f"{label} = {excerpt(repr(value))} must have {len(kinds)} entries, got {len(value)}.")
    return tuple(fitted(f"{label}[{i}]", x, kind) for i, (x, kind) in enumerate(zip(value, kinds, strict=True)))


def _number(label: str, value: Any, whole: bool, limits: Range, default: Any) -> int | float:
    if isinstance(value, np.generic | np.ndarray | Array) and np.ndim(value) == 0:
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float):
        text = excerpt(repr(value))
        raise SettingsError(f"{label} = {text} must be a {'whole ' if whole else ''}number{_offer(None, default)}")
    shown = value
    if whole and isinstance(value, float) and value.is_integer():
        value = int(value)
    if not whole:
        try:
            value = float(value)
        except OverflowError:  # an integer beyond all floats
            value = shown = math.inf if value > 0 else -math.inf
    if not limits.holds(value) or (whole and isinstance(value, float)):
        offer = _offer(limits.nearest(value, whole), default)
        raise SettingsError(f"{label} = {shown} must {limits.rule(value, whole)}{offer}")
    return value


def _offer(nearest: float | None, default: Any) -> str:
    """End of a message: the nearest valid value, else the default."""
    if nearest is not None:
        return f"; the nearest valid value is {nearest}."
    plain = isinstance(default, int | float) and not isinstance(default, bool)
    return f"; the default is {default}." if plain else "."


def _table(label: str, value: Any, limits: Range, default: Any) -> Any:
    """A rating, one number or one a unit, as it is given."""
    entries = value
    if isinstance(value, Array | np.ndarray):
        entries = np.asarray(value).tolist()
    for i, entry in enumerate(entries if isinstance(entries, list | tuple) else ()):
        fitted(f"{label}[{i}]", entry, Annotated[float, limits])
    if not isinstance(entries, list | tuple):
        _number(label, entries, False, limits, default)
    return value
