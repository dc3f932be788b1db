"""Hostile files: inputs made to exhaust, escape or mislead the readers, and what each reader does with them.

`python -m tools.hostile` writes every input in its full size into a temporary folder, reads it, and prints one row: it
was read rightly, or refused by a clear error, or it ended in a foreign traceback, in a wrong result, or not in time.
It exits with 1 where one of the last three occurs; `--out FILE` keeps the rows. The tests read the same inputs small.
"""

from __future__ import annotations

import argparse
import io
import json
import pickle
import resource
import signal
import struct
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

from powerzoo_jax.base.errors import PowerZooError, excerpt
from powerzoo_jax.base.npz import read_npz
from powerzoo_jax.base.textfile import read_toml
from powerzoo_jax.cases import read_opendss, scan_matpower
from powerzoo_jax.cases.readers.pandapower.saved import check_net_file
from powerzoo_jax.data import read_csv
from powerzoo_jax.data.adapters import read_official
from tools.cases.netfile import read_saved_net

LIMIT_S = 60
COLUMNS = ("reader", "input", "MB", "seconds", "peak MB", "outcome", "message")
READ, REFUSED, FOREIGN, WRONG, SLOW = "read", "clear error", "foreign traceback", "wrong result", "too slow"
BAD = (FOREIGN, WRONG, SLOW)

GRID = """function mpc = grid
mpc.version = '2';
mpc.baseMVA = 10;
mpc.bus = [1 3 7 0 0 0 1 1 0 20 1 1.1 0.9];
mpc.gen = [1 0 0 10 -10 1 100 1 10 0];
mpc.branch = [];
"""
FEEDER = """Clear
New Circuit.c basekv=12.47 bus1=s
New Line.l bus1=s bus2=a length=1
New Load.d bus1=a kW=7 kv=12.47
"""
SERIES = "time,load_mw\n" + "".join(f"2023-01-01T{h:02d}:00Z,7\n" for h in range(24))
NESO = "SETTLEMENT_DATE,SETTLEMENT_PERIOD,ND\n2023-01-01,1,30000\n"


class Input(NamedTuple):
    """One hostile input.

    reader:  what reads it
    name:    what is wrong with it
    full:    number of its items in full size
    make:    (folder, number of items) -> the call that reads it
    right:   test of a result; None where the input must be refused
    """

    reader: str
    name: str
    full: int
    make: Callable[[Path, int], Callable[[], Any]]
    right: Callable[[Any], bool] | None = None


class Outcome(NamedTuple):
    """Result of reading an input: one of READ to SLOW, the message of an error, and CPU seconds."""

    what: str
    message: str
    seconds: float


def try_out(call: Callable[[], Any], right: Callable[[Any], bool] | None) -> Outcome:
    """Read an input and judge the result."""
    start = time.process_time()
    try:
        found = call()
        what, message = (READ, "") if right is not None and right(found) else (WRONG, f"result {found!r}")
    except TimeoutError:
        what, message = SLOW, f"more than {LIMIT_S} s"
    except PowerZooError as err:
        what, message = REFUSED, str(err)
    except Exception as err:  # the count of these is the result
        what, message = FOREIGN, f"{type(err).__name__}: {err}"
    return Outcome(what, message, time.process_time() - start)


# ---- makers of files


def put(folder: Path, name: str, content: str | bytes) -> Path:
    """Write a file of an input."""
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode("latin-1"))
    return path


def _matpower(name: str, full: int, text: Callable[[int], str], readable: bool = True) -> Input:
    """A line or more below a good grid; nothing of it may change the load of 7 MW."""

    def make(folder: Path, n: int) -> Callable[[], Any]:
        path = put(folder, "grid.m", GRID + text(n))
        return lambda: _scanned(path)

    return Input("MATPOWER", name, full, make, (lambda load: load == 7.0) if readable else None)


def _scanned(path: Path) -> float:
    """Total load of a case file; raises the first of its problems."""
    _, case, problems = scan_matpower(path)
    if case is None or problems:
        raise PowerZooError("; ".join(map(str, problems)))
    return float(case.load.p_mw.sum())


