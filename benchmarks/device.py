"""Speed on JAX's default device, whatever it is: power flow, environment steps, and PPO from start to end.

Usage: python benchmarks/device.py [--quick] [--case NAME ...] [--task NAME ...] [--trained NAME ...] [--lanes N ...]
                                   [--rounds 7] [--out FILE]

What is timed, medians over rounds in which every engine runs; compile time apart:
  power flow   device arrays of injections in -> voltages, status and residual ready, unseen loads U(0.9, 1.1), float32
  env steps    48 steps of all lanes with random actions, observations, rewards and costs read: one program
  ppo          a whole training run of a few updates of 48 steps, initialisation included, one program
Where they can be imported, PowerZooJax steps its own form of a task, which differs in network, devices and observation,
and PureJaxRL trains its own CartPole, which says what a learner costs without a grid. Both calls follow the sources of
the two projects and have not been run. `unsolved` is the share of lanes
that did not converge. The first line names the device and the versions.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from importlib import metadata, util
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from peers import Engine
from report import Table, parser

import powerzoo_jax
from powerzoo_jax.cases import load_case
from powerzoo_jax.powerflow import nominal_injection, prepare_feeder, prepare_meshed, solve_feeder, solve_meshed
from powerzoo_jax.rl.algorithms import ppo
from powerzoo_jax.rl.training.config import PPOConfig
from tools.accelerators.programs import STEPS, rollout

CASES = ("case33bw", "case118")
TASKS = ("battery_arbitrage", "dso", "marl_ders_benchmark", "gencos_bidding", "opf_118", "dc_microgrid")
LANES = (4096, 65_536)
TRAINED = ("battery_arbitrage", "opf_118")
UPDATES = 8
SPAN, SEED = (0.9, 1.1), 20_261_122
COLUMNS = ("what", "engine", "lanes", "compile_s", "per_s", "slowest_per_s", "unsolved")
# Names of the same tasks in PowerZooJax: module and class below `powerzoojax.tasks`.
PEER_TASKS = {"dso": ("dso", "DSOTask"), "dc_microgrid": ("dc_microgrid", "DCMicrogridTask")}
VERSIONS = ("jaxlib", "jax-cuda12-plugin", "jax-cuda13-plugin", "libtpu", "powerzoojax")


def timed(what: str, name: str, lanes: int, batch: int, function: Callable[..., Any], *arguments: Any) -> Engine:
    """Compile ahead of time, run once, and keep what has to be called again."""
    begin = time.perf_counter()
    program = jax.jit(function).lower(*arguments).compile()
    compile_s = time.perf_counter() - begin
    jax.block_until_ready(program(*arguments))  # the first run also allocates
    engine = Engine(name, "float32", batch, lambda: jax.block_until_ready(program(*arguments)), compile_s)
    engine.what, engine.lanes, engine.error_pu = what, lanes, float("nan")  # type: ignore[attr-defined]
    return engine


def power_flow(name: str, lanes: int) -> Engine:
    """Solves of one network with a load of its own in every lane."""
    case = load_case(name)
    radial = name.startswith(("case33", "case69", "case141"))
    factors: Any = prepare_feeder(case) if radial else prepare_meshed(case)
    share = np.random.default_rng(SEED).uniform(*SPAN, (lanes, case.n_bus))
    demand = nominal_injection(case) * share
    p, q = (jnp.asarray(x, "float32") for x in (demand.real, demand.imag))

    def solve(factors: Any, p: jax.Array, q: jax.Array) -> tuple[jax.Array, ...]:
        one: Callable[..., Any] = solve_feeder if radial else solve_meshed
        out = jax.vmap(one, in_axes=(None, 0, 0))(factors, p, q)
        return out.v_re, out.v_im, out.status, out.residual

    engine = timed(f"power flow, {name}", "powerzoo_jax", lanes, lanes, solve, factors, p, q)
    engine.error_pu = float(np.mean(np.asarray(engine.run()[2]) != 0))
    return engine


def env_steps(task: str, lanes: int) -> Engine:
    """The rollout that `make accelerators` compiles and counts."""
    program = rollout(task, lanes)
    sim = program.arguments[0]
    states, _ = jax.jit(jax.vmap(sim.init))(jax.random.split(jax.random.key(0), lanes))
    arguments = (sim, states, jax.random.key(1))
    return timed(f"env steps, {task}", "powerzoo_jax", lanes, lanes * STEPS, program.function, *arguments)


def training(task: str, lanes: int) -> Engine:
    """A whole run of PPO with the settings of its defaults."""
    cfg = PPOConfig(task=task, lanes=lanes, steps=STEPS, total_steps=UPDATES * lanes * STEPS)
    sim = powerzoo_jax.make(task, split="train")
    train = ppo.make_train(cfg, sim)
    return timed(f"ppo, {task}", "powerzoo_jax", lanes, cfg.total_steps, train, jax.random.key(0), sim)


def peer_steps(task: str, lanes: int) -> list[Engine]:
    """PowerZooJax's form of a task, stepped by its own vectorised call; nothing where it is not installed."""
    if task not in PEER_TASKS or util.find_spec("powerzoojax") is None:
        return []
    module, name = PEER_TASKS[task]
    theirs = getattr(importlib.import_module(f"powerzoojax.tasks.{module}"), name)()
    env = theirs.make_env(split="train")
    params = theirs.episode_params("train", 0, 1, STEPS, strategy="seeded", seed=0)
    shape = (lanes, *env.action_space(params).shape)
    _, states = jax.jit(jax.vmap(env.reset, (0, None)))(jax.random.split(jax.random.PRNGKey(0), lanes), params)

    def run(params: Any, states: Any, key: jax.Array) -> tuple[Any, jax.Array]:
        def body(states: Any, key: jax.Array) -> tuple[Any, jax.Array]:
            action = jax.random.uniform(key, shape, minval=-1.0)
            step = jax.vmap(env.step_auto_reset, in_axes=(0, 0, 0, None))
            obs, states, reward, costs, _, _ = step(jax.random.split(key, lanes), states, action, params)
            return states, sum(jnp.sum(x) for x in jax.tree.leaves((obs, reward, costs)))  # type: ignore[return-value]

        states, sums = lax.scan(body, states, jax.random.split(key, STEPS))
        return states, jnp.sum(sums)

    arguments = (params, states, jax.random.PRNGKey(1))
    return [timed(f"env steps, {task}", "PowerZooJax", lanes, lanes * STEPS, run, *arguments)]


