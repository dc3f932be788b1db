"""Run one update and some episodes on a mesh and write what came out: one process of one or of several.

Usage: python devices.py FILE DEVICES updates|replay [HOST:PORT PROCESSES PROCESS]
With an address, each process brings its share of the devices; the first one writes the file.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

FILE, DEVICES, PART = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
ADDRESS = sys.argv[4:]
HERE = DEVICES // int(ADDRESS[1]) if ADDRESS else DEVICES

# before jax starts: simulated devices, one thread each
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={HERE} --xla_cpu_multi_thread_eigen=false"
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import jax  # noqa: E402
import numpy as np  # noqa: E402

from powerzoo_jax.rl.algorithms import ppo, sac  # noqa: E402
from powerzoo_jax.rl.policies import ppo_act  # noqa: E402
from powerzoo_jax.rl.rollout import batch_rollout  # noqa: E402
from powerzoo_jax.rl.training.config import PPOConfig, SACConfig  # noqa: E402
from powerzoo_jax.rl.training.parallel import compile_on, everywhere, layout, make_mesh, on_mesh, place, spread  # noqa: E402
from tests.rl.toy_battery import STEPS, toy_sim  # noqa: E402

CFG = PPOConfig(
    lanes=16, total_steps=16 * STEPS, epochs=2, minibatches=2, shards=8, widths=(16,), gamma=1.0, bootstrap=False
)  # fmt: skip
LARGER = replace(CFG, lanes=48, steps=2 * STEPS)  # whose update must not send more
REPLAY = SACConfig(
    lanes=16, steps=8, gradients=4, batch=64, shards=8, capacity=2 * 16 * 8, warmup=1, total_steps=16 * 8, widths=(16,)
)  # fmt: skip
LONGER = replace(REPLAY, lanes=48, steps=16, capacity=4 * 48 * 16)
EPISODES = 13  # no multiple of the devices
SEEDS, UPDATES, LAST = 3, 12, 4  # of the short runs whose last returns are compared


def measure(count: int) -> dict[str, Any]:
    """Episodes of the untrained policy, then the first update, then short runs, on the first devices."""
    mesh = make_mesh(jax.devices()[:count])
    sim = spread(toy_sim(), mesh)
    init, update = ppo.make_update(CFG, sim)
    begin = on_mesh(init, mesh)
    state = begin(jax.random.key(0), sim)

    def play(params: Any, keys: jax.Array, sim: Any) -> Any:
        act = ppo_act(CFG, sim, params, greedy=False)
        return batch_rollout(sim, act, (), keys, STEPS)[1]._replace(state=None, info=None)

    steps = on_mesh(play, mesh)(ppo.policy_of(state), jax.random.split(jax.random.key(1), EPISODES), sim)
    shared = everywhere(sim, mesh)
    state = place(state, mesh)
    compiled = compile_on(mesh, update, state, shared)
    after, metrics = compiled(state, shared)

    def final(seed: int) -> float:
        """Mean return of the last updates of a run."""
        state, returns = place(begin(jax.random.key(seed), sim), mesh), []
        for _ in range(UPDATES):
            state, metrics = compiled(state, shared)
            returns.append(float(metrics["return"]))
        return float(np.mean(returns[-LAST:]))

    leaves = {"params": after.params, "steps": steps, "return": metrics["return"]}
    leaves |= {"final": np.array([final(seed) for seed in range(SEEDS)])}
    named = {jax.tree_util.keystr(k): v for k, v in jax.tree.leaves_with_path(jax.device_get(leaves))}
    sent = {"talk": talk(compiled.as_text())}
    if count > 1:  # one device sends nothing, whatever the size
        sent["larger"] = sent_by(*ppo.make_update(LARGER, sim), mesh, sim)
    return {**named, **{name: np.asarray(lines) for name, lines in sent.items()}}


def replay(count: int) -> dict[str, Any]:
    """The first round of learning from a replay buffer, of which each device keeps its part."""
    mesh = make_mesh(jax.devices()[:count])
    sim = spread(toy_sim(), mesh)
    init, update = sac.make_update(REPLAY, sim)
    state, shared = place(on_mesh(init, mesh)(jax.random.key(0), sim), mesh), everywhere(sim, mesh)
    compiled = compile_on(mesh, update, state, shared)
    after, _ = compiled(state, shared)
    rows = after.store.rows.obs
    leaves = {"learnt": jax.tree.leaves(after.params), "stored": after.store.rows}
    named = {jax.tree_util.keystr(k): v for k, v in jax.tree.leaves_with_path(jax.device_get(leaves))}
    sent = {"replay": talk(compiled.as_text())}
    if count > 1:
        sent["longer"] = sent_by(*sac.make_update(LONGER, sim), mesh, sim)
    part = np.asarray(rows.addressable_shards[0].data.shape)
    return {**named, "part": part, **{name: np.asarray(lines) for name, lines in sent.items()}}


def sent_by(init: Any, update: Any, mesh: Any, sim: Any) -> list[str]:
    """What travels in an update that is compiled and not run."""
    shapes = jax.eval_shape(init, jax.random.key(0), sim)
    described = jax.tree.map(
        lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), shapes, layout(shapes, mesh)
    )
    return talk(compile_on(mesh, update, described, everywhere(sim, mesh)).as_text())


def talk(program: str) -> list[str]:
    """What travels between devices, inside loops or outside: `kind type` of every transfer in the program."""
    kinds = "all-reduce|all-gather|all-to-all|collective-permute|collective-broadcast|reduce-scatter"
    found = re.findall(rf"= (\([^)]*\)|\S+) ({kinds})(?:-start)?\(", program)
    # without the layouts of arrays and the numbers of the entries of tuples
    return sorted(f"{kind} {re.sub(r'{[^}]*}|/[*].*?[*]/', '', what)}" for what, kind in found)


def main() -> None:
    """One process measures one device and all of them; several measure all of them together."""
    if ADDRESS:
        jax.distributed.initialize(ADDRESS[0], int(ADDRESS[1]), int(ADDRESS[2]))
    part = {"updates": measure, "replay": replay}[PART]
    found = {count: part(count) for count in ((DEVICES,) if ADDRESS else (1, DEVICES))}
    if jax.process_index() == 0:
        np.savez(FILE, **{f"{count} {key}": value for count, row in found.items() for key, value in row.items()})


if __name__ == "__main__":
    main()
