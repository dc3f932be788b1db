"""Files and folders of others: none runs code, leads out of its folder, hangs, or costs work that is there."""

from __future__ import annotations

import ast
import json
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import powerzoo_compat
import pytest

import powerzoo_jax
from powerzoo_jax.base import npz
from powerzoo_jax.base.errors import (
    CheckpointError,
    DataError,
    PowerZooError,
    Problem,
    RunError,
    WriteError,
    excerpt,
    render_problems,
)
from powerzoo_jax.base.files.results import file_name, write_text
from powerzoo_jax.base.npz import read_npz, write_npz
from powerzoo_jax.cases import load_case, to_matpower
from powerzoo_jax.cli import main
from powerzoo_jax.cli.lock import HOLDER, LOCK, hold
from powerzoo_jax.cli.log import Log
from powerzoo_jax.cli.runs import CHECKPOINT, LOG, ROW, RUN_FILE, SCORES, SELECTED, Run, drop_results, open_run
from powerzoo_jax.cli.table import render, render_pairs, write_json
from powerzoo_jax.envs import save_traces
from powerzoo_jax.plot import episode_html, save_figure
from powerzoo_jax.plot.layout import new_figure
from powerzoo_jax.rl import save_offline
from powerzoo_jax.rl.training import checkpoint
from powerzoo_jax.rl.training.config import PPOConfig
from powerzoo_jax.rl.training.digests import write_digests
from tests.cli.test_damaged_files import offline, traces

TASK = "battery_arbitrage"
ESCAPE = "\x1b]0;owned\x07\x1b[2J\u202e"
SETTINGS = PPOConfig().to_dict()


def contents(folder: Path) -> dict[str, Any]:
    """Everything in a folder: the bytes of files, where links lead, and when they were changed."""
    return {
        str(path.relative_to(folder)): (
            os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None,
            path.lstat().st_mtime_ns,
        )
        for path in folder.rglob("*")
    }


