"""What recorders of one file share: print what would change, and replace the committed file when asked."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from powerzoo_jax.base.npz import write_npz
from powerzoo_jax.cases import Case
from powerzoo_jax.cases.library import load_case
from tools.builder import compare_npz

Arrays = dict[str, np.ndarray]


def keep(doc: str | None, folder: Path, readme: str, record: Callable[[], Arrays], **values: Any) -> None:
    """Compare what `record` returns with `expected.npz` in a folder; with --write replace it and the README.

    doc:     text of the recorder's module, shown by --help
    readme:  template of `values`, to which the version of pandapower is added
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="replace the committed file")
    args = parser.parse_args()
    arrays = record()
    print("\n".join(compare_npz(folder / "expected.npz", arrays) or ["unchanged"]))
    if args.write:
        folder.mkdir(parents=True, exist_ok=True)
        write_npz(folder / "expected.npz", arrays)
        (folder / "README.md").write_text(readme.format(version=metadata.version("pandapower"), **values))


def by_case(names: Iterable[str], record: Callable[[Case], Arrays]) -> Arrays:
    """What `record` returns for each case, keyed `<case>.<key>`."""
    cases = map(load_case, names)
    return {f"{case.name}.{key}": x for case in cases for key, x in record(case).items()}
