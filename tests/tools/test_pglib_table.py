"""The table of PGLib-OPF, on a folder in the library's form, with given answers in place of the solver."""

from __future__ import annotations

import types

import numpy as np
import pytest

from powerzoo_jax.base.errors import DataMissing
from powerzoo_jax.opf import OpfStatus
from tools import pglib_table

BASELINE = """| **Case Name** | **Nodes** | **Edges** | **DC (\\$/h)** | **AC (\\$/h)** |
| ------------- | --------- | --------- | ------------- | ------------- |
| pglib_opf_case2_own | 2 | 1 | 2.0000e+03 | 2.0000e+03 |
| pglib_opf_case9_large | 9 | 1 | 2.0000e+03 | 2.0000e+03 |

| pglib_opf_case2_own__api | 2 | 1 | 2.0000e+03 | 2.0001e+03 |
| pglib_opf_case2_own__sad | 2 | 1 | inf. | 2.0000e+03 |
| pglib_opf_case3_gone__sad | 3 | 1 | inf. | 2.0000e+03 |
"""
NETWORK = """function mpc = own
mpc.version = '2';
mpc.baseMVA = 100.0;
mpc.bus = [
1 3 {load} 0 0 0 1 1.0 0 230 1 1.1 0.9;
2 1 0 0 0 0 1 1.0 0 230 1 1.1 0.9;
];
mpc.gen = [
1 100 0 50 -50 1.0 100 1 200 0;
];
mpc.gencost = [
2 0 0 3 0 20 0;
];
mpc.branch = [
1 2 0.01 0.1 0 100 100 100 0 0 1 -30 30;
];
"""


def test_what_matches_differs_is_missed_and_missing_stands_in_the_table(monkeypatch, tmp_path, capsys):
    def solve(_, p_load, q_load):
        load = float(p_load.sum())
        status = OpfStatus.OPTIMAL if load else OpfStatus.OUT_OF_STEPS
        numbers = dict(optimal=load > 0, objective=20 * load, iterations=7, primal_residual=1e-9)
        return types.SimpleNamespace(status=np.int32(status), **numbers)

    monkeypatch.setattr(pglib_table, "solve", solve)
    monkeypatch.setattr(pglib_table.jax, "block_until_ready", lambda found: found)
    (tmp_path / "BASELINE.md").write_text(BASELINE)
    for folder, ending, load in (("", "", 100), ("api", "__api", 100), ("sad", "__sad", 0)):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / f"pglib_opf_case2_own{ending}.m").write_text(NETWORK.format(load=load))
    out = tmp_path / "table.tsv"
    assert pglib_table.main(["--pglib", str(tmp_path), "--buses", "8", "--out", str(out)]) == 3
    rows = [line.split("\t") for line in out.read_text().splitlines()]
    assert [dict(zip(rows[0], row, strict=False))["outcome"] for row in rows[1:]] == [
        "match",
        "differs",
        "missed",
        "refused",
    ]
    assert rows[1][:6] == ["2_own", "2", "1", "match", "2.0000e+03", "2.0000e+03"]
    assert rows[3][5] == "OUT_OF_STEPS" and "pglib_opf_case3_gone__sad.m" in rows[4][-1]
    assert capsys.readouterr().out.splitlines()[-1] == "1 match; 1 differs; 1 missed; 1 refused"


def test_a_folder_without_the_published_optima_is_refused(tmp_path):
    with pytest.raises(DataMissing, match=r"no BASELINE\.md"):
        pglib_table.main(["--pglib", str(tmp_path)])
