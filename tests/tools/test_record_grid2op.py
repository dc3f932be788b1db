"""Recordings of Grid2Op as files: what is none is refused in a sentence, and the command prints its table."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from powerzoo_jax.base.errors import DataError, DataMissing
from powerzoo_jax.base.npz import read_npz, write_npz
from powerzoo_jax.families.operation.grid2op.example import write_world
from tools.record_grid2op import COLUMNS, compare, folder_of, main, read_recording
from tools.replay_grid2op import PackageReplay

RECORDED = Path(__file__).parents[1] / "recorded" / "grid2op"


def change(arrays, name):
    """The arrays with one of them made wrong."""
    wrong = {
        "rho": arrays["rho"][:-1],
        "action.set_bus": np.array(["x"]),
        "rows": -arrays["rows"],
        "end": arrays["end"][:1],
        "sim.row": arrays["sim.row"] + 10**6,
        "sim.rho": arrays["sim.rho"][:, 0],
        "world": np.array(3),
    }
    return arrays | {name: wrong[name]}


@pytest.mark.parametrize("name", ["rho", "action.set_bus", "rows", "end", "sim.row", "sim.rho", "world"])
def test_a_recording_with_a_wrong_array_is_refused(name, tmp_path):
    path = tmp_path / "wrong.npz"
    write_npz(path, change(read_npz(RECORDED / "script.npz"), name))
    with pytest.raises(DataError, match=r"wrong\.npz is no recording of a Grid2Op world"):
        read_recording(path)


@pytest.mark.parametrize("name", ["versions", "attacked", "action.curtail", "sim.failed"])
def test_a_recording_without_an_array_is_refused(name, tmp_path):
    arrays = read_npz(RECORDED / "script.npz")
    del arrays[name]
    write_npz(tmp_path / "short.npz", arrays)
    with pytest.raises(DataError, match=f"'{name}' is missing"):
        read_recording(tmp_path / "short.npz")


def test_nothing_of_a_recording_is_executed(tmp_path):
    class Trap:
        def __reduce__(self):
            return Path.touch, (tmp_path / "sprung",)

    (tmp_path / "trap.npz").write_bytes(pickle.dumps(Trap()))
    np.savez(tmp_path / "objects.npz", world=np.array([Trap()], object))
    for name in ("trap", "objects"):
        with pytest.raises(DataError, match=name):
            read_recording(tmp_path / f"{name}.npz")
    assert not (tmp_path / "sprung").exists()


def test_a_world_that_is_nowhere_is_named(tmp_path):
    with pytest.raises(DataMissing, match=r"no world 'nowhere'.*Give the path of its folder"):
        folder_of("nowhere", tmp_path)


def test_the_command_prints_a_row_of_each_recording_and_keeps_them(tmp_path, capsys):
    write_world(tmp_path / "five")
    files = [str(RECORDED / f"{name}.npz") for name in ("nothing", "attack")]
    assert main(["compare", *files, "--worlds", str(tmp_path), "--out", str(tmp_path / "table.tsv")]) == 0
    printed = capsys.readouterr().out
    assert printed == (tmp_path / "table.tsv").read_text(encoding="utf-8")
    head, *rows = (line.split("\t") for line in printed.splitlines())
    assert tuple(head) == COLUMNS and [row[1] for row in rows] == ["nothing", "attack", "-"]
    assert int(rows[2][3]) == int(rows[0][3]) + int(rows[1][3])  # steps of all
    for row in rows:
        values = dict(zip(head, row, strict=True))
        assert values["equal_ends"] == values["episodes"] and values["exceptions"] == "-"


def test_the_command_fails_where_an_episode_ends_otherwise(tmp_path, capsys):
    write_world(tmp_path / "five", load=1.3)
    assert main(["compare", str(RECORDED / "nothing.npz"), "--worlds", str(tmp_path)]) == 1
    assert "calm step 0: rho is off by" in capsys.readouterr().out


def test_a_recording_of_another_world_is_refused(tmp_path):
    world = write_world(tmp_path / "five")
    (world / "chronics" / "calm").rename(world / "chronics" / "rough")
    arrays = read_npz(RECORDED / "nothing.npz")
    with pytest.raises(DataError, match=r"does not fit .*five: rho \(6, not 7\), episode calm"):
        replay = PackageReplay(world, arrays, "float32")
        compare(arrays | {"rho": arrays["rho"][:, 1:]}, replay)
