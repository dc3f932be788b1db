"""Speed of PPO with its updates, one pinned core: how much of it is the environment, how much the learner.

Usage: python benchmarks/ppo.py [--task dso] [--lanes 256] [--steps 48] [--epochs 4 8] [--rounds 7]
                                [--peer | --powerzoojax] [--peers-only] [--out FILE]

Programs of lanes x steps environment steps run interleaved, medians of their processor time over rounds:
  update    collect with the policy, advantages, all epochs of minibatches (other settings are those of `PPOConfig`),
            once for each row of `options`: none, and those of `PPOConfig` that change how an update computes
  env       vstep with random actions, every output that the learner reads consumed
The learner's time is the difference. Compile time stands apart; `callbacks` counts what the whole training program
would call on the host. Columns are tab-separated.

--peer adds PureJaxRL's PPO for continuous actions on the gymnax view of the same task, and ours beside it: whole runs
of a few updates with the network that its source fixes (256 x 256, tanh, apart for policy and value), the same lanes,
steps, epochs and minibatches, observations and rewards normalised. Its folder `purejaxrl` must be on PYTHONPATH, with
gymnax installed. Of distrax it takes the diagonal Gaussian alone, for which a stand-in of the same three formulas is
used: distrax itself does not import with this JAX.

--powerzoojax adds PowerZooJax's own `dso`, which it trains by rejax's PPO, with 128 x 128, 128 lanes and 4 minibatches,
made days in place of its data files, and ours beside it on our `dso`, whose observation is longer. Its checkout must be
on PYTHONPATH, with rejax installed (`.venv-e3`). --peers-only leaves out the rows of one update.
"""

from __future__ import annotations

# isort: off
import one_core  # noqa: F401  pins the process before jax starts
# isort: on

import argparse
import importlib
import itertools
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

import powerzoo_jax
from powerzoo_jax.cli.commands.bench import device_name
from powerzoo_jax.envs import Sim, vstep
from powerzoo_jax.rl.algorithms import ppo
from powerzoo_jax.rl.networks.body import entropy, log_prob
from powerzoo_jax.rl.training.config import PPOConfig

WIDTHS = ((64, 64), (128, 128))
HOST = ("callback", "debug", "infeed", "outfeed")
COLUMNS = ("task", "options", "network", "lanes", "steps", "epochs", "steps_per_s", "update_ms", "env_ms", "learner_ms")
TAIL = ("compile_s", "callbacks")
BLOCKS, SHARED, STAGGERED = {"by_lanes": True}, {"shared_torso": True}, {"stagger": True}
OPTIONS: tuple[dict[str, bool], ...] = ({}, BLOCKS, SHARED, STAGGERED, BLOCKS | SHARED, BLOCKS | SHARED | STAGGERED)
PEER_WIDTHS, PEER_UPDATES = (256, 256), 4
SMALL_WIDTHS, SMALL_LANES, SMALL_MINIBATCHES = (128, 128), 128, 4  # beside PowerZooJax
PEER = "ppo_continuous_action"
# what the peer imports for environments that are not played here
PEER_ENVS = ("brax", "brax.envs", "brax.envs.wrappers", "brax.envs.wrappers.training", "navix")


def play(sim: Sim, states: Any, actions: Array) -> tuple[Any, Array]:
    """Play random actions (T, B, A, U); what a learner reads is summed, so that nothing is optimised away."""

    def body(states: Any, action: Array) -> tuple[Any, Array]:
        out, states, obs = vstep(sim, states, action)
        read = lax.optimization_barrier((out.obs, obs, out.reward, out.cost, out.info))
        return states, sum(jnp.sum(x, dtype=jnp.float32) for x in jax.tree.leaves(read) if x.size)

    return lax.scan(body, states, actions)


def compiled(function: Callable[..., Any], *arguments: Any) -> tuple[Callable[[], Any], float]:
    """Compile ahead of time: (a call that waits for its result, seconds it took)."""
    begin = time.perf_counter()
    program = jax.jit(function).lower(*arguments).compile()
    return lambda: jax.block_until_ready(program(*arguments)), time.perf_counter() - begin


