"""NashConv and equilibrium score of the rules of a market, its best joint bids and trained runs.

Usage: python -m tools.tasks.nash_conv [gencos_bidding] [--split val] [--run FOLDER ...] [--write]

All are answered by one and the same search of best responses, `powerzoo_jax.families.market.equilibrium`, on the
recorded episodes. With --write the figures of the rules and of the best joint bids go into the shipped record.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from powerzoo_jax.cli.runs import load_state, open_run
from powerzoo_jax.cli.selection import chosen_policies
from powerzoo_jax.cli.table import render
from powerzoo_jax.families.market.equilibrium import Exploitability, equilibrium_score, exploitability
from powerzoo_jax.oracle import get_baselines, get_reference
from powerzoo_jax.oracle.baselines import RULE
from powerzoo_jax.oracle.reference import BEST, recorded_starts, rounded, write_record
from powerzoo_jax.oracle.registry import Policy
from powerzoo_jax.tasks import make
from powerzoo_jax.tasks.score import episode_keys


def measured(task_id: str, split: str, runs: Sequence[Path]) -> Iterator[tuple[str, Exploitability]]:
    """Policies by name, and what leaving them gains."""
    sim, record, baselines = make(task_id, split=split), get_reference(task_id, split), get_baselines(task_id)
    draws, seed = recorded_starts(sim, record), int(record["seed"])
    keys = episode_keys(seed, draws.load_row.shape[0])
    for name, choose in baselines.rules.items():
        yield name, exploitability(sim, choose(sim, draws, keys), draws, seed=seed)
    yield BEST, exploitability(sim, baselines.oracle(sim, draws, keys).policy, draws, seed=seed)
    for folder in runs:
        run = open_run(folder)
        trained = run.make()
        for row, act in enumerate(chosen_policies(run, trained, load_state(run, trained)[0])):
            yield f"{run.config.algorithm}, seed {row}", exploitability(sim, Policy(act), draws, seed=seed)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", nargs="?", default="gencos_bidding")
    parser.add_argument("--split", default="test")
    parser.add_argument("--run", type=Path, action="append", default=[], metavar="FOLDER")
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args(arguments)
    found = {name: x.nash_conv for name, x in measured(chosen.task, chosen.split, chosen.run)}
    rows = [(name, f"{x:.0f}", f"{equilibrium_score(x, found[RULE]):.3f}") for name, x in found.items()]
    print(render(("policy", "NashConv [$]", "equilibrium"), rows))
    if chosen.write:
        kept = {name: found[name] for name in (*get_baselines(chosen.task).rules, BEST)}
        record = get_reference(chosen.task, chosen.split)
        write_record(chosen.task, chosen.split, record | rounded({"nash_conv": kept}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
