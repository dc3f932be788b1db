"""The snippets of docs/commitment.md run and show what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "commitment.md").read_text(encoding="utf-8")
SECURE, RULES = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def ran(body: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(body, names)
    return names


def test_the_secure_dispatch_overloads_nothing():
    result = ran(SECURE)["result"]
    assert int(result.status) == 0
    assert float(result.worst_overload_mw) < 1e-2  # 1e-4 pu: the demand in float32


def test_the_rules_give_the_window_of_who_stays_and_of_who_stops():
    names = ran(RULES)
    assert names["on"].tolist() == [True, False] and not names["overridden"].any()
    assert names["low"].tolist() == [30, 0] and names["high"].tolist() == [90, 0]
