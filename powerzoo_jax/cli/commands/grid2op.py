"""`grid2op`: what an environment folder of Grid2Op holds, and how long doing nothing and recovery survive there."""

from __future__ import annotations

import argparse
import time
from typing import Any

import jax
import numpy as np

from powerzoo_jax.cli.table import STDOUT, render, render_pairs, say, write_json
from powerzoo_jax.envs import Sim
from powerzoo_jax.envs.episode import Totals, run_episodes
from powerzoo_jax.families.operation.build import world_sim
from powerzoo_jax.families.operation.grid2op.episodes import choose_episodes, read_episodes
from powerzoo_jax.families.operation.grid2op.world import World, read_world
from powerzoo_jax.families.operation.players import as_policy, recovery
from powerzoo_jax.oracle import idle_act
from powerzoo_jax.oracle.registry import Policy
from powerzoo_jax.tasks.score import SEED, all_starts, episode_keys


def run(options: argparse.Namespace) -> int:
    """Print a world, its licence and authors, and the survival of simple policies on its episodes."""
    world = read_world(options.folder, options.difficulty)
    names = choose_episodes(world, options.split)[: options.episodes]
    start = time.perf_counter()
    rows, counts = read_episodes(world, names)
    seconds = time.perf_counter() - start
    size = sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(rows))
    facts = _facts(world) | {
        "read": f"{len(counts)} episodes of {counts.min() - 1} to {counts.max() - 1} steps, "
        f"{1e3 * seconds / len(counts):.0f} ms and {size / 1e6 / len(counts):.2f} MB each"
    }
    say(f"{world.name}\n{render_pairs(list(facts.items()))}")
    for note in world.notes:
        say(f"note: {note}")
    sim = world_sim(world, names, max_steps=options.steps)
    found = {name: _survival(sim, totals) for name, totals in _played(sim)}
    if options.json:
        write_json({"world": world.name, "facts": facts, "notes": list(world.notes), "policies": found}, STDOUT)
        return 0
    print()
    header = ("policy", "survival", "steps", "to the end", "return")
    print(render(header, [(name, *row.values()) for name, row in found.items()]))
    return 0


def _facts(world: World) -> dict[str, str]:
    """Facts of a world by their headings."""
    names, fleet, p = world.names, world.fleet, world.parameters
    opponent = getattr(world.config.get("opponent_class"), "name", None)
    return {
        "grid": f"{world.case.n_bus} substations, {len(names.line)} lines, {len(names.load)} loads, {len(names.unit)} "
        f"units ({np.sum(fleet.redispatchable)} redispatchable, {np.sum(fleet.renewable)} renewable), "
        f"{len(names.storage)} storages",
        "episodes": f"{len(world.episodes)}, forecasts of {world.horizons} rows"
        + (", maintenance drawn at reset" if world.draws else ""),
        "rules": f"overflow {p['NB_TIMESTEP_OVERFLOW_ALLOWED']} steps, at once above {p['HARD_OVERFLOW_THRESHOLD']:g}"
        if not p["NO_OVERFLOW_DISCONNECTION"]
        else "no protection by overflow",
        "locks": f"{p['NB_TIMESTEP_RECONNECTION']} steps after a trip, {p['NB_TIMESTEP_COOLDOWN_LINE']} of a line and "
        f"{p['NB_TIMESTEP_COOLDOWN_SUB']} of a substation after an action",
        "an action": f"{p['MAX_LINE_STATUS_CHANGED']} lines and {p['MAX_SUB_CHANGED']} substations"
        + (f" in each of {len(world.area)} areas" if len(world.area) > 1 else "")
        + (", any is legal" if world.unchecked else ""),
        "reward": world.reward,
        "opponent": opponent or "none",
    }


def _played(sim: Sim) -> Any:
    """Totals (B,) of each policy on every episode of a simulation."""
    draws = all_starts(sim)
    keys = episode_keys(SEED, len(draws.load_row))
    policies = {"no_control": Policy(idle_act(sim)), "recovery": as_policy(sim, recovery(sim), draws, keys)}
    for name, policy in policies.items():
        yield name, run_episodes(sim, policy.act, keys, draws, policy.carry)


def _survival(sim: Sim, totals: Totals) -> dict[str, Any]:
    """Steps that a policy lived of those that were planned, and the episodes that it ended."""
    lived, planned = np.asarray(totals.length), np.asarray(sim.params.n_step)
    return {
        "survival": f"{100 * lived.sum() / planned.sum():.1f} %",
        "steps": f"{lived.sum()} of {planned.sum()}",
        "to_the_end": f"{int(np.sum(~np.asarray(totals.failed)))} of {len(planned)}",
        "mean_return": f"{np.asarray(totals.total, float).mean():.6g}",
    }
