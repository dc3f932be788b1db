"""The moving picture of the README is what its command makes of the shipped traces, small and whole in itself."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def text():
    return (DOCS / "animation.svg").read_text(encoding="utf-8")


def test_it_is_the_picture_of_the_shipped_traces(text):
    found = importlib.util.spec_from_file_location("animation", DOCS / "animation.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    assert module.picture() == text


def test_it_is_small_and_asks_for_nothing(text):
    assert len(text.encode()) < 100_000
    assert re.findall(r"href|<script|url\(|@import|<image", text) == []
