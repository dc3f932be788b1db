"""Players of Grid2Op's worlds, learnt and scored here and played in both simulators side by side: one pinned core.

Usage: python benchmarks/grid2op_players.py [--world NAME ...] [--seeds 3] [--minutes 5] [--steps 2000] [--out FILE]

Needs grid2op and lightsim2grid (`pip install .[bench]`), whose wheel brings the worlds. Learnt on the first episodes of
a world and scored on its last ones: doing nothing, `recovery`, `greedy`, and PPO that is asked where doing nothing
leads to a largest rho above 0.95. `survival` is the share of the planned steps, `to_end` counts the episodes that
reached their end. Then each player plays the same episodes in Grid2Op on LightSimBackend through `as_agent`, which
reads its state from their observation: `equal_actions` is the share of steps with the same action, `equal_ends` counts
the episodes that end in the same step and way, `rho` and `observation` are the largest differences of loadings and of
the observation as built from both; `actions` counts those that do something. `learn_cpu_s` and `play_cpu_s` are
processor times, compilation included.
"""

from __future__ import annotations

# isort: off
import one_core  # noqa: F401  pins the process before jax starts
# isort: on

import dataclasses
import time
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from powerzoo_compat.grid2op_agent import as_agent
from report import Table, parser

from powerzoo_jax import from_grid2op
from powerzoo_jax.envs.core import Sim
from powerzoo_jax.envs.episode import run_episodes
from powerzoo_jax.envs.series import Draw
from powerzoo_jax.families.operation.players import Choose, as_policy, greedy, learnt, recovery, when_hot
from powerzoo_jax.rl.algorithms.ppo import make_update, policy_of
from powerzoo_jax.rl.policies import ppo_choice
from powerzoo_jax.rl.training.config import PPOConfig
from tools.record_grid2op import folder_of

MARGIN = (0.0, 0.01, 0.0, 0.0)  # weights of the rewards: that of margins alone, which survival adds up
UPDATES = 400
COLUMNS = (
    *("world", "player", "seed", "episodes", "survival", "to_end", "learn_cpu_s"),
    *("actions", "equal_actions", "equal_ends", "rho", "observation", "play_cpu_s"),
)


class Task(NamedTuple):
    """World, class of actions, numbers of the episodes that are learnt on and scored on."""

    world: str
    actions: str
    learnt: tuple[int, ...]
    scored: tuple[int, ...]


TASKS = (
    Task("rte_case5_example", "TopologyAction", tuple(range(14)), tuple(range(14, 20))),
    Task("educ_case14_redisp", "PlayableAction", tuple(range(4)), tuple(range(4, 7))),
)


def make(task: Task, episodes: Sequence[int], steps: int) -> Sim:
    """Simulation of some episodes of a world, rewarded by the margins of its lines."""
    sim = from_grid2op(
        folder_of(task.world),
        episodes=[names_of(task)[k] for k in episodes],
        action_class=task.actions,
        max_steps=steps,
    )
    return dataclasses.replace(sim, env=dataclasses.replace(sim.env, term_weights=MARGIN))


def names_of(task: Task) -> list[str]:
    """Names of all episodes of a world."""
    return sorted(path.name for path in (folder_of(task.world) / "chronics").iterdir() if path.is_dir())


def draws_of(sim: Sim) -> Draw:
    """All episodes of a simulation."""
    n = len(sim.params.n_step)
    return Draw(load_row=jnp.arange(n), price_row=jnp.zeros((n, 1), jnp.int32), soc=jnp.zeros((n, 0)))


def nothing(sim: Sim, state: Any, obs: Any, key: Any) -> Any:
    """Player that does nothing."""
    del sim, state, obs, key
    return jnp.zeros((1, 1), jnp.int32)


class Learner:
    """PPO on the episodes of a simulation, asked where it is hot; one program for all seeds."""

    def __init__(self, sim: Sim) -> None:
        self.asked = when_hot(sim)
        self.cfg = PPOConfig(
            task=sim.spec.id, total_steps=UPDATES * 512, lanes=32, steps=16, epochs=4, minibatches=4, lr=5e-4,
            entropy=0.01, normalise_reward=True,
        )  # fmt: skip
        self.init, self.update = map(jax.jit, make_update(self.cfg, self.asked))

    def learn(self, seed: int, minutes: float) -> tuple[Choose, float]:
        """Player of a seed, and the processor time [s] that it took."""
        begun = time.process_time()
        state = self.init(jax.random.key(seed), self.asked)
        for _ in range(self.cfg.updates):
            state, metrics = self.update(state, self.asked)
            jax.block_until_ready(metrics)
            if time.process_time() - begun > 60 * minutes:
                break
        return learnt(ppo_choice(self.cfg, self.asked, policy_of(state))), time.process_time() - begun


