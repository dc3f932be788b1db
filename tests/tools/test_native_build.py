"""Set-up of the compiled kernel: a failure is one line, never a failed target; what it is built from is pinned."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
from importlib import metadata, util
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import Specifier
from packaging.version import Version

ROOT = Path(__file__).parents[2]
NATIVE = tomllib.loads((ROOT / "native/pyproject.toml").read_text(encoding="utf-8"))
MAIN = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LINE = "compiled kernel not built, the JAX form is used: see {}\n"


def call(*command: str | Path, **changes: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PIP_NO_INDEX": "1", **changes}
    return subprocess.run([str(part) for part in command], cwd=ROOT, env=env, capture_output=True, text=True)


def bounds(lines: list[str], name: str) -> list[Specifier]:
    return [spec for found in map(Requirement, lines) if found.name == name for spec in found.specifier]


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> Path:
    """Environment that sees all of this one and takes what is installed or removed."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=False, symlinks=True)
    site = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (site / "parent.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return folder


@pytest.mark.full
def test_a_failing_compiler_is_one_line_and_no_failed_target(environment, tmp_path):
    stamp, log = tmp_path / ".native", tmp_path / "native.log"
    command = (environment / "bin/python", "-m", "tools.native_build", "--stamp", stamp, "--log", log)
    done = call(*command, CXX="/bin/false")
    assert (done.returncode, done.stdout) == (0, LINE.format(log)), done.stderr
    text = log.read_text(encoding="utf-8")
    assert "/bin/false" in text or "scikit-build-core" in text  # the compiler, or the back end where that is absent
    assert not stamp.exists()  # so that the next call tries again


def test_a_log_that_cannot_be_written_is_that_line_too(tmp_path):
    (tmp_path / "file").touch()
    done = call(sys.executable, "-m", "tools.native_build", "--log", tmp_path / "file/native.log")
    assert (done.returncode, done.stdout) == (0, LINE.format(tmp_path / "file/native.log")), done.stderr


@pytest.mark.parametrize("target", ["demo", "test", "test-all", "test-long", "soak-quick"])
def test_what_runs_environments_builds_the_kernel_first_and_an_environment_never_does(target, tmp_path):
    assert f"tools.native_build --stamp {tmp_path}/.native" in call("make", "-n", target, f"VENV={tmp_path}").stdout
    assert "native_build" not in call("make", "-n", f"{tmp_path}/.stamp", f"VENV={tmp_path}").stdout


def test_the_headers_are_those_of_the_oldest_supported_jaxlib():
    (pin,) = bounds(NATIVE["build-system"]["requires"], "jaxlib")
    (oldest,) = bounds(MAIN["project"]["dependencies"], "jax")
    assert (pin.operator, oldest.operator) == ("==", ">=")
    assert Version(pin.version) == Version(oldest.version)


def test_the_kernel_has_the_licence_and_the_pythons_of_the_package():
    assert (ROOT / "native/LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    for key in ("license", "requires-python", "authors"):
        assert NATIVE["project"][key] == MAIN["project"][key]


def test_the_installed_kernel_is_that_of_these_sources():
    if util.find_spec("powerzoo_jax_native") is None:
        assert os.environ.get("POWERZOO_JAX_NATIVE") != "require"
        return
    text = (ROOT / "native/powerzoo_jax_native/__init__.py").read_text(encoding="utf-8")
    assert metadata.version("powerzoo-jax-native") == re.search(r'__version__ = "(.+)"', text)[1]
    files = {path.as_posix() for path in metadata.files("powerzoo-jax-native") or () if path.suffix != ".pyc"}
    inside = {name.partition("/")[2] for name in files if name.startswith("powerzoo_jax_native/")}
    assert inside == {"__init__.py", "kernel.so"}