def put_run(folder: Path, **more: Any) -> Path:
    """A folder with the record of a run."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RUN_FILE).write_text(json.dumps({"config": SETTINGS, "seeds": 1, "seed": 0, **more}))
    return folder


# ---- nothing in a run is executed


@pytest.fixture
def trap(tmp_path) -> tuple[Path, Path]:
    """(run, witness): the run names a module that would write the witness, and a task that it would register."""
    witness, module = tmp_path / "witness", tmp_path / "trap_tasks.py"
    module.write_text(f"open({str(witness)!r}, 'w').close()\n")
    run = put_run(tmp_path / "run", modules=[str(module)], config={**SETTINGS, "task": "somebodys_task"})
    return run, witness


COMMANDS = {
    "evaluate": ["evaluate", "RUN"],
    "view": ["view", "RUN"],
    "plot": ["plot", "RUN"],
    "dataset": ["dataset", "RUN"],
    "dataset of a policy": ["dataset", TASK, "--policy", "RUN"],
    "export": ["export", "RUN"],
    "train on": ["train", TASK, "--resume", "--out", "RUN"],
    "sweep on": ["sweep", TASK, "--over", "lr=1e-3", "--resume", "--out", "RUN"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_opening_anothers_run_runs_nothing_of_it(command, trap, capsys):
    run, witness = trap
    assert main([word.replace("RUN", str(run)) for word in COMMANDS[command]]) == 2
    assert not witness.exists()
    assert re.search(r"trap_tasks\.py, which is not run unasked\. .*--module", capsys.readouterr().err)


def test_a_run_that_begins_with_anothers_runs_nothing_of_it(trap, tmp_path):
    run, witness = trap
    assert main(["train", TASK, "--set", f"start_from={run}", "--set", "updates=1", "--out", str(tmp_path / "o")]) == 2
    assert not witness.exists()


def test_a_run_of_a_shipped_task_needs_no_module(tmp_path):
    run = open_run(put_run(tmp_path / "run", modules=["/nowhere/mine.py"]))
    assert run.config.task == TASK and run.modules == ("/nowhere/mine.py",)


# ---- a folder is ours by its record alone

FOREIGN: dict[str, Callable[[Path], Any]] = {
    "results of something else": lambda d: (d / "thesis.tex").write_text("years of work"),
    "a checkpoint of something else": lambda d: (d / CHECKPOINT / "1").mkdir(parents=True),
    "selected photographs": lambda d: ((d / SELECTED).mkdir(), (d / SELECTED / "a.jpg").write_bytes(b"\xff")),
    "a record that is no JSON": lambda d: (d / RUN_FILE).write_text("run: 3"),
    "a record of another program": lambda d: (d / RUN_FILE).write_text('{"config": {"lr": 1}, "seeds": 1}'),
    "a record that is a folder": lambda d: (d / RUN_FILE).mkdir(),
    "a lock of another program": lambda d: (d / LOCK).write_text("pid 7"),
    "scores": lambda d: (d / SCORES).write_text("[1, 2]"),
    "a run of ours with a link": lambda d: (put_run(d), (d / CHECKPOINT).symlink_to(d.parent)),
}
TRAINING = {
    "train": ["train", TASK, "--out", "DIR"],
    "overwrite": ["train", TASK, "--out", "DIR", "--overwrite"],
    "resume": ["train", TASK, "--out", "DIR", "--resume"],
    "sweep": ["sweep", TASK, "--over", "lr=1e-3,1e-4", "--out", "DIR", "--overwrite"],
    "leaderboard": ["leaderboard", f"{TASK}:ppo", "--runs", "UP", "--page", "UP/page.md"],
    "demo": ["demo", "--quick", "--out", "UP"],
}


@pytest.mark.parametrize("command", TRAINING)
@pytest.mark.parametrize("what", FOREIGN)
def test_a_folder_that_is_no_run_of_ours_is_refused_and_untouched(what, command, tmp_path, capsys):
    folder = tmp_path / {"leaderboard": f"{TASK}_ppo", "demo": "demo_ppo"}.get(command, "mine")
    folder.mkdir()
    FOREIGN[what](folder)
    before = contents(folder), folder.stat().st_mtime_ns
    words = [word.replace("DIR", str(folder)).replace("UP", str(tmp_path)) for word in TRAINING[command]]
    assert main(words) == 2
    assert folder.name in capsys.readouterr().err
    assert (contents(folder), folder.stat().st_mtime_ns) == before


def test_training_again_removes_what_training_left_and_nothing_else(tmp_path):
    run = Run(put_run(tmp_path / "run"), PPOConfig())
    for name in (CHECKPOINT, SELECTED):
        (run.folder / name / "1").mkdir(parents=True)
    for name in (LOG, SCORES, ROW, "notes.txt", "policy.onnx"):
        (run.folder / name).write_text("x")
    drop_results(run)
    assert {path.name for path in run.folder.iterdir()} == {RUN_FILE, "notes.txt", "policy.onnx"}


# ---- nothing is written outside


@pytest.mark.parametrize("task", ["../outside", "/tmp/absolute", "a/b", "..", ".hidden", "x" * 300, "n\x00l", ESCAPE])
def test_a_page_stays_in_its_folder_whatever_the_task_of_a_trace_is_called(task, tmp_path, monkeypatch, capsys):
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    (trace, *_) = traces().values()
    object.__setattr__(trace, "task", task)
    save_traces("t.npz", {"rule": trace})
    assert main(["view", "t.npz"]) == 0
    (page,) = (work / "results").iterdir()
    assert page.name.endswith("_episode.html") and page.parent == work / "results"
    assert {path.name for path in tmp_path.iterdir()} == {"work"}
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize("words", [("../x",), ("/etc/passwd",), ("..",), ("a", "b/c"), ("é\n",)])
def test_a_name_of_a_file_is_no_path(words):
    assert re.fullmatch(r"[\w-][\w.-]*", file_name(*words) or "-")


def elsewhere(path: Path) -> Path:
    other = path.parent.parent / "other.txt"
    other.write_text("precious")
    path.symlink_to(other)
    return other


def hard(path: Path) -> Path:
    other = path.parent.parent / "other.txt"
    other.write_text("precious")
    path.hardlink_to(other)
    return other


@pytest.mark.parametrize("link", [elsewhere, hard])
def test_a_lock_follows_no_link(link, tmp_path):
    folder = put_run(tmp_path / "run")
    other = link(folder / LOCK)
    with pytest.raises(RunError, match=r"\.lock is no lock of ours"), hold(folder, "mine"):
        pass
    assert other.read_text() == "precious" and (folder / LOCK).exists()


@pytest.mark.parametrize("text", ["pid 7", '{"pid": 7}', "[" * 5000, '{"command": 1, "pid": 2, "host": 3, "since": 4}'])
def test_a_lock_of_another_program_is_left(text, tmp_path):
    (tmp_path / LOCK).write_text(text)
    with pytest.raises(RunError, match="no lock of ours"), hold(tmp_path, "mine"):
        pass
    assert (tmp_path / LOCK).read_text() == text


def test_the_holder_that_a_file_names_is_printable(tmp_path, monkeypatch):
    monkeypatch.setattr("powerzoo_jax.cli.lock.fcntl", None)
    told = {"command": ESCAPE, "pid": 7, "host": ESCAPE, "since": ESCAPE}
    (tmp_path / HOLDER).write_text(json.dumps(told))
    with pytest.raises(RunError) as caught, hold(tmp_path, "mine"):
        pass
    assert str(caught.value).isprintable()


# ---- what is no file is not opened

SPECIAL = """
import os, sys
from pathlib import Path
import powerzoo_jax as pz
from powerzoo_compat._textfile import read_file
from powerzoo_compat.powerzoo_api.benchmarks.offline import DatasetLoader
from powerzoo_jax.base.npz import read_npz
from powerzoo_jax.cases import from_matpower, read_opendss, scan_grid
from powerzoo_jax.cli.board import read_rows
from powerzoo_jax.cli.own import load_modules
from powerzoo_jax.cli.runs import open_run, require_ours
from powerzoo_jax.data import read_csv
from powerzoo_jax.data.adapters import read_official
from powerzoo_jax.envs import load_traces
from powerzoo_jax.rl import load_offline
from powerzoo_jax.rl.training.config import load
from powerzoo_jax.rl.training.digests import check_digests
from powerzoo_jax.rl.zoo import load_policy
from powerzoo_jax.tasks.spec import from_toml

