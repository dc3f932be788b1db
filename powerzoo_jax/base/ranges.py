"""Declared ranges of settings: what a number may be stands beside its type, and one check reads it there.

    class Example:
        gamma: Share = 0.99                       # Annotated[float, Range(0, 1)]
        widths: tuple[Count, ...] = (128, 128)    # Annotated[int, Range(1, ...)] for each of them

    @checks_ranges("battery")
    def make(power_mw: Annotated[Rating, POSITIVE] = 20.0): ...

    @checks_ranges("dispatch")
    def dispatch(load_mw: Annotated[Array, FINITE, axes("N")], on: Annotated[Array, axes("G", kind=FLAG)]): ...

A value out of its range, or of another type, is refused before anything is built or compiled, by a message that names
the setting, the value and the nearest valid one. NaN lies in no range, infinity only where a range says so.

Arrays are refused alike where their values are known. Those that a compiled program will know only later are refused
by shape and type; the program puts a valid number in the place of what lies outside, and its result says BAD_INPUT.
A program of ours, whose arrays are right, takes the function within: `unchecked(dispatch)`.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import PurePath
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from powerzoo_jax.base.errors import KindError, SettingsError, excerpt, unknown
from powerzoo_jax.base.numerics import FLOAT

P = ParamSpec("P")
R = TypeVar("R")

LENIENT = (str, int, float, object, Any, np.ndarray, Array)  # classes whose values come in several forms
MOST = 2**31 - 1  # of what is counted in int32


@dataclass(frozen=True)
class Range:
    """Interval [low, high] of valid numbers, or (low, high].

    open_low:  low itself lies outside
    infinite:  +inf is valid too: a budget that constrains nothing, a ramp that limits nothing
    bottomless: -inf is valid too: a lower limit that limits nothing
    """

    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    infinite: bool = False
    bottomless: bool = False

    def holds(self, value: float) -> bool:
        """Membership of a number."""
        if value in (math.inf, -math.inf):
            return self.infinite if value > 0 else self.bottomless
        return self.low <= value <= self.high and not (self.open_low and value == self.low)

    def held(self, x: Any) -> Any:
        """Membership of every entry of an array, of the host or traced: an array of bool."""
        inside = (x > self.low if self.open_low else x >= self.low) & (x <= self.high)
        if jnp.issubdtype(x.dtype, jnp.integer):
            return inside
        finite = abs(x) < math.inf
        if self.infinite:
            finite = finite | (x == math.inf)
        if self.bottomless:
            finite = finite | (x == -math.inf)
        return inside & finite

    @property
    def harmless(self) -> float:
        """A valid number: what takes the place of one that is not."""
        return next(x for x in (0.0, 1.0, self.low) if self.holds(x))

    def rule(self, value: float, whole: bool) -> str:
        """Text of the rule that a number breaks, after "must"."""
        if whole:
            end = f" of at most {self.high}" if value > self.high else f" of at least {self.low}"
            return "be a whole number" + ("" if isinstance(value, float) else end)
        if math.isfinite(self.low) and math.isfinite(self.high):
            return f"lie in {'(' if self.open_low else '['}{self.low:g}, {self.high:g}]"
        if self.infinite or self.bottomless:
            ends = "+inf" * self.infinite, "-inf" * self.bottomless
            also = " or ".join(filter(None, ends))
            if self.low == -math.inf:
                return f"be a number or {also}"
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
LOWER = Range(bottomless=True)  # limits, which may limit nothing
UPPER = Range(infinite=True)

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


def checks_ranges(
    owner: str, *, options: Callable[..., Any] | type | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator of a function whose arguments are checked by their declared ranges.

    owner:    begins a message, such as "battery"
    options:  function or dataclass that declares what `**keywords` hold, where the function hands them on

    Plain settings arrive as `fitted` makes them, arrays as arrays of the device where the function declares such.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        rest = next((p.name for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD), None)

        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                call = signature.bind(*args, **kwargs)
            except TypeError:
                return function(*args, **kwargs)  # raises it in its own name
            hints = declared(function)
            given = _Given.of(owner, call.arguments.values())
            given.host = any(_axes(hint) and not _types(hint)[0] for hint in hints.values())
            names = sorted(call.arguments, key=lambda name: _form(hints.get(name)) is None)  # records tell lengths
            for name in names:
                value, default = call.arguments[name], signature.parameters[name].default
                if name == rest:
                    more = {} if options is None else declared(options)
                    call.arguments[name] = {
                        key: given.checked(key, x, more[key]) if key in more else x for key, x in value.items()
                    }
                elif name in hints:
                    call.arguments[name] = given.checked(name, value, hints[name], default)
            out = function(*call.args, **call.kwargs)
            return _told(out, functools.reduce(jnp.logical_and, given.fine)) if given.fine else out

        return checked

    return decorate


def unchecked(function: Callable[P, R]) -> Callable[P, R]:
    """The function within `checks_ranges`: for programs whose arguments are right, which the checks would lengthen."""
    within: Callable[P, R] = function.__wrapped__  # type: ignore[attr-defined]
    return within


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


REAL, WHOLE, FLAG, BOOL = "real", "whole", "flag", "bool"
ANY_SHAPE = ("...",)
BAD_INPUT = 3  # of `powerflow.Status` and `opf.OpfStatus`
KINDS = {REAL: "real numbers", WHOLE: "whole numbers", **dict.fromkeys((FLAG, BOOL), "true or false, or 0 and 1")}


@dataclass(frozen=True)
class Axes:
    """Axes of an array by name, (G, K) for example; what has one name has one length throughout a call.

    names:  of the axes; a number is a length, ("...",) any shape, () a single number
    kind:   REAL, WHOLE, FLAG (0 and 1 in any type) or BOOL (likewise, and arrives as bool)
    below:  axis that the entries are positions on
    told:   what is traced and not finite is left to the function, which tells it by a status or does not read it
    lanes:  a batch of which the function tells good lanes from bad ones: no value is refused
    """

    names: tuple[str | int, ...]
    kind: str = REAL
    below: str | None = None
    told: bool = False
    lanes: bool = False


def axes(*names: str | int, **how: Any) -> Axes:
    """Axes of an array, to stand beside its type and range; several of them are alternatives."""
    return Axes(names, **how)


def _form(kind: Any) -> Any:
    """The record that a declared type names: a dataclass whose fields have axes, or that knows lengths (`AXES`)."""
    for part in get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,):
        if isinstance(part, type) and dataclasses.is_dataclass(part) and (hasattr(part, "AXES") or _arrays(part)):
            return part
    return None


@functools.cache
def _arrays(record: Any) -> dict[str, Any]:
    """Declared types of the fields of a record that have axes."""
    return {name: kind for name, kind in declared(record).items() if _axes(kind)}


def _axes(kind: Any) -> tuple[Axes, ...]:
    """Alternative axes that a declared type names; none where it is no array."""
    if get_origin(kind) in (Union, types.UnionType):
        return next(filter(None, map(_axes, get_args(kind))), ())
    return tuple(x for x in getattr(kind, "__metadata__", ()) if isinstance(x, Axes))


@dataclass
class _Given:
    """Arguments of one call as far as they are checked.

    dtype:  of the first real array, for numbers that have none
    sizes:  lengths of axes that are known, by name
    fine:   traced flags () that arrays lie within their ranges
    host:   the function takes arrays of NumPy, so that records keep theirs: audits in float64 stay so without x64
    """

    owner: str
    dtype: np.dtype
    sizes: dict[str, int] = field(default_factory=dict)
    fine: list[Array] = field(default_factory=list)
    host: bool = False

    @classmethod
    def of(cls, owner: str, values: Any) -> _Given:
        leaves = jax.tree.leaves([x for x in values if isinstance(x, Array) or dataclasses.is_dataclass(x)])
        real = (x.dtype for x in leaves if isinstance(x, Array) and jnp.issubdtype(x.dtype, jnp.floating))
        return cls(owner, np.dtype(next(real, FLOAT)))

    def checked(self, name: str, value: Any, kind: Any, default: Any = None) -> Any:
        label = f"{self.owner} {name}"
        if value is None and types.NoneType in get_args(kind):
            return value
        record = _form(kind)
        if record is not None:
            return self.record(label, value, record)
        if isinstance(kind, type) and kind not in (bool, *LENIENT):
            return value  # the function itself says what to give in its place
        if not _axes(kind):
            return fitted(label, value, kind, None if default is inspect.Parameter.empty else default)
        if isinstance(value, str) and (words := _words(kind)):
            if value not in words:
                raise SettingsError(f"{label}: {unknown('choice', value, words)}")
            return value
        return self.array(label, value, kind)

    def record(self, label: str, value: Any, record: Any) -> Any:
        """A record whose arrays are checked; the same one where nothing changes."""
        if not isinstance(value, record):
            raise SettingsError(f"{label} is a {type(value).__name__}, expected a {record.__name__}.")
        for axis, path in getattr(record, "AXES", {}).items():
            length = attrgetter(path)(value)  # a number, or an array whose last axis it is
            self.length(label, axis, length if isinstance(length, int) else length.shape[-1])
        found = {name: getattr(value, name) for name in _arrays(record)}
        new = {name: self.array(f"{label}.{name}", x, _arrays(record)[name]) for name, x in found.items()}
        changed = {} if self.host else {name: x for name, x in new.items() if x is not found[name]}
        return dataclasses.replace(value, **changed) if changed else value

    def length(self, label: str, axis: str, length: int) -> None:
        if self.sizes.setdefault(axis, length) != length:
            raise SettingsError(f"{label} has {axis}={length}, the other arguments {axis}={self.sizes[axis]}.")

    def array(self, label: str, value: Any, kind: Any) -> Any:
        alternatives = _axes(kind)
        how, limits = alternatives[0], _limits(kind)
        on_device, plain_number = _types(kind)
        array: Any = value if isinstance(value, Tracer) else as_numbers(label, value, how.kind)
        how = self.shape(label, array.shape, alternatives)
        if how.below is not None:
            limits = Range(limits.low if limits else 0, self.sizes[how.below] - 1)
        elif how.kind in (FLAG, BOOL):
            limits = SHARE
        if isinstance(value, Tracer):
            return self.later(label, value, how, limits)
        dtype = self.stored_as(value, array, how.kind)
        if limits is not None and not how.lanes:
            _refuse_outside(label, array, dtype, limits, how.kind)
        if not on_device or (plain_number and not isinstance(value, Array | np.ndarray | list | tuple)):
            return value
        return value if isinstance(value, Array) and value.dtype == dtype else jnp.asarray(array, dtype)

    def stored_as(self, value: Any, array: np.ndarray, kind: str) -> np.dtype:
        """Type of the array on the device: its own as far as that is one, that of the call for numbers without one."""
        if kind == BOOL:
            return np.dtype(bool)
        if kind == WHOLE:
            return np.dtype(array.dtype if array.dtype.kind in "iu" else "int32")
        typed = isinstance(value, Array | np.ndarray | np.generic) and jnp.issubdtype(array.dtype, jnp.floating)
        if isinstance(value, Array) and typed:
            return np.dtype(array.dtype)  # of 64 bits also where x64 is off by now
        return np.dtype(jax.dtypes.canonicalize_dtype(array.dtype)) if typed or kind == FLAG else self.dtype

    def shape(self, label: str, shape: tuple[int, ...], alternatives: tuple[Axes, ...]) -> Axes:
        """Declared axes that fit an array, out of several; SettingsError naming all of them where none does."""
        for how in alternatives:
            if how.names == ANY_SHAPE:
                return how
            known = [self.sizes.get(x, n) if isinstance(x, str) else x for x, n in zip(how.names, shape, strict=False)]
            if len(how.names) == len(shape) and tuple(known) == shape:
                self.sizes |= {x: n for x, n in zip(how.names, shape, strict=True) if isinstance(x, str)}
                return how
        expected = " or ".join(self.expected(how) for how in alternatives)
        raise SettingsError(
            f"{label}: expected {expected}, got {shape}. Give one scenario; several are mapped with jax.vmap."
        )

    def expected(self, how: Axes) -> str:
        parts = [f"{x}={self.sizes[x]}" if x in self.sizes else str(x) for x in how.names]
        return f"({', '.join(parts)}{',' * (len(parts) == 1)})"

    def later(self, label: str, x: Any, how: Axes, limits: Range | None) -> Any:
        """A traced array with valid numbers only; whether it had others goes to `fine`."""
        real = jnp.issubdtype(x.dtype, jnp.floating)
        whole = jnp.issubdtype(x.dtype, jnp.integer)
        logical = x.dtype == bool
        takes = {REAL: real or whole, WHOLE: whole, FLAG: real or whole or logical, BOOL: real or whole or logical}
        if not takes[how.kind]:
            raise KindError(f"{label} holds {x.dtype.name}. Give {_wanted(how.kind, x.dtype)}.")
        if how.kind == REAL and whole:
            x = x.astype(self.dtype)
        if logical or limits is None or how.lanes:
            return x
        flag = how.kind in (FLAG, BOOL)
        ok = (x == 0) | (x == 1) if flag else limits.held(x)
        if how.told:
            ok = ok | ~jnp.isfinite(x)
        self.fine.append(jnp.all(ok))
        x = jnp.where(ok, x, jnp.asarray(1 if flag else limits.harmless, x.dtype))
        return x != 0 if how.kind == BOOL else x


def _words(kind: Any) -> tuple[str, ...]:
    """Words that a declared type takes beside numbers."""
    return next((get_args(part) for part in get_args(kind) if get_origin(part) is Literal), ())


def _parts(kind: Any) -> Iterator[Any]:
    """Types that a declared type is a union of, without their ranges."""
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if get_origin(kind) in (Union, types.UnionType):
        for part in get_args(kind):
            yield from _parts(part)
    else:
        yield kind


def _types(kind: Any) -> tuple[bool, bool]:
    """Whether a function takes an array of the device, and whether a plain number as it is."""
    parts = list(_parts(kind))
    return Array in parts, float in parts


def _limits(kind: Any) -> Range | None:
    if get_origin(kind) in (Union, types.UnionType):
        return next(filter(None, map(_limits, get_args(kind))), None)
    return next((x for x in getattr(kind, "__metadata__", ()) if isinstance(x, Range)), None)


def as_numbers(label: str, value: Any, kind: str = REAL) -> np.ndarray:
    """An array (...), in any unit, of the host; KindError for what holds no numbers, or numbers of another kind."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as err:
        raise KindError(f"{label} = {excerpt(repr(value))} is no array. Give {KINDS[kind]}.") from err
    real = jnp.issubdtype(array.dtype, jnp.floating)
    good = real or array.dtype.kind in "iu" or (array.dtype.kind == "b" and kind in (FLAG, BOOL))
    if good and kind == WHOLE and real and array.size:
        good = bool((array == np.round(array)).all())  # NaN is not equal to itself, infinity fails its range
    elif good and kind in (FLAG, BOOL):
        good = bool(((array == 0) | (array == 1)).all())
    if not good:
        what = f"= {excerpt(repr(value))}" if real or not array.ndim else f"holds {array.dtype.name}"
        raise KindError(f"{label} {what}. Give {_wanted(kind, array.dtype)}.")
    return array


