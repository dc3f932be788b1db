"""The page on devices carried out from outside the package: its files in a folder, the wheel installed."""

from __future__ import annotations

import re
import sys
from ast import literal_eval
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "howto" / "add_device.md").read_text(encoding="utf-8")
DEVICE, USE = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
LATE = """
import powerzoo_jax as pz
pz.make("battery_arbitrage")
import electrolyser
"""


@pytest.fixture
def printed(run, tmp_path) -> list[str]:
    """What the last block of the page prints beside the file of the new kind."""
    (tmp_path / "electrolyser.py").write_text(DEVICE, encoding="utf-8")
    (tmp_path / "use.py").write_text(USE, encoding="utf-8")
    printed: list[str] = run(sys.executable, "use.py").splitlines()
    return printed


def test_the_new_kind_follows_its_command_within_its_ramp_and_shows_its_fields(printed):
    dt_hours, powers, left = literal_eval("(" + printed[0].replace("] [", "], [").replace(" [", ", [", 1) + ")")
    ramp, rating = 0.2, 0.3
    assert powers == pytest.approx([-min(rating, ramp * dt_hours * k) for k in range(1, 5)], rel=1e-5)
    assert left == pytest.approx([0.0] * 4, abs=1e-4)
    name = "electrolyser_0"
    own = [f"{name}/{field}" for field in ("ramp_norm", "time_cos", "time_sin")]
    assert literal_eval(printed[1]) == [f"{name}_p_norm", *own]


def test_a_kind_that_comes_too_late_says_so(run, tmp_path):
    (tmp_path / "electrolyser.py").write_text(DEVICE, encoding="utf-8")
    with pytest.raises(AssertionError, match="right after the import of powerzoo_jax"):
        run(sys.executable, "-c", LATE)
