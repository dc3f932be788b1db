"""Traces behind the page of an episode on the site, docs/episode.npz: `python docs/episode.py`.

The site makes docs/episode.html of them when it is built (docs/hooks/site.py).
"""

from __future__ import annotations

from pathlib import Path

from powerzoo_jax import make
from powerzoo_jax.cli.traces import chosen_starts, trace_policies, write_traces
from powerzoo_jax.tasks.score import SEED

TARGET = Path(__file__).with_name("episode.npz")
TASK, POLICIES = "marl_der_arbitrage", ("no_control", "rule", "oracle")


def write() -> Path:
    """Play the first test day under every policy; returns the path of the file."""
    sim = make(TASK, split="test")
    return write_traces(TARGET, trace_policies(sim, POLICIES, {}, chosen_starts(sim, None, SEED), SEED))


if __name__ == "__main__":
    print(write())
