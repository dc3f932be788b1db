"""Software bill of materials: what an installation consists of, as CycloneDX 1.5 JSON without any address.

`python -m tools.sbom` prints it, `--out FILE` writes it: the package, every distribution that it needs, in the version
installed here and with the licence its metadata state, and every bundled table and series with its SHA-256 and the
licence of its provenance record. Two runs in one environment give the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import tomllib
import uuid
from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "powerzoo_jax"
HASHED = ROOT / "requirements-hashed.txt"
BUILD = ("hatchling", "editables")  # what `--no-build-isolation -e .` finds in the environment
NAME = re.compile(r"^([A-Za-z0-9._-]+)==([^\s\\;]+)", re.MULTILINE)
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})(?![0-9a-f])")
OWN = "powerzoo-jax"
CLASSIFIER = "License :: OSI Approved :: "
LONGEST_NAME = 100  # characters; some metadata hold the whole text of a licence where its name belongs
# folder of data -> column of its provenance table that names a licence, counted from 0
DATA = {"data/bundled": 3, "cases/tables": 5, "cases/tables/feeders": 5}

Component = dict[str, Any]


def canonical(name: str) -> str:
    """Name of a distribution in the form that indices compare."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_pins(text: str) -> dict[str, str]:
    """Version of every distribution that a file of requirements pins."""
    return {canonical(name): version for name, version in NAME.findall(text)}


def read_hashes(text: str) -> dict[str, list[str]]:
    """SHA-256 of every distribution of a hashed file."""
    blocks = re.split(r"^(?=\S)", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE), flags=re.MULTILINE)
    return {canonical(found[1]): HASH.findall(block) for block in blocks if (found := NAME.match(block))}


def needed() -> tuple[str, ...]:
    """Requirements of the package itself and of its build, without extras."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    return (*project["dependencies"], *BUILD)


def installed(names: Sequence[str]) -> dict[str, tuple[Distribution, tuple[str, ...]]]:
    """Distributions that these requirements need in this environment, and what each of them needs."""
    found: dict[str, tuple[Distribution, tuple[str, ...]]] = {}
    queue = [Requirement(name) for name in names]
    while queue:
        wanted = queue.pop()
        name = canonical(wanted.name)
        if name in found:
            continue
        try:
            dist = distribution(name)
        except PackageNotFoundError as err:
            raise SystemExit(f"{name} is not installed here. Make the environment: `make lint`.") from err
        extras = {"", *wanted.extras}
        below = [Requirement(line) for line in dist.requires or ()]
        used = [r for r in below if r.marker is None or any(r.marker.evaluate({"extra": extra}) for extra in extras)]
        found[name] = (dist, tuple(sorted({canonical(r.name) for r in used})))
        queue += used
    return found


def licence(dist: Distribution) -> str:
    """Licence of a distribution as its metadata state it, "" where they do not."""
    meta = dist.metadata
    stated = next((text for key in ("License-Expression", "License") for text in meta.get_all(key) or ()), "")
    if stated and len(stated) <= LONGEST_NAME and "\n" not in stated:
        return stated
    classified = [c.removeprefix(CLASSIFIER) for c in meta.get_all("Classifier") or () if c.startswith(CLASSIFIER)]
    return " AND ".join(classified)


def libraries() -> Iterator[tuple[Component, tuple[str, ...]]]:
    """Components of the distributions, and what each of them needs."""
    hashed = read_hashes(HASHED.read_text(encoding="utf-8"))
    for name, (dist, below) in sorted(installed(needed()).items()):
        component = _component("library", name, dist.version, licence(dist))
        component |= {"purl": f"pkg:pypi/{name}@{dist.version}"}
        component |= {"properties": [{"name": "file:sha256", "value": digest} for digest in hashed.get(name, ())]}
        yield component, below


def data() -> Iterator[Component]:
    """Components of the bundled files."""
    for folder, column in DATA.items():
        licences = provenance((PACKAGE / folder / "PROVENANCE.md").read_text(encoding="utf-8"), column)
        for path in sorted((PACKAGE / folder).glob("*.npz")):
            where = path.relative_to(ROOT).as_posix()
            component = _component("data", where, "", licences[path.name])
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            yield component | {"hashes": [{"alg": "SHA-256", "content": digest}]}


def provenance(text: str, column: int) -> dict[str, str]:
    """Licence of every file that a provenance record names, from a column of its table."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    return {row[0].strip("`"): _plain(row[column]) for row in rows if row[0].endswith(".npz`")}


def _plain(cell: str) -> str:
    return re.sub(r"\s+", " ", cell.replace("`", ""))


def _component(kind: str, name: str, version: str, terms: str) -> Component:
    component: Component = {"type": kind, "bom-ref": f"{name}@{version}" if version else name, "name": name}
    component |= {"version": version} if version else {}
    return component | ({"licenses": [{"license": {"name": terms}}]} if terms else {})


def build() -> dict[str, Any]:
    """The whole document."""
    own = distribution(OWN)
    root = _component("library", OWN, own.version, licence(own))
    found = list(libraries())
    names = {component["name"]: component["bom-ref"] for component, _ in found}
    files = list(data())
    links = [{"ref": c["bom-ref"], "dependsOn": [names[n] for n in below if n in names]} for c, below in found]
    direct = sorted(names[canonical(Requirement(line).name)] for line in needed())
    links.insert(0, {"ref": root["bom-ref"], "dependsOn": [*direct, *(f["bom-ref"] for f in files)]})
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": root},
        "components": [component for component, _ in found] + files,
        "dependencies": links,
    }
    content = json.dumps(document, sort_keys=True)
    return {**document, "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, content)}"}


def main(argv: Sequence[str] | None = None) -> int:
    """Print or write the document."""
    parser = argparse.ArgumentParser(prog="python -m tools.sbom", description=__doc__)
    parser.add_argument("--out", type=Path, help="write to this file instead of printing")
    options = parser.parse_args(argv)
    text = json.dumps(build(), indent=1, sort_keys=True) + "\n"
    if options.out:
        options.out.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
