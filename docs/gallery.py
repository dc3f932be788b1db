"""Pictures of the gallery, docs/gallery.md, which the site draws when it is built: `python docs/gallery.py FOLDER`.

They show what the repository holds: the traces of docs/episode.npz, the scores of docs/leaderboard.json, shipped cases.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from powerzoo_jax.cases import load_case, load_feeder
from powerzoo_jax.cli.commands.leaderboard import TEST
from powerzoo_jax.cli.commands.plot import draw_gains
from powerzoo_jax.envs import load_traces
from powerzoo_jax.plot import (
    plot_branch_loading,
    plot_feeder,
    plot_learning_curves,
    plot_network,
    plot_voltage_profile,
    save_figure,
)

HERE = Path(__file__).parent
BOARD = HERE / "leaderboard.json"
CASE, EVENING = "case33bw", 38  # network of the traces, and the step of the day that is shown


def network() -> Any:
    """Bus voltages of one step of a traced day."""
    trace = load_traces(HERE / "episode.npz")["rule"]
    title = "marl_der_arbitrage at 19:00 under the rule"
    return plot_network(load_case(CASE), v_pu=trace["bus_voltage_pu"].values[EVENING], title=title)


def profile() -> Any:
    """Voltages along the feeder, and their spread over the day."""
    found = load_traces(HERE / "episode.npz")
    days = {name.replace("_", " "): found[name]["bus_voltage_pu"].values for name in ("no_control", "oracle")}
    return plot_voltage_profile(load_case(CASE), days, title="a day: median, 5th to 95th percentile")


def loading() -> Any:
    """Loadings of the branches of a meshed case."""
    case = load_case("pz_case14")
    share = np.linspace(1.1, 0.1, case.n_branch)
    return plot_branch_loading(case, share, most=10, title="hatched: beyond the rating (made-up flows)")


def feeder() -> Any:
    """A three-phase feeder."""
    return plot_feeder(load_feeder("case123"), title="IEEE 123-bus feeder")


def curves() -> Any:
    """Learning curves beside reference policies."""
    steps = np.linspace(0, 2e6, 41)
    spread = np.random.default_rng(0).normal(scale=0.5, size=(8, 41))
    returns = 6.6 - 10 * np.exp(-steps / 4e5) + spread
    references = {"random": -3.1, "rule": 5.2, "causal": 5.6, "oracle": 6.9}
    return plot_learning_curves({"a learner": returns}, steps, references=references, title="made-up returns")


def gains() -> Any:
    """What the runs of the leaderboard gain on the rule."""
    return draw_gains(BOARD, TEST, "test split")


PICTURES: dict[str, Callable[[], Any]] = {
    "network": network,
    "profile": profile,
    "loading": loading,
    "feeder": feeder,
    "curves": curves,
    "gains": gains,
}


def pictures() -> dict[str, str]:
    """SVG text of every picture by name."""
    with tempfile.TemporaryDirectory() as folder:
        return {
            name: save_figure(draw(), Path(folder) / f"{name}.svg").read_text(encoding="utf-8")
            for name, draw in PICTURES.items()
        }


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "results/gallery")
    target.mkdir(parents=True, exist_ok=True)
    for name, text in pictures().items():
        (target / f"{name}.svg").write_text(text, encoding="utf-8")
    print(target)
