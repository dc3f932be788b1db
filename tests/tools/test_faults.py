"""The list of seeded faults stays true of the sources, and the command that runs it tells who notices what."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tools import faults

ROOT = Path(__file__).parents[2]
LISTED = faults.read_faults()


def test_every_fault_still_applies():
    for fault in LISTED:
        text = faults.apply(fault, ROOT)
        assert text != (ROOT / fault.file).read_text(encoding="utf-8"), fault.name
        ast.parse(text)  # every test would notice a typing error


def collected(tests: set[str], tier: str) -> set[str]:
    """Those of the tests, or of their parameters, that a choice of tiers runs."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", tier, *sorted(tests)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return {line for line in done.stdout.splitlines() if "::" in line}


@pytest.mark.full
def test_every_fault_names_tests_that_exist_in_its_tier():
    named = {test for fault in LISTED for test in fault.tests}
    quick, full = (collected(named, tier) for tier in ("not full and not long", "not long"))
    wrong = []
    for fault in LISTED:
        for node in fault.tests:
            if not any(node in (found, found.partition("[")[0]) for found in full):
                wrong.append(f"{fault.name}: {node} is long")
        found = any(node in (each, each.partition("[")[0]) for node in fault.tests for each in quick)
        if fault.tier != ("quick" if found else "full"):
            wrong.append(f"{fault.name}: it is listed as {fault.tier}")
    assert not wrong


def test_faults_are_of_every_kind_and_most_are_for_the_quick_tests():
    assert len(LISTED) >= 70
    assert sum(fault.tier == "quick" for fault in LISTED) > len(LISTED) / 2
    assert {fault.kind for fault in LISTED} == set(faults.KINDS)


def test_the_record_shows_every_fault_caught():
    rows = {row[0]: dict(zip(faults.COLUMNS, row, strict=True)) for row in faults.read_record()}
    for fault in LISTED:
        row = rows[fault.name]
        assert row["caught"] == "yes" and row["by"].partition("[")[0] in {t.partition("[")[0] for t in fault.tests}


@pytest.fixture
def checkout(tmp_path):
    """A checkout of one function and one test, which looks at half of it."""
    (tmp_path / "sums.py").write_text("def total(a, b):\n    return a + b\n\n\ndef rest(a, b):\n    return a - b\n")
    (tmp_path / "test_sums.py").write_text("from sums import total\n\ndef test_total():\n    assert total(2, 3) == 5\n")
    for words in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    return tmp_path


def seeded(old: str, new: str) -> faults.Fault:
    return faults.Fault(old, "sign", "quick", "sums.py", old, new, ("test_sums.py::test_total",))


@pytest.mark.full
def test_the_command_tells_a_fault_that_is_noticed_from_one_that_is_not(checkout):
    sound = (checkout / "sums.py").read_text()
    both = [seeded("a + b", "a - b"), seeded("a - b", "a + b")]
    rows = list(faults.trial(both, checkout))
    assert [row[3:5] for row in rows] == [("yes", "test_sums.py::test_total"), ("no", "")]
    assert (checkout / "sums.py").read_text() == sound


def test_a_test_that_fails_without_a_fault_is_refused(checkout):
    (checkout / "sums.py").write_text("def total(a, b):\n    return a * b\n")
    with pytest.raises(RuntimeError, match="do not pass without a fault"):
        list(faults.trial([seeded("a * b", "a + b")], checkout))


@pytest.mark.parametrize("old", ["a * b", "def "])
def test_a_text_that_does_not_stand_once_is_refused_by_name(checkout, old):
    with pytest.raises(ValueError, match=r"stands [02] times in sums\.py"):
        faults.apply(seeded(old, "x"), checkout)