def primitives(jaxpr: Any) -> Iterator[str]:
    """Names of all primitives of a program, inner programs included."""
    for eqn in jaxpr.eqns:
        yield eqn.primitive.name
        for inner in jax.tree.leaves(eqn.params, is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")):
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns"):
                yield from primitives(inner)


def interleaved(runs: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median processor time of each run [ms]: on a machine that others share, a clock would count their work too."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for count in range(rounds + 1):
        for name, run in runs.items():
            begin = time.process_time()
            run()
            if count:  # the first round warms up
                times[name].append(time.process_time() - begin)
    return {name: float(np.median(values)) * 1e3 for name, values in times.items()}


def measure(sim: Sim, cfg: PPOConfig, rounds: int) -> list[list[str]]:
    """Rows of the table for one network, one a set of options."""
    key = jax.random.key(0)
    shape = (cfg.steps, cfg.lanes, sim.env.dims.agent, sim.env.dims.act)
    states, _ = jax.jit(jax.vmap(sim.init))(jax.random.split(key, cfg.lanes))
    env, _ = compiled(play, sim, states, jax.random.uniform(key, shape, minval=-1))
    chosen = {"+".join(options) or "none": replace(cfg, **options) for options in OPTIONS}  # type: ignore[arg-type]
    runs, compile_s, calls = {"env": env}, dict[str, float](), dict[str, int]()
    for name, mine in chosen.items():
        init, update = ppo.make_update(mine, sim)
        runs[name], compile_s[name] = compiled(update, jax.jit(init)(key, sim), sim)
        train = jax.make_jaxpr(ppo.make_train(mine, sim))(key, sim)
        calls[name] = sum(any(word in found for word in HOST) for found in primitives(train.jaxpr))
    took = interleaved(runs, rounds)
    rows = []
    for name in chosen:
        alone = (f"{took['env']:.1f}", f"{took[name] - took['env']:.1f}")
        rows.append([*head(sim, cfg, name, took[name]), *alone, f"{compile_s[name]:.1f}", str(calls[name])])
    return rows


def head(sim: Sim, cfg: PPOConfig, name: str, update_ms: float) -> list[str]:
    """First cells of a row."""
    speed = f"{cfg.lanes * cfg.steps / update_ms * 1e3:.0f}"
    cells = (sim.spec.id, name, "x".join(map(str, cfg.widths)), cfg.lanes, cfg.steps, cfg.epochs, speed)
    return [*map(str, cells), f"{update_ms:.1f}"]


class Gaussian:
    """Diagonal Gaussian over the last axis, with the calls of distrax that PureJaxRL makes."""

    def __init__(self, mean: Array, width: Array) -> None:
        self.mean, self.log_std = mean, jnp.broadcast_to(jnp.log(width), mean.shape)

    def sample(self, *, seed: Array) -> Array:
        """Draw (..., U)."""
        return self.mean + jnp.exp(self.log_std) * jax.random.normal(seed, self.mean.shape, self.mean.dtype)

    def log_prob(self, action: Array) -> Array:
        """Log density (...)."""
        return log_prob(self.mean, self.log_std, action)

    def entropy(self) -> Array:
        """Differential entropy (...)."""
        return entropy(self.log_std)


def beside(sim: Sim, cfg: PPOConfig, rounds: int) -> list[list[str]]:
    """Rows of whole runs: ours and PureJaxRL's."""
    from powerzoo_compat.gymnax_view import to_gymnax

    for name in (*PEER_ENVS, "distrax"):
        sys.modules.setdefault(name, ModuleType(name))
    vars(sys.modules["distrax"]).setdefault("MultivariateNormalDiag", Gaussian)
    for name in ("EpisodeWrapper", "AutoResetWrapper"):
        vars(sys.modules["brax.envs.wrappers.training"]).setdefault(name, None)
    vars(sys.modules["brax"]).setdefault("envs", sys.modules["brax.envs"])
    peer = importlib.import_module(PEER)
    vars(peer)["BraxGymnaxWrapper"] = lambda _: to_gymnax(sim, api="five")[0]
    total = PEER_UPDATES * cfg.lanes * cfg.steps
    given = {"LR": cfg.lr, "NUM_ENVS": cfg.lanes, "NUM_STEPS": cfg.steps, "TOTAL_TIMESTEPS": total, "DEBUG": False}
    given |= {"UPDATE_EPOCHS": cfg.epochs, "NUM_MINIBATCHES": cfg.minibatches, "GAMMA": cfg.gamma, "ANNEAL_LR": True}
    given |= {"GAE_LAMBDA": cfg.gae_lambda, "CLIP_EPS": cfg.clip, "ENT_COEF": cfg.entropy, "VF_COEF": cfg.value_weight}
    given |= {"MAX_GRAD_NORM": cfg.max_grad_norm, "ACTIVATION": cfg.activation, "NORMALIZE_ENV": True, "ENV_NAME": ""}
    cfg = replace(cfg, widths=PEER_WIDTHS, total_steps=total, normalise_reward=True)
    return whole_runs(sim, cfg, "PureJaxRL", peer.make_train(given), jax.random.PRNGKey(0), rounds)


def beside_powerzoojax(sim: Sim, cfg: PPOConfig, rounds: int) -> list[list[str]]:
    """Rows of whole runs: ours on our `dso`, and rejax's PPO on PowerZooJax's."""
    import rejax
    from powerzoojax.envs.grid.dist import DistGridEnv
    from powerzoojax.rl.trainer import _RejaxAdapter
    from powerzoojax.rl.wrappers import LogWrapper
    from powerzoojax.tasks import dso

    total = PEER_UPDATES * cfg.lanes * cfg.steps
    cfg = replace(cfg, widths=SMALL_WIDTHS, total_steps=total)
    params = dso.make_dso_params(feeder_shapes=dso.make_synthetic_feeder_shapes())
    given: dict[str, Any] = {"num_envs": cfg.lanes, "num_steps": cfg.steps, "num_epochs": cfg.epochs}
    given |= {"num_minibatches": cfg.minibatches, "learning_rate": cfg.lr, "gamma": cfg.gamma, "ent_coef": cfg.entropy}
    given |= {"gae_lambda": cfg.gae_lambda, "clip_eps": cfg.clip, "vf_coef": cfg.value_weight}
    given |= {"max_grad_norm": cfg.max_grad_norm, "normalize_observations": True, "total_timesteps": total}
    network = {"hidden_layer_sizes": cfg.widths, "activation": cfg.activation}
    learner = rejax.PPO.create(
        env=_RejaxAdapter(LogWrapper(DistGridEnv(), params)), env_params=None, agent_kwargs=network, **given
    )

    def train(key: Array) -> Any:
        step = learner.train_iteration
        return lax.fori_loop(0, PEER_UPDATES, lambda _, state: step(state), learner.init_state(key))

    return whole_runs(sim, cfg, "PowerZooJax", train, jax.random.key(0), rounds)


def whole_runs(
    sim: Sim, cfg: PPOConfig, peer: str, train: Callable[[Array], Any], key: Array, rounds: int
) -> list[list[str]]:
    """Rows of our runs under the first OPTIONS, and of the peer's."""
    chosen = {"+".join(options) or "none": replace(cfg, **options) for options in OPTIONS[:3]}  # type: ignore[arg-type]
    built = {name: compiled(ppo.make_train(mine, sim), jax.random.key(0), sim) for name, mine in chosen.items()}
    built[peer] = compiled(train, key)
    took = interleaved({name: run for name, (run, _) in built.items()}, rounds)
    return [
        [*head(sim, cfg, name, took[name] / PEER_UPDATES), "-", "-", f"{compile_s:.1f}", "-"]
        for name, (_, compile_s) in built.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="dso")
    parser.add_argument("--lanes", type=int, default=PPOConfig.lanes)
    parser.add_argument("--steps", type=int, default=PPOConfig.steps)
    parser.add_argument("--epochs", type=int, nargs="+", default=[4, 8], help="passes over the samples of an update")
    parser.add_argument("--rounds", type=int, default=7)
    one_peer = parser.add_mutually_exclusive_group()  # the stand-in for distrax would serve both
    one_peer.add_argument("--peer", action="store_true", help="also train with PureJaxRL's PPO")
    one_peer.add_argument("--powerzoojax", action="store_true", help="also train PowerZooJax's dso")
    parser.add_argument("--peers-only", action="store_true", help="no rows of one update")
    parser.add_argument("--out", type=Path, help="write the table to this file as well")
    args = parser.parse_args()
    lines: list[str] = []

    def tell(line: str) -> None:
        print(line, flush=True)
        lines.append(line)

    tell(f"# {device_name()}, one core, jax {metadata.version('jax')}, powerzoo_jax {powerzoo_jax.__version__}")
    tell("\t".join((*COLUMNS, *TAIL)))
    sim = powerzoo_jax.make(args.task, split="train")
    for widths, epochs in itertools.product(() if args.peers_only else WIDTHS, args.epochs):
        cfg = PPOConfig(task=args.task, lanes=args.lanes, steps=args.steps, epochs=epochs, widths=widths)
        for row in measure(sim, cfg, args.rounds):
            tell("\t".join(row))
    if args.peer:
        cfg = PPOConfig(task=args.task, lanes=args.lanes, steps=args.steps, epochs=args.epochs[0])
        for row in beside(sim, cfg, args.rounds):
            tell("\t".join(row))
    if args.powerzoojax:
        cfg = PPOConfig(
            task="dso", lanes=SMALL_LANES, steps=args.steps, epochs=args.epochs[0], minibatches=SMALL_MINIBATCHES
        )
        for row in beside_powerzoojax(powerzoo_jax.make("dso", split="train"), cfg, args.rounds):
            tell("\t".join(row))
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