def _opendss(
    name: str, full: int, text: Callable[[int], str], readable: bool = False, files: dict[str, str] | None = None
) -> Input:
    def make(folder: Path, n: int) -> Callable[[], Any]:
        inner = folder / "feeder"
        inner.mkdir(exist_ok=True)
        for file, content in (files or {}).items():
            put(inner, file, content)
        path = put(inner, "master.dss", FEEDER + text(n))
        return lambda: float(read_opendss(path).load.p_kw.sum())

    return Input("OpenDSS", name, full, make, (lambda load: abs(load - 7.0) < 1e-9) if readable else None)


def _net(name: str, full: int, text: Callable[[int], str]) -> Input:
    def make(folder: Path, n: int) -> Callable[[], Any]:
        path = put(folder, "net.json", text(n))

        def call() -> Any:
            check_net_file(path)
            return read_saved_net(path.read_text(), "net", "")

        return call

    return Input("pandapower JSON", name, full, make)


def _table(name: str, full: int, text: Callable[[int], str], readable: bool = False) -> Input:
    def make(folder: Path, n: int) -> Callable[[], Any]:
        path = put(folder, "series.csv", text(n))
        return lambda: read_csv(path).column("load.actual_mw").max()

    return Input("table", name, full, make, (lambda load: load == 7.0) if readable else None)


def _official(source: str, name: str, full: int, text: Callable[[int], str], file: str) -> Input:
    def make(folder: Path, n: int) -> Callable[[], Any]:
        path = put(folder, file, text(n))
        return lambda: read_official(source, path)[0]

    return Input("official table", name, full, make)


def _npz(name: str, full: int, content: Callable[[int], bytes], right: Callable[[Any], bool] | None = None) -> Input:
    def make(folder: Path, n: int) -> Callable[[], Any]:
        path = put(folder, "arrays.npz", content(n))
        return lambda: read_npz(path)

    return Input("npz", name, full, make, right)


def _zero(arrays: dict[str, np.ndarray]) -> bool:
    return not arrays["a"].any()


def _toml(name: str, full: int, text: Callable[[int], str]) -> Input:
    def make(folder: Path, n: int) -> Callable[[], Any]:
        path = put(folder, "settings.toml", text(n))
        return lambda: read_toml(path)

    return Input("settings", name, full, make)


def npy(shape: tuple[int, ...], descr: str = "<f8", content: bytes = b"") -> bytes:
    """An array file whose header claims a shape and a type."""
    header = repr({"descr": descr, "fortran_order": False, "shape": shape}).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + content


