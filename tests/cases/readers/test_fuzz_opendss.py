"""Broken OpenDSS scripts by the hundred: a case, or an error of ours that says why, in bounded time and without NaN."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from powerzoo_jax.base.errors import PowerZooError
from powerzoo_jax.cases import read_opendss, read_opendss_series, validate_threephase
from powerzoo_jax.cases.readers.opendss.commands import COMMANDS, OPTIONS
from powerzoo_jax.cases.readers.opendss.rules import CLASSES, LOADSHAPE, PROPERTIES
from powerzoo_jax.cases.threephase.case import OPTIONAL, TABLES
from tests.references import opendss_feeders as feeders
from tests.references.opendss_shapes import SHAPES

pytestmark = pytest.mark.property
AMOUNTS = (300, 5000)  # inputs, in the full and in the long tier
DEADLINE_MS = 5000  # an input that takes longer is a hang

NUMBERS = st.one_of(
    st.integers(-3, 30).map(str),
    st.floats(-1e3, 1e3).map(repr),
    st.sampled_from(
        ["0", "-0", "1e308", "-1e308", "5e-324", "1e20", "inf", "nan", "1e999", "(2 0 /)", "(1 2", "(3 sqrt)"]
    ),
)
BUSES = st.builds("{}{}".format, st.sampled_from(["head", "mid", "end", "low", "far", "new", ""]),
                  st.sampled_from(["", ".1", ".1.2.3", ".0", ".1.1", ".4", ".1.2.3.0", ".x", ".99", "."]))  # fmt: skip
WORDS = st.sampled_from(
    [
        "yes",
        "no",
        "wye",
        "delta",
        "k",
        "t",
        "reg",
        "a",
        "d",
        "mi",
        "km",
        "none",
        "carson",
        "fixed",
        "(",
        "]",
        '"',
        "'",
        "|",
    ]
)
LISTS = st.lists(st.one_of(NUMBERS, BUSES, WORDS), max_size=5).map(lambda found: f"[{' '.join(found)}]")
MATRICES = st.lists(st.lists(NUMBERS, max_size=3).map(" ".join), max_size=4).map(lambda rows: f"({' | '.join(rows)})")
VALUES = st.one_of(NUMBERS, BUSES, WORDS, LISTS, MATRICES, st.text(max_size=8))
KINDS = st.sampled_from([*PROPERTIES, *CLASSES, "circuit", "gadget"])
TABLES_OF = {**PROPERTIES, "loadshape": LOADSHAPE}
NAMES = st.sampled_from(["a", "b", "k", "t", "d", "e", "reg", "c", "x", "source"])


def properties(kind: str) -> st.SearchStrategy[str]:
    """A few properties of a class, some without their name, some with a value out of place."""
    keys = st.sampled_from([*TABLES_OF.get(kind, ["phases"]), "", "gadget"])
    one = st.builds(lambda key, value: f"{key}={value}" if key else value, keys, VALUES)
    return st.lists(one, max_size=5).map(" ".join)


ELEMENTS = KINDS.flatmap(
    lambda kind: st.builds(
        "{} {}.{} {}".format, st.sampled_from(["New", "Edit", "BatchEdit"]), st.just(kind), NAMES, properties(kind)
    )
)
COMMAND = st.builds(
    "{} {}".format,
    st.sampled_from([*COMMANDS, "~", "sing"]),
    st.one_of(st.text(max_size=10), VALUES, st.just("line.a 1")),
)
STATEMENTS = st.one_of(
    ELEMENTS,
    COMMAND,
    st.builds("Set {}={}".format, st.sampled_from([*OPTIONS, "gadget"]), VALUES),
    st.sampled_from(list(TABLES_OF)).flatmap(properties).map("~ {}".format),
    st.text(max_size=30),
)
# what is done to a readable script: at a line, in place of some lines, comes a statement
CHANGES = st.tuples(
    st.sampled_from(
        ["base", "xfmrcode.kv", "line.geometry", "line of four conductors", "reactor.rp", "storage.kw", "shapes"]
    ),
    st.lists(st.tuples(st.integers(0, 25), st.integers(0, 2), STATEMENTS), min_size=1, max_size=4),
)
SCRIPTS = feeders.feeders() | {"shapes": SHAPES["copied load"][0]}


@pytest.mark.tiers("full", long=["5000"])
@pytest.mark.parametrize("amount", AMOUNTS)
def test_opendss_scripts(amount: int) -> None:
    @settings(
        max_examples=amount,
        derandomize=True,
        database=None,
        deadline=DEADLINE_MS,
        suppress_health_check=list(HealthCheck),
    )
    @given(CHANGES)
    def check(change: tuple[str, list[tuple[int, int, str]]]) -> None:
        lines = SCRIPTS[change[0]].splitlines()
        for at, lost, statement in change[1]:
            lines[at : at + lost] = [statement]
        reads_or_refuses("\n".join(lines))

    check()


def reads_or_refuses(text: str) -> None:
    """Read a script: a case of finite numbers that can be validated, or an error of ours with words in it."""
    try:
        case = read_opendss("feeder.dss", read=lambda _: text)
    except PowerZooError as err:
        assert len(str(err)) > 20 and "Traceback" not in str(err)
        return
    try:
        series = read_opendss_series("feeder.dss", read=lambda _: text)
        assert all(np.isfinite(values).all() for values in series.columns.values())
    except PowerZooError as err:
        assert len(str(err)) > 20 and "Traceback" not in str(err)
    for table in (*TABLES, *OPTIONAL):
        rows = getattr(case, table)
        for column in dataclasses.fields(rows):
            values = getattr(rows, column.name)
            assert values.dtype.kind != "f" or np.isfinite(values).all(), (table, column.name)
    assert all(str(problem) for problem in validate_threephase(case))
