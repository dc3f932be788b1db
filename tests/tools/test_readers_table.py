"""The table of published networks, with recorded answers in place of the packages that they come from."""

from __future__ import annotations

import types

import numpy as np

import powerzoo_jax as pz
from powerzoo_jax.base.errors import CaseError
from tests.references.recorded_nets import converter
from tools import readers_table


def test_what_matches_differs_and_is_refused_stands_in_the_table(monkeypatch, tmp_path):
    study = converter(monkeypatch, pz.run_power_flow)("line")
    found = study.elements["res_bus"]
    v = found["v_pu"] * np.exp(1j * np.deg2rad(found["angle_deg"]))
    answers = {"equal": v, "other": v + 1e-6, "shorter": np.where(np.arange(len(v)) == 2, np.nan, v), "none": None}

    def solve(net):
        if net.name == "strange":
            raise CaseError("it has svc 3 in service.")
        return study

    nets = [types.SimpleNamespace(name=name, bus=v) for name in [*answers, "strange"]]
    monkeypatch.setattr(readers_table, "run_power_flow", solve)
    monkeypatch.setattr(readers_table, "reference", lambda net: answers.get(net.name))
    monkeypatch.setattr(
        readers_table, "networks", lambda *_: iter([(net.name, "here", lambda net=net: net) for net in nets])
    )
    assert readers_table.main(["--out", str(tmp_path / "table.tsv")]) == 1
    rows = [line.split("\t") for line in (tmp_path / "table.tsv").read_text().splitlines()]
    outcome = rows[0].index("outcome")
    assert [row[outcome] for row in rows[1:]] == ["match", "differs", "match", "no reference", "refused"]
    assert rows[2][rows[0].index("error_pu")] == "1.0e-06" and rows[5][-1] == "it has svc 3 in service."
