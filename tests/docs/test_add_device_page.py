"""The page on adding a device, done as it says in a copy of the package: one file, one line, and a task plays it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from ast import literal_eval
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "howto" / "add_device.md").read_text(encoding="utf-8")
LINE = re.compile(r"^```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def printed(tmp_path_factory, snippets_of) -> list[str]:
    """What the last block of the page prints in a copy of the package with the new kind."""
    base = tmp_path_factory.mktemp("added")
    package = base / "powerzoo_jax"
    package.mkdir()
    for path in (ROOT / "powerzoo_jax").iterdir():
        if path.name != "devices":
            (package / path.name).symlink_to(path)
    shutil.copytree(ROOT / "powerzoo_jax" / "devices", package / "devices")
    device, use = snippets_of(PAGE)
    (package / "devices" / "electrolyser.py").write_text(device, encoding="utf-8")
    registry = package / "devices" / "registry.py"
    text = registry.read_text(encoding="utf-8")
    for old, new in (
        ("        datacenter.KIND,\n", "        datacenter.KIND,\n" + LINE.findall(PAGE)[0]),
        ("import datacenter, ", "import datacenter, electrolyser, "),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    registry.write_text(text, encoding="utf-8")
    env = {**os.environ, "PYTHONPATH": str(base)}
    done = subprocess.run([sys.executable, "-c", use], cwd=base, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_new_kind_follows_its_command_within_its_ramp_and_pays_its_energy(printed):
    dt_hours, powers, left = literal_eval("(" + printed[0].replace("] [", "], [").replace(" [", ", [", 1) + ")")
    ramp, rating = 0.2, 0.3
    assert powers == pytest.approx([-min(rating, ramp * dt_hours * k) for k in range(1, 5)], rel=1e-5)
    assert left == pytest.approx([0.0] * 4, abs=1e-4)


def test_the_new_kind_shows_the_fields_that_it_declares(printed):
    name = "electrolyser_0"
    own = [f"{name}/{field}" for field in ("ramp_norm", "time_cos", "time_sin")]
    assert literal_eval(printed[1]) == [f"{name}_p_norm", *own]
