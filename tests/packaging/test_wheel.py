"""The wheel that users get: its content, and its use from a folder that holds nothing else."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tools.sbom import DATA, provenance

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = (".npz", ".toml", ".md", ".html", ".typed")

STEP = """
import json
import jax, jax.numpy as jnp
import powerzoo_jax
sim = powerzoo_jax.make("battery_arbitrage", split="test")
state, obs = jax.jit(sim.init)(jax.random.key(0))
out = jax.jit(sim.step)(state, jnp.ones((1, 1)))
print(json.dumps({
    "file": powerzoo_jax.__file__,
    "finite": bool(jnp.isfinite(out.reward).all()),
    "moved": float(jnp.max(jnp.abs(out.obs - obs))),
}))
"""


ZOO = """
import json
import jax, numpy as np
import powerzoo_jax
from powerzoo_jax.rl.zoo import find_policy
sim = powerzoo_jax.make("dc_microgrid")
act, (low, high) = powerzoo_jax.load_policy("dc_microgrid", sim), sim.spaces()[0]
first, other = (np.asarray(act((), obs, jax.random.key(0))[1]) for obs in (low, high))
print(json.dumps({
    "file": str(find_policy("dc_microgrid")),
    "inside": bool((np.abs([first, other]) <= 1).all()),
    "differs": float(np.max(np.abs(first - other))),
}))
"""


def test_the_wheel_holds_every_table_series_and_licence(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    tree = [p for p in (ROOT / "powerzoo_jax").rglob("*") if p.suffix in SHIPPED or p.name == "py.typed"]
    missing = [str(p.relative_to(ROOT)) for p in tree if str(p.relative_to(ROOT)) not in names]
    assert tree and missing == []
    configs = [p.relative_to(ROOT) for p in (ROOT / "configs").rglob("*") if p.is_file()]
    assert {f"powerzoo_jax/{p.as_posix()}" for p in configs} <= names
    assert [p for p in configs if p.parts[1] == "zoo" and p.suffix == ".npz"]
    assert any(n.endswith("licenses/LICENSE") for n in names)
    assert {"powerzoo_jax/py.typed", "powerzoo/py.typed", "powerzoo_compat/py.typed"} <= names


def test_the_wheel_holds_these_packages_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    tops = {n.split("/")[0] for n in names if ".dist-info/" not in n}
    assert tops == {"powerzoo_jax", "powerzoo", "powerzoo_compat"}


def test_the_description_has_no_link_to_a_file_that_an_index_lacks(wheel):
    (name,) = [n for n in zipfile.ZipFile(wheel).namelist() if n.endswith(".dist-info/METADATA")]
    text = zipfile.ZipFile(wheel).read(name).decode()
    assert "## Install" in text and 'pz.make("battery_arbitrage", split="train")' in text
    targets = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL))
    assert [target for target in targets if "://" not in target and not target.startswith("#")] == []


def test_the_installed_package_steps_a_task_from_an_empty_folder(run, installed):
    report = json.loads(run(sys.executable, "-c", STEP).splitlines()[-1])
    assert Path(report["file"]).is_relative_to(installed)
    assert report["finite"] and report["moved"] > 0


def test_the_installed_zoo_plays(run, installed):
    report = json.loads(run(sys.executable, "-c", ZOO).splitlines()[-1])
    assert Path(report["file"]).is_relative_to(installed)
    assert report["inside"] and report["differs"] > 0


def test_the_installed_drop_in_imports(run, installed):
    found = run(sys.executable, "-c", "import powerzoo; print(powerzoo.__file__)").strip()
    assert Path(found).is_relative_to(installed)


def test_the_installed_command_passes_its_self_test(run, installed):
    out = run(sys.executable, str(installed / "bin" / "powerzoo-jax"), "selftest")
    assert "202.677" in out and "all checks passed" in out


# ---- licences and bytes


def build(kind: str, root: Path, folder: Path, **changes: str) -> Path:
    """Build a wheel or an sdist of a copy of the sources."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
    subprocess.run(command, check=True, cwd=root, env={**os.environ, **changes}, capture_output=True)
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="session")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources in another folder, with other times and other modes than the checkout."""
    target = tmp_path_factory.mktemp("copy") / "elsewhere"
    target.mkdir()
    for name in ("powerzoo_jax", "compat", "configs"):
        shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "CHANGELOG.md", ".gitignore"):
        shutil.copyfile(ROOT / name, target / name)
    for path in target.rglob("*"):
        os.chmod(path, 0o700 if path.is_dir() else 0o600)
        os.utime(path, (1e9, 1e9))
    return target


def test_the_same_sources_give_the_same_wheel_byte_by_byte(wheel, copy, tmp_path):
    again = build("wheel", copy, tmp_path, TZ="Asia/Tokyo", PYTHONHASHSEED="7")
    assert again.name == wheel.name
    assert again.read_bytes() == wheel.read_bytes()


def test_the_time_of_a_source_release_reaches_every_entry_of_the_wheel(copy, tmp_path):
    built = build("wheel", copy, tmp_path, SOURCE_DATE_EPOCH="1700000000")
    assert {entry.date_time for entry in zipfile.ZipFile(built).infolist()} == {(2023, 11, 14, 22, 13, 20)}


def test_the_sdist_holds_these_folders_and_files_of_the_root_and_nothing_else(tmp_path):
    with tarfile.open(build("sdist", ROOT, tmp_path)) as archive:
        tops = {name.split("/")[1] for name in archive.getnames()}
    files = {"hatch_build.py", "README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml", "PKG-INFO", ".gitignore"}
    assert tops == {"powerzoo_jax", "compat", "configs"} | files


@pytest.fixture(scope="session", params=["wheel", "sdist"])
def shipped(request, wheel, copy, tmp_path_factory) -> dict[str, bytes]:
    """Files of the wheel or the sdist by their path from the folder of the package."""
    if request.param == "wheel":
        archive = zipfile.ZipFile(wheel)
        files = {name: archive.read(name) for name in archive.namelist()}
    else:
        with tarfile.open(build("sdist", copy, tmp_path_factory.mktemp("sdist"))) as archive:
            members = [member for member in archive.getmembers() if member.isfile()]
            files = {member.name.partition("/")[2]: archive.extractfile(member).read() for member in members}
    return files


def test_the_licence_of_every_bundled_file_is_shipped_beside_it(shipped):
    notices = shipped["powerzoo_jax/DATA_LICENSES.md"].decode()
    assert any(name.endswith("LICENSE") and b"MIT License" in content for name, content in shipped.items())
    # policies are the package's own work; the hashes on their cards name the series behind them
    bundled = [name for name in shipped if name.endswith(".npz") and "configs/zoo/" not in name]
    assert len(bundled) == len(list((ROOT / "powerzoo_jax").rglob("*.npz"))) > 30
    for name in bundled:
        folder, _, file = name.rpartition("/")
        terms = provenance(shipped[f"{folder}/PROVENANCE.md"].decode(), DATA[folder.removeprefix("powerzoo_jax/")])
        assert terms[file], name
        # series have a notice each; the tables of a folder have one together, and theirs where the terms differ
        assert (file if "bundled" in folder else f"{folder.removeprefix('powerzoo_jax/')}/`") in notices, name


def test_the_attributions_that_licences_ask_for_are_in_the_notices(shipped):
    notices = " ".join(shipped["powerzoo_jax/DATA_LICENSES.md"].decode().split())
    for words in (
        "Bundesnetzagentur | SMARD.de",
        "Contains BMRS data © Elexon Limited copyright and database right",
        "Licence Ouverte 2.0",
        "Open Database License (ODbL) 1.0",
        "itself offered under the ODbL 1.0",
        "creativecommons.org/licenses/by/4.0",
        "NREL TMY3",
        "DOE/NREL/ALLIANCE",
        "BSD 3-Clause License",
        "with permission of R. Korab",
        "Electric Power Research Institute",
    ):
        assert words in notices