def peer_training(lanes: int) -> list[Engine]:
    """PureJaxRL's PPO on its own CartPole; nothing where it is not installed."""
    if util.find_spec("purejaxrl") is None:
        return []
    learner = importlib.import_module("purejaxrl.ppo")
    total = UPDATES * lanes * STEPS
    given = {"LR": PPOConfig.lr, "NUM_ENVS": lanes, "NUM_STEPS": STEPS, "TOTAL_TIMESTEPS": total}
    given |= {"UPDATE_EPOCHS": PPOConfig.epochs, "NUM_MINIBATCHES": PPOConfig.minibatches, "GAMMA": PPOConfig.gamma}
    given |= {"GAE_LAMBDA": PPOConfig.gae_lambda, "CLIP_EPS": PPOConfig.clip, "ENT_COEF": PPOConfig.entropy}
    given |= {"VF_COEF": PPOConfig.value_weight, "MAX_GRAD_NORM": PPOConfig.max_grad_norm, "ACTIVATION": "tanh"}
    given |= {"ENV_NAME": "CartPole-v1", "ANNEAL_LR": True, "DEBUG": False}
    train = learner.make_train(given)
    return [timed("ppo, CartPole", "PureJaxRL", lanes, total, train, jax.random.PRNGKey(0))]


def row(engine: Any) -> tuple[str, ...]:
    """Cells of the table."""
    slowest = engine.batch / max(engine.times)
    unsolved = "-" if np.isnan(engine.error_pu) else f"{engine.error_pu:.1e}"
    cells = (engine.what, engine.name, engine.lanes, f"{engine.compile_s:.1f}", f"{engine.rate:.0f}", f"{slowest:.0f}")
    return (*map(str, cells), unsolved)


def main() -> None:
    arguments = parser(__doc__, "64 lanes, one case, one task, three rounds: does it run at all")
    arguments.add_argument("--case", nargs="+", metavar="NAME", help=f"default: {' '.join(CASES)}")
    arguments.add_argument("--task", nargs="+", metavar="NAME", help=f"default: {' '.join(TASKS)}")
    arguments.add_argument("--trained", nargs="+", metavar="NAME", help=f"tasks of PPO; default: {' '.join(TRAINED)}")
    arguments.add_argument("--lanes", type=int, nargs="+", help=f"default: {' '.join(map(str, LANES))}")
    args = arguments.parse_args()
    few = 1 if args.quick else None
    lanes = args.lanes or ((64,) if args.quick else LANES)
    rounds = args.rounds or (3 if args.quick else 7)
    installed = {d.metadata["Name"].lower(): d.version for d in metadata.distributions()}
    note = " ".join(f"{name}={installed[name]}" for name in VERSIONS if name in installed)
    groups: list[Callable[[int], list[Engine]]] = []
    groups += [lambda n, c=c: [power_flow(c, n)] for c in args.case or CASES[:few]]  # type: ignore[misc]
    groups += [lambda n, t=t: [env_steps(t, n), *peer_steps(t, n)] for t in args.task or TASKS[:few]]  # type: ignore[misc]
    trained = [lambda n, t=t: [training(t, n)] for t in args.trained or TRAINED[:few]]  # type: ignore[misc]
    with Table(COLUMNS, args.out, note) as table:
        # a learner keeps every step of an update: the smallest number of lanes fits on all devices
        for group, sizes in [*((g, lanes) for g in groups), *((g, lanes[:1]) for g in [*trained, peer_training])]:
            for size in sizes:
                engines = group(size)
                for _ in range(rounds):
                    for engine in engines:
                        engine.time(0.0)
                for engine in engines:
                    table.add(row(engine))


if __name__ == "__main__":
    main()
