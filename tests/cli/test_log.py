"""What a run tells while it trains: names of its numbers, the line of the bar, logs of other projects."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from powerzoo_jax.cli import main
from powerzoo_jax.cli.log import Log, check_sinks, headline, open_sink, row_of
from tests.rl.toy_battery import toy_sim

SIM = toy_sim()
COSTS = ["voltage_violation", "thermal_overload", "unserved_energy", "resource"]


def test_numbers_are_named_by_channel_and_term_and_averaged_over_seeds():
    metrics = {
        "cost": [[0, 0, 0, 1.0], [0, 0, 0, 3.0]],
        "price": [[1, 2, 3, 4.0]] * 2,
        "terms": [[1.0, 2.0, 3.0]] * 2,
        "return": [1.0, 4.0],
        "spread": [[7.0, 8.0]] * 2,
    }
    row = row_of(metrics, SIM)
    assert list(row)[:2] == ["return", "return_sd"] and row["return"] == 2.5
    assert row["return_sd"] == pytest.approx(np.std([1.0, 4.0], ddof=1))
    assert (row["return.0"], row["return.1"]) == (1.0, 4.0)  # what the interval of a curve is made of
    assert [row[f"cost.{name}"] for name in COSTS] == [0, 0, 0, 2.0]
    assert [row[f"price.{name}"] for name in COSTS] == [1, 2, 3, 4]
    assert row["terms.degradation"] == 2.0 and row["spread.1"] == 8.0


def test_points_of_a_sweep_stand_side_by_side():
    row = row_of({"return": [1.0, 3.0, 10.0, 30.0]}, SIM, ["lr=1", "lr=2"])
    assert row["lr=1 return"] == 2.0 and row["lr=2 return"] == 20.0 and "lr=2 return_sd" in row
    assert row["lr=2 return.1"] == 30.0


def test_the_bar_shows_return_gain_violations_and_speed():
    row = {"return": 5.0, **dict.fromkeys((f"cost.{name}" for name in COSTS), 0.0), "cost.resource": 0.75}
    over = "return +5.00, 1 of 4 budgets violated, 81,234 steps/s"
    assert headline(row, SIM, (0.0, 10.0), 81234.0) == over  # what breaks a budget gains nothing
    row["cost.resource"] = 0.25
    assert headline(row, SIM, (0.0, 10.0), 81234.0).startswith("return +5.00, gain 0.50, 0 of 4 budgets violated")
    assert "gain" not in headline(row, SIM, None, 1.0)


def test_a_log_opened_again_forgets_what_the_checkpoint_does_not_know(tmp_path):
    log = Log(tmp_path / "log.tsv", 0)
    for update in (1, 2, 3):
        log.write(update, 10 * update, {"return": float(update)})
    log.close()
    again = Log(tmp_path / "log.tsv", 2)
    again.write(3, 30, {"return": 9.0})
    again.close()
    assert (tmp_path / "log.tsv").read_text() == "update\tenv_steps\treturn\n1\t10\t1\n2\t20\t2\n3\t30\t9\n"
    assert [p.name for p in tmp_path.iterdir()] == ["log.tsv"]


class Recorder:
    """Stands for a SummaryWriter and for a W&B run."""

    def __init__(self, *arguments, **keywords):
        self.begun, self.told, self.ended = (arguments, keywords), [], False

    def add_text(self, *arguments):
        pass

    def add_scalar(self, name, value, step):
        self.told.append((name, value, step))

    def log(self, row, step):
        self.told += [(name, value, step) for name, value in row.items()]

    def close(self):
        self.ended = True

    finish = close


@pytest.mark.parametrize(("name", "package"), [("tensorboard", "tensorboardX"), ("wandb", "wandb")])
def test_other_logs_get_every_number_of_every_update(name, package, tmp_path, monkeypatch):
    kept = []

    def begin(*arguments, **keywords):
        kept.append(Recorder(*arguments, **keywords))
        return kept[-1]

    monkeypatch.setitem(sys.modules, package, SimpleNamespace(SummaryWriter=begin, init=begin))
    sink = open_sink(name, tmp_path / "run", {"lr": 1.0}, 4)
    sink.write(5, {"return": 2.0, "loss": 3.0})
    sink.close()
    assert kept[0].told == [("return", 2.0, 5), ("loss", 3.0, 5)] and kept[0].ended


@pytest.mark.parametrize(("name", "package"), [("tensorboard", "tensorboardX"), ("wandb", "wandb")])
def test_a_missing_package_names_the_extra_before_anything_is_trained(name, package, monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, package, None)
    assert main(["train", "battery_arbitrage", "--log", name, "--out", str(tmp_path / "run")]) == 2
    assert "powerzoo-jax[log]" in capsys.readouterr().err and not (tmp_path / "run").exists()


def test_an_unknown_log_names_the_nearest():
    with pytest.raises(ValueError, match="Did you mean 'tensorboard'"):
        check_sinks(["tensorbord"])
