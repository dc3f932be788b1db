"""The command that a stopped run prints: parsed again, it asks for all that the run was started with."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from powerzoo_jax.cli.commands.train import resume_command
from powerzoo_jax.cli.main import build_parser
from powerzoo_jax.cli.runs import Run, parse_grid, resolve_config

STARTED = {
    "nothing said": "train battery_arbitrage",
    "everything said": "train battery_arbitrage --algorithm apg --set lr=0.01 --set lanes=8 --seeds 3 --seed 5 "
    "--out 'my runs/one' --overwrite --every 2.5 --log tensorboard --log wandb",
    "of a cluster": "train dso --cluster --every 600",
    "one of two processes": "train dso --coordinator host:1234 --processes 2 --process 1",
    "sweep": "sweep battery_arbitrage --over lr=0.001,0.003 --over gamma=0.9 --split test --log tensorboard --every 5",
}


@pytest.mark.parametrize("name", STARTED)
def test_the_printed_command_asks_for_what_the_run_was_started_with(name):
    options = build_parser().parse_args(shlex.split(STARTED[name]))
    config = resolve_config(options.what, options.algorithm, options.settings)
    grid = parse_grid(config, getattr(options, "over", ()))
    run = Run(options.out or Path("results/here"), config, options.seeds, options.seed, grid)
    program, *words = shlex.split(shlex.join(resume_command(run, options)))
    again = vars(build_parser().parse_args(words))
    assert program == "powerzoo-jax" and again.pop("resume")
    wanted = {**vars(options), "out": run.folder, "overwrite": False}
    wanted.pop("resume")
    if grid:
        assert parse_grid(config, again.pop("over")) == parse_grid(config, wanted.pop("over"))
    assert again == wanted