def archive(*entries: tuple[str, bytes]) -> bytes:
    """A zip archive of these entries."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in entries:
            file.writestr(name, content)
    return buffer.getvalue()


def _pickled() -> bytes:
    return npy((1,), "|O", pickle.dumps(np.array([print], object)))


def _module(module: str, kind: str, value: Any = "x") -> str:
    inner = json.dumps(
        {"columns": ["a"], "index": [0], "data": [[{"_module": module, "_class": kind, "_object": value}]]}
    )
    table = {"_module": "pandas.core.frame", "_class": "DataFrame", "_object": inner}
    return json.dumps({"_module": "pandapower.auxiliary", "_class": "pandapowerNet", "_object": {"controller": table}})


M = 1_000_000
INPUTS: tuple[Input, ...] = (
    _matpower("semicolons", 20 * M, lambda n: ";" * n),
    _matpower("semicolons in a table", 20 * M, lambda n: "mpc.bus = [" + ";" * n + "];", readable=False),
    _matpower("semicolons and spaces by turns", 10 * M, lambda n: "; " * n),
    _matpower("spaces in a row", 20 * M, lambda n: f"mpc.bus = [1{' ' * n}x];", readable=False),
    _matpower("spaces in a formula", 20 * M, lambda n: f"mpc.bus = [1-1{' ' * n}2];", readable=False),
    _matpower("spaces behind if", 20 * M, lambda n: f"if {' ' * n}[\nx]", readable=False),
    _matpower("spaces in an index", 20 * M, lambda n: f"mpc.bus(1{' ' * n}) = 3;", readable=False),
    _matpower("scalars", 200_000, lambda n: "".join(f"a{i} = {i};\n" for i in range(n))),
    _matpower("scalars by formulas", 200_000, lambda n: "".join(f"a{i} = {i}+1;\n" for i in range(n))),
    _matpower("more scalars than statements allowed", 2 * M, lambda n: "a=1;" * n),
    _matpower("formulas in a table", 3 * M, lambda n: f"mpc.gencost = [2 0 0 1 {'1-1 ' * n}];"),
    _matpower("lines continued", 3 * M, lambda n: "x = 1 ...\n" * n, readable=False),
    _matpower("quotes", 20 * M, lambda n: "'" * (2 * (n // 2) + 1), readable=False),
    _matpower("a text", 20 * M, lambda n: f"x = '{'a' * n}';", readable=False),
    _matpower("blank lines", 30 * M, lambda n: "\n" * n),
    _matpower("comments", 15 * M, lambda n: "%\n" * n),
    _matpower("brackets", 20 * M, lambda n: "[" * n, readable=False),
    _matpower("references to a table", 2 * M, lambda n: "x = " + "mpc.bus(:,1)+" * n + "1;", readable=False),
    _matpower("updates of a table", 2 * M, lambda n: "mpc.bus(:,8)=1;" * n),
    _matpower("unknown statements", 7 * M, lambda n: "foo;" * n, readable=False),
    _matpower("short rows", 15 * M, lambda n: f"mpc.bus = [{'1;' * n}];", readable=False),
    _matpower("a long cell", 15 * M, lambda n: f"mpc.bus = [{'1+' * n}1];", readable=False),
    _matpower("digits", 20 * M, lambda n: f"mpc.bus = [{'1' * n}];", readable=False),
    _matpower("a long name", 20 * M, lambda n: f"mpc.{'b' * n} = 1;", readable=False),
    _matpower("nested brackets", 900, lambda n: f"x = {'(' * n}1{')' * n};", readable=False),
    _matpower("more than the limit", 33 * M, lambda n: "%" * 33 * M, readable=False),
    _opendss("blank lines", 30 * M, lambda n: "\n" * n, readable=True),
    _opendss("block comments never closed", 10 * M, lambda n: "/* " * n),
    _opendss("brackets never closed", 15 * M, lambda n: "New Load.e bus1=a kv=1 kW=" + "( " * n),
    _opendss("one bracket never closed", 1, lambda n: "New Load.e bus1=a kv=1 kW=(100\n"),
    _opendss("quotes of all kinds", 5 * M, lambda n: "New Load.e " + "({['" * n),
    _opendss("words", 10 * M, lambda n: "New Load.e " + "a " * n),
    _opendss("spaces", 30 * M, lambda n: "New Load.e kW" + " " * n + "= 1"),
    _opendss("a long command", 30 * M, lambda n: "x" * n),
    _opendss("a long name", 30 * M, lambda n: f"New Load.{'x' * n} bus1=a kv=1"),
    _opendss("continuations", 10 * M, lambda n: "~ " * n + "\n" + "~ kW=7\n" * min(n, 3 * M)),
    _opendss(
        "copies of copies",
        200_000,
        lambda n: "".join(f"New Load.e{i} like={f'e{i - 1}' if i else 'd'}\n" for i in range(n)),
    ),
    _opendss(
        "a line code changed between lines",
        200_000,
        lambda n: "New Linecode.k r1=1\n" + "".join(f"Linecode.k.r1={i}\nNew Line.l{i} linecode=k\n" for i in range(n)),
    ),
    _opendss("voltage bases", 5 * M, lambda n: "Set VoltageBases=[" + "1 " * n + "]\n"),
    _opendss("a formula", 10 * M, lambda n: "New Load.e bus1=a kv=1 kW=(" + "1 1 + " * (n // 3) + ")\n"),
    _opendss("Redirect to the system", 1, lambda n: "Redirect /etc/passwd\n"),
    _opendss("Compile above the folder", 1, lambda n: "Compile ../secret.dss\n"),
    _opendss("Redirect to a drive", 1, lambda n: "Redirect C:\\secret.dss\n"),
    _opendss("Redirect to a server", 1, lambda n: "Redirect \\\\server\\secret.dss\n"),
    _opendss("Redirect to a long path", 100_000, lambda n: f"Redirect {'x' * n}\n"),
    _opendss("Redirect to itself", 1, lambda n: "Redirect master.dss\n"),
    _opendss(
        "a chain of files",
        100,
        lambda n: "Redirect f0.dss\n",
        files={f"f{i}.dss": f"Redirect f{i + 1}.dss\n" for i in range(100)},
    ),
    _opendss("one file again and again", 100_000, lambda n: "Redirect big.dss\n" * n, files={"big.dss": "!" * 100_000}),
    _net("nested lists", 2 * M, lambda n: "[" * n),
    _net("nested objects", 500, lambda n: '{"a":' * n + "1" + "}" * n),
    _net("digits", M, lambda n: "1" * n),
    _net("no net", 1, lambda n: '{"_object": {"bus": 3}}'),
    _net("a table without columns", 1, lambda n: _module("pandas.core.frame", "DataFrame", "{}")),
    _net("a command of the system", 1, lambda n: _module("os", "system", "echo")),
    _net("a module beside the file", 1, lambda n: _module("mine", "function", "run")),
    _net("an evaluation", 1, lambda n: _module("builtins", "eval", "1")),
    _net("more than the limit", 1, lambda n: " " * 33 * M),
    _table("semicolons", 20 * M, lambda n: SERIES + ";" * n),
    _table("commas", 20 * M, lambda n: SERIES + "," * n, readable=True),
    _table("columns", 2 * M, lambda n: ",".join(f"c{i}" for i in range(n)) + "\n"),
    _table("columns of one name", 2 * M, lambda n: "time," + "load_mw," * n + "\n"),
    _table("an open quote", 20 * M, lambda n: SERIES + '"' + "\n" * n, readable=True),
    _table("an open quote over rows", 20 * M, lambda n: SERIES + '2023-01-02T00:00Z,"7\n' + "x,7\n" * (n // 4)),
    _table("blank lines", 20 * M, lambda n: SERIES + "\n" * n, readable=True),
    _table("digits", 900_000, lambda n: SERIES + f"2023-01-02T00:00Z,{'1' * n}\n"),
    _table("a long stamp", 900_000, lambda n: SERIES + f"{'2' * n},1\n"),
    _official(
        "elexon_mid",
        "records of other names",
        100_000,
        lambda n: json.dumps([{f"a{i}": 1} for i in range(n)]),
        "a.json",
    ),
    _official("elexon_mid", "nested lists", 2 * M, lambda n: "[" * n, "a.json"),
    _official("elexon_mid", "digits", M, lambda n: "1" * n, "a.json"),
    _official("neso", "days of an age", 1, lambda n: NESO + "2200-01-01,1,30000\n", "a.csv"),
    _official("neso", "a long period", 900_000, lambda n: NESO + f"2023-01-01,{'1' * n},30000\n", "a.csv"),
    _official("google", "nested objects", 200_000, lambda n: '{"a":' * n + "1" + "}" * n, "instance_usage.json"),
    _npz("a header of 8 TB", 1, lambda n: archive(("a.npy", npy((1_000_000, 1_000_000))))),
    _npz("a shape beyond integers", 1, lambda n: archive(("a.npy", npy((2**62, 2**62))))),
    _npz("a negative shape", 1, lambda n: archive(("a.npy", npy((-1, -8), content=bytes(64))))),
    _npz("strings of 1 GB", 1, lambda n: archive(("a.npy", npy((1,), "<U268435455")))),
    _npz("a shape of text", 1, lambda n: archive(("a.npy", npy(("8",), content=bytes(64))))),  # type: ignore[arg-type]
    _npz("fewer bytes than stated", 1, lambda n: archive(("a.npy", npy((8,), content=bytes(56))))),
    _npz("more bytes than stated", 1, lambda n: archive(("a.npy", npy((8,), content=bytes(72))))),
    _npz("zeros that unpack to 1 GB", M, lambda n: archive(("a.npy", npy((n, 128), content=bytes(n * 1024)))), _zero),
    _npz("a pickle", 1, lambda n: archive(("a.npy", _pickled()))),
    _npz("a bare pickle", 1, lambda n: pickle.dumps({"a": 1})),
    _npz("an entry that is no array", 1, lambda n: archive(("a.npy", b"text"))),
    _npz("one name twice", 1, lambda n: archive(("a.npy", npy((0,))), ("a.npy", npy((0,))))),
    _npz("a header without end", 1, lambda n: archive(("a.npy", b"\x93NUMPY\x01\x00\xff\xff{"))),
    _npz(
        "a header of brackets",
        60_000,
        lambda n: archive(("a.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", n) + b"(" * n)),
    ),
    _npz("an encrypted entry", 1, lambda n: _flagged(archive(("a.npy", npy((0,)))))),
    _npz("a flipped bit", 1, lambda n: _flipped(archive(("a.npy", npy((64,), content=bytes(range(256)) * 2))))),
    _toml("nested lists", 900_000, lambda n: "a = " + "[" * n),
    _toml("a dotted name", 5_000, lambda n: ".".join("a" * n) + "= = 1"),
    _toml("more than the limit", 1, lambda n: "#" * 2 * M),
)


def _flagged(content: bytes) -> bytes:
    """The archive with the flag of an encrypted entry in both of its headers."""
    local, central = content.index(b"PK\x03\x04") + 6, content.index(b"PK\x01\x02") + 8
    changed = bytearray(content)
    changed[local] |= 1
    changed[central] |= 1
    return bytes(changed)


def _flipped(content: bytes) -> bytes:
    """The archive with one bit of its content changed."""
    changed = bytearray(content)
    changed[len(content) // 2] ^= 16
    return bytes(changed)


# ---- command


@contextmanager
def _limit(seconds: int) -> Iterator[None]:
    def ring(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def run(inputs: Sequence[Input]) -> Iterator[tuple[str, ...]]:
    """One row for each input, in full size."""
    for item in inputs:
        with tempfile.TemporaryDirectory() as folder:
            call = item.make(Path(folder), item.full)
            size = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file()) / 1e6
            with _limit(LIMIT_S):
                outcome = try_out(call, item.right)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
        message = excerpt(" ".join(outcome.message.replace(folder, "...").split()), 160)
        yield item.reader, item.name, f"{size:.3g}", f"{outcome.seconds:.2f}", f"{peak:.0f}", outcome.what, message


def main(argv: Sequence[str] | None = None) -> int:
    """Print the rows and the counts; 1 when a row is bad."""
    parser = argparse.ArgumentParser(prog="python -m tools.hostile", description=__doc__)
    parser.add_argument("--out", type=Path, help="write the rows to this TSV file as well")
    parser.add_argument("--only", default="", help="inputs whose reader or name holds this text")
    options = parser.parse_args(argv)
    chosen = [item for item in INPUTS if options.only.lower() in f"{item.reader} {item.name}".lower()]
    rows = []
    for row in run(chosen):
        print("\t".join(row), flush=True)
        rows.append(row)
    counts = {what: sum(row[5] == what for row in rows) for what in (READ, REFUSED, *BAD)}
    summary = f"{len(rows)} inputs: " + ", ".join(f"{number} {what}" for what, number in counts.items())
    print(summary)
    if options.out:
        lines = ["\t".join(row) for row in (COLUMNS, *rows)]
        options.out.write_text("\n".join([f"# {summary}", *lines]) + "\n", encoding="utf-8")
    return int(any(counts[what] for what in BAD))


if __name__ == "__main__":
    sys.exit(main())
