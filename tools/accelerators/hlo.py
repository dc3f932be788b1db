"""Counts of kernels, loops, library calls and wide types in a compiled program, read from its HLO text.

Kernels are the operations outside conditionals that a device has to launch: a loop of known length counts its length
times, a loop of unknown length TURNS times, a loop inside such a loop once. Every loop of unknown length and every
conditional is one question to the host, which has to wait for a flag before it can launch what follows. Kernels inside
conditionals are `rare`: the larger branch, loops counted the same way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

TURNS = 12  # of a loop whose length only the data decide: Newton and interior-point iterations take 4 to 20

# What moves no data and starts nothing: names, views, and the second halves of pairs whose first half is counted.
FREE = frozenset(
    (
        *("parameter", "get-tuple-element", "tuple", "bitcast", "constant", "partition-id", "replica-id", "domain"),
        *("after-all", "opt-barrier", "optimization-barrier", "async-update", "async-done", "copy-done"),
        *("slice-done", "dynamic-slice-done", "all-gather-done", "all-reduce-done"),
    )
)
FACTORISATIONS = re.compile(r"cusolver|lapack|LuDecomp|Cholesky|Qr$|Eigh|triangular|trsm|getrf|potrf|geqrf", re.I)
NATIVE_FACTORISATIONS = ("cholesky", "triangular-solve")
PRODUCTS = ("dot", "convolution")
WIDE = ("f64[", "c128[")
SINGLE = ("f32[", "c64[")

HEAD = re.compile(r"^(ENTRY )?%?([\w.\-~]+) \(.*\) -> .* \{\s*$")
LINE = re.compile(r"^\s+(ROOT )?%?([\w.\-~]+) = (.*)$")
OPCODE = re.compile(r"([\w\-]+)\(")
NAME = re.compile(r"%([\w.\-~]+)")
TARGET = re.compile(r'custom_call_target="([^"]*)"')
LENGTH = re.compile(r'known_trip_count":\{"n":"(\d+)"')
PRECISION = re.compile(r'operand_precision(?:=|":)[\[{]([^\]}]*)[\]}]')


@dataclass(frozen=True)
class Operation:
    """One line of HLO: name, opcode, type of the result, names of operands, and everything behind them."""

    name: str
    opcode: str
    type: str
    operands: tuple[str, ...]
    rest: str
    root: bool

    def computation(self, key: str) -> str:
        """Name of the computation that an attribute refers to, "" if there is none."""
        found = re.search(rf"\b{key}=%?([\w.\-~]+)", self.rest)
        return found[1] if found else ""

    @property
    def branches(self) -> list[str]:
        """Computations of a conditional."""
        listed = re.search(r"branch_computations=\{([^}]*)\}", self.rest)
        if listed:
            return NAME.findall(listed[1])
        return [self.computation("true_computation"), self.computation("false_computation")]

    @property
    def target(self) -> str:
        """Library function of a custom call."""
        found = TARGET.search(self.rest)
        return found[1] if found else ""

    @property
    def label(self) -> str:
        """Path of the operation in the source program."""
        found = re.search(r'op_name="([^"]*)"', self.rest)
        return found[1] if found else ""


@dataclass(frozen=True)
class Tally:
    """Figures of one computation, once through."""

    kernels: int = 0
    questions: int = 0
    rare: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.kernels + other.kernels, self.questions + other.questions, self.rare + other.rare)

    def times(self, count: int) -> Tally:
        return Tally(count * self.kernels, count * self.questions, count * self.rare)


@dataclass(frozen=True)
class Counts:
    """Figures of a compiled program; kernels, questions and rare are per step, the others of the whole text.

    kernels:    launches outside conditionals
    loops:      questions of loops whose length the data decide
    branches:   questions of conditionals
    rare:       launches inside conditionals, if every one were taken
    library:    calls of factorisations and triangular solves
    wide:       operations in float64 or complex128
    unpinned:   products of float32 that ask for fewer than all digits
    """

    kernels: int
    loops: int
    branches: int
    rare: int
    library: int
    wide: int
    unpinned: int


def count(text: str, length: int = 1, often: Sequence[str] = ()) -> Counts:
    """Figures of an HLO text whose program takes `length` steps.

    often:  parts of the names of conditionals that are taken on more than 1 % of steps, and so count as unconditional
    """
    module = Module(text, often)
    total = module.walk(module.entry)
    loops = module.loops(module.entry)
    everything = [op for ops in module.computations.values() for op in ops]
    return Counts(
        # what runs once before and after the steps is less than one kernel a step
        kernels=total.kernels // length,
        loops=loops // length,
        branches=(total.questions - loops) // length,
        rare=total.rare // length,
        library=sum(_factorises(op) for op in everything),
        wide=sum(op.opcode not in FREE and any(t in op.type for t in WIDE) for op in everything),
        unpinned=sum(module.unpinned(name) for name in module.computations),
    )


class Module:
    """Computations of an HLO text, by name."""

    def __init__(self, text: str, often: Sequence[str] = ()) -> None:
        self.computations: dict[str, list[Operation]] = {}
        self.entry = ""
        self._often = tuple(often)
        # compilers for TPUs do not write the lengths that they know
        self._lengths_written = "known_trip_count" in text
        self._tallies: dict[tuple[str, bool], Tally] = {}
        self._read(text)
        if not self.entry:
            raise ValueError("no ENTRY computation in this HLO text. Give the whole text of a compiled program.")

    def _read(self, text: str) -> None:
        current: list[Operation] | None = None
        for line in text.splitlines():
            head = HEAD.match(line)
            if head:
                current = self.computations.setdefault(head[2], [])
                self.entry = head[2] if head[1] else self.entry
            elif line.startswith("}"):
                current = None
            elif current is not None:
                current.extend(_operation(line))

    def walk(self, name: str, inside: bool = False) -> Tally:
        """Figures of a computation; `inside` a loop of unknown length every further loop counts once."""
        known = self._tallies.get((name, inside))
        if known is None:
            known = sum((self._one(op, inside) for op in self.computations.get(name, ())), start=Tally())
            self._tallies[name, inside] = known
        return known

    def _one(self, op: Operation, inside: bool) -> Tally:
        if op.opcode in FREE:
            return Tally()
        if op.opcode == "while":
            return self._loop(op, inside)
        if op.opcode == "conditional":
            return self._conditional(op, inside)
        if op.opcode == "call":
            return self.walk(op.computation("to_apply"), inside)
        if op.opcode == "async-start" and op.computation("calls") in self.computations:
            return self.walk(op.computation("calls"), inside)
        return Tally(kernels=1)

    def _loop(self, op: Operation, inside: bool) -> Tally:
        length = self.length(op)
        if length is not None:
            # the host knows when it ends: its condition is not run
            return self.walk(op.computation("body"), inside).times(1 if inside else length)
        turn = self.walk(op.computation("body"), True) + self.walk(op.computation("condition"), True)
        turns = 1 if inside else TURNS
        return Tally(turns * turn.kernels, 1 + turn.questions, turns * turn.rare)

    def _conditional(self, op: Operation, inside: bool) -> Tally:
        largest = max((self.walk(b, inside) for b in op.branches), key=lambda t: t.kernels + t.rare)
        if any(part in op.label for part in self._often):
            return largest + Tally(questions=1)
        return Tally(questions=1, rare=largest.kernels + largest.rare)

    def loops(self, name: str, inside: bool = False) -> int:
        """Loops of unknown length that a computation meets outside conditionals."""
        total = 0
        for op in self.computations.get(name, ()):
            if op.opcode == "while":
                length = self.length(op)
                body = self.loops(op.computation("body"), inside or length is None)
                total += body + 1 if length is None else body * (1 if inside else length)
            elif op.opcode in ("call", "async-start"):
                total += self.loops(op.computation("to_apply") or op.computation("calls"), inside)
            elif op.opcode == "conditional" and any(part in op.label for part in self._often):
                total += max(self.loops(b, inside) for b in op.branches)
        return total

    def length(self, op: Operation) -> int | None:
        """Turns of a loop, None where data decide."""
        written = LENGTH.search(op.rest)
        if written:
            return int(written[1])
        return None if self._lengths_written else self._counted(op.computation("condition"))

    def _counted(self, condition: str) -> int | None:
        """Bound of a condition that is nothing but a counter below a constant, as scans have."""
        operations = self.computations.get(condition, [])
        root = next((op for op in operations if op.root), None)
        if root is None or "direction=LT" not in root.rest:
            return None
        values = {op.name: op.rest for op in operations if op.opcode == "constant"}
        bounds = [values[name] for name in root.operands if name in values]
        number = re.match(r"\((\d+)\)", bounds[0]) if len(bounds) == 1 else None
        return int(number[1]) if number else None

    def unpinned(self, name: str) -> int:
        """Products of float32 in a computation that leave their precision to the device."""
        operations = self.computations[name]
        types = {op.name: op.type for op in operations}
        found = 0
        for op in operations:
            if op.opcode in PRODUCTS or "matmul" in op.target or "gemm" in op.target:
                single = any(types.get(x, "").startswith(SINGLE) for x in op.operands[:2])
                asked = PRECISION.search(op.rest)
                exact = asked is not None and set(re.findall(r"\w+", asked[1].lower())) == {"highest"}
                found += single and not exact
        return found


def _factorises(op: Operation) -> bool:
    return op.opcode in NATIVE_FACTORISATIONS or bool(FACTORISATIONS.search(op.target))


def _operation(line: str) -> Iterator[Operation]:
    """The operation on a line, if there is one."""
    match = LINE.match(line)
    if not match:
        return
    body = match[3]
    # the type is one word, or a tuple in brackets
    end = _closing(body, 0) + 1 if body.startswith("(") else body.find(" ")
    kind, tail = body[:end], body[end:].lstrip()
    opcode = OPCODE.match(tail)
    if not opcode:
        return
    close = _closing(tail, opcode.end() - 1)
    inner = tail[opcode.end() : close]
    # a constant's value stands where operands do
    rest = f"({inner})" if opcode[1] == "constant" else tail[close + 1 :]
    yield Operation(match[2], opcode[1], kind, tuple(NAME.findall(inner)), rest, bool(match[1]))


def _closing(text: str, start: int) -> int:
    """Position of the bracket that closes the one at `start`."""
    depth = 0
    for place in range(start, len(text)):
        if text[place] == "(":
            depth += 1
        elif text[place] == ")":
            depth -= 1
            if depth == 0:
                return place
    raise ValueError(f"no closing bracket in HLO line: {text[:80]!r}.")
