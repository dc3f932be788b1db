"""Shared parts of the developers' builders of committed folders: compare, or write when asked to."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from powerzoo_jax.base.npz import read_npz, write_npz

NOTE = "PROVENANCE.md"

Built = Mapping[str, Mapping[str, np.ndarray]]


def compare_npz(path: str | Path, arrays: Mapping[str, np.ndarray]) -> list[str]:
    """List the differences between a committed npz and fresh arrays: name, dtype, shape, bytes.

    The decoded content is compared, since deflate output depends on the zlib build. Empty = equal.
    """
    target = Path(path)
    if not target.is_file():
        return [f"{target.name}: not committed"]
    old = read_npz(target)
    lines = [f"{target.name}: {name} is committed and no longer built" for name in sorted(old.keys() - arrays.keys())]
    lines += [f"{target.name}: {name} is built and not committed" for name in sorted(arrays.keys() - old.keys())]
    for name in sorted(old.keys() & arrays.keys()):
        difference = _difference(old[name], np.asarray(arrays[name]))
        if difference:
            lines.append(f"{target.name}: {name} {difference}")
    return lines


def _difference(old: np.ndarray, new: np.ndarray) -> str:
    if old.dtype != new.dtype:
        return f"has dtype {old.dtype} in the file and {new.dtype} when built"
    if old.shape != new.shape:
        return f"has shape {old.shape} in the file and {new.shape} when built"
    if old.tobytes() == new.tobytes():
        return ""
    equal = (old == new) | ((old != old) & (new != new))
    # equal values with other bytes are signed zeros or NaN payloads: still a difference to report
    where = np.flatnonzero(~equal)
    if where.size == 0:
        return "differs in its bytes only (signed zeros or NaN payloads)"
    first = int(where[0])
    return f"differs in {where.size} of {old.size} values, first {old.flat[first]!r} -> {new.flat[first]!r}"


def differences(folder: Path, built: Built, provenance: str) -> list[str]:
    """Differences between a committed folder and freshly built archives; empty = none."""
    lines = [line for name, arrays in built.items() for line in compare_npz(folder / f"{name}.npz", arrays)]
    stray = sorted(p.name for p in folder.glob("*.npz") if p.stem not in built)
    lines += [f"{name}: committed, but no builder makes it" for name in stray]
    note = folder / NOTE
    if not note.is_file() or note.read_text(encoding="utf-8") != provenance:
        lines.append(f"{folder.name}/{NOTE}: differs")
    return lines


def run_builder(
    what: str, folder: Path, build: Callable[[Path], Built], provenance: str, argv: Sequence[str] | None = None
) -> int:
    """Compare (default) or write a folder of archives; 1 when the committed ones differ.

    what:   name of its content, for messages
    build:  cache folder of the pinned artefacts -> archives by name
    """
    parser = argparse.ArgumentParser(description=f"Rebuild the committed {what} and compare.")
    parser.add_argument("--write", action="store_true", help=f"overwrite the committed {what}")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "powerzoo_jax" / "pins")
    options = parser.parse_args(argv)
    built = build(options.cache)
    lines = differences(folder, built, provenance)
    print("\n".join(lines) or f"{len(built)} {what} as committed")
    if not options.write:
        return int(bool(lines))
    for name, arrays in built.items():
        # an unchanged archive keeps its bytes, whatever zlib this machine has
        if compare_npz(folder / f"{name}.npz", arrays):
            write_npz(folder / f"{name}.npz", arrays)
    (folder / NOTE).write_text(provenance, encoding="utf-8")
    return 0


def run_page(render: Callable[[], str], page: Path, command: str, argv: Sequence[str] | None = None) -> int:
    """Compare (default) or write a generated page of the documentation; 1 when the committed one differs.

    render:   makes the text
    command:  what writes the page, for the message
    """
    parser = argparse.ArgumentParser(description=f"Make {page} again and compare.")
    parser.add_argument("file", nargs="?", type=Path, default=page)
    parser.add_argument("--write", action="store_true", help="overwrite the page")
    options = parser.parse_args(argv)
    text = render()
    if options.write:
        options.file.parent.mkdir(parents=True, exist_ok=True)
        options.file.write_text(text, encoding="utf-8")
    same = options.file.is_file() and options.file.read_text(encoding="utf-8") == text
    print(f"{options.file}: {'up to date' if same else f'differs; run {command}'}")
    return 0 if same else 1
