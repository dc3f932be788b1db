"""Limits of the readers: what they refuse by default, and that a keyword lifts it."""

from __future__ import annotations

import numpy as np
import pytest

from powerzoo_jax.base.errors import CaseError, DataError
from powerzoo_jax.base.npz import read_npz
from powerzoo_jax.cases import from_matpower, read_matpower, read_opendss
from powerzoo_jax.cases.readers import matpower
from powerzoo_jax.cases.readers.opendss import script as opendss_script
from powerzoo_jax.cli import main
from powerzoo_jax.data import read_csv
from powerzoo_jax.data.adapters import read_official
from tools.hostile import FEEDER, GRID, SERIES, archive, npy

TINY_MB = 1e-5  # ten bytes
NESO = "SETTLEMENT_DATE,SETTLEMENT_PERIOD,ND\n2023-01-01,1,30000\n2023-01-01,2,30000\n"


def _npz(path, **options):
    np.savez(path.with_suffix(".npz"), a=np.arange(9.0))
    return read_npz(path.with_suffix(".npz"), **options)["a"].sum()


def _written(path, text):
    path.write_text(text)
    return path


SIZED = {
    "MATPOWER": (lambda p, **o: from_matpower(_written(p, GRID), **o).n_bus, CaseError, 1),
    "MATPOWER text": (lambda p, **o: read_matpower(GRID, **o).n_bus, CaseError, 1),
    "OpenDSS": (lambda p, **o: len(read_opendss(_written(p, FEEDER), **o).line), CaseError, 1),
    "series": (lambda p, **o: len(read_csv(_written(p, SERIES), **o).time_utc), DataError, 24),
    "official": (lambda p, **o: len(read_official("neso", _written(p, NESO), **o)[0].time_utc), DataError, 2),
    "npz": (_npz, DataError, 36),
}


@pytest.mark.parametrize("kind", SIZED)
def test_a_file_beyond_the_limit_is_refused_until_the_limit_is_lifted(kind, tmp_path):
    read, error, value = SIZED[kind]
    with pytest.raises(
        error, match=r"the limit is 1e-05\. Give max_mb=1 if you trust its source, or None for no limit"
    ):
        read(tmp_path / "file.m", max_mb=TINY_MB)
    assert read(tmp_path / "file.m", max_mb=None) == read(tmp_path / "file.m") == value


def test_statements_and_formulas_are_limited_until_the_limit_is_lifted(monkeypatch):
    monkeypatch.setattr(matpower, "MOST_WORK", 5.0)
    text = GRID + "a = 1;\n" * 5  # with the base that makes six formulas
    with pytest.raises(CaseError, match="more than 5 formulas: it is no case"):
        read_matpower(text)
    assert read_matpower(text, max_mb=None).n_bus == 1
    monkeypatch.setattr(matpower, "MOST_WORK", 250_000.0)
    monkeypatch.setattr(matpower, "MOST_STATEMENTS", 10)
    with pytest.raises(CaseError, match="more than 10 statements"):
        read_matpower(text)
    assert read_matpower(text, max_mb=None).n_bus == 1


def test_a_formula_over_a_table_counts_by_its_numbers(monkeypatch):
    rows = "".join(f"{k} 1 1 0 0 0 1 1 0 20 1 1.1 0.9;" for k in range(2, 2002))
    text = GRID.replace("];\nmpc.gen", f"; {rows}];\nmpc.gen", 1) + "mpc.bus(:, 3) = mpc.bus(:, 3) * 2;\n"
    monkeypatch.setattr(matpower, "MOST_WORK", 9.9)  # the base, two indices, the formula; what it reads and writes
    with pytest.raises(CaseError, match="more than 10 formulas"):
        read_matpower(text)
    monkeypatch.setattr(matpower, "MOST_WORK", 10.1)
    assert read_matpower(text).p_load_mw.sum() == 2 * (7 + 2000)


def test_a_name_of_the_file_cannot_stand_for_a_part_of_a_table():
    text = GRID + "part_0 = 3;\npart_1 = 5;\nmpc.bus(:, 3) = mpc.bus(:, 3) * part_0 * part_1;\n"
    assert read_matpower(text).p_load_mw.tolist() == [105.0]
    with pytest.raises(CaseError, match="'_part1' is not defined"):
        read_matpower(GRID + "mpc.bus(:, 3) = mpc.bus(:, 3) * _part1;\n")


