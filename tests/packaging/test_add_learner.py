"""The page on learners carried out from outside the package: its files in a folder, the wheel installed."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "howto" / "add_learner.md").read_text(encoding="utf-8")
MODULE, SCRIPT = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
COMMAND, SCORE = (line for line in PAGE.splitlines() if line.startswith("powerzoo-jax "))


def test_a_learner_of_ones_own_trains_and_is_scored_from_outside_the_package(run, tmp_path):
    (tmp_path / "hill.py").write_text(MODULE, encoding="utf-8")
    few = SCRIPT.replace("updates=200", "updates=20")
    (tmp_path / "script.py").write_text(few, encoding="utf-8")
    earned, _ = run(sys.executable, "script.py").split()
    assert float(earned) > -1  # idle play earns nothing, random play loses 13 $ a day
    short = COMMAND.replace("updates=200", "updates=3").split()[1:]
    run(sys.executable, "-m", "powerzoo_jax", *short)
    assert "hill" in run(sys.executable, "-m", "powerzoo_jax", *SCORE.split()[1:])
