"""Own tasks on the command line: a file that registers one, keywords of `make`, and what a run remembers of both."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from powerzoo_jax.base.errors import DataMissing, SettingsError
from powerzoo_jax.cli import main
from powerzoo_jax.cli.commands.evaluate import shipped_ends
from powerzoo_jax.cli.own import load_modules, parse_keywords
from powerzoo_jax.cli.runs import resolve_config
from powerzoo_jax.tasks import get_spec, list_tasks, make, registry

MODULE = """
import dataclasses
import powerzoo_jax as pz
from powerzoo_jax.tasks import get_builder, get_spec

base = get_spec("battery_arbitrage")
pz.register(dataclasses.replace(base, id="{task}", case="case69"), get_builder("battery_arbitrage"))
"""
SMALL = [
    word
    for text in ("total_steps=192", "lanes=2", "steps=48", "minibatches=1", "widths=8,8")
    for word in ("--set", text)
]


@pytest.fixture(autouse=True)
def forgotten(monkeypatch):
    """Whatever a test registers is gone after it."""
    monkeypatch.setattr(registry, "_TASKS", dict(registry._TASKS))


@pytest.fixture
def module(tmp_path, request):
    """A file that registers a task named after the test, so that no other process or test knows it."""
    name = f"own_{abs(hash(request.node.name)) % 10**9}"
    path = tmp_path / f"{name}_tasks.py"
    path.write_text(MODULE.format(task=name))
    return name, path


def test_a_module_registers_its_task_once(module):
    task, path = module
    assert load_modules([path]) == load_modules([str(path)]) == (str(path.resolve()),)
    assert task in list_tasks() and make(task).spec.case == "case69"


def test_an_own_task_learns_with_the_settings_of_the_task_it_is_a_variant_of(module):
    task, path = module
    load_modules([path])
    for algorithm in (None, "ppo", "apg", "sac"):
        mine, base = (resolve_config(name, algorithm, ()).to_dict() for name in (task, "battery_arbitrage"))
        assert mine == base | {"task": task} and mine["cost_weights"][3] > 0


def test_a_command_warns_in_a_sentence_without_a_line_of_source(tmp_path):
    words = ["dataset", "battery_arbitrage", "--keyword", "case=case69", "--episodes", "1", "--out", f"{tmp_path}/x"]
    told = subprocess.run([sys.executable, "-m", "powerzoo_jax", *words], capture_output=True, text=True, check=True)
    assert "powerzoo-jax: battery_arbitrage on case69: battery_bus_ids=" in told.stderr and "Warning" not in told.stderr


def test_prices_of_channels_go_by_their_names():
    base, task = get_spec("dso"), "own_channels"
    order = dict(zip(base.cost_names, base.cost_budget, strict=True))
    order = {"unserved_energy": order.pop("unserved_energy")} | order
    own = replace(base, id=task, cost_names=tuple(order), cost_budget=tuple(order.values()))
    registry.register(own, registry.get_builder("dso"))
    assert resolve_config("dso", "sac", ()).cost_weights[0] == resolve_config(task, "sac", ()).cost_weights[1] == 70.0
    assert base.cost_names[0] == own.cost_names[1] == "voltage_violation"


def test_a_task_of_another_builder_takes_after_its_family():
    base = get_spec("marl_opf")
    registry.register(replace(base, id="own_builder"), "mine:build")
    assert registry.relatives("own_builder")[0] == base
    assert resolve_config("own_builder", None, ()).algorithm == resolve_config("marl_opf", None, ()).algorithm


def test_a_module_beside_the_program_is_the_one_that_its_name_means(module, monkeypatch):
    """As `python -m powerzoo_jax` finds it in the current folder."""
    task, path = module
    monkeypatch.syspath_prepend(path.parent)
    load_modules([path])
    assert task in list_tasks()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("wrong_syntax.py", "a = 1\nb = (\n", "line 2: SyntaxError"),
        (
            "wrong_name.py",
            "import powerzoo_jax\n\npowerzoo_jax.make('nothing_like_it')\n",
            "line 3: ValueError: Unknown",
        ),
        ("json.py", "", "another module 'json'"),
        ("my-tasks.py", "", "Name it like my_tasks.py"),
        ("tasks_of_mine.txt", "", "not a Python file"),
    ],
)
def test_a_module_that_cannot_be_used_is_named_with_its_line(name, text, message, tmp_path):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(SettingsError, match=message) as caught:
        load_modules([path])
    assert str(path) in str(caught.value) and (name == "json.py" or path.stem not in sys.modules)


def test_a_module_that_is_not_there_is_refused():
    with pytest.raises(DataMissing, match=r"no_such_tasks\.py"):
        load_modules(["no_such_tasks.py"])


def test_keywords_are_numbers_lists_and_texts():
    texts = ["case=case69", "v_min=0.95", "battery_bus_ids=[3, 5]", "flag=true", "name=a=b"]
    assert parse_keywords(texts) == {
        "case": "case69",
        "v_min": 0.95,
        "battery_bus_ids": (3, 5),
        "flag": True,
        "name": "a=b",
    }


@pytest.mark.parametrize("texts", [["case"], ["=3"], ["v_min="], ["v min=1"], ["v_min=1", "v_min=2"]])
def test_a_keyword_of_another_form_is_refused(texts):
    with pytest.raises(SettingsError, match="--keyword"):
        parse_keywords(texts)


def test_an_unknown_keyword_is_named_with_the_nearest(capsys):
    assert main(["show", "battery_arbitrage", "--keyword", "v_mim=0.95"]) == 2
    assert "v_min" in capsys.readouterr().err


def test_ends_of_the_shipped_table_are_for_the_task_as_it_is_shipped():
    """With half the power the oracle earns less: its score must not be measured against the shipped one."""
    assert shipped_ends(make("battery_arbitrage", split="test")) is not None
    assert shipped_ends(make("battery_arbitrage", split="test", battery_power_mw=0.1)) is None


@pytest.mark.long
def test_an_own_task_goes_from_training_to_the_leaderboard(module, tmp_path, capsys):
    task, path = module
    run, page = tmp_path / "run", tmp_path / "board.md"
    own = ["--module", str(path), "--keyword", "battery_power_mw=0.1"]
    assert main(["train", task, *own, *SMALL, "--out", str(run)]) == 0
    stored = json.loads((run / "run.json").read_text())
    assert stored["modules"] == [str(path.resolve())] and stored["keywords"] == ["battery_power_mw=0.1"]
    assert main(["train", task, *own[:2], *SMALL, "--out", str(run), "--resume"]) == 2
    assert "other settings: keywords" in capsys.readouterr().err
    assert main(["evaluate", str(run), "--policy", "ppo", "--episodes", "2", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["ppo"][0]["episode_rewards"]) == 2
    assert main(["evaluate", str(run), "--keyword", "v_min=0.9"]) == 2
    where = ["--runs", str(tmp_path / "runs"), "--page", str(page)]
    assert main(["leaderboard", task, *own[:2], *SMALL, "--seeds", "1", *where]) == 0
    (row,) = json.loads(page.with_suffix(".json").read_text())
    assert row["known"]["random"] < row["known"]["rule"] < row["known"]["best"] <= row["known"]["bound"] + 1e-3
    span, (seed,) = row["known"]["best"] - row["known"]["rule"], row["seeds"]
    kept = (seed["return"] - row["known"]["rule"]) / span if seed["kept"][-1] else None
    assert seed["gain"] == (kept if kept is None else pytest.approx(kept))
    assert f"`{task}-v1`" in page.read_text()
