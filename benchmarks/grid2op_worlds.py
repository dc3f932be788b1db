"""Steps and simulated actions a second in worlds of Grid2Op, beside Grid2Op on LightSimBackend: one pinned core.

Usage: python benchmarks/grid2op_worlds.py [--world l2rpn_case14_sandbox ...] [--rounds 15] [--quick] [--out FILE]

A world is a folder, or the name of one that the wheel of grid2op brings. Its table of topology actions is played:
`step` takes a random legal action in each of 1,024 states, with observation, rewards, costs and legality of the next
state; `simulate` tries all actions of the table from a few states, with rho and rewards. The states are met by 20 steps
with a chance of one in ten of a random legal action. The peer plays random legal actions of the same table on one
episode after another, and simulates random ones from states on its way; without it its rows are left out.

`best_per_s` is the fastest round by the clock, `median_per_s` the median, `per_cpu_s` the median by processor time, for
a machine that other programs use too, and what marks are judged by. `over` is the share of lanes whose action ends the
episode, `cascades` that of lanes in which a protection opens lines: they take a second flow. `actions` is the size of
the table, of the peer the number of those played.
"""

from __future__ import annotations

# isort: off
import one_core  # noqa: F401  pins the process before jax starts
# isort: on

import time
import warnings
from collections.abc import Callable, Iterator
from importlib import util
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from peers import Engine
from report import Table, parser

import powerzoo_jax
from powerzoo_jax.families.operation.actions import to_grid2op
from powerzoo_jax.families.operation.simulate import simulate
from powerzoo_jax.powerflow.native.library import describe

WORLDS = ("rte_case5_example", "l2rpn_case14_sandbox", "l2rpn_icaps_2021")
OWN, PEER = "powerzoo_jax", "grid2op"
LANES, TRIED = 1024, 2048  # states of a step; simulated actions of a batch, about
PLAYED, CHANCE = 20, 0.1
ROUND_S, ROUNDS, PEER_S = 0.05, 15, 3.0
MARKS = {"l2rpn_case14_sandbox": {"step": (40e3, 80e3), "simulate": (300e3, 600e3)}}  # required, aim
COLUMNS = (
    *("world", "engine", "dtype", "what", "lanes", "actions", "best_per_s", "median_per_s", "per_cpu_s", "compile_s"),
    *("over", "cascades", "required", "aim", "reached"),
)


class Timed(NamedTuple):
    """Rates of what was timed, by best and median round and by processor time, and shares of lanes."""

    engine: Engine
    what: str
    actions: int
    over: float
    cascades: float


def folder_of(world: str) -> Path | None:
    """Folder of a world, given as such or by the name that the wheel of grid2op has for it."""
    found = util.find_spec("grid2op")
    bundled = Path() if found is None or found.origin is None else Path(found.origin).parent / "data"
    return next((path for path in (Path(world), bundled / world) if (path / "grid.json").exists()), None)


def legal_actions(key: Any, legal: Any) -> Any:
    """Random legal actions (B, 1, 1) by masks (B, 1, M)."""
    return jax.random.categorical(key, jnp.where(legal[:, 0], 0.0, -jnp.inf))[:, None, None]


@jax.jit
def met(sim: Any, key: Any) -> tuple[Any, Any]:
    """States (B, ...) on the way through episodes, and random legal actions in them."""
    start, last, *keys = jax.random.split(key, PLAYED + 2)
    states, _ = jax.vmap(sim.init)(jax.random.split(start, LANES))
    idle = jnp.zeros((LANES, 1, sim.env.dims.choice), bool).at[..., 0].set(True)

    def played(carry: Any, key: Any) -> tuple[Any, None]:
        states, legal = carry
        acts = jax.random.bernoulli(jax.random.fold_in(key, 1), CHANCE, (LANES, 1, 1))
        out, states, _ = powerzoo_jax.vstep(sim, states, jnp.where(acts, legal_actions(key, legal), 0))
        # what was legal at the end of an episode is not what its successor may do
        over = out.info.terminated | out.info.truncated
        return (states, jnp.where(over[:, None, None], idle, out.info.legal)), None

    (states, legal), _ = jax.lax.scan(played, (states, idle), jnp.stack(keys))
    return states, legal_actions(last, legal)


def engine_of(dtype: str, lanes: int, function: Callable[..., Any], *given: Any) -> tuple[Engine, Any]:
    tick = time.process_time()
    compiled = jax.jit(function).lower(*given).compile()
    compile_s = time.process_time() - tick
    found = jax.block_until_ready(compiled(*given))
    return Engine(OWN, dtype, lanes, lambda: jax.block_until_ready(compiled(*given)), compile_s), found


