"""Commands that look: `list`, `show`, `check`, `evaluate`, `reference`; the self-test of names; how errors read."""

from __future__ import annotations

import json
import re

import pytest

from powerzoo_jax import list_tasks, make
from powerzoo_jax.cli import main

BROKEN = """function mpc = broken
mpc.version = '2';
mpc.baseMVA = 10;
mpc.bus = [
 1 3 0 0 0 0 1 1 0 12.66 1 1.1 0.9;
 2 1 0.1 0.06 0 0 1 1 0 12.66 1 1.1 0.9;
 2 1 0.1 0.06 0 0 1 1 0 12.66 1 1.1 0.9;
];
mpc.gen = [ 1 0 0 10 -10 1 100 1 10 0; ];
mpc.branch = [
 1 2 0 0 0 0 0 0 0 0 1 -360 360;
 2 7 0.01 0.01 0 0 0 0 0 0 1 -360 360;
];
"""


def test_list_names_every_task_case_and_data_set(capsys):
    assert main(["list"]) == 0
    out = capsys.readouterr().out
    assert all(task in out for task in list_tasks())
    assert "case33bw" in out and "simbench_2016" in out


def test_show_gives_units_bounds_and_keywords(capsys):
    assert main(["show", "battery_arbitrage"]) == 0
    out = capsys.readouterr().out
    assert "voltage_violation" in out and "battery_capacity_mwh" in out and "[-10, 10]" in out


def test_show_gives_one_interval_where_the_fields_of_a_block_differ_in_theirs(capsys):
    assert main(["show", "dso"]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("flexload_obs"))
    box = make("dso").spaces()[0]
    names = make("dso").env.fields.names
    mine = [k for k, name in enumerate(names) if name.startswith("fl_") and "/" in name]
    assert f"[{box.low[0, mine].min():g}, {box.high[0, mine].max():g}]" in row


def test_show_json_has_a_name_for_every_observation_field(capsys):
    assert main(["show", "battery_arbitrage", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert len(content["fields"]) == content["dims"]["obs"]


def test_check_passes_a_shipped_case(capsys):
    assert main(["check", "case33bw"]) == 0
    assert "no problems found" in capsys.readouterr().out


def test_check_lists_all_problems_of_a_file_at_once(tmp_path, capsys):
    path = tmp_path / "broken.m"
    path.write_text(BROKEN)
    assert main(["check", str(path)]) in (1, 2)
    text = "".join(capsys.readouterr())
    assert "more than once" in text and "7" in text and text.count("[error]") >= 3


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["show", "batery_arbitrage"], "'battery_arbitrage'"),
        (["show", "battery_arbitrage", "--split", "tets"], "'test'"),
        (["check", "nowhere.m"], "nowhere.m"),
        (["check", "case33"], "case33bw"),
        (["evaluate", "battery_arbitrage", "--policy", "rul"], "'rule'"),
        (["train", "battery_arbitrage", "--set", "lrr=1"], "'lr'"),
        (["train", "battery_arbitrage", "--set", "lr"], "KEY=VALUE"),
        (["train", "battery_arbitrage", "--algorithm", "pop"], "'ppo'"),
        (["train", "missing.toml"], "missing.toml"),
        (["train", "battery_arbitrage", "--seeds", "0"], "at least 1"),
        (["train", "battery_arbitrage", "--out", "nowhere", "--resume"], "--out DIR"),
        (["bench", "--lanes", "0"], "at least 1"),
    ],
)
def test_a_mistake_is_one_line_with_a_remedy(arguments, hint, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    _, err = capsys.readouterr()
    assert err.count("\n") == 1 and err.startswith("powerzoo-jax: ") and hint in err


def test_debug_shows_the_traceback(monkeypatch):
    monkeypatch.setenv("POWERZOO_DEBUG", "1")
    with pytest.raises(ValueError, match="Unknown task"):
        main(["show", "nothing_like_it"])


@pytest.mark.full
def test_evaluate_writes_the_full_record(tmp_path, capsys):
    target = tmp_path / "records.json"
    assert main(["evaluate", "battery_arbitrage", "--policy", "rule", "--episodes", "2", "--json", str(target)]) == 0
    (record,) = json.loads(target.read_text())["rule"]
    assert record["n_episodes"] == 2 and "money/day" in capsys.readouterr().out


def test_reference_prints_the_shipped_record(capsys):
    assert main(["reference", "battery_arbitrage"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["random"] < record["rule"] < record["best"]


def test_the_self_test_names_a_foreign_package_and_the_fix(monkeypatch):
    from powerzoo_jax.base.errors import DataError
    from powerzoo_jax.cli.commands import selftest

    monkeypatch.setattr(selftest, "_version", lambda name: "9.9")
    with pytest.raises(DataError, match="pip uninstall powerzoo"):
        selftest.check_names()


@pytest.mark.long
def test_bench_prints_a_row_for_each_batch(capsys):
    assert main(["bench", "--lanes", "2", "--seconds", "0.01"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert len(rows) == 5 and all(float(row.split("\t")[3]) > 0 for row in rows[1:])


def test_show_lists_every_keyword_with_its_value_and_purpose_and_every_field_and_split(capsys):
    with pytest.raises(TypeError) as caught:
        make("battery_arbitrage", zzz=1)
    known = str(caught.value).partition("Valid: ")[2].rstrip(".").split(", ")
    assert main(["show", "battery_arbitrage", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert set(known) <= told["keywords"].keys() and told["keywords"]["battery_power_mw"]["value"] == 0.2
    assert [name for name, row in told["keywords"].items() if not row["purpose"]] == []
    assert told["splits"] == ["train", "val", "test", "price_stress"]
    assert main(["show", "battery_arbitrage", "--keyword", "v_max=1.05"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^v_max +1\.05 +\[pu\] band of the voltages", shown, re.MULTILINE)
    assert re.search(r"^splits +train, val, test, price_stress$", shown, re.MULTILINE)
    assert set(told["fields"]) <= set(re.split(r",?\s+", shown.partition("fields in their order")[2]))


@pytest.mark.full
@pytest.mark.parametrize("task", list_tasks())
def test_show_knows_the_purpose_of_nearly_every_keyword(task, capsys):
    assert main(["show", task, "--json"]) == 0
    keywords = json.loads(capsys.readouterr().out)["keywords"]
    without = [name for name, row in keywords.items() if not row["purpose"]]
    assert keywords and without == []
