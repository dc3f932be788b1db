"""The moving picture of the README is what its command makes: small, whole in itself, and true to its traces."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from powerzoo_jax.envs import load_traces

DOCS = Path(__file__).resolve().parents[2] / "docs"
SVG = "{http://www.w3.org/2000/svg}"


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


def test_buses_and_batteries_move_with_the_day(text):
    root = ElementTree.fromstring(text)
    traces = [load_traces(DOCS / "episode.npz")[name] for name in ("no_control", "oracle")]
    buses = [circle[0].attrib["values"].split(";") for circle in root.iter(f"{SVG}circle")]
    volts = np.concatenate([trace["bus_voltage_pu"].values for trace in traces], axis=1).T
    assert len(buses) == len(volts) and all(len(colours) == 48 for colours in buses)
    below = np.array([[int(c[1:3], 16) > int(c[5:7], 16) for c in colours] for colours in buses])  # red above blue
    clear = np.abs(volts - 1) > 0.005
    assert np.array_equal(below[clear], volts[clear] < 1)
    levels = [
        [float(x) for x in move.attrib["values"].split(";")]
        for move in root.iter(f"{SVG}animate")
        if move.attrib["attributeName"] == "height"
    ]
    charge = np.concatenate([trace["soc"].values for trace in traces], axis=1).T
    assert np.array(levels) == pytest.approx(18 * charge, abs=0.06)
