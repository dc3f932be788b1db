"""Environment folders that are broken, foreign or hostile: each is refused by a sentence, and nothing is executed."""

from __future__ import annotations

import bz2
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from powerzoo_jax.base.errors import CaseError, DataError, DataMissing, PowerZooError
from powerzoo_jax.families.operation.grid2op import chronics
from powerzoo_jax.families.operation.grid2op.episodes import choose_episodes, read_episodes
from powerzoo_jax.families.operation.grid2op.example import ROWS, write_world
from powerzoo_jax.families.operation.grid2op.world import read_world

pytestmark = pytest.mark.property
CALM = "chronics/calm"


@pytest.fixture
def folder(tmp_path):
    return write_world(tmp_path / "five")


def read(folder: Path, **keywords: Any) -> Any:
    world = read_world(folder, **keywords)
    return world, *read_episodes(world, world.episodes, (5,))


def net(folder: Path, change: Callable[[dict], None]) -> None:
    path = folder / "grid.json"
    saved = json.loads(path.read_text())
    change(saved["_object"])
    path.write_text(json.dumps(saved))


def table(name: str, column: str, row: int, value: Any) -> Callable[[Path], None]:
    """Change of one entry of a table of grid.json, or of its index."""

    def change(saved: dict) -> None:
        content = json.loads(saved[name]["_object"])
        if column == "index":
            content["index"][row] = value
        else:
            content["data"][row][content["columns"].index(column)] = value
        saved[name]["_object"] = json.dumps(content)

    return lambda folder: net(folder, change)


def text(name: str, old: str, new: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        before = (folder / name).read_text()
        assert old in before
        (folder / name).write_text(before.replace(old, new))

    return change


def replaced(name: str, content: bytes, to: str = "") -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / (to or name)).write_bytes(content)

    return change


def parameter(key: str, value: Any) -> Callable[[Path], None]:
    return replaced("parameters.json", json.dumps({key: value}).encode())


