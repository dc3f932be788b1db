"""Files that cannot be read: each gets one error of ours that names the file, what is wrong, and what to do."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import powerzoo_jax as pz
from powerzoo_jax.base.errors import CaseError, DataError, DataMissing, PowerZooError, RunError, SettingsError
from powerzoo_jax.base.npz import read_npz
from powerzoo_jax.cases import from_matpower
from powerzoo_jax.cli import main
from powerzoo_jax.cli.commands.leaderboard import _in_folder
from powerzoo_jax.cli.log import Log
from powerzoo_jax.cli.runs import Run, open_run
from powerzoo_jax.data import read_csv
from powerzoo_jax.data.adapters import read_official
from powerzoo_jax.data.adapters.ausgrid import LABELS
from powerzoo_jax.rl.training.config import PPOConfig, load
from powerzoo_jax.tasks.spec import from_toml

HOURS = [f"2023-01-01T{h:02d}:00Z" for h in range(24)]
LOAD = "time,load_mw\n" + "".join(f"{t},{1 + h / 4}\n" for h, t in enumerate(HOURS))
IDLE_MONTH = "time,load_mw,price_usd_per_mwh\n" + "".join(
    f"2023-01-{d:02d}T{h:02d}:00Z,0,30\n" for d in range(1, 32) for h in range(24)
)
GRID = """function mpc = grid
mpc.version = '2';
mpc.baseMVA = 10;
mpc.bus = [1 3 0 0 0 0 1 1 0 20 1 1.1 0.9; 2 1 {load} {load} 0 0 1 1 0 20 1 1.1 0.9];
mpc.gen = [{gen}];
mpc.branch = [{branch}];
"""
GEN, BRANCH = "1 0 0 10 -10 1 100 1 10 0", "1 2 0.01 0.01 0 0 0 0 0 0 1 -360 360"
NESO = "SETTLEMENT_DATE,SETTLEMENT_PERIOD,ND\n{y}-01-01,1,30000\n{y}-01-01,2,30000\n"
MID = "startTime,dataProvider,price,volume\n{y}-01-01T00:00Z,A,1,1\n{y}-01-01T00:30Z,A,1,1\n"
AEMO = "REGION,SETTLEMENTDATE,TOTALDEMAND,RRP,PERIODTYPE\n" + "".join(
    f"NSW1,{{y}}/01/01 0{h}:30:00,1000,50,TRADE\n" for h in range(2)
)
SMARD = "Date;Time of day;Germany/Luxembourg[€/MWh]\n01.01.{y};00:00;1\n01.01.{y};01:00;1\n"
AUSGRID = f"Zone Substation,Date,Unit,{','.join(LABELS)}\nX,{{y}}-01-01,MW,{','.join(['1'] * len(LABELS))}\n"
SECONDS = "m,{s},5,1,1,1,1,1,1\nm,300,5,1,1,1,1,1,1\n"
USAGE = "start_time,end_time,average_usage.cpus\n600000000,{end},0.1\n"
RUN = {"config": PPOConfig().to_dict(), "seeds": 1, "seed": 0}


def put(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def grid(folder: Path, load: str = "0.1", gen: str = GEN, branch: str = BRANCH, more: str = "") -> Path:
    return put(folder, "grid.m", GRID.format(load=load, gen=gen, branch=branch) + more)


def official(source: str, content: str | bytes, name: str = "file.csv") -> Callable[[Path], Any]:
    return lambda d: read_official(source, put(d, name, content))


def run(content: str | bytes) -> Callable[[Path], Any]:
    return lambda d: open_run(put(d, "run.json", content).parent)


def folder_named(name: str, read: Callable[[Path], Any]) -> Callable[[Path], Any]:
    def call(d: Path) -> Any:
        (d / name).mkdir()
        return read(d / name)

    return call


# what the file is -> (how it is read, the error, words of the message)
BROKEN: dict[str, tuple[Callable[[Path], Any], type[PowerZooError], str]] = {
    "series in Latin-1": (
        lambda d: read_csv(put(d, "my.csv", (LOAD + "München,1\n").encode("latin-1"))),
        DataError,
        r"my\.csv line 26 is not UTF-8 \(byte 0xfc, 'ü' in Latin-1 \(Windows-1252\)\)\. Save it as UTF-8",
    ),
    "series in UTF-16 without its mark": (
        lambda d: read_csv(put(d, "my.csv", LOAD.encode("utf-16-le"))),
        DataError,
        r"my\.csv holds zero bytes: .*UTF-16 without its mark\. Save it as text in UTF-8",
    ),
    "series in UTF-16, cut off": (
        lambda d: read_csv(put(d, "my.csv", LOAD.encode("utf-16")[:-1])),
        DataError,
        r"my\.csv begins as UTF-16 .*cut off\. Save it again",
    ),
    "spreadsheet": (
        lambda d: read_csv(put(d, "my.csv", b"PK\x03\x04" + bytes(100))),
        DataError,
        r"my\.csv is a zip archive or a spreadsheet, not text\. Unpack it, or export",
    ),
    "compressed series": (
        lambda d: read_csv(put(d, "my.csv", b"\x1f\x8b" + bytes(100))),
        DataError,
        r"my\.csv is compressed by gzip, not text\. Unpack it",
    ),
    "folder for a series": (
        folder_named("my.csv", read_csv),
        DataMissing,
        r"my\.csv' is a folder, not a file\. Give the path of the file",
    ),
    "series of another age": (
        lambda d: read_csv(put(d, "my.csv", LOAD.replace("2023", "2500", 1))),
        DataError,
        r"my\.csv: line 2 '2500-01-01T00:00Z' is outside the years 1678 to 2261\. Correct the year",
    ),
    "series of another age on a civil clock": (
        lambda d: read_csv(put(d, "my.csv", LOAD.replace("Z", "").replace("2023", "1600")), zone="Europe/Madrid"),
        DataError,
        r"my\.csv: line 2 '1600-01-01T00:00', .*and 19 more is outside the years 1678 to 2261",
    ),
    "column given twice": (
        lambda d: read_csv(put(d, "my.csv", "time,load_mw,load_mw\n2023-01-01,1,2\n2023-01-02,1,2\n")),
        DataError,
        r"my\.csv has the column load_mw twice\. Keep one",
    ),
    "load of zero throughout": (
        lambda d: pz.make("battery_arbitrage", data_source=str(put(d, "my.csv", IDLE_MONTH))),
        DataError,
        r"my\.csv: the largest value of load\.actual_mw is 0, .*Give a signal with positive values",
    ),
    "NESO of another age": (official("neso", NESO.format(y=2500)), DataError, r"file\.csv line 2: 2500-01-01 .*1678"),
    "NESO at the end of time": (official("neso", NESO.format(y=9999)), DataError, r"file\.csv line 2: 9999-01-01"),
    "NESO in Latin-1": (
        official("neso", NESO.format(y=2023).encode() + b"\xe9,1,1\n"),
        DataError,
        r"file\.csv line 4 is not UTF-8 \(byte 0xe9",
    ),
    "Elexon of another age": (official("elexon_mid", MID.format(y=2500)), DataError, r"file\.csv line 2: 2500-01-01"),
    "Elexon's JSON in Latin-1": (
        official("elexon_mid", b'[{"a": "\xfc"}]', "file.json"),
        DataError,
        r"file\.json line 1 is not UTF-8",
    ),
    "Elexon's JSON, nested without end": (
        official("elexon_mid", "[" * 100_000, "file.json"),
        DataError,
        r"file\.json is not JSON .*Download it again",
    ),
    "Elexon's JSON with numbers for records": (
        official("elexon_fuelhh", '[{"startTime": "2023-01-01T00:00Z", "data": [1, 2]}]', "file.json"),
        DataError,
        r"file\.json has no column 'fuelType'",
    ),
    "AEMO of another age": (official("aemo", AEMO.format(y=2500)), DataError, r"file\.csv line 2: 2500-01-01 00:30"),
    "SMARD of another age": (official("smard", SMARD.format(y=2500)), DataError, r"file\.csv line 2: 2500-01-01"),
    "SMARD in Windows-1252": (
        official("smard", SMARD.format(y=2023).encode("cp1252")),
        DataError,
        r"file\.csv line 1 is not UTF-8 \(byte 0x80, '€'",
    ),
    "Ausgrid of another age": (official("ausgrid", AUSGRID.format(y=2500)), DataError, r"line 2: 2500-01-01 00:00"),
    "Ausgrid before the calendar": (official("ausgrid", AUSGRID.format(y="0001")), DataError, r"line 2: 0001-01-01"),
    "trace without end": (official("alibaba", SECONDS.format(s="inf")), DataError, r"line 1: the time stamp is 'inf'"),
    "trace of ages": (official("alibaba", SECONDS.format(s="1e30")), DataError, r"line 1: the time stamp is '1e30'"),
    "trace with a start that is none": (
        lambda d: read_official("alibaba", put(d, "u.csv", SECONDS.format(s="0")), start="noon"),
        DataError,
        r"start 'noon' is no instant of a trace",
    ),
    "Google's trace beyond its integers": (
        lambda d: (
            put(d, "machine_events.csv", "time,machine_id,type,capacity.cpus\n0,1,1,1\n"),
            put(d, "instance_usage.csv", USAGE.format(end=10**23)),
            read_official("google", d),
        ),
        DataError,
        r"instance_usage\.csv line 2: '1000+' exceeds",
    ),
    "grid that is binary": (
        lambda d: from_matpower(put(d, "grid.m", bytes(range(256)) * 20)),
        CaseError,
        r"grid\.m holds zero bytes: it is binary",
    ),
    "folder for a grid": (folder_named("grid.m", from_matpower), DataMissing, r"grid\.m' is a folder, not a case file"),
    "grid indexed by infinity": (
        lambda d: from_matpower(grid(d, more="mpc.bus(1e400, 3) = 1;\n")),
        CaseError,
        r"index '1e400' = inf is outside 1\.\.2",
    ),
    "settings in Latin-1": (
        lambda d: load(put(d, "my.toml", b'# M\xfcller\ntask = "dso"\n')),
        SettingsError,
        r"my\.toml line 1 is not UTF-8",
    ),
    "settings with a section that is a number": (
        lambda d: load(put(d, "my.toml", "ppo = 3\n")),
        SettingsError,
        r"my\.toml: ppo = 3 must be a section: write \[ppo\]",
    ),
    "settings with an unknown name": (
        lambda d: load(put(d, "my.toml", "[ppo]\nlearning_rate = 1.0\n")),
        SettingsError,
        r"my\.toml: Unknown ppo setting 'learning_rate'",
    ),
    "folder for settings": (folder_named("my.toml", load), DataMissing, r"my\.toml' is a folder, not a settings file"),
    "no settings": (lambda d: load(d / "my.toml"), DataMissing, r"There is no settings file .*my\.toml"),
    "task that is no TOML": (
        lambda d: from_toml(put(d, "my.toml", "a = = 3\n")),
        SettingsError,
        r"task file .*my\.toml: Invalid value \(at line 1, column 5\)\. Correct that line",
    ),
    "task with text for a number": (
        lambda d: from_toml(put(d, "my.toml", TASK_FILE.replace("horizon = 48", 'horizon = "48"'))),
        SettingsError,
        r"my\.toml: horizon = '48' must be of type int",
    ),
    "npz that is cut off": (
        lambda d: (np.savez(d / "a.npz", x=np.zeros(9)), read_npz(put(d, "b.npz", (d / "a.npz").read_bytes()[:90]))),
        DataError,
        r"b\.npz is damaged .*Restore the file",
    ),
    "run.json cut off": (
        run(json.dumps(RUN)[:60]),
        RunError,
        r"run\.json is not JSON \(.*line 1 column \d+.*\)\. Restore the file, or choose another folder",
    ),
    "run.json empty": (run(""), RunError, r"run\.json is empty\. Restore"),
    "run.json binary": (run(bytes(64)), RunError, r"run\.json holds zero bytes"),
    "run.json with a list": (run("[1, 2]"), RunError, r"run\.json does not hold the settings of a run: .*Restore"),
    "run.json without seeds": (run(json.dumps({**RUN, "seeds": None})), RunError, r"seeds is None, not a whole number"),
    "run.json without settings": (run('{"seeds": 1}'), RunError, r"run\.json .*it lacks 'config'"),
    "run.json of an unknown learner": (
        run(json.dumps({**RUN, "config": {**RUN["config"], "algorithm": "pbo"}})),
        RunError,
        r"run\.json .*Unknown algorithm 'pbo'\. Did you mean 'ppo'",
    ),
    "log that is binary": (lambda d: Log(put(d, "log.tsv", b"\xff\x81" * 9), 3), RunError, r"log\.tsv line 1 is not"),
    "row.json cut off": (
        lambda d: _in_folder(Run(put(d, "row.json", '{"task": ').parent, PPOConfig())),
        RunError,
        r"row\.json is not JSON .*Remove the file, and the run is scored again",
    ),
}
TASK_FILE = """id = "mine"
version = 1
family = "feeder"
case = "case33bw"
horizon = 48
dt_hours = 0.5
split = "train"
agents = ["a"]
cost_names = []
cost_budget = []
term_names = []
term_weights = []
"""


@pytest.mark.parametrize("what", BROKEN)
def test_one_error_tells_what_to_do_with_a(what, tmp_path):
    read, error, words = BROKEN[what]
    with pytest.raises(error, match=words) as caught:
        read(tmp_path)
    text = str(caught.value)
    assert text.count("\n") == ("problem(s)" in text)  # a list of problems stands below its heading


def test_a_task_file_is_read(tmp_path):
    assert from_toml(put(tmp_path, "my.toml", "\ufeff" + TASK_FILE)).horizon == 48


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_marked_encoding_is_read(encoding, tmp_path):
    plain, marked = put(tmp_path, "a.csv", LOAD), put(tmp_path, "b.csv", LOAD.encode(encoding))
    for signal, values in read_csv(plain).columns.items():
        np.testing.assert_array_equal(read_csv(marked).columns[signal], values)


def test_big_endian_text_of_an_official_file_is_read(tmp_path):
    text = b"\xfe\xff" + SMARD.format(y=2023).encode("utf-16-be")
    series, _ = read_official("smard", put(tmp_path, "prices.csv", text))
    assert series.column("price.day_ahead_per_mwh").tolist() == [1.0, 1.0]


def test_columns_may_be_separated_by_tabs_as_spreadsheets_write_unicode_text(tmp_path):
    series = read_csv(put(tmp_path, "load.txt", LOAD.replace(",", "\t").encode("utf-16")))
    assert series.column("load.actual_mw")[4] == 2.0


def test_a_grid_file_keeps_the_accents_of_its_author(tmp_path):
    text = "% M\xfcller\n" + GRID.format(load="0.1", gen=GEN, branch=BRANCH)
    assert from_matpower(put(tmp_path, "old.m", text.encode("latin-1"))).citation == "Müller"
    assert from_matpower(put(tmp_path, "wide.m", text.encode("utf-16"))).citation == "Müller"


EMPTY = {
    "all loads zero": ({"load": "0"}, 0, "load 0 MW"),
    "no unit": ({"gen": ""}, 0, "the reference bus has no unit in service"),
    "no unit and no load": ({"gen": "", "load": "0"}, 0, "0 units, load 0 MW"),
    "no branch": ({"branch": ""}, 1, "1 bus(es) are not connected with the reference bus"),
}


@pytest.mark.parametrize("what", EMPTY)
def test_check_takes_a_grid_with(what, tmp_path, capsys):
    changes, status, words = EMPTY[what]
    assert main(["check", str(grid(tmp_path, **changes))]) == status
    assert words in capsys.readouterr().out


def test_a_file_that_may_not_be_read_is_named():
    """Root may read everything, so it becomes nobody for a moment."""
    root = os.geteuid() == 0
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        path = put(Path(folder), "my.csv", LOAD)
        path.chmod(0)
        try:
            if root:
                os.seteuid(65534)
            with pytest.raises(DataError, match=r"my\.csv' cannot be read: Permission denied\. Check"):
                read_csv(path)
        finally:
            if root:
                os.seteuid(0)


@pytest.mark.parametrize("command", ["evaluate", "train"])
def test_a_broken_run_is_told_in_one_line(command, tmp_path, capsys):
    put(tmp_path, "run.json", '{"config"')
    more = ["battery_arbitrage", "--resume", "--out"] if command == "train" else []
    assert main([command, *more, str(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert "run.json is not JSON" in err and err.count("\n") == 1 and "Traceback" not in err