def run_of(path):
    return open_run(path.parent)

def ours(path):
    return require_ours(path.parent)

def redirected(path):
    master = path.with_name("master.dss")
    master.write_text(f"Clear\\nNew Circuit.c basekv=1 bus1=s\\nRedirect {path.name}\\n")
    return read_opendss(master)

READERS = {
    "npz": (read_npz, load_traces, load_offline, load_policy, DatasetLoader),
    "m": (from_matpower, scan_grid),
    "dss": (read_opendss, scan_grid, redirected),
    "json": (scan_grid, read_rows, run_of, ours, lambda p: check_digests(p.parent, 1)),
    "csv": (read_csv, lambda p: read_official("neso", p), lambda p: pz.make("battery_arbitrage", data_source=str(p))),
    "toml": (load, from_toml, read_file),
    "yaml": (read_file,),
    "py": (lambda p: load_modules([p]),),
}
top = Path(sys.argv[1])
for ending, readers in READERS.items():
    for kind in ("pipe", "device"):
        for k, read in enumerate(readers):
            folder = top / f"{ending}_{kind}_{k}"
            folder.mkdir()
            path = folder / ("run.json" if read in (run_of, ours) else f"a.{ending}")
            os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
            try:
                read(path)
                print("READ", ending, kind, k)
            except Exception as err:
                print(type(err).__module__, type(err).__name__, ending, kind, k, "|", err)