def _feeder(folder, target):
    (folder / "inner" / "deeper").mkdir(parents=True)
    (folder / "loads.dss").write_text("New Load.e bus1=a kW=5 kv=12.47\n")
    (folder / "inner" / "loads.dss").write_text("New Load.e bus1=a kW=3 kv=12.47\n")
    (folder / "inner" / "deeper" / "up.dss").write_text("Redirect ../loads.dss\n")
    (folder / "inner" / "link.dss").symlink_to(folder / "loads.dss")
    return _written(folder / "inner" / "master.dss", f"{FEEDER}Redirect {target}\n")


@pytest.mark.parametrize("target", ["../loads.dss", "..\\loads.dss", "{folder}/loads.dss", "link.dss"])
def test_a_file_outside_the_folder_is_read_only_when_asked_for(target, tmp_path):
    path = _feeder(tmp_path, target.format(folder=tmp_path))
    with pytest.raises(CaseError, match=r"lies outside .*inner', the folder of the master script.* give outside=True"):
        read_opendss(path)
    assert read_opendss(path, outside=True).load.p_kw.sum() == pytest.approx(12.0)


def test_a_file_in_a_folder_below_may_lead_back_up(tmp_path):
    assert read_opendss(_feeder(tmp_path, "deeper/up.dss")).load.p_kw.sum() == pytest.approx(10.0)


def test_files_that_lead_to_one_another_are_limited(tmp_path):
    path = _written(tmp_path / "f0.dss", "Redirect f1.dss\n")
    for k in range(1, opendss_script.MOST_FILES):
        _written(tmp_path / f"f{k}.dss", f"Redirect f{k + 1}.dss\n")
    _written(tmp_path / f"f{opendss_script.MOST_FILES}.dss", FEEDER)
    assert read_opendss(path).load.p_kw.sum() == pytest.approx(7.0)
    path.rename(tmp_path / "f1b.dss")
    with pytest.raises(CaseError, match="more than 16 files"):
        read_opendss(_written(path, "Redirect f1b.dss\n"))


def test_a_line_code_changed_between_lines_holds_for_those_behind_it(tmp_path):
    text = FEEDER + "New Linecode.k nphases=3 r1=1 x1=1 r0=1 x0=1 c1=0 c0=0\n"
    text += (
        "New Line.m bus1=a bus2=b linecode=k length=1\nLinecode.k.r1=2\nNew Line.n bus1=b bus2=c linecode=k length=1\n"
    )
    text += "New Line.o bus1=c bus2=d linecode=k length=1\n"
    case = read_opendss(_written(tmp_path / "master.dss", text))
    r = dict(zip(case.line.name.tolist(), case.line.r_ohm, strict=True))
    positive = {name: matrix[0, 0] - matrix[0, 1] for name, matrix in r.items()}
    assert [positive[name] for name in "mno"] == pytest.approx([1.0, 2.0, 2.0])


@pytest.mark.parametrize("value", ["(100", "[100", '"100', "'100", "{100"])
def test_a_bracket_never_closed_does_not_eat_a_digit(value, tmp_path):
    path = _written(tmp_path / "master.dss", f"{FEEDER}New Load.e bus1=a kv=12.47 kW={value}\n")
    with pytest.raises(CaseError, match=r"master\.dss, line 5: the .* is never closed"):
        read_opendss(path)


def test_a_net_that_names_foreign_code_is_refused_before_pandapower_sees_it(tmp_path, capsys):
    path = _written(tmp_path / "net.json", '{"_module": "mine", "_class": "function", "_object": "run"}')
    assert main(["check", str(path)]) == 2
    assert "asks for mine.function, which is no part of a net" in capsys.readouterr().err


def test_an_array_in_fortran_order_and_a_scalar_are_read_as_numpy_reads_them(tmp_path):
    arrays = {"f": np.asfortranarray(np.arange(6.0).reshape(2, 3)), "s": np.float32(3), "t": np.array(["a", "bc"])}
    np.savez(tmp_path / "a.npz", **arrays)
    for name, value in read_npz(tmp_path / "a.npz").items():
        np.testing.assert_array_equal(value, arrays[name])
        assert value.dtype == arrays[name].dtype


def test_no_memory_is_asked_for_on_the_word_of_a_header(tmp_path, monkeypatch):
    """The header claims 8 TB; reading it must not come to the allocation."""
    (tmp_path / "a.npz").write_bytes(archive(("a.npy", npy((1_000_000, 1_000_000), content=bytes(64)))))
    monkeypatch.setattr(np.lib.format, "read_array", lambda *_, **__: pytest.fail("asked for memory"))
    with pytest.raises(DataError, match=r"a\.npy of \d+ bytes claims to hold float64 of shape"):
        read_npz(tmp_path / "a.npz")
