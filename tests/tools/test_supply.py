"""Hashes of what is installed, the bill of materials, bounds of versions and the job of the public CI."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from tools import sbom

ROOT = Path(__file__).parents[2]
TEXT = sbom.HASHED.read_text(encoding="utf-8")
PINS = sbom.read_pins((ROOT / "constraints.txt").read_text(encoding="utf-8"))
# requirement with an upper bound -> the test that breaks beyond it
PROVEN_BREAKS: dict[str, str] = {}


def test_every_requirement_has_the_pin_of_the_constraints_and_a_hash():
    pins, digests = sbom.read_pins(TEXT), sbom.read_hashes(TEXT)
    assert pins and pins.items() <= PINS.items()
    assert pins.keys() == digests.keys()
    assert all(found and len(set(found)) == len(found) for found in digests.values())


def test_everything_that_an_installation_needs_is_hashed():
    assert sbom.installed(sbom.needed()).keys() <= sbom.read_pins(TEXT).keys()


def test_the_hashed_file_holds_no_address_and_no_option_of_an_index():
    lines = [line.rstrip(" \\") for line in TEXT.splitlines() if not line.startswith("#")]
    assert [
        line for line in lines if not re.fullmatch(r"[a-z0-9-]+==[\w.!+]+| {4}--hash=sha256:[0-9a-f]{64}", line)
    ] == []
    assert "://" not in TEXT


@pytest.mark.parametrize("digest", ["0" * 63, "0" * 65, "g" * 64])
def test_a_hash_of_another_length_is_none(digest):
    assert sbom.read_hashes(f"jax==1.0 \\\n    --hash=sha256:{digest}\n") == {"jax": []}


def test_the_bill_of_materials_names_every_library_and_every_bundled_file():
    bill = sbom.build()
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    parts = {part["name"]: part for part in bill["components"]}
    for name in ("jax", "jaxlib", "numpy", "scipy", "flax", "optax", "orbax-checkpoint", "gymnasium"):
        assert parts[name]["version"] == PINS[name]
        assert {row["value"] for row in parts[name]["properties"]} == set(sbom.read_hashes(TEXT)[name])
    tables = {p.relative_to(ROOT).as_posix() for p in (ROOT / "powerzoo_jax").rglob("*.npz")}
    assert tables == {name for name, part in parts.items() if part["type"] == "data"}
    assert all(parts[name]["licenses"][0]["license"]["name"] for name in tables)
    text = json.dumps(bill)
    assert "://" not in text and text == json.dumps(sbom.build())
    references = {part["bom-ref"] for part in bill["components"]} | {bill["metadata"]["component"]["bom-ref"]}
    assert len(references) == len(bill["components"]) + 1
    assert all({row["ref"], *row["dependsOn"]} <= references for row in bill["dependencies"])


def test_an_upper_bound_names_the_test_that_breaks_beyond_it():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    bounded = {
        line
        for line in (line for group in groups for line in group)
        if any(spec.operator in ("<", "<=", "!=", "~=") for spec in Requirement(line).specifier)
    }
    assert bounded == PROVEN_BREAKS.keys()


def test_the_job_of_the_public_ci_runs_the_targets_on_every_python():
    text = (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    jobs = yaml.safe_load(text)["jobs"]
    matrix = jobs["test"]["strategy"]["matrix"]
    assert matrix == {"python": ["3.11", "3.12", "3.13"], "target": ["test", "test-all"]}
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    named = {match for command in commands for match in re.findall(r"^make ([a-z-]+)", command)}
    named |= {target for job in jobs.values() for target in job.get("strategy", {}).get("matrix", {}).get("target", ())}
    assert named <= targets
    local = set(re.findall(r"^make ([a-z-]+)", (ROOT / ".ci/run").read_text(encoding="utf-8"), re.MULTILINE))
    assert local and local <= named  # nothing that a change must pass is left to one's own machine
    newest = [step for step in jobs["newest-jax"]["steps"] if step.get("continue-on-error")]
    assert [step["id"] for step in newest] == ["newest"] and "GITHUB_STEP_SUMMARY" in text