def _wanted(kind: str, dtype: Any) -> str:
    part = ": s.real or s.imag" if jnp.issubdtype(dtype, jnp.complexfloating) else ""
    return KINDS[kind] + part


def _refuse_outside(label: str, array: np.ndarray, dtype: np.dtype, limits: Range, kind: str) -> None:
    if array.dtype.kind == "b" or not array.size:
        return
    wide = array.astype(np.float64)
    with np.errstate(over="ignore"):
        narrow = wide.astype(dtype).astype(np.float64) if kind == REAL else wide
    bad = np.flatnonzero(~(limits.held(wide) & limits.held(narrow)))
    if not bad.size:
        return
    at = np.unravel_index(bad[0], array.shape)
    where = f"[{', '.join(map(str, at))}]" if at else ""
    value = array[at].item() if array.dtype.kind != "V" else float(array[at])
    if limits.holds(value):
        raise SettingsError(f"{label}{where} = {value} is beyond the numbers of {dtype.name}. Check its unit.")
    whole = kind == WHOLE
    offer = _offer(limits.nearest(value, whole), None)
    raise SettingsError(f"{label}{where} = {value} must {limits.rule(value, whole)}{offer}")


def stored(label: str, values: Any, dtype: Any) -> Array:
    """Numbers (...), in any unit, as an array of the device; SettingsError for those that its type cannot hold."""
    wide = np.asarray(values, np.float64)
    with np.errstate(over="ignore", under="ignore"):
        narrow = wide.astype(dtype)
    bad = np.flatnonzero((np.isfinite(wide) & ~np.isfinite(narrow)) | ((wide != 0) & (narrow == 0)))
    if bad.size:
        value = wide.reshape(-1)[bad[0]]
        raise SettingsError(f"{label} = {value} is beyond the numbers of {np.dtype(dtype).name}. Check its unit.")
    return jnp.asarray(narrow)


def _told(out: Any, fine: Array) -> Any:
    """A result whose every status is BAD_INPUT unless the inputs were fine."""
    if dataclasses.is_dataclass(out) and not isinstance(out, type):
        fields = {f.name: getattr(out, f.name) for f in dataclasses.fields(out)}
        return dataclasses.replace(out, **_statuses(fields, fine))
    if isinstance(out, tuple) and hasattr(out, "_fields"):
        return out._replace(**_statuses(out._asdict(), fine))  # type: ignore[attr-defined]
    return tuple(_told(x, fine) for x in out) if isinstance(out, tuple) else out


def _statuses(fields: Mapping[str, Any], fine: Array) -> dict[str, Any]:
    return {
        name: jnp.where(fine, x, jnp.asarray(BAD_INPUT, x.dtype)) if name == "status" else _told(x, fine)
        for name, x in fields.items()
        if name == "status" or isinstance(x, tuple) or dataclasses.is_dataclass(x)
    }
