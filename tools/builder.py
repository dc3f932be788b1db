"""Shared parts of the developers' builders of committed folders: compare, or write when asked to."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from powerzoo_jax.base.npz import compare_npz, write_npz

NOTE = "PROVENANCE.md"

Built = Mapping[str, Mapping[str, np.ndarray]]


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
