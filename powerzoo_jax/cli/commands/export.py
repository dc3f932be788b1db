"""`export`: a trained policy as a StableHLO program, with a card that says what goes in and out."""

from __future__ import annotations

import argparse
import json
from importlib import metadata

import jax

from powerzoo_jax.base.errors import SettingsError
from powerzoo_jax.cli.log import replace_text
from powerzoo_jax.cli.runs import open_run
from powerzoo_jax.cli.selection import policies_of_run
from powerzoo_jax.cli.table import STDOUT, working, write_json
from powerzoo_jax.envs.episode import first_carry
from powerzoo_jax.rl.export import PLATFORMS, export_policy, memory_of

NAME = "policy.stablehlo"


def run(options: argparse.Namespace) -> int:
    """Write the program and its card side by side."""
    run = open_run(options.run_folder)
    if not 0 <= options.row < run.rows:
        raise SettingsError(f"--row {options.row}: the run has rows 0 to {run.rows - 1}, one a seed. Give one of them.")
    sim = run.make()
    with working(f"lowering the policy for {', '.join(PLATFORMS)}"):
        act = policies_of_run(run)[options.row]
        program = export_policy(sim, act)
    target = options.out or run.folder / NAME
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(program)
    seen = jax.eval_shape(sim.init, jax.random.key(0))[1]
    action = jax.eval_shape(lambda obs: act(first_carry(act, ()), obs, jax.random.key(0))[1], seen)
    card = {
        "task": sim.spec.id,
        "version": sim.spec.version,
        "algorithm": run.config.algorithm,
        "agents": list(sim.spec.agents),
        "observation": ["lanes", *seen.shape],
        "dtype": str(seen.dtype),
        "memory": [["lanes", *x.shape] for x in memory_of(act)],
        "action": ["lanes", *action.shape],
        "platforms": list(PLATFORMS),
        "jax": metadata.version("jax"),
    }
    beside = target.with_suffix(".json")
    replace_text(beside, json.dumps(card, indent=2) + "\n")
    if options.json:
        write_json({"file": str(target), "card": card}, STDOUT)
    else:
        print(f"{target}: {len(program) / 1e3:.0f} kB for {', '.join(PLATFORMS)}; what goes in and out is in {beside}")
    return 0