def without(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def link(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        away = folder.parent / "away"
        (folder / name).rename(away)
        (folder / name).symlink_to(away)

    return change


REFUSED = {
    "no grid": (without("grid.json"), DataMissing, "grid.json"),
    "no config": (without("config.py"), DataMissing, "config.py"),
    "no series": (lambda f: [p.unlink() for p in (f / CALM).glob("*.csv")], DataMissing, "holds no series"),
    "no episodes": (lambda f: shutil.rmtree(f / "chronics"), DataMissing, "chronics"),
    "no table of storages": (without("storage_units_charac.csv"), DataMissing, "storage_units_charac.csv"),
    "cut row": (text(f"{CALM}/load_p.csv", "20.000;33.787;", "20."), DataError, "row"),
    "cut rows": (replaced(f"{CALM}/load_p.csv", b"load_1_0;load_2_1;load_3_2;load_4_3\n1;2;3;4\n1;2;3;4\n"),
                 DataError, "need the same number"),
    "header": (text(f"{CALM}/prod_p.csv", "gen_3_2", "gen_3_3"), DataError, "has no column of unit gen_3_2"),
    "text": (text(f"{CALM}/load_q.csv", "5.000", "five"), DataError, "could not convert"),
    "no output of a unit": (text(f"{CALM}/prod_p.csv", ";25.", ";;"), DataError, "row"),
    "maintenance": (text("chronics/outages/maintenance.csv", "1.000", "2.000"), DataError, "other values than 0 and 1"),
    "packed and cut": (replaced(f"{CALM}/load_p.csv", bz2.compress(b"load_1_0")[:-4], f"{CALM}/load_p.csv.bz2"),
                       DataError, "cannot be unpacked"),
    "clock": (replaced(f"{CALM}/start_datetime.info", b"yesterday"), DataError, "no time"),
    "step": (replaced(f"{CALM}/time_interval.info", b"25 min"), DataError, "no interval"),
    "link out of the folder": (link(f"{CALM}/load_p.csv"), DataError, "leads out of"),
    "link of the net": (link("grid.json"), DataError, "leads out of"),
    "initial state": (replaced(f"{CALM}/init_state.json", b"{}"), DataError, "init_state.json asks for"),
    "several slacks": (table("gen", "slack", 1, True), CaseError, "2 units that balance"),
    "numbers of buses": (table("bus", "index", 4, 7), CaseError, "not numbered 0, 1, 2"),
    "unknown bus": (table("load", "bus", 0, 9), CaseError, "Give buses, 0 to 4"),
    "line out of service": (table("line", "in_service", 2, False), CaseError, "out of service"),
    "line of two voltages": (table("line", "to_bus", 4, 4), CaseError, "two nominal voltages"),
    "parallel lines": (table("line", "parallel", 0, 2), CaseError, "parallel = 2"),
    "neutral tap": (table("trafo", "tap_neutral", 0, 1), CaseError, "tap_neutral = 1"),
    "three windings": (lambda f: net(f, lambda n: n.update(trafo3w=n["trafo"])), CaseError, "trafo3w has 2 rows"),
    "no net": (replaced("grid.json", b"[1, 2]"), CaseError, "no table `bus`"),
    "class of series": (text("config.py", '"grid_value_class": Grid', '"grid_value_class": Wind'), DataError,
                        "grid_value_class 'WindStateFromFileWithForecasts'"),
    "class of rules": (text("config.py", '"gamerules_class": Default', '"gamerules_class": No'), DataError, "NoRules"),
    "no areas": (text("config.py", '"gamerules_class": DefaultRules', '"gamerules_class": RulesByArea'), DataError,
                 "each of the substations 0 to 4 once"),
    "areas": (text("config.py", '"gamerules_class": DefaultRules', '"gamerules_class": RulesByArea([[0, 1], ["2"]])'),
              DataError, "each of the substations 0 to 4 once"),
    "class of actions": (text("config.py", '"action_class": Play', '"action_class": Pay'), DataError, "PayableAction"),
    "limits": (text("config.py", "'0_1_0': 260.0", "'0_1_0': -1"), DataError, "thermal_limits"),
    "arithmetic of texts": (text("config.py", "2 * 5", "'2' * 10 ** 9"), DataError, "is read, not executed"),
    "a call": (text("config.py", "2 * 5", "open('/tmp/x', 'w')"), DataError, "h_forecast"),
    "a loop": (text("config.py", "config = {", "for config in ({},):\n    pass\nconfig = {"), DataError, "changes"),
    "syntax": (text("config.py", "config = {", "config = {{"), DataError, "cannot be read"),
    "direct current": (parameter("ENV_DC", True), DataError, "ENV_DC = True asks for a DC flow"),
    "limited storages": (parameter("LIMIT_INFEASIBLE_CURTAILMENT_STORAGE_ACTION", True), DataError, "LIMIT_INFEASIBLE"),
    "constraints": (parameter("STOP_EP_IF_GEN_BREAK_CONSTRAINTS", True), DataError, "STOP_EP_IF_GEN"),
    "unknown parameter": (parameter("MAX_SUBS", 2), DataError, "Did you mean 'MAX_SUB_CHANGED'"),
    "kind of a parameter": (parameter("MAX_SUB_CHANGED", "two"), DataError, "must be of type int"),
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSED)
def test_a_folder_that_cannot_be_played_is_refused_by_a_sentence(kind, folder):
    change, error, says = REFUSED[kind]
    change(folder)
    with pytest.raises(error) as caught:
        read(folder)
    message = str(caught.value)
    assert says in message and "five" in message and message.rstrip().endswith("."), message
    assert len(message) < 600


@pytest.mark.parametrize("name", ["blank", "l2rpn_2019"])
def test_what_grid2op_itself_cannot_play_is_refused_by_name(name, folder):
    with pytest.raises(DataError, match=name):
        read_world(folder.rename(folder.parent / name))


def test_a_folder_of_several_worlds_lists_them(folder):
    shutil.copytree(folder, folder.parent / "x2.5")
    with pytest.raises(DataError, match=r"several environments: five, x2\.5"):
        read_world(folder.parent)
    with pytest.raises(DataMissing, match="There is no folder"):
        read_world(folder / "none")


def test_an_unknown_difficulty_or_episode_proposes_the_nearest(folder):
    levels = {"0": {}, "1": {"MAX_SUB_CHANGED": 4}, "competition": {"MAX_SUB_CHANGED": 9}}
    (folder / "difficulty_levels.json").write_text(json.dumps(levels))
    assert read_world(folder).parameters["MAX_SUB_CHANGED"] == 9
    assert read_world(folder, difficulty=1).parameters["MAX_SUB_CHANGED"] == 4
    parameter("NB_TIMESTEP_LINE_STATUS_REMODIF", 7)(folder)
    assert read_world(folder).parameters["NB_TIMESTEP_COOLDOWN_LINE"] == 0
    (folder / "difficulty_levels.json").rename(folder / "levels.json")
    assert read_world(folder).parameters["NB_TIMESTEP_COOLDOWN_LINE"] == 7  # a name of older files
    (folder / "levels.json").rename(folder / "difficulty_levels.json")
    with pytest.raises(DataError, match="Did you mean 'competition'"):
        read_world(folder, difficulty="competitive")
    with pytest.raises(DataError, match="Did you mean 'calm'"):
        choose_episodes(read_world(folder), ["kalm"])
    for wrong in (5.5, [["calm"]], 2, -3):
        with pytest.raises(DataError, match="Unknown episode"):
            choose_episodes(read_world(folder), wrong)
    with pytest.raises(DataError, match="none of them in 'val'"):
        choose_episodes(read_world(folder), "val")


def test_a_packed_file_is_unpacked_up_to_a_limit(folder, monkeypatch):
    path = folder / CALM / "load_p.csv"
    content = path.read_bytes()
    replaced(f"{CALM}/load_p.csv", bz2.compress(content), f"{CALM}/load_p.csv.bz2")(folder)
    rows = read(folder)[1]
    path.write_bytes(content)
    np.testing.assert_array_equal(read(folder)[1].p_load, rows.p_load)
    path.unlink()
    monkeypatch.setattr(chronics, "MAX_TABLE_MB", 1.0)
    (folder / CALM / "load_p.csv.bz2").write_bytes(bz2.compress(b"0;" * 10**6))
    with pytest.raises(DataError, match=r"unpacked, has .* the limit is 1\."):
        read(folder)


def test_empty_fields_keep_the_value_before(folder):
    path = folder / CALM / "load_p.csv"
    lines = path.read_text().splitlines()
    lines[1], lines[3] = ";".join(["", *lines[1].split(";")[1:]]), ";".join([*lines[3].split(";")[:3], " "])
    before, first = lines[2].split(";")[3], 20.0  # of the load in grid.json
    path.write_text("\n".join(lines))
    p = read(folder)[1].p_load
    assert p[0, 0] == np.float32(first) and p[2, 3] == np.float32(before)


def test_a_large_episode_is_parsed_once(folder, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(chronics, "KEPT_BYTES", 1)
    first = read(folder)[1]
    kept = list((tmp_path / "cache").rglob("*.npz"))
    assert len(kept) == 2
    monkeypatch.setattr(chronics, "_read_csv", lambda path: pytest.fail(f"{path} was parsed again"))
    for key in ("p_unit", "out", "left", "v_set", "clock"):
        np.testing.assert_array_equal(getattr(read(folder)[1], key), getattr(first, key))
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(chronics, "KEPT_BYTES", 1)
    for path in kept:
        path.write_bytes(b"damaged")
    np.testing.assert_array_equal(read(folder)[1].p_unit, first.p_unit)
    text(f"{CALM}/prod_p.csv", "25.", "26.")(folder)
    assert (read(folder)[1].p_unit[:ROWS] != first.p_unit[:ROWS]).any()


def test_notes_say_what_is_left_out_and_whose_the_folder_is(folder):
    text("config.py", '"reward_class": RedispReward', '"reward_class": AlarmReward, "has_attention_budget": True')(
        folder
    )
    (folder / "LICENSE").write_text("\nCreative Commons BY 4.0\n")
    (folder / "helper.py").write_text("# Copyright (c) 2030, Somebody\nraise SystemExit\n")
    (folder / "AUTHORS.png").write_bytes(b"\0\1\2")
    notes = "\n".join(read_world(folder).notes)
    for part in (
        "AlarmReward is not offered",
        "attention",
        "LICENSE: Creative Commons",
        "helper.py: Copyright (c) 2030",
    ):
        assert part in notes


def test_random_damage_ends_in_a_sentence_or_in_finite_numbers(tmp_path):
    values = [None, True, -1, 2**70, 1e308, float("nan"), "", "hv", [], {}, "\x1b[31m"]
    rng = random.Random(5)
    for k in range(60):
        folder = write_world(tmp_path / f"five_{k}", drawn=k % 2 == 1)
        path = rng.choice([p for p in folder.rglob("*") if p.is_file()])
        content = bytearray(path.read_bytes())
        if path.suffix == ".json" and rng.random() < 0.7:
            saved = json.loads(content)
            node = saved.get("_object", saved)
            node[rng.choice(list(node))] = rng.choice(values)
            content = bytearray(json.dumps(saved).encode())
        elif rng.random() < 0.5:
            del content[rng.randrange(len(content)) :]
        else:
            for _ in range(3):
                content[rng.randrange(len(content))] = rng.randrange(256)
        path.write_bytes(bytes(content))
        try:
            rows = read(folder)[1]
        except PowerZooError as err:
            assert 20 < len(str(err)) < 1500
        else:
            assert np.isfinite(rows.p_unit).all() and np.isfinite(rows.v_set).all()
