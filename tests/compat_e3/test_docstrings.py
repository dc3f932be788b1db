"""The examples of the views for gymnax and JaxMARL run; the others run in tests/docs."""

from __future__ import annotations

import pytest

import powerzoo_jax as pz
from tests.docs.examples import find, play

LIBRARIES = {"gymnax", "jaxmarl"}
EXAMPLES = [example for example in find("compat") if example.needs in LIBRARIES]


def test_each_library_has_its_example():
    assert {example.needs for example in EXAMPLES} == LIBRARIES


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.module)
def test_an_example_runs(example):
    play(example, pz.make("battery_arbitrage", split="test"))