def own_runs(folder: Path, dtype: str) -> Iterator[Timed]:
    sim = powerzoo_jax.from_grid2op(folder, dtype=dtype)
    states, actions = jax.block_until_ready(met(sim, jax.random.key(0)))
    every = jnp.arange(sim.env.dims.choice)
    few = jax.tree.map(lambda x: x[: max(1, TRIED // len(every))], states)

    def tried(sim: Any, state: Any) -> Any:
        found = jax.vmap(lambda k: simulate(sim, state, k))(every)
        return found.rho, found.terms, found.state.end, found.report.tripped

    engine, out = engine_of(dtype, LANES, jax.vmap(type(sim).step, in_axes=(None, 0, 0)), sim, states, actions)
    ended, opened = out.info.terminated, out.info.tripped
    yield Timed(engine, "step", len(every), float(ended.mean()), float((opened >= 0).any(1).mean()))
    lanes = len(few.t) * len(every)
    engine, out = engine_of(dtype, lanes, jax.vmap(tried, in_axes=(None, 0)), sim, few)
    yield Timed(engine, "simulate", len(every), float((out[2] > 1).mean()), float((out[3] >= 0).any(-1).mean()))


def peer_runs(folder: Path) -> Iterator[tuple[str, float, int]]:
    """What, steps or simulations a second by processor time, and how many; nothing where it is not installed."""
    if util.find_spec("grid2op") is None or util.find_spec("lightsim2grid") is None:
        return
    warnings.simplefilter("ignore")
    import grid2op
    from grid2op.Action import PlayableAction
    from lightsim2grid import LightSimBackend

    sim = powerzoo_jax.from_grid2op(folder)
    # playable on both sides: some worlds take fewer kinds of actions
    env = grid2op.make(str(folder), backend=LightSimBackend(), action_class=PlayableAction)
    table = [env.action_space(to_grid2op(sim, k)) for k in range(sim.env.dims.choice)]
    rng, spent, count = np.random.default_rng(0), {"step": 0.0, "simulate": 0.0}, {"step": 0, "simulate": 0}
    seen, done = env.reset(), False
    while min(spent.values()) < PEER_S:
        if done:
            seen = env.reset()
        for what in ("simulate", "step"):
            action = table[rng.integers(len(table))]
            if what == "step" and not env._game_rules(action=action, env=env)[0]:
                action = table[0]
            tick = time.process_time()
            if what == "step":
                seen, _, done, _ = env.step(action)
            else:
                seen.simulate(action)
            spent[what] += time.process_time() - tick
            count[what] += 1
    env.close()
    for what, n in count.items():
        yield what, n / spent[what], n


def measure(world: str, rounds: int) -> Iterator[tuple[str, ...]]:
    """Rows of a world: own programs are timed in turn, then the peer plays."""
    folder = folder_of(world)
    if folder is None:
        print(f"# {world} is no folder of Grid2Op, and the wheel that brings it is not installed")
        return
    name, runs = folder.name, list[Timed]()
    for dtype in ("float32", "float64"):
        with jax.enable_x64(dtype == "float64"):
            runs += own_runs(folder, dtype)
    for _ in range(rounds):
        for run in runs:
            run.engine.time(ROUND_S)
    for run in runs:
        e = run.engine
        rates = (e.batch / min(e.times), e.rate, e.batch / float(np.median(e.cpu_times)))
        marks: tuple[str, ...] = ("-", "-", "-")
        if e.dtype == "float32" and name in MARKS:
            required, aim = MARKS[name][run.what]
            reached = "aim" if rates[2] >= aim else "required" if rates[2] >= required else "missed"
            marks = (f"{required:.0f}", f"{aim:.0f}", reached)
        about = (name, OWN, e.dtype, run.what, str(e.batch), str(run.actions))
        yield (
            *about,
            *(f"{x:.0f}" for x in rates),
            f"{e.compile_s:.3g}",
            f"{run.over:.2f}",
            f"{run.cascades:.2f}",
            *marks,
        )
    for what, rate, count in peer_runs(folder):
        yield name, PEER, "float64", what, "1", str(count), "-", "-", f"{rate:.0f}", "-", "-", "-", "-", "-", "-"


def main() -> None:
    arguments = parser(__doc__, "the world of 14 substations alone, few rounds")
    arguments.add_argument("--world", nargs="+", default=WORLDS, help="folders, or names of worlds that grid2op brings")
    args = arguments.parse_args()
    with Table(COLUMNS, args.out, f"kernel {describe()}") as table:
        for world in WORLDS[1:2] if args.quick else args.world:
            for row in measure(world, args.rounds or (3 if args.quick else ROUNDS)):
                table.add(row)


if __name__ == "__main__":
    main()
