"""The moving picture of the README is what its command makes of the shipped traces, small and whole in itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.scripts import load

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def text():
    return (DOCS / "animation.svg").read_text(encoding="utf-8")


def test_it_is_the_picture_of_the_shipped_traces(text):
    assert load(DOCS / "animation.py").picture() == text


def test_it_is_small_and_asks_for_nothing(text):
    assert len(text.encode()) < 100_000
    assert re.findall(r"href|<script|url\(|@import|<image", text) == []
