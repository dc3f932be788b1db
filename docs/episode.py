"""Traces behind the page of an episode on the site, docs/episode.npz: `python docs/episode.py`.

The site makes docs/episode.html of them when it is built (docs/hooks/site.py).
"""

from __future__ import annotations

from pathlib import Path

from powerzoo_jax import make
from powerzoo_jax.base.tree import take
from powerzoo_jax.cli.traces import trace_policies, write_traces
from powerzoo_jax.tasks.score import SEED, all_starts

TARGET = Path(__file__).with_name("episode.npz")
TASK, POLICIES = "marl_der_arbitrage", ("no_control", "rule", "oracle")
DAY = 6  # of the test split, from 0: without control the voltage falls below its limit, and a plan can hold it


def write() -> Path:
    """Play one test day under every policy; returns the path of the file."""
    sim = make(TASK, split="test")
    day = take(all_starts(sim), slice(DAY, DAY + 1))
    return write_traces(TARGET, trace_policies(sim, POLICIES, {}, day, SEED, DAY))


if __name__ == "__main__":
    print(write())
