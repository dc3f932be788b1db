"""The table of CGMES networks, with answers of our own in place of the packages that it compares."""

from __future__ import annotations

import sys
import types

import numpy as np
from scipy.io import savemat

from powerzoo_jax.base.errors import CaseError
from powerzoo_jax.cases import from_matpower
from tools import cgmes_table

BUS = [[1.0, 3, 0, 0, 0, 0, 1, 1.02, 0, 20, 1, 1.1, 0.9], [7.0, 1, 4.25, 1 / 3, 0, 0, 1, 1, 0, 20, 1, 1.1, 0.9]]
GEN = [[1.0, 4, 1, 1e4, -1e4, 1.02, 100, 1, 1.7976931348623157e308, 0, *[0.0] * 11]]
BRANCH = [[1.0, 7, 0.1 / 3, 0.05, 1e-17, 5, 0, 0, 0, 0, 1, -360, 360]]


class Network:
    """Two buses, written as pypowsybl writes them: a binary MATPOWER file."""

    def save(self, path: str, format: str) -> None:
        if format == "MATPOWER":
            savemat(path, {"mpc": {"version": "2", "baseMVA": 100.0, "bus": BUS, "gen": GEN, "branch": BRANCH}})


def test_the_text_of_a_binary_matpower_file_has_its_numbers_to_the_last_digit(tmp_path):
    case = from_matpower(cgmes_table.through_matpower(Network(), tmp_path))
    assert case.bus.id.tolist() == [1, 7] and case.base_mva == 100.0
    assert (case.q_load_mvar[1], case.branch.r_pu[0], case.branch.b_pu[0]) == (1 / 3, 0.1 / 3, 1e-17)
    v, p = cgmes_table.solve(tmp_path / "grid.m")
    lost = (0.1 / 3) * abs(np.conj(complex(p[1], 0) / 1.02) / 100) ** 2 * 100  # r |I|^2 without the reactive part
    assert v[1] == 1.02 and abs(p.sum() - lost) < 0.1 * lost


def test_what_matches_differs_and_is_refused_stands_in_the_table(monkeypatch, tmp_path):
    v, p = np.array([0.99, 1.02]), np.array([-4.25, 4.26])
    answers = {"equal": (v, p), "other": (v, p + 0.1), "larger": (np.append(v, 1.0), p)}

    def solve(grid):
        if grid == "strange":
            raise CaseError("it has a class that no case has.")
        return v, p

    package = types.ModuleType("pypowsybl")
    package.network = types.SimpleNamespace(load=lambda path: (tmp_path / "name").read_text())
    monkeypatch.setitem(sys.modules, "pypowsybl", package)

    def make(name, folder):
        (tmp_path / "name").write_text(name)
        return Network()

    monkeypatch.setattr(cgmes_table, "make", make)
    monkeypatch.setattr(cgmes_table, "reference", answers.__getitem__)
    monkeypatch.setattr(cgmes_table, "through_pandapower", lambda path: "strange")
    monkeypatch.setattr(cgmes_table, "through_matpower", lambda network, folder: network)
    monkeypatch.setattr(cgmes_table, "solve", solve)
    assert cgmes_table.main(["--only", *answers, "--out", str(tmp_path / "table.tsv")]) == 2
    rows = [line.split("\t") for line in (tmp_path / "table.tsv").read_text().splitlines()]
    assert [row[rows[0].index("outcome")] for row in rows[1:]] == [
        *("refused", "match", "refused", "differs", "refused", "other size"),
    ]
    assert rows[1][-1] == "it has a class that no case has." and rows[4][rows[0].index("error_mw")] == "1.0e-01"
