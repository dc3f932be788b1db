"""Broken files and nets by the hundred: a case, or an error of ours that says why, in bounded time and without NaN."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from powerzoo_jax.base.errors import PowerZooError
from powerzoo_jax.cases import Case, assert_valid, from_pypsa, read_matpower, read_pypsa_series, scan_matpower
from tests.cases.readers.test_pypsa import RECORDED, RecordedNetwork
from tests.references.recorded_nets import SMALL, converter
from tests.tools.cases.test_greatbritain import saved_net
from tools.cases.netfile import read_saved_net
from tools.hostile import GRID

pytestmark = [pytest.mark.property, pytest.mark.full]
AMOUNTS = (300, 5000)  # inputs a reader, in the full and in the long tier
DEADLINE_MS = 5000  # an input that takes longer is a hang
ANGLE_FREE = {"q_max_mvar", "q_min_mvar", "p_max_mw", "p_min_mw", "angle_min_deg", "angle_max_deg"}

NUMBERS = st.one_of(
    st.integers(-3, 14),
    st.floats(-1e3, 1e3),
    st.sampled_from([0.0, -0.0, 1e308, -1e308, 5e-324, 1e20, float("inf"), float("-inf"), float("nan")]),
)
WORDS = st.sampled_from(
    [
        "Inf",
        "NaN",
        "-Inf",
        "pi",
        "1/0",
        "2^-1",
        "1e999",
        "[",
        "]",
        "'",
        ";",
        "...",
        "%",
        "%{",
        "mpc",
        "Vbase",
        "1:3",
        "",
    ]
)
CELLS = st.one_of(NUMBERS.map(repr), WORDS)
ROWS = st.lists(CELLS, max_size=15).map(" ".join)
TABLES = st.sampled_from(["bus", "gen", "branch", "gencost", "areas", "if", "version"])
STATEMENTS = st.one_of(
    st.builds("mpc.{} = [{}];".format, TABLES, st.lists(ROWS, max_size=4).map(";\n".join)),
    st.builds("mpc.{}(:, {}) = mpc.{}(:, {}) * {};".format, TABLES, CELLS, TABLES, CELLS, CELLS),
    st.builds("mpc.{}({}, {}) = {};".format, TABLES, CELLS, CELLS, CELLS),
    st.builds("mpc.baseMVA = {};".format, CELLS),
    st.builds("x = {};".format, CELLS),
    st.sampled_from(
        ["if 1", "if x", "end", "else", "for k = 1:3", "%{", "%}", "function y = z", "[PQ, PV] = idx_bus;"]
    ),
    st.text(max_size=30),
)
# what is done to a readable file: at a line, in place of some lines, comes a statement
CHANGES = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 2), STATEMENTS), min_size=1, max_size=4)


def reads_or_refuses(read: Callable[[], Any]) -> None:
    """Run a reader: a case without NaN, of finite numbers but for limits, or an error of ours with words in it."""
    try:
        case = read()
    except PowerZooError as err:
        assert len(str(err)) > 20 and "Traceback" not in str(err)
        return
    assert isinstance(case, Case)
    for table in (case.bus, case.branch, case.unit, case.load):
        for column in dataclasses.fields(table):
            values = getattr(table, column.name)
            assert not np.isnan(values).any() if column.name in ANGLE_FREE else np.isfinite(values).all(), column.name


def run(amount: int, inputs: st.SearchStrategy[Any], check: Callable[[Any], None]) -> None:
    """Check `amount` inputs, the same ones at every run."""
    limits = settings(
        max_examples=amount,
        derandomize=True,
        database=None,
        deadline=DEADLINE_MS,
        suppress_health_check=list(HealthCheck),
    )
    limits(given(inputs)(check))()


@pytest.mark.tiers(long=["5000"])
@pytest.mark.parametrize("amount", AMOUNTS)
def test_matpower_files(amount):
    def check(changes: list[tuple[int, int, str]]) -> None:
        lines = GRID.splitlines()
        for at, lost, statement in changes:
            lines[at : at + lost] = [statement]
        text = "\n".join(lines) + "\n"

        def read() -> Case:
            case = read_matpower(text)
            assert_valid(case)
            return case

        reads_or_refuses(read)
        problems = scan_matpower(text)[2]  # lists instead of raising
        assert all(str(problem) for problem in problems)

    run(amount, CHANGES, check)


PLAIN = st.one_of(NUMBERS, st.none(), st.booleans(), st.text(max_size=5), st.just([1.0]), st.just({"a": 1}))
COLUMN_NAMES = st.sampled_from(
    ["bus", "vn_kv", "in_service", "x_ohm_per_km", "vk_percent", "tap_pos", "p_mw", "scaling"]
)
CELL_CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["cell", "column", "row", "text"]), st.integers(0, 40), st.integers(0, 40), PLAIN, COLUMN_NAMES
    ),
    min_size=1,
    max_size=4,
)


@pytest.mark.tiers(long=["5000"])
@pytest.mark.parametrize("amount", AMOUNTS)
def test_saved_nets(amount):
    whole = json.loads(saved_net())

    def check(changes: list[tuple[str, int, int, Any, str]]) -> None:
        net, cut = copy.deepcopy(whole), None
        tables = [key for key, value in net["_object"].items() if isinstance(value, dict)]
        for what, which, where, value, name in changes:
            key = tables[which % len(tables)]
            content = json.loads(net["_object"][key]["_object"])
            rows, columns = content["data"], content["columns"]
            if what == "cell" and rows and rows[0]:
                row = rows[where % len(rows)]
                row[which % len(row)] = value
            elif what == "column" and columns:
                columns[where % len(columns)] = name
            elif what == "row" and rows:
                rows.append(rows[where % len(rows)])
                content["index"].append(where)
            else:
                cut = where * 37
            net["_object"][key]["_object"] = json.dumps(content)
        text = json.dumps(net)
        text = text if cut is None else text[: cut % len(text)] + text[cut % len(text) + 7 :]

        def read() -> Case:
            case = read_saved_net(text, "net", "")
            assert_valid(case)
            return case

        reads_or_refuses(read)

    run(amount, CELL_CHANGES, check)


NETS = tuple(name for name, parts in SMALL["nets"].items() if "bus" in parts)
PPC_CHANGES = st.tuples(
    st.sampled_from(NETS),
    st.lists(
        st.tuples(
            st.sampled_from(["bus", "branch", "gen", "gencost"]), st.integers(0, 99), st.integers(0, 12), NUMBERS
        ),
        max_size=3,
    ),
)


@pytest.mark.tiers(long=["5000"])
@pytest.mark.parametrize("amount", AMOUNTS)
def test_what_pandapower_makes_of_nets(amount, monkeypatch):
    """Its tables with numbers of all kinds in them, as nets give them that nobody has looked at."""
    convert = converter(monkeypatch)

    def check(given: tuple[str, list[tuple[str, int, int, float]]]) -> None:
        name, changes = given
        tables: dict[str, np.ndarray] = {}
        for table, row, column, value in changes:
            if table not in SMALL["nets"][name]:
                continue
            values = tables.setdefault(table, np.array(SMALL["nets"][name][table], float))
            # the numbers of buses are pandapower's own, never the user's
            first = {"bus": 2, "branch": 2, "gen": 1, "gencost": 0}[table]
            values[row % len(values), max(column % values.shape[1], first)] = value
        reads_or_refuses(lambda: convert(name, **tables))

    run(amount, PPC_CHANGES, check)


PYPSA_CHANGES = st.tuples(
    st.sampled_from(sorted(RECORDED)),
    st.lists(
        st.tuples(st.integers(0, 8), st.integers(0, 20), st.integers(0, 9), st.one_of(NUMBERS, st.booleans())),
        max_size=4,
    ),
)


@pytest.mark.tiers(long=["5000"])
@pytest.mark.parametrize("amount", AMOUNTS)
def test_pypsa_networks(amount):
    def check(given: tuple[str, list[tuple[int, int, int, float]]]) -> None:
        content = copy.deepcopy(RECORDED[given[0]])
        for kind, column, row, value in given[1]:
            static = content["tables"][sorted(content["tables"])[kind]]["static"]
            numeric = [key for key, x in static.items() if x and isinstance(x[0], int | float)]
            if numeric:
                values = static[numeric[column % len(numeric)]]
                values[row % len(values)] = value
        reads_or_refuses(lambda: from_pypsa(RecordedNetwork(content)))
        try:
            series = read_pypsa_series(RecordedNetwork(content))
            assert all(np.isfinite(values).all() for values in series.columns.values())
        except PowerZooError as err:
            assert len(str(err)) > 20

    run(amount, PYPSA_CHANGES, check)