"""


@pytest.mark.full
def test_no_reader_opens_a_pipe_or_a_device(tmp_path):
    """In a process of its own: one that opened the pipe would wait forever, the device fill the memory."""
    command = [sys.executable, "-c", SPECIAL, str(tmp_path)]
    out = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout.splitlines()
    assert len(out) == 2 * 23
    for line in out:
        assert line.startswith("powerzoo_jax.base.errors ") and re.search(
            "a device, a pipe|no regular file|no run", line
        )


def test_the_list_of_an_archive_is_measured_before_it_is_read(tmp_path, monkeypatch):
    path = tmp_path / "many.npz"
    write_npz(path, {f"a{k}": np.zeros(0) for k in range(300)})
    assert len(read_npz(path)) == 300
    monkeypatch.setattr(npz, "MAX_LIST_MB", 0.01)
    with pytest.raises(DataError, match=r"many\.npz lists arrays in more than 0\.01 MB"):
        read_npz(path)


def test_a_packed_file_beyond_the_limit_is_not_read(tmp_path):
    write_npz(tmp_path / "a.npz", {"a": np.random.default_rng(0).random(10_000)})
    with pytest.raises(DataError, match=r"the limit is 0\.05"):
        read_npz(tmp_path / "a.npz", max_mb=0.05)


def test_a_checkpoint_with_a_pipe_is_refused(tmp_path):
    checkpoint.save(tmp_path, {"w": jnp.zeros(3)}, PPOConfig(), updates=1)
    os.mkfifo(tmp_path / "1" / "more")
    with pytest.raises(CheckpointError, match="more is no regular file"):
        checkpoint.load_config(tmp_path)


# ---- a full disk costs nothing that is there


@contextmanager
def full_disk(most: int = 100) -> Iterator[None]:
    """No file grows beyond `most` bytes: what the system says then stands for a disk without room."""
    before, limits = signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)


def _command(*words: str) -> None:
    """A command whose one sentence becomes an error again."""
    from powerzoo_jax.cli.main import build_parser

    options = build_parser().parse_args(words)
    module, function = options.run.split(":")
    options.module = ()
    getattr(__import__(module, fromlist=[function]), function)(options)


BOARD = Path(__file__).parents[2] / "docs" / "leaderboard.json"
WRITERS: dict[str, Callable[[Path], Any]] = {
    "records.json": lambda path: write_json({"a": list(range(100))}, path),
    "traces.npz": lambda path: save_traces(path, traces()),
    "data.npz": lambda path: save_offline(path, offline()),
    "grid.m": lambda path: to_matpower(load_case("case9"), path),
    "figure.svg": lambda path: save_figure(new_figure(2, 2), path),
    "figure.pdf": lambda path: save_figure(new_figure(2, 2), path),
    "figure.png": lambda path: save_figure(new_figure(2, 2), path),
    "run.json": lambda path: Run(path.parent, PPOConfig()).write(),
    "log.tsv": lambda path: Log(path, 39),
    "digests.json": lambda path: write_digests(path.parent, 1),
    "page.html": lambda path: _command("view", str(path.parent.parent / "t.npz"), "--out", str(path)),
    "gains.svg": lambda path: _command("plot", str(BOARD), "--out", str(path)),
}


@pytest.mark.tiers(full=["gains.svg"])
@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_leaves_the_earlier_file_and_names_the_new_one(name, tmp_path):
    save_traces(tmp_path / "t.npz", traces())
    path = tmp_path / "out" / name
    path.parent.mkdir()
    path.write_text("earlier\n" * 40)
    before = path.read_bytes()
    refused = pytest.raises(WriteError, match=rf"{re.escape(name)} cannot be written: File too large\. What was")
    with refused, full_disk():
        WRITERS[name](path)
    assert path.read_bytes() == before and [p.name for p in path.parent.iterdir()] == [name]


@pytest.mark.tiers(full=["gains.svg"])
@pytest.mark.parametrize("name", WRITERS)
def test_a_result_replaces_no_link(name, tmp_path):
    save_traces(tmp_path / "t.npz", traces())
    path = tmp_path / "out" / name
    path.parent.mkdir()
    other = elsewhere(path)
    with pytest.raises((WriteError, RunError)):
        WRITERS[name](path)
    assert other.read_text() == "precious" and path.is_symlink()


@pytest.mark.parametrize("words", [["evaluate", TASK, "--json"], ["view", TASK, "--out"], ["dataset", TASK, "--out"]])
@pytest.mark.parametrize("place", ["/dev/null", ".", "link"])
def test_a_place_that_takes_no_result_is_refused_before_anything_is_played(words, place, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("link").symlink_to("nowhere")
    monkeypatch.setattr("powerzoo_jax.cli.commands.evaluate.make", lambda *_, **__: pytest.fail("played"))
    assert main([*words, place]) == 2
    assert re.search("is (a folder|a link|a device or a pipe), and is left", capsys.readouterr().err)


@pytest.mark.parametrize("name", ["README.npz", "README.stablehlo", "net.json"])
def test_a_card_replaces_no_file_of_another_kind(name, tmp_path, capsys):
    target = tmp_path / name
    for ending in (".md", ".json"):
        target.with_suffix(ending).write_text("mine")
    before = contents(tmp_path)
    kind = ["zoo"] if name.endswith("npz") else ["stablehlo"]
    run = put_run(tmp_path.with_name("exported"))
    assert main(["export", str(run), "--format", *kind, "--out", str(target)]) == 2
    assert "its card would replace" in capsys.readouterr().err and contents(tmp_path) == before


def test_a_folder_or_a_device_is_no_place_for_a_result(tmp_path):
    for path in (tmp_path, Path("/dev/null"), Path("/dev/full")):
        with pytest.raises(WriteError, match=r"is (a folder|a device or a pipe), and is left as it is"):
            write_text(path, "x")
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize("most", [20, 20_000])
def test_a_checkpoint_on_a_full_disk_is_one_sentence_and_keeps_the_one_before(most, tmp_path, capfd):
    state = {"w": jnp.asarray(np.random.default_rng(0).random(20_000, np.float32))}
    checkpoint.save(tmp_path / "c", state, PPOConfig(), updates=1)
    capfd.readouterr()
    refused = pytest.raises(WriteError, match=r"c/2 cannot be written: File too large\. What was there is unchanged\.")
    with refused, full_disk(most):
        checkpoint.save(tmp_path / "c", state, PPOConfig(), updates=2)
    captured = capfd.readouterr()
    assert "Traceback" not in captured.err + captured.out
    assert checkpoint.load_config(tmp_path / "c")[1] == 1 and [p.name for p in (tmp_path / "c").iterdir()] == ["1"]
    np.testing.assert_array_equal(checkpoint.restore(tmp_path / "c", state)["w"], state["w"])


def test_a_log_on_a_full_disk_names_itself(tmp_path):
    log = Log(tmp_path / "log.tsv", 0)
    with pytest.raises(WriteError, match=r"log\.tsv cannot be written: File too large"), full_disk(0):
        log.write(1, 10, {"return": 1.0})
    with suppress(OSError):
        log.close()


# ---- names are shown, and do nothing


def test_names_out_of_files_are_printable_in_errors_and_tables():
    assert excerpt(ESCAPE) == r"\x1b]0;owned\x07\x1b[2J\u202e" and excerpt("a\nb") == "a b"
    assert excerpt("é ü 中") == "é ü 中"
    problem = Problem("bus", "id", (ESCAPE,), f"{ESCAPE} is odd.", "Rename it.")
    for text in (str(PowerZooError(ESCAPE)), str(problem), render_problems(ESCAPE, [problem, problem])):
        assert all(line.isprintable() for line in text.splitlines())
    assert len(str(PowerZooError("two\nlines")).splitlines()) == 2
    table = render((ESCAPE, "b"), [(ESCAPE, "1\n2")])
    for text in (table, render_pairs([("a", ESCAPE)])):
        assert all(line.isprintable() for line in text.splitlines())
    assert len(table.splitlines()) == 3


def test_the_name_of_a_grid_is_printable_on_the_command_line(tmp_path, capsys):
    path = tmp_path / f"a{chr(27)}[2J.m"
    to_matpower(load_case("case9"), path)
    assert main(["check", str(path)]) == 0
    assert main(["check", str(path.with_suffix(".dss"))]) == 2
    captured = capsys.readouterr()
    assert "\x1b" not in captured.out + captured.err


NAMES = [
    "<!--<script>",
    "</script><script>alert(1)</script>",
    "\u2028\u2029",
    "\"'`&amp;<b>",
    "]]>",
    "{{DATA}}",
    "\ud800",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_in_a_page_is_text(name):
    """The element of the data ends where it should, and its content is the name, letter by letter."""
    (trace, *_) = traces().values()
    object.__setattr__(trace, "policy", name)
    object.__setattr__(trace, "task", name)
    page = episode_html(trace)
    start = page.index('type="application/json">') + len('type="application/json">')
    data = page[start : page.index("</script>", start)]
    assert not set("<>&") & set(data) and data.isascii()
    told = json.loads(data)
    assert told["policies"][0]["name"] == name and told["title"] == name
    assert page.count("<script") == 2 and "<!--<" not in page.lower()
    assert f"<title>{name}</title>" not in page or not set("<>&\"'") & set(name)


# ---- every reader and writer goes through one door

DOORS = {  # the doors themselves, the lock, which is no result, and a file that grows line by line
    *("base/textfile.py", "base/files/results.py", "base/npz.py", "cli/lock.py", "cli/log.py"),
    "cli/main.py",  # the null device after a closed pipe
}
OWN_FILES = {"FILE", "TEMPLATE", "FACTS", "about"}  # of the package itself, and /proc/cpuinfo
CALLS = {
    *(
        "open",
        "read_text",
        "read_bytes",
        "write_text",
        "write_bytes",
        "savez",
        "savez_compressed",
        "ZipFile",
        "savefig",
    ),
    *("fdopen", "mkstemp", "loadtxt", "genfromtxt", "tofile", "fromfile", "to_csv", "read_csv", "read_json", "dump"),
}
ALLOWED = {  # (file, call): bytes that the door has read, a figure within `writing`, what passes between two processes
    *(("data/meterfile.py", "ZipFile"), ("plot/layout.py", "savefig"), ("_apart.py", "dump"), ("_apart.py", "fdopen")),
    ("families/operation/grid2op/chronics.py", "loadtxt"),
}


def doors(top: Path) -> Iterator[tuple[str, str, int]]:
    """(file, call, line) of every call of a method that opens a file."""
    for path in sorted(top.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                function = node.func
                own = isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name)
                if isinstance(function, ast.Attribute) and not (own and function.value.id in OWN_FILES):  # type: ignore[attr-defined]
                    yield str(path.relative_to(top)), function.attr, node.lineno
                elif isinstance(function, ast.Name) and function.id == "open":
                    yield str(path.relative_to(top)), "open", node.lineno


@pytest.mark.full
@pytest.mark.parametrize("package", [powerzoo_jax, powerzoo_compat])
def test_no_other_module_opens_a_file(package):
    top = Path(str(package.__file__)).parent
    found = [place for place in doors(top) if place[1] in CALLS and place[0] not in DOORS and place[:2] not in ALLOWED]
    assert not found
