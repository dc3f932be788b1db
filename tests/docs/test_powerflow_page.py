"""What the page on power flow says to type runs, and the functions that it names exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from powerzoo_jax import powerflow

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "powerflow.md").read_text(encoding="utf-8")


def test_the_example_solves_every_lane(tmp_path):
    (body,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", body],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    share, v_min, loss_mw = map(float, done.stdout.split("\n")[0].split())
    assert share == 1.0
    assert 0.9 < v_min < 0.95 and 120 < loss_mw < 150  # nominal: 0.943 pu and 132.86 MW


def test_every_function_of_the_page_exists():
    named = set(re.findall(r"`((?:prepare|solve|check|with)_\w+)", PAGE))
    assert len(named) > 8
    assert [name for name in sorted(named) if not hasattr(powerflow, name)] == []
