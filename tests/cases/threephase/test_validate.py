"""Rules for three-phase feeders: each finds its mistake, all mistakes come at once, what is shipped passes."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from powerzoo_jax.base.errors import CaseError
from powerzoo_jax.cases import ThreePhaseCase, assert_valid_feeder, list_feeders, load_feeder, validate_threephase
from powerzoo_jax.cases.threephase.case import ExponentTable, ShuntTable
from powerzoo_jax.cli import main

SCRIPT = """clear
new circuit.mine basekv=4.16 pu=1.0 bus1=src r1=0.01 x1=0.05 r0=0.01 x0=0.05
new line.one bus1=src bus2=a length=1 units=none r1=0.1 x1=0.3 r0=0.2 x0=0.6 c1=0 c0=0
new load.l1 bus1=a.1 phases=1 kv={kv} kw={kw} kvar=10
{more}set voltagebases=[4.16]
calcvoltagebases
"""


def changed(table: str, **columns: Any) -> ThreePhaseCase:
    """IEEE 123 with the first row of some columns replaced."""
    case = load_feeder("ieee123")
    rows = getattr(case, table)
    new = {}
    for name, value in columns.items():
        column = np.array(getattr(rows, name))
        column[0] = value
        new[name] = column
    return dataclasses.replace(case, **{table: dataclasses.replace(rows, **new)})


@pytest.mark.parametrize("name", list_feeders())
def test_every_shipped_feeder_is_free_of_errors(name: str) -> None:
    assert [p for p in validate_threephase(load_feeder(name)) if p.severity == "error"] == []


MISTAKES = {
    "nan": (("load", dict(p_kw=np.nan)), "p_kw is not a finite number"),
    "phase": (("node", dict(phase=0)), "the phase is 0"),
    "twice": (("node", dict(bus=load_feeder("ieee123").node.bus[1], phase=2)), "more than once"),
    "far-node": (("load", dict(node=9999)), "node names a node that does not exist"),
    "unit": (("regulator", dict(unit=[99, -1, -1])), "moves a transformer unit that does not exist"),
    "rating": (("transformer", dict(rating_kva=0.0)), "rating_kva = 0.0"),
    "one-end": (("load", dict(end=load_feeder("ieee123").load.node[0])), "both ends are one node"),
    "conductor": (("line", dict(to_node=[-1, -1, -1])), "different conductors"),
    "mutual": (("line", dict(x_ohm=np.triu(np.ones((3, 3))))), "x_ohm is not symmetric"),
    "resistance": (("transformer", dict(r_pu=-0.01)), "negative resistance"),
    "tap": (("regulator", dict(tap=40)), "tap = 40 beyond 16"),
    "hunting": (("regulator", dict(band_volt=0.1)), "it will hunt"),
    "law": (("load", dict(v_min_pu=1.2)), "not in the order"),
    "kv": (("load", dict(kv=4160.0)), "rated at"),
    "watts": (("load", dict(p_kw=4e6)), "kW, not W"),
}


@pytest.mark.parametrize("rows", [[0, 9999], [3, 3], [-1]])
def test_exponents_belong_to_one_load_each(rows: list[int]) -> None:
    table = ExponentTable(load=np.array(rows), p_exponent=np.ones(len(rows)), q_exponent=np.ones(len(rows)))
    with pytest.raises(CaseError, match=r"each is a row of the \d+ loads, once"):
        assert_valid_feeder(dataclasses.replace(load_feeder("ieee123"), exponent=table))


@pytest.mark.parametrize(
    ("unit", "words"), [(99, "unit that does not exist"), (0, "not lie across the second winding")]
)
def test_a_shunt_on_a_transformer_unit_lies_across_its_second_winding(unit: int, words: str) -> None:
    case = load_feeder("ieee123")
    place = {"node": [case.source.node[0]], "end": [-1], "g_us": [1.0], "b_us": [-1.0]}
    table = ShuntTable(name=["s"], unit=[unit], **place)
    with pytest.raises(CaseError, match=words):
        assert_valid_feeder(dataclasses.replace(case, shunt=table))


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named_with_its_remedy(mistake: str) -> None:
    (table, columns), words = MISTAKES[mistake]
    found = validate_threephase(changed(table, **columns))
    assert any(words in str(p) for p in found), [str(p) for p in found]
    assert all(str(p).endswith(".") for p in found)


def test_an_open_switch_names_what_it_leaves_without_supply() -> None:
    case = load_feeder("ieee123")
    line = dataclasses.replace(case.line, in_service=np.zeros(len(case.line), bool))
    (problem,) = (p for p in validate_threephase(dataclasses.replace(case, line=line)) if p.component == "node")
    assert "not joined with the source" in problem.message and len(problem.ids) > 100


def test_a_joined_pair_of_voltage_levels_is_refused() -> None:
    case = load_feeder("ieee123")
    kv = np.array(case.node.base_kv)
    kv[case.line.to_node[0].max()] *= 2
    node = dataclasses.replace(case.node, base_kv=kv)
    with pytest.raises(CaseError, match="different base voltage"):
        assert_valid_feeder(dataclasses.replace(case, node=node))


def test_check_lists_the_problems_of_a_dss_file(tmp_path, capsys) -> None:
    path = tmp_path / "mine.dss"
    path.write_text(SCRIPT.format(kv=2.4, kw=100, more=""))
    assert main(["check", str(path)]) == 0
    out = capsys.readouterr().out
    assert "no problems found" in out and "load 100 kW" in out
    assert load_feeder(path).n_node == 6
    path.write_text(SCRIPT.format(kv=4160, kw=4e6, more=""))
    assert main(["check", str(path)]) == 0
    out = capsys.readouterr().out
    assert "0 errors, 2 warnings: mine can be used" in out and "kW, not W" in out


def test_a_file_with_errors_is_not_loaded(tmp_path, capsys) -> None:
    path = tmp_path / "mine.dss"
    path.write_text(SCRIPT.format(kv=2.4, kw=100, more="new line.two bus1=x bus2=y length=1 units=none r1=1 x1=1\n"))
    status = main(["check", str(path)])
    text = "".join(capsys.readouterr())
    assert status != 0 and "x" in text
    with pytest.raises(CaseError):
        load_feeder(path)
