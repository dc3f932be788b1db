"""Tables of the measurement pages, with answers of our own in place of the packages and solvers that they compare."""

from __future__ import annotations

import types

import numpy as np
import pytest
from scipy.io import savemat

import powerzoo_jax as pz
from powerzoo_jax.base.errors import CaseError
from powerzoo_jax.cases import from_matpower
from powerzoo_jax.opf import OpfStatus
from tests.references.recorded_nets import converter
from tools.tables import __main__ as recorder
from tools.tables import cgmes, checkpoints, networks, opf


@pytest.fixture
def record(tmp_path, capsys):
    """Run the command; exit status, rows by column, and what is printed, which ends in the file."""

    def run(*words: str) -> tuple[int, list[dict[str, str]], str]:
        out = tmp_path / "table.tsv"
        status = recorder.main([*words, "--out", str(out)])
        text = out.read_text(encoding="utf-8")
        names, *rows = [line.split("\t") for line in text.splitlines() if not line.startswith("#")]
        printed = capsys.readouterr().out
        assert sorted(printed.splitlines()[:-1]) == sorted(text.splitlines())
        return status, [dict(zip(names, row, strict=True)) for row in rows], printed

    return run


def outcomes(rows: list[dict[str, str]]) -> list[str]:
    return [row["outcome"] for row in rows]


@pytest.mark.full
def test_every_band_holds_at_every_bus_and_a_narrower_one_costs_no_less(record):
    """The first band is that of case9, whose optimum MATPOWER prints as 5296.69 USD/h."""
    status, (own, narrow), _ = record("bands", "--case", "case9", "--bands", "0.9:1.1", "0.95:1.05")
    assert status == 0 and own["outcome"] == narrow["outcome"] == "OPTIMAL"
    assert own["cost_usd_per_h"] == "5296.69" and float(narrow["cost_usd_per_h"]) > 5296.69
    assert float(own["v_max_pu"]) > 1.05 and 0.9499 <= float(narrow["v_min_pu"]) <= float(narrow["v_max_pu"]) <= 1.0501


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


def test_the_optima_of_pglib_match_differ_are_missed_or_missing(monkeypatch, tmp_path, record):
    def solved(case):
        load = float(case.p_load_mw.sum())
        status = OpfStatus.OPTIMAL if load else OpfStatus.OUT_OF_STEPS
        numbers = dict(optimal=load > 0, objective=20 * load, iterations=7, primal_residual=1e-9)
        return types.SimpleNamespace(status=np.int32(status), **numbers), 0.1

    monkeypatch.setattr(opf, "solved", solved)
    (tmp_path / "BASELINE.md").write_text(BASELINE)
    for folder, ending, load in (("", "", 100), ("api", "__api", 100), ("sad", "__sad", 0)):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / f"pglib_opf_case2_own{ending}.m").write_text(NETWORK.format(load=load))
    status, rows, printed = record("pglib", "--folder", str(tmp_path), "--buses", "8")
    assert status == 3 and outcomes(rows) == ["match", "differs", "missed", "refused"]
    assert list(rows[0].values())[:6] == ["2_own", "2", "1", "match", "2.0000e+03", "2.0000e+03"]
    assert rows[2]["here"] == "OUT_OF_STEPS" and "pglib_opf_case3_gone__sad.m" in rows[3]["notes"]
    assert printed.splitlines()[-1] == "1 match; 1 differs; 1 missed; 1 refused"


def test_published_networks_match_differ_and_are_refused(monkeypatch, record):
    study = converter(monkeypatch, pz.run_power_flow)("line")
    found = study.elements["res_bus"]
    v = found["v_pu"] * np.exp(1j * np.deg2rad(found["angle_deg"]))
    answers = {"equal": v, "other": v + 1e-6, "shorter": np.where(np.arange(len(v)) == 2, np.nan, v), "none": None}

    def solve(net):
        if net.name == "strange":
            raise CaseError("it has svc 3 in service.")
        return study

    nets = [types.SimpleNamespace(name=name, bus=v) for name in [*answers, "strange"]]
    monkeypatch.setattr(networks, "run_power_flow", solve)
    monkeypatch.setattr(networks, "reference", lambda net: answers.get(net.name))
    monkeypatch.setattr(networks, "networks", lambda _: iter([(net.name, "here", lambda net=net: net) for net in nets]))
    status, rows, _ = record("networks")
    assert status == 1 and outcomes(rows) == ["match", "differs", "match", "no reference", "refused"]
    assert rows[1]["error_pu"] == "1.0e-06" and rows[4]["notes"] == "it has svc 3 in service."


BUS = [[1.0, 3, 0, 0, 0, 0, 1, 1.02, 0, 20, 1, 1.1, 0.9], [7.0, 1, 4.25, 1 / 3, 0, 0, 1, 1, 0, 20, 1, 1.1, 0.9]]
GEN = [[1.0, 4, 1, 1e4, -1e4, 1.02, 100, 1, 1.7976931348623157e308, 0, *[0.0] * 11]]
BRANCH = [[1.0, 7, 0.1 / 3, 0.05, 1e-17, 5, 0, 0, 0, 0, 1, -360, 360]]


class Network:
    """Two buses, written as pypowsybl writes them: a binary MATPOWER file."""

    def save(self, path: str, format: str) -> None:
        if format == "MATPOWER":
            savemat(path, {"mpc": {"version": "2", "baseMVA": 100.0, "bus": BUS, "gen": GEN, "branch": BRANCH}})


def test_the_text_of_a_binary_matpower_file_has_its_numbers_to_the_last_digit(tmp_path):
    case = from_matpower(cgmes.through_matpower(Network(), tmp_path))
    assert case.bus.id.tolist() == [1, 7] and case.base_mva == 100.0
    assert (case.q_load_mvar[1], case.branch.r_pu[0], case.branch.b_pu[0]) == (1 / 3, 0.1 / 3, 1e-17)
    v, p = cgmes.solve(tmp_path / "grid.m")
    lost = (0.1 / 3) * abs(np.conj(complex(p[1], 0) / 1.02) / 100) ** 2 * 100  # r |I|^2 without the reactive part
    assert v[1] == 1.02 and abs(p.sum() - lost) < 0.1 * lost


@pytest.fixture(scope="module")
def checkpoint_folder(tmp_path_factory):
    return checkpoints.make_folder(tmp_path_factory.mktemp("damaged") / "checkpoint")


@pytest.mark.tiers("long", full=["bit flipped"])
@pytest.mark.parametrize("fault", checkpoints.FAULTS)
def test_a_fault_of_any_file_of_a_checkpoint_is_noticed_and_survived(checkpoint_folder, fault):
    results = {file: result for name, file, result in checkpoints.trials(checkpoint_folder, 1, faults=(fault,))}
    files = set(checkpoints.files_of(checkpoint_folder))
    assert set(results) == files and {"digests.json", "settings/metadata"} <= files
    assert set(results.values()) == {"survived"}