@jax.jit
def decide(choose: Partial, *given: Any) -> Any:
    """Action of a player."""
    return choose(*given)


def score(sim: Sim, choose: Choose) -> np.ndarray:
    """Steps that a player lives in each episode."""
    draws, keys = draws_of(sim), jax.random.split(jax.random.key(0), len(sim.params.n_step))
    policy = as_policy(sim, choose, draws, keys)
    return np.asarray(run_episodes(sim, policy.act, keys, draws, policy.carry).length)


def play_both(task: Task, sim: Sim, choose: Choose, steps: int) -> tuple[str, ...]:
    """Figures of a player's episodes in both simulators, each deciding for itself on what it sees."""
    import grid2op
    from grid2op import Action
    from lightsim2grid import LightSimBackend

    begun, names = time.process_time(), [names_of(task)[k] for k in task.scored]
    options = {"action_class": getattr(Action, task.actions)}
    env = grid2op.make(str(folder_of(task.world)), backend=LightSimBackend(), **options)
    agent = as_agent(choose, env, sim, names)
    step, begin = jax.jit(sim.step), jax.jit(sim.env.begin)
    key, equal, total, ends, rho, apart, acts = jax.random.key(0), 0, 0, 0, 0.0, 0.0, 0
    for k, number in enumerate(task.scored):
        seen = env.reset(options={"time serie id": number})
        state, obs = begin(key, jax.tree.map(lambda x, k=k: x[k], draws_of(sim)), sim.params)
        done, over = False, False
        for _ in range(steps):
            theirs, ours = agent.act(seen, 0.0, False), decide(choose, sim, state, obs, key)
            equal, total, acts = equal + (int(ours[0, 0]) == agent.index), total + 1, acts + (agent.index != 0)
            apart = max(apart, float(np.abs(agent.seen - np.asarray(obs)).max()))
            seen, _, done, _ = env.step(theirs)
            out = step(state, ours)
            state, obs, over = out.state, out.obs, bool(out.info.terminated | out.info.truncated)
            if done or over:
                break
            rho = max(rho, float(np.abs(seen.rho - np.asarray(out.info.rho)).max()))
        lost, failed = done and not seen.line_status.any(), bool(out.info.terminated)
        # Grid2Op does not know of a number of steps that ends an episode
        ends += lost == failed and (done == over or (over and not failed))
    env.close()
    return (
        f"{acts}",
        f"{equal / total:.6f}",
        f"{ends}",
        f"{rho:.1e}",
        f"{apart:.1e}",
        f"{time.process_time() - begun:.0f}",
    )


def main() -> None:
    """Measure, and print or write the table."""
    ask = parser(__doc__, "one seed, half a minute of learning, 100 steps")
    ask.add_argument("--world", nargs="*", default=[task.world for task in TASKS])
    ask.add_argument("--seeds", type=int, default=3)
    ask.add_argument("--minutes", type=float, default=5.0, help="processor time of learning, for each seed")
    ask.add_argument("--steps", type=int, default=2000)
    given = ask.parse_args()
    seeds, minutes, steps = (1, 0.5, 100) if given.quick else (given.seeds, given.minutes, given.steps)
    warnings.simplefilter("ignore")
    with Table(COLUMNS, given.out) as table:
        for task in (task for task in TASKS if task.world in given.world):
            scored = make(task, task.scored, steps)
            planned = np.asarray(scored.params.n_step)
            players: list[tuple[str, str, Choose, float]] = [
                ("nothing", "-", Partial(nothing), 0.0),
                ("recovery", "-", recovery(scored), 0.0),
                ("greedy", "-", greedy(), 0.0),
            ]
            learner = Learner(make(task, task.learnt, steps))
            for seed in range(seeds):
                players.append(("ppo", f"{seed}", *learner.learn(seed, minutes)))
            for name, seed_of, choose, seconds in players:
                lived = score(scored, choose)
                figures = f"{lived.sum() / planned.sum():.4f}", f"{(lived == planned).sum()}", f"{seconds:.0f}"
                table.add(
                    (task.world, name, seed_of, f"{len(planned)}", *figures, *play_both(task, scored, choose, steps))
                )


if __name__ == "__main__":
    main()
